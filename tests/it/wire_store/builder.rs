//! Every case of `builder/`: chains, notes, and what the consumer makes of them.

use std::collections::BTreeMap;

use forestctl::wire::TokenEntry;
use forestctl::wire::builder::{
    Build, InferredParent, LinkNote, Sequence, consume, infer_parents, prefix_merging,
    resolve_parents,
};
use forestctl::wire::json::Json;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{exact, gym, list, to_json, value};

/// The entries of a case. One case sets its log-probabilities after the model's own checks.
fn entries(case: &Value) -> Vec<TokenEntry> {
    let parse = |entry: &Value| {
        let mut entry = entry.clone();
        let logprobs = entry["generation_log_probs"].clone();
        let filler = vec![json!(0.0); entry["generation_token_ids"].as_array().unwrap().len()];
        entry["generation_log_probs"] = json!(filler);
        let mut parsed = TokenEntry::parse(&entry.to_string()).unwrap();
        parsed.generation_log_probs =
            logprobs.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        parsed
    };
    case["entries"].as_array().unwrap().iter().map(parse).collect()
}

fn described(build: &Build, entries: &[TokenEntry], terminal: Option<&str>) -> Value {
    let id = |at: usize| entries[at].model_call_id.clone();
    let chains: Vec<Value> = build
        .chains
        .iter()
        .map(|chain| {
            let links: Vec<Value> = chain
                .links
                .iter()
                .map(|link| {
                    let generation = entries[link.entry].generation_token_ids.len();
                    json!({"model_call_id": id(link.entry), "interstitial": link.interstitial,
                           "generation": generation})
                })
                .collect();
            json!({"chain_id": chain.chain_id, "root_prompt": chain.root_prompt, "links": links})
        })
        .collect();
    json!({
        "ok": true,
        "chains": chains,
        "quarantined": build.quarantined,
        "notes": {
            "builder": "prefix_merging",
            "roots": build.roots,
            "chains": build.chains.len(),
            "generated_tokens_captured": build.generated_tokens_captured,
            "generated_tokens_delivered": build.generated_tokens_delivered,
            "delivered_fraction": build.delivered_fraction(),
            "unresolved_retries": build.unresolved_retries,
            "terminal_call_id": terminal,
            "terminal_chain": build.terminal_chain.as_str(),
            "empty_generation_calls": build.empty_generation_calls,
            "parent_link_failures": build.parent_link_failures,
            "unresolved_parent_calls": build.unresolved_parent_calls,
        }
    })
}

#[test]
fn chains_and_consumer() {
    let file = value(&gym("builder/builder.json"));
    let exact_file = exact(&gym("builder/builder.json"));
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 48);
    for (case, exact_case) in cases.iter().zip(list(&exact_file, "cases")) {
        let name = case["name"].as_str().unwrap();
        let entries = entries(case);
        let terminal = case["terminal_call_id"].as_str();
        let build = prefix_merging(&entries, terminal);
        assert_eq!(described(&build, &entries, terminal), case["prefix_merging"], "{name}");

        let expected = &case["consumer"];
        let consumed = consume(
            "r",
            &entries,
            case["snapshot_incomplete"].as_bool().unwrap(),
            exact_case.get("verified_response"),
            terminal,
            case["declared_response_id"].as_str(),
        );
        let rebuilt = exact_case.get("consumer").and_then(|c| c.get("rebuilt_response")).unwrap();
        let none = Json::Null;
        assert_eq!(consumed.rebuilt_response.as_ref().unwrap_or(&none), rebuilt, "{name}");
        assert_eq!(consumed.mask_sample, expected["mask_sample"].as_bool().unwrap(), "{name}");
        assert_eq!(consumed.error.as_deref(), expected["error"].as_str(), "{name}");
        assert_eq!(to_json(&consumed.metrics), expected["metrics"], "{name}");
        let listed = |key: &str| {
            expected[key].as_array().into_iter().flatten().map(|v| v.as_str().unwrap().to_owned())
        };
        assert!(listed("unresolved_retries").eq(consumed.unresolved_retries), "{name}");
        assert!(listed("unresolved_parent_calls").eq(consumed.unresolved_parent_calls), "{name}");
    }
}

