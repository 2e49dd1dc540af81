//! Replay digests against the two published values and the schema 3 receipts.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use forestctl::id::Digest32;
use forestctl::wire::json::{Dialect, Json};
use forestctl::wire::replay::{ReplayError, item_digest, render_digest, replay_summary};
use forestctl::wire::{Receipt, assistant_fingerprint};

use super::{list, text};

fn parse(text: &str) -> Json {
    Json::parse(text, Dialect::Strict).unwrap()
}

#[test]
fn published_values() {
    let question = parse(r#"{"role":"user","content":"original question"}"#);
    let answer = parse(r#"{"role":"assistant","content":"answer"}"#);
    let item = item_digest(&question).unwrap();
    assert_eq!(
        item.digest.to_string(),
        "6febaa20247b6325025dd9c4242b909654724415563bc8bf492ca49459dbeec5"
    );
    let summary = replay_summary([&question, &answer]).unwrap();
    assert_eq!(
        summary.source_digest.to_string(),
        "eeb067d8be483f243075220fd216a8ad91467b63e3bcc90639bfe57bc45c5769"
    );
    assert_eq!((summary.item_count, summary.empty_tool_content_digest), (2, None));
}

#[test]
fn what_a_server_adds_is_not_seen() {
    let bare = parse(
        r#"{"role":"assistant","content":[{"type":"output_text","text":"a","logprobs":null}]}"#,
    );
    let served = parse(
        r#"{"type":"message","id":"m","status":"completed","role":"assistant","refusal":null,
        "content":[{"type":"output_text","text":"a"}],"prompt_token_ids":[1],
        "generation_token_ids":[2],"generation_log_probs":[-1.0],"routed_experts":"x"}"#,
    );
    assert_eq!(item_digest(&bare), item_digest(&served));
    let call = |arguments: &str, id: &str| {
        let arguments = serde_json::to_string(arguments).unwrap();
        let item = format!(
            r#"{{"type":"function_call","id":"i","call_id":"{id}","name":"f","arguments":{arguments}}}"#
        );
        item_digest(&parse(&item)).unwrap().digest
    };
    assert_eq!(call("{\"b\": 1, \"a\": 2}", "c"), call("{\"a\":2,\"b\":1}", "c"));
    assert_ne!(call("{\"a\":2}", "c"), call("{\"a\":2.0}", "c"));
    assert_ne!(call("{\"a\":2}", "c"), call("{\"a\":2}", "d"));
    assert_ne!(call("not json ", "c"), call("not json", "c"));
}

#[test]
fn empty_tool_content_has_an_alternate() {
    let turn = |content: &str| {
        parse(&format!(
            r#"{{"role":"assistant","content":{content},"tool_calls":[{{"id":"c","function":
            {{"name":"f","arguments":"{{}}"}}}}]}}"#
        ))
    };
    let (null, empty) = (item_digest(&turn("null")).unwrap(), item_digest(&turn("\"\"")).unwrap());
    assert_ne!(null.digest, empty.digest);
    assert_eq!(null.empty_tool_content, Some(empty.digest));
    let (null, empty) = (turn("null"), turn("\"\""));
    let (null, empty) = (replay_summary([&null]).unwrap(), replay_summary([&empty]).unwrap());
    assert_ne!(null.source_digest, empty.source_digest);
    assert_eq!(null.empty_tool_content_digest, Some(empty.source_digest));
    assert_eq!(empty.empty_tool_content_digest, None);
}

