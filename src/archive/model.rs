//! What an archive holds, as values: groups of rollouts, each with its ledger and its calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::media::MediaTensor;
use crate::id::{CallId, CaptureKey, Digest32, GroupId, RolloutId};

/// All logical rollouts of one prompt; the unit that every later stage works on.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The prompt group.
    pub group_id: GroupId,
    /// Its rollouts, ordered by slot.
    pub rollouts: Vec<Rollout>,
}

/// Which form of capture a rollout came from.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum SourceKind {
    /// Staged records with receipts (schema 2 or 3).
    Staged,
    /// Gym's file store of `TokenEntry` lines.
    GymStore,
    /// Gym rollouts JSONL with inline token arrays.
    InlineRollouts,
}

/// Whether the source can tell that no call of the rollout was lost.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Completeness {
    /// Receipt, or intents and state, account for every admitted call.
    Complete,
    /// The source itself says that calls are missing.
    Incomplete,
    /// Nothing tells; masks unless the user assumes otherwise.
    Unknown,
}

/// One attempt slot of a prompt group: one reward, one advantage, however many calls and rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// Identity of the owner, `{group}_g{slot}`.
    pub rollout_id: RolloutId,
    /// Position in the group, from zero.
    pub slot: u32,
    /// Slots that the group is said to have.
    pub group_size: u32,
    /// Scope whose capture fills the slot.
    pub capture_key: CaptureKey,
    /// Finite reward; `None` when missing, null or not finite.
    pub reward: Option<f64>,
    /// `mask_sample` as the environment returned it.
    pub mask_sample: bool,
    /// The harness's own result object as JSON text: `response`, `terminal_response_id`, ...
    pub result: Option<String>,
    /// Form of capture.
    pub source: SourceKind,
    /// Whether calls may have been lost.
    pub completeness: Completeness,
    /// What was attempted, committed, left pending, failed.
    pub ledger: Ledger,
    /// Captured calls: manifest order first, then uncommitted records by call id. A record of
    /// another scope that this rollout's manifest names is here too, with its own `capture_key`.
    pub calls: Vec<Call>,
}

/// The account of one capture scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// The receipt's line, verbatim (staged captures only); parse it with `wire::Receipt`.
    pub receipt: Option<String>,
    /// Calls in commit order, duplicates kept.
    pub committed: Vec<CommittedCall>,
    /// Calls in admission order.
    pub attempted: Vec<CallId>,
    /// Admitted, but neither acknowledged nor failed.
    pub pending: Vec<CallId>,
    /// Failures in ledger order; one call may have several.
    pub failures: Vec<CaptureFailure>,
    /// Scored call as the receipt declares it.
    pub terminal_call_id: Option<CallId>,
    /// The receipt's own flag.
    pub capture_poisoned: bool,
    /// The receipt's own word.
    pub failure_reason: Option<String>,
}

/// One failure row of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureFailure {
    /// The call that failed.
    pub call_id: CallId,
    /// Upstream's word for why (`spec/gym-wire.md` a.10).
    pub reason: String,
}

impl CaptureFailure {
    /// The one failure that a committed, unselected call may have (rule 87).
    pub const CANCELLATION: &str = "request_finished_without_staged_coordinates";

    /// Whether rule 87 may exempt it.
    pub fn is_cancellation(&self) -> bool {
        self.reason == Self::CANCELLATION
    }
}

/// What a ledger says of a committed call, without its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedCall {
    /// The call.
    pub call_id: CallId,
    /// Id of the served response.
    pub response_id: Option<String>,
    /// How the call ended.
    pub completion: Completion,
    /// Served output items in order; `None` when the source does not record them.
    pub output_items: Option<Vec<OutputItem>>,
    /// Fingerprint of the whole served output (`assistant_fingerprint`).
    pub output_fingerprint: Option<Digest32>,
    /// Version of the fingerprints, 0 when none were recorded.
    pub fingerprint_version: u64,
}

/// How a call ended. *Not recorded* is not *null*: the first is a source without the metadata,
/// the second an explicitly unknown status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Completion {
    /// The source has no completion metadata (Gym store, a receipt without `calls`).
    Unrecorded,
    /// Recorded, perhaps as unknown.
    Recorded {
        /// completed, incomplete, failed, or null for unknown.
        status: Option<String>,
        /// stop, tool_calls, length, content_filter, ..., or null.
        finish_reason: Option<String>,
    },
}

/// How a call ended, as far as training is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Completed.
    Complete,
    /// A length limit ended it; it trains (rule 78).
    Length,
    /// Failed, unknown, or incomplete for another reason.
    Bad,
    /// The source records no endings.
    Unrecorded,
}

impl Completion {
    /// Finish reasons of generations that a length limit ended (`spec/semantics.md` section 1).
    const LENGTH_STOPS: [&str; 3] = ["length", "max_tokens", "max_output_tokens"];

