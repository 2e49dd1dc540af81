//! From a selection to the rows of a batch.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::advantage;
use super::manifest::{Counts, DroppedGroup, GroupRows, OwnerLengths};
use super::model::Row;
use super::owner::Owner;
use crate::archive::Group;
use crate::config::GrpoSettings;
use crate::finding::Code;
use crate::id::RolloutId;
use crate::select::{GroupSelection, Selection, Verdict};

/// Rows of all kept groups, with what the manifest says of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// By group, slot and segment, then each group's padding.
    pub rows: Vec<Row>,
    /// Counts over the rows.
    pub counts: Counts,
    /// Kept groups, in row order.
    pub groups: Vec<GroupRows>,
    /// Groups left out.
    pub dropped_groups: Vec<DroppedGroup>,
    /// Masked rollouts by the first reason.
    pub masked: BTreeMap<String, u64>,
    /// Rollouts by every reason that masks them, whichever comes first.
    pub reasons: BTreeMap<String, u64>,
    /// One observation per rollout.
    pub lengths: Vec<OwnerLengths>,
}

/// Builds the rows of `selection` over the same `groups`.
///
/// Invalid owners of a kept group get one masked stand-in on borrowed input (rule 105), and each
/// group is filled up to a multiple of `row_multiple` rows (rule 103). Neither trains nor counts
/// as tokens, and padding has no vote either (rule 104).
pub fn build(
    groups: &[Group],
    selection: &Selection,
    row_multiple: u32,
    grpo: &GrpoSettings,
) -> Batch {
    let parts: Vec<Batch> = groups
        .par_iter()
        .zip(&selection.groups)
        .map(|(group, selection)| build_group(group, selection, row_multiple, grpo))
        .collect();
    let mut batch = Batch::default();
    parts.into_iter().for_each(|part| batch.add(part));
    batch
}

impl Batch {
    /// Masks rollouts that a learner-side filter found, with the code that says so, and computes
    /// the advantages again.
    pub fn mask(&mut self, found: &BTreeMap<RolloutId, Code>, grpo: &GrpoSettings) {
        advantage::assign(&mut self.rows, grpo, found);
        count(&self.rows, &mut self.counts);
    }

    /// Adds the groups that follow.
    pub fn add(&mut self, next: Batch) {
        self.rows.extend(next.rows);
        self.counts.add(&next.counts);
        self.groups.extend(next.groups);
        self.dropped_groups.extend(next.dropped_groups);
        self.lengths.extend(next.lengths);
        for (sum, counts) in [(&mut self.masked, next.masked), (&mut self.reasons, next.reasons)] {
            for (reason, count) in counts {
                *sum.entry(reason).or_default() += count;
            }
        }
    }
}

/// Builds the rows of one group.
pub fn build_group(
    group: &Group,
    selection: &GroupSelection,
    row_multiple: u32,
    grpo: &GrpoSettings,
) -> Batch {
    let rollouts = group.rollouts.iter().zip(&selection.rollouts);
    let owners: Vec<Owner> = rollouts.map(|(r, s)| Owner::new(&group.group_id, r, s)).collect();
    let mut batch = Batch {
        lengths: owners.iter().map(Owner::lengths).collect(),
        counts: Counts { groups: 1, rollouts: owners.len() as u64, ..Counts::default() },
        ..Batch::default()
    };
    for rollout in &selection.rollouts {
        let codes: BTreeSet<Code> = rollout.reasons.iter().map(|reason| reason.code).collect();
        for code in codes {
            *batch.reasons.entry(code.as_str().to_owned()).or_default() += 1;
        }
        if let Some(first) = rollout.reasons.first() {
            *batch.masked.entry(first.code.as_str().to_owned()).or_default() += 1;
        }
    }
    let layout = owners.iter().find_map(|owner| owner.rows.first()).cloned();
    let (Some(layout), None) = (layout, selection.dropped) else {
        batch.counts.dropped_groups = 1;
        batch.dropped_groups.push(DroppedGroup {
            group_id: group.group_id.clone(),
            reason: selection.dropped.unwrap_or(Code::NoVerifiedLayout).as_str().to_owned(),
        });
        return batch;
    };
    let counts = &mut batch.counts;
    let mut rows = Vec::new();
    for owner in owners {
        if owner.selection.verdict() == Verdict::Valid {
            counts.valid_rollouts += 1;
            counts.unique_tokens += owner.unique_tokens();
            counts.row_tokens += owner.rows.iter().map(|r| r.input_ids.len() as u64).sum::<u64>();
        }
        match owner.rows.is_empty() {
            true => rows.push(owner.stand_in(&layout)),
            false => rows.extend(owner.rows),
        }
    }
    let missing = rows.len().next_multiple_of(row_multiple.max(1) as usize) - rows.len();
    rows.extend((0..missing).map(|k| padding(&layout, k)));
    advantage::assign(&mut rows, grpo, &BTreeMap::new());
    count(&rows, counts);
    batch.groups.push(GroupRows {
        group_id: group.group_id.clone(),
        rollouts: group.rollouts.len() as u32,
        valid_rollouts: counts.valid_rollouts as u32,
        weight_version: oldest_weights(&rows),
        row_ids: rows.iter().map(|row| row.row_id.clone()).collect(),
    });
    batch.rows = rows;
    batch
}

/// Counts physical rows and what trains of them.
fn count(rows: &[Row], counts: &mut Counts) {
    let trains = |row: &&Row| row.sample_mask != 0.0;
    let masked = |row: &&Row| !trains(row) && !row.is_execution_padding;
    counts.rows = rows.len() as u64;
    counts.padding_rows = rows.iter().filter(|row| row.is_execution_padding).count() as u64;
    counts.masked_rows = rows.iter().filter(masked).count() as u64;
    counts.loss_tokens = rows.iter().filter(trains).map(|row| row.loss_tokens() as u64).sum();
}

/// Oldest weights among the spans of rows with input of their own; `None` when one is unknown.
fn oldest_weights(rows: &[Row]) -> Option<u64> {
    let spans = rows.iter().filter(|row| !row.uses_borrowed_input).flat_map(|row| &row.spans);
    spans.map(|span| span.weight_version).min().flatten()
}

fn padding(layout: &Row, k: usize) -> Row {
    Row {
        row_id: format!("{}_pad{k}", layout.group_id),
        rollout_id: None,
        slot: None,
        segment_count: 0,
        is_execution_padding: true,
        reward: Some(0.0),
        ..layout.borrowed()
    }
}
