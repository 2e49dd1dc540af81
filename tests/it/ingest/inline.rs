//! Rollouts with inline token arrays: made here, and public ones read in place.

use std::fs;
use std::path::Path;

use forestctl::archive::{Call, Completeness};
use forestctl::finding::Code;
use forestctl::ingest::{self, Ingested};
use serde_json::{Value, json};

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

/// An assistant message with token arrays.
fn item(id: &str, prompt: &[u32], generation: &[u32]) -> Value {
    json!({
        "id": id, "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": id}],
        "prompt_token_ids": prompt, "generation_token_ids": generation,
        "generation_log_probs": vec![-0.5; generation.len()],
    })
}

fn line(prompt: &str, reward: f64, output: &[Value]) -> Value {
    json!({
        "responses_create_params": {"input": prompt}, "reward": reward,
        "response": {"id": format!("resp_{prompt}"), "output": output},
    })
}

fn read_lines(lines: &[Value]) -> Ingested {
    let home = tempfile::tempdir().unwrap();
    let text: Vec<_> = lines.iter().map(Value::to_string).collect();
    fs::write(home.path().join("rollouts.jsonl"), text.join("\n")).unwrap();
    ingest::read(&[home.path().to_owned()]).unwrap()
}

#[test]
fn lines_that_name_nothing_are_grouped_by_prompt_whatever_their_order() {
    let lines = [
        line("a", 1.0, &[item("m", &[1], &[2])]),
        line("b", 0.0, &[item("m", &[3], &[4])]),
        line("a", 0.5, &[item("m", &[1], &[5])]),
        line("a", 0.5, &[item("m", &[1], &[5])]),
        json!({"reward": 1, "response": {"output": []}}),
    ];
    let ingested = read_lines(&lines);
    assert_eq!(quarantined(&ingested), [(Some(5), Code::MalformedRollout)]);
    let mut sizes: Vec<_> = ingested.groups.iter().map(|g| g.rollouts.len()).collect();
    sizes.sort();
    assert_eq!(sizes, [1, 3]);
    for group in &ingested.groups {
        for (slot, rollout) in group.rollouts.iter().enumerate() {
            let identity = format!("{}_g{slot}", group.group_id);
            assert_eq!((rollout.rollout_id.as_str(), rollout.slot), (&*identity, slot as u32));
            assert_eq!(rollout.group_size as usize, group.rollouts.len());
        }
    }
    let reversed: Vec<_> = lines.iter().rev().cloned().collect();
    assert!(without_origins(read_lines(&reversed).groups) == without_origins(ingested.groups));
}

#[test]
fn parents_are_the_longest_beginning_and_the_latest_of_equals() {
    let ingested = read_lines(&[line(
        "p",
        1.0,
        &[
            item("a", &[1, 2], &[3]),
            item("b", &[1, 2], &[3]),
            item("c", &[1, 2, 3, 4], &[5]),
            // A rewritten context starts over.
            item("d", &[9, 3], &[6]),
            item("e", &[1, 2, 3, 4, 5], &[7]),
        ],
    )]);
    let calls: Vec<_> = rollouts(&ingested).flat_map(|r| &r.calls).collect();
    let parents: Vec<_> =
        calls.iter().map(|call| call.parent_call_id.as_ref().map(|id| id.as_str())).collect();
    assert_eq!(parents, [None, None, Some("b"), None, Some("c")]);
    let deltas: Vec<_> = calls.iter().map(|c| (c.prev_len, c.carry_len, &*c.token_ids)).collect();
    assert_eq!(deltas[2..], [(3, 1, &[4, 5][..]), (0, 2, &[9, 3, 6]), (5, 0, &[7])]);
    let ledger = &rollouts(&ingested).next().unwrap().ledger;
    let responses: Vec<_> = ledger.committed.iter().map(|row| row.response_id.as_deref()).collect();
    assert_eq!(responses, [None, None, None, None, Some("resp_p")]);
}

#[test]
fn items_without_arrays_belong_to_the_call_that_served_them() {
    let bare =
        |kind: &str, id: &str| json!({"type": kind, "id": id, "name": "f", "arguments": "{}"});
    let observation = json!({"type": "function_call_output", "call_id": "t", "output": "x"});
    let mut unnamed = item("", &[1, 2, 3, 4], &[5]);
    unnamed.as_object_mut().unwrap().remove("id");
    let ingested = read_lines(&[line(
        "p",
        1.0,
        &[
            bare("reasoning", "r1"),
            item("m1", &[1], &[2, 3]),
            bare("function_call", "f1"),
            observation.clone(),
            bare("function_call", "lost"),
            observation,
            unnamed,
        ],
    )]);
    let rollout = rollouts(&ingested).next().unwrap();
    let ids: Vec<Vec<_>> = rollout
        .ledger
        .committed
        .iter()
        .map(|row| row.output_items.iter().flatten().map(|item| item.id.as_deref()).collect())
        .collect();
    assert_eq!(ids, [vec![Some("r1"), Some("m1"), Some("f1")], vec![None]]);
    assert_eq!(rollout.calls[1].call_id.as_str(), format!("{}/call-1", rollout.rollout_id));
    let whole: Vec<forestctl::wire::json::Json> =
        [item("m1", &[], &[]), bare("function_call", "f1")]
            .iter()
            .map(|item| {
                let dialect = forestctl::wire::json::Dialect::Python;
                forestctl::wire::json::Json::parse(&item.to_string(), dialect).unwrap()
            })
            .collect();
    let fingerprint = forestctl::wire::assistant_fingerprint(&whole).unwrap();
    assert_eq!(rollout.ledger.committed[0].output_fingerprint, fingerprint);
}

#[test]
fn broken_arrays_are_quarantined_and_null_logprobs_kept() {
    let broken = |change: fn(&mut Value)| {
        let mut item = item("m", &[1], &[2, 3]);
        change(&mut item);
        read_lines(&[line("p", 1.0, &[item]), line("q", 1.0, &[self::item("m", &[1], &[2])])])
    };
    for (change, code) in [
        ((|i| i["generation_log_probs"] = json!([-0.5])) as fn(&mut Value), Code::MalformedRecord),
        (|i| i["prompt_token_ids"] = Value::Null, Code::MalformedRecord),
        (|i| i["prompt_token_ids"] = json!([-1]), Code::MalformedRecord),
        (|i| i["prompt_token_ids"] = json!([1u64 << 32]), Code::TokenIdOutOfRange),
    ] {
        assert_eq!(quarantined(&broken(change)), [(Some(1), code)]);
    }
    let ingested = broken(|i| i["generation_log_probs"] = json!([null, -0.5]));
    let nan = |call: &Call| call.generation_logprobs.iter().filter(|p| p.is_nan()).count();
    assert_eq!(rollouts(&ingested).flat_map(|r| &r.calls).map(nan).sum::<usize>(), 1);
    assert!(ingested.quarantine.is_empty());
}

#[test]
fn a_captured_scope_counts_for_more_than_the_arrays_of_its_line() {
    let ingested = changed("rollouts.jsonl", |lines| {
        let mut line: Value = serde_json::from_str(&lines[0]).unwrap();
        line["response"] = line["result"]["response"].clone();
        line["response"]["output"] = json!([item("m", &[1], &[2])]);
        line.as_object_mut().unwrap().remove("result");
        lines[0] = line.to_string();
    });
    let clean = read(&[&Path::new(SEED1).join("staged-v2")]);
    let found = rollout(&ingested, "0-0");
    assert_eq!(found.calls.len(), rollout(&clean, "0-0").calls.len());
    assert!(!found.result.as_ref().unwrap().contains("token_ids"));
}
