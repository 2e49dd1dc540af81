//! Two selections side by side: what differs by rollout, and in all.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::view::{Slot, Verdict, View};
use crate::finding::Code;
use crate::id::{CallId, Digest32, GroupId, RolloutId};
use crate::rows::Row;

/// One rollout under one selection.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Side {
    /// Selected calls, in their order.
    pub call_ids: Vec<CallId>,
    /// Its physical rows.
    pub rows: u64,
    /// Tokens of its own rows.
    pub row_tokens: u64,
    /// Tokens that carry loss.
    pub loss_tokens: u64,
    /// Its advantage; null in a dropped group.
    pub advantage: Option<f64>,
    /// What training does with it.
    pub verdict: Verdict,
    /// Why it carries no loss; the first one masks it.
    pub reasons: Vec<Code>,
    /// Digest of tokens, masks and log-probabilities of its rows.
    #[serde(skip)]
    pub content: Digest32,
}

/// What differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    /// Only one side has the rollout.
    Presence,
    /// Other calls are selected, or in another order.
    Selection,
    /// Other rows: their number, tokens, masks or log-probabilities.
    Rows,
    /// Another number of tokens carries loss.
    LossTokens,
    /// Another advantage.
    Advantage,
    /// Valid, masked, dropped.
    Verdict,
    /// Other reasons to carry no loss.
    Reasons,
}

impl Changed {
    /// All of them, in the order of the report.
    pub const ALL: [Changed; 7] = [
        Changed::Presence,
        Changed::Selection,
        Changed::Rows,
        Changed::LossTokens,
        Changed::Advantage,
        Changed::Verdict,
        Changed::Reasons,
    ];

    /// The word of every format.
    pub fn as_str(self) -> &'static str {
        match self {
            Changed::Presence => "presence",
            Changed::Selection => "selection",
            Changed::Rows => "rows",
            Changed::LossTokens => "loss_tokens",
            Changed::Advantage => "advantage",
            Changed::Verdict => "verdict",
            Changed::Reasons => "reasons",
        }
    }
}

/// A rollout that differs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Difference {
    /// The prompt group.
    pub group_id: GroupId,
    /// The logical rollout.
    pub rollout_id: RolloutId,
    /// What differs.
    pub changed: BTreeSet<Changed>,
    /// Calls that only the left selects, in its order.
    pub only_left: Vec<CallId>,
    /// Calls that only the right selects, in its order.
    pub only_right: Vec<CallId>,
    /// The left side; null when only the right has the rollout.
    pub left: Option<Side>,
    /// The right side; null when only the left has the rollout.
    pub right: Option<Side>,
}

/// Sums over one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Totals {
    /// Logical rollouts.
    pub rollouts: u64,
    /// Rollouts that carry loss.
    pub valid_rollouts: u64,
    /// Prompt groups that are left out.
    pub dropped_groups: u64,
    /// Selected calls.
    pub selected_calls: u64,
    /// Physical rows, without execution padding.
    pub rows: u64,
    /// Tokens of rows with input of their own.
    pub row_tokens: u64,
    /// Tokens that carry loss.
    pub loss_tokens: u64,
}

/// Two selections side by side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Sums of the left.
    pub left: Totals,
    /// Sums of the right.
    pub right: Totals,
    /// Rollouts without a difference.
    pub equal: u64,
    /// Rollouts that differ, in order of group and slot.
    pub rollouts: Vec<Difference>,
}

/// Rollouts by group and slot.
pub type Sides = BTreeMap<(GroupId, u32, RolloutId), Side>;

/// The rollouts of a group under its selection, by slot.
pub fn sides(view: &View<'_>) -> impl Iterator<Item = ((GroupId, u32, RolloutId), Side)> {
    view.slots().map(|slot| {
        let rollout = slot.rollout;
        let key = (view.group.group_id.clone(), rollout.slot, rollout.rollout_id.clone());
        (key, side(slot))
    })
}

fn side(slot: Slot<'_>) -> Side {
    Side {
        call_ids: slot.selection.calls.clone(),
        rows: slot.rows().count() as u64,
        row_tokens: slot.own_rows().map(|row| row.input_ids.len() as u64).sum(),
        loss_tokens: slot.loss_tokens(),
        advantage: slot.advantage(),
        verdict: slot.verdict(),
        reasons: slot.reasons(),
        content: content(slot.own_rows()),
    }
}

fn content<'a>(rows: impl Iterator<Item = &'a Row>) -> Digest32 {
    let mut hash = blake3::Hasher::new();
    for row in rows {
        hash.update(&(row.input_ids.len() as u64).to_le_bytes());
        for id in &row.input_ids {
            hash.update(&id.to_le_bytes());
        }
        hash.update(&row.loss_mask);
        for logprob in &row.generation_logprobs {
            hash.update(&logprob.to_le_bytes());
        }
    }
    Digest32(*hash.finalize().as_bytes())
}

/// Compares what [`sides`] gives of all groups.
pub fn compare(left: &Sides, right: &Sides) -> Comparison {
    let keys: BTreeSet<_> = left.keys().chain(right.keys()).collect();
    let mut comparison =
        Comparison { left: totals(left), right: totals(right), ..Comparison::default() };
    for key in keys {
        let (ours, theirs) = (left.get(key), right.get(key));
        let changed = changed(ours, theirs);
        if changed.is_empty() {
            comparison.equal += 1;
            continue;
        }
        let calls = |side: Option<&Side>| side.map_or(Vec::new(), |side| side.call_ids.clone());
        let (a, b) = (calls(ours), calls(theirs));
        let beyond = |calls: &[CallId], others: &[CallId]| -> Vec<CallId> {
            let others: BTreeSet<&CallId> = others.iter().collect();
            calls.iter().filter(|id| !others.contains(id)).cloned().collect()
        };
        comparison.rollouts.push(Difference {
            group_id: key.0.clone(),
            rollout_id: key.2.clone(),
            changed,
            only_left: beyond(&a, &b),
            only_right: beyond(&b, &a),
            left: ours.cloned(),
            right: theirs.cloned(),
        });
    }
    comparison
}

fn changed(left: Option<&Side>, right: Option<&Side>) -> BTreeSet<Changed> {
    let (Some(a), Some(b)) = (left, right) else { return [Changed::Presence].into() };
    let rows = (a.rows, a.row_tokens, a.content) != (b.rows, b.row_tokens, b.content);
    let differ = [
        (Changed::Selection, a.call_ids != b.call_ids),
        (Changed::Rows, rows),
        (Changed::LossTokens, a.loss_tokens != b.loss_tokens),
        (Changed::Advantage, a.advantage != b.advantage),
        (Changed::Verdict, a.verdict != b.verdict),
        (Changed::Reasons, a.reasons != b.reasons),
    ];
    differ.into_iter().filter_map(|(what, differs)| differs.then_some(what)).collect()
}

fn totals(sides: &Sides) -> Totals {
    let mut totals = Totals::default();
    let mut dropped = BTreeSet::new();
    for ((group_id, ..), side) in sides {
        totals.rollouts += 1;
        totals.valid_rollouts += u64::from(side.verdict == Verdict::Valid);
        totals.selected_calls += side.call_ids.len() as u64;
        totals.rows += side.rows;
        totals.row_tokens += side.row_tokens;
        totals.loss_tokens += side.loss_tokens;
        if side.verdict == Verdict::Dropped {
            dropped.insert(group_id);
        }
    }
    totals.dropped_groups = dropped.len() as u64;
    totals
}
