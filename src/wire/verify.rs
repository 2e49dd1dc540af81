//! Proving a receipt and its staged records, and the row of its scored call
//! (`spec/gym-wire.md` section c): the order of the checks, their codes and their words are the
//! package's own.
//!
//! As published, only the chain of the scored call gets the checks of step 11; the parts are
//! public so that a validator can give them to every path.

use std::collections::HashSet;
use std::fmt::Display;

use super::digest::{Checked, CumulativeHasher, DIGEST_VERSION, EXTRAS_DIGEST_VERSION};
use super::fields::SCHEMAS;
use super::manifest::Manifest;
use super::python::{repr_optional, repr_str};
use super::receipt::{CallRecord, Receipt};
use super::staged::StagedRecord;
use super::view::{Boundary, StagedView};
use crate::finding::Code;
use crate::id::Digest32;

/// Which class of error the package raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The receipt, or the records that it binds, are wrong.
    ReceiptVerification,
    /// The records are bound, but give no row.
    Rebuild,
}

impl ErrorClass {
    /// The package's name of the class.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorClass::ReceiptVerification => "ReceiptVerificationError",
            ErrorClass::Rebuild => "RebuildError",
        }
    }
}

/// Why a receipt does not verify; displayed as `code: detail`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct VerifyError {
    /// The package's code.
    pub code: Code,
    /// The package's class.
    pub class: ErrorClass,
    /// The package's words.
    pub detail: String,
}

impl VerifyError {
    pub(super) fn receipt(code: Code, detail: impl Into<String>) -> Self {
        Self { code, class: ErrorClass::ReceiptVerification, detail: detail.into() }
    }

    pub(super) fn rebuild(code: Code, detail: impl Into<String>) -> Self {
        Self { code, class: ErrorClass::Rebuild, detail: detail.into() }
    }
}

/// Versions that a receipt, a manifest row or a record states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Capture schema.
    pub schema: u64,
    /// Digest version.
    pub digest: u64,
    /// Extras digest version.
    pub extras_digest: u64,
}

/// One training row as the package rebuilds it: root to scored call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinearizedRow {
    /// Capture scope (the package's `rollout_id`).
    pub scope: String,
    /// `[row]`
    pub token_ids: Vec<u64>,
    /// `[row]`, 0.0 or 1.0, the sign of zero kept.
    pub token_mask: Vec<f64>,
    /// `[row]`, as recorded.
    pub logprobs: Vec<f64>,
    /// Calls from the root to the scored one.
    pub model_call_ids: Vec<String>,
    /// Carry of the first call.
    pub prompt_len: usize,
    /// Weights per call.
    pub weight_versions: Vec<u64>,
    /// Half-open range `[start, end)` in the row of each call's whole delta.
    pub spans: Vec<(usize, usize)>,
    /// Carry and generation length per call.
    pub links: Vec<(usize, usize)>,
    /// Committed extras digest per call.
    pub extras_digests: Vec<Digest32>,
}

/// What a receipt claims, by reference.
struct Claim<'a> {
    versions: Versions,
    scope: &'a str,
    failure_reason: Option<&'a str>,
    capture_poisoned: bool,
    rows: &'a [CallRecord],
    terminal: Option<&'a str>,
}

/// Verifies a receipt against its records and rebuilds the row of its scored call. `snapshots`
/// lie in manifest order, one per manifest row. Extras are not read.
///
/// Schema 3 is verified as schema 2 is. The package's last check, `empty_training_row`, cannot
/// fail after `empty_generation`, and so is not made.
///
/// # Errors
///
/// The first check that fails, in the package's order.
pub fn verify_and_linearize(
    receipt: &Receipt,
    snapshots: &[StagedRecord],
) -> Result<LinearizedRow, VerifyError> {
    verify(
        &Claim {
            versions: receipt.versions(),
            scope: &receipt.scope,
            failure_reason: receipt.failure_reason.as_deref(),
            capture_poisoned: receipt.capture_poisoned,
            rows: &receipt.manifest,
            terminal: receipt.terminal_model_call_id.as_deref(),
        },
        snapshots,
    )
}

