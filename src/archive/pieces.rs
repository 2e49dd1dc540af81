//! Tensor data of an archive: written once, and read apart from everything else.
//!
//! Nothing but [`Archive::read_pieces`] reads the data; groups hold references to it.

use std::collections::BTreeSet;
use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use arrow::datatypes::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection,
    RowSelector,
};

use super::manifest::FileEntry;
use super::read::{quietly, sized};
use super::table::{self, media};
use super::{Archive, Group, Piece, PieceSources};
use crate::columnar::RowGroup;
use crate::error::{Error, Result};
use crate::id::Digest32;

/// The folder of tensor data.
pub(super) const MEDIA: &str = "media";

/// Rows of an index that are decoded at a time.
const INDEX_ROWS: usize = 1024;

/// Pieces that `groups` refer to and that are not among `stored`, in order of first reference;
/// `stored` then holds them.
pub(super) fn new_pieces(groups: &[Group], stored: &mut BTreeSet<Digest32>) -> Vec<Piece> {
    let calls = groups.iter().flat_map(|group| &group.rollouts).flat_map(|rollout| &rollout.calls);
    let pieces = calls.flat_map(|call| &call.tensors).flat_map(|tensor| tensor.pieces());
    pieces.filter(|piece| stored.insert(piece.digest)).copied().collect()
}

/// Columns of a media file.
pub(super) fn schema() -> Result<SchemaRef> {
    Ok(laid_out(&[])?.schema().clone())
}

fn laid_out(pieces: &[(Piece, Vec<u8>)]) -> Result<RowGroup<'static>> {
    media::encode(pieces).map_err(|e| Error::format("cannot lay out tensor data").because(e))
}

/// The rows of a media file, a row group at a time: no more is in memory.
pub(super) fn row_groups<'a>(
    pieces: &'a [Piece],
    sources: &'a PieceSources,
) -> impl Iterator<Item = Result<RowGroup<'static>>> + 'a {
    table::chunks(pieces, |piece| piece.bytes as usize).map(|chunk| {
        let loaded = chunk.iter().map(|&piece| Ok((piece, sources.read(piece)?)));
        laid_out(&loaded.collect::<Result<Vec<_>>>()?)
    })
}

/// Data of a piece, or why it cannot be read.
pub type PieceData<'a> = Result<&'a [u8], &'a str>;

impl Archive {
    /// Files of tensor data, in order of path.
    pub fn media_files(&self) -> impl Iterator<Item = &FileEntry> {
        self.manifest().files.iter().filter(|file| is_media(&file.path))
    }

    /// Which pieces a media file holds, as it says, without reading their data.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn read_piece_index(&self, file: &FileEntry) -> Result<Vec<Piece>, String> {
        index(self.dir(), file)
    }

    /// Gives the data of every piece of a media file that is `wanted`, one at a time, in order.
    /// Where data cannot be read, the reason is given, and reading goes on with the next row
    /// group.
    ///
    /// # Errors
    ///
    /// What is wrong with the file as a whole, or with what it says it holds.
    pub fn read_pieces(
        &self,
        file: &FileEntry,
        wanted: impl Fn(&Piece) -> bool,
        mut give: impl FnMut(Piece, PieceData<'_>),
    ) -> Result<(), String> {
        let opened = MediaFile::open(self.dir(), file)?;
        for group in 0..opened.groups() {
            let pieces = opened.index(group)?;
            let rows: Vec<bool> = pieces.iter().map(&wanted).collect();
            let mut left = pieces.into_iter().filter(&wanted).peekable();
            if left.peek().is_none() {
                continue;
            }
            let mut batches = opened.reader(&["data"], group, Some(&rows), 1);
            while let Some(&piece) = left.peek() {
                let batch = match &mut batches {
                    Ok(batches) => {
                        guarded(|| batches.next().transpose().map_err(|e| e.to_string()))
                    }
                    Err(why) => Err(why.clone()),
                };
                let data = match &batch {
                    Ok(Some(batch)) => media::decode_data(batch).map_err(|fault| fault.to_string()),
                    Ok(None) => Err("its row is not there".to_owned()),
                    Err(why) => Err(why.clone()),
                };
                match &data {
                    Ok(rows) => {
                        for row in rows {
                            give(piece, Ok(row));
                        }
                        left.next();
                    }
                    Err(why) => left.by_ref().for_each(|piece| give(piece, Err(why))),
                }
            }
        }
        Ok(())
    }
}

