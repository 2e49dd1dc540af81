//! Every `attribute` case of `terminal/`.

use forestctl::wire::attribute::{Attribution, Candidate, resolve_terminal};
use forestctl::wire::{CallRecord, TokenEntry};

use super::{exact, gym, list, value};

#[test]
fn attribute() {
    let file = value(&gym("terminal/terminal.json"));
    let exact_file = exact(&gym("terminal/terminal.json"));
    let cases = file["attribute"].as_array().unwrap();
    assert_eq!(cases.len(), 33);
    for (case, exact_case) in cases.iter().zip(list(&exact_file, "attribute")) {
        let name = case["name"].as_str().unwrap();
        // Some entries lost their items after the model's own checks, and keep the index.
        let lines = || {
            case["entries"].as_array().unwrap().iter().map(|entry| {
                let mut entry = entry.clone();
                entry.as_object_mut().unwrap().remove("token_item_index");
                entry.to_string()
            })
        };
        let (mut rows, mut entries) = (Vec::new(), Vec::new());
        match case["kind"].as_str().unwrap() {
            "CallRecord" => rows.extend(lines().map(|line| CallRecord::parse(&line).unwrap())),
            "TokenEntry" => entries.extend(lines().map(|line| TokenEntry::parse(&line).unwrap())),
            kind => panic!("{name}: {kind}"),
        }
        let candidates: Vec<Candidate<'_>> =
            rows.iter().map(Candidate::Row).chain(entries.iter().map(Candidate::Entry)).collect();
        let found = resolve_terminal(
            &candidates,
            exact_case.get("response"),
            case["explicit_call_id"].as_str(),
            case["declared_response_id"].as_str(),
        );
        let expected = &case["result"];
        let Attribution { model_call_id, method, reason } = found;
        assert_eq!(model_call_id.as_deref(), expected["model_call_id"].as_str(), "{name}");
        assert_eq!(method, expected["method"].as_str().unwrap(), "{name}");
        assert_eq!(reason, expected["reason"].as_str().unwrap(), "{name}");
    }
}
