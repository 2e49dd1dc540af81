//! Receipts and manifest rows: what a ledger says of a capture scope, without tokens.

use std::collections::BTreeMap;

use crate::archive::{CaptureFailure, Completion, Mode, OutputItem};
use crate::id::Digest32;

/// One manifest row (`CallRecord`, `spec/gym-wire.md` a.5), with the seed's schema 3 additions.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// Capture schema.
    pub schema_version: u64,
    /// Digest version.
    pub digest_version: u64,
    /// Extras digest version.
    pub extras_digest_version: u64,
    /// The call.
    pub model_call_id: String,
    /// Its parent.
    pub parent_call_id: Option<String>,
    /// Tokens before the delta.
    pub prev_len: u64,
    /// Tokens of the delta.
    pub delta_len: u64,
    /// Tokens up to the end of the delta.
    pub cum_len: u64,
    /// Weights that sampled the generation.
    pub weight_version: u64,
    /// Call digest.
    pub digest: Digest32,
    /// Digest of the extras.
    pub extras_digest: Digest32,
    /// Opaque key of the staged tensors.
    pub staging_key: String,
    /// Root or continuation.
    pub mode: Mode,
    /// Chain hash.
    pub chain_hash: Digest32,
    /// Hash of all tokens from the root.
    pub cumulative_hash: Digest32,
    /// Id of the served response.
    pub response_id: String,
    /// Admission time in seconds since the epoch.
    pub admitted_at: Option<f64>,
    /// Fingerprint of the served output.
    pub output_fingerprint: Option<Digest32>,
    /// Fingerprint of request and output.
    pub continuation_fingerprint: Option<Digest32>,
    /// Version of the fingerprints, 0 when none were recorded.
    pub fingerprint_version: u64,
    /// Schema 3: how the call ended.
    pub completion: Completion,
    /// Schema 3: served items.
    pub output_items: Option<Vec<OutputItem>>,
    /// Schema 3: what the request looked like.
    pub replay: Option<ReplaySummary>,
}

/// `ReplaySummary` of schema 3 (`spec/semantics.md` section 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Version of the source normalisation.
    pub normalization_version: u64,
    /// Items of request and served output.
    pub item_count: u64,
    /// Ordered digest of the items.
    pub source_digest: Digest32,
    /// The same with empty tool content made equal, where it differs.
    pub empty_tool_content_digest: Option<Digest32>,
    /// Digest of the effective render options.
    pub render_digest: Option<Digest32>,
}

/// Completion metadata that a schema 2 receipt carries beside its manifest (key `calls`).
#[derive(Clone, Debug, PartialEq)]
pub struct CallCompletion {
    /// How the call ended.
    pub completion: Completion,
    /// Id of the served response.
    pub response_id: Option<String>,
    /// Served items.
    pub output_items: Vec<OutputItem>,
}

/// The receipt of one capture scope (`RolloutReceipt`, `spec/gym-wire.md` a.8), with the
/// admission ledger that files carry beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// Capture schema.
    pub schema_version: u64,
    /// Digest version.
    pub digest_version: u64,
    /// Extras digest version.
    pub extras_digest_version: u64,
    /// Capture scope.
    pub scope: String,
    /// Reward as the framework recorded it.
    pub reward: Option<f64>,
    /// Scored call.
    pub terminal_model_call_id: Option<String>,
    /// Rows in commit order.
    pub manifest: Vec<CallRecord>,
    /// The capture is not to be trusted.
    pub capture_poisoned: bool,
    /// Why; an empty string is a reason.
    pub failure_reason: Option<String>,
    /// How the scored call was found: declared, response_id, content, heuristic.
    pub terminal_selection: Option<String>,
    /// Trail of the attribution.
    pub terminal_attribution_reason: Option<String>,
    /// Calls in admission order; `None` when the file does not say.
    pub attempted_call_ids: Option<Vec<String>>,
    /// Calls neither acknowledged nor failed.
    pub pending_call_ids: Option<Vec<String>>,
    /// Failures in ledger order.
    pub failures: Option<Vec<CaptureFailure>>,
    /// Schema 2 completion metadata by call.
    pub calls: Option<BTreeMap<String, CallCompletion>>,
}
