//! Staged records and the receipt of one capture scope.

use std::collections::BTreeMap;

use super::index::CallHash;
use super::lineage;
use super::quarantine::Rejected;
use super::scope::Scope;
use crate::archive::{Call, Completeness, Origin, SourceKind};
use crate::finding::Code;
use crate::id::CallId;
use crate::wire::fingerprint::check_row_versions;
use crate::wire::{Receipt, RolloutManifest, parse_call};

/// A staged line as a call.
#[derive(Clone, Debug)]
pub(super) struct Record {
    call: Call,
}

impl Record {
    pub fn parse(line: &str, origin: Origin) -> Result<Self, Rejected> {
        Ok(Self { call: Call { origin, ..parse_call(line)? } })
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

    /// The calls of its manifest.
    pub fn named(&self) -> Vec<CallHash> {
        self.receipt.manifest.iter().map(|row| CallHash::of(&row.model_call_id)).collect()
    }
}

/// Whether [`narrow`] takes the ids.
pub(super) fn all_narrow(ids: &[u64]) -> Result<(), Rejected> {
    match ids.iter().fold(0, |all, id| all | id) <= u64::from(u32::MAX) {
        true => Ok(()),
        false => narrow(ids).map(|_| ()),
    }
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
