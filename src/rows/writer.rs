//! Writing a rows directory, one prompt group after the other.

use std::fs;

use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::columns;
use super::manifest::{Part, RowsManifest};
use super::model::Row;
use super::store::MANIFEST;
use crate::columnar::{self, FileWriter};
use crate::error::{Error, Result};
use crate::output::AtomicDir;

/// Tokens (or route entries) after which a part ends with its prompt group.
pub(super) const PART_TOKENS: u64 = 1 << 24;
/// Tokens (or route entries) of one row group.
const BATCH_TOKENS: u64 = 1 << 22;

/// A rows directory that is being written. No more than a row group and the rows of one prompt
/// group are held at once.
pub struct RowsWriter {
    draft: AtomicDir,
    parts: Vec<Part>,
    open: Option<OpenPart>,
}

/// The part that rows go to.
struct OpenPart {
    path: String,
    file: FileWriter,
    rows: u64,
    tokens: u64,
    /// Entries of its longest columns.
    size: u64,
    /// Rows of the next row group.
    pending: Vec<Row>,
    pending_size: u64,
}

impl RowsWriter {
    /// Begins to fill `draft`.
    ///
    /// # Errors
    ///
    /// When the folder of the parts cannot be created.
    pub fn new(draft: AtomicDir) -> Result<Self> {
        let folder = draft.path().join("rows");
        fs::create_dir(&folder).map_err(|e| Error::io("cannot create", &folder, e))?;
        Ok(Self { draft, parts: Vec::new(), open: None })
    }

    /// Where the draft lies.
    pub fn path(&self) -> &std::path::Path {
        self.draft.path()
    }

    /// Writes the rows of the next group. Groups come in row order.
    ///
    /// # Errors
    ///
    /// When writing fails, or when one row holds 2^31 tokens or more.
    pub fn group(&mut self, rows: Vec<Row>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut part = match self.open.take() {
            Some(part) => part,
            None => OpenPart::create(&self.draft, self.parts.len())?,
        };
        for row in rows {
            part.push(row)?;
        }
        match part.size >= PART_TOKENS {
            true => self.parts.push(part.finish()?),
            false => self.open = Some(part),
        }
        Ok(())
    }

    /// Publishes the rows with `manifest`, which lacks its parts; they are in the one returned.
    ///
    /// # Errors
    ///
    /// When writing fails.
    pub fn publish(mut self, mut manifest: RowsManifest) -> Result<RowsManifest> {
        if let Some(part) = self.open.take() {
            self.parts.push(part.finish()?);
        }
        manifest.parts = self.parts;
        let text = manifest.to_json()?;
        let path = self.draft.path().join(MANIFEST);
        fs::write(&path, text).map_err(|e| Error::io("cannot write", &path, e))?;
        self.draft.publish()?;
        Ok(manifest)
    }
}

impl OpenPart {
    fn create(draft: &AtomicDir, number: usize) -> Result<Self> {
        let path = format!("rows/part-{number:05}.parquet");
        let file = FileWriter::create(&draft.path().join(&path), columns::schema(), properties())?;
        Ok(Self { path, file, rows: 0, tokens: 0, size: 0, pending: Vec::new(), pending_size: 0 })
    }

    fn push(&mut self, row: Row) -> Result<()> {
        if i32::try_from(row.input_ids.len()).is_err() {
            return Err(Error::format(format!("row {} holds 2^31 tokens or more", row.row_id)));
        }
        let size = weight(&row);
        if !self.pending.is_empty() && self.pending_size + size > BATCH_TOKENS {
            self.flush()?;
        }
        self.rows += 1;
        self.tokens += row.input_ids.len() as u64;
        self.size += size;
        self.pending_size += size;
        self.pending.push(row);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let row_group = columns::row_group(&self.pending).map_err(|e| {
            Error::format(format!("cannot write {}", self.path)).because(e.to_string())
        })?;
        self.file.push(&row_group)?;
        self.pending.clear();
        self.pending_size = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<Part> {
        self.flush()?;
        let (bytes, blake3) = self.file.finish()?;
        Ok(Part { path: self.path, rows: self.rows, tokens: self.tokens, bytes, blake3 })
    }
}

/// Entries of the row's longest column.
fn weight(row: &Row) -> u64 {
    let routes = row.routes.as_ref().map_or(0, |r| r.experts.len());
    row.input_ids.len().max(routes).max(row.media.len()).max(1) as u64
}

/// Columns whose values repeat, runs of them.
const REPEATED: [&str; 9] = [
    "group_id",
    "rollout_id",
    "slot",
    "group_size",
    "segment_count",
    "reward",
    "advantage",
    "sample_mask",
    "mask_reason",
];

/// Lists of numbers.
const NUMBERS: [&str; 2] = ["input_ids", "generation_logprobs"];

fn properties() -> WriterProperties {
    let mut repeated = REPEATED.map(ColumnPath::from).to_vec();
    repeated.push(columnar::list_items("loss_mask"));
    repeated
        .push(ColumnPath::from(["routes", "experts", "list", "item"].map(str::to_owned).to_vec()));
    columnar::properties(&repeated, &NUMBERS.map(columnar::list_items)).build()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::rows::{read, store};

    /// Fills and publishes `draft` with rows in row order.
    pub fn write(draft: AtomicDir, manifest: RowsManifest, rows: &[Row]) -> Result<RowsManifest> {
        let mut writer = RowsWriter::new(draft)?;
        for group in rows.chunk_by(|row, next| row.group_id == next.group_id) {
            writer.group(group.to_vec())?;
        }
        writer.publish(manifest)
    }

    #[test]
    fn a_part_ends_only_between_groups() {
        let (manifest, mut rows) = store::tests::sample(9);
        for row in &mut rows {
            let length = PART_TOKENS as usize / 4;
            row.input_ids = vec![0; length];
            row.loss_mask = vec![0; length];
            row.generation_logprobs = vec![0.0; length];
            row.routes = None;
        }
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("rows");
        let draft = AtomicDir::create(&target, false, MANIFEST).unwrap();
        let manifest = write(draft, manifest, &rows).unwrap();
        let parts: Vec<u64> = manifest.parts.iter().map(|part| part.rows).collect();
        assert_eq!(parts, [6, 3]);
        assert!(read(&target).is_err(), "the rows have no spans any more that fit");
    }
}
