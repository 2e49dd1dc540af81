//! Staged captures: the receipt, its manifest, and every record, committed or not.

use std::collections::{BTreeSet, HashSet};

use super::redundant;
use super::scope::Scope;
use super::values::place;
use crate::archive::{Call, CommittedCall, Completion, Rollout, SourceKind};
use crate::finding::{Code, Finding, Location, Severity};
use crate::id::CallId;
use crate::wire::digest::{call_digest, extras_text_digest};
use crate::wire::verify::{VerifyError, check_order, compare_cumulative, compare_digest};
use crate::wire::{CallRecord, Manifest, Receipt, RecordError, StagedView};

/// The receipt of a rollout that was staged with one.
pub fn read_receipt(rollout: &Rollout) -> Option<Result<Receipt, RecordError>> {
    let staged = rollout.source == SourceKind::Staged;
    rollout.ledger.receipt.as_ref().filter(|_| staged).map(|text| Receipt::parse(text))
}

/// Findings on one staged scope.
///
/// The checks are those of the published verifier, in its order, made for every call instead of
/// the scored chain. Line order means nothing in files, so `snapshot_order_mismatch` cannot arise. A call
/// gets its first error only, and what follows from a wrong ancestor is not repeated below it.
///
/// `receipt` is what the scope's receipt was read as, and its scope if it could be read.
///
/// Returns the calls whose extras are those that their digests cover.
pub fn check<'a>(
    rollout: &'a Rollout,
    receipt: Option<Result<&Scope<'a>, &RecordError>>,
    findings: &mut Vec<Finding>,
) -> Vec<&'a Call> {
    let mut report = Report { rollout, findings, authentic: Vec::new() };
    let Some(receipt) = receipt else {
        let message = format!("scope {} has records but no receipt", rollout.capture_key);
        report.scope(Code::MissingReceipt, message);
        rollout.calls.iter().for_each(|call| check_alone(call, &mut report));
        return report.authentic;
    };
    let scope = match receipt {
        Ok(scope) => scope,
        Err(error) => {
            report.scope(error.code, error.message.as_str());
            return report.authentic;
        }
    };
    let (receipt, manifest) = (scope.receipt, &scope.manifest);
    redundant::check_receipt(rollout, receipt, report.findings);
    check_manifest(receipt, manifest, &mut report);
    check_matches(scope, &mut report);
    let sound = check_records(scope, &mut report);
    check_score(receipt, manifest, &mut report);
    check_paths(scope, sound, &mut report);
    check_accounts(receipt, manifest, &scope.uncommitted, &mut report);
    scope.uncommitted.iter().for_each(|call| check_alone(call, &mut report));
    report.authentic
}

struct Report<'a, 'f> {
    rollout: &'a Rollout,
    findings: &'f mut Vec<Finding>,
    /// Calls whose extras give the digest that they carry.
    authentic: Vec<&'a Call>,
}

impl Report<'_, '_> {
    fn push(&mut self, finding: Finding) {
        self.findings.push(finding.rollout(&self.rollout.rollout_id));
    }

    fn scope(&mut self, code: Code, message: impl Into<String>) {
        let at = Location::default().scope(self.rollout.capture_key.clone());
        self.push(Finding::new(code, message).at(at));
    }

    fn row(&mut self, row: &CallRecord, code: Code, message: impl Into<String>) {
        let at = Location::default().scope(self.rollout.capture_key.clone());
        let id = CallId::from(row.model_call_id.as_str());
        self.push(Finding::new(code, message).call(&id).at(at));
    }

    fn call(&mut self, call: &Call, code: Code, message: impl Into<String>) {
        let mut at = place(call);
        at.field = field_of(code).map(str::to_owned);
        self.push(Finding::new(code, message).call(&call.call_id).at(at));
    }

    fn verify(&mut self, call: &Call, error: VerifyError) {
        self.call(call, error.code, error.detail);
    }
}

/// The field that a code speaks of, in wire words.
fn field_of(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::WrongRollout => "rollout_id",
        Code::WrongParentCallId | Code::MissingParent | Code::LineageCycle => "parent_call_id",
        Code::WrongMode => "mode",
        Code::WrongPrevLen | Code::ParentLengthMismatch => "prev_len",
        Code::WrongDeltaLen => "delta_len",
        Code::WrongCumLen => "cum_len",
        Code::WrongWeightVersion => "weight_version",
        Code::WrongDigest | Code::CorruptDigest => "digest",
        Code::WrongExtrasDigest | Code::CorruptExtrasDigest => "extras_digest",
        Code::WrongChainHash | Code::ChainHashMismatch => "chain_hash",
        Code::WrongCumulativeHash | Code::CumulativeHashMismatch => "cumulative_hash",
        Code::WrongSchemaVersion => "schema_version",
        Code::WrongDigestVersion => "digest_version",
        Code::WrongExtrasDigestVersion => "extras_digest_version",
        Code::InvalidMaskOrder | Code::EmptyGeneration => "token_mask_delta",
        _ => return None,
    })
}

