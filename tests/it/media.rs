//! Media against fixtures that an independent generator made (`testdata/media/generate.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use forestctl::archive::{self, Archive, Group, Ingested, Piece, TensorContent};
use forestctl::config::GrpoSettings;
use forestctl::finding::{Code, Family, Finding, Severity};
use forestctl::id::Digest32;
use forestctl::ingest;
use forestctl::rows::build;
use forestctl::select::{PolicyName, SelectSettings, Verdict, select};
use forestctl::validate::read_data::{Amount, ReadData, Stored};
use forestctl::validate::{Cumulative, Options, invalid_rollouts, validate};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/media").join(name)
}

fn expected() -> Value {
    serde_json::from_slice(&fs::read(testdata("expected.json")).unwrap()).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn read(name: &str) -> Ingested {
    ingest::read(&[testdata(name)]).unwrap()
}

struct Written {
    _home: tempfile::TempDir,
    path: PathBuf,
    archive: Archive,
}

impl Written {
    fn new(ingested: &Ingested) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run.forest");
        archive::write(&path, false, ingested).unwrap();
        let archive = Archive::open(&path).unwrap();
        Self { _home: home, path, archive }
    }

    fn capture() -> Self {
        Self::new(&read("capture"))
    }

    /// Every piece as stored, with its data or the reason why there is none.
    fn pieces(&self) -> Vec<(Piece, Result<Vec<u8>, String>)> {
        let mut found = Vec::new();
        for file in self.archive.media_files() {
            let give = |piece, data: archive::PieceData<'_>| {
                found.push((piece, data.map(<[u8]>::to_vec).map_err(str::to_owned)));
            };
            let _ = self.archive.read_pieces(file, |_| true, give);
        }
        found
    }

    fn read_data(&self, share: ReadData) -> (Vec<Finding>, Amount) {
        let mut findings = Vec::new();
        let stored = Stored::new(&self.archive);
        let amount = stored.read(&self.archive, share, |finding| findings.push(finding)).unwrap();
        (findings, amount)
    }

    /// The one media file.
    fn media_file(&self) -> PathBuf {
        let files: Vec<_> = self.archive.media_files().map(|file| file.path.clone()).collect();
        assert_eq!(files, ["media/part-00000.parquet"]);
        self.path.join(&files[0])
    }
}

fn errors(groups: &[Group]) -> Vec<Finding> {
    let mut findings = validate(groups, Options { cumulative: Cumulative::All }).findings;
    findings.retain(|finding| finding.severity == Severity::Error);
    findings
}

/// Errors of one rollout as call and code.
fn of_rollout(errors: &[Finding], rollout: &str) -> Value {
    let own =
        errors.iter().filter(|f| f.rollout_id.as_ref().is_some_and(|id| id.as_str() == rollout));
    own.map(|f| json!([f.call_id.as_ref().unwrap().as_str(), f.code.as_str()])).collect()
}

#[test]
fn every_case_of_the_generator_by_name() {
    let expected = expected();
    let ingested = read("capture");
    assert_eq!(ingested.quarantine, []);
    let written = Written::new(&ingested);
    let groups = written.archive.groups().unwrap();
    assert!(groups == ingested.groups);
    assert_eq!(written.archive.check_files(), []);
    let errors = errors(&groups);
    let settings =
        SelectSettings { invalid: invalid_rollouts(&errors), ..SelectSettings::default() };
    let selection = select(&groups, PolicyName::ReturnedHistory.policy(), &settings);
    let batch = build(&groups, &selection, 1, &GrpoSettings::default());
    let by_digest: BTreeMap<Digest32, String> = written
        .pieces()
        .into_iter()
        .map(|(piece, data)| (piece.digest, sha256(&data.unwrap())))
        .collect();
    let cases = expected["cases"].as_object().unwrap();
    assert_eq!(groups.len(), cases.len());
    for (name, case) in cases {
        let rollout = format!("{name}_g0");
        assert_eq!(of_rollout(&errors, &rollout), case["errors"], "{name}: {errors:#?}");
        let mut selected = selection.groups.iter().flat_map(|group| &group.rollouts);
        let selected = selected.find(|s| s.rollout_id.as_str() == rollout).unwrap();
        let verdict = match selected.verdict() {
            Verdict::Valid => "valid",
            Verdict::Masked => "masked",
        };
        let reasons: Vec<&str> = selected.reasons.iter().map(|r| r.code.as_str()).collect();
        assert_eq!(
            (json!(verdict), json!(reasons)),
            (case["verdict"].clone(), case["reasons"].clone()),
            "{name}"
        );
        let rows: Vec<Value> = batch
            .rows
            .iter()
            .filter(|row| row.rollout_id.as_ref().is_some_and(|id| id.as_str() == rollout))
            .map(|row| {
                let calls: Vec<&str> = row.spans.iter().map(|span| span.call.as_str()).collect();
                let media = row.media.iter();
                let media: Vec<_> =
                    media.map(|m| [m.call.as_str(), by_digest[&m.digest].as_str()]).collect();
                json!({"calls": calls, "media": media})
            })
            .collect();
        let wanted = if verdict == "valid" { case["rows"].clone() } else { json!([]) };
        assert_eq!(json!(rows), wanted, "{name}");
    }
}

