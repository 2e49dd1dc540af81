//! Upstream's reasons why a call was not captured, or continues nothing.

use std::path::Path;

use forestctl::finding::Code::*;
use serde_json::{Value, json};

use super::super::capture::{Capture, array, sorted};
use super::super::store::{entry_digest, ledger};
use super::{Case, check, folder, staged, store};

/// A third call that failed for `reason`, and of which nothing is there.
macro_rules! failed_for {
    ($reason:literal) => {
        staged(&[$reason], |c| {
            array(&mut c.receipt()["attempted_call_ids"]).push(json!("c"));
            c.fail("c", $reason);
        })
        .warnings(&[CaptureFailed])
        .masked(CaptureFailed)
        .says(&[concat!("call c failed: ", $reason)])
    };
}

/// An entry whose parent the capture itself did not find.
macro_rules! unresolved_for {
    ($reason:literal $(, $note:literal)?) => {
        store(&[$reason $(, $note)?], |s| {
            let entry = s.entry("b");
            entry["parent_call_id"] = json!(null);
            entry["parent_resolution"] = json!("unresolved");
            entry["parent_resolution_reason"] = json!($reason);
            s.index();
        })
        .notes(&[UnresolvedParent])
        .warnings(&[UnresolvedParent])
        .masked(FailedSelectedCall)
        .says(&[concat!("found no parent of call b (", $reason, ")")])
    };
}

/// Writes the pair with a ledger instead of a receipt, after a change to its rows.
fn with_ledger(home: &Path, change: impl FnOnce(&mut Vec<Value>)) {
    let mut capture = Capture::pair(2);
    let mut rows = ledger(&capture.receipts.remove(0));
    change(&mut rows);
    let text: String = rows.iter().map(|row| format!("{}\n", sorted(row))).collect();
    capture.files.insert("0-0.lineage.jsonl".to_owned(), text.into_bytes());
    capture.write(home);
}

pub fn cases() -> Vec<Case> {
    vec![
        failed_for!("unresolved_parent"),
        failed_for!("request_finished_without_staged_coordinates"),
        failed_for!("worker_response_missing_commit_coordinates"),
        failed_for!("worker_capture_failed"),
        failed_for!("invalid_worker_commit_coordinates"),
        // The two that a reader of the ledger finds.
        folder(&[], |home| with_ledger(home, |_| {})).says(&["completion_unrecorded"]),
        folder(&["ledger_row_missing_response_id"], |home| {
            with_ledger(home, |rows| rows[0]["response_id"] = json!(""));
        })
        .errors(&[MissingParent])
        .warnings(&[CaptureFailed, UncommittedRecord])
        .says(&["call a failed: ledger_row_missing_response_id"]),
        folder(&["ledger_row_missing_chain_hash"], |home| {
            with_ledger(home, |rows| rows[1]["chain_hash"] = json!(null));
        })
        .errors(&[MissingTerminal])
        .warnings(&[CaptureFailed, UncommittedRecord])
        .says(&["call b failed: ledger_row_missing_chain_hash"]),
        // The package's builder notes all five alike.
        unresolved_for!("no_match", "parent_unresolved"),
        unresolved_for!("ambiguous"),
        unresolved_for!("resolver_unavailable"),
        unresolved_for!("lookup_error"),
        unresolved_for!("not_attempted"),
        // What it notes of other links.
        store(&["parent_call_id_missing"], |s| {
            s.entry("b")["parent_call_id"] = json!("x");
            s.entry("b")["prompt_token_ids"] = json!([9, 2, 3, 4, 5]);
            s.entry("b")["digest"] = json!(entry_digest(&[9, 2, 3, 4, 5, 6, 7]));
            s.index();
        })
        .notes(&[UnresolvedParent])
        .warnings(&[UnresolvedParent])
        .masked(FailedSelectedCall)
        .says(&["parent x of call b is not in the store"]),
        // Its one prefix is its parent, whatever the name.
        store(&["parent_call_id_missing_recovered"], |s| {
            s.entry("b")["parent_call_id"] = json!("x");
            s.index();
        }),
        store(&["parent_digest_mismatch"], |s| {
            s.entry("b")["prompt_token_ids"] = json!([9, 2, 3, 4, 5]);
            s.entry("b")["digest"] = json!(entry_digest(&[9, 2, 3, 4, 5, 6, 7]));
            s.index();
        })
        .notes(&[ParentDigestMismatch])
        .errors(&[ParentDigestMismatch])
        .says(&["the prompt of call b does not begin with the tokens of a"]),
        store(&["missing_resolution"], |s| {
            s.entry("b")["parent_call_id"] = json!(null);
            s.entry("b")["parent_resolution"] = json!(null);
            s.index();
        })
        .notes(&[UnresolvedParent])
        .warnings(&[UnresolvedParent])
        .masked(FailedSelectedCall)
        .says(&["missing_resolution"]),
        store(&["duplicate_call_id_conflict"], |s| {
            let mut other = s.entry("b").clone();
            other["generation_token_ids"] = json!([6, 8]);
            s.entries.push(other);
            s.state = None;
        })
        .notes(&[ConflictingStoreEntry])
        .errors(&[ConflictingStoreEntry])
        .warnings(&[CaptureIncomplete]),
        store(&["delta_chain_unreconstructable"], |s| {
            let entry = s.entry("b");
            entry["prompt_is_delta"] = json!(true);
            entry["parent_call_id"] = json!("x");
            entry["prompt_token_ids"] = json!([5]);
            s.index();
        })
        .notes(&[UnresolvedParent])
        .errors(&[MissingParent])
        .warnings(&[UnresolvedParent])
        .says(&["the prompt of call b cannot be rebuilt from parent x"]),
    ]
}

#[test]
fn reasons_of_the_capture_are_told_by_their_word() {
    check(&cases());
}
