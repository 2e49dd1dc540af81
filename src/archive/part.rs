//! The tables of one part.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use rayon::prelude::*;
use serde::Serialize;

use super::content::Known;
use super::manifest::{FileEntry, part_path};
use super::pieces::{MEDIA, batches, schema};
use super::table::{self, Owner, calls, ledger, origins, rollouts};
use super::{Group, Piece, PieceSources};
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
    write_batches(dir, &path, schema()?, pieces.len(), batches(pieces, sources))
}

/// Writes one table, a row group per chunk of rows.
fn write_table<T>(
    dir: &Path,
    path: String,
    rows: &[T],
    size: impl Fn(&T) -> usize,
    encode: impl Fn(&[T]) -> Result<RecordBatch, ArrowError>,
) -> Result<FileEntry> {
    let failed = |e| Error::format(format!("cannot write {path}")).because(e);
    let schema = encode(&[]).map_err(failed)?.schema();
    let batches = table::chunks(rows, size).map(|chunk| encode(chunk).map_err(failed));
    write_batches(dir, &path, schema, rows.len(), batches)
}

/// Writes each batch as a row group.
fn write_batches(
    dir: &Path,
    path: &str,
    schema: SchemaRef,
    rows: usize,
    batches: impl Iterator<Item = Result<RecordBatch>>,
) -> Result<FileEntry> {
    let whole = dir.join(path);
    let failed = |e| unwritten(&whole, e);
    if let Some(folder) = whole.parent() {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("cannot create", folder, e))?;
    }
    let file = File::create(&whole).map_err(|e| Error::io("cannot create", &whole, e))?;
    let mut sink = Hashing::new(BufWriter::new(file));
    let (mut writer, columns) = ArrowWriter::try_new(&mut sink, schema, Some(properties()))
        .and_then(ArrowWriter::into_serialized_writer)
        .map_err(failed)?;
    for (number, batch) in batches.enumerate() {
        write_row_group(&mut writer, &columns, number, &batch?).map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    sink.entry(path.to_owned(), rows as u64).map_err(|e| Error::io("cannot write", &whole, e))
}

/// Writes a batch as the next row group, its columns encoded in parallel.
fn write_row_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &ArrowRowGroupWriterFactory,
    number: usize,
    batch: &RecordBatch,
) -> Result<(), ParquetError> {
    let mut leaves = Vec::new();
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        leaves.extend(compute_leaves(field, column)?);
    }
    let encoded: Vec<ArrowColumnChunk> = columns
        .create_column_writers(number)?
        .into_par_iter()
        .zip(leaves)
        .map(|(mut column, leaf)| {
            column.write(&leaf)?;
            column.close()
        })
        .collect::<Result<_, _>>()?;
    let mut row_group = writer.next_row_group()?;
    for chunk in encoded {
        chunk.append_to_row_group(&mut row_group)?;
    }
    row_group.close()?;
    Ok(())
}

/// A failure to write a table; the system's own reason, where it was one.
fn unwritten(path: &Path, error: ParquetError) -> Error {
    let doing = "cannot write";
    let other = match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(reason) => return Error::io(doing, path, *reason),
            Err(inner) => ParquetError::External(inner),
        },
        other => other,
    };
    Error::format(format!("{doing} {}", path.display())).because(other)
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

/// Depends on nothing but this version of the code.
fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("forestctl ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_dictionary_enabled(false)
        .set_column_statistics_enabled(ColumnPath::from("data"), EnabledStatistics::None);
    for column in REPEATED {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), true);
    }
    for column in NUMBERS {
        let item = ColumnPath::from(vec![column.into(), "list".into(), "item".into()]);
        properties = properties
            .set_column_statistics_enabled(item.clone(), EnabledStatistics::None)
            .set_column_encoding(item, Encoding::BYTE_STREAM_SPLIT);
    }
    properties.build()
}

/// Writes a text of JSON lines.
pub(super) fn write_lines<T: Serialize>(dir: &Path, path: &str, lines: &[T]) -> Result<FileEntry> {
    let whole = dir.join(path);
    let failed = |e| Error::io("cannot write", &whole, e);
    let mut sink = Hashing::new(BufWriter::new(File::create(&whole).map_err(failed)?));
    for line in lines {
        serde_json::to_writer(&mut sink, line).map_err(|e| failed(e.into()))?;
        sink.write_all(b"\n").map_err(failed)?;
    }
    sink.entry(path.to_owned(), lines.len() as u64).map_err(failed)
}

/// Writes a whole text.
pub(super) fn write_text(dir: &Path, path: &str, text: &str) -> Result<()> {
    let whole = dir.join(path);
    std::fs::write(&whole, text).map_err(|e| Error::io("cannot write", &whole, e))
}

/// Hashes what passes through.
struct Hashing<W> {
    inner: W,
    hasher: Box<blake3::Hasher>,
    bytes: u64,
}

impl<W: Write> Hashing<W> {
    fn new(inner: W) -> Self {
        Self { inner, hasher: Box::default(), bytes: 0 }
    }

    fn entry(mut self, path: String, rows: u64) -> std::io::Result<FileEntry> {
        self.inner.flush()?;
        let blake3 = Digest32(*self.hasher.finalize().as_bytes());
        Ok(FileEntry { path, bytes: self.bytes, rows, blake3 })
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
