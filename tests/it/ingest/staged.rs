//! Staged captures: records, receipts, rollouts, and what of them cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;

use forestctl::archive::{Call, Completeness, Completion, Rollout, SourceForm};
use forestctl::finding::Code;
use forestctl::ingest::{self, Ingested};

use super::*;

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
fn a_bad_receipt_beside_a_good_one_contradicts_nothing() {
    let broken = |line: &str| {
        let broken = line.replacen("\"cum_len\":", "\"cum_len\":-", 1);
        assert_ne!(broken, line);
        broken
    };
    let ingested = changed("receipts.jsonl", |lines| {
        lines.push(broken(&lines[0]));
        lines[1] = broken(&lines[1]);
    });
    let malformed = Code::MalformedReceipt;
    assert_eq!(quarantined(&ingested), [(Some(2), malformed), (Some(25), malformed)]);
    assert_eq!(rollout(&ingested, "0-0").completeness, Completeness::Complete);
    let without = rollout(&ingested, "0-1");
    assert_eq!(without.completeness, Completeness::Unknown);
    assert_eq!(without.ledger, Default::default());
    assert!(!without.calls.is_empty());
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
fn a_receipt_under_the_name_of_an_earlier_attempt_takes_no_records_of_a_rollout() {
    let clean = seed1("staged-v2");
    // Without a manifest nothing tells the order.
    let ids = |rollout: &Rollout| -> BTreeSet<String> {
        rollout.calls.iter().map(|call| call.call_id.to_string()).collect()
    };
    let ingested = changed("receipts.jsonl", |lines| {
        let line = lines.iter_mut().find(|l| l.contains("\"rollout_id\":\"0-1\"")).unwrap();
        *line = line.replace("\"rollout_id\":\"0-1\"", "\"rollout_id\":\"1-0-a7\"");
    });
    assert_eq!(ids(rollout(&ingested, "0-1")), ids(rollout(&clean, "0-1")));
    assert_eq!(ids(rollout(&ingested, "1-0")), ids(rollout(&clean, "1-0")));
    assert_eq!(rollout(&ingested, "0-1").ledger.receipt, None);
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
    assert_eq!(
        (count(SourceForm::Ignored), count(SourceForm::MediaTensors), forms.len()),
        (3, 1, 7)
    );
    assert_eq!(quarantined(&ingested), [(None, Code::MalformedSidecar)]);
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
