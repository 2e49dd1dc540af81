//! Sources to groups.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use forestctl::archive::{Call, Completeness, Completion, Group, Origin, Rollout, SourceForm};
use forestctl::finding::Code;
use forestctl::ingest::{self, Ingested};

const SEED1: &str = "testdata/closed-loop/seed1";

fn read(sources: &[&Path]) -> Ingested {
    let sources: Vec<PathBuf> = sources.iter().map(|p| p.to_path_buf()).collect();
    ingest::read(&sources).unwrap()
}

fn seed1(form: &str) -> Ingested {
    read(&[&Path::new(SEED1).join(form)])
}

fn rollouts(ingested: &Ingested) -> impl Iterator<Item = &Rollout> {
    ingested.groups.iter().flat_map(|group| &group.rollouts)
}

fn rollout<'a>(ingested: &'a Ingested, capture_key: &str) -> &'a Rollout {
    rollouts(ingested).find(|r| r.capture_key.as_str() == capture_key).unwrap()
}

/// The groups without the one thing that tells how lines were spread over files.
fn without_origins(mut groups: Vec<Group>) -> Vec<Group> {
    for call in groups.iter_mut().flat_map(|g| &mut g.rollouts).flat_map(|r| &mut r.calls) {
        call.origin = Origin::default();
    }
    groups
}

fn json(path: impl AsRef<Path>) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn closed_loop_staged_calls_are_the_lines_of_the_capture() {
    let ingested = seed1("staged-v2");
    assert_eq!((ingested.quarantine.len(), ingested.findings.len()), (0, 0));
    let sizes: Vec<_> =
        ingested.groups.iter().map(|g| (g.group_id.as_str(), g.rollouts.len())).collect();
    assert_eq!(sizes, [("p01", 4), ("p02", 4), ("p03", 4), ("p04", 4), ("p05", 4), ("p06", 4)]);

    let mut lines: BTreeMap<String, serde_json::Value> = BTreeMap::new();
    for line in fs::read_to_string(format!("{SEED1}/staged-v2/staged.jsonl")).unwrap().lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        lines.insert(record["model_call_id"].as_str().unwrap().to_owned(), record);
    }
    let mut seen = 0;
    for call in rollouts(&ingested).flat_map(|r| &r.calls) {
        let record = &lines[call.call_id.as_str()];
        let floats = |key: &str| -> Vec<f64> {
            record[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
        };
        let carry = call.carry_len as usize;
        let mask: Vec<f64> =
            (0..call.token_ids.len()).map(|i| if i < carry { 0.0 } else { 1.0 }).collect();
        assert_eq!(floats("token_mask_delta"), mask);
        let mut logprobs = vec![0.0; carry];
        logprobs.extend(call.generation_logprobs.iter().map(|&p| f64::from(p)));
        assert_eq!(floats("generation_log_probs_delta"), logprobs);
        assert_eq!(record["token_ids_delta"], serde_json::json!(call.token_ids));
        assert_eq!(record["rollout_id"], call.capture_key.as_str());
        assert_eq!(record["digest"], call.commitment.unwrap().digest.to_string());
        assert!(call.raw_columns.is_none());
        seen += 1;
    }
    assert_eq!(seen, lines.len());
}

#[test]
fn closed_loop_ledgers_are_the_receipts() {
    let ingested = seed1("staged-v2");
    for line in fs::read_to_string(format!("{SEED1}/staged-v2/receipts.jsonl")).unwrap().lines() {
        let receipt: serde_json::Value = serde_json::from_str(line).unwrap();
        let rollout = rollout(&ingested, receipt["rollout_id"].as_str().unwrap());
        let ledger = &rollout.ledger;
        assert_eq!(rollout.completeness, Completeness::Complete);
        assert_eq!(ledger.receipt.as_deref(), Some(line));
        let manifest = receipt["manifest"].as_array().unwrap();
        let ids: Vec<_> = ledger.committed.iter().map(|row| row.call_id.as_str()).collect();
        let expected: Vec<_> =
            manifest.iter().map(|row| row["model_call_id"].as_str().unwrap()).collect();
        assert_eq!(ids, expected);
        let calls: Vec<_> = rollout.calls.iter().map(|call| call.call_id.as_str()).collect();
        assert_eq!(calls[..ids.len()], ids);
        assert!(calls[ids.len()..].is_sorted());
        for row in &ledger.committed {
            let entry = &receipt["calls"][row.call_id.as_str()];
            let Completion::Recorded { status, finish_reason } = &row.completion else {
                panic!("{} has no completion", row.call_id)
            };
            assert_eq!(entry["status"].as_str(), status.as_deref());
            assert_eq!(entry["finish_reason"].as_str(), finish_reason.as_deref());
            assert_eq!(entry["response_id"].as_str(), row.response_id.as_deref());
            let items = serde_json::to_value(row.output_items.as_ref().unwrap()).unwrap();
            assert_eq!(entry["output_items"], items);
        }
        let pending: Vec<_> = ledger.pending.iter().map(|id| id.as_str()).collect();
        assert_eq!(receipt["pending_call_ids"], serde_json::json!(pending));
        assert_eq!(receipt["attempted_call_ids"].as_array().unwrap().len(), ledger.attempted.len());
        assert_eq!(receipt["failures"].as_array().unwrap().len(), ledger.failures.len());
    }
}

