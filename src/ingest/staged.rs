//! Staged records and the receipt of one capture scope.

use std::collections::BTreeMap;

use super::lineage;
use super::quarantine::Rejected;
use super::scope::Scope;
use crate::archive::{Call, Commitment, Completeness, Origin, RawColumns, SourceKind};
use crate::finding::Code;
use crate::id::{CallId, CaptureKey};
use crate::wire::fingerprint::check_row_versions;
use crate::wire::{Receipt, RolloutManifest, StagedRecord};

/// A staged line as a call.
#[derive(Clone, Debug)]
pub(super) struct Record {
    call: Call,
}

impl Record {
    pub fn parse(line: &str, origin: Origin) -> Result<Self, Rejected> {
        Ok(Self { call: call(StagedRecord::parse(line)?, origin)? })
    }

    /// Scope and call.
    pub fn names(&self) -> (&str, &str) {
        (self.call.capture_key.as_str(), self.call.call_id.as_str())
    }
}

/// A receipt with its line.
#[derive(Clone, Debug)]
pub(super) struct ReceiptLine {
    pub receipt: Receipt,
    pub text: String,
}

impl ReceiptLine {
    pub fn parse(line: &str, _origin: Origin) -> Result<Self, Rejected> {
        let receipt = Receipt::parse(line)?;
        check_row_versions("manifest", &receipt.manifest)?;
        Ok(Self { receipt, text: line.trim().to_owned() })
    }
}

fn call(record: StagedRecord, origin: Origin) -> Result<Call, Rejected> {
    let token_ids = narrow(&record.token_ids_delta)?;
    let mask = record.token_mask_delta;
    let logprobs = record.generation_log_probs_delta;
    let carry = mask.iter().take_while(|&&m| m == 0.0).count();
    let bits = |x: f64, y: f64| x.to_bits() == y.to_bits();
    let plain = mask.len() == token_ids.len()
        && logprobs.len() == token_ids.len()
        && mask.iter().enumerate().all(|(i, &m)| bits(m, if i < carry { 0.0 } else { 1.0 }))
        && logprobs[..carry].iter().all(|&p| bits(p, 0.0));
    let generation = logprobs.get(carry..).unwrap_or_default().iter().map(|&p| p as f32).collect();
    Ok(Call {
        call_id: record.model_call_id.into(),
        capture_key: record.scope.into(),
        source_capture_key: record.source_capture_key.map(CaptureKey::from),
        parent_call_id: record.parent_call_id.map(CallId::from),
        mode: record.mode,
        prev_len: record.prev_len,
        delta_len: record.delta_len,
        cum_len: record.cum_len,
        weight_version: Some(record.weight_version),
        // A line is far shorter than 2^32 bytes, and so is its mask.
        carry_len: carry as u32,
        token_ids,
        generation_logprobs: generation,
        raw_columns: (!plain).then_some(RawColumns { token_mask: mask, logprobs }),
        commitment: Some(Commitment {
            schema_version: record.schema_version,
            digest_version: record.digest_version,
            extras_digest_version: record.extras_digest_version,
            digest: record.digest,
            extras_digest: record.extras_digest,
            chain_hash: record.chain_hash,
            cumulative_hash: record.cumulative_hash,
        }),
        entry_digest: None,
        media: None,
        tensors: Vec::new(),
        extras: record.extras,
        origin,
    })
}

/// Wire token ids are 64 bits wide, those of an archive 32.
pub(super) fn narrow(ids: &[u64]) -> Result<Vec<u32>, Rejected> {
    ids.iter()
        .map(|&id| {
            u32::try_from(id).map_err(|_| {
                let message = format!("token id {id} does not fit 32 bits");
                Rejected::new(Code::TokenIdOutOfRange, message)
            })
        })
        .collect()
}

/// A staged scope: the calls of its manifest in manifest order, then the rest by call id. Lines of
/// one call stay together, in an order that only their content decides.
pub(super) fn scope(
    records: Vec<Record>,
    receipt: Option<ReceiptLine>,
    lineage: Option<RolloutManifest>,
) -> Scope {
    let mut scope = Scope::new(SourceKind::Staged);
    if let Some(ReceiptLine { receipt, text, .. }) = receipt {
        scope.reward = receipt.reward;
        scope.ledger = receipt.ledger(&text);
        scope.completeness = Completeness::Complete;
    } else if let Some(manifest) = lineage {
        scope.ledger = lineage::ledger(&manifest);
        scope.completeness = Completeness::Complete;
        scope.lineage = Some(manifest);
    }
    let mut by_id: BTreeMap<CallId, Vec<Call>> = BTreeMap::new();
    for Record { call } in records {
        by_id.entry(call.call_id.clone()).or_default().push(call);
    }
    for calls in by_id.values_mut().filter(|calls| calls.len() > 1) {
        calls.sort_by_cached_key(|call| (call.content_digest(), call.origin.clone()));
    }
    for row in &scope.ledger.committed {
        scope.calls.extend(by_id.remove(&row.call_id).unwrap_or_default());
    }
    scope.calls.extend(by_id.into_values().flatten());
    scope
}
