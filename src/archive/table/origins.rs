//! `origins/`: where each call was read. The one table that tells how lines were spread over
//! files, and therefore kept apart.

use arrow::datatypes::{UInt32Type, UInt64Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use super::calls::CallRow;
use super::columns::Draft;
use super::{Fault, each};
use crate::archive::Origin;
use crate::columnar::RowGroup;

pub(in crate::archive) fn encode(rows: &[CallRow<'_>]) -> Result<RowGroup<'static>, ArrowError> {
    let draft = Draft::default()
        .text("group_id", rows.iter().map(|row| row.owner.group.group_id.as_str()))
        .text("rollout_id", rows.iter().map(|row| row.owner.rollout.rollout_id.as_str()))
        .number::<UInt32Type>("call_index", rows.iter().map(|row| row.index))
        .text("file", rows.iter().map(|row| row.call.origin.file.as_str()))
        .number::<UInt64Type>("line", rows.iter().map(|row| row.call.origin.line));
    Ok(draft.finish())
}

/// Reads the origins of a batch; `give` gets group, rollout, the call's place, and its origin.
pub(in crate::archive) fn decode(
    batch: &RecordBatch,
    mut give: impl FnMut(&str, &str, u32, Origin) -> Result<(), Fault>,
) -> Result<(), Fault> {
    each(batch, |row, at| {
        let origin = Origin {
            file: row.text("file", at)?.to_owned(),
            line: row.number::<UInt64Type>("line", at)?,
        };
        let (group_id, rollout_id) = (row.text("group_id", at)?, row.text("rollout_id", at)?);
        give(group_id, rollout_id, row.number::<UInt32Type>("call_index", at)?, origin)
    })
}