#[test]
fn closed_loop_rollouts_keep_reward_and_result_verbatim() {
    let ingested = seed1("staged-v2");
    for line in fs::read_to_string(format!("{SEED1}/staged-v2/rollouts.jsonl")).unwrap().lines() {
        let expected: serde_json::Value = serde_json::from_str(line).unwrap();
        let rollout = rollout(&ingested, expected["capture_key"].as_str().unwrap());
        assert_eq!(expected["rollout_id"], rollout.rollout_id.as_str());
        assert_eq!(expected["slot"], rollout.slot);
        assert_eq!(expected["group_size"], rollout.group_size);
        assert_eq!(expected["reward"].as_f64(), rollout.reward);
        assert!(line.contains(&format!("\"result\":{}", rollout.result.as_ref().unwrap())));
    }
}

#[test]
fn schema_2_and_3_differ_in_versions_and_digests_only() {
    let plain = |mut ingested: Ingested| {
        for rollout in ingested.groups.iter_mut().flat_map(|g| &mut g.rollouts) {
            rollout.ledger.receipt = None;
            for row in &mut rollout.ledger.committed {
                for item in row.output_items.iter_mut().flatten() {
                    item.kind = None;
                    item.fingerprint = None;
                }
            }
            for call in &mut rollout.calls {
                let commitment = call.commitment.as_mut().unwrap();
                commitment.schema_version = 0;
                commitment.digest = forestctl::id::Digest32([0; 32]);
            }
        }
        without_origins(ingested.groups)
    };
    let (v2, v3) = (seed1("staged-v2"), seed1("staged-v3"));
    assert_ne!(v2.groups, v3.groups);
    assert_eq!(plain(v2), plain(v3));
}

#[test]
fn lines_may_come_in_any_order_any_number_of_files_and_compressed() {
    let home = tempfile::tempdir().unwrap();
    let source = Path::new(SEED1).join("staged-v2");
    for name in ["staged", "receipts", "rollouts"] {
        let text = fs::read_to_string(source.join(format!("{name}.jsonl"))).unwrap();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_by_key(|line| blake3::hash(line.as_bytes()).to_hex());
        let (gz, zst) = lines.split_at(lines.len() / 3);
        let file = fs::File::create(home.path().join(format!("{name}-b.jsonl.gz"))).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        encoder.write_all(gz.join("\n").as_bytes()).unwrap();
        encoder.finish().unwrap();
        let zst = zstd::encode_all(zst.join("\n\n").as_bytes(), 1).unwrap();
        fs::write(home.path().join(format!("{name}.a.jsonl.zst")), zst).unwrap();
    }
    let (whole, split) = (seed1("staged-v2"), read(&[home.path()]));
    assert_eq!(split.quarantine, []);
    assert_ne!(whole.groups, split.groups);
    assert_eq!(without_origins(whole.groups), without_origins(split.groups));
}

/// Writes lines of seed1's staged-v2 after `change`, and reads them.
fn changed(file: &str, change: impl FnOnce(&mut Vec<String>)) -> Ingested {
    let home = tempfile::tempdir().unwrap();
    for name in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl"] {
        fs::copy(format!("{SEED1}/staged-v2/{name}"), home.path().join(name)).unwrap();
    }
    let path = home.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(&path, lines.join("\n")).unwrap();
    read(&[home.path()])
}

