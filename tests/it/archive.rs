//! Groups to an archive and back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use forestctl::archive::{
    self, Archive, Call, CaptureFailure, Commitment, CommittedCall, Completeness, Completion,
    Dtype, Group, Ingested, Ledger, MediaFlags, MediaTensor, Mode, Origin, OutputItem, Quarantined,
    RawColumns, Rollout, SourceKind, TensorContent,
};
use forestctl::error::Kind;
use forestctl::finding::Code;
use forestctl::id::Digest32;
use forestctl::ingest;
use forestctl::validate;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const SEED1: &str = "testdata/closed-loop/seed1";

fn seed1(form: &str) -> Ingested {
    ingest::read(&[Path::new(SEED1).join(form)]).unwrap()
}

fn written(ingested: &Ingested) -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run.forest");
    archive::write(&path, false, ingested).unwrap();
    (home, path)
}

/// Every file with its bytes.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_string_lossy().into_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn what_was_ingested_comes_back_equal() {
    for form in ["staged-v2", "staged-v3", "gym-store"] {
        let ingested = seed1(form);
        let (_home, path) = written(&ingested);
        let archive = Archive::open(&path).unwrap();
        assert!(archive.groups().unwrap() == ingested.groups, "{form}");
        assert_eq!(archive.quarantine().unwrap(), ingested.quarantine);
        assert_eq!(archive.check_files(), []);
        assert_eq!(archive.manifest().sources, ingested.sources);
        let calls = ingested.groups.iter().flat_map(|g| &g.rollouts).map(|r| r.calls.len());
        assert_eq!(archive.counts().calls, calls.sum::<usize>() as u64);
    }
}

#[test]
fn public_rollouts_come_back_equal() {
    for name in ["gym-customer-service-rollouts.jsonl", "rl-k2-compaction.json"] {
        let source = Path::new("../shared/fixtures/public").join(name);
        if !source.exists() {
            eprintln!("skipped: {} is not here", source.display());
            return;
        }
        let ingested = ingest::read(&[source]).unwrap();
        let (_home, path) = written(&ingested);
        assert!(Archive::open(&path).unwrap().groups().unwrap() == ingested.groups, "{name}");
    }
}

#[test]
fn routes_are_kept_as_bytes() {
    let ingested = seed1("staged-v2");
    let (_home, path) = written(&ingested);
    let extras: Vec<_> = ingested
        .groups
        .iter()
        .flat_map(|g| &g.rollouts)
        .flat_map(|r| &r.calls)
        .filter_map(|call| call.extras.as_ref())
        .filter(|extras| extras.contains("nrlre1:"))
        .collect();
    assert_eq!(extras.len(), 5);
    for (name, bytes) in files(&path) {
        for text in &extras {
            let payload = &text.as_bytes()[text.len() - 60..text.len() - 20];
            assert!(!bytes.windows(40).any(|window| window == payload), "{name}");
        }
    }
}

#[test]
fn the_same_lines_give_the_same_bytes_and_digest() {
    let home = tempfile::tempdir().unwrap();
    for name in ["staged", "receipts", "rollouts"] {
        let text = fs::read_to_string(format!("{SEED1}/staged-v2/{name}.jsonl")).unwrap();
        let mut lines: Vec<_> = text.lines().collect();
        lines.reverse();
        let (a, b) = lines.split_at(lines.len() / 2);
        fs::write(home.path().join(format!("{name}-a.jsonl")), b.join("\n")).unwrap();
        let zst = zstd::encode_all(a.join("\n").as_bytes(), 1).unwrap();
        fs::write(home.path().join(format!("{name}-b.jsonl.zst")), zst).unwrap();
    }
    let (_one, one) = written(&seed1("staged-v2"));
    let (_two, two) = written(&ingest::read(&[home.path().to_owned()]).unwrap());
    let (mut one_files, mut two_files) = (files(&one), files(&two));
    for name in ["archive.json", "origins/part-00000.parquet"] {
        assert_ne!(one_files.remove(name).unwrap(), two_files.remove(name).unwrap());
    }
    assert!(one_files == two_files && one_files.len() == 4);
    let digest = |path: &Path| Archive::open(path).unwrap().digest();
    assert_eq!(digest(&one), digest(&two));
    let (_other, other) = written(&seed1("staged-v3"));
    assert_ne!(digest(&one), digest(&other));
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let mut ingested = seed1("staged-v2");
    // Enough for several parts and several row groups.
    let big = "x".repeat(20 << 20);
    for group in &mut ingested.groups {
        for rollout in &mut group.rollouts[..2] {
            rollout.result = Some(big.clone());
        }
    }
    let write = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| written(&ingested))
    };
    let ((_one, one), (_four, four)) = (write(1), write(4));
    assert!(files(&one) == files(&four));
    let archive = Archive::open(&one).unwrap();
    assert_eq!(archive.part_count(), 6);
    assert!(archive.groups().unwrap() == ingested.groups);
    assert!(archive.read_part(3).unwrap() == ingested.groups[3..4]);
}

