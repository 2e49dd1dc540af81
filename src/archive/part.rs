//! The tables of one part.

use std::path::Path;

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use serde::Serialize;

use super::content::Known;
use super::manifest::{FileEntry, part_path};
use super::pieces::{MEDIA, row_groups, schema};
use super::table::{self, Owner, calls, ledger, origins, rollouts};
use super::{Group, Piece, PieceSources};
use crate::columnar::{self, RowGroup};
use crate::error::{Error, Result};
use crate::id::Digest32;

/// Bytes of a group before compression, about.
pub(super) fn weight(group: &Group) -> usize {
    let of = |owner: Owner<'_>| -> usize {
        let calls: usize = call_rows(owner).map(|row| calls::size(&row)).sum();
        let ledger: usize = ledger::rows(owner).map(|row| ledger::size(&row)).sum();
        rollouts::size(&owner) + calls + ledger
    };
    table::owners(std::slice::from_ref(group)).map(of).sum()
}

fn call_rows(owner: Owner<'_>) -> impl Iterator<Item = calls::CallRow<'_>> {
    let calls = owner.rollout.calls.iter().enumerate();
    calls.map(move |(at, call)| calls::CallRow { owner, index: at as u32, call })
}

/// Writes the tables of a part. `known` has the rollouts of `groups` in order.
pub(super) fn write(
    dir: &Path,
    number: u64,
    groups: &[Group],
    known: &[Known],
) -> Result<Vec<FileEntry>> {
    let owners: Vec<_> = table::owners(groups).collect();
    let call_rows: Vec<_> = owners.iter().copied().flat_map(call_rows).collect();
    let ledger_rows: Vec<_> = owners.iter().copied().flat_map(ledger::rows).collect();
    let rollout_rows: Vec<_> = owners.iter().copied().zip(known.iter().map(|k| k.digest)).collect();
    let path = |table| part_path(table, number);
    let calls = || write_table(dir, path("calls"), &call_rows, calls::size, calls::encode);
    let others = || {
        Ok(vec![
            write_table(dir, path("ledger"), &ledger_rows, ledger::size, ledger::encode)?,
            write_table(dir, path("origins"), &call_rows, |_| 128, origins::encode)?,
            write_table(
                dir,
                path("rollouts"),
                &rollout_rows,
                |(owner, _)| rollouts::size(owner),
                rollouts::encode,
            )?,
        ])
    };
    let (calls, others) = rayon::join(calls, others);
    let mut files = others?;
    files.push(calls?);
    Ok(files)
}

/// Writes tensor data as media file `number`.
pub(super) fn write_media(
    dir: &Path,
    number: u64,
    pieces: &[Piece],
    sources: &PieceSources,
) -> Result<FileEntry> {
    let path = part_path(MEDIA, number);
    write_row_groups(dir, &path, schema()?, pieces.len(), row_groups(pieces, sources))
}

/// Writes one table, a row group per chunk of rows.
fn write_table<'a, 'r, T>(
    dir: &Path,
    path: String,
    rows: &'a [T],
    size: impl Fn(&T) -> usize + 'a,
    encode: impl Fn(&'a [T]) -> Result<RowGroup<'r>, ArrowError>,
) -> Result<FileEntry> {
    let failed = |e| Error::format(format!("cannot write {path}")).because(e);
    let schema = encode(&[]).map_err(failed)?.schema().clone();
    let row_groups = table::chunks(rows, size).map(|chunk| encode(chunk).map_err(failed));
    write_row_groups(dir, &path, schema, rows.len(), row_groups)
}

fn write_row_groups<'a>(
    dir: &Path,
    path: &str,
    schema: SchemaRef,
    rows: usize,
    row_groups: impl Iterator<Item = Result<RowGroup<'a>>>,
) -> Result<FileEntry> {
    let (bytes, blake3) = columnar::write(&dir.join(path), schema, properties(), row_groups)?;
    Ok(FileEntry { path: path.to_owned(), bytes, rows: rows as u64, blake3 })
}

/// Columns whose values repeat; any other would only be slower for a dictionary.
const REPEATED: [&str; 20] = [
    "group_id",
    "rollout_id",
    "capture_key",
    "mode",
    "weight_version",
    "schema_version",
    "digest_version",
    "extras_digest_version",
    "source",
    "completeness",
    "kind",
    "status",
    "finish_reason",
    "fingerprint_version",
    "reason",
    "file",
    "slot",
    "group_size",
    "reward",
    "extras",
];

/// Lists of numbers of which no two are alike; their bytes by place are.
const NUMBERS: [&str; 3] = ["token_ids", "generation_logprobs", "raw_logprobs"];

fn properties() -> WriterProperties {
    let text = |name: &str| ColumnPath::from(name);
    columnar::properties(&REPEATED.map(text), &NUMBERS.map(columnar::list_items))
        .set_column_statistics_enabled(text("data"), EnabledStatistics::None)
        .build()
}

/// A line of JSON for each value.
pub(super) fn lines(values: &[impl Serialize]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for value in values {
        serde_json::to_writer(&mut text, value)
            .map_err(|e| Error::format("cannot write JSON").because(e))?;
        text.push(b'\n');
    }
    Ok(text)
}

/// Writes a text of JSON lines.
pub(super) fn write_lines<T: Serialize>(dir: &Path, path: &str, values: &[T]) -> Result<FileEntry> {
    let text = lines(values)?;
    let whole = dir.join(path);
    std::fs::write(&whole, &text).map_err(|e| Error::io("cannot write", &whole, e))?;
    Ok(FileEntry {
        path: path.to_owned(),
        bytes: text.len() as u64,
        rows: values.len() as u64,
        blake3: Digest32(*blake3::hash(&text).as_bytes()),
    })
}

/// Writes a whole text.
pub(super) fn write_text(dir: &Path, path: &str, text: &str) -> Result<()> {
    let whole = dir.join(path);
    std::fs::write(&whole, text).map_err(|e| Error::io("cannot write", &whole, e))
}