fn quarantined(ingested: &Ingested) -> Vec<(Option<u64>, Code)> {
    ingested.quarantine.iter().map(|q| (q.line, q.code)).collect()
}

#[test]
fn unreadable_lines_are_quarantined_with_code_and_line() {
    let big = u64::from(u32::MAX) + 1;
    let ingested = changed("staged.jsonl", |lines| {
        lines[1].truncate(100);
        lines[3] = lines[3].replacen("\"schema_version\":2", "\"schema_version\":4", 1);
        lines[5] = lines[5].replacen("_delta\":[", &format!("_delta\":[{big},"), 1);
        lines[7] = lines[7].replacen("\"mode\"", "\"surprise\"", 1);
        lines.push("[".repeat(100_000));
    });
    assert_eq!(
        quarantined(&ingested),
        [
            (Some(2), Code::MalformedJson),
            (Some(4), Code::UnsupportedSchema),
            (Some(6), Code::TokenIdOutOfRange),
            (Some(8), Code::MalformedRecord),
            (Some(95), Code::MalformedRecord),
        ]
    );
    let entry = &ingested.quarantine[2];
    assert!(entry.capture_key.is_some() && entry.call_id.is_some(), "{entry:?}");
    assert!(entry.text.len() <= 1024 && entry.message.contains("4294967296"), "{entry:?}");
    assert_eq!(rollouts(&ingested).map(|r| r.calls.len()).sum::<usize>(), 94 - 4);
}

#[test]
fn a_bad_receipt_leaves_its_rollout_without_an_account() {
    let ingested = changed("receipts.jsonl", |lines| {
        lines[0] = lines[0].replacen("\"manifest\"", "\"manifold\"", 1);
        lines.push(lines[1].replacen("\"reward\":0.0", "\"reward\":1.0", 1));
        lines.push(lines[2].clone());
    });
    assert_eq!(
        quarantined(&ingested),
        [
            (Some(1), Code::MalformedReceipt),
            (Some(2), Code::ConflictingRecord),
            (Some(25), Code::ConflictingRecord)
        ]
    );
    for key in ["0-0", "0-1"] {
        let rollout = rollout(&ingested, key);
        assert_eq!(rollout.completeness, Completeness::Unknown);
        assert_eq!(rollout.ledger, Default::default());
        assert!(!rollout.calls.is_empty());
    }
    assert_eq!(rollout(&ingested, "0-2").completeness, Completeness::Complete);
}

#[test]
fn contradicting_rollouts_lines_leave_no_reward_and_repeated_ones_do_nothing() {
    let ingested = changed("rollouts.jsonl", |lines| {
        lines.push(lines[0].replacen("\"reward\":0.25", "\"reward\":0.75", 1));
        lines.push(lines[1].clone());
    });
    let [entry] = &ingested.quarantine[..] else { panic!("{:?}", ingested.quarantine) };
    assert_eq!((entry.code, entry.line), (Code::ConflictingRecord, Some(25)));
    assert_eq!(entry.rollout_id.as_ref().unwrap().as_str(), "p01_g0");
    assert_eq!(rollout(&ingested, "0-0").reward, None);
    assert_eq!(rollout(&ingested, "0-1").reward, Some(0.0));
}

#[test]
fn scopes_without_a_rollouts_line_are_read_as_their_name_tells() {
    let ingested = changed("rollouts.jsonl", |lines| lines.truncate(22));
    let slots: Vec<_> = ingested.groups[0].rollouts.iter().map(|r| r.slot).collect();
    assert_eq!((ingested.groups[0].group_id.as_str(), slots), ("5", vec![2, 3]));
    let derived = rollout(&ingested, "5-2");
    assert_eq!((derived.rollout_id.as_str(), derived.group_size), ("5_g2", 2));
    assert_eq!((derived.reward, derived.result.as_ref()), (Some(0.5), None));
    let codes: Vec<_> = ingested.findings.iter().map(|f| f.code).collect();
    assert_eq!(codes, [Code::UnknownScope; 2]);
}

