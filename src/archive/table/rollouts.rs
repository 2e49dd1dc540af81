//! `rollouts/`: one row per logical rollout.

use arrow::datatypes::{Float64Type, UInt32Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use super::columns::{Columns, Draft};
use super::{Fault, Owner, each};
use crate::archive::content::Known;
use crate::archive::{Completeness, Ledger, Rollout, SourceKind};
use crate::columnar::RowGroup;
use crate::id::Digest32;

const SOURCES: [(&str, SourceKind); 3] = [
    ("staged", SourceKind::Staged),
    ("gym_store", SourceKind::GymStore),
    ("inline_rollouts", SourceKind::InlineRollouts),
];
const COMPLETENESS: [(&str, Completeness); 3] = [
    ("complete", Completeness::Complete),
    ("incomplete", Completeness::Incomplete),
    ("unknown", Completeness::Unknown),
];

/// Bytes of a row, about.
pub(in crate::archive) fn size(owner: &Owner<'_>) -> usize {
    256 + owner.rollout.result.as_ref().map_or(0, String::len)
}

/// Rollouts, each with its digest.
pub(in crate::archive) fn encode(
    rows: &[(Owner<'_>, Digest32)],
) -> Result<RowGroup<'static>, ArrowError> {
    let rollouts = || rows.iter().map(|(row, _)| row.rollout);
    let draft = Draft::default()
        .text("group_id", rows.iter().map(|(row, _)| row.group.group_id.as_str()))
        .text("rollout_id", rollouts().map(|r| r.rollout_id.as_str()))
        .number::<UInt32Type>("slot", rollouts().map(|r| r.slot))
        .number::<UInt32Type>("group_size", rollouts().map(|r| r.group_size))
        .text("capture_key", rollouts().map(|r| r.capture_key.as_str()))
        .number_or_null::<Float64Type>("reward", rollouts().map(|r| r.reward))
        .flag("mask_sample", rollouts().map(|r| Some(r.mask_sample)))
        .text("source", rollouts().map(|r| word(&SOURCES, r.source)))
        .text("completeness", rollouts().map(|r| word(&COMPLETENESS, r.completeness)))
        .long_text(RESULT, rollouts().map(|r| r.result.as_deref()))
        .digest("digest", rows.iter().map(|(_, digest)| Some(*digest)))?;
    Ok(draft.finish())
}

/// Columns that [`known`] reads.
pub(in crate::archive) const KNOWN: [&str; 5] =
    ["group_id", "rollout_id", "slot", "group_size", "digest"];

/// Identities and digests.
pub(in crate::archive) fn known(batch: &RecordBatch) -> Result<Vec<Known>, Fault> {
    let mut all = Vec::with_capacity(batch.num_rows());
    each(batch, |row, at| {
        all.push(known_at(row, at)?);
        Ok(())
    })?;
    Ok(all)
}

fn known_at(row: &Columns<'_>, at: usize) -> Result<Known, Fault> {
    Ok(Known {
        group_id: row.text("group_id", at)?.into(),
        slot: row.number::<UInt32Type>("slot", at)?,
        rollout_id: row.text("rollout_id", at)?.into(),
        group_size: row.number::<UInt32Type>("group_size", at)?,
        digest: row.digest("digest", at)?.ok_or("column digest is null")?,
    })
}

/// All columns.
pub(in crate::archive) const COLUMNS: [&str; 11] = [
    "group_id",
    "rollout_id",
    "slot",
    "group_size",
    "digest",
    "capture_key",
    "reward",
    "mask_sample",
    "source",
    "completeness",
    RESULT,
];

/// The same but for the results.
pub(in crate::archive) const WITHOUT_RESULT: [&str; 10] = {
    let [rest @ .., _] = COLUMNS;
    rest
};

const RESULT: &str = "result";

/// Rollouts without their ledgers and calls, each with what is known of it. Of `columns`, which
/// the batch must have, the results may be missing.
pub(in crate::archive) fn decode(
    batch: &RecordBatch,
    columns: &[&str],
) -> Result<Vec<(Known, Rollout)>, Fault> {
    let with_result = columns.contains(&RESULT);
    let mut rollouts = Vec::with_capacity(batch.num_rows());
    each(batch, |row, at| {
        let known = known_at(row, at)?;
        let rollout = Rollout {
            rollout_id: known.rollout_id.clone(),
            slot: known.slot,
            group_size: known.group_size,
            capture_key: row.text("capture_key", at)?.into(),
            reward: row.number_or_null::<Float64Type>("reward", at)?,
            mask_sample: row.flag("mask_sample", at)?.unwrap_or(false),
            result: match with_result {
                true => row.text_or_null(RESULT, at)?.map(str::to_owned),
                false => None,
            },
            source: value("source", &SOURCES, row.text("source", at)?)?,
            completeness: value("completeness", &COMPLETENESS, row.text("completeness", at)?)?,
            ledger: Ledger::default(),
            calls: Vec::new(),
        };
        rollouts.push((known, rollout));
        Ok(())
    })?;
    Ok(rollouts)
}

fn word<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, v)| *v == value).map_or("", |(word, _)| word)
}

fn value<T: Copy>(column: &str, words: &[(&str, T)], text: &str) -> Result<T, Fault> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| format!("{text:?} is no word of column {column}"))
}
