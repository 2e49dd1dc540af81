//! Groups to an archive directory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use rayon::prelude::*;
use serde::Serialize;

use super::manifest::{
    self, Counts, FileEntry, FormatVersion, MANIFEST, Manifest, Tool, part_path,
};
use super::pieces::{MEDIA, batches, new_pieces, schema};
use super::table::{self, Owner, calls, ledger, origins, rollouts};
use super::{Archive, Group, Ingested, Piece, PieceSources};
use crate::error::{Error, Result};
use crate::id::Digest32;
use crate::output::AtomicDir;

/// Bytes of captured content after which a part ends, unless one group is larger.
const PART_BYTES: usize = 64 << 20;
/// The quarantine within an archive.
pub(super) const QUARANTINE: &str = "quarantine.jsonl";

/// What [`write()`] put in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Totals.
    pub counts: Counts,
    /// Parts.
    pub parts: u64,
    /// Size of all files.
    pub bytes: u64,
    /// Digest of what was captured ([`Archive::digest`]).
    pub content: Digest32,
    /// The target held this very archive already; nothing was written.
    pub unchanged: bool,
}

/// Writes an archive: whole or not at all, and the same bytes for the same `ingested` whatever
/// the number of threads.
///
/// An existing archive of the same content from the same sources is left as it is.
///
/// # Errors
///
/// Another existing `target` unless `force`; failures to write.
pub fn write(target: &Path, force: bool, ingested: &Ingested) -> Result<Summary> {
    let exists = target.symlink_metadata().is_ok();
    let existing = if exists && !force { Archive::open(target).ok() } else { None };
    // An archive that may turn out to be the same is compared before it is refused.
    let draft = AtomicDir::create(target, force || existing.is_some(), MANIFEST)?;
    let manifest = fill(draft.path(), ingested)?;
    let bytes = manifest.files.iter().map(|file| file.bytes).sum();
    let mut summary = Summary {
        counts: manifest.counts,
        parts: manifest.parts,
        bytes,
        content: manifest.content,
        unchanged: false,
    };
    if let Some(existing) = existing {
        if *existing.manifest() != manifest || !existing.check_files().is_empty() {
            return Err(Error::usage(format!(
                "{} already holds another archive",
                target.display()
            ))
            .help("Choose another output, or replace it with --force"));
        }
        summary.unchanged = true;
        return Ok(summary);
    }
    draft.publish()?;
    Ok(summary)
}