#[test]
fn every_media_code_has_a_case() {
    let expected = expected();
    let cases = expected["cases"].as_object().unwrap().values();
    let cases = cases.chain(expected["broken"]["cases"].as_object().unwrap().values());
    let errors = cases.flat_map(|case| case["errors"].as_array().unwrap());
    let seen: BTreeSet<&str> = errors.map(|error| error[1].as_str().unwrap()).collect();
    for code in Code::ALL.iter().filter(|code| code.family() == Family::Media) {
        assert!(seen.contains(code.as_str()), "{code}");
    }
}

#[test]
fn tensors_come_back_as_the_sidecars_hold_them_and_each_image_once() {
    let expected = expected();
    let written = Written::capture();
    let pieces = written.pieces();
    let stored: Vec<String> =
        pieces.iter().map(|(_, data)| sha256(data.as_ref().unwrap())).collect();
    let mut sorted = stored.clone();
    sorted.sort_unstable();
    // Sorted, without repetition, over all calls and rollouts.
    assert_eq!(json!(sorted), expected["pieces"]);
    let data: BTreeMap<Digest32, Vec<u8>> =
        pieces.into_iter().map(|(piece, data)| (piece.digest, data.unwrap())).collect();
    let groups = written.archive.groups().unwrap();
    let mut seen = BTreeSet::new();
    for call in groups.iter().flat_map(|g| &g.rollouts).flat_map(|r| &r.calls) {
        let wanted = &expected["calls"][call.call_id.as_str()];
        let mut tensors = serde_json::Map::new();
        for tensor in &call.tensors {
            let bytes: Vec<u8> = match &tensor.content {
                TensorContent::Inline(bytes) => bytes.clone(),
                TensorContent::Pieces(pieces) => {
                    pieces.iter().flat_map(|piece| data[&piece.digest].clone()).collect()
                }
            };
            let value = json!([tensor.dtype.to_string(), tensor.shape, sha256(&bytes)]);
            tensors.insert(tensor.field.clone(), value);
        }
        assert_eq!(Value::from(tensors), wanted["tensors"], "{}", call.call_id);
        let pixels = call.tensor("media_imgs").map_or(&[][..], |tensor| tensor.pieces());
        let pixels: Vec<String> = pixels.iter().map(|piece| sha256(&data[&piece.digest])).collect();
        assert_eq!(json!(pixels), wanted["pieces"], "{}", call.call_id);
        seen.insert(call.call_id.as_str());
    }
    // A restored call is there twice, under two scopes.
    assert_eq!(seen.len(), expected["calls"].as_object().unwrap().len());
}