/// [`verify_and_linearize`] without a receipt: the row of `terminal`, as if declared.
///
/// # Errors
///
/// `missing_terminal` without a terminal; otherwise as [`verify_and_linearize`].
pub fn linearize(
    scope: &str,
    snapshots: &[StagedRecord],
    rows: &[CallRecord],
    terminal: Option<&str>,
) -> Result<LinearizedRow, VerifyError> {
    if terminal.is_none() {
        let detail = "linearization needs a terminal call";
        return Err(VerifyError::receipt(Code::MissingTerminal, detail));
    }
    let versions = rows.first().map_or(
        Versions { schema: 2, digest: DIGEST_VERSION, extras_digest: EXTRAS_DIGEST_VERSION },
        CallRecord::versions,
    );
    let claim =
        Claim { versions, scope, failure_reason: None, capture_poisoned: false, rows, terminal };
    verify(&claim, snapshots)
}

fn verify(claim: &Claim<'_>, snapshots: &[StagedRecord]) -> Result<LinearizedRow, VerifyError> {
    check_claim(claim)?;
    let manifest = Manifest::new(claim.rows);
    if let Some((_, error)) = manifest.duplicates().next() {
        return Err(error);
    }
    bind(claim, &manifest, snapshots)?;
    if let Some((_, error)) = manifest.link_errors().next() {
        return Err(error);
    }
    let chain = manifest.chain(claim.terminal)?;
    rebuild(claim, &chain, snapshots)
}

/// Steps 2 to 5: what the receipt says of itself.
fn check_claim(claim: &Claim<'_>) -> Result<(), VerifyError> {
    let Versions { schema, digest, extras_digest } = claim.versions;
    let refused = if SCHEMAS.iter().all(|&(read, _)| read != schema) {
        (Code::UnsupportedSchema, format!("receipt schema {schema}"))
    } else if digest != DIGEST_VERSION {
        (Code::UnsupportedDigest, format!("receipt digest {digest}"))
    } else if extras_digest != EXTRAS_DIGEST_VERSION {
        (Code::UnsupportedExtrasDigest, format!("receipt extras digest {extras_digest}"))
    } else if let Some(reason) = claim.failure_reason {
        (Code::RolloutFailed, reason.to_owned())
    } else if claim.capture_poisoned {
        (Code::CapturePoisoned, "receipt marks token capture as poisoned".to_owned())
    } else if claim.rows.is_empty() {
        (Code::EmptyManifest, "successful receipt has no committed calls".to_owned())
    } else {
        return Ok(());
    };
    Err(VerifyError::receipt(refused.0, refused.1))
}

/// Steps 7 and 8: one record per row, in order, and each record is what its row committed to.
fn bind(
    claim: &Claim<'_>,
    manifest: &Manifest<'_>,
    snapshots: &[StagedRecord],
) -> Result<(), VerifyError> {
    if snapshots.len() != claim.rows.len() {
        let (found, rows) = (snapshots.len(), claim.rows.len());
        let detail = format!("{found} snapshots for {rows} manifest rows");
        return Err(VerifyError::receipt(Code::RowCountMismatch, detail));
    }
    let mut seen = HashSet::new();
    for (row, snapshot) in claim.rows.iter().zip(snapshots) {
        let call = snapshot.model_call_id.as_str();
        if !seen.insert(call) {
            let detail = "model_call_id values are not unique";
            return Err(VerifyError::receipt(Code::DuplicateSnapshot, detail));
        }
        if manifest.position(call).is_none() {
            let detail = format!("snapshot {call} is not in the manifest");
            return Err(VerifyError::receipt(Code::SnapshotIdentityMismatch, detail));
        }
        if call != row.model_call_id {
            let (key, expected) = (&row.staging_key, &row.model_call_id);
            let detail = format!("key {key} expected {expected}, received {call}");
            return Err(VerifyError::receipt(Code::SnapshotOrderMismatch, detail));
        }
        check_pair(claim.versions, claim.scope, row, &snapshot.view())?;
    }
    Ok(())
}

/// A record against the manifest row that commits to it (the rest of step 8): scope, fields,
/// versions, then the call digest recomputed with the committed extras digest.
///
/// # Errors
///
/// As [`check_claims`], or `corrupt_digest`.
pub fn check_pair(
    versions: Versions,
    scope: &str,
    row: &CallRecord,
    snapshot: &StagedView<'_>,
) -> Result<(), VerifyError> {
    let checked = check_claims(versions, scope, row, snapshot)?;
    compare_digest(checked.digest(), snapshot)
}

