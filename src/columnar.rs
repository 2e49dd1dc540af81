//! Parquet files as archives and rows are written: the same bytes for the same values, whatever
//! the number of threads.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::id::Digest32;

/// The items of a list column.
pub fn list_items(column: &str) -> ColumnPath {
    ColumnPath::from(vec![column.into(), "list".into(), "item".into()])
}

/// How columns are encoded: `repeated` ones, whose values repeat, with a dictionary, which would
/// only slow down any other; `numbers`, of which hardly two are alike while their bytes by place
/// are, split into those. Depends on nothing but this version of the code.
pub fn properties(repeated: &[ColumnPath], numbers: &[ColumnPath]) -> WriterPropertiesBuilder {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("forestctl ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_dictionary_enabled(false);
    for column in repeated {
        properties = properties.set_column_dictionary_enabled(column.clone(), true);
    }
    for column in numbers {
        properties = properties
            .set_column_statistics_enabled(column.clone(), EnabledStatistics::None)
            .set_column_encoding(column.clone(), Encoding::BYTE_STREAM_SPLIT);
    }
    properties
}

/// Writes each batch as a row group of a new file, and returns the size and BLAKE3 of it.
///
/// # Errors
///
/// Those of `batches`; failures to write, which a full disk is told as.
pub fn write(
    path: &Path,
    schema: SchemaRef,
    properties: WriterProperties,
    batches: impl Iterator<Item = Result<RecordBatch>>,
) -> Result<(u64, Digest32)> {
    let mut file = FileWriter::create(path, schema, properties)?;
    for batch in batches {
        file.push(&batch?)?;
    }
    file.finish()
}

/// A file that grows by one row group at a time.
pub struct FileWriter {
    path: PathBuf,
    writer: SerializedFileWriter<Hashing<BufWriter<File>>>,
    columns: ArrowRowGroupWriterFactory,
    row_groups: usize,
}

impl FileWriter {
    /// Creates the file, and the folders that it lies in.
    ///
    /// # Errors
    ///
    /// Failures to create and write, as for all of these.
    pub fn create(path: &Path, schema: SchemaRef, properties: WriterProperties) -> Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("cannot create", folder, e))?;
        }
        let file = File::create(path).map_err(|e| Error::io("cannot create", path, e))?;
        let sink = Hashing { inner: BufWriter::new(file), hasher: Box::default(), bytes: 0 };
        let (writer, columns) = ArrowWriter::try_new(sink, schema, Some(properties))
            .and_then(ArrowWriter::into_serialized_writer)
            .map_err(|e| unwritten(path, e))?;
        Ok(Self { path: path.to_owned(), writer, columns, row_groups: 0 })
    }

    /// Writes a batch as the next row group.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        write_row_group(&mut self.writer, &self.columns, self.row_groups, batch)
            .map_err(|e| unwritten(&self.path, e))?;
        self.row_groups += 1;
        Ok(())
    }

    /// Ends the file, and returns its size and BLAKE3.
    pub fn finish(mut self) -> Result<(u64, Digest32)> {
        self.writer.finish().map_err(|e| unwritten(&self.path, e))?;
        let sink = self.writer.inner_mut();
        sink.flush().map_err(|e| Error::io("cannot write", &self.path, e))?;
        Ok((sink.bytes, Digest32(*sink.hasher.finalize().as_bytes())))
    }
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

/// Hashes what passes through.
struct Hashing<W> {
    inner: W,
    hasher: Box<blake3::Hasher>,
    bytes: u64,
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
