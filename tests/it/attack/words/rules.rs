//! The numbered rules on reading (16-20), on proving (85-91), and on pending parents (134).

use forestctl::finding::Code::*;
use serde_json::json;

use super::super::capture::{Capture, array, sign};
use super::{Case, Sources, check, staged};

const CANCELLED: &str = "request_finished_without_staged_coordinates";

/// A third call, committed and complete, that the harness rejected and its capture cancelled.
fn cancelled(c: &mut Capture) {
    c.call("c", Some("b"), &[8], &[9]);
    c.reject("c");
    c.score("b");
    c.ended("c", None, None);
    c.fail("c", CANCELLED);
}

fn schema_3(names: &'static [&'static str], change: fn(&mut Capture)) -> Case {
    Case::of(names, Sources::Staged(3, change))
}

pub fn cases() -> Vec<Case> {
    vec![
        // Capture schemas 2 and 3 are read, and no other.
        staged(&["rule 16"], |_| {}),
        schema_3(&["rule 16"], |_| {}),
        staged(&["rule 16"], |c| c.record("b")["schema_version"] = json!(1))
            .errors(&[RowCountMismatch, UnsupportedSchema]),
        schema_3(&["rule 16"], |c| c.record("b")["schema_version"] = json!(4))
            .errors(&[RowCountMismatch, UnsupportedSchema]),
        // No checkpoint is migrated, and no ledger of replayed items.
        staged(&["rule 17"], |c| {
            let head = br#"{"schema_version":4,"groups":[]}"#;
            c.files.insert("rollout_recovery.json".to_owned(), head.to_vec());
        })
        .errors(&[UnsupportedRecovery])
        .trains(),
        schema_3(&["rule 18"], |c| c.row("b")["replay"] = json!({ "items": [] }))
            .errors(&[MissingReceipt, UnsupportedReplay]),
        // The name of the scope belongs to the schema.
        schema_3(&["rule 19"], |c| {
            let record = c.record("b").as_object_mut().unwrap();
            let scope = record.remove("capture_key").unwrap();
            record.insert("rollout_id".to_owned(), scope);
        })
        .errors(&[RowCountMismatch, UnsupportedSchema])
        .says(&["schema 3 under the name rollout_id"]),
        staged(&["rule 19"], |c| c.record("b")["capture_key"] = json!("0-0"))
            .errors(&[RowCountMismatch, MalformedRecord])
            .says(&["capture_key: is not a key of this schema"]),
        // A restored call names its earlier owner, beside the attempt that it is in now.
        schema_3(&["rule 19"], |c| {
            c.record("b")["source_capture_key"] = json!("0-0-a9");
            c.row("b")["source_capture_key"] = json!("0-0-a9");
            c.row("b")["staging_key"] = json!("0-0-a9/b");
        }),
        // Failed selected, failed parent of a selected, failed scored call.
        staged(&["rule 85"], |c| c.fail("a", "worker_capture_failed"))
            .warnings(&[CaptureFailed])
            .masked(FailedSelectedCall),
        staged(&["rule 85"], |c| c.ended("a", Some("failed"), None))
            .warnings(&[CompletionFailed])
            .masked(FailedSelectedCall),
        staged(&["rule 85"], |c| c.fail("b", CANCELLED))
            .warnings(&[CaptureCancelled])
            .masked(FailedSelectedCall),
        // Pending and lost evidence.
        staged(&["rule 86"], |c| {
            array(&mut c.receipt()["attempted_call_ids"]).push(json!("c"));
            c.receipt()["pending_call_ids"] = json!(["c"]);
        })
        .warnings(&[CapturePending])
        .masked(CapturePending),
        staged(&["rule 86"], |c| array(&mut c.receipt()["attempted_call_ids"]).push(json!("c")))
            .errors(&[UnaccountedCall]),
        // The exemption, and everything that it asks for, left out one at a time.
        staged(&["rule 87", "rule 88"], cancelled).warnings(&[CaptureCancelled, CompletionFailed]),
        staged(&["rule 87"], |c| {
            cancelled(c);
            c.lose("c");
        })
        .warnings(&[CaptureFailed, UncommittedRecord])
        .masked(CaptureFailed),
        staged(&["rule 87"], |c| {
            cancelled(c);
            c.staged.pop();
        })
        .errors(&[RowCountMismatch])
        .warnings(&[CaptureCancelled, CompletionFailed]),
        staged(&["rule 87"], |c| {
            cancelled(c);
            array(&mut c.receipt()["attempted_call_ids"]).push(json!("d"));
            c.receipt()["pending_call_ids"] = json!(["d"]);
        })
        .warnings(&[CaptureFailed, CapturePending, CompletionFailed])
        .masked(CapturePending),
        staged(&["rule 87"], |c| {
            c.call("c", Some("b"), &[8], &[9]);
            c.fail("c", CANCELLED);
        })
        .warnings(&[CaptureCancelled])
        .masked(FailedSelectedCall),
        staged(&["rule 87"], |c| {
            cancelled(c);
            c.receipt()["failures"][0]["reason"] = json!("worker_capture_failed");
        })
        .warnings(&[CaptureFailed, CompletionFailed])
        .masked(CaptureFailed),
        // Digests, lengths, lineage: of every call, on the scored chain or off it.
        staged(&["rule 89"], |c| {
            c.call("c", Some("a"), &[8], &[9]);
            c.reject("c");
            c.score("b");
            c.record("c")["chain_hash"] = json!("0".repeat(64));
            c.forge("c");
        })
        .errors(&[ChainHashMismatch]),
        staged(&["rule 89"], |c| {
            c.call("c", Some("a"), &[8], &[9]);
            c.reject("c");
            c.score("b");
            c.lose("c");
            c.receipt()["pending_call_ids"] = json!(["c"]);
            c.record("c")["token_ids_delta"][0] = json!(9);
        })
        .errors(&[CorruptDigest])
        .warnings(&[CapturePending, UncommittedRecord]),
        // A media line against the extras that the call commits to.
        staged(&["rule 90"], |c| {
            let digest = "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b";
            c.media.push(json!({
                "rollout_id": "0-0", "model_call_id": "b", "media_present": true,
                "media_has_frames": false, "media_metadata_digest": digest,
            }));
        })
        .errors(&[MediaFlagMismatch]),
        staged(&["rule 90"], |c| {
            c.media.push(json!({
                "rollout_id": "0-0", "model_call_id": "b", "media_present": false,
                "media_has_frames": false, "media_metadata_digest": "0".repeat(64),
            }));
        })
        .errors(&[MediaMetadataMismatch]),
        // What continues a call that was never acknowledged has no parent.
        staged(&["rule 134"], |c| {
            c.lose("a");
            c.receipt()["pending_call_ids"] = json!(["a"]);
        })
        .errors(&[MissingParent])
        .warnings(&[CapturePending, UncommittedRecord]),
        // One bad segment of two.
        staged(&["rule 91"], |c| {
            c.call("c", None, &[8], &[9]);
            c.record("c")["token_ids_delta"][0] = json!(9);
        })
        .errors(&[CorruptDigest]),
    ]
}

