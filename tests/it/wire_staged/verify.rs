//! `receipts/receipts.json`: one corruption per case, and what the package says of it.

use forestctl::wire::{Receipt, linearize, verify_and_linearize};
use serde_json::Value;

use super::{
    assert_same_json, call_record, fixture, list, object, row_json, text, unvalidated_receipt,
    unvalidated_record,
};

pub fn case_names() -> Vec<String> {
    let receipts = fixture("receipts/receipts.json");
    list(&receipts, "cases").iter().map(|case| text(case, "case").to_owned()).collect()
}

/// Cases whose answer comes from reading the line, before a verifier can be asked.
///
/// * Schema 3 is known here under the name `capture_key`; under `rollout_id` it is refused with
///   the package's code, in forestctl's words.
/// * No 64-bit token id is negative; the record is refused with the package's code and words.
const REFUSED_BY_PARSE: [(&str, &str); 3] = [
    ("unsupported_schema", "found schema 3 under the name rollout_id"),
    ("precedence_poison_before_versions", "found schema 3 under the name rollout_id"),
    ("invalid_snapshot_negative_token", "token_id must be an unsigned 64-bit integer, got -1"),
];

fn resolve(value: &Value, base: &Value) -> Value {
    match value.as_str().and_then(|name| name.strip_prefix("@base:")) {
        Some(name) => base[name].clone(),
        None => value.clone(),
    }
}

#[test]
fn one_corruption_each() {
    let fixture = fixture("receipts/receipts.json");
    let cases = list(&fixture, "cases");
    assert_eq!(cases.len(), 84);
    for case in cases {
        let name = text(case, "case");
        let expected = &case["expected"];
        let mut receipt = case["receipt"].clone();
        let rows = list(&receipt, "manifest").iter();
        receipt["manifest"] = rows.map(|row| resolve(row, &fixture["base"]["manifest"])).collect();
        let snapshots = list(case, "snapshots").iter();
        let snapshots: Vec<_> =
            snapshots.map(|s| resolve(s, &fixture["base"]["snapshots"])).collect();

        if let Some((_, words)) = REFUSED_BY_PARSE.iter().find(|(case, _)| *case == name) {
            let error = snapshots
                .iter()
                .find_map(|s| unvalidated_record(s).err())
                .or_else(|| Receipt::parse(&receipt.to_string()).err())
                .expect(name);
            assert_eq!(error.code.as_str(), text(expected, "code"), "{name}");
            assert!(error.message.contains(words), "{name}: {error}");
            continue;
        }

        let readable = Receipt::parse(&receipt.to_string());
        if name.starts_with("unsupported_") {
            assert_eq!(readable.unwrap_err().code.as_str(), text(expected, "code"), "{name}");
        } else {
            readable.expect(name);
        }
        let receipt = unvalidated_receipt(&receipt).expect(name);
        let snapshots: Vec<_> =
            snapshots.iter().map(|s| unvalidated_record(s).expect(name)).collect();

        // What the models themselves say of the parts.
        let models = object(&case["construction"]["model_errors"]);
        let rule = |key: &str| {
            Some(models.get(key)?[0]["msg"].as_str()?.trim_start_matches("Value error, "))
        };
        let found = receipt.check().err().map(|e| e.message);
        assert_eq!(found.as_deref(), rule("receipt"), "{name}");
        for (i, snapshot) in snapshots.iter().enumerate() {
            let found = snapshot.check_base().err().map(|e| e.message);
            let expected = rule(&format!("snapshot[{i}]"));
            // Schema 3 is a version of its own here; its digest is another.
            if expected == Some("Input should be 2") && snapshot.schema_version == 3 {
                assert_eq!(found.as_deref(), Some("digest does not match staged call contents"));
            } else {
                assert_eq!(found.as_deref(), expected, "{name} snapshot {i}");
            }
        }

        match verify_and_linearize(&receipt, &snapshots) {
            Ok(row) => assert_same_json(&row_json(&row), &expected["row"], name),
            Err(error) => {
                assert_eq!(expected["ok"], false, "{name}: {error}");
                assert_eq!(error.class.as_str(), text(expected, "error_class"), "{name}");
                assert_eq!(error.code.as_str(), text(expected, "code"), "{name}");
                assert_eq!(error.to_string(), text(expected, "message"), "{name}");
            }
        }
    }
}

#[test]
fn linearize_names_its_own_terminal() {
    let fixture = fixture("receipts/receipts.json");
    let base = &fixture["base"];
    let rows: Vec<_> =
        ["A", "B", "C", "X"].iter().map(|c| call_record(&base["manifest"][c]).unwrap()).collect();
    let snapshots: Vec<_> = ["A", "B", "C", "X"]
        .iter()
        .map(|c| unvalidated_record(&base["snapshots"][c]).unwrap())
        .collect();
    let row = linearize("rcpt", &snapshots, &rows, Some("C")).unwrap();
    let valid = list(&fixture, "cases").iter().find(|c| c["case"] == "valid").unwrap();
    assert_same_json(&row_json(&row), &valid["expected"]["row"], "linearize");
    let error = linearize("rcpt", &snapshots, &rows, None).unwrap_err();
    assert_eq!(error.code.as_str(), "missing_terminal");
    assert_eq!(error.class.as_str(), "ReceiptVerificationError");
}