#[test]
fn earlier_attempts_are_left_out_and_said() {
    let mut calls = 0;
    let ingested = changed("staged.jsonl", |lines| {
        let again: Vec<_> = lines
            .iter()
            .filter(|line| line.contains("\"rollout_id\":\"1-1-a1\""))
            .map(|line| line.replace("\"rollout_id\":\"1-1-a1\"", "\"rollout_id\":\"1-1\""))
            .collect();
        calls = again.len();
        lines.extend(again.into_iter().map(|line| {
            let at = line.find("\"model_call_id\":\"").unwrap() + 17;
            format!("{}ffff{}", &line[..at], &line[at + 4..])
        }));
    });
    assert_eq!(ingested.findings[0].code, Code::SupersededAttempt);
    assert!(ingested.findings[0].message.contains(&format!("{calls} calls")));
    assert_eq!(without_origins(ingested.groups), without_origins(seed1("staged-v2").groups));
}

#[test]
fn a_record_under_a_foreign_scope_goes_to_the_manifest_that_names_it() {
    let clean = seed1("staged-v2");
    let of = |call: &Call| (call.call_id.clone(), call.capture_key.clone());
    let expected: Vec<_> = rollout(&clean, "0-1").calls.iter().map(of).collect();
    for foreign in ["0-2", "elsewhere"] {
        let ingested = changed("staged.jsonl", |lines| {
            let line = lines.iter_mut().find(|l| l.contains("\"rollout_id\":\"0-1\"")).unwrap();
            *line =
                line.replace("\"rollout_id\":\"0-1\"", &format!("\"rollout_id\":\"{foreign}\""));
        });
        let found: Vec<_> = rollout(&ingested, "0-1").calls.iter().map(of).collect();
        assert!(found.iter().map(|(id, _)| id).eq(expected.iter().map(|(id, _)| id)));
        assert_eq!(found.iter().filter(|(_, key)| key.as_str() == foreign).count(), 1);
        assert!(
            rollout(&ingested, "0-2")
                .calls
                .iter()
                .map(of)
                .eq(rollout(&clean, "0-2").calls.iter().map(of))
        );
        assert_eq!(ingested.groups.len(), 6);
    }
}

#[test]
fn repeated_records_are_kept_in_an_order_that_content_decides() {
    let repeat = |front: bool| {
        let ingested = changed("staged.jsonl", |lines| {
            let mut other = lines[4].clone();
            other = other.replacen("\"weight_version\":12", "\"weight_version\":13", 1);
            assert_ne!(other, lines[4]);
            lines.insert(if front { 0 } else { lines.len() }, other);
        });
        without_origins(ingested.groups)
    };
    let groups = repeat(true);
    assert_eq!(groups, repeat(false));
    assert_eq!(groups.iter().flat_map(|g| &g.rollouts).map(|r| r.calls.len()).sum::<usize>(), 95);
}

#[test]
fn what_is_no_capture_is_listed_and_nothing_at_all_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("notes.txt"), "hello").unwrap();
    fs::write(home.path().join("config.json"), "{\"a\":1}").unwrap();
    fs::write(home.path().join("other.jsonl"), "{\"a\":1}\n").unwrap();
    let error = ingest::read(&[home.path().to_owned()]).unwrap_err();
    assert_eq!(error.kind(), forestctl::error::Kind::Nothing);
    assert!(ingest::read(&[home.path().join("absent")]).is_err());

    fs::create_dir(home.path().join("media")).unwrap();
    fs::write(home.path().join("media/a.safetensors"), "").unwrap();
    let ingested = read(&[home.path(), &Path::new(SEED1).join("staged-v2")]);
    let forms: Vec<_> = ingested.sources.iter().map(|source| source.form).collect();
    let count = |form| forms.iter().filter(|f| **f == form).count();
    assert_eq!((count(SourceForm::Ignored), count(SourceForm::Media), forms.len()), (3, 1, 7));
    assert_eq!(ingested.findings.iter().map(|f| f.code).collect::<Vec<_>>(), [Code::MediaNotRead]);
}

#[test]
fn files_under_other_names_are_told_by_their_keys() {
    let home = tempfile::tempdir().unwrap();
    for (from, to) in [("staged", "a"), ("receipts", "b"), ("rollouts", "c")] {
        let from = format!("{SEED1}/staged-v2/{from}.jsonl");
        fs::copy(from, home.path().join(format!("{to}.jsonl"))).unwrap();
    }
    let renamed = without_origins(read(&[home.path()]).groups);
    assert_eq!(renamed, without_origins(seed1("staged-v2").groups));
}

