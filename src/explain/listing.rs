//! One line per rollout, filtered and sorted.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::view::{Slot, Verdict};
use crate::archive::SourceKind;
use crate::finding::Code;
use crate::id::{GroupId, RolloutId};

/// What `ls` tells of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RolloutLine {
    /// The prompt group.
    pub group_id: GroupId,
    /// The logical rollout.
    pub rollout_id: RolloutId,
    /// Its slot, from zero.
    pub slot: u32,
    /// Form of capture.
    pub source: SourceKind,
    /// Its reward; null when there is no finite one.
    pub reward: Option<f64>,
    /// Its advantage; null in a dropped group.
    pub advantage: Option<f64>,
    /// What training does with it.
    pub verdict: Verdict,
    /// Why it carries no loss; the first one masks it.
    pub reasons: Vec<Code>,
    /// Codes of what validation and selection found, each once.
    pub findings: BTreeSet<Code>,
    /// Captured calls.
    pub calls: u64,
    /// Selected calls.
    pub selected_calls: u64,
    /// Physical rows, a masked stand-in included.
    pub rows: u64,
    /// Captured tokens, the delta of each call once.
    pub tokens: u64,
    /// Captured tokens that were generated.
    pub generated_tokens: u64,
    /// Tokens of its own rows: a shared ancestor counts in each.
    pub row_tokens: u64,
    /// Tokens that carry loss.
    pub loss_tokens: u64,
}

/// The line of a rollout.
pub fn line(slot: Slot<'_>) -> RolloutLine {
    let rollout = slot.rollout;
    RolloutLine {
        group_id: slot.view.group.group_id.clone(),
        rollout_id: rollout.rollout_id.clone(),
        slot: rollout.slot,
        source: rollout.source,
        reward: rollout.reward,
        advantage: slot.advantage(),
        verdict: slot.verdict(),
        reasons: slot.reasons(),
        findings: slot.findings().map(|finding| finding.code).collect(),
        calls: rollout.calls.len() as u64,
        selected_calls: slot.selection.calls.len() as u64,
        rows: slot.rows().count() as u64,
        tokens: rollout.calls.iter().map(|call| call.token_ids.len() as u64).sum(),
        generated_tokens: rollout.calls.iter().map(|call| call.generation().len() as u64).sum(),
        row_tokens: slot.own_rows().map(|row| row.input_ids.len() as u64).sum(),
        loss_tokens: slot.loss_tokens(),
    }
}

/// Which rollouts are listed: those that every stated condition holds for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// One of these prompt groups; any, if there are none.
    pub groups: Vec<GroupId>,
    /// This verdict.
    pub verdict: Option<Verdict>,
    /// Masked or dropped for this reason, among others.
    pub reason: Option<Code>,
    /// A reward of at least this.
    pub min_reward: Option<f64>,
    /// A reward of at most this.
    pub max_reward: Option<f64>,
    /// This form of capture.
    pub source: Option<SourceKind>,
    /// A finding of this code.
    pub finding: Option<Code>,
}

impl Filter {
    /// Whether `line` is listed. A rollout without a reward is in no range of rewards.
    pub fn takes(&self, line: &RolloutLine) -> bool {
        let low = self.min_reward.is_none_or(|low| line.reward.is_some_and(|r| r >= low));
        let high = self.max_reward.is_none_or(|high| line.reward.is_some_and(|r| r <= high));
        low && high
            && (self.groups.is_empty() || self.groups.contains(&line.group_id))
            && self.verdict.is_none_or(|verdict| line.verdict == verdict)
            && self.reason.is_none_or(|code| line.reasons.contains(&code))
            && self.source.is_none_or(|source| line.source == source)
            && self.finding.is_none_or(|code| line.findings.contains(&code))
    }
}

/// What lines are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum SortKey {
    /// Group, then slot
    #[default]
    Id,
    /// Reward, the highest first; rollouts without one last
    Reward,
    /// Captured tokens, most first
    Tokens,
    /// Captured calls, most first
    Calls,
    /// Physical rows, most first
    Rows,
}

/// Sorts lines; those that are equal under `key` stay in order of their ids, also when `reverse`
/// turns the key around.
pub fn sort(lines: &mut [RolloutLine], key: SortKey, reverse: bool) {
    let by_id = |a: &RolloutLine, b: &RolloutLine| {
        (&a.group_id, a.slot, &a.rollout_id).cmp(&(&b.group_id, b.slot, &b.rollout_id))
    };
    let by_key = |a: &RolloutLine, b: &RolloutLine| match key {
        SortKey::Id => by_id(a, b),
        SortKey::Reward => match (a.reward, b.reward) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        },
        SortKey::Tokens => b.tokens.cmp(&a.tokens),
        SortKey::Calls => b.calls.cmp(&a.calls),
        SortKey::Rows => b.rows.cmp(&a.rows),
    };
    let turned = |order: Ordering| if reverse { order.reverse() } else { order };
    lines.sort_by(|a, b| turned(by_key(a, b)).then_with(|| by_id(a, b)));
}