    /// What status and finish reason come to.
    pub fn ending(&self) -> Ending {
        let Completion::Recorded { status, finish_reason } = self else {
            return Ending::Unrecorded;
        };
        let length =
            finish_reason.as_deref().is_some_and(|reason| Self::LENGTH_STOPS.contains(&reason));
        match status.as_deref() {
            Some("completed" | "incomplete") if length => Ending::Length,
            Some("completed") => Ending::Complete,
            _ => Ending::Bad,
        }
    }
}

/// One served output item of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputItem {
    /// Native item id, when the server gave one.
    pub id: Option<String>,
    /// message, reasoning, function_call, ...; `None` where the ledger does not say.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// `assistant_fingerprint([item])`, or a replay digest for reasoning under schema 3.
    pub fingerprint: Option<Digest32>,
}

/// `text` = a parentless root, `token_in` = a continuation of its parent's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Parentless root.
    Text,
    /// Continuation.
    TokenIn,
}

impl Mode {
    /// The wire's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Text => "text",
            Mode::TokenIn => "token_in",
        }
    }
}

/// A captured log-probability at or below this is an engine's clamp of minus infinity (rule 114).
pub const CLAMPED_LOGPROB: f32 = -9999.0;

/// One captured call as a delta on its parent: carry (new prompt tokens), then generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The call.
    pub call_id: CallId,
    /// Scope that the record itself states.
    pub capture_key: CaptureKey,
    /// Earlier owner of a restored call (schema 3).
    pub source_capture_key: Option<CaptureKey>,
    /// Parent call, `None` for a root.
    pub parent_call_id: Option<CallId>,
    /// Root or continuation, as recorded.
    pub mode: Mode,
    /// Tokens before this delta.
    pub prev_len: u64,
    /// Tokens of this delta, as recorded.
    pub delta_len: u64,
    /// Tokens from root to the end of this delta, as recorded.
    pub cum_len: u64,
    /// Policy weights that sampled the generation; `None` when unknown.
    pub weight_version: Option<u64>,
    /// The delta's token ids, `[delta]`.
    pub token_ids: Vec<u32>,
    /// Leading tokens of the delta that are carry (mask 0).
    pub carry_len: u32,
    /// Log-probabilities of the generated tokens, `[delta - carry]`; NaN = captured as null.
    pub generation_logprobs: Vec<f32>,
    /// Mask and log-probability columns exactly as recorded, kept only for the odd record that
    /// carry-then-generation cannot express (wrong order, -0.0, lengths that differ).
    pub raw_columns: Option<RawColumns>,
    /// What the capture signed (staged records only).
    pub commitment: Option<Commitment>,
    /// Gym store's entry digest (v1) of the whole sequence, when the entry carries one.
    pub entry_digest: Option<Digest32>,
    /// Verbatim JSON text of the extras, routes included; `None` = null.
    pub extras: Option<String>,
    /// What the worker says of the call's new media; `None` without a media line.
    pub media: Option<MediaFlags>,
    /// Tensors of the call's new media, ordered by field, each field once.
    pub tensors: Vec<MediaTensor>,
    /// Where the record was read.
    pub origin: Origin,
}

impl Call {
    /// Generated tokens of the delta, in order.
    pub fn generation(&self) -> &[u32] {
        &self.token_ids[(self.carry_len as usize).min(self.token_ids.len())..]
    }

    /// The tensor of this field, if the call has one.
    pub fn tensor(&self, field: &str) -> Option<&MediaTensor> {
        self.tensors.iter().find(|tensor| tensor.field == field)
    }
}

/// Media metadata of a call, beside its record (`spec/media.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaFlags {
    /// Whether the call brought new media.
    pub present: bool,
    /// Whether any of it is a video.
    pub has_frames: bool,
    /// SHA-256 of the extras without routes, as compact JSON with sorted keys.
    pub metadata_digest: Digest32,
}

/// Mask and log-probability columns of a delta as recorded, `[delta]` each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawColumns {
    /// `token_mask_delta`.
    pub token_mask: Vec<f64>,
    /// `generation_log_probs_delta`.
    pub logprobs: Vec<f64>,
}

/// The digests that a staged record carries, with their versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commitment {
    /// Capture schema, 2 or 3; a byte of the call digest.
    pub schema_version: u64,
    /// Digest version, 2.
    pub digest_version: u64,
    /// Extras digest version, 1.
    pub extras_digest_version: u64,
    /// Call digest.
    pub digest: Digest32,
    /// Extras digest.
    pub extras_digest: Digest32,
    /// Chain hash over parent's chain hash and this delta.
    pub chain_hash: Digest32,
    /// Hash of all tokens from the root.
    pub cumulative_hash: Digest32,
}

/// Source file and one-based line of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// File name as given to ingest, without its folder's folder.
    pub file: String,
    /// One-based line.
    pub line: u64,
}
