//! Cleanup plans: exact keys, and nothing that another may still need (rules 130-136).

use std::collections::BTreeMap;
use std::process::Command;

use forestctl::archive::{self, Rollout};
use forestctl::cleanup::{Fate, Ground, PlannedKey, plan};
use serde_json::Value;

use crate::closed_loop::ingested;

fn rollout(form: &str, id: &str) -> Rollout {
    let groups = ingested(form).groups;
    let mut all = groups.into_iter().flat_map(|group| group.rollouts);
    all.find(|rollout| rollout.rollout_id.as_str() == id).unwrap()
}

fn count(keys: &[PlannedKey]) -> BTreeMap<Ground, usize> {
    let mut counts = BTreeMap::new();
    keys.iter().for_each(|key| *counts.entry(key.ground).or_default() += 1);
    counts
}

#[test]
fn pending_calls_stay_and_all_that_was_attempted_otherwise_may_go() {
    for form in ["staged-v2", "staged-v3"] {
        let pending = plan(&rollout(form, "p05_g1"));
        assert_eq!(count(&pending), BTreeMap::from([(Ground::Committed, 2), (Ground::Pending, 1)]));
        let failed = plan(&rollout(form, "p05_g3"));
        assert_eq!(count(&failed), BTreeMap::from([(Ground::Committed, 2), (Ground::Failed, 1)]));
        assert!(failed.iter().all(|key| key.fate == Fate::Remove));
    }
    let store = ingested("gym-store").groups;
    assert!(!store.is_empty());
    assert!(store.iter().flat_map(|group| &group.rollouts).all(|r| plan(r).is_empty()));
}

#[test]
fn keys_are_those_of_the_receipt() {
    let rollout = rollout("staged-v2", "p01_g3");
    let receipt: Value = serde_json::from_str(rollout.ledger.receipt.as_ref().unwrap()).unwrap();
    let mut recorded: Vec<&str> = receipt["manifest"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["staging_key"].as_str().unwrap())
        .collect();
    recorded.sort_unstable();
    let planned = plan(&rollout);
    assert!(planned.iter().map(|key| key.staging_key.as_str()).eq(recorded));
    // Without its receipt, the key is made of scope and call.
    let mut bare = rollout;
    bare.ledger.receipt = None;
    assert_eq!(plan(&bare), planned);
}

#[test]
fn a_failure_ends_no_pending_write_and_a_restored_call_belongs_to_its_source() {
    let mut rollout = rollout("staged-v2", "p05_g3");
    let failed = rollout.ledger.failures[0].call_id.clone();
    rollout.ledger.pending.push(failed.clone());
    let restored = rollout.calls[0].call_id.clone();
    rollout.calls[0].source_capture_key = Some("earlier".into());
    rollout.ledger.receipt = None;
    let keys = plan(&rollout);
    let of = |call| keys.iter().find(|key| key.call_id == call).unwrap();
    assert_eq!(of(failed).ground, Ground::Pending);
    let restored = of(restored);
    assert_eq!((restored.ground, restored.fate), (Ground::Restored, Fate::Keep));
    assert_eq!(restored.staging_key, format!("earlier/{}", restored.call_id));
}

#[test]
fn the_command_lists_every_key_once_and_tells_totals() {
    let home = tempfile::tempdir().unwrap();
    archive::write(&home.path().join("run.forest"), false, &ingested("staged-v2")).unwrap();
    let run = |arguments: &[&str]| {
        let command = [&["cleanup-plan", "run.forest"][..], arguments].concat();
        let output = Command::new(env!("CARGO_BIN_EXE_forestctl"))
            .args(command)
            .current_dir(home.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let document: Value = serde_json::from_str(&run(&["--format", "json"])).unwrap();
    let keys = document["keys"].as_array().unwrap();
    let kept: Vec<_> = keys.iter().filter(|key| key["fate"] == "keep").collect();
    assert_eq!(kept.len(), 1);
    assert_eq!((&kept[0]["rollout_id"], &kept[0]["ground"]), (&"p05_g1".into(), &"pending".into()));
    assert_eq!(document["totals"]["remove"], keys.len() - 1);
    let lines = run(&["--format", "jsonl"]);
    assert_eq!(lines.lines().count(), keys.len());
    assert!(run(&[]).contains("1 must stay (1 of them pending)"));
}
