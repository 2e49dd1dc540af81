//! What an audit tells: `audit-logprobs --format json` and `jsonl`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::compare::Tolerances;
use super::contexts::Unscored;
use crate::finding::{Code, Severity};
use crate::id::{CallId, GroupId, RolloutId};

/// Version of the JSON below. Fields are only added within a version.
pub const SCHEMA_VERSION: u32 = 1;

/// Where the context of a call's own log-probabilities comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OwnContext {
    /// The archive: what the engine was given.
    #[default]
    Archive,
    /// The beginning of the row, cut off: what is wrong with a row's tokens stays unseen.
    Row,
}

/// Absolute differences of log-probabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// Tokens compared.
    pub tokens: u64,
    /// Mean over them, 0 without any.
    pub mean: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// Adds one difference.
    pub(super) fn add(&mut self, difference: f64) {
        self.tokens += 1;
        self.mean += (difference - self.mean) / self.tokens as f64;
        self.raise(difference);
    }

    /// Adds those of another.
    pub(super) fn join(&mut self, other: &Self) {
        if other.tokens == 0 {
            return;
        }
        self.tokens += other.tokens;
        self.mean += (other.mean - self.mean) * (other.tokens as f64 / self.tokens as f64);
        self.raise(other.max);
    }

    /// A difference that is no number is larger than any.
    fn raise(&mut self, difference: f64) {
        if difference.is_nan() || difference > self.max {
            self.max = difference;
        }
    }
}

/// Captured against own, of the generations that the same weights sampled.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct VersionSpread {
    /// The weights; `None` when unknown.
    pub weight_version: Option<u64>,
    /// Generations.
    pub generations: u64,
    /// Their differences.
    #[serde(flatten)]
    pub spread: Spread,
}

/// A generation whose log-probabilities disagree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Disagreement {
    /// `row_span_mismatch`, `row_context_mismatch` or `captured_logprob_mismatch`.
    pub code: Code,
    /// That of the code.
    pub severity: Severity,
    /// The prompt group.
    pub group_id: GroupId,
    /// The logical rollout.
    pub rollout_id: RolloutId,
    /// The call.
    pub call_id: CallId,
    /// Weights that sampled it; `None` when unknown.
    pub weight_version: Option<u64>,
    /// The row concerned; the one that owns the generation, where captured and own differ.
    pub row_id: Option<String>,
    /// Whether that row owns the generation.
    pub owned: bool,
    /// Place of the worst token, from the start of the row; of the call's own context without one.
    pub position: u64,
    /// Which generated token of the call that is, from zero.
    pub token: u64,
    /// Its id as captured.
    pub token_id: Option<u32>,
    /// Its captured log-probability.
    pub captured: Option<f64>,
    /// Its log-probability under the call's own context.
    pub own: Option<f64>,
    /// Its log-probability in the row.
    pub in_row: Option<f64>,
    /// The differences that are too large; none where tokens themselves differ.
    pub difference: Option<Spread>,
    /// First token of the row, up to the end of the generation, that is not the call's own.
    pub first_difference: Option<u64>,
    /// The call before it in the same row that has the same first difference: look there first.
    pub follows: Option<CallId>,
    /// One sentence.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// Result of an audit.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AuditReport {
    /// Version of this document.
    pub schema_version: u32,
    /// Where own contexts come from.
    pub own_context: OwnContext,
    /// Generations that were scored.
    pub generations: u64,
    /// Calls that were not, by the reason.
    pub unscored: BTreeMap<Unscored, u64>,
    /// Spans of rows that were compared.
    pub spans: u64,
    /// Own against in the row, over all spans.
    pub context: Spread,
    /// Captured against own, by the weights that sampled.
    pub captured: Vec<VersionSpread>,
    /// Captured tokens without a log-probability, or with an engine's clamp of minus infinity;
    /// they are left out.
    pub left_out: u64,
    /// Bounds that the differences were held against.
    pub tolerances: Tolerances,
    /// How many disagreements there are, by their code, shown or not.
    pub found: BTreeMap<String, u64>,
    /// The worst of them: spans that hold other tokens, then contexts, then captured ones; what
    /// follows from another comes after all of these.
    pub disagreements: Vec<Disagreement>,
}

impl AuditReport {
    /// Whether there is a disagreement at least as severe.
    pub fn reaches(&self, severity: Severity) -> bool {
        let codes = self.found.keys().filter_map(|word| Code::parse(word));
        codes.into_iter().any(|code| code.severity() >= severity)
    }
}

/// One line of `--format jsonl`: disagreements, and a summary as the last line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AuditLine<'a> {
    /// One disagreement.
    Disagreement(&'a Disagreement),
    /// The last line; its list of disagreements is empty.
    Summary(&'a AuditReport),
}
