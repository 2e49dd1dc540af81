//! Reading lines: what is refused, by which word, and that nothing panics.

use forestctl::wire::{Receipt, StagedRecord};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::read;

fn line() -> Value {
    let staged = read("closed-loop/seed1/staged-v2/staged.jsonl");
    serde_json::from_str(staged.lines().next().unwrap()).unwrap()
}

fn line_v3() -> Value {
    let staged = read("closed-loop/seed1/staged-v3/staged.jsonl.gz");
    serde_json::from_str(staged.lines().next().unwrap()).unwrap()
}

fn refused(text: &str) -> (&'static str, String) {
    let error = StagedRecord::parse(text).unwrap_err();
    (error.code.as_str(), error.to_string())
}

#[track_caller]
fn assert_refused(change: impl Fn(&mut Value), code: &str, words: &str) {
    let mut value = line();
    change(&mut value);
    let (found, message) = refused(&value.to_string());
    assert_eq!(found, code, "{message}");
    assert!(message.contains(words), "{message}");
}

#[test]
fn faults_of_form_have_their_word_and_field() {
    assert_refused(
        |v| v["prev_len"] = json!("5"),
        "malformed_record",
        "prev_len: expected an integer",
    );
    assert_refused(|v| v["prev_len"] = json!(1.0), "malformed_record", "found 1.0");
    assert_refused(|v| v["prev_len"] = json!(true), "malformed_record", "found true");
    assert_refused(|v| v["delta_len"] = Value::Null, "malformed_record", "delta_len");
    assert_refused(|v| v["mode"] = json!("image"), "malformed_record", "mode: expected \"text\"");
    assert_refused(|v| v["model_call_id"] = json!(""), "malformed_record", "model_call_id");
    assert_refused(|v| v["replay"] = json!({}), "malformed_record", "replay: is not a key");
    assert_refused(
        |v| v["source_capture_key"] = json!("x"),
        "malformed_record",
        "source_capture_key",
    );
    assert_refused(|v| v["extras"] = json!([1]), "malformed_record", "extras: expected an object");
    assert_refused(|v| v["token_ids_delta"] = json!(7), "malformed_record", "token_ids_delta");
    assert_refused(|v| v["token_ids_delta"][1] = json!(1.0), "malformed_record", "item 1");
    assert_refused(|v| v["token_ids_delta"][1] = json!(true), "malformed_record", "item 1");
    assert_refused(|v| v["token_ids_delta"][1] = json!(-3), "invalid_snapshot", "got -3");
    assert_refused(
        |v| v["token_mask_delta"][0] = json!("0"),
        "malformed_record",
        "token_mask_delta",
    );
    assert_refused(
        |v| v["generation_log_probs_delta"][2] = Value::Null,
        "malformed_record",
        "generation_log_probs_delta: item 2: expected a finite number, found null",
    );
    assert_refused(
        |v| {
            v.as_object_mut().unwrap().remove("chain_hash");
        },
        "malformed_record",
        "chain_hash: is missing",
    );
    assert_refused(|v| v["digest"] = json!("A".repeat(64)), "malformed_record", "digest");
}

#[test]
fn versions_come_before_every_other_fault() {
    assert_refused(|v| v["schema_version"] = json!(1), "unsupported_schema", "found schema 1");
    assert_refused(
        |v| v["schema_version"] = json!(3),
        "unsupported_schema",
        "under the name rollout_id",
    );
    assert_refused(
        |v| {
            v["schema_version"] = json!(4);
            v["surprise"] = json!(1);
            v["token_ids_delta"] = json!("packed");
        },
        "unsupported_schema",
        "found schema 4; schema 2 with rollout_id and schema 3 with capture_key are read",
    );
    assert_refused(|v| v["digest_version"] = json!(3), "unsupported_digest", "version 2 is read");
    assert_refused(
        |v| v["extras_digest_version"] = json!(2),
        "unsupported_extras_digest",
        "found version 2",
    );
    assert_refused(|v| v["schema_version"] = json!("2"), "malformed_record", "schema_version");
    let mut value = line();
    value["schema_version"] = json!(2.0);
    assert_eq!(StagedRecord::parse(&value.to_string()).unwrap().schema_version, 2);
    value.as_object_mut().unwrap().remove("schema_version");
    assert_eq!(StagedRecord::parse(&value.to_string()).unwrap().schema_version, 2);
    let mut value = line_v3();
    value["source_capture_key"] = json!("0-0-a1");
    let record = StagedRecord::parse(&value.to_string()).unwrap();
    assert_eq!(record.source_capture_key.as_deref(), Some("0-0-a1"));
}

#[test]
fn numbers_keep_their_exact_value() {
    let text = line().to_string();
    let big = |from: &str, to: &str| refused(&text.replacen(from, to, 1));
    let key = "\"token_ids_delta\":[";
    assert_eq!(big(key, "\"token_ids_delta\":[18446744073709551616,").0, "invalid_snapshot");
    let huge = format!("\"token_ids_delta\":[{},", "9".repeat(5000));
    assert_eq!(big(key, &huge).0, "invalid_snapshot");
    let (code, message) = big("\"prev_len\":0", "\"prev_len\":18446744073709551616");
    assert_eq!(code, "malformed_record");
    assert!(message.contains("18446744073709551616"), "{message}");
    let key = "\"generation_log_probs_delta\":[";
    for (bad, code) in [("1e999", "malformed_record"), ("NaN", "malformed_json")] {
        assert_eq!(big(key, &format!("{key}{bad},")).0, code, "{bad}");
    }
    let ok = text.replacen(key, "\"generation_log_probs_delta\":[-0.0,1,-0,4.9e-324,", 1);
    let record = StagedRecord::parse(&ok).unwrap();
    let bits: Vec<_> = record.generation_log_probs_delta[..4].iter().map(|x| x.to_bits()).collect();
    assert_eq!(bits, [(-0.0f64).to_bits(), 1f64.to_bits(), 0, 1]);
    let ok =
        text.replacen("\"token_ids_delta\":[", "\"token_ids_delta\":[18446744073709551615, 0 ,", 1);
    assert_eq!(StagedRecord::parse(&ok).unwrap().token_ids_delta[..2], [u64::MAX, 0]);
}