#[test]
fn resolved_parents_are_those_of_the_chains() {
    let file = value(&gym("builder/builder.json"));
    let mut stricter = Vec::new();
    for case in file["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let entries = entries(case);
        let resolved = resolve_parents(&entries);
        let parent: BTreeMap<usize, Option<usize>> =
            resolved.iter().map(|call| (call.entry, call.parent)).collect();
        for chain in prefix_merging(&entries, None).chains {
            let mut before = None;
            for link in &chain.links {
                if parent[&link.entry] != before {
                    stricter.push(name);
                }
                before = Some(link.entry);
            }
        }
        for call in &resolved {
            if let (Some(parent), Some(sequence)) = (call.parent, &call.sequence) {
                let parent = resolved.iter().find(|other| other.entry == parent).unwrap();
                let before = parent.sequence.as_ref().unwrap();
                assert_eq!(call.prev_len, before.len(), "{name}");
                assert!(before.begins(&sequence.prompt), "{name}");
            }
        }
    }
    assert_eq!(stricter, Vec::<&str>::new());
}

#[test]
fn a_stamp_does_not_stand_in_for_tokens() {
    let entry = |call: &str, prompt: &[u64], parent: &str, cum_len: Option<i64>| TokenEntry {
        model_call_id: call.to_owned(),
        prompt_token_ids: prompt.to_vec(),
        generation_token_ids: vec![9],
        generation_log_probs: vec![-1.0],
        parent_call_id: (!parent.is_empty()).then(|| parent.to_owned()),
        cum_len,
        ..TokenEntry::default()
    };
    let mut a = entry("a", &[1, 2], "", Some(2));
    a.parent_resolution = Some(forestctl::wire::ParentResolution::Root);
    // Entry digest of [1, 2].
    a.digest = Some("81b40eab52cfd639679f3771e4bbfc141751ebe5554c567e7389f1d794a89a2b".to_owned());
    // The package accepts the short stamp, though the prompt lacks the parent's generation.
    let b = entry("b", &[1, 2, 3, 4], "a", None);
    let entries = [a, b];
    assert_eq!(prefix_merging(&entries, None).chains.len(), 1);
    let resolved = resolve_parents(&entries);
    assert_eq!(resolved[1].parent, None);
    assert_eq!(resolved[1].note, Some(LinkNote::DigestMismatch));
}

#[test]
fn a_long_chain_of_delta_records_needs_no_stack() {
    let links = 9_000_u64;
    let mut entries = Vec::new();
    for n in 0..links {
        entries.push(TokenEntry {
            model_call_id: format!("c{n:05}"),
            prompt_token_ids: if n == 0 { vec![1] } else { Vec::new() },
            generation_token_ids: if n % 100 == 0 { vec![n] } else { Vec::new() },
            generation_log_probs: if n % 100 == 0 { vec![-1.0] } else { Vec::new() },
            parent_call_id: (n > 0).then(|| format!("c{:05}", n - 1)),
            prompt_is_delta: n > 0,
            ..TokenEntry::default()
        });
    }
    entries.reverse();
    let resolved = resolve_parents(&entries);
    assert_eq!(resolved.len() as u64, links);
    assert!(resolved.iter().all(|call| call.sequence.is_some()));
    assert_eq!(resolved[0].sequence.as_ref().unwrap().len(), 91);
}

proptest! {
    #[test]
    fn inferred_parents_agree_with_comparing_everything(
        calls in prop::collection::vec(
            (prop::collection::vec(0_u64..2, 0..6), prop::collection::vec(0_u64..2, 0..3)), 0..10),
    ) {
        let calls: Vec<Sequence<'_>> = calls.iter().map(|(p, g)| Sequence::new(p, g)).collect();
        for (call, found) in calls.iter().zip(infer_parents(&calls)) {
            let tokens = |other: &Sequence<'_>| [&*other.prompt, other.generation].concat();
            let before = |other: &Sequence<'_>| {
                !other.generation.is_empty() && call.prompt.starts_with(&tokens(other))
            };
            let longest = calls.iter().filter(|o| before(o)).map(Sequence::len).max();
            let best: Vec<usize> = (0..calls.len())
                .filter(|&at| before(&calls[at]) && Some(calls[at].len()) == longest)
                .collect();
            let expected = match best.as_slice() {
                [] => InferredParent::Root,
                [one] => InferredParent::Call(*one),
                _ => InferredParent::Ambiguous(best),
            };
            prop_assert_eq!(found, expected);
        }
    }
}