#[test]
fn an_existing_archive_is_left_refused_or_replaced() {
    let ingested = seed1("staged-v2");
    let (home, path) = written(&ingested);
    let before = files(&path);
    assert!(archive::write(&path, false, &ingested).unwrap().unchanged);
    let other = seed1("staged-v3");
    let refused = archive::write(&path, false, &other).unwrap_err();
    assert_eq!(refused.kind(), Kind::Usage);
    assert!(refused.advice().unwrap().contains("--force"));
    assert!(files(&path) == before);
    assert!(!archive::write(&path, true, &other).unwrap().unchanged);
    assert!(Archive::open(&path).unwrap().groups().unwrap() == other.groups);
    // Something that is no archive is neither read nor replaced.
    let plain = home.path().join("plain");
    fs::create_dir(&plain).unwrap();
    assert_eq!(archive::write(&plain, false, &other).unwrap_err().kind(), Kind::Usage);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
}

#[test]
fn a_flipped_byte_anywhere_is_found() {
    let (_home, path) = written(&seed1("staged-v3"));
    for (name, bytes) in files(&path) {
        let file = path.join(&name);
        let step = (bytes.len() / 24).max(1);
        for at in (0..bytes.len()).step_by(step) {
            let mut broken = bytes.clone();
            broken[at] ^= 0x10;
            fs::write(&file, &broken).unwrap();
            let seen = Archive::open(&path).and_then(|archive| {
                let findings = archive.check_files();
                assert!(findings.iter().any(|f| f.code == Code::CorruptFile), "{name} byte {at}");
                archive.groups().and_then(|_| archive.quarantine())
            });
            assert_eq!(seen.unwrap_err().kind(), Kind::Format, "{name} byte {at}");
        }
        fs::write(&file, &bytes).unwrap();
    }
    assert_eq!(Archive::open(&path).unwrap().check_files(), []);
}

#[test]
fn missing_cut_and_additional_files_are_found() {
    let (_home, path) = written(&seed1("staged-v2"));
    let table = path.join("calls/part-00000.parquet");
    let bytes = fs::read(&table).unwrap();
    fs::write(path.join("calls/extra.txt"), "x").unwrap();
    fs::write(&table, &bytes[..bytes.len() / 2]).unwrap();
    let archive = Archive::open(&path).unwrap();
    let codes: Vec<_> = archive.check_files().iter().map(|f| f.code).collect();
    assert_eq!(codes, [Code::CorruptFile, Code::UnlistedFile]);
    let error = archive.groups().unwrap_err();
    assert!(error.to_string().contains("calls/part-00000.parquet"), "{error}");
    assert!(error.advice().unwrap().contains("--force"));
    fs::remove_file(&table).unwrap();
    assert_eq!(archive.check_files()[0].code, Code::CorruptFile);
    assert_eq!(archive.groups().unwrap_err().kind(), Kind::Format);
}

/// Writes the manifest after `change`, with the digests that it then needs.
fn forge(path: &Path, change: impl FnOnce(&mut archive::Manifest)) {
    let mut manifest = Archive::open(path).unwrap().manifest().clone();
    change(&mut manifest);
    fs::write(path.join("archive.json"), manifest.to_text().unwrap()).unwrap();
}