#[test]
fn quarantine_of_one_source_is_bounded() {
    let ingested = changed("staged.jsonl", |lines| lines.extend((0..10_050).map(|_| "x".into())));
    assert_eq!(ingested.quarantine.len(), 10_001);
    let full = ingested.quarantine.iter().find(|q| q.code == Code::QuarantineFull).unwrap();
    assert!(full.message.starts_with("50 more"), "{}", full.message);
}

fn public(name: &str) -> Option<Ingested> {
    let path = Path::new("../shared/fixtures/public").join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not here", path.display());
        return None;
    }
    Some(read(&[&path]))
}

/// Calls, stored tokens (deltas), generated tokens, roots.
fn sizes(ingested: &Ingested) -> (usize, usize, usize, usize) {
    let calls: Vec<_> = rollouts(ingested).flat_map(|r| &r.calls).collect();
    (
        calls.len(),
        calls.iter().map(|c| c.token_ids.len()).sum(),
        calls.iter().map(|c| c.generation().len()).sum(),
        calls.iter().filter(|c| c.parent_call_id.is_none()).count(),
    )
}

#[test]
fn public_customer_service_turns_become_chains_of_deltas() {
    let Some(ingested) = public("gym-customer-service-rollouts.jsonl") else { return };
    assert_eq!(ingested.quarantine, []);
    assert_eq!((ingested.groups.len(), sizes(&ingested)), (5, (50, 10_222, 9_445, 5)));
    for rollout in rollouts(&ingested) {
        assert_eq!(rollout.completeness, Completeness::Unknown);
        assert_eq!(rollout.reward, Some(0.0));
        assert!(!rollout.result.as_ref().unwrap().contains("token_ids"));
    }
}

#[test]
fn public_blackjack_is_a_group_of_five() {
    let Some(ingested) = public("gym-blackjack-rollouts.jsonl") else { return };
    let [group] = &ingested.groups[..] else { panic!("{} groups", ingested.groups.len()) };
    let rewards: Vec<_> = group.rollouts.iter().map(|r| r.reward.unwrap()).collect();
    assert_eq!(rewards, [-1.0, -1.0, 1.0, -1.0, -1.0]);
    assert!(group.rollouts.iter().all(|r| r.group_size == 5));
    assert_eq!(sizes(&ingested), (6, 317, 48, 5));
}

#[test]
fn public_coding_calls_serve_reasoning_and_answer() {
    let Some(ingested) = public("gym-competitive-coding-rollouts.jsonl") else { return };
    let (calls, _, generated, roots) = sizes(&ingested);
    assert_eq!((calls, generated, roots), (5, 5_023, 5));
    for rollout in rollouts(&ingested) {
        let row = &rollout.ledger.committed[0];
        let kinds: Vec<_> =
            row.output_items.iter().flatten().map(|i| i.kind.clone().unwrap()).collect();
        assert_eq!(kinds, ["reasoning", "message"]);
        assert!(row.response_id.as_ref().unwrap().starts_with("resp_"));
    }
}

#[test]
fn public_traces_are_forests_of_their_calls() {
    for (name, roots) in [("rl-k2-compaction.json", 3), ("rl-without-compaction.json", 1)] {
        let Some(ingested) = public(name) else { return };
        assert_eq!(ingested.quarantine, []);
        let expected = json(Path::new("../shared/fixtures/public").join(name));
        let [group] = &ingested.groups[..] else { panic!("{name}") };
        assert_eq!(expected["group_id"], group.group_id.as_str());
        let (calls, _, generated, found) = sizes(&ingested);
        assert_eq!((calls, generated, found), (5, 5, roots));
        for (call, made) in
            group.rollouts[0].calls.iter().zip(expected["model_calls"].as_array().unwrap())
        {
            assert_eq!(made["completion_id"], call.call_id.as_str());
            let delta = [&made["prompt_delta_token_ids"], &made["sampled_token_ids"]];
            let delta: Vec<_> = delta.iter().flat_map(|ids| ids.as_array().unwrap()).collect();
            assert_eq!(serde_json::json!(delta), serde_json::json!(call.token_ids));
        }
    }
}

