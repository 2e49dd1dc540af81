//! Ledgers and request resolution of `lineage/`.

use forestctl::finding::Code;
use forestctl::wire::ledger::read_ledger;
use forestctl::wire::lineage::{Lineage, resolve_request};
use forestctl::wire::{RolloutManifest, TokenEntry};

use super::{cases, exact, gym, list, value};

#[test]
fn manifests() {
    let cases = cases("lineage/ledger");
    assert_eq!(cases.len(), 20);
    for name in cases {
        let case = gym(&format!("lineage/ledger/{name}"));
        let expected = value(&case.join("expected.json"));
        let rollout = expected["rollout_id"].as_str().unwrap_or("r");
        let path = case.join(format!("dir/{rollout}.lineage.jsonl"));
        let bytes = std::fs::read(path).unwrap_or_default();
        let found = read_ledger(rollout, &bytes);
        let manifest = &expected["manifest"];
        assert_eq!(found.is_ok(), manifest["ok"].as_bool().unwrap(), "{name}: {found:?}");
        match found {
            Ok(found) => {
                let expected = RolloutManifest::parse(&manifest["value"].to_string()).unwrap();
                assert_eq!(found, expected, "{name}");
            }
            Err(error) => {
                let json = manifest["error_class"] == "JSONDecodeError";
                let code = if json { Code::MalformedJson } else { Code::MalformedReceipt };
                assert_eq!(error.error.code, code, "{name}: {error}");
                let line = match name.as_str() {
                    "malformed_middle" => 1,
                    "invalid_row_values" | "torn_row" => 2,
                    "row_not_object" => 3,
                    _ => panic!("{name}: {error}"),
                };
                assert_eq!(error.line, line, "{name}: {error}");
            }
        }
    }
}

#[test]
fn requests() {
    let file = value(&gym("lineage/resolve.json"));
    let exact_file = exact(&gym("lineage/resolve.json"));
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 23);
    for (case, exact_case) in cases.iter().zip(list(&exact_file, "cases")) {
        let name = case["name"].as_str().unwrap();
        let entries: Vec<TokenEntry> = case["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| TokenEntry::parse(&entry.to_string()).unwrap())
            .collect();
        let found = resolve_request(&entries, list(exact_case, "request_items")).unwrap();
        let (status, reason, call) = match found {
            Lineage::Root => ("root", "", None),
            Lineage::Resolved(at) => ("resolved", "", Some(entries[at].model_call_id.as_str())),
            Lineage::NoMatch => ("unresolved", "no_match", None),
            Lineage::Ambiguous => ("unresolved", "ambiguous", None),
        };
        let expected = &case["result"]["value"];
        assert_eq!(status, expected["status"], "{name}");
        assert_eq!(reason, expected["reason"], "{name}");
        assert_eq!(call, expected["match"]["model_call_id"].as_str(), "{name}");
    }
}
