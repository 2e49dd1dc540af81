//! Words for evidence that is wrong: those of the published verifier, in its order, and our own.

use forestctl::finding::Code::*;
use forestctl::wire::{Receipt, StagedRecord, verify_and_linearize};
use serde_json::json;

use super::super::capture::{Capture, array, sign};
use super::{Case, check, staged, store};

/// Changes one field of the record of `b`, which is signed again; its row says otherwise.
macro_rules! unlike_its_row {
    ($word:literal, $field:literal, $value:expr) => {
        staged(&[$word], |c| {
            c.record("b")[$field] = json!($value);
            if $field != "digest" {
                // Where the record itself cannot be, the row differs first.
                sign(c.record("b"));
            }
        })
    };
}

fn hash(digit: &str) -> String {
    digit.repeat(64)
}

pub fn cases() -> Vec<Case> {
    vec![
        staged(&["unsupported_schema"], |c| c.receipt()["schema_version"] = json!(4))
            .errors(&[MissingReceipt, UnsupportedSchema])
            .says(&["found schema 4; schema 2 with rollout_id and schema 3 with capture_key"]),
        staged(&["unsupported_digest"], |c| c.receipt()["digest_version"] = json!(3))
            .errors(&[MissingReceipt, UnsupportedDigest])
            .says(&["found version 3; version 2 is read"]),
        staged(&["unsupported_extras_digest"], |c| c.receipt()["extras_digest_version"] = json!(2))
            .errors(&[MissingReceipt, UnsupportedExtrasDigest])
            .says(&["found version 2; version 1 is read"]),
        staged(&["rollout_failed"], |c| {
            c.receipt()["capture_poisoned"] = json!(true);
            c.receipt()["failure_reason"] = json!("");
        })
        .warnings(&[RolloutFailed])
        .masked(RolloutFailed),
        staged(&["capture_poisoned"], |c| c.receipt()["capture_poisoned"] = json!(true))
            .warnings(&[CapturePoisoned])
            .masked(CapturePoisoned),
        staged(&["empty_manifest"], |c| *c = Capture::of(2, 1)).errors(&[EmptyManifest]),
        staged(&["duplicate_manifest_row"], |c| {
            let row = c.row("b").clone();
            array(&mut c.receipt()["manifest"]).push(row);
        })
        .errors(&[DuplicateManifestRow]),
        staged(&["duplicate_staging_key"], |c| {
            c.row("b")["staging_key"] = c.row("a")["staging_key"].clone();
        })
        .errors(&[DuplicateStagingKey]),
        staged(&["row_count_mismatch"], |c| drop(c.staged.pop())).errors(&[RowCountMismatch]),
        staged(&["duplicate_snapshot"], |c| {
            let record = c.record("b").clone();
            c.staged.push(record);
        })
        .errors(&[DuplicateSnapshot]),
        staged(&["snapshot_identity_mismatch"], |c| {
            let record = c.record("b");
            record["model_call_id"] = json!("c");
            sign(record);
        })
        .errors(&[SnapshotIdentityMismatch, UncommittedRecord]),
        unlike_its_row!("wrong_rollout", "rollout_id", "9-9").errors(&[WrongRollout]),
        unlike_its_row!("wrong_parent_call_id", "parent_call_id", "x").errors(&[WrongParentCallId]),
        unlike_its_row!("wrong_mode", "mode", "text").errors(&[WrongMode]),
        unlike_its_row!("wrong_prev_len", "prev_len", 5).errors(&[WrongPrevLen]),
        unlike_its_row!("wrong_delta_len", "delta_len", 4).errors(&[WrongDeltaLen]),
        unlike_its_row!("wrong_cum_len", "cum_len", 8).errors(&[WrongCumLen]),
        unlike_its_row!("wrong_weight_version", "weight_version", 8).errors(&[WrongWeightVersion]),
        unlike_its_row!("wrong_digest", "digest", hash("0")).errors(&[WrongDigest]),
        staged(&["wrong_extras_digest"], |c| {
            c.row("b")["extras_digest"] = json!(hash("0"));
        })
        .errors(&[WrongExtrasDigest]),
        staged(&["wrong_chain_hash"], |c| c.row("b")["chain_hash"] = json!(hash("0")))
            .errors(&[WrongChainHash]),
        staged(&["wrong_cumulative_hash"], |c| c.row("b")["cumulative_hash"] = json!(hash("0")))
            .errors(&[WrongCumulativeHash]),
        staged(&["wrong_schema_version"], |c| c.row("b")["schema_version"] = json!(3))
            .errors(&[WrongSchemaVersion]),
        staged(&["wrong_digest_version"], |c| c.row("b")["digest_version"] = json!(3))
            .errors(&[WrongDigestVersion]),
        staged(&["wrong_extras_digest_version"], |c| {
            c.row("b")["extras_digest_version"] = json!(2);
        })
        .errors(&[WrongExtrasDigestVersion]),
        staged(&["invalid_snapshot"], |c| {
            c.record("b")["generation_log_probs_delta"][0] = json!(-1.0);
        })
        .errors(&[InvalidSnapshot]),
        staged(&["corrupt_digest"], |c| c.record("b")["token_ids_delta"][0] = json!(9))
            .errors(&[CorruptDigest]),
        staged(&["missing_parent"], |c| {
            c.record("b")["parent_call_id"] = json!("x");
            c.forge("b");
        })
        .errors(&[MissingParent]),
        staged(&["parent_length_mismatch"], |c| {
            c.record("b")["prev_len"] = json!(5);
            c.record("b")["cum_len"] = json!(8);
            c.forge("b");
        })
        .errors(&[ParentLengthMismatch]),
        // A cycle that the lengths do not give away at its first row.
        staged(&["lineage_cycle"], |c| {
            let record = c.record("a");
            record["parent_call_id"] = json!("b");
            record["mode"] = json!("token_in");
            record["prev_len"] = json!(7);
            record["cum_len"] = json!(11);
            c.forge("a");
        })
        .errors(&[LineageCycle, ParentLengthMismatch]),
        staged(&["missing_terminal"], |c| {
            c.receipt()["terminal_model_call_id"] = json!(null);
        })
        .errors(&[MissingTerminal]),
        staged(&["chain_hash_mismatch"], |c| {
            c.record("b")["chain_hash"] = json!(hash("0"));
            c.forge("b");
        })
        .errors(&[ChainHashMismatch]),
        staged(&["invalid_mask_order"], |c| {
            c.record("b")["token_mask_delta"] = json!([1.0, 0.0, 1.0]);
            c.record("b")["generation_log_probs_delta"] = json!([-0.5, 0.0, -0.5]);
            c.forge("b");
        })
        .errors(&[InvalidMaskOrder]),
        staged(&["empty_generation"], |c| {
            c.record("b")["token_mask_delta"] = json!([0.0, 0.0, 0.0]);
            c.record("b")["generation_log_probs_delta"] = json!([0.0, 0.0, 0.0]);
            c.forge("b");
        })
        .errors(&[EmptyGeneration]),
        staged(&["cumulative_hash_mismatch"], |c| {
            c.record("b")["cumulative_hash"] = json!(hash("0"));
            c.forge("b");
        })
        .errors(&[CumulativeHashMismatch]),
        // What the published verifier does not look at.
        staged(&[], |c| c.row("b")["fingerprint_version"] = json!(1))
            .errors(&[MissingReceipt, UnsupportedFingerprint]),
        staged(&[], |c| c.record("b")["extras"] = json!({ "x": 1 })).errors(&[CorruptExtrasDigest]),
        staged(&[], |c| c.receipts.clear()).errors(&[MissingReceipt]),
        staged(&[], |c| c.receipt()["reward"] = json!(0.5)).warnings(&[ReceiptRewardMismatch]),
        staged(&[], |c| {
            c.call("c", Some("b"), &[8], &[9]);
            c.lose("c");
            c.reject("c");
            c.score("b");
            c.receipt()["pending_call_ids"] = json!(["c"]);
        })
        .warnings(&[CapturePending, UncommittedRecord])
        .masked(CapturePending),
        staged(&[], |c| array(&mut c.receipt()["attempted_call_ids"]).push(json!("c")))
            .errors(&[UnaccountedCall]),
        staged(&[], |c| c.ended("b", Some("failed"), None))
            .warnings(&[CompletionFailed])
            .masked(FailedSelectedCall),
        staged(&[], |c| {
            c.record("b")["generation_log_probs_delta"] = json!([0.0, -9999.0, 0.25]);
            c.forge("b");
        })
        .warnings(&[ClampedLogprob, PositiveLogprob]),
        store(&[], |s| s.intents = None)
            .warnings(&[CompletenessUnknown])
            .masked(CompletenessUnknown),
        store(&[], |s| s.state.as_mut().unwrap()["incomplete"] = json!(true))
            .warnings(&[CaptureIncomplete])
            .masked(CaptureIncomplete),
        store(&[], |s| {
            s.entry("b")["digest"] = json!(hash("0"));
            s.index();
        })
        .errors(&[EntryDigestMismatch]),
        store(&[], |s| {
            s.entry("b")["generation_token_ids"] = json!([]);
            s.entry("b")["generation_log_probs"] = json!([]);
            s.entry("b")["cum_len"] = json!(5);
            s.entry("b")["digest"] = json!(super::super::store::entry_digest(&[1, 2, 3, 4, 5]));
            s.index();
        })
        .errors(&[EmptyGeneration]),
    ]
}

#[test]
fn wrong_evidence_is_called_by_its_word() {
    check(&cases());
}

/// Files have no order, so that only the library's verifier, which is given one, can say this.
#[test]
fn snapshots_in_another_order_are_called_by_their_word() {
    let capture = Capture::pair(2);
    let receipt = {
        let mut receipt = capture.receipts[0].clone();
        let members = receipt.as_object_mut().unwrap();
        members.remove("calls");
        Receipt::parse(&receipt.to_string()).unwrap()
    };
    let records: Vec<StagedRecord> =
        capture.staged.iter().map(|r| StagedRecord::parse(&r.to_string()).unwrap()).collect();
    assert!(verify_and_linearize(&receipt, &records).is_ok());
    let reversed: Vec<StagedRecord> = records.into_iter().rev().collect();
    let error = verify_and_linearize(&receipt, &reversed).unwrap_err();
    assert_eq!(error.code.as_str(), "snapshot_order_mismatch");
}
