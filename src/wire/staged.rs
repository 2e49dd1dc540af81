//! Staged records: one captured call with its token columns, as the worker staged it.

use super::columns::RawRecord;
use super::digest::EMPTY_EXTRAS_DIGEST;
use super::fields::{Fields, RecordError};
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

impl StagedRecord {
    /// Reads one line: JSON types, names and versions are checked, the truth of what it says is
    /// not, so that a changed record can be kept and then reported ([`StagedRecord::check`]).
    ///
    /// # Errors
    ///
    /// `unsupported_schema`, `unsupported_digest` or `unsupported_extras_digest` for another
    /// version, whatever else is wrong; `malformed_json`; `invalid_snapshot` for a token id
    /// outside `0..2^64`; `malformed_record` for every other fault of form.
    pub fn parse(line: &str) -> Result<StagedRecord, RecordError> {
        Self::read(RawRecord::parse(line)?)
    }

    fn read(raw: RawRecord<'_>) -> Result<StagedRecord, RecordError> {
        let mut fields = Fields::new(Code::MalformedRecord, raw.members);
        let head = fields.head()?;
        if let Some(error) = raw.fault {
            return Err(error);
        }
        let source_capture_key = match head.schema_version {
            3 => fields.optional_identifier("source_capture_key")?,
            _ => None,
        };
        let column = |key| fields.fault(key, "is missing");
        let token_ids_delta = raw.token_ids.ok_or_else(|| column("token_ids_delta"))?;
        let token_mask_delta = raw.token_mask.ok_or_else(|| column("token_mask_delta"))?;
        let generation_log_probs_delta =
            raw.logprobs.ok_or_else(|| column("generation_log_probs_delta"))?;
        let record = StagedRecord {
            schema_version: head.schema_version,
            digest_version: head.digest_version,
            extras_digest_version: head.extras_digest_version,
            scope: head.scope,
            source_capture_key,
            model_call_id: fields.identifier("model_call_id")?,
            parent_call_id: fields.optional_identifier("parent_call_id")?,
            mode: fields.mode(None)?,
            prev_len: fields.length("prev_len")?,
            delta_len: fields.length("delta_len")?,
            cum_len: fields.length("cum_len")?,
            weight_version: fields.length("weight_version")?,
            digest: fields.digest("digest")?,
            token_ids_delta,
            token_mask_delta,
            generation_log_probs_delta,
            extras_digest: fields.digest_or("extras_digest", EMPTY_EXTRAS_DIGEST)?,
            chain_hash: fields.digest("chain_hash")?,
            cumulative_hash: fields.digest("cumulative_hash")?,
            extras: raw.extras.map(str::to_owned),
        };
        fields.finish()?;
        Ok(record)
    }
}