#[test]
fn rules_on_reading_and_proving_are_enforced() {
    check(&cases());
}

/// Rule 88: what the exemption lets pass is not selected by it, under either policy.
#[test]
fn rule_88_an_exempted_call_is_not_selected() {
    use super::super::document;
    let home = tempfile::tempdir().unwrap();
    let mut capture = Capture::pair(2);
    cancelled(&mut capture);
    capture.write(&home.path().join("captures"));
    document(home.path(), &["ingest", "captures", "-o", "run.forest"], &[0]);
    for policy in ["returned_history", "all_captured"] {
        let select = document(home.path(), &["select", "run.forest", "--policy", policy], &[0]);
        let rollout = &select["rollouts"][0];
        assert_eq!(
            (&rollout["verdict"], &rollout["call_ids"]),
            (&json!("valid"), &json!(["a", "b"]))
        );
    }
}

/// Rule 91: the other rollouts of the group are not touched.
#[test]
fn rule_91_masks_the_whole_rollout_and_no_other() {
    use super::super::document;
    let home = tempfile::tempdir().unwrap();
    let mut capture = Capture::of(2, 2);
    capture.call("a", None, &[1], &[2]);
    capture.call("b", None, &[3], &[4]);
    capture.scope(1, 2);
    capture.call("c", None, &[1], &[2]);
    capture.record("b")["token_ids_delta"][0] = json!(9);
    capture.write(&home.path().join("captures"));
    document(home.path(), &["ingest", "captures", "-o", "run.forest"], &[0]);
    let select = document(home.path(), &["select", "run.forest"], &[0, 1]);
    let verdicts: Vec<_> = select["rollouts"].as_array().unwrap().iter().collect();
    assert_eq!(verdicts[0]["reason"], "corrupt_digest");
    assert_eq!(verdicts[1]["verdict"], "valid");
}