#[test]
fn bombs_and_broken_lines_are_errors() {
    for (text, code) in [
        ("", "malformed_json"),
        ("{", "malformed_json"),
        ("nul", "malformed_json"),
        ("{}x", "malformed_json"),
        ("{\"a\":1,}", "malformed_json"),
        ("{\"token_ids_delta\":[1,2", "malformed_json"),
        ("{\"token_ids_delta\":[01]}", "malformed_json"),
        ("[]", "malformed_record"),
        ("{}", "malformed_record"),
    ] {
        assert_eq!(refused(text).0, code, "{text:?}");
        let receipt = Receipt::parse(text).unwrap_err().code.as_str();
        assert_eq!(receipt.replace("receipt", "record"), code, "{text:?}");
    }
    let deep = "[".repeat(1_000_000);
    for key in ["extras", "token_ids_delta", "prev_len", "surprise"] {
        assert_eq!(refused(&format!("{{\"{key}\":{deep}")).0, "malformed_record", "{key}");
    }
    let error = Receipt::parse(&format!("{{\"manifest\":{deep}")).unwrap_err();
    assert_eq!(error.code.as_str(), "malformed_receipt");
}

#[test]
fn extras_stay_verbatim_and_the_last_key_wins() {
    let mut text = line().to_string();
    text.insert_str(text.len() - 1, ",\"extras\": {\"a\" : 1.50, \"a\":2e0}  ,\"prev_len\":3");
    let record = StagedRecord::parse(&text).unwrap();
    assert_eq!(record.extras.as_deref(), Some("{\"a\" : 1.50, \"a\":2e0}"));
    assert_eq!(record.prev_len, 3);
    assert_eq!(record.check().unwrap_err().code.as_str(), "invalid_snapshot");
}

#[test]
fn receipts_name_the_row_at_fault() {
    let receipts = read("closed-loop/seed1/staged-v2/receipts.jsonl");
    let receipt: Value = serde_json::from_str(receipts.lines().nth(1).unwrap()).unwrap();
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut receipt = receipt.clone();
        change(&mut receipt);
        let error = Receipt::parse(&receipt.to_string()).unwrap_err();
        (error.code.as_str(), error.field.unwrap_or_default())
    };
    let fault = |field: &str| ("malformed_receipt", field.to_owned());
    assert_eq!(
        refused(&|r| r["manifest"][1]["prev_len"] = json!(-1)),
        fault("manifest[1].prev_len")
    );
    assert_eq!(refused(&|r| r["manifest"][0]["replay"] = json!(null)), fault("manifest[0].replay"));
    assert_eq!(refused(&|r| r["manifest"] = Value::Null), fault("manifest"));
    assert_eq!(refused(&|r| r["pending_call_ids"] = json!([""])), fault("pending_call_ids[0]"));
    assert_eq!(refused(&|r| r["surprise"] = json!(1)), fault("surprise"));
    assert_eq!(
        refused(&|r| r["failures"] = json!([{"model_call_id": "x"}])),
        fault("failures[0].reason")
    );
    assert_eq!(refused(&|r| r["calls"] = json!({"c": {"status": 1}})), fault("calls.c.status"));
    assert_eq!(refused(&|r| r["schema_version"] = json!(3)).0, "unsupported_schema");
    // A row keeps the version that it states, for the verifier to compare.
    let mut other = receipt.clone();
    other["manifest"][0]["digest_version"] = json!(7);
    assert_eq!(Receipt::parse(&other.to_string()).unwrap().manifest[0].digest_version, 7);
}

proptest! {
    /// A changed byte gives a record or an error.
    #[test]
    fn no_line_panics(cut in 0usize..3000, byte in any::<u8>(), kind in 0..3) {
        let mut bytes = line_v3().to_string().into_bytes();
        let at = cut % bytes.len();
        match kind {
            0 => bytes[at] = byte,
            1 => bytes.truncate(at),
            _ => bytes.insert(at, byte),
        }
        let text = String::from_utf8_lossy(&bytes);
        let _ = StagedRecord::parse(&text).map(|record| record.check());
        let _ = Receipt::parse(&text).map(|receipt| receipt.check());
    }

    /// Columns read as serde_json reads them.
    #[test]
    fn columns_are_exact(
        ids in prop::collection::vec(any::<u64>(), 0..40),
        floats in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO, 0..40),
        pretty in any::<bool>(),
    ) {
        let mut value = line();
        value["token_ids_delta"] = json!(ids);
        value["generation_log_probs_delta"] = json!(floats);
        let text = if pretty {
            serde_json::to_string_pretty(&value).unwrap()
        } else {
            value.to_string()
        };
        let record = StagedRecord::parse(&text).unwrap();
        prop_assert_eq!(record.token_ids_delta, ids);
        let bits = |xs: &[f64]| xs.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&record.generation_log_probs_delta), bits(&floats));
    }
}