#[test]
fn a_manifest_that_lies_is_an_error_not_a_panic() {
    let (_home, path) = written(&seed1("staged-v2"));
    let honest = fs::read(path.join("archive.json")).unwrap();
    let opens = |change: fn(&mut archive::Manifest)| {
        forge(&path, change);
        let opened = Archive::open(&path).map(|archive| archive.groups());
        fs::write(path.join("archive.json"), &honest).unwrap();
        opened
    };
    assert!(opens(|_| {}).unwrap().is_ok());
    assert!(opens(|m| m.parts.push(m.parts[0])).is_err());
    assert!(opens(|m| m.parts[0].calls = u64::MAX).is_err());
    assert!(opens(|m| m.counts.calls += 1).is_err());
    assert!(opens(|m| m.files[0].path = "../calls.parquet".into()).is_err());
    assert!(opens(|m| m.files.reverse()).is_err());
    assert!(opens(|m| m.content = Digest32([7; 32])).unwrap().is_err());
    assert!(opens(|m| m.format.major = 3).unwrap_err().advice().unwrap().contains("newer"));
    assert!(opens(|m| m.files[0].rows += 1).unwrap().is_err());
    assert!(opens(|m| m.files[0].bytes = u64::MAX).unwrap().is_err());
}

/// Damage under a manifest that was forged to match reaches the decoder.
#[test]
fn damaged_tables_under_a_matching_manifest_are_errors() {
    let (_home, path) = written(&seed1("staged-v2"));
    let honest = fs::read(path.join("archive.json")).unwrap();
    for table in ["calls", "ledger", "origins", "rollouts"] {
        let name = format!("{table}/part-00000.parquet");
        let bytes = fs::read(path.join(&name)).unwrap();
        let step = (bytes.len() / 60).max(1);
        for at in (0..bytes.len()).step_by(step).chain(bytes.len() - 12..bytes.len()) {
            for broken in [
                bytes[..at].to_vec(),
                bytes.iter().enumerate().map(|(i, b)| if i == at { !b } else { *b }).collect(),
            ] {
                fs::write(path.join(&name), &broken).unwrap();
                fs::write(path.join("archive.json"), &honest).unwrap();
                let mut manifest = Archive::open(&path).unwrap().manifest().clone();
                let entry = manifest.files.iter_mut().find(|file| file.path == name).unwrap();
                entry.bytes = broken.len() as u64;
                entry.blake3 = Digest32(*blake3::hash(&broken).as_bytes());
                fs::write(path.join("archive.json"), manifest.to_text().unwrap()).unwrap();
                // Whatever comes out, it comes out as a value.
                let _ = Archive::open(&path).unwrap().groups();
            }
        }
        fs::write(path.join(&name), &bytes).unwrap();
    }
}

/// A quarantine whose bytes are those of the manifest, but that is none.
#[test]
fn a_quarantine_that_cannot_be_read_is_a_finding() {
    let (_home, path) = written(&seed1("staged-v2"));
    for (text, lines) in [("{", 1), ("\u{fffd}\n", 1), ("", 3)] {
        fs::write(path.join(archive::QUARANTINE), text).unwrap();
        forge(&path, |manifest| {
            manifest.counts.quarantined = lines;
            let file = manifest.files.iter_mut().find(|f| f.path == archive::QUARANTINE).unwrap();
            file.bytes = text.len() as u64;
            file.blake3 = Digest32(*blake3::hash(text.as_bytes()).as_bytes());
        });
        let opened = Archive::open(&path).unwrap();
        let (mut found, mut unread) = (Vec::new(), 0);
        validate::archive(&opened, &validate::Settings::default(), |piece| {
            found.extend(piece.findings.into_iter().filter(|f| f.code == Code::CorruptFile));
            unread += usize::from(piece.unread.is_some());
            Ok(())
        })
        .unwrap();
        let [finding] = &found[..] else { panic!("{text:?}: {found:?}") };
        assert_eq!(finding.location.file.as_deref(), Some(archive::QUARANTINE));
        assert_eq!(unread, 1);
    }
}

#[test]
fn what_is_no_archive_is_said_so() {
    let home = tempfile::tempdir().unwrap();
    let absent = Archive::open(home.path()).unwrap_err();
    assert!(absent.advice().unwrap().contains("forestctl ingest"));
    for text in ["", "{}", "[1]", "{\"format\":{\"name\":\"x\",\"major\":1,\"minor\":0}}"] {
        fs::write(home.path().join("archive.json"), text).unwrap();
        assert_eq!(Archive::open(home.path()).unwrap_err().kind(), Kind::Format, "{text}");
    }
}