fn check_manifest(receipt: &Receipt, manifest: &Manifest<'_>, report: &mut Report<'_, '_>) {
    if is_trusted(receipt) && receipt.manifest.is_empty() {
        report.scope(Code::EmptyManifest, "a receipt that claims success commits to no call");
    }
    for (i, error) in manifest.duplicates() {
        let row = &receipt.manifest[i];
        let message = match error.code {
            Code::DuplicateStagingKey => format!("staging key {} is named twice", row.staging_key),
            _ => format!("call {} has two manifest rows", row.model_call_id),
        };
        report.row(row, error.code, message);
    }
}

/// A failed or poisoned receipt need not name a scored call.
fn is_trusted(receipt: &Receipt) -> bool {
    receipt.failure_reason.is_none() && !receipt.capture_poisoned
}

fn check_score(receipt: &Receipt, manifest: &Manifest<'_>, report: &mut Report<'_, '_>) {
    match receipt.terminal_model_call_id.as_deref() {
        None if is_trusted(receipt) && !receipt.manifest.is_empty() => {
            report.scope(Code::MissingTerminal, "the receipt names no scored call");
        }
        Some(id) if manifest.position(id).is_none() => {
            let message = format!("scored call {id} is not in the manifest");
            report.scope(Code::MissingTerminal, message);
        }
        _ => {}
    }
    if let (Some(receipt), Some(rollout)) = (receipt.reward, report.rollout.reward)
        && receipt != rollout
    {
        let message = format!("the receipt states reward {receipt}, the rollout {rollout}");
        report.scope(Code::ReceiptRewardMismatch, message);
    }
}

/// Whether every manifest row has one record.
fn check_matches(scope: &Scope<'_>, report: &mut Report<'_, '_>) {
    for (call, first) in &scope.repeated {
        let message = format!(
            "call {} was staged twice, first at {}:{}",
            call.call_id, first.origin.file, first.origin.line
        );
        report.call(call, Code::DuplicateSnapshot, message);
    }
    for (i, row) in scope.receipt.manifest.iter().enumerate() {
        if scope.records[i].is_some() || scope.manifest.position(&row.model_call_id) != Some(i) {
            continue;
        }
        let id = &row.model_call_id;
        if let Some(other) = scope.uncommitted.first() {
            let message = format!(
                "manifest row {id} has no staged record, while record {} is named by no row",
                other.call_id
            );
            report.row(row, Code::SnapshotIdentityMismatch, message);
        } else {
            let message = format!("manifest row {id} has no staged record");
            report.row(row, Code::RowCountMismatch, message);
        }
    }
}

/// Every attempted call is committed, pending, or failed; every uncommitted record is one of the
/// last two. Receipts that carry no admission ledger cannot tell.
fn check_accounts(
    receipt: &Receipt,
    manifest: &Manifest<'_>,
    uncommitted: &[&Call],
    report: &mut Report<'_, '_>,
) {
    let open: BTreeSet<&str> = receipt
        .pending_call_ids
        .iter()
        .flatten()
        .map(String::as_str)
        .chain(receipt.failures.iter().flatten().map(|f| f.call_id.as_str()))
        .collect();
    for &call in uncommitted {
        let id = call.call_id.as_str();
        let message = format!("record of call {id} is named by no manifest row");
        let mut finding =
            Finding::new(Code::UncommittedRecord, message).call(&call.call_id).at(place(call));
        if receipt.attempted_call_ids.is_some() && !open.contains(id) {
            finding.severity = Severity::Error;
            finding.message.push_str(", and is neither pending nor failed");
        }
        report.push(finding);
    }
    if let Some(attempted) = &receipt.attempted_call_ids {
        let attempted: HashSet<&str> = attempted.iter().map(String::as_str).collect();
        for row in receipt.manifest.iter().filter(|r| !attempted.contains(&*r.model_call_id)) {
            let message =
                format!("call {} is committed, and was never admitted", row.model_call_id);
            report.row(row, Code::UnaccountedCall, message);
        }
    }
    let recorded = |c: &CommittedCall| c.completion != Completion::Unrecorded;
    if report.rollout.ledger.committed.iter().any(recorded) {
        for call in report.rollout.ledger.committed.iter().filter(|c| !recorded(c)) {
            let message =
                format!("the receipt says how other calls ended, and nothing of {}", call.call_id);
            let at = Location::default().scope(report.rollout.capture_key.clone());
            report.push(Finding::new(Code::MissingCompletion, message).call(&call.call_id).at(at));
        }
    }
    for id in receipt.attempted_call_ids.iter().flatten() {
        if manifest.position(id).is_none() && !open.contains(id.as_str()) {
            let message =
                format!("call {id} was attempted, and is neither committed, pending, nor failed");
            let at = Location::default().scope(report.rollout.capture_key.clone());
            let call = CallId::from(id.as_str());
            report.push(Finding::new(Code::UnaccountedCall, message).call(&call).at(at));
        }
    }
}

