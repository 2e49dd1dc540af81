//! Public rollouts with inline token arrays, read in place.

use std::path::Path;

use forestctl::archive::Completeness;
use forestctl::ingest::Ingested;

use super::*;

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