/// [`check_pair`] but for the call digest, which is to be that of what is returned
/// ([`compare_digest`]).
///
/// # Errors
///
/// `wrong_rollout`, `wrong_*` for the first field that differs, or `invalid_snapshot`.
pub fn check_claims<'a>(
    versions: Versions,
    scope: &str,
    row: &CallRecord,
    snapshot: &StagedView<'a>,
) -> Result<Checked<'a>, VerifyError> {
    let call = snapshot.model_call_id;
    if snapshot.scope != scope {
        let detail = format!("snapshot {call} belongs to {}", snapshot.scope);
        return Err(VerifyError::receipt(Code::WrongRollout, detail));
    }
    check_fields(row, snapshot)?;
    let (theirs, ours) = (snapshot.versions(), row.versions());
    for (code, snapshot, manifest, receipt) in [
        (Code::WrongSchemaVersion, theirs.schema, ours.schema, versions.schema),
        (Code::WrongDigestVersion, theirs.digest, ours.digest, versions.digest),
        (
            Code::WrongExtrasDigestVersion,
            theirs.extras_digest,
            ours.extras_digest,
            versions.extras_digest,
        ),
    ] {
        if snapshot != manifest || manifest != receipt {
            let detail =
                format!("call {call}: snapshot={snapshot}, manifest={manifest}, receipt={receipt}");
            return Err(VerifyError::receipt(code, detail));
        }
    }
    Checked::new(StagedView { extras_digest: row.extras_digest, ..*snapshot })
        .map_err(|e| VerifyError::receipt(Code::InvalidSnapshot, format!("call {call}: {e}")))
}

/// The call digest that was found against the one that the record carries.
///
/// # Errors
///
/// `corrupt_digest`.
pub fn compare_digest(found: Digest32, snapshot: &StagedView<'_>) -> Result<(), VerifyError> {
    if found == snapshot.digest {
        return Ok(());
    }
    let detail = format!("call {}: staged digest mismatch", snapshot.model_call_id);
    Err(VerifyError::receipt(Code::CorruptDigest, detail))
}

fn check_fields(row: &CallRecord, snapshot: &StagedView<'_>) -> Result<(), VerifyError> {
    let call = snapshot.model_call_id;
    let differ = |code, snapshot: &dyn Display, manifest: &dyn Display| {
        let detail = format!("call {call}: snapshot {snapshot}, manifest {manifest}");
        Err(VerifyError::receipt(code, detail))
    };
    if call != row.model_call_id {
        let (theirs, ours) = (repr_str(call), repr_str(&row.model_call_id));
        return differ(Code::WrongModelCallId, &theirs, &ours);
    }
    let parent = row.parent_call_id.as_deref();
    if snapshot.parent_call_id != parent {
        let (theirs, ours) = (repr_optional(snapshot.parent_call_id), repr_optional(parent));
        return differ(Code::WrongParentCallId, &theirs, &ours);
    }
    if snapshot.mode != row.mode {
        let (theirs, ours) = (repr_str(snapshot.mode.as_str()), repr_str(row.mode.as_str()));
        return differ(Code::WrongMode, &theirs, &ours);
    }
    for (code, theirs, ours) in [
        (Code::WrongPrevLen, snapshot.prev_len, row.prev_len),
        (Code::WrongDeltaLen, snapshot.delta_len, row.delta_len),
        (Code::WrongCumLen, snapshot.cum_len, row.cum_len),
        (Code::WrongWeightVersion, snapshot.weight_version, row.weight_version),
    ] {
        if theirs != ours {
            return differ(code, &theirs, &ours);
        }
    }
    for (code, theirs, ours) in [
        (Code::WrongDigest, snapshot.digest, row.digest),
        (Code::WrongExtrasDigest, snapshot.extras_digest, row.extras_digest),
        (Code::WrongChainHash, snapshot.chain_hash, row.chain_hash),
        (Code::WrongCumulativeHash, snapshot.cumulative_hash, row.cumulative_hash),
    ] {
        if theirs != ours {
            return differ(code, &format_args!("'{theirs}'"), &format_args!("'{ours}'"));
        }
    }
    Ok(())
}

/// One call on its path (step 11): its tokens extend the chain hash of its parent (`None` for a
/// root), and its mask is carry, then generation. Returns the carry length.
///
/// # Errors
///
/// `chain_hash_mismatch`, `invalid_mask_order`, or `empty_generation`.
pub fn check_call(
    parent_chain_hash: Option<Digest32>,
    row: &CallRecord,
    snapshot: &StagedView<'_>,
) -> Result<usize, VerifyError> {
    check_order(snapshot.token_ids.chain_hash(parent_chain_hash), row, snapshot)
}

