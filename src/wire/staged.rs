//! Staged records: one captured call with its token columns, as the worker staged it.

use crate::archive::Mode;
use crate::finding::Code;
use crate::id::Digest32;

/// A staged call (`StagedCallRecord`, `spec/gym-wire.md` a.2; schema 3 names as in the seed).
#[derive(Clone, Debug, PartialEq)]
pub struct StagedRecord {
    /// 2 or 3; a byte of the call digest.
    pub schema_version: u64,
    /// Digest version.
    pub digest_version: u64,
    /// Extras digest version.
    pub extras_digest_version: u64,
    /// Capture scope: `rollout_id` in schema 2, `capture_key` in schema 3.
    pub scope: String,
    /// Earlier owner of a restored call (schema 3).
    pub source_capture_key: Option<String>,
    /// The call.
    pub model_call_id: String,
    /// Its parent.
    pub parent_call_id: Option<String>,
    /// Root or continuation.
    pub mode: Mode,
    /// Tokens before this delta.
    pub prev_len: u64,
    /// Tokens of this delta.
    pub delta_len: u64,
    /// Tokens up to the end of this delta.
    pub cum_len: u64,
    /// Weights that sampled the generation.
    pub weight_version: u64,
    /// Call digest.
    pub digest: Digest32,
    /// `[delta]`
    pub token_ids_delta: Vec<u64>,
    /// `[delta]`, 0.0 carry, 1.0 generation; the sign of zero is kept.
    pub token_mask_delta: Vec<f64>,
    /// `[delta]`, 0.0 on carry.
    pub generation_log_probs_delta: Vec<f64>,
    /// Digest of the extras.
    pub extras_digest: Digest32,
    /// Chain hash.
    pub chain_hash: Digest32,
    /// Hash of all tokens from the root.
    pub cumulative_hash: Digest32,
    /// Verbatim JSON text of the extras; `None` = null.
    pub extras: Option<String>,
}

/// Why a line is not the record that it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RecordError {
    /// Stable code.
    pub code: Code,
    /// Field at fault, in wire words.
    pub field: Option<String>,
    /// What was found and what was expected.
    pub message: String,
}