#[test]
fn an_image_is_stored_once_over_all_parts() {
    let mut ingested = read("capture");
    // Enough for several parts.
    for group in &mut ingested.groups[..6] {
        group.rollouts[0].result = Some("x".repeat(40 << 20));
    }
    let write = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| Written::new(&ingested))
    };
    let (one, three) = (write(1), write(3));
    assert!(one.archive.part_count() > 3 && one.archive.media_files().count() > 2);
    assert_eq!(one.archive.manifest(), three.archive.manifest());
    let pieces = one.pieces();
    assert_eq!(pieces.len(), expected()["pieces"].as_array().unwrap().len());
    let distinct: BTreeSet<Digest32> = pieces.iter().map(|(piece, _)| piece.digest).collect();
    assert_eq!(distinct.len(), pieces.len());
    let stored = Stored::new(&one.archive);
    assert_eq!(stored.check(&one.archive.groups().unwrap()), []);
    let (findings, amount) = one.read_data(ReadData::ALL);
    assert_eq!((findings, amount.pieces), (vec![], pieces.len() as u64));
}

/// However tensors are spread over sidecars, what was captured is the same.
#[test]
fn sidecars_may_be_split_joined_and_repeated() {
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("copy");
    fs::create_dir_all(copy.join("media")).unwrap();
    for name in ["staged", "receipts", "rollouts", "media"] {
        let name = format!("{name}.jsonl");
        fs::copy(testdata("capture").join(&name), copy.join(&name)).unwrap();
    }
    let mut all: BTreeMap<String, safetensors::tensor::TensorView<'_>> = BTreeMap::new();
    let parts = ["part-0", "part-1"]
        .map(|name| fs::read(testdata(&format!("capture/media/{name}.safetensors"))).unwrap());
    for part in &parts {
        all.extend(safetensors::SafeTensors::deserialize(part).unwrap().tensors());
    }
    for (i, (name, view)) in all.iter().enumerate() {
        // Every tensor in a file of its own, and every third one once more.
        for copies in 0..=usize::from(i % 3 == 0) {
            let bytes = safetensors::serialize([(name.as_str(), view)], None).unwrap();
            fs::write(copy.join(format!("media/{i}-{copies}.safetensors")), bytes).unwrap();
        }
    }
    let split = ingest::read(&[copy]).unwrap();
    assert_eq!(split.quarantine, []);
    let (whole, split) = (Written::capture(), Written::new(&split));
    assert_eq!(whole.archive.digest(), split.archive.digest());
    let media = |written: &Written| fs::read(written.media_file()).unwrap();
    assert!(media(&whole) == media(&split));
}

