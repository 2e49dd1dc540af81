//! Gym's token-free ledger `<id>.lineage.jsonl`, read as a manifest (`spec/gym-wire.md` d.3, d.4).

use std::collections::BTreeMap;

use super::fields::{Fields, RecordError};
use super::json::{Dialect, Json};
use super::python;
use super::receipt::{CallRecord, RolloutManifest, refuse_replay_items};
use crate::archive::CaptureFailure;
use crate::finding::Code;
use crate::id::CallId;

/// Why a ledger cannot be read. There is no recovery of a torn tail, as in the package: a row
/// that was cut may be the one that says what failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct LedgerError {
    /// One-based line.
    pub line: u64,
    /// What is wrong with it.
    pub error: RecordError,
}

/// Reads the whole ledger of `scope` as the manifest that a gate serves. Blank lines are skipped, and so are rows that are neither a failure nor
/// carry a staging key.
///
/// # Errors
///
/// The first line that is not JSON (`malformed_json`), or not a row (`malformed_receipt`).
pub fn read_ledger(scope: &str, bytes: &[u8]) -> Result<RolloutManifest, LedgerError> {
    let mut manifest = RolloutManifest {
        schema_version: 2,
        scope: scope.to_owned(),
        records: Vec::new(),
        failures: Vec::new(),
    };
    for (line, text) in (1..).zip(bytes.split(|&b| b == b'\n')) {
        if !text.trim_ascii().is_empty() {
            read_row(text, &mut manifest).map_err(|error| LedgerError { line, error })?;
        }
    }
    Ok(manifest)
}

fn read_row(line: &[u8], manifest: &mut RolloutManifest) -> Result<(), RecordError> {
    let text = std::str::from_utf8(line)
        .map_err(|error| RecordError::new(Code::MalformedJson, format!("not UTF-8: {error}")))?;
    let value = Json::parse(text, Dialect::Python)
        .map_err(|error| RecordError::json(Code::MalformedReceipt, &error))?;
    let Json::Dict(row) = value else {
        return Err(RecordError::new(Code::MalformedReceipt, "a ledger row is not an object"));
    };
    refuse_replay_items(|key| row.get(key).is_some_and(|v| v.get("items").is_some()))?;
    if let Some(reason) = row.get("failure_reason").filter(|reason| !reason.is_null()) {
        let (call, reason) = (text_of(row.get("model_call_id")), text_of(Some(reason)));
        return fail(&call, &reason, manifest);
    }
    if row.get("staging_key").is_none_or(Json::is_null) {
        return Ok(());
    }
    let empty = |key: &str| !row.get(key).is_some_and(Json::truthy);
    if empty("response_id") {
        let call = text_of(row.get("model_call_id"));
        return fail(&call, "ledger_row_missing_response_id", manifest);
    }
    if empty("chain_hash") || empty("cumulative_hash") {
        let call = text_of(row.get("model_call_id"));
        return fail(&call, "ledger_row_missing_chain_hash", manifest);
    }
    manifest.records.push(record(&row)?);
    Ok(())
}

fn fail(call: &str, reason: &str, manifest: &mut RolloutManifest) -> Result<(), RecordError> {
    for (field, value) in [("model_call_id", call), ("failure_reason", reason)] {
        if value.is_empty() {
            return Err(RecordError::of(Code::MalformedReceipt, field, "is empty or missing"));
        }
    }
    let failure = CaptureFailure { call_id: CallId::new(call), reason: reason.to_owned() };
    manifest.failures.push(failure);
    Ok(())
}

/// A custody row under the names of a manifest row, with the package's coercions: `int()` on
/// lengths, `str()` on names, and false fingerprints as null.
fn record(row: &BTreeMap<String, Json>) -> Result<CallRecord, RecordError> {
    let mut members = BTreeMap::new();
    for key in ["prev_len", "delta_len", "cum_len", "weight_version"] {
        members.insert(key.to_owned(), int_of(row.get(key), key)?);
    }
    let version = row.get("fingerprint_version").filter(|version| version.truthy());
    let version = version.map_or(Ok(Json::Int(0)), |v| int_of(Some(v), "fingerprint_version"))?;
    members.insert("fingerprint_version".to_owned(), version);
    for (from, to) in [
        ("model_call_id", "model_call_id"),
        ("staging_digest", "digest"),
        ("extras_digest", "extras_digest"),
        ("staging_key", "staging_key"),
        ("chain_hash", "chain_hash"),
        ("cumulative_hash", "cumulative_hash"),
        ("response_id", "response_id"),
    ] {
        if let Some(value) = row.get(from) {
            members.insert(to.to_owned(), Json::Str(text_of(Some(value))));
        }
    }
    for key in ["output_fingerprint", "continuation_fingerprint"] {
        let value = row.get(key).filter(|value| value.truthy()).cloned();
        members.insert(key.to_owned(), value.unwrap_or(Json::Null));
    }
    for key in ["parent_call_id", "admitted_at", "mode"] {
        if let Some(value) = row.get(key) {
            members.insert(key.to_owned(), value.clone());
        }
    }
    let record = CallRecord::read(Fields::object(Code::MalformedReceipt, Json::Dict(members))?, 2)?;
    record.check()?;
    Ok(record)
}

/// Python's `str()` of a name; nothing for null and absent.
fn text_of(value: Option<&Json>) -> String {
    match value {
        None | Some(Json::Null) => String::new(),
        Some(Json::Str(text)) => text.clone(),
        Some(other) => super::fingerprint::python_str(other, "name").unwrap_or_default(),
    }
}

/// Python's `int()`: truncates floats, reads decimal text, counts true as 1.
fn int_of(value: Option<&Json>, key: &str) -> Result<Json, RecordError> {
    let found = match value {
        Some(Json::Int(n)) => Some(*n),
        Some(Json::Bool(b)) => Some(i128::from(*b)),
        Some(Json::Float(x)) if x.is_finite() && x.abs() < 1e38 => Some(x.trunc() as i128),
        Some(Json::Str(text)) => python::parse_int(text),
        _ => None,
    };
    found
        .map(Json::Int)
        .ok_or_else(|| RecordError::of(Code::MalformedReceipt, key, "is not an integer"))
}
