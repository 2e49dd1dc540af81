//! Every vector of `fingerprints/`.

use forestctl::id::Digest32;
use forestctl::wire::canonical::ExponentSign;
use forestctl::wire::fingerprint::{
    FingerprintError, assistant_fingerprint, assistant_fingerprint_with, canonical_tool_arguments,
    conversation_digest, output_items,
};
use forestctl::wire::json::{Dialect, Json};

use super::{exact, gym, list, text};

/// Compares with `{"ok", "value" | "message"}` of a vector.
fn agrees(name: &str, found: Result<String, FingerprintError>, expected: &Json) {
    match (expected.get("ok"), found) {
        (Some(Json::Bool(true)), Ok(found)) => assert_eq!(found, text(expected, "value"), "{name}"),
        (Some(Json::Bool(false)), Err(error)) => {
            assert_eq!(error.to_string(), text(expected, "message"), "{name}");
        }
        (_, found) => panic!("{name}: {found:?} against {expected:?}"),
    }
}

#[test]
fn item_lists() {
    let file = exact(&gym("fingerprints/fingerprints.json"));
    let vectors = list(&file, "vectors");
    assert_eq!(vectors.len(), 54);
    let hex = |digest: Option<Digest32>| digest.map_or(String::new(), |d| d.to_string());
    for vector in vectors {
        let name = text(vector, "name");
        let items = vector.get("items").and_then(Json::as_list).unwrap_or_default();
        let expected = vector.get("assistant_fingerprint").unwrap();
        agrees(name, assistant_fingerprint(items).map(hex), expected);
        let expected = vector.get("conversation_digest").unwrap();
        agrees(name, conversation_digest(items).map(|d| d.to_string()), expected);
    }
}

#[test]
fn tool_arguments() {
    let file = exact(&gym("fingerprints/tool_arguments.json"));
    let vectors = list(&file, "vectors");
    assert_eq!(vectors.len(), 49);
    for vector in vectors {
        let value = vector.get("value");
        let found = canonical_tool_arguments(value, ExponentSign::Plus);
        agrees(&format!("{value:?}"), found, vector.get("result").unwrap());
    }
}

#[test]
fn the_older_exponent_spelling_is_a_choice() {
    let items = [Json::parse(
        r#"{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\": 1e16}"}"#,
        Dialect::Strict,
    )
    .unwrap()];
    let plus = assistant_fingerprint(&items).unwrap();
    let bare = assistant_fingerprint_with(&items, ExponentSign::Bare).unwrap();
    assert_ne!(plus, bare);
    let arguments = Json::Str("{\"x\": 1e16}".to_owned());
    assert_eq!(
        canonical_tool_arguments(Some(&arguments), ExponentSign::Bare).unwrap(),
        "{\"x\":1e16}"
    );
}

#[test]
fn nesting_is_an_error_when_json_and_text_when_not() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let canonical = |t: String| canonical_tool_arguments(Some(&Json::Str(t)), ExponentSign::Plus);
    assert_eq!(canonical(nested(254)), Ok(nested(254)));
    assert!(canonical(nested(255)).is_err());
    assert_eq!(canonical(nested(255) + "]"), Ok(nested(255) + "]"));
}

#[test]
fn served_payloads_of_three_dialects_agree() {
    let parse = |t: &str| Json::parse(t, Dialect::Strict).unwrap();
    let responses = parse(
        r#"{"id":"r","object":"response","output":[{"type":"message","role":"assistant",
        "content":[{"type":"output_text","text":"hi"}],"prompt_token_ids":[1],
        "generation_token_ids":[2],"generation_log_probs":[-1.0]},
        {"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]}"#,
    );
    let chat = parse(
        r#"{"choices":[{"message":{"content":"hi","tool_calls":[{"id":"c",
        "function":{"name":"f","arguments":"{}"}}],"routed_experts":"x"}}]}"#,
    );
    let anthropic = parse(
        r#"{"type":"message","role":"assistant","content":[{"type":"thinking","thinking":"t"},
        {"type":"text","text":"hi"},{"type":"tool_use","id":"c","name":"f","input":{}}]}"#,
    );
    let print = |payload: &Json| assistant_fingerprint(&output_items(payload)).unwrap();
    assert!(print(&responses).is_some());
    assert_eq!(print(&responses), print(&chat));
    assert_eq!(print(&responses), print(&anthropic));
    assert!(output_items(&responses)[0].get("prompt_token_ids").is_none());
    assert!(output_items(&chat)[0].get("routed_experts").is_none());
    assert_eq!(output_items(&anthropic).len(), 2);
}
