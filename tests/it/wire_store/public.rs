//! Parents of public rollouts with inline token arrays, read in place.

use std::path::Path;

use forestctl::wire::builder::{InferredParent, Sequence, infer_parents};
use serde_json::Value;

/// Calls, rows, generated tokens, and row tokens of a file of finished rollouts.
fn count(path: &Path) -> (usize, usize, usize, usize) {
    let text = std::fs::read_to_string(path).unwrap();
    let ids = |value: &Value| -> Vec<u64> {
        value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
    };
    let (mut calls, mut rows, mut generated, mut row_tokens) = (0, 0, 0, 0);
    for line in text.lines() {
        let rollout: Value = serde_json::from_str(line).unwrap();
        let items = rollout["response"]["output"].as_array().unwrap();
        let parts: Vec<(Vec<u64>, Vec<u64>)> = items
            .iter()
            .filter(|item| item["generation_token_ids"].is_array())
            .map(|item| (ids(&item["prompt_token_ids"]), ids(&item["generation_token_ids"])))
            .collect();
        let sequences: Vec<Sequence<'_>> =
            parts.iter().map(|(prompt, generation)| Sequence::new(prompt, generation)).collect();
        let parents = infer_parents(&sequences);
        let continued = |at: usize| parents.contains(&InferredParent::Call(at));
        calls += sequences.len();
        for (at, sequence) in sequences.iter().enumerate() {
            generated += sequence.generation.len();
            if !continued(at) {
                rows += 1;
                row_tokens += sequence.len();
            }
        }
    }
    (calls, rows, generated, row_tokens)
}

#[test]
fn inferred_parents_give_the_published_counts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures/public");
    if !dir.is_dir() {
        eprintln!("skipped: {} is not there", dir.display());
        return;
    }
    let of = |name: &str| count(&dir.join(name));
    assert_eq!(of("gym-blackjack-rollouts.jsonl"), (6, 5, 48, 317));
    assert_eq!(of("gym-customer-service-rollouts.jsonl"), (50, 5, 9445, 10222));
    let (calls, rows, generated, _) = of("gym-competitive-coding-rollouts.jsonl");
    assert_eq!((calls, rows, generated), (5, 5, 5023));
}
