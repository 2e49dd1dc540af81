//! The tables of a part: rows to Arrow columns and back.

pub(super) mod calls;
mod columns;
pub(super) mod ledger;
mod lists;
pub(super) mod media;
pub(super) mod origins;
pub(super) mod rollouts;

use arrow::record_batch::RecordBatch;
use columns::Columns;

use super::{Group, Rollout};

/// What is wrong with a table, without the name of its file.
pub(super) type Fault = String;

/// A rollout with the group that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    pub group: &'a Group,
    pub rollout: &'a Rollout,
}

/// The rollouts of some groups in order.
pub(super) fn owners(groups: &[Group]) -> impl Iterator<Item = Owner<'_>> {
    groups
        .iter()
        .flat_map(|group| group.rollouts.iter().map(move |rollout| Owner { group, rollout }))
}

/// Bytes of a row group before compression, unless one row is larger.
const ROW_GROUP_BYTES: usize = 16 << 20;

/// Cuts rows into row groups by their sizes.
pub(super) fn chunks<'a, T>(
    rows: &'a [T],
    size: impl Fn(&T) -> usize + 'a,
) -> impl Iterator<Item = &'a [T]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let mut end = 0;
        for row in rest {
            bytes += size(row);
            if end > 0 && bytes > ROW_GROUP_BYTES {
                break;
            }
            end += 1;
        }
        let (chunk, later) = rest.split_at(end);
        rest = later;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Reads the rows of a batch with `row`, which gets the columns and the row's index.
fn each<'b>(
    batch: &'b RecordBatch,
    mut row: impl FnMut(&Columns<'b>, usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let columns = Columns::new(batch);
    (0..batch.num_rows())
        .try_for_each(|at| row(&columns, at).map_err(|fault| format!("row {at}: {fault}")))
}