/// Which pieces a media file holds, as it says.
pub(super) fn index(dir: &Path, file: &FileEntry) -> Result<Vec<Piece>, String> {
    let opened = MediaFile::open(dir, file)?;
    let mut pieces = Vec::new();
    for group in 0..opened.groups() {
        pieces.extend(opened.index(group)?);
    }
    Ok(pieces)
}

/// Whether a path within an archive is that of tensor data.
pub(super) fn is_media(path: &str) -> bool {
    path.strip_prefix(MEDIA).is_some_and(|rest| rest.starts_with('/'))
}

/// A media file of the right size; its bytes are not hashed, and so trusted in nothing.
struct MediaFile {
    file: File,
    metadata: ArrowReaderMetadata,
}

impl MediaFile {
    fn open(dir: &Path, entry: &FileEntry) -> Result<Self, String> {
        let file = File::open(sized(dir, entry)?).map_err(|e| e.to_string())?;
        let load = || ArrowReaderMetadata::load(&file, Default::default());
        let metadata = guarded(|| load().map_err(|e| e.to_string()))?;
        // A few bytes can claim any number of equal values; the manifest says how many there are.
        let groups = metadata.metadata().row_groups().iter();
        let rows = groups.map(|group| u64::try_from(group.num_rows()).ok());
        let rows = rows.reduce(|sum, rows| sum?.checked_add(rows?)).unwrap_or(Some(0));
        match rows == Some(entry.rows) {
            true => Ok(Self { file, metadata }),
            false => Err(format!("not the {} rows of the manifest", entry.rows)),
        }
    }

    fn groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Pieces of a row group.
    fn index(&self, group: usize) -> Result<Vec<Piece>, String> {
        guarded(|| {
            let mut pieces = Vec::new();
            let rows = self.metadata.metadata().row_group(group).num_rows() as usize;
            for batch in self.reader(&media::INDEX, group, None, INDEX_ROWS)? {
                pieces.extend(media::decode_index(&batch.map_err(|e| e.to_string())?)?);
                if pieces.len() > rows {
                    break;
                }
            }
            match pieces.len() == rows {
                true => Ok(pieces),
                false => Err(format!("not the {rows} rows that row group {group} states")),
            }
        })
    }

    /// Reads some columns of a row group, of all rows or of those that are marked.
    fn reader(
        &self,
        columns: &[&str],
        group: usize,
        rows: Option<&[bool]>,
        at_a_time: usize,
    ) -> Result<ParquetRecordBatchReader, String> {
        guarded(|| {
            let file = self.file.try_clone().map_err(|e| e.to_string())?;
            let metadata = self.metadata.clone();
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
            let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
            let mut builder = builder
                .with_projection(mask)
                .with_row_groups(vec![group])
                .with_batch_size(at_a_time);
            if let Some(rows) = rows {
                let select = |&wanted| match wanted {
                    true => RowSelector::select(1),
                    false => RowSelector::skip(1),
                };
                let rows: Vec<RowSelector> = rows.iter().map(select).collect();
                builder = builder.with_row_selection(RowSelection::from(rows));
            }
            builder.build().map_err(|e| e.to_string())
        })
    }
}

/// Runs the decoder, which is known to panic on files that were made to mislead it.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let undecodable = || Err("not a Parquet file that can be decoded".to_owned());
    quietly(AssertUnwindSafe(work)).unwrap_or_else(undecodable)
}
