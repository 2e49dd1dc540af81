//! Every case of `builder/`: chains, notes, and what the consumer makes of them.

use std::collections::BTreeMap;

use forestctl::wire::builder::{
    Build, InferredParent, LinkNote, Sequence, consume, infer_parents, prefix_merging,
    resolve_parents,
};
use forestctl::wire::digest::entry_digest;
use forestctl::wire::json::Json;
use forestctl::wire::{ParentResolution, TokenEntry};
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
        prompt_token_ids: prompt.to_vec().into(),
        generation_token_ids: vec![9],
        generation_log_probs: vec![-1.0],
        parent_call_id: (!parent.is_empty()).then(|| parent.to_owned()),
        cum_len,
        ..TokenEntry::default()
    };
    let mut a = entry("a", &[1, 2], "", Some(2));
    a.parent_resolution = Some(ParentResolution::Root);
    a.digest = Some(entry_digest(&[1_u64, 2]).to_string());
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
            prompt_token_ids: if n == 0 { vec![1] } else { Vec::new() }.into(),
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

/// A store whose calls continue earlier ones: `parents[n]` is taken modulo the calls before.
fn forest(parents: &[Option<usize>]) -> Vec<TokenEntry> {
    let mut sequences: Vec<Vec<u64>> = Vec::new();
    let mut entries = Vec::new();
    for (n, parent) in parents.iter().enumerate() {
        let parent = parent.filter(|_| n > 0).map(|parent| parent % n);
        let mut tokens = parent.map_or(Vec::new(), |parent| sequences[parent].clone());
        // A carry token that siblings share, and a generated one that they do not.
        tokens.push(7);
        let prompt = tokens.clone();
        tokens.push(100 + n as u64);
        let resolution = match parent {
            Some(_) => ParentResolution::Resolved,
            None => ParentResolution::Root,
        };
        entries.push(TokenEntry {
            model_call_id: format!("c{n:02}"),
            prompt_token_ids: prompt.into(),
            generation_token_ids: vec![100 + n as u64],
            generation_log_probs: vec![-1.0],
            parent_call_id: parent.map(|parent| format!("c{parent:02}")),
            parent_resolution: Some(resolution),
            cum_len: Some(tokens.len() as i64),
            digest: Some(entry_digest(&tokens).to_string()),
            ..TokenEntry::default()
        });
        sequences.push(tokens);
    }
    entries
}

proptest! {
    #[test]
    fn recorded_links_are_found_in_any_order_and_without_records(
        parents in prop::collection::vec(prop::option::of(0_usize..20), 1..12),
        rotate in 0_usize..12,
        lost in 0_usize..12,
    ) {
        let mut entries = forest(&parents);
        let rotate = rotate % entries.len();
        entries.rotate_left(rotate);
        let resolved = resolve_parents(&entries);
        let sequences: Vec<Sequence<'_>> = entries
            .iter()
            .map(|e| Sequence::new(&e.prompt_token_ids, &e.generation_token_ids))
            .collect();
        let inferred = infer_parents(&sequences);
        for (at, call) in resolved.iter().enumerate() {
            let parent = call.parent.map(|at| entries[at].model_call_id.as_str());
            prop_assert_eq!(parent, entries[at].parent_call_id.as_deref());
            prop_assert_eq!(call.note, None);
            prop_assert_eq!(call.prev_len, call.parent.map_or(0, |at| sequences[at].len()));
            let expected = call.parent.map_or(InferredParent::Root, InferredParent::Call);
            prop_assert_eq!(&inferred[at], &expected);
        }
        // Without one call, its children are recovered under their grandparent, if there is one.
        let lost = entries.remove(lost % entries.len());
        for call in resolve_parents(&entries) {
            let entry = &entries[call.entry];
            let parent = call.parent.map(|at| entries[at].model_call_id.as_str());
            if entry.parent_call_id.as_deref() != Some(&lost.model_call_id) {
                prop_assert_eq!(parent, entry.parent_call_id.as_deref());
            } else {
                prop_assert_eq!(parent, lost.parent_call_id.as_deref());
                let recovered = lost.parent_call_id.is_some();
                let note = if recovered { LinkNote::Recovered } else { LinkNote::Missing };
                prop_assert_eq!(call.note, Some(note));
            }
        }
    }

    /// Cycles, self-parents, duplicates, deltas on nothing: whatever links say, building ends.
    #[test]
    fn no_set_of_links_panics_or_loops(
        calls in prop::collection::vec(
            (0_usize..6, prop::option::of(0_usize..6), any::<bool>(), 0_usize..3,
             prop::collection::vec(0_u64..2, 0..4), prop::collection::vec(0_u64..2, 0..3)),
            0..12),
        terminal in prop::option::of(0_usize..7),
    ) {
        let name = |n: usize| format!("c{n}");
        let entry = |(id, parent, delta, decision, prompt, generation): &(
            usize, Option<usize>, bool, usize, Vec<u64>, Vec<u64>,
        )| TokenEntry {
            model_call_id: name(*id),
            parent_call_id: parent.map(name),
            prompt_is_delta: *delta,
            parent_resolution: [None, Some(ParentResolution::Resolved), Some(ParentResolution::Root)]
                [*decision],
            prompt_token_ids: prompt.clone().into(),
            generation_token_ids: generation.clone(),
            generation_log_probs: vec![-1.0; generation.len()],
            ..TokenEntry::default()
        };
        let entries: Vec<TokenEntry> = calls.iter().map(entry).collect();
        let terminal = terminal.map(name);
        let build = prefix_merging(&entries, terminal.as_deref());
        prop_assert!(build.generated_tokens_delivered <= build.generated_tokens_captured);
        prop_assert_eq!(build.chains.is_empty(), build.main().is_none());
        let consumed = consume("r", &entries, false, None, terminal.as_deref(), None);
        prop_assert!(consumed.mask_sample || consumed.rebuilt_response.is_some());
        for call in resolve_parents(&entries) {
            if let (Some(parent), Some(sequence)) = (call.parent, &call.sequence) {
                prop_assert!(parent != call.entry && call.prev_len <= sequence.prompt.len());
                prop_assert!(call.prev_len > 0);
            }
        }
    }

    #[test]
    fn a_changed_parent_token_breaks_its_links(
        parents in prop::collection::vec(prop::option::of(0_usize..20), 2..10),
        changed in 0_usize..10,
    ) {
        let mut entries = forest(&parents);
        let changed = changed % entries.len();
        entries[changed].generation_token_ids[0] += 1000;
        let id = entries[changed].model_call_id.clone();
        for call in resolve_parents(&entries) {
            if entries[call.entry].parent_call_id.as_ref() == Some(&id) {
                prop_assert_eq!((call.parent, call.note), (None, Some(LinkNote::DigestMismatch)));
            }
        }
    }

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
