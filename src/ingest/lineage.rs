//! Gym's token-free ledgers, `<id>.lineage.jsonl`: the account of a staged scope where no
//! framework wrote a receipt.

use serde_json::{Value, json};

use super::detect::{Found, stem};
use super::lines::{MAX_LINE, whole};
use super::quarantine::{Quarantine, Rejected};
use crate::archive::{CaptureFailure, CommittedCall, Completion, Ledger};
use crate::error::Result;
use crate::id::{CallId, CaptureKey};
use crate::wire::fingerprint::check_row_versions;
use crate::wire::{CallRecord, RolloutManifest, read_ledger};

/// Reads the ledger of one scope. It has no recovery: of a ledger with a broken line nothing is
/// believed, since that line may be the one that says what failed.
pub(super) fn read(file: &Found, quarantine: &mut Quarantine) -> Result<Option<RolloutManifest>> {
    let name = stem(&file.path);
    let scope = name.strip_suffix(".lineage.jsonl").unwrap_or(&name);
    let manifest = match whole(&file.path, MAX_LINE)? {
        Err(why) => Err(why.into()),
        Ok(bytes) => read_ledger(scope, &bytes)
            .map_err(|e| Rejected::new(e.error.code, format!("the ledger cannot be read: {e}")))
            .and_then(
                |ledger| Ok(check_row_versions("records", &ledger.records).map(|()| ledger)?),
            ),
    };
    Ok(match manifest {
        Ok(manifest) => Some(manifest),
        Err(why) => {
            quarantine.file(&file.name, why);
            None
        }
    })
}

/// The ledger before anything names the scored call.
pub(super) fn ledger(manifest: &RolloutManifest) -> Ledger {
    let committed: Vec<_> = manifest
        .records
        .iter()
        .map(|row| CommittedCall {
            call_id: row.model_call_id.as_str().into(),
            response_id: Some(row.response_id.clone()),
            completion: Completion::Unrecorded,
            output_items: None,
            output_fingerprint: row.output_fingerprint,
            fingerprint_version: row.fingerprint_version,
        })
        .collect();
    Ledger {
        receipt: Some(receipt(manifest, None)),
        attempted: committed.iter().map(|row| row.call_id.clone()).collect(),
        committed,
        failures: manifest.failures.clone(),
        ..Ledger::default()
    }
}

/// Names the scored call by the response that the harness returned: the one committed call whose
/// response has the id `terminal_response_id`, or else that of `response`.
pub(super) fn attribute(ledger: &mut Ledger, manifest: &RolloutManifest, result: &str) {
    let Ok(result) = serde_json::from_str::<Value>(result) else { return };
    let id = [&result["terminal_response_id"], &result["response"]["id"]]
        .into_iter()
        .find_map(Value::as_str);
    let mut matching = manifest.records.iter().filter(|row| Some(&*row.response_id) == id);
    if let (Some(row), None) = (matching.next(), matching.next()) {
        ledger.terminal_call_id = Some(CallId::from(row.model_call_id.as_str()));
        ledger.receipt = Some(receipt(manifest, Some(&row.model_call_id)));
    }
}

/// The scope of a ledger.
pub(super) fn key(manifest: &RolloutManifest) -> CaptureKey {
    CaptureKey::from(manifest.scope.as_str())
}

/// The receipt that a framework would have written from this manifest.
fn receipt(manifest: &RolloutManifest, terminal: Option<&str>) -> String {
    let rows: Vec<_> = manifest.records.iter().map(row).collect();
    let failure = |f: &CaptureFailure| json!({ "model_call_id": f.call_id, "reason": f.reason });
    let failures: Vec<_> = manifest.failures.iter().map(failure).collect();
    json!({
        "schema_version": manifest.schema_version,
        "digest_version": 2,
        "extras_digest_version": 1,
        "rollout_id": manifest.scope,
        "reward": null,
        "terminal_model_call_id": terminal,
        "manifest": rows,
        "capture_poisoned": false,
        "failure_reason": null,
        "terminal_selection": terminal.map(|_| "response_id"),
        "terminal_attribution_reason": null,
        "failures": failures,
    })
    .to_string()
}

fn row(row: &CallRecord) -> Value {
    json!({
        "schema_version": row.schema_version,
        "digest_version": row.digest_version,
        "extras_digest_version": row.extras_digest_version,
        "model_call_id": row.model_call_id,
        "parent_call_id": row.parent_call_id,
        "prev_len": row.prev_len,
        "delta_len": row.delta_len,
        "cum_len": row.cum_len,
        "weight_version": row.weight_version,
        "digest": row.digest,
        "extras_digest": row.extras_digest,
        "staging_key": row.staging_key,
        "mode": row.mode.as_str(),
        "chain_hash": row.chain_hash,
        "cumulative_hash": row.cumulative_hash,
        "response_id": row.response_id,
        "admitted_at": row.admitted_at,
        "output_fingerprint": row.output_fingerprint,
        "continuation_fingerprint": row.continuation_fingerprint,
        "fingerprint_version": row.fingerprint_version,
    })
}