#[test]
fn the_closed_loop_store_gives_the_calls_of_the_staged_capture() {
    let (store, staged) = (seed1("gym-store"), seed1("staged-v2"));
    assert_eq!((store.quarantine.len(), store.findings.len()), (0, 0));
    let keys: Vec<_> = rollouts(&store).map(|r| r.capture_key.as_str()).collect();
    assert_eq!(keys, ["0-0", "0-1", "1-0", "1-3", "3-3", "5-2"]);
    let sizes: Vec<_> = rollouts(&store).map(|r| r.group_size).collect();
    assert_eq!(sizes, [2, 2, 2, 2, 1, 1]);
    for found in rollouts(&store) {
        let expected = rollout(&staged, found.capture_key.as_str());
        assert_eq!(found.completeness, Completeness::Complete, "{}", found.capture_key);
        assert_eq!(
            (found.reward, &found.ledger.attempted),
            (expected.reward, &expected.ledger.attempted,)
        );
        let column = |call: &Call| {
            (
                call.call_id.clone(),
                call.parent_call_id.clone(),
                (call.mode, call.prev_len, call.delta_len, call.cum_len, call.carry_len),
                call.token_ids.clone(),
                call.generation_logprobs.clone(),
            )
        };
        assert!(found.calls.iter().map(column).eq(expected.calls.iter().map(column)));
        assert!(found.calls.iter().all(|call| call.entry_digest.is_some()));
        for (row, wanted) in found.ledger.committed.iter().zip(&expected.ledger.committed) {
            assert_eq!(row.completion, Completion::Unrecorded);
            assert_eq!(row.output_fingerprint, wanted.output_fingerprint);
            assert_eq!(row.response_id, wanted.response_id);
            assert_eq!(row.output_items, wanted.output_items);
        }
    }
}

/// A store of the package's own making, and what ingest says of it.
fn store(case: &str) -> Ingested {
    read(&[&Path::new("testdata/gym-0.7/store").join(case).join("before")])
}

#[test]
fn stores_of_the_package_say_what_is_missing() {
    use Completeness::{Complete, Incomplete, Unknown};
    let cases: [(&str, Completeness, usize, usize, &[Code]); 13] = [
        ("complete", Complete, 3, 0, &[]),
        ("complete_delta_records", Complete, 3, 0, &[]),
        ("dangling_intent", Incomplete, 3, 1, &[]),
        ("incomplete_marker", Incomplete, 3, 1, &[]),
        ("state_missing", Unknown, 2, 0, &[]),
        ("frozen", Unknown, 1, 0, &[]),
        ("duplicate_identical_lines", Unknown, 1, 0, &[]),
        ("duplicate_conflicting_lines", Incomplete, 1, 0, &[Code::ConflictingStoreEntry]),
        ("malformed_middle_line", Incomplete, 2, 0, &[Code::MalformedJson]),
        ("valid_json_invalid_entry", Incomplete, 1, 0, &[Code::MalformedRecord]),
        ("state_not_object", Incomplete, 1, 0, &[Code::StoreUnreadable]),
        ("unterminated_complete_line", Unknown, 2, 0, &[]),
        ("unknown_fields_and_big_ids", Incomplete, 1, 0, &[Code::TokenIdOutOfRange]),
    ];
    for (case, completeness, calls, pending, codes) in cases {
        let ingested = store(case);
        let rollout = rollouts(&ingested).next().unwrap();
        assert_eq!(rollout.completeness, completeness, "{case}");
        assert_eq!((rollout.calls.len(), rollout.ledger.pending.len()), (calls, pending), "{case}");
        let found: Vec<_> = ingested.quarantine.iter().map(|q| q.code).collect();
        assert_eq!(found, codes, "{case}");
        assert_eq!(rollout.reward, None);
    }
}

#[test]
fn deltas_of_full_and_of_delta_records_give_the_stamped_digests() {
    for case in ["complete", "complete_delta_records"] {
        let ingested = store(case);
        let mut sequence: Vec<u64> = Vec::new();
        let calls = &rollouts(&ingested).next().unwrap().calls;
        for call in calls {
            assert_eq!(call.prev_len as usize, sequence.len());
            sequence.extend(call.token_ids.iter().map(|&id| u64::from(id)));
            assert_eq!(call.cum_len as usize, sequence.len());
            assert_eq!(Some(forestctl::wire::digest::entry_digest(&sequence)), call.entry_digest);
        }
        let lengths: Vec<_> = calls.iter().map(|call| (call.carry_len, call.delta_len)).collect();
        assert_eq!(lengths, [(8, 11), (4, 7), (4, 7)]);
    }
}

