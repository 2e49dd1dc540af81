//! Words of the package for finding the scored call: by shape, and by witness. Archives keep the
//! words of a receipt as they are; the library gives them where it is asked.

use forestctl::wire::attribute::{Candidate, resolve_terminal};
use forestctl::wire::json::{Dialect, Json};
use forestctl::wire::terminal::{TerminalCandidate, select_terminal_call};
use forestctl::wire::{CallRecord, Receipt};
use serde_json::{Value, json};

use super::super::capture::Capture;

/// The walk over `(call, parent)` rows.
type Rows = &'static [(&'static str, Option<&'static str>)];

pub const WALKS: [(&str, Rows); 6] = [
    ("selected", &[("a", None), ("b", Some("a"))]),
    ("no_records", &[]),
    ("duplicate_call_id", &[("a", None), ("a", None)]),
    ("orphaned_row", &[("a", Some("x"))]),
    ("no_root", &[("a", Some("b")), ("b", Some("a"))]),
    ("ambiguous_terminal", &[("a", None), ("b", Some("a")), ("c", Some("a"))]),
];

#[test]
fn walks_end_with_their_word() {
    for (word, rows) in WALKS {
        let rows: Vec<_> = rows
            .iter()
            .map(|&(model_call_id, parent_call_id)| TerminalCandidate {
                model_call_id,
                parent_call_id,
                admitted_at: None,
            })
            .collect();
        let said = select_terminal_call(&rows).map_or_else(
            |why| why.as_str(),
            |call| {
                assert_eq!(call, "b");
                "selected"
            },
        );
        assert_eq!(said, word);
    }
}

/// One question: rows changed from the pair's, the response, the two declarations.
struct Question {
    rows: fn(&mut [CallRecord]),
    response: Value,
    explicit: Option<&'static str>,
    declared: Option<&'static str>,
}

fn questions() -> Vec<(&'static str, Question)> {
    fn same(_: &mut [CallRecord]) {}
    fn twins(rows: &mut [CallRecord]) {
        rows[0].response_id = "resp_b".to_owned();
        rows[0].output_fingerprint = rows[1].output_fingerprint;
    }
    let message = |text: &str| json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] });
    let answer = |id: &str, text: &str| json!({ "id": id, "output": [message(text)] });
    let ask = |rows, response| Question { rows, response, explicit: None, declared: None };
    vec![
        (
            "explicit_terminal_not_captured",
            Question { explicit: Some("x"), ..ask(same, answer("resp_b", "answer b")) },
        ),
        ("declared_ambiguous", Question { declared: Some("resp_b"), ..ask(twins, Value::Null) }),
        (
            "declared_terminal_not_captured",
            Question { declared: Some("x"), ..ask(same, answer("resp_b", "answer b")) },
        ),
        ("response_id_ambiguous", ask(twins, answer("resp_b", "other"))),
        ("response_id_no_match", ask(same, answer("x", "answer b"))),
        ("response_has_no_id", ask(same, json!({ "output": [message("answer b")] }))),
        ("no_response_object", ask(same, Value::Null)),
        ("response_has_no_output", ask(same, json!({ "id": "resp_b", "output": [] }))),
        (
            "response_output_unfingerprintable",
            ask(
                same,
                json!({ "id": "resp_b", "output": [
                { "type": "message", "role": "assistant", "content": [{ "text": 1 }] },
            ] }),
            ),
        ),
        (
            "no_model_authored_output",
            ask(same, json!({ "id": "resp_b", "output": [{ "role": "user", "content": "x" }] })),
        ),
        ("content_ambiguous", ask(twins, answer("x", "answer b"))),
        ("no_content_match", ask(same, answer("resp_b", "other"))),
        ("witness_disagreement[response_id=a;content=b]", ask(same, answer("resp_a", "answer b"))),
        ("corroborated_by=content", ask(same, answer("resp_b", "answer b"))),
    ]
}

/// The attribution trail as words, without what stands in brackets or behind an equals sign.
pub fn trail_words() -> Vec<&'static str> {
    let word = |said: &'static str| said.split(['[', '=']).next().unwrap();
    questions().into_iter().map(|(said, _)| word(said)).collect()
}

#[test]
fn witnesses_leave_their_word_in_the_trail() {
    let mut receipt = Capture::pair(2).receipts.remove(0);
    receipt.as_object_mut().unwrap().remove("calls");
    let pair = Receipt::parse(&receipt.to_string()).unwrap().manifest;
    for (word, Question { rows, response, explicit, declared }) in questions() {
        let mut changed = pair.clone();
        rows(&mut changed);
        let candidates: Vec<_> = changed.iter().map(Candidate::Row).collect();
        let response = Json::parse(&response.to_string(), Dialect::Strict).unwrap();
        let found = resolve_terminal(&candidates, Some(&response), explicit, declared);
        assert!(found.reason.split(',').any(|said| said == word), "{word}: {found:?}");
        // The one word that comes with a full agreement.
        if word.starts_with("corroborated_by") {
            assert_eq!(found.model_call_id.as_deref(), Some("b"));
        }
    }
}
