//! Staged records and receipts, joined by capture scope.

use std::collections::{BTreeMap, BTreeSet};

use super::lineage;
use super::quarantine::{Quarantine, Rejected};
use super::scope::Scope;
use crate::archive::{Call, CommittedCall, Completeness, Ledger, Origin, SourceForm, SourceKind};
use crate::finding::Code;
use crate::id::{CallId, CaptureKey};
use crate::wire::{Receipt, RolloutManifest, parse_call};

/// A staged line as a call, with a digest of the line to order repeated ones by.
#[derive(Clone, Debug)]
pub(super) struct Record {
    call: Call,
    line: [u8; 32],
}

impl Record {
    pub fn parse(line: &str, origin: Origin) -> Result<Self, Rejected> {
        let call = Call { origin, ..parse_call(line)? };
        Ok(Self { call, line: *blake3::hash(line.trim().as_bytes()).as_bytes() })
    }
}

/// A receipt with its line.
#[derive(Clone, Debug)]
pub(super) struct ReceiptLine {
    pub receipt: Receipt,
    pub text: String,
    pub origin: Origin,
}

impl ReceiptLine {
    pub fn parse(line: &str, origin: Origin) -> Result<Self, Rejected> {
        Ok(Self { receipt: Receipt::parse(line)?, text: line.trim().to_owned(), origin })
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

/// What each capture scope holds: the calls of its manifest in manifest order, then the rest by
/// call id. Lines of one call stay together, in an order that only their content decides.
pub(super) fn scopes(
    mut records: Vec<Record>,
    receipts: Vec<ReceiptLine>,
    ledgers: Vec<RolloutManifest>,
    quarantine: &mut Quarantine,
) -> BTreeMap<CaptureKey, Scope> {
    records.sort_by(|a, b| {
        (&a.call.call_id, a.line, &a.call.origin).cmp(&(&b.call.call_id, b.line, &b.call.origin))
    });
    let mut loose: BTreeMap<CaptureKey, BTreeMap<CallId, Vec<Call>>> = BTreeMap::new();
    for Record { call, .. } in records {
        let scope = loose.entry(call.capture_key.clone()).or_default();
        scope.entry(call.call_id.clone()).or_default().push(call);
    }
    let mut scopes = BTreeMap::new();
    for (key, receipt) in unique(receipts, quarantine) {
        let reward = receipt.receipt.reward;
        let ledger = ledger(receipt.receipt, receipt.text);
        let completeness = Completeness::Complete;
        scopes
            .insert(key, Scope { reward, ledger, completeness, ..Scope::new(SourceKind::Staged) });
    }
    for manifest in ledgers {
        // A receipt was made from the ledger, and knows more.
        scopes.entry(lineage::key(&manifest)).or_insert_with(|| Scope {
            ledger: lineage::ledger(&manifest),
            completeness: Completeness::Complete,
            lineage: Some(manifest),
            ..Scope::new(SourceKind::Staged)
        });
    }
    claim(&mut scopes, &mut loose);
    for (key, calls) in loose {
        let scope = scopes.entry(key).or_insert_with(|| Scope::new(SourceKind::Staged));
        scope.calls.extend(calls.into_values().flatten());
    }
    scopes
}

/// Gives each manifest the records it names: its own first; then, where it lacks one, a record
/// that another scope holds without naming it.
fn claim(
    scopes: &mut BTreeMap<CaptureKey, Scope>,
    loose: &mut BTreeMap<CaptureKey, BTreeMap<CallId, Vec<Call>>>,
) {
    let mut taken: BTreeMap<CaptureKey, BTreeMap<CallId, Vec<Call>>> = BTreeMap::new();
    for (key, scope) in scopes.iter() {
        let Some(own) = loose.get_mut(key) else { continue };
        let named = scope.ledger.committed.iter().map(|row| &row.call_id);
        let calls = named.filter_map(|id| own.remove_entry(id)).collect();
        taken.insert(key.clone(), calls);
    }
    let mut elsewhere: BTreeMap<CallId, BTreeSet<CaptureKey>> = BTreeMap::new();
    for (key, calls) in loose.iter() {
        for id in calls.keys() {
            elsewhere.entry(id.clone()).or_default().insert(key.clone());
        }
    }
    for (key, scope) in scopes.iter_mut() {
        let mut own = taken.remove(key).unwrap_or_default();
        let mut seen = BTreeSet::new();
        for row in scope.ledger.committed.iter().filter(|row| seen.insert(&row.call_id)) {
            if let Some(calls) = own.remove(&row.call_id) {
                scope.calls.extend(calls);
            } else if let Some(holder) =
                elsewhere.get_mut(&row.call_id).and_then(BTreeSet::pop_first)
                && let Some(calls) = loose.get_mut(&holder).and_then(|c| c.remove(&row.call_id))
            {
                scope.calls.extend(calls);
            }
        }
    }
    loose.retain(|_, calls| !calls.is_empty());
}

/// One receipt per scope. Of receipts that contradict each other none is believed.
fn unique(
    receipts: Vec<ReceiptLine>,
    quarantine: &mut Quarantine,
) -> BTreeMap<CaptureKey, ReceiptLine> {
    let mut by_scope: BTreeMap<CaptureKey, Vec<ReceiptLine>> = BTreeMap::new();
    for line in receipts {
        by_scope.entry(line.receipt.scope.as_str().into()).or_default().push(line);
    }
    let mut unique = BTreeMap::new();
    for (key, mut lines) in by_scope {
        if lines.iter().all(|line| line.text == lines[0].text) {
            unique.extend(lines.pop().map(|line| (key, line)));
            continue;
        }
        for line in lines {
            let message = format!("receipts of scope {key} contradict each other");
            let why = Rejected::new(Code::ConflictingRecord, message);
            quarantine.line(&line.origin, SourceForm::Receipts, &line.text, why);
        }
    }
    unique
}

fn ledger(receipt: Receipt, text: String) -> Ledger {
    let ids = |ids: Vec<String>| ids.into_iter().map(CallId::from).collect::<Vec<_>>();
    let completions = receipt.calls.unwrap_or_default();
    let committed: Vec<_> = receipt
        .manifest
        .into_iter()
        .map(|row| {
            let (completion, output_items) = match completions.get(&row.model_call_id) {
                Some(entry) => (entry.completion.clone(), Some(entry.output_items.clone())),
                None => (row.completion, row.output_items),
            };
            CommittedCall {
                call_id: row.model_call_id.into(),
                response_id: Some(row.response_id),
                completion,
                output_items,
                output_fingerprint: row.output_fingerprint,
                fingerprint_version: row.fingerprint_version,
            }
        })
        .collect();
    let attempted = match receipt.attempted_call_ids {
        Some(attempted) => ids(attempted),
        None => committed.iter().map(|row| row.call_id.clone()).collect(),
    };
    Ledger {
        receipt: Some(text),
        committed,
        attempted,
        pending: ids(receipt.pending_call_ids.unwrap_or_default()),
        failures: receipt.failures.unwrap_or_default(),
        terminal_call_id: receipt.terminal_model_call_id.map(CallId::from),
        capture_poisoned: receipt.capture_poisoned,
        failure_reason: receipt.failure_reason,
    }
}
