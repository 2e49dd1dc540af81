//! Gym's file store.

use std::fs;
use std::path::Path;

use forestctl::archive::{Call, Completeness, Completion};
use forestctl::finding::Code;
use forestctl::ingest::Ingested;

use super::*;

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
fn a_torn_tail_is_set_aside_and_loses_no_call() {
    let ingested = store("torn_final_line");
    let [torn] = &ingested.quarantine[..] else { panic!("{:?}", ingested.quarantine) };
    assert_eq!((torn.code, torn.line), (Code::TornStoreTail, Some(3)));
    let rollout = rollouts(&ingested).next().unwrap();
    assert_eq!(rollout.calls.len(), 2);
    assert!(!rollout.ledger.failures.iter().any(|f| f.reason == torn.code.as_str()));
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
fn a_line_is_quarantined_for_every_reason_that_it_gives() {
    let ingested = changed_store(|lines| {
        let version = "\"fingerprint_version\":";
        let at = lines[0].find(version).unwrap() + version.len();
        let end = at + lines[0][at..].find([',', '}']).unwrap();
        let mut other = lines[0].clone();
        other.replace_range(at..end, "99");
        lines.push(other);
    });
    let line = ingested.quarantine[0].line;
    assert!(ingested.quarantine.iter().all(|entry| entry.line == line && !entry.text.is_empty()));
    let mut codes: Vec<Code> = ingested.quarantine.iter().map(|entry| entry.code).collect();
    codes.sort();
    assert_eq!(codes, [Code::ConflictingStoreEntry, Code::UnsupportedFingerprint]);
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