/// Rule 19: a restored call keeps the name of the scope that staged it, beside that of its attempt.
#[test]
fn rule_19_a_restored_call_keeps_its_earlier_owner() {
    let home = tempfile::tempdir().unwrap();
    let mut capture = Capture::pair(3);
    capture.record("b")["source_capture_key"] = json!("0-0-a9");
    capture.write(&home.path().join("captures"));
    super::super::document(home.path(), &["ingest", "captures", "-o", "run.forest"], &[0]);
    let archive = forestctl::archive::Archive::open(&home.path().join("run.forest")).unwrap();
    let calls = archive.groups().unwrap().remove(0).rollouts.remove(0).calls;
    let owners: Vec<_> = calls
        .iter()
        .map(|call| {
            (call.capture_key.as_str(), call.source_capture_key.as_ref().map(|k| k.as_str()))
        })
        .collect();
    assert_eq!(owners, [("0-0", None), ("0-0", Some("0-0-a9"))]);
}

/// Rule 20: ids, staging keys and digests of schema 3 are those of schema 2, but for the one byte
/// of the call digest that is the schema.
#[test]
fn rule_20_ids_keys_and_digests_stay_as_they_were() {
    let (mut two, mut three) = (Capture::pair(2), Capture::pair(3));
    for id in ["a", "b"] {
        for field in ["model_call_id", "extras_digest", "chain_hash", "cumulative_hash"] {
            assert_eq!(two.record(id)[field], three.record(id)[field]);
        }
        assert_eq!(two.row(id)["staging_key"], three.row(id)["staging_key"]);
        assert_ne!(two.record(id)["digest"], three.record(id)["digest"]);
        // The digest over schema 3 is the one that a record of schema 3 is proved by.
        let record = three.record(id);
        let stated = record["digest"].clone();
        sign(record);
        assert_eq!(record["digest"], stated);
    }
    check(&[schema_3(&["rule 20"], |_| {})]);
    let home = tempfile::tempdir().unwrap();
    three.write(&home.path().join("captures"));
    let archive = home.path().join("run.forest");
    super::super::document(home.path(), &["ingest", "captures", "-o", "run.forest"], &[0]);
    let groups = forestctl::archive::Archive::open(&archive).unwrap().groups().unwrap();
    let rollout = &groups[0].rollouts[0];
    assert_eq!((rollout.rollout_id.as_str(), rollout.capture_key.as_str()), ("g_g0", "0-0"));
    let receipt: serde_json::Value =
        serde_json::from_str(rollout.ledger.receipt.as_ref().unwrap()).unwrap();
    for (call, id) in rollout.calls.iter().zip(["a", "b"]) {
        assert_eq!((call.call_id.as_str(), call.capture_key.as_str()), (id, "0-0"));
        let commitment = call.commitment.unwrap();
        assert_eq!(three.record(id)["digest"], commitment.digest.to_string());
        assert_eq!(three.record(id)["chain_hash"], commitment.chain_hash.to_string());
        assert_eq!(three.record(id)["cumulative_hash"], commitment.cumulative_hash.to_string());
    }
    assert_eq!(receipt["manifest"][1]["staging_key"], "0-0/b");
}