fn fill(dir: &Path, ingested: &Ingested) -> Result<Manifest> {
    for table in manifest::TABLES {
        let folder = dir.join(table);
        std::fs::create_dir(&folder).map_err(|e| Error::io("cannot create", folder, e))?;
    }
    let parts = parts(&ingested.groups);
    let mut stored = BTreeSet::new();
    let media: Vec<_> = parts.iter().map(|groups| new_pieces(groups, &mut stored)).collect();
    let written: Vec<_> = parts
        .par_iter()
        .zip(&media)
        .enumerate()
        .map(|(number, (groups, pieces))| {
            let mut files = part(dir, number as u64, groups)?;
            files.extend(media_file(dir, number as u64, pieces, &ingested.pieces)?);
            Ok(files)
        })
        .collect::<Result<_>>()?;
    let mut files: Vec<FileEntry> = written.into_iter().flatten().collect();
    files.push(quarantine(dir, ingested)?);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut counts = counts(&ingested.groups);
    counts.quarantined = ingested.quarantine.len() as u64;
    let mut manifest = Manifest {
        format: FormatVersion::current(),
        tool: Tool {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        parts: parts.len() as u64,
        counts,
        content: manifest::content(&files),
        files,
        sources: ingested.sources.clone(),
        blake3: String::new(),
    };
    let text = manifest.to_text()?;
    let path = dir.join(MANIFEST);
    std::fs::write(&path, &text).map_err(|e| Error::io("cannot write", &path, e))?;
    manifest.blake3 = Manifest::read(dir)?.blake3;
    Ok(manifest)
}

/// Cuts groups into parts by the size of what they hold.
fn parts(groups: &[Group]) -> Vec<&[Group]> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, group) in groups.iter().enumerate() {
        let size: usize = table::owners(std::slice::from_ref(group)).map(weight).sum();
        if at > start && bytes + size > PART_BYTES {
            parts.push(&groups[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    if start < groups.len() {
        parts.push(&groups[start..]);
    }
    parts
}

fn weight(owner: Owner<'_>) -> usize {
    let calls: usize = call_rows(owner).map(|row| calls::size(&row)).sum();
    let ledger: usize = ledger::rows(owner).map(|row| ledger::size(&row)).sum();
    rollouts::size(&owner) + calls + ledger
}

fn call_rows(owner: Owner<'_>) -> impl Iterator<Item = calls::CallRow<'_>> {
    let calls = owner.rollout.calls.iter().enumerate();
    calls.map(move |(at, call)| calls::CallRow { owner, index: at as u32, call })
}

fn counts(groups: &[Group]) -> Counts {
    let mut counts = Counts { groups: groups.len() as u64, ..Counts::default() };
    for rollout in groups.iter().flat_map(|group| &group.rollouts) {
        counts.rollouts += 1;
        for call in &rollout.calls {
            counts.calls += 1;
            counts.tokens += call.token_ids.len() as u64;
            counts.generated_tokens += call.generation().len() as u64;
        }
    }
    counts
}

fn part(dir: &Path, number: u64, groups: &[Group]) -> Result<Vec<FileEntry>> {
    let owners: Vec<_> = table::owners(groups).collect();
    let call_rows: Vec<_> = owners.iter().copied().flat_map(call_rows).collect();
    let ledger_rows: Vec<_> = owners.iter().copied().flat_map(ledger::rows).collect();
    Ok(vec![
        write_table(dir, part_path("calls", number), &call_rows, calls::size, calls::encode)?,
        write_table(dir, part_path("ledger", number), &ledger_rows, ledger::size, ledger::encode)?,
        write_table(dir, part_path("origins", number), &call_rows, |_| 128, origins::encode)?,
        write_table(dir, part_path("rollouts", number), &owners, rollouts::size, rollouts::encode)?,
    ])
}

/// Writes the pieces that no earlier part stored; no file for none.
fn media_file(
    dir: &Path,
    number: u64,
    pieces: &[Piece],
    sources: &PieceSources,
) -> Result<Option<FileEntry>> {
    if pieces.is_empty() {
        return Ok(None);
    }
    let folder = dir.join(MEDIA);
    std::fs::create_dir_all(&folder).map_err(|e| Error::io("cannot create", folder, e))?;
    let path = part_path(MEDIA, number);
    write_batches(dir, &path, schema()?, pieces.len(), batches(pieces, sources)).map(Some)
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
    let failed =
        |e: ParquetError| Error::format(format!("cannot write {}", whole.display())).because(e);
    let file = File::create(&whole).map_err(|e| Error::io("cannot create", &whole, e))?;
    let mut sink = Hashing::new(BufWriter::new(file));
    let mut writer = ArrowWriter::try_new(&mut sink, schema, Some(properties())).map_err(failed)?;
    for batch in batches {
        writer.write(&batch?).and_then(|()| writer.flush()).map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    sink.entry(path.to_owned(), rows as u64).map_err(|e| Error::io("cannot write", &whole, e))
}

/// Depends on nothing but this version of the code.
fn properties() -> WriterProperties {
    let plain = ["digest", "extras_digest", "chain_hash", "cumulative_hash", "entry_digest"];
    let logprobs = ["generation_logprobs", "raw_logprobs"];
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("forestctl ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    properties = properties
        .set_column_dictionary_enabled(ColumnPath::from("data"), false)
        .set_column_statistics_enabled(ColumnPath::from("data"), EnabledStatistics::None);
    for column in plain {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), false);
    }
    for column in logprobs {
        let item = ColumnPath::from(vec![column.into(), "list".into(), "item".into()]);
        // No two log-probabilities are alike; their bytes by place are.
        properties = properties
            .set_column_dictionary_enabled(item.clone(), false)
            .set_column_encoding(item, Encoding::BYTE_STREAM_SPLIT);
    }
    properties.build()
}

fn quarantine(dir: &Path, ingested: &Ingested) -> Result<FileEntry> {
    let path = dir.join(QUARANTINE);
    let failed = |e| Error::io("cannot write", &path, e);
    let mut sink = Hashing::new(BufWriter::new(File::create(&path).map_err(failed)?));
    for entry in &ingested.quarantine {
        serde_json::to_writer(&mut sink, entry).map_err(|e| failed(e.into()))?;
        sink.write_all(b"\n").map_err(failed)?;
    }
    sink.entry(QUARANTINE.to_owned(), ingested.quarantine.len() as u64).map_err(failed)
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