#[test]
fn a_torn_tail_is_said_and_left_out() {
    let ingested = store("torn_final_line");
    let codes: Vec<_> = ingested.findings.iter().map(|f| f.code).collect();
    assert!(codes.contains(&Code::TornStoreTail), "{codes:?}");
    assert_eq!(rollouts(&ingested).next().unwrap().calls.len(), 2);
}

#[test]
fn calls_of_a_foreign_scope_keep_its_name() {
    let ingested = store("foreign_rollout_in_file");
    let rollout = rollouts(&ingested).next().unwrap();
    let foreign = rollout.calls.iter().filter(|call| call.capture_key != rollout.capture_key);
    assert_eq!(foreign.count(), 1);
}

/// The store of scope 0-1 of seed1 after `change` to its entries, without state and intents.
fn changed_store(change: impl FnOnce(&mut Vec<String>)) -> Ingested {
    let home = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(format!("{SEED1}/gym-store/0-1.tokens.jsonl")).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(home.path().join("0-1.tokens.jsonl"), lines.join("\n")).unwrap();
    read(&[home.path()])
}

#[test]
fn calls_that_cannot_be_placed_are_archived_and_mask() {
    let clean = changed_store(|_| {});
    let clean = rollouts(&clean).next().unwrap().clone();
    assert_eq!((clean.completeness, clean.ledger.failures.len()), (Completeness::Unknown, 0));

    // A prompt that does not begin with its parent's tokens.
    let ingested = changed_store(|lines| {
        let at = lines[1].find("\"prompt_token_ids\":[").unwrap() + 20;
        lines[1].insert_str(at, "9,");
    });
    let rollout = rollouts(&ingested).next().unwrap();
    let failure = &rollout.ledger.failures[0];
    assert_eq!(failure.reason, "parent_digest_mismatch");
    assert_eq!(failure.call_id, clean.calls[1].call_id);
    let finding = ingested.findings.iter().find(|f| f.code == Code::ParentDigestMismatch).unwrap();
    assert_eq!(finding.rollout_id.as_ref(), Some(&rollout.rollout_id));
    assert_eq!(finding.location.line, Some(2));
    let call = &rollout.calls[1];
    assert_eq!((call.parent_call_id.as_ref(), call.prev_len), (None, 0));
    assert_eq!(call.generation(), clean.calls[1].generation());

    // A request whose parent the capture itself did not find.
    let ingested = changed_store(|lines| {
        let parent = format!("\"parent_call_id\":\"{}\"", clean.calls[0].call_id);
        assert!(lines[1].contains(&parent));
        lines[1] = lines[1]
            .replace(&parent, "\"parent_call_id\":null")
            .replace("\"parent_resolution\":\"resolved\"", "\"parent_resolution\":\"unresolved\"");
    });
    let failures = &rollouts(&ingested).next().unwrap().ledger.failures;
    assert_eq!(failures[0].reason, "unresolved_parent");
}

#[test]
fn a_null_logprob_is_kept_as_unknown() {
    let ingested = changed_store(|lines| {
        let at = lines[0].find("\"generation_log_probs\":[").unwrap() + 24;
        let end = at + lines[0][at..].find(',').unwrap();
        lines[0].replace_range(at..end, "null");
    });
    let call = &rollouts(&ingested).next().unwrap().calls[0];
    assert!(call.generation_logprobs[0].is_nan() && !call.generation_logprobs[1].is_nan());
    assert!(ingested.quarantine.is_empty());
}

#[test]
fn a_store_beside_a_staged_capture_of_the_same_scopes_is_set_aside() {
    let seed = Path::new(SEED1);
    let ingested = read(&[&seed.join("staged-v2"), &seed.join("gym-store/0-1.tokens.jsonl")]);
    assert_eq!(quarantined(&ingested), [(None, Code::ConflictingRecord)]);
    assert!(without_origins(ingested.groups) == without_origins(seed1("staged-v2").groups));
}

