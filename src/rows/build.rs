//! From a selection to the rows of a batch.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::manifest::{Counts, DroppedGroup, GroupRows, OwnerLengths};
use super::model::{Row, Span};
use super::{advantage, routes};
use crate::archive::{Call, Group, Rollout};
use crate::config::GrpoSettings;
use crate::finding::Finding;
use crate::forest::{Forest, Path};
use crate::id::CallId;
use crate::select::{GroupSelection, RolloutSelection, Selection, Verdict, parents};

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
    /// One observation per rollout.
    pub lengths: Vec<OwnerLengths>,
}

/// Builds the rows of `selection` over the same `groups`.
///
/// Invalid owners of a kept group get one masked stand-in on borrowed input (rule 105), and each
/// group is filled up to a multiple of `row_multiple` rows (rule 103). Neither votes, trains, nor
/// counts as tokens.
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
    for part in parts {
        batch.rows.extend(part.rows);
        batch.counts.add(&part.counts);
        batch.groups.extend(part.groups);
        batch.dropped_groups.extend(part.dropped_groups);
        batch.lengths.extend(part.lengths);
    }
    batch
}

/// Builds the rows of one group.
pub fn build_group(
    group: &Group,
    selection: &GroupSelection,
    row_multiple: u32,
    grpo: &GrpoSettings,
) -> Batch {
    let owners: Vec<Owner> = group
        .rollouts
        .iter()
        .zip(&selection.rollouts)
        .map(|(rollout, selection)| Owner::new(rollout, selection))
        .collect();
    let mut batch = Batch {
        lengths: owners.iter().map(Owner::lengths).collect(),
        counts: Counts { groups: 1, rollouts: owners.len() as u64, ..Counts::default() },
        ..Batch::default()
    };
    let layout = owners.iter().find_map(|owner| owner.rows(group).into_iter().next());
    let (Some(layout), None) = (layout, selection.dropped) else {
        let reason = selection.dropped.unwrap_or(crate::finding::Code::NoVerifiedLayout);
        batch.counts.dropped_groups = 1;
        batch.dropped_groups.push(DroppedGroup {
            group_id: group.group_id.clone(),
            reason: reason.as_str().to_owned(),
        });
        return batch;
    };
    let mut rows = Vec::new();
    for owner in &owners {
        let own = owner.rows(group);
        match own.is_empty() {
            true => rows.push(owner.stand_in(&layout)),
            false => rows.extend(own),
        }
    }
    let missing = (rows.len() as u64).wrapping_neg() % u64::from(row_multiple.max(1));
    rows.extend((0..missing).map(|k| padding(&layout, k)));
    advantage::assign(&mut rows, grpo, &BTreeMap::new());

    let valid = || owners.iter().filter(|o| o.selection.verdict() == Verdict::Valid);
    let counts = &mut batch.counts;
    counts.valid_rollouts = valid().count() as u64;
    counts.unique_tokens = valid().flat_map(|o| &o.calls).map(|c| c.token_ids.len() as u64).sum();
    for row in &rows {
        counts.rows += 1;
        counts.padding_rows += u64::from(row.is_execution_padding);
        if row.is_execution_padding {
            continue;
        }
        counts.masked_rows += u64::from(row.sample_mask == 0.0);
        if row.sample_mask != 0.0 {
            counts.loss_tokens += row.loss_tokens() as u64;
        }
        let owner = owners.iter().find(|o| Some(&o.rollout.rollout_id) == row.rollout_id.as_ref());
        if owner.is_some_and(|o| o.selection.verdict() == Verdict::Valid) {
            counts.row_tokens += row.input_ids.len() as u64;
        }
    }
    batch.groups.push(GroupRows {
        group_id: group.group_id.clone(),
        rollouts: owners.len() as u32,
        valid_rollouts: valid().count() as u32,
        weight_version: oldest_weights(&rows),
        row_ids: rows.iter().map(|row| row.row_id.clone()).collect(),
    });
    batch.rows = rows;
    batch
}

/// Oldest weights among the spans of rows with input of their own; `None` when one is unknown.
fn oldest_weights(rows: &[Row]) -> Option<u64> {
    let spans = rows.iter().filter(|row| !row.uses_borrowed_input).flat_map(|row| &row.spans);
    spans.map(|span| span.weight_version).min().flatten()
}
