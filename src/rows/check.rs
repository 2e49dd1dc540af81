//! What the rows of a directory must agree on, beyond each row's own layout.

use std::collections::{BTreeMap, BTreeSet};

use super::manifest::{Counts, Packed};
use super::model::Row;
use crate::id::{CallId, RolloutId};

/// The first contradiction among all rows of a directory, by row and column.
pub fn contradiction(rows: &[Row]) -> Option<String> {
    let mut ids = BTreeSet::new();
    let mut owners: BTreeMap<&RolloutId, Vec<&Row>> = BTreeMap::new();
    let mut calls: BTreeMap<(&RolloutId, &CallId), &Row> = BTreeMap::new();
    for row in rows {
        let told = |what: String| Some(format!("row {}: {what}", row.row_id));
        if !ids.insert(&row.row_id) {
            return told("row_id appears twice".to_owned());
        }
        if let Some(what) = standing(row) {
            return told(what);
        }
        let Some(rollout) = &row.rollout_id else { continue };
        for span in row.spans.iter().filter(|span| span.owned) {
            if let Some(other) = calls.insert((rollout, &span.call), row) {
                return told(format!(
                    "spans own call {}, which row {} owns already",
                    span.call, other.row_id
                ));
            }
        }
        let siblings = owners.entry(rollout).or_default();
        if let Some(column) = siblings.first().and_then(|first| differing(first, row)) {
            return told(format!("{column} differs from that of row {}", siblings[0].row_id));
        }
        if row.segment as usize != siblings.len() {
            return told(format!("segment is {}, and {} is next", row.segment, siblings.len()));
        }
        siblings.push(row);
    }
    owners.values().find_map(|rows| {
        let (first, count) = (rows.first()?, rows.len());
        (first.segment_count as usize != count).then(|| {
            let said = first.segment_count;
            format!("row {}: segment_count is {said}, and there are {count}", first.row_id)
        })
    })
}

/// Whether one row may train as it says.
fn standing(row: &Row) -> Option<String> {
    let trains = row.sample_mask == 1.0;
    if row.input_ids.is_empty() {
        return Some("input_ids is empty".to_owned());
    }
    if row.is_execution_padding && !row.uses_borrowed_input {
        return Some("uses_borrowed_input is false on execution padding".to_owned());
    }
    if row.uses_borrowed_input && row.loss_tokens() > 0 {
        return Some("loss_mask is set on borrowed input".to_owned());
    }
    if row.loss_mask.first() == Some(&1) {
        return Some("loss_mask is set on the first token, which nothing predicts".to_owned());
    }
    let masked = row.mask_reason.is_some() || row.is_execution_padding;
    if !trains && row.sample_mask != 0.0 {
        return Some(format!("sample_mask is {}; it must be 0 or 1", row.sample_mask));
    }
    if trains == masked {
        return Some(format!("sample_mask is {}, against its mask_reason", row.sample_mask));
    }
    if !row.advantage.is_finite() {
        return Some(format!("advantage is {}; it must be finite", row.advantage));
    }
    if trains && !row.reward.is_some_and(f64::is_finite) {
        return Some("reward is missing or not finite, and the row trains".to_owned());
    }
    let owned = row.loss_mask.iter().zip(&row.generation_logprobs);
    let bad =
        owned.enumerate().find(|(_, (m, x))| **m == 1 && (x.is_nan() || **x == f32::INFINITY));
    bad.filter(|_| trains)
        .map(|(token, (_, x))| format!("generation_logprobs is {x} at its trained token {token}"))
}

/// The first column that rows of one rollout must share and do not.
fn differing(a: &Row, b: &Row) -> Option<&'static str> {
    let shared = [
        ("group_id", a.group_id == b.group_id),
        ("slot", a.slot == b.slot),
        ("group_size", a.group_size == b.group_size),
        ("segment_count", a.segment_count == b.segment_count),
        ("reward", a.reward.map(f64::to_bits) == b.reward.map(f64::to_bits)),
        ("advantage", a.advantage.to_bits() == b.advantage.to_bits()),
        ("sample_mask", a.sample_mask == b.sample_mask),
        ("truncated", a.truncated == b.truncated),
        ("mask_reason", a.mask_reason == b.mask_reason),
    ];
    shared.into_iter().find(|(_, same)| !same).map(|(column, _)| column)
}

/// The first count that the rows say otherwise, with what was stated and what was found.
pub fn miscount(stated: &Counts, rows: &[Row]) -> Option<(&'static str, u64, u64)> {
    let count = |f: fn(&Row) -> bool| rows.iter().filter(|row| f(row)).count() as u64;
    let trains = |row: &&Row| row.sample_mask == 1.0;
    let tokens: usize = rows.iter().filter(trains).map(Row::loss_tokens).sum();
    [
        ("rows", stated.rows, rows.len() as u64),
        ("padding_rows", stated.padding_rows, count(|r| r.is_execution_padding)),
        (
            "masked_rows",
            stated.masked_rows,
            count(|r| r.sample_mask != 1.0 && !r.is_execution_padding),
        ),
        ("loss_tokens", stated.loss_tokens, tokens as u64),
    ]
    .into_iter()
    .find(|(_, stated, found)| stated != found)
}

/// What is wrong with bins of rows.
pub(super) fn misfit(packed: &Packed, rows: &[Row]) -> Option<String> {
    let mut seen = vec![false; rows.len()];
    let multiple = packed.settings.row_pad_multiple.max(1);
    for (at, bin) in packed.bins.iter().enumerate() {
        let mut tokens = 0_u64;
        for &row in bin {
            let place = seen.get_mut(row as usize);
            let Some(new) = place.filter(|seen| !**seen) else {
                return Some(format!(
                    "bin {at} of rows.json holds row {row}, which is not there, or in another bin too"
                ));
            };
            *new = true;
            let length = rows[row as usize].input_ids.len() as u64;
            let padded = length.checked_next_multiple_of(multiple).unwrap_or(u64::MAX);
            tokens = tokens.saturating_add(padded);
        }
        if tokens > packed.settings.bin_tokens {
            return Some(format!("bin {at} of rows.json holds {tokens} tokens"));
        }
    }
    let missing = seen.iter().position(|seen| !seen)?;
    Some(format!("no bin of rows.json holds row {missing}"))
}
