//! Rows of prompt groups that come in another order than the one in which they are written.

use std::fs::File;
use std::path::Path;

use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::file::properties::WriterProperties;

use super::columns;
use super::model::Row;
use crate::columnar::Writer;
use crate::error::{Error, Result};

/// A file without a name that takes the rows of groups.
pub struct Spill {
    file: File,
    writer: Writer<File>,
    groups: usize,
}

/// The file, complete, from which groups are taken in any order.
pub struct Spilled {
    file: File,
    metadata: ArrowReaderMetadata,
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::format("cannot keep rows aside until their turn").because(e.to_string())
}

impl Spill {
    /// A file in `folder`.
    ///
    /// # Errors
    ///
    /// Failures to create and write, as for all of these.
    pub fn create(folder: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(folder).map_err(failed)?;
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_max_row_group_row_count(None)
            .build();
        let sink = file.try_clone().map_err(failed)?;
        let writer = Writer::new(sink, columns::schema(), properties).map_err(failed)?;
        Ok(Self { file, writer, groups: 0 })
    }

    /// Takes the rows of a group, at least one, and tells under which number.
    pub fn push(&mut self, rows: &[Row]) -> Result<usize> {
        let row_group = columns::row_group(rows).map_err(failed)?;
        self.writer.push(&row_group).map_err(failed)?;
        self.groups += 1;
        Ok(self.groups - 1)
    }

    /// No more groups come.
    pub fn finish(mut self) -> Result<Spilled> {
        self.writer.finish().map_err(failed)?;
        let metadata =
            ArrowReaderMetadata::load(&self.file, ArrowReaderOptions::new()).map_err(failed)?;
        Ok(Spilled { file: self.file, metadata })
    }
}

impl Spilled {
    /// The rows of a group.
    pub fn group(&self, number: usize) -> Result<Vec<Row>> {
        let file = self.file.try_clone().map_err(failed)?;
        let reader =
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_row_groups(vec![number])
                .build()
                .map_err(failed)?;
        let mut rows = Vec::new();
        for batch in reader {
            let batch = batch.map_err(failed)?;
            columns::from_batch(&batch, &mut rows).map_err(failed)?;
        }
        Ok(rows)
    }
}