/// What a record proves of itself, without a row to compare it with.
fn check_alone<'a>(call: &'a Call, report: &mut Report<'a, '_>) {
    let Some(view) = StagedView::of(call) else { return };
    match call_digest(&view) {
        Err(error) => {
            report.call(call, Code::InvalidSnapshot, format!("call {}: {error}", call.call_id))
        }
        Ok(digest) if digest != view.digest => {
            let message = format!("call {}: staged digest mismatch", call.call_id);
            report.call(call, Code::CorruptDigest, message);
        }
        Ok(_) => check_extras(call, &view, report),
    }
}

fn check_extras<'a>(call: &'a Call, view: &StagedView<'_>, report: &mut Report<'a, '_>) {
    match extras_text_digest(call.extras.as_deref()) {
        Ok(digest) if digest == view.extras_digest => report.authentic.push(call),
        Ok(digest) => {
            let message = format!(
                "call {}: its extras give {digest}, the record says {}",
                call.call_id, view.extras_digest
            );
            report.call(call, Code::CorruptExtrasDigest, message);
        }
        Err(error) => {
            let message = format!("call {}: {error}", call.call_id);
            report.call(call, Code::CorruptExtrasDigest, message);
        }
    }
}

/// Records against their rows, and the links between rows. Returns which rows are sound.
fn check_records<'a>(scope: &Scope<'a>, report: &mut Report<'a, '_>) -> Vec<bool> {
    let mut sound = vec![false; scope.records.len()];
    for (i, pair) in scope.pairs.iter().enumerate() {
        let (Some(call), Some(pair)) = (scope.records[i], pair) else { continue };
        let Some(view) = StagedView::of(call) else { continue };
        let compared = match (pair, scope.found[i].call) {
            (Ok(_), Some(digest)) => compare_digest(digest, &view),
            (Ok(checked), None) => compare_digest(checked.digest(), &view),
            (Err(error), _) => Err(error.clone()),
        };
        match compared {
            Err(error) => report.verify(call, error),
            Ok(()) => {
                let before = report.findings.len();
                check_extras(call, &view, report);
                sound[i] = report.findings.len() == before;
            }
        }
    }
    for (i, error) in &scope.broken_links {
        sound[*i] = false;
        match scope.records[*i] {
            Some(call) => report.verify(call, error.clone()),
            None => report.row(&scope.receipt.manifest[*i], error.code, error.detail.as_str()),
        }
    }
    sound
}

/// Chain hash, mask order and generation of every sound row; then the cumulative hashes.
fn check_paths(scope: &Scope<'_>, mut sound: Vec<bool>, report: &mut Report<'_, '_>) {
    let rows = &scope.receipt.manifest;
    for (i, row) in rows.iter().enumerate() {
        let Some((call, view)) = scope.records[i].and_then(|c| Some((c, StagedView::of(c)?)))
        else {
            continue;
        };
        if sound[i]
            && let Some(chain) = scope.found[i].chain
            && let Err(error) = check_order(chain, row, &view)
        {
            sound[i] = false;
            report.verify(call, error);
        }
    }
    for &i in &scope.ends {
        // A row that is not sound anywhere on the path has its own finding.
        if scope.path(i, &sound).is_none() {
            continue;
        }
        let compared = compare_cumulative(scope.found[i].cumulative, &rows[i]);
        if let (Err(error), Some(call)) = (compared, scope.records[i]) {
            report.verify(call, error);
        }
    }
}
