//! A staged call by reference, whether it lies in a record of the wire or in an archive.

use super::digest;
use super::staged::StagedRecord;
use crate::archive::{Call, Mode};
use crate::id::Digest32;

/// Everything that the call digest covers, and the digest itself.
#[derive(Clone, Copy, Debug)]
pub struct StagedView<'a> {
    /// 2 or 3; a byte of the call digest.
    pub schema_version: u64,
    /// Digest version.
    pub digest_version: u64,
    /// Extras digest version.
    pub extras_digest_version: u64,
    /// Capture scope.
    pub scope: &'a str,
    /// The call.
    pub model_call_id: &'a str,
    /// Its parent.
    pub parent_call_id: Option<&'a str>,
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
    /// Call digest as recorded.
    pub digest: Digest32,
    /// `[delta]`
    pub token_ids: TokenIds<'a>,
    /// Mask and log-probabilities of the delta.
    pub columns: Columns<'a>,
    /// Digest of the extras as recorded.
    pub extras_digest: Digest32,
    /// Chain hash as recorded.
    pub chain_hash: Digest32,
    /// Hash of all tokens from the root as recorded.
    pub cumulative_hash: Digest32,
}

/// Token ids of a delta.
#[derive(Clone, Copy, Debug)]
pub enum TokenIds<'a> {
    /// As on the wire.
    Wide(&'a [u64]),
    /// As in an archive.
    Narrow(&'a [u32]),
}

impl TokenIds<'_> {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        match self {
            TokenIds::Wide(ids) => ids.len(),
            TokenIds::Narrow(ids) => ids.len(),
        }
    }

    /// True without tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Chain hash of this delta on its parent's (`spec/gym-wire.md` b.3).
    pub fn chain_hash(&self, parent: Option<Digest32>) -> Digest32 {
        match self {
            TokenIds::Wide(ids) => digest::chain_hash(parent, ids),
            TokenIds::Narrow(ids) => digest::chain_hash(parent, ids),
        }
    }

    /// Adds this delta to a cumulative hash.
    pub fn accumulate(&self, hash: &mut digest::CumulativeHasher) {
        hash.add(*self);
    }
}

/// Mask and log-probabilities of a delta.
#[derive(Clone, Copy, Debug)]
pub enum Columns<'a> {
    /// As on the wire, `[delta]` each.
    Raw {
        /// 0.0 carry, 1.0 generation, the sign of zero kept.
        token_mask: &'a [f64],
        /// 0.0 on carry.
        logprobs: &'a [f64],
    },
    /// As an archive keeps the ordinary delta: carry, then generation.
    Split {
        /// Leading tokens with mask 0.0 and log-probability 0.0.
        carry_len: usize,
        /// `[delta - carry]`, mask 1.0.
        generation_logprobs: &'a [f32],
    },
}

/// Where the carry of a delta ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// Carry of this length, then at least one generated token.
    At(usize),
    /// A token after the first generated one is not generated.
    Unordered,
    /// Nothing was generated.
    NoGeneration,
}

impl Columns<'_> {
    /// Finds the carry/generation boundary.
    pub fn boundary(&self) -> Boundary {
        match *self {
            Columns::Raw { token_mask, .. } => {
                let carry = token_mask.iter().take_while(|&&mask| mask == 0.0).count();
                if token_mask[carry..].iter().any(|&mask| mask != 1.0) {
                    Boundary::Unordered
                } else if carry == token_mask.len() {
                    Boundary::NoGeneration
                } else {
                    Boundary::At(carry)
                }
            }
            Columns::Split { generation_logprobs: [], .. } => Boundary::NoGeneration,
            Columns::Split { carry_len, .. } => Boundary::At(carry_len),
        }
    }
}

impl<'a> StagedView<'a> {
    /// A call of an archive as it was staged; `None` if its source signs nothing, or knows no
    /// weight version.
    pub fn of(call: &'a Call) -> Option<Self> {
        let signed = call.commitment?;
        let columns = match &call.raw_columns {
            Some(raw) => Columns::Raw { token_mask: &raw.token_mask, logprobs: &raw.logprobs },
            None => Columns::Split {
                carry_len: call.carry_len as usize,
                generation_logprobs: &call.generation_logprobs,
            },
        };
        Some(Self {
            schema_version: signed.schema_version,
            digest_version: signed.digest_version,
            extras_digest_version: signed.extras_digest_version,
            scope: call.capture_key.as_str(),
            model_call_id: call.call_id.as_str(),
            parent_call_id: call.parent_call_id.as_ref().map(|id| id.as_str()),
            mode: call.mode,
            prev_len: call.prev_len,
            delta_len: call.delta_len,
            cum_len: call.cum_len,
            weight_version: call.weight_version?,
            digest: signed.digest,
            token_ids: TokenIds::Narrow(&call.token_ids),
            columns,
            extras_digest: signed.extras_digest,
            chain_hash: signed.chain_hash,
            cumulative_hash: signed.cumulative_hash,
        })
    }
}

impl StagedRecord {
    /// The record by reference.
    pub fn view(&self) -> StagedView<'_> {
        StagedView {
            schema_version: self.schema_version,
            digest_version: self.digest_version,
            extras_digest_version: self.extras_digest_version,
            scope: &self.scope,
            model_call_id: &self.model_call_id,
            parent_call_id: self.parent_call_id.as_deref(),
            mode: self.mode,
            prev_len: self.prev_len,
            delta_len: self.delta_len,
            cum_len: self.cum_len,
            weight_version: self.weight_version,
            digest: self.digest,
            token_ids: TokenIds::Wide(&self.token_ids_delta),
            columns: Columns::Raw {
                token_mask: &self.token_mask_delta,
                logprobs: &self.generation_log_probs_delta,
            },
            extras_digest: self.extras_digest,
            chain_hash: self.chain_hash,
            cumulative_hash: self.cumulative_hash,
        }
    }
}