#[test]
fn sidecars_that_cannot_be_believed_are_set_aside_by_name() {
    let expected = expected();
    let ingested = read("broken");
    let mut set_aside: Vec<[String; 2]> = ingested
        .quarantine
        .iter()
        .map(|entry| {
            let file = entry.source.rsplit('/').next().unwrap();
            [file.to_owned(), entry.code.as_str().to_owned()]
        })
        .collect();
    set_aside.sort();
    assert_eq!(json!(set_aside), expected["broken"]["quarantine"]);
    assert!(ingested.quarantine.iter().all(|entry| entry.message.len() < 1000));
    let named = |code: Code| {
        let entries = ingested.quarantine.iter().filter(move |entry| entry.code == code);
        entries.filter_map(|entry| entry.call_id.as_ref()).map(|id| id.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(named(Code::ConflictingRecord), ["torn.c1"; 2]);
    assert_eq!(named(Code::OrphanTensor), ["nobody"]);
    assert!(ingested.quarantine.iter().any(|entry| entry.code == Code::MalformedSidecar));
    let errors = errors(&ingested.groups);
    for (name, case) in expected["broken"]["cases"].as_object().unwrap() {
        assert_eq!(of_rollout(&errors, &format!("{name}_g0")), case["errors"], "{name}");
    }
}

#[test]
fn a_flipped_pixel_is_found_when_data_are_read() {
    let expected = expected();
    let written = Written::capture();
    let groups = written.archive.groups().unwrap();
    let brings_b = groups.iter().find(|group| group.group_id.as_str() == "a_then_b").unwrap();
    let piece = brings_b.rollouts[0].calls[1].tensor("media_imgs").unwrap().pieces()[0];
    let mut pieces = written.pieces().into_iter();
    let data = pieces.find(|(stored, _)| *stored == piece).unwrap().1.unwrap();
    let file = written.media_file();
    let mut bytes = fs::read(&file).unwrap();
    // Noise does not compress, so the pixels lie in the file as they are.
    let at = bytes.windows(16).position(|window| window == &data[100..116]).unwrap();
    bytes[at] ^= 1;
    fs::write(&file, &bytes).unwrap();

    assert_eq!(written.archive.check_files(), []);
    assert!(written.archive.groups().unwrap() == groups);
    assert_eq!(Stored::new(&written.archive).check(&groups), []);
    let (findings, _) = written.read_data(ReadData::ALL);
    let digest = sha256(&data);
    let calls = groups.iter().flat_map(|g| &g.rollouts).flat_map(|r| &r.calls);
    let users: Vec<&str> = calls
        .map(|call| call.call_id.as_str())
        .filter(|id| {
            let pieces = expected["calls"][id]["pieces"].as_array().unwrap();
            pieces.iter().any(|piece| *piece == digest)
        })
        .collect();
    assert!(users.len() > 2);
    let found: Vec<&str> =
        findings.iter().filter_map(|f| f.call_id.as_ref()).map(|id| id.as_str()).collect();
    assert_eq!(found, users);
    for finding in &findings {
        assert_eq!(finding.code, Code::CorruptTensor);
        assert!(finding.message.contains(&piece.digest.to_string()), "{}", finding.message);
        let location = &finding.location;
        assert_eq!(location.file.as_deref(), Some("media/part-00000.parquet"));
        assert_eq!(location.field.as_deref(), Some("media_imgs"));
    }
}

#[test]
fn the_command_reads_data_when_asked() {
    let mut ingested = read("capture");
    ingested.groups.retain(|group| group.group_id.as_str() == "rewrite_to_b");
    let written = Written::new(&ingested);
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forestctl"));
        let output = command.arg("validate").arg(&written.path).args(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, _, said) = run(&["--read-data"]);
    assert_eq!((code, said.as_str()), (Some(0), "2 pieces of tensor data read, 768 B\n"));
    assert!(run(&["--read-data=1%"]).2.starts_with("1 piece of tensor data read"));
    for wrong in ["--read-data=3/2", "--read-data=0%", "--read-data=all"] {
        assert_eq!(run(&[wrong]).0, Some(2), "{wrong}");
    }
    let data = written.pieces().swap_remove(1).1.unwrap();
    let file = written.media_file();
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(16).position(|window| window == &data[100..116]).unwrap();
    bytes[at] ^= 1;
    fs::write(&file, &bytes).unwrap();
    assert_eq!(run(&[]).0, Some(0));
    let (code, found, _) = run(&["--read-data=100%", "--format", "jsonl"]);
    let lines = found.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found: Vec<Value> = lines.filter(|line| line["kind"] == "finding").collect();
    let calls: Vec<&str> = found.iter().map(|f| f["call_id"].as_str().unwrap()).collect();
    assert_eq!((code, calls), (Some(1), vec!["rewrite_to_b.c2", "rewrite_to_b.c3"]));
    assert!(found.iter().all(|finding| finding["code"] == "corrupt_tensor"));
    fs::remove_file(&file).unwrap();
    let (code, found, _) = run(&["--format", "csv"]);
    assert_eq!(code, Some(1));
    assert!(found.contains("corrupt_file") && found.contains("missing_tensor"), "{found}");
}

#[test]
fn any_flipped_byte_of_tensor_data_is_found_or_changes_nothing() {
    let mut ingested = read("capture");
    ingested.groups.retain(|g| ["rewrite_to_a_and_b", "video"].contains(&g.group_id.as_str()));
    let written = Written::new(&ingested);
    let groups = written.archive.groups().unwrap();
    let file = written.media_file();
    let bytes = fs::read(&file).unwrap();
    let whole = written.pieces();
    assert_eq!(whole.len(), 6);
    let (mut found, mut harmless) = (0, 0);
    for at in 0..bytes.len() {
        let mut broken = bytes.clone();
        broken[at] ^= 1 << (at % 8);
        fs::write(&file, &broken).unwrap();
        let mut findings = written.archive.check_files();
        findings.extend(Stored::new(&written.archive).check(&groups));
        findings.extend(written.read_data(ReadData::ALL).0);
        match findings.is_empty() {
            true => {
                assert!(written.pieces() == whole, "byte {at}");
                harmless += 1;
            }
            false => found += 1,
        }
    }
    println!("{found} of {} flipped bytes were found, {harmless} change nothing", bytes.len());
    assert!(found > bytes.len() / 2);
}

#[test]
fn groups_are_read_without_tensor_data() {
    let written = Written::capture();
    let groups = written.archive.groups().unwrap();
    let file = written.media_file();
    let bytes = fs::read(&file).unwrap();
    for change in [None, Some(bytes.len() - 1), Some(0)] {
        match change {
            None => fs::remove_file(&file).unwrap(),
            Some(length) => fs::write(&file, &bytes[..length]).unwrap(),
        }
        assert!(written.archive.groups().unwrap() == groups);
        let codes: Vec<Code> = written.archive.check_files().iter().map(|f| f.code).collect();
        assert_eq!(codes, [Code::CorruptFile]);
        let missing = Stored::new(&written.archive).check(&groups);
        let with_pieces = groups.iter().flat_map(|g| &g.rollouts).flat_map(|r| &r.calls);
        let with_pieces = with_pieces.flat_map(|c| &c.tensors).filter(|t| !t.pieces().is_empty());
        assert_eq!(missing.len(), with_pieces.count());
        assert!(missing.iter().all(|f| f.code == Code::MissingTensor && f.call_id.is_some()));
    }
}

#[test]
fn shares_together_read_everything_once() {
    let written = Written::capture();
    let (_, all) = written.read_data(ReadData::ALL);
    assert_eq!(all.pieces, expected()["pieces"].as_array().unwrap().len() as u64);
    let lengths = written.pieces().into_iter().map(|(_, data)| data.unwrap().len() as u64);
    assert_eq!(all.bytes, lengths.sum::<u64>());
    let shares = (1..=3).map(|n| written.read_data(ReadData::Share { n, of: 3 }).1);
    let sum = shares.fold(Amount::default(), |sum, share| Amount {
        pieces: sum.pieces + share.pieces,
        bytes: sum.bytes + share.bytes,
    });
    assert_eq!(sum, all);
    assert_eq!(written.read_data(ReadData::Percent(1e-9)).1.pieces, 1);
}

#[test]
fn a_source_that_changes_while_it_is_archived_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("capture");
    fs::create_dir_all(copy.join("media")).unwrap();
    for name in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl", "media.jsonl"] {
        fs::copy(testdata("capture").join(name), copy.join(name)).unwrap();
    }
    let sidecar = "media/part-0.safetensors";
    fs::copy(testdata("capture").join(sidecar), copy.join(sidecar)).unwrap();
    let ingested = ingest::read(std::slice::from_ref(&copy)).unwrap();
    let mut bytes = fs::read(copy.join(sidecar)).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header..].iter_mut().for_each(|byte| *byte ^= 1);
    let half = bytes.len() / 2;
    for changed in [&bytes[..], &bytes[..half]] {
        fs::write(copy.join(sidecar), changed).unwrap();
        let target = home.path().join("run.forest");
        let error = archive::write(&target, false, &ingested).unwrap_err();
        assert!(error.to_string().contains("changed while it was read"), "{error}");
        assert!(!target.exists());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever a sidecar holds, it is a value: archived, or set aside with its name.
    #[test]
    fn damaged_sidecars_are_values(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in prop::option::of(any::<prop::sample::Index>()),
        header in any::<bool>(),
    ) {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("media")).unwrap();
        for name in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl", "media.jsonl"] {
            fs::copy(testdata("broken").join(name), home.path().join(name)).unwrap();
        }
        let mut bytes = fs::read(testdata("broken/media/part-0.safetensors")).unwrap();
        let reach = if header { bytes.len().min(180) } else { bytes.len() };
        bytes[at.index(reach)] = byte;
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(home.path().join("media/x.safetensors"), &bytes).unwrap();
        let ingested = ingest::read(&[home.path().to_owned()]).unwrap();
        let groups = Written::new(&ingested).archive.groups().unwrap();
        prop_assert!(groups == ingested.groups);
        let held = groups.iter().flat_map(|g| &g.rollouts).flat_map(|r| &r.calls);
        prop_assert!(held.map(|c| c.tensors.len()).sum::<usize>() + ingested.quarantine.len() > 0);
        let _ = errors(&groups);
    }
}
