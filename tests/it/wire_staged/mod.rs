//! Staged captures against the published package's own answers (`testdata/gym-0.7`) and the
//! closed-loop reference data.

#![allow(clippy::unwrap_used)]

mod admissions;
mod captures;
mod digests;
mod form;
mod graph;
mod models;
mod routes;
mod terminal;
mod verify;

use std::io::Read;
use std::path::{Path, PathBuf};

use forestctl::wire::{CallRecord, LinearizedRow, Receipt, RecordError, StagedRecord};
use serde_json::{Map, Value, json};

/// What each case of `index.json` that this folder covers is covered by; everything else that
/// the index lists under these groups makes the test fail.
#[test]
fn every_case_of_the_index_is_covered() {
    let index = fixture("index.json");
    for case in list(&index, "cases") {
        let (id, path) = (text(case, "id"), text(case, "path"));
        let covered = match text(case, "group") {
            "digests" => path
                .strip_prefix("digests/digests.json#")
                .map_or(path == "digests/package_golden_vectors.json", |key| {
                    digests::COVERED.contains(&key)
                }),
            "routes" => path
                .strip_prefix("routes/routes.json#")
                .is_some_and(|key| routes::COVERED.contains(&key)),
            "models" => {
                let model = path.strip_prefix("models/models.json#").unwrap_or_default();
                models::COVERED.contains(&model)
                    || admissions::COVERED.contains(&model)
                    || model == "TokenEntry" // the Gym store's own tests
            }
            "staging" => captures::STAGING.contains(&id.trim_start_matches("staging/")),
            "receipts" => verify::case_names().contains(&id.trim_start_matches("receipts/").into()),
            "terminal" => match path.split('#').nth(1) {
                Some(key) if key.starts_with("select") => terminal::case_names()
                    .contains(&id.trim_start_matches("terminal/select_").into()),
                // `resolve_terminal` is tested with attribution.
                _ => path.contains("#attribute["),
            },
            "archive" => id == "archive/64_rollouts",
            _ => true,
        };
        assert!(covered, "{id} ({path}) is in the index, but no test reads it");
    }
    for (group, count) in
        [("digests", 8), ("routes", 4), ("models", 11), ("staging", 26), ("receipts", 84)]
    {
        assert_eq!(index["counts"][group], count, "{group}");
    }
}

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(path)
}

/// Text of a file under `testdata`, decompressed by its suffix.
fn read(path: &str) -> String {
    let file = std::fs::File::open(testdata(path)).expect(path);
    let mut text = String::new();
    let read = match path.rsplit_once('.') {
        Some((_, "gz")) => flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text),
        Some((_, "zst")) => zstd::Decoder::new(file).expect(path).read_to_string(&mut text),
        _ => std::io::BufReader::new(file).read_to_string(&mut text),
    };
    read.expect(path);
    text
}

fn fixture(path: &str) -> Value {
    serde_json::from_str(&read(&format!("gym-0.7/{path}"))).expect(path)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is no list"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is no string: {value}"))
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("an object")
}

/// A record that states versions which [`StagedRecord::parse`] refuses, as the package's tests
/// build them without validation.
fn unvalidated_record(value: &Value) -> Result<StagedRecord, RecordError> {
    let (mut value, versions) = with_readable_versions(value);
    value["schema_version"] = json!(2);
    let record = StagedRecord::parse(&value.to_string())?;
    let [schema_version, digest_version, extras_digest_version] = versions;
    Ok(StagedRecord { schema_version, digest_version, extras_digest_version, ..record })
}

/// The same for receipts.
fn unvalidated_receipt(value: &Value) -> Result<Receipt, RecordError> {
    let (value, versions) = with_readable_versions(value);
    let receipt = Receipt::parse(&value.to_string())?;
    let [schema_version, digest_version, extras_digest_version] = versions;
    Ok(Receipt { schema_version, digest_version, extras_digest_version, ..receipt })
}

fn with_readable_versions(value: &Value) -> (Value, [u64; 3]) {
    let mut readable = value.clone();
    let versions = [("schema_version", 2), ("digest_version", 2), ("extras_digest_version", 1)];
    let stated = versions.map(|(key, read)| {
        let stated = value.get(key).map_or(read, |v| v.as_u64().expect("a version"));
        readable[key] = json!(read);
        stated
    });
    (readable, stated)
}

/// The row in the package's own form.
fn row_json(row: &LinearizedRow) -> Value {
    let calls = || row.model_call_ids.iter();
    json!({
        "rollout_id": row.scope,
        "token_ids": row.token_ids,
        "token_mask": row.token_mask,
        "logprobs": row.logprobs,
        "model_call_ids": row.model_call_ids,
        "prompt_len": row.prompt_len,
        "weight_versions": row.weight_versions,
        "weight_version_spans": calls().zip(&row.spans).zip(&row.weight_versions)
            .map(|((call, (start, end)), version)| json!({
                "model_call_id": call, "start": start, "end": end, "weight_version": version,
            })).collect::<Vec<_>>(),
        "link_spans": calls().zip(&row.links)
            .map(|(call, (carry, generation))| json!([call, carry, generation]))
            .collect::<Vec<_>>(),
        "extras_commitments": calls().zip(&row.extras_digests)
            .map(|(call, digest)| json!({
                "model_call_id": call, "extras_digest_version": 1, "extras_digest": digest,
            })).collect::<Vec<_>>(),
    })
}

/// Equal as text, so that `-0.0` differs from `0.0`.
fn assert_same_json(found: &Value, expected: &Value, what: &str) {
    let sorted = |value: &Value| -> String {
        // serde_json's map is sorted by key.
        value.to_string()
    };
    assert_eq!(sorted(found), sorted(expected), "{what}");
}

fn call_record(value: &Value) -> Result<CallRecord, RecordError> {
    CallRecord::parse(&value.to_string())
}