/// Runs the program; exit code, stdout, stderr.
fn forestctl(args: &[&str]) -> (i32, String, String) {
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_forestctl")).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_command_says_what_it_wrote_and_what_it_could_not_read() {
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("captures");
    fs::create_dir(&source).unwrap();
    for name in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl"] {
        fs::copy(format!("{SEED1}/staged-v2/{name}"), source.join(name)).unwrap();
    }
    fs::write(source.join("README.md"), "").unwrap();
    let (source, output) = (source.to_str().unwrap(), home.path().join("run.forest"));
    let output = output.to_str().unwrap();

    let (code, out, err) = forestctl(&["ingest", source, "-o", output]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("24 rollouts in 6 prompt groups") && out.contains("94 calls"), "{out}");
    assert!(err.contains("captures/README.md: no capture"), "{err}");
    let (code, out, _) = forestctl(&["ingest", source, "-o", output]);
    assert!(code == 0 && out.contains("unchanged"), "{out}");

    fs::write(Path::new(source).join("staged-2.jsonl"), "{\n").unwrap();
    let (code, out, err) = forestctl(&["ingest", source, "-o", output]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("already holds another archive") && err.contains("--force"), "{err}");
    let (code, out, _) = forestctl(&["ingest", source, "-o", output, "--force"]);
    assert!(code == 1 && out.contains("1 line in quarantine (malformed_json 1)"), "{out}");

    let json = ["ingest", source, "-o", output, "--force", "--format", "json"];
    let (code, out, _) = forestctl(&json);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["schema_version"]), (1, &serde_json::json!(1)));
    assert_eq!(report["quarantined_by_code"], serde_json::json!({"malformed_json": 1}));
    assert_eq!((&report["calls"], report["sources"].as_array().unwrap().len()), (&94.into(), 5));
    let (_, out, _) = forestctl(&["ingest", source, "-o", output, "--force", "--format", "jsonl"]);
    let kinds: Vec<_> = out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["kind"].clone())
        .collect();
    assert_eq!(kinds, ["archive", "source", "source", "source", "source", "source", "quarantined"]);
    let (_, out, _) = forestctl(&["ingest", source, "-o", output, "--force", "--format", "csv"]);
    assert!(out.starts_with("schema_version,archive,") && out.lines().count() == 2, "{out}");

    let (code, _, err) =
        forestctl(&["ingest", home.path().join("none").to_str().unwrap(), "-o", "x"]);
    assert!(code == 2 && err.contains("cannot read"), "{err}");
}

/// A staged capture as Gym leaves it: records, its own ledger, and the returned rollouts.
#[test]
fn a_lineage_ledger_stands_for_the_receipt() {
    let case = Path::new("testdata/gym-0.7/server/external_responses_3_calls");
    let expected = json(case.join("expected.json"));
    let home = tempfile::tempdir().unwrap();
    fs::copy(case.join("after_run/5-0.lineage.jsonl"), home.path().join("5-0.lineage.jsonl"))
        .unwrap();
    let staged: Vec<_> =
        expected["staged_records"].as_array().unwrap().iter().map(|r| r.to_string()).collect();
    fs::write(home.path().join("staged.jsonl"), staged.join("\n")).unwrap();
    let response = &expected["http"][2]["response"];
    let line = serde_json::json!({
        "_ng_task_index": 5, "_ng_rollout_index": 0, "reward": 1, "response": response,
    });
    fs::write(home.path().join("rollouts.jsonl"), line.to_string()).unwrap();

    let ingested = read(&[home.path()]);
    assert_eq!((ingested.quarantine.len(), ingested.findings.len()), (0, 0));
    let rollout = rollout(&ingested, "5-0");
    let ledger = &rollout.ledger;
    assert_eq!(
        expected["receipt"]["terminal_model_call_id"],
        ledger.terminal_call_id.as_ref().unwrap().as_str()
    );
    let receipt: serde_json::Value =
        serde_json::from_str(ledger.receipt.as_ref().unwrap()).unwrap();
    assert_eq!(receipt["manifest"], expected["receipt"]["manifest"]);
    assert_eq!((rollout.calls.len(), ledger.committed.len()), (3, 3));
    let parsed = forestctl::wire::Receipt::parse(ledger.receipt.as_ref().unwrap());
    assert!(parsed.is_ok(), "{parsed:?}");

    // Of a torn ledger nothing is believed.
    let path = home.path().join("5-0.lineage.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() - 20]).unwrap();
    let ingested = read(&[home.path()]);
    assert_eq!(quarantined(&ingested), [(None, Code::MalformedJson)]);
    assert!(self::rollout(&ingested, "5-0").ledger.receipt.is_none());
}