#[test]
fn unknown_roles_and_nan_are_refused() {
    for bad in [r#"{"role":"critic"}"#, r#"{"type":"web_search_call"}"#, "{}"] {
        assert_eq!(item_digest(&parse(bad)), Err(ReplayError::Role), "{bad}");
    }
    assert_eq!(item_digest(&parse("[]")), Err(ReplayError::Item));
    let nan = parse(r#"{"type":"function_call","name":"f","arguments":"NaN"}"#);
    assert!(matches!(item_digest(&nan), Err(ReplayError::Canonical(_))));
}

#[test]
fn only_render_options_are_in_the_render_digest() {
    let digest = |text: &str| render_digest(parse(text).as_dict().unwrap()).unwrap();
    let plain = digest(r#"{"model":"m","tools":[{"name":"f"}]}"#);
    assert_eq!(
        digest(r#"{"tools":[{"name":"f"}],"model":"m","temperature":1.0,"input":[]}"#),
        plain
    );
    assert_ne!(digest(r#"{"model":"m","tools":[{"name":"f"}],"reasoning_effort":null}"#), plain);
}

fn seed(path: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/closed-loop/seed1").join(path);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn gunzip(path: &str) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(seed(path).as_slice()).read_to_string(&mut text).unwrap();
    text
}

/// Item fingerprints of both schemas from the items that the harnesses returned.
#[test]
fn item_fingerprints_of_the_receipts() {
    let rollouts = String::from_utf8(seed("staged-v2/rollouts.jsonl")).unwrap();
    let mut items: HashMap<String, Json> = HashMap::new();
    for line in rollouts.lines() {
        let rollout = parse(line);
        let response = rollout.get("result").and_then(|r| r.get("response")).unwrap();
        for item in list(response, "output") {
            if let Some(id) = item.get("id").and_then(Json::as_str) {
                // Synthetic ids repeat from rollout to rollout; only native ones name an item.
                if !id.starts_with("item_") {
                    items.insert(id.to_owned(), item.clone());
                }
            }
        }
    }
    let (mut authored, mut reasoning) = (0, 0);
    let receipts = String::from_utf8(seed("staged-v2/receipts.jsonl")).unwrap();
    for line in receipts.lines() {
        let receipt = Receipt::parse(line).unwrap();
        for item in receipt.calls.iter().flatten().flat_map(|(_, call)| &call.output_items) {
            let Some(known) = item.id.as_ref().and_then(|id| items.get(id)) else { continue };
            let print = assistant_fingerprint(std::slice::from_ref(known)).unwrap();
            assert_eq!(print, item.fingerprint, "{:?}", item.id);
            authored += usize::from(print.is_some());
        }
    }
    for line in gunzip("staged-v3/receipts.jsonl.gz").lines() {
        for row in Receipt::parse(line).unwrap().manifest {
            for item in row.output_items.into_iter().flatten() {
                let Some(known) = item.id.as_ref().and_then(|id| items.get(id)) else { continue };
                if known.get("type").and_then(Json::as_str) == Some("reasoning") {
                    assert_eq!(Some(item_digest(known).unwrap().digest), item.fingerprint);
                    reasoning += 1;
                }
            }
        }
    }
    assert!(authored > 50 && reasoning > 5, "{authored} authored, {reasoning} reasoning");
}

/// A request is the harness's first input and some of the history before its answer, so the
/// replay summaries of clean chains follow from the returned history alone.
#[test]
fn replay_summaries_of_linear_rollouts() {
    let truth: serde_json::Value = serde_json::from_slice(&seed("truth/truth.json")).unwrap();
    let linear: Vec<&str> = truth["linear_rollouts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap())
        .collect();
    let rollouts = gunzip("staged-v3/rollouts.jsonl.gz");
    let mut digests: HashMap<String, Vec<Digest32>> = HashMap::new();
    for line in rollouts.lines() {
        let rollout = parse(line);
        if !linear.contains(&text(&rollout, "rollout_id")) {
            continue;
        }
        let result = rollout.get("result").unwrap();
        let input = list(result.get("responses_create_params").unwrap(), "input");
        let output = list(result.get("response").unwrap(), "output");
        let history: Vec<&Json> = input.iter().chain(output).collect();
        let summaries = (input.len() + 1..=history.len())
            .map(|n| replay_summary(history[..n].iter().copied()).unwrap().source_digest)
            .collect();
        digests.insert(text(&rollout, "capture_key").to_owned(), summaries);
    }
    let mut checked = 0;
    for line in gunzip("staged-v3/receipts.jsonl.gz").lines() {
        let receipt = Receipt::parse(line).unwrap();
        let Some(known) = digests.get(&receipt.scope) else { continue };
        for row in &receipt.manifest {
            let Some(replay) = &row.replay else { continue };
            assert!(
                known.contains(&replay.source_digest),
                "{} {}",
                receipt.scope,
                row.model_call_id
            );
            assert_eq!(replay.normalization_version, 1);
            checked += 1;
        }
    }
    assert!(checked > 15, "{checked}");
}
