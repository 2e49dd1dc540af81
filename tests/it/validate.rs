//! Validation from files, against the published package's own verdicts and by tampering.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use forestctl::finding::{Code, Finding, Severity};
use forestctl::validate::{Cumulative, Options, validate};
use forestctl::{archive, ingest};
use serde_json::{Value, json};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|v| format!("{v}\n")).collect()
}

/// One staged capture as files would hold it.
#[derive(Clone)]
struct Capture {
    staged: Vec<Value>,
    receipts: Vec<Value>,
    rollouts: Vec<Value>,
    media: Vec<Value>,
}

impl Capture {
    fn seed1() -> Self {
        let read = |name: &str| {
            let text =
                fs::read_to_string(testdata("closed-loop/seed1/staged-v2").join(name)).unwrap();
            text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
        };
        Self {
            staged: read("staged.jsonl"),
            receipts: read("receipts.jsonl"),
            rollouts: read("rollouts.jsonl"),
            media: Vec::new(),
        }
    }

    fn findings(&self, cumulative: Cumulative) -> Vec<Finding> {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("staged.jsonl"), lines(&self.staged)).unwrap();
        fs::write(home.path().join("receipts.jsonl"), lines(&self.receipts)).unwrap();
        fs::write(home.path().join("rollouts.jsonl"), lines(&self.rollouts)).unwrap();
        if !self.media.is_empty() {
            fs::write(home.path().join("media.jsonl"), lines(&self.media)).unwrap();
        }
        let read = ingest::read(&[home.path().to_owned()]).unwrap();
        // Through the archive, so that what it keeps is enough to prove everything.
        let target = home.path().join("run.forest");
        archive::write(&target, false, &read).unwrap();
        let archive = archive::Archive::open(&target).unwrap();
        let mut findings: Vec<Finding> = archive
            .quarantine()
            .unwrap()
            .iter()
            .map(|q| Finding::new(q.code, &q.message))
            .collect();
        findings.extend(validate(&archive.groups().unwrap(), Options { cumulative }).findings);
        findings
    }

    fn errors(&self) -> Vec<Finding> {
        let mut findings = self.findings(Cumulative::Endpoints);
        findings.retain(|f| f.severity == Severity::Error);
        findings
    }

    /// A record by call id.
    fn record(&mut self, call: &str) -> &mut Value {
        self.staged.iter_mut().find(|r| r["model_call_id"] == call).unwrap()
    }
}

