//! The table of calls of a part, read row group by row group in parallel.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use rayon::prelude::*;

use super::manifest::part_path;
use super::read::quietly;
use super::table::Fault;
use super::table::calls::{self, Lists, Numbered};
use super::{Archive, Call};
use crate::error::Result;
use crate::id::{GroupId, RolloutId};

/// Rows that are decoded at a time; few enough for their lists to stay in a cache.
const BATCH_ROWS: usize = 256;

/// Calls of one rollout that stand together, each with its place among all of that rollout's.
pub(super) struct Run {
    pub group_id: GroupId,
    pub rollout_id: RolloutId,
    pub calls: Vec<(u32, Call)>,
}

impl Archive {
    /// The calls of a part in order, their origins left open.
    pub(super) fn calls(&self, part: u64) -> Result<Vec<Run>> {
        let path = part_path("calls", part);
        let rows = self.manifest().file(&path).map_or(0, |file| file.rows);
        let bytes = Bytes::from(self.file(&path)?);
        let open = || {
            let options = ArrowReaderOptions::default();
            ArrowReaderMetadata::load(&bytes, options).map_err(|e| e.to_string())
        };
        let read = || {
            let metadata = decoded(open)?;
            let groups = metadata.metadata().num_row_groups();
            let runs: Vec<_> = (0..groups)
                .into_par_iter()
                .map(|group| decoded(|| row_group(&bytes, &metadata, group)))
                .collect::<Result<_, Fault>>()?;
            let runs: Vec<Run> = runs.into_iter().flatten().collect();
            let seen: u64 = runs.iter().map(|run| run.calls.len() as u64).sum();
            match seen == rows {
                true => Ok(runs),
                false => Err(format!("{seen} rows, where the manifest says {rows}")),
            }
        };
        read().map_err(|what: Fault| self.corrupt(&path, &what))
    }
}

/// Runs a decoder, which a file can bring to panic.
fn decoded<T>(decode: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    let undecodable = || Err("not a Parquet file that can be decoded".to_owned());
    quietly(AssertUnwindSafe(decode)).unwrap_or_else(undecodable)
}

fn row_group(
    bytes: &Bytes,
    metadata: &ArrowReaderMetadata,
    group: usize,
) -> Result<Vec<Run>, Fault> {
    let mut lists = Lists::open(bytes, metadata, group)?;
    let schema = metadata.parquet_schema();
    let others = schema.root_schema().get_fields().iter().enumerate();
    let others = others.filter(|(_, field)| !Lists::COLUMNS.contains(&field.name()));
    let reader =
        ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(ProjectionMask::roots(schema, others.map(|(at, _)| at)))
            .with_batch_size(BATCH_ROWS)
            .build()
            .map_err(|e| e.to_string())?;
    let before = metadata.metadata().row_groups().iter().take(group);
    let mut seen = before.fold(0_i64, |rows, group| rows.saturating_add(group.num_rows()));
    let mut runs: Vec<Run> = Vec::new();
    for batch in reader {
        let batch = batch.map_err(|e| e.to_string())?;
        let after = |fault| format!("after row {seen}: {fault}");
        lists.read(batch.num_rows()).map_err(after)?;
        calls::decode(&batch, &lists, |Numbered { group_id, rollout_id, index, call }| {
            let same = |run: &&mut Run| {
                run.rollout_id.as_str() == rollout_id && run.group_id.as_str() == group_id
            };
            match runs.last_mut().filter(same) {
                Some(run) => run.calls.push((index, call)),
                None => runs.push(Run {
                    group_id: group_id.into(),
                    rollout_id: rollout_id.into(),
                    calls: vec![(index, call)],
                }),
            }
        })
        .map_err(after)?;
        seen = seen.saturating_add(batch.num_rows() as i64);
    }
    Ok(runs)
}