/// [`check_call`] with the chain hash that was found.
///
/// # Errors
///
/// As [`check_call`].
pub fn check_order(
    chain_hash: Digest32,
    row: &CallRecord,
    snapshot: &StagedView<'_>,
) -> Result<usize, VerifyError> {
    let call = &row.model_call_id;
    if chain_hash != row.chain_hash {
        let detail = format!("call {call} does not extend its parent's staged chain");
        return Err(VerifyError::rebuild(Code::ChainHashMismatch, detail));
    }
    match snapshot.columns.boundary() {
        Boundary::At(carry_len) => Ok(carry_len),
        Boundary::Unordered => {
            let detail = format!("call {call} mask is not carry-then-generation");
            Err(VerifyError::rebuild(Code::InvalidMaskOrder, detail))
        }
        Boundary::NoGeneration => {
            let detail = format!("call {call} contains no policy-generated token");
            Err(VerifyError::rebuild(Code::EmptyGeneration, detail))
        }
    }
}

/// All tokens of a path against the cumulative hash of its last call (step 13). `deltas` are
/// the calls' views from the root to that call.
///
/// # Errors
///
/// `cumulative_hash_mismatch`.
pub fn check_cumulative<'a>(
    row: &CallRecord,
    deltas: impl Iterator<Item = StagedView<'a>> + Clone,
) -> Result<(), VerifyError> {
    let total = deltas.clone().map(|delta| delta.token_ids.len() as u64).sum();
    let mut hash = CumulativeHasher::new(total);
    for delta in deltas {
        delta.token_ids.accumulate(&mut hash);
    }
    compare_cumulative(hash.finish(), row)
}

/// [`check_cumulative`] with the hash that was found.
///
/// # Errors
///
/// As [`check_cumulative`].
pub fn compare_cumulative(found: Option<Digest32>, row: &CallRecord) -> Result<(), VerifyError> {
    if found == Some(row.cumulative_hash) {
        return Ok(());
    }
    let call = &row.model_call_id;
    let detail =
        format!("terminal call {call} cumulative hash does not cover the linearized tokens");
    Err(VerifyError::rebuild(Code::CumulativeHashMismatch, detail))
}

/// Steps 11 to 13 over the chain, whose positions are those of rows and of snapshots alike.
fn rebuild(
    claim: &Claim<'_>,
    chain: &[usize],
    snapshots: &[StagedRecord],
) -> Result<LinearizedRow, VerifyError> {
    let mut out = LinearizedRow { scope: claim.scope.to_owned(), ..LinearizedRow::default() };
    let path = || chain.iter().filter_map(|&i| Some((claim.rows.get(i)?, snapshots.get(i)?)));
    let mut parent = None;
    for (row, snapshot) in path() {
        let carry_len = check_call(parent, row, &snapshot.view())?;
        parent = Some(row.chain_hash);
        let start = out.token_ids.len();
        out.token_ids.extend_from_slice(&snapshot.token_ids_delta);
        out.token_mask.extend_from_slice(&snapshot.token_mask_delta);
        out.logprobs.extend_from_slice(&snapshot.generation_log_probs_delta);
        out.model_call_ids.push(row.model_call_id.clone());
        out.weight_versions.push(snapshot.weight_version);
        out.spans.push((start, out.token_ids.len()));
        out.links.push((carry_len, out.token_ids.len() - start - carry_len));
        out.extras_digests.push(row.extras_digest);
    }
    out.prompt_len = out.links.first().map_or(0, |&(carry_len, _)| carry_len);
    if let Some((row, _)) = path().next_back() {
        check_cumulative(row, path().map(|(_, snapshot)| snapshot.view()))?;
    }
    Ok(out)
}

impl Receipt {
    /// Versions that the receipt states.
    pub fn versions(&self) -> Versions {
        Versions {
            schema: self.schema_version,
            digest: self.digest_version,
            extras_digest: self.extras_digest_version,
        }
    }
}

impl CallRecord {
    /// Versions that the row states.
    pub fn versions(&self) -> Versions {
        Versions {
            schema: self.schema_version,
            digest: self.digest_version,
            extras_digest: self.extras_digest_version,
        }
    }
}

impl StagedView<'_> {
    /// Versions that the record states.
    pub fn versions(&self) -> Versions {
        Versions {
            schema: self.schema_version,
            digest: self.digest_version,
            extras_digest: self.extras_digest_version,
        }
    }
}