#[test]
fn quarantined_lines_are_kept() {
    let ingested = Ingested {
        quarantine: vec![
            Quarantined::new("a.jsonl", Some(3), Code::MalformedJson, "not JSON").text("{\n\"é"),
            Quarantined {
                call_id: Some("c".into()),
                capture_key: Some("s".into()),
                rollout_id: Some("r".into()),
                ..Quarantined::new("b", None, Code::UnreadableSource, "cut")
            },
        ],
        ..Ingested::default()
    };
    let (_home, path) = written(&ingested);
    let archive = Archive::open(&path).unwrap();
    assert_eq!(archive.quarantine().unwrap(), ingested.quarantine);
    assert_eq!((archive.part_count(), archive.groups().unwrap()), (0, vec![]));
}

fn float() -> impl Strategy<Value = f32> {
    prop_oneof![
        any::<u32>().prop_map(f32::from_bits),
        Just(f32::NAN),
        Just(-0.0),
        Just(f32::MIN_POSITIVE / 2.0),
        Just(-9999.0),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["", "[a-z]{1,6}", "\\PC{0,8}", Just("\0\u{10ffff}".to_owned())]
}

fn digest() -> impl Strategy<Value = Digest32> {
    any::<[u8; 32]>().prop_map(Digest32)
}

fn extras() -> impl Strategy<Value = String> {
    prop_oneof![
        text(),
        vec(any::<u8>(), 0..40).prop_map(|bytes| {
            use base64::Engine;
            let text = base64::prelude::BASE64_STANDARD.encode(bytes);
            format!("{{\"é\":1,\"routed_experts\":\"nrlre1:int8:1x1x1:{text}\"}}")
        }),
    ]
}

fn commitment() -> impl Strategy<Value = Commitment> {
    (any::<(u64, u64, u64)>(), (digest(), digest(), digest(), digest())).prop_map(
        |(versions, (digest, extras_digest, chain_hash, cumulative_hash))| Commitment {
            schema_version: versions.0,
            digest_version: versions.1,
            extras_digest_version: versions.2,
            digest,
            extras_digest,
            chain_hash,
            cumulative_hash,
        },
    )
}

fn raw() -> impl Strategy<Value = RawColumns> {
    let column = || vec(any::<u64>().prop_map(f64::from_bits), 0..4);
    (column(), column()).prop_map(|(token_mask, logprobs)| RawColumns { token_mask, logprobs })
}

/// Any tensor, whether its type, shape and data go together or not.
fn tensor() -> impl Strategy<Value = MediaTensor> {
    let content = prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(TensorContent::Inline),
        Just(TensorContent::Pieces(Vec::new())),
    ];
    let dtypes = [Dtype::BF16, Dtype::F32, Dtype::I32, Dtype::F4, Dtype::F8_E4M3FNUZ, Dtype::BOOL];
    (text(), 0..dtypes.len(), vec(any::<u64>(), 0..4), content).prop_map(
        move |(field, dtype, shape, content)| MediaTensor {
            field,
            dtype: dtypes[dtype],
            shape,
            content,
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    let ids = (text(), text(), option::of(text()), option::of(text()), any::<bool>());
    let lengths = (any::<[u64; 3]>(), option::of(any::<u64>()));
    let tokens = (vec(any::<u32>(), 0..6), 0u32..6, vec(float(), 0..6), option::of(raw()));
    let media = (any::<bool>(), any::<bool>(), digest()).prop_map(
        |(present, has_frames, metadata_digest)| MediaFlags {
            present,
            has_frames,
            metadata_digest,
        },
    );
    let proofs = (
        option::of(commitment()),
        option::of(digest()),
        option::of(extras()),
        option::of(media),
        vec(tensor(), 0..3),
    );
    (ids, lengths, tokens, proofs, (text(), any::<u64>())).prop_map(
        |(ids, (lengths, weight_version), tokens, proofs, (file, line))| Call {
            call_id: ids.0.into(),
            capture_key: ids.1.into(),
            source_capture_key: ids.2.map(Into::into),
            parent_call_id: ids.3.map(Into::into),
            mode: if ids.4 { Mode::Text } else { Mode::TokenIn },
            prev_len: lengths[0],
            delta_len: lengths[1],
            cum_len: lengths[2],
            weight_version,
            carry_len: tokens.1.min(tokens.0.len() as u32),
            token_ids: tokens.0,
            generation_logprobs: tokens.2,
            raw_columns: tokens.3,
            commitment: proofs.0,
            entry_digest: proofs.1,
            extras: proofs.2,
            media: proofs.3,
            tensors: proofs.4,
            origin: Origin { file, line },
        },
    )
}

fn committed() -> impl Strategy<Value = CommittedCall> {
    let item = (option::of(text()), option::of(text()), option::of(digest()))
        .prop_map(|(id, kind, fingerprint)| OutputItem { id, kind, fingerprint });
    let completion = option::of((option::of(text()), option::of(text()))).prop_map(|recorded| {
        recorded.map_or(Completion::Unrecorded, |(status, finish_reason)| Completion::Recorded {
            status,
            finish_reason,
        })
    });
    let outputs = (option::of(vec(item, 0..3)), option::of(digest()), any::<u64>());
    (text(), option::of(text()), completion, outputs).prop_map(
        |(call_id, response_id, completion, outputs)| CommittedCall {
            call_id: call_id.into(),
            response_id,
            completion,
            output_items: outputs.0,
            output_fingerprint: outputs.1,
            fingerprint_version: outputs.2,
        },
    )
}

fn ledger() -> impl Strategy<Value = Ledger> {
    let ids = || vec(text().prop_map(Into::into), 0..3);
    let failure = (text(), text())
        .prop_map(|(call_id, reason)| CaptureFailure { call_id: call_id.into(), reason });
    let whole = (option::of(text()), option::of(text()), any::<bool>(), option::of(text()));
    (vec(committed(), 0..3), ids(), ids(), vec(failure, 0..3), whole).prop_map(
        |(committed, attempted, pending, failures, whole)| Ledger {
            receipt: whole.0,
            committed,
            attempted,
            pending,
            failures,
            terminal_call_id: whole.1.map(Into::into),
            capture_poisoned: whole.2,
            failure_reason: whole.3,
        },
    )
}

fn rollout() -> impl Strategy<Value = Rollout> {
    let numbers = (any::<[u32; 2]>(), option::of(any::<i32>()), any::<bool>());
    let kinds = (0usize..3, 0usize..3, option::of(text()), text());
    (numbers, kinds, ledger(), vec(call(), 0..3)).prop_map(|(numbers, kinds, ledger, calls)| {
        Rollout {
            rollout_id: "".into(),
            slot: numbers.0[0],
            group_size: numbers.0[1],
            capture_key: kinds.3.into(),
            reward: numbers.1.map(|reward| f64::from(reward) / 7.0),
            mask_sample: numbers.2,
            result: kinds.2,
            source: [SourceKind::Staged, SourceKind::GymStore, SourceKind::InlineRollouts][kinds.0],
            completeness: [Completeness::Complete, Completeness::Incomplete, Completeness::Unknown]
                [kinds.1],
            ledger,
            calls,
        }
    })
}

/// Floats replaced by their bits, which compare equal where NaN does not.
fn comparable(mut groups: Vec<Group>) -> (Vec<Group>, Vec<u64>) {
    let mut bits = Vec::new();
    for call in groups.iter_mut().flat_map(|g| &mut g.rollouts).flat_map(|r| &mut r.calls) {
        bits.push(call.generation_logprobs.len() as u64);
        bits.extend(call.generation_logprobs.drain(..).map(|p| u64::from(p.to_bits())));
        if let Some(raw) = &mut call.raw_columns {
            bits.extend([raw.token_mask.len() as u64, raw.logprobs.len() as u64]);
            bits.extend(raw.token_mask.drain(..).chain(raw.logprobs.drain(..)).map(f64::to_bits));
        }
    }
    (groups, bits)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn odd_values_come_back_bit_for_bit(sizes in vec(vec(rollout(), 1..3), 0..4)) {
        let groups: Vec<_> = sizes
            .into_iter()
            .enumerate()
            .map(|(at, mut rollouts)| {
                for (slot, rollout) in rollouts.iter_mut().enumerate() {
                    rollout.rollout_id = format!("{at}_g{slot}").into();
                }
                Group { group_id: format!("{at}").into(), rollouts }
            })
            .collect();
        let (_home, path) = written(&Ingested { groups: groups.clone(), ..Ingested::default() });
        let back = Archive::open(&path).unwrap().groups().unwrap();
        prop_assert_eq!(comparable(back), comparable(groups));
    }
}