/// The receipt cases of the package, each with its verdict.
fn package_cases() -> Vec<(String, Capture, Value)> {
    let text = fs::read_to_string(testdata("gym-0.7/receipts/receipts.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let resolve =
        |value: &Value, table: &str| match value.as_str().and_then(|s| s.strip_prefix("@base:")) {
            Some(name) => file["base"][table][name].clone(),
            None => value.clone(),
        };
    let cases = file["cases"].as_array().unwrap();
    cases
        .iter()
        .map(|case| {
            let mut receipt = case["receipt"].clone();
            let rows = receipt["manifest"].as_array().unwrap();
            receipt["manifest"] = rows.iter().map(|r| resolve(r, "manifest")).collect();
            let snapshots = case["snapshots"].as_array().unwrap();
            let capture = Capture {
                staged: snapshots.iter().map(|s| resolve(s, "snapshots")).collect(),
                rollouts: vec![json!({
                    "group_id": "g", "rollout_id": "g_g0", "slot": 0, "group_size": 1,
                    "capture_key": receipt["rollout_id"], "reward": 1.0, "result": {},
                })],
                receipts: vec![receipt],
                media: Vec::new(),
            };
            (case["case"].as_str().unwrap().to_owned(), capture, case["expected"].clone())
        })
        .collect()
}

#[test]
fn every_receipt_case_of_the_package_by_its_own_word() {
    // Where files differ from ordered snapshots, or forestctl checks more than the package.
    let on_purpose: BTreeMap<&str, Option<Code>> = BTreeMap::from([
        // Line order means nothing.
        ("snapshot_order_mismatch", None),
        // The fifth snapshot is a line repeated.
        ("row_count_mismatch_long", Some(Code::DuplicateSnapshot)),
        // A record of a version that is not read is refused as a record, before it is compared.
        ("wrong_schema_version", Some(Code::UnsupportedSchema)),
        ("wrong_extras_digest_version", Some(Code::UnsupportedExtrasDigest)),
        // Fingerprints of a version that is not read; the verifier never looks at them.
        ("foreign_response_ids_ok", Some(Code::UnsupportedFingerprint)),
        // Checked off the scored chain, too.
        ("chain_hash_mismatch_off_path_ok", Some(Code::ChainHashMismatch)),
        ("invalid_mask_order_off_path_ok", Some(Code::InvalidMaskOrder)),
    ]);
    let mut differing = 0;
    for (name, capture, expected) in package_cases() {
        let findings = capture.findings(Cumulative::Endpoints);
        let code = |severity| findings.iter().find(|f| f.severity == severity).map(|f| f.code);
        if let Some(ours) = on_purpose.get(name.as_str()) {
            assert_eq!(code(Severity::Error), *ours, "{name}: {findings:#?}");
            differing += 1;
            continue;
        }
        let word = expected["code"].as_str().map(|w| Code::parse(w).unwrap());
        match word {
            // The capture's own account of a failure masks, and is a warning.
            Some(Code::RolloutFailed | Code::CapturePoisoned) => {
                assert_eq!(code(Severity::Error), None, "{name}: {findings:#?}");
                assert_eq!(code(Severity::Warning), word, "{name}: {findings:#?}");
            }
            _ => assert_eq!(code(Severity::Error), word, "{name}: {findings:#?}"),
        }
    }
    assert_eq!(differing, on_purpose.len());
}

#[test]
fn an_ancestors_cumulative_hash_is_checked_when_asked() {
    let (_, capture, _) = package_cases()
        .into_iter()
        .find(|(name, ..)| name == "cumulative_hash_ancestor_not_checked")
        .unwrap();
    assert!(capture.errors().is_empty());
    let all = capture.findings(Cumulative::All);
    assert!(all.iter().any(|f| f.code == Code::CumulativeHashMismatch), "{all:#?}");
}

#[test]
fn the_clean_capture_has_warnings_only() {
    let findings = Capture::seed1().findings(Cumulative::All);
    let errors: Vec<_> = findings.iter().filter(|f| f.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let mut codes: Vec<&str> = findings.iter().map(|f| f.code.as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    // Pending, failed, and cancelled calls, as the fixture's README lists them.
    for code in ["capture_pending", "capture_failed", "capture_cancelled", "completion_failed"] {
        assert!(codes.contains(&code), "{code} is not among {codes:?}");
    }
}

/// A committed continuation of the seed1 capture that has a child: tampering with it must not be
/// blamed on anybody else.
fn victim(capture: &Capture) -> String {
    let parent_of = |r: &Value| r["parent_call_id"].as_str().map(str::to_owned);
    let is_parent = |id: &str| capture.staged.iter().any(|r| parent_of(r).as_deref() == Some(id));
    let committed = |id: &str| {
        let rows = capture.receipts.iter().flat_map(|r| r["manifest"].as_array().unwrap());
        rows.into_iter().any(|row| row["model_call_id"] == id)
    };
    let found = capture.staged.iter().find(|r| {
        let id = r["model_call_id"].as_str().unwrap();
        parent_of(r).is_some() && is_parent(id) && committed(id)
    });
    found.unwrap()["model_call_id"].as_str().unwrap().to_owned()
}

#[test]
fn one_tampered_field_is_found_by_name_and_place() {
    let clean = Capture::seed1();
    let call = victim(&clean);
    let flipped_hash = |v: &Value| {
        let text = v.as_str().unwrap();
        let first = if text.starts_with('0') { "1" } else { "0" };
        Value::from(format!("{first}{}", &text[1..]))
    };
    type Tamper = Box<dyn Fn(&mut Value)>;
    let cases: Vec<(&str, Tamper, Code)> = vec![
        (
            "token",
            Box::new(|r| {
                r["token_ids_delta"][0] = json!(r["token_ids_delta"][0].as_u64().unwrap() ^ 1)
            }),
            Code::CorruptDigest,
        ),
        (
            "logprob",
            Box::new(|r| {
                let last = r["generation_log_probs_delta"].as_array_mut().unwrap().last_mut();
                *last.unwrap() = json!(-0.5);
            }),
            Code::CorruptDigest,
        ),
        ("mask", Box::new(|r| r["token_mask_delta"][0] = json!(1.0)), Code::CorruptDigest),
        (
            "carry logprob",
            Box::new(|r| r["generation_log_probs_delta"][0] = json!(-1.0)),
            Code::InvalidSnapshot,
        ),
        ("parent", Box::new(|r| r["parent_call_id"] = json!("nobody")), Code::WrongParentCallId),
        (
            "prev_len",
            Box::new(|r| r["prev_len"] = json!(r["prev_len"].as_u64().unwrap() + 1)),
            Code::WrongPrevLen,
        ),
        (
            "delta_len",
            Box::new(|r| r["delta_len"] = json!(r["delta_len"].as_u64().unwrap() + 1)),
            Code::WrongDeltaLen,
        ),
        (
            "cum_len",
            Box::new(|r| r["cum_len"] = json!(r["cum_len"].as_u64().unwrap() + 1)),
            Code::WrongCumLen,
        ),
        ("weights", Box::new(|r| r["weight_version"] = json!(99)), Code::WrongWeightVersion),
        ("digest", Box::new(move |r| r["digest"] = flipped_hash(&r["digest"])), Code::WrongDigest),
        (
            "extras digest",
            Box::new(move |r| r["extras_digest"] = flipped_hash(&r["extras_digest"])),
            Code::WrongExtrasDigest,
        ),
        (
            "chain hash",
            Box::new(move |r| r["chain_hash"] = flipped_hash(&r["chain_hash"])),
            Code::WrongChainHash,
        ),
        (
            "cumulative hash",
            Box::new(move |r| r["cumulative_hash"] = flipped_hash(&r["cumulative_hash"])),
            Code::WrongCumulativeHash,
        ),
        (
            "extras",
            Box::new(|r| r["extras"] = json!({"media_present": true})),
            Code::CorruptExtrasDigest,
        ),
    ];
    for (name, tamper, code) in cases {
        let mut capture = clean.clone();
        tamper(capture.record(&call));
        let line =
            1 + clean.staged.iter().position(|r| r["model_call_id"] == call.as_str()).unwrap();
        let errors = capture.errors();
        assert_eq!(errors.len(), 1, "{name}: {errors:#?}");
        let finding = &errors[0];
        assert_eq!(finding.code, code, "{name}: {errors:#?}");
        assert_eq!(finding.call_id.as_ref().map(|c| c.as_str()), Some(call.as_str()), "{name}");
        assert!(finding.location.file.as_deref().unwrap().ends_with("staged.jsonl"), "{name}");
        assert_eq!(finding.location.line, Some(line as u64), "{name}");
    }
}

#[test]
fn a_lost_commit_is_not_a_pending_call() {
    let mut capture = Capture::seed1();
    let rows = capture.receipts[1]["manifest"].as_array_mut().unwrap();
    let gone = rows.remove(1)["model_call_id"].as_str().unwrap().to_owned();
    let errors = capture.errors();
    assert!(
        errors.iter().any(|f| f.code == Code::UnaccountedCall
            && f.call_id.as_ref().is_some_and(|c| c.as_str() == gone)),
        "{errors:#?}"
    );
}

#[test]
fn missing_and_misplaced_records_by_the_words_for_files() {
    let clean = Capture::seed1();
    let scope = clean.receipts[1]["rollout_id"].as_str().unwrap().to_owned();
    let at = clean.staged.iter().position(|r| r["rollout_id"] == scope.as_str()).unwrap();

    let mut missing = clean.clone();
    missing.staged.remove(at);
    let codes: Vec<Code> = missing.errors().iter().map(|f| f.code).collect();
    assert_eq!(codes.first(), Some(&Code::RowCountMismatch), "{codes:?}");

    let mut renamed = clean.clone();
    renamed.staged[at]["model_call_id"] = json!("somebody-else");
    let codes: Vec<Code> = renamed.errors().iter().map(|f| f.code).collect();
    assert_eq!(codes.first(), Some(&Code::SnapshotIdentityMismatch), "{codes:?}");

    let mut moved = clean.clone();
    moved.staged[at]["rollout_id"] = clean.receipts[2]["rollout_id"].clone();
    let codes: Vec<Code> = moved.errors().iter().map(|f| f.code).collect();
    assert_eq!(codes.first(), Some(&Code::WrongRollout), "{codes:?}");

    let mut repeated = clean.clone();
    repeated.staged.push(clean.staged[at].clone());
    let codes: Vec<Code> = repeated.errors().iter().map(|f| f.code).collect();
    assert_eq!(codes, [Code::DuplicateSnapshot]);

    let mut renumbered = clean.clone();
    renumbered.receipts[1]["schema_version"] = json!(3);
    let codes: Vec<Code> = renumbered.errors().iter().map(|f| f.code).collect();
    assert_eq!(codes.first(), Some(&Code::UnsupportedSchema), "{codes:?}");
}

#[test]
fn media_flags_agree_with_what_the_extras_commit_to() {
    let clean = Capture::seed1();
    // Digests by hashlib over json.dumps(extras, sort_keys=True, separators=(",", ":")).
    let null = "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b";
    let bare = clean.staged.iter().find(|r| r["extras"].is_null()).unwrap();
    let line = |present: bool, frames: bool, digest: &str| {
        json!({
            "rollout_id": bare["rollout_id"], "model_call_id": bare["model_call_id"],
            "media_present": present, "media_has_frames": frames, "media_metadata_digest": digest,
        })
    };
    let zeros = "0".repeat(64);
    for (media, code) in [
        (line(false, false, null), None),
        (line(true, false, null), Some(Code::MediaFlagMismatch)),
        (line(false, true, null), Some(Code::MediaFlagMismatch)),
        (line(false, false, &zeros), Some(Code::MediaMetadataMismatch)),
        (json!({"rollout_id": "0-0", "model_call_id": "x"}), Some(Code::MalformedMedia)),
    ] {
        let capture = Capture { media: vec![media.clone()], ..clean.clone() };
        let errors = capture.errors();
        assert_eq!(errors.first().map(|f| f.code), code, "{media}: {errors:#?}");
    }
}

#[test]
fn a_ledger_that_contradicts_itself_is_an_error() {
    let clean = Capture::seed1();
    type Tamper = fn(&mut Value);
    let cases: [(&str, Tamper, Code); 2] = [
        (
            "a committed call that was never admitted",
            |receipt| drop(receipt["attempted_call_ids"].as_array_mut().unwrap().remove(1)),
            Code::UnaccountedCall,
        ),
        (
            "an ending that only one call lacks",
            |receipt| {
                let call = receipt["manifest"][1]["model_call_id"].as_str().unwrap().to_owned();
                receipt["calls"].as_object_mut().unwrap().remove(&call).unwrap();
            },
            Code::MissingCompletion,
        ),
    ];
    for (name, tamper, code) in cases {
        let mut capture = clean.clone();
        tamper(&mut capture.receipts[1]);
        let call = capture.receipts[1]["manifest"][1]["model_call_id"].as_str().unwrap();
        let errors = capture.errors();
        let [finding] = &errors[..] else { panic!("{name}: {errors:#?}") };
        assert_eq!(finding.code, code, "{name}");
        assert_eq!(finding.call_id.as_ref().map(|c| c.as_str()), Some(call), "{name}");
    }
    let mut unrecorded = clean.clone();
    for receipt in &mut unrecorded.receipts {
        receipt.as_object_mut().unwrap().remove("calls");
    }
    assert!(unrecorded.errors().is_empty(), "a receipt without the metadata is not an error");
}

/// Findings of seed1's Gym store after `change` to the lines of scope 1-0.
fn store_errors(change: impl FnOnce(&mut Vec<Value>)) -> Vec<Finding> {
    let from = testdata("closed-loop/seed1/gym-store");
    let home = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), home.path().join(entry.file_name())).unwrap();
    }
    let path = home.path().join("1-0.tokens.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut entries: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    change(&mut entries);
    fs::write(&path, lines(&entries)).unwrap();
    let read = ingest::read(&[home.path().to_owned()]).unwrap();
    let mut findings = validate(&read.groups, Options::default()).findings;
    findings.retain(|f| f.severity == Severity::Error);
    findings
}

#[test]
fn a_tampered_store_entry_is_found_by_name_and_place() {
    assert!(store_errors(|_| {}).is_empty());
    type Tamper = fn(&mut Value);
    let cases: [(&str, Tamper, Code); 4] = [
        ("logprob", |e| e["generation_log_probs"][0] = json!(-1.5), Code::ConflictingStoreEntry),
        ("parent", |e| e["parent_call_id"] = json!("nobody"), Code::ConflictingStoreEntry),
        ("scope", |e| e["rollout_id"] = json!("9-9"), Code::WrongRollout),
        (
            "token",
            |e| {
                e["generation_token_ids"][0] =
                    json!(e["generation_token_ids"][0].as_u64().unwrap() ^ 1)
            },
            Code::ConflictingStoreEntry,
        ),
    ];
    for (name, tamper, code) in cases {
        let mut call = String::new();
        let errors = store_errors(|entries| {
            tamper(&mut entries[2]);
            call = entries[2]["model_call_id"].as_str().unwrap().to_owned();
        });
        let found = errors
            .iter()
            .find(|f| f.code == code && f.call_id.as_ref().is_some_and(|c| c.as_str() == call));
        let found = found.unwrap_or_else(|| panic!("{name}: {errors:#?}"));
        assert!(found.location.file.as_deref().unwrap().ends_with("1-0.tokens.jsonl"), "{name}");
        assert_eq!(found.location.line, Some(3), "{name}");
    }
}
