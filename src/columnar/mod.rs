//! Parquet files as archives and rows are written: the same bytes for the same values, whatever
//! the number of threads.

mod lists;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowLeafColumn, ArrowRowGroupWriterFactory,
    compute_leaves,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterPropertiesPtr,
};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescPtr, ColumnPath};
use rayon::prelude::*;

pub use lists::NumberLists;

use lists::EncodedColumn;

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

/// Columns that become a row group.
pub struct RowGroup<'a> {
    schema: SchemaRef,
    columns: Vec<Column<'a>>,
}

/// A column of a [`RowGroup`].
pub enum Column<'a> {
    /// As Arrow has it.
    Array(ArrayRef),
    /// Lists of numbers, where they are.
    Lists(NumberLists<'a>),
}

impl<'a> RowGroup<'a> {
    /// `columns` in the order of the fields of `schema`, of the same types, with as many rows each.
    pub fn new(schema: SchemaRef, columns: Vec<Column<'a>>) -> Self {
        Self { schema, columns }
    }

    /// Its fields.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl From<RecordBatch> for RowGroup<'static> {
    fn from(batch: RecordBatch) -> Self {
        let columns = batch.columns().iter().cloned().map(Column::Array).collect();
        Self::new(batch.schema(), columns)
    }
}

/// Writes each item as a row group of a new file, and returns the size and BLAKE3 of it.
///
/// # Errors
///
/// Those of `row_groups`; failures to write, which a full disk is told as.
pub fn write<'a>(
    path: &Path,
    schema: SchemaRef,
    properties: WriterProperties,
    row_groups: impl Iterator<Item = Result<RowGroup<'a>>>,
) -> Result<(u64, Digest32)> {
    let mut file = FileWriter::create(path, schema, properties)?;
    for row_group in row_groups {
        file.push(&row_group?)?;
    }
    file.finish()
}

/// A file that grows by one row group at a time.
pub struct FileWriter {
    path: PathBuf,
    writer: Writer<BufWriter<Hashing>>,
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
        let sink = Hashing { file, hasher: Box::default(), bytes: 0 };
        let sink = BufWriter::with_capacity(HASHED_AT_A_TIME, sink);
        let writer = Writer::new(sink, schema, properties).map_err(|e| unwritten(path, e))?;
        Ok(Self { path: path.to_owned(), writer })
    }

    /// Writes the next row group.
    pub fn push(&mut self, row_group: &RowGroup<'_>) -> Result<()> {
        self.writer.push(row_group).map_err(|e| unwritten(&self.path, e))
    }

    /// Ends the file, and returns its size and BLAKE3.
    pub fn finish(mut self) -> Result<(u64, Digest32)> {
        let sink = self.writer.finish().map_err(|e| unwritten(&self.path, e))?;
        sink.flush().map_err(|e| Error::io("cannot write", &self.path, e))?;
        let sink = sink.get_ref();
        Ok((sink.bytes, Digest32(*sink.hasher.finalize().as_bytes())))
    }
}

/// Parquet that grows by one row group at a time.
pub struct Writer<W: Write + Send> {
    inner: SerializedFileWriter<W>,
    arrays: ArrowRowGroupWriterFactory,
    row_groups: usize,
}

impl<W: Write + Send> Writer<W> {
    /// Begins a file in `sink`.
    ///
    /// # Errors
    ///
    /// Those of `sink`, as for all of these; columns that do not fit the schema.
    pub fn new(
        sink: W,
        schema: SchemaRef,
        properties: WriterProperties,
    ) -> Result<Self, ParquetError> {
        let (inner, arrays) =
            ArrowWriter::try_new(sink, schema, Some(properties))?.into_serialized_writer()?;
        Ok(Self { inner, arrays, row_groups: 0 })
    }

    /// Writes the next row group, its columns encoded in parallel.
    pub fn push(&mut self, row_group: &RowGroup<'_>) -> Result<(), ParquetError> {
        let leaves = self.leaves(row_group)?;
        let encoded: Vec<Encoded> =
            leaves.into_par_iter().map(Leaf::encode).collect::<Result<_, _>>()?;
        let mut written = self.inner.next_row_group()?;
        for column in encoded {
            match column {
                Encoded::Array(chunk) => chunk.append_to_row_group(&mut written)?,
                Encoded::Lists(EncodedColumn { pages, close }) => {
                    written.append_column(&pages, close)?;
                }
            }
        }
        written.close()?;
        self.row_groups += 1;
        Ok(())
    }

    /// Ends the file, and returns the sink.
    pub fn finish(&mut self) -> Result<&mut W, ParquetError> {
        self.inner.finish()?;
        Ok(self.inner.inner_mut())
    }

    /// The columns of Parquet that those of a row group come to.
    fn leaves<'a>(&self, row_group: &'a RowGroup<'a>) -> Result<Vec<Leaf<'a>>, ParquetError> {
        let mut writers = self.arrays.create_column_writers(self.row_groups)?.into_iter();
        let mut leaves = Vec::new();
        for (field, column) in row_group.schema.fields().iter().zip(&row_group.columns) {
            match column {
                Column::Array(array) => {
                    let values = compute_leaves(field, array)?.into_iter();
                    // The values first: what they leave of the writers is for the next column.
                    let columns =
                        values.zip(writers.by_ref()).map(|(values, writer)| (writer, values));
                    leaves.extend(columns.map(Box::new).map(Leaf::Array));
                }
                Column::Lists(lists) => {
                    writers.next();
                    let column = self.inner.schema_descr().column(leaves.len());
                    leaves.push(Leaf::Lists(lists, column, self.inner.properties().clone()));
                }
            }
        }
        Ok(leaves)
    }
}

enum Leaf<'a> {
    Array(Box<(ArrowColumnWriter, ArrowLeafColumn)>),
    Lists(&'a NumberLists<'a>, ColumnDescPtr, WriterPropertiesPtr),
}

enum Encoded {
    Array(ArrowColumnChunk),
    Lists(EncodedColumn),
}

impl Leaf<'_> {
    fn encode(self) -> Result<Encoded, ParquetError> {
        match self {
            Leaf::Array(column) => {
                let (mut writer, values) = *column;
                writer.write(&values)?;
                writer.close().map(Encoded::Array)
            }
            Leaf::Lists(lists, column, properties) => {
                lists.encode(column, properties).map(Encoded::Lists)
            }
        }
    }
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

/// The hash is fast on many bytes at a time only, if they are still in a cache.
const HASHED_AT_A_TIME: usize = 256 << 10;

/// Hashes what passes through.
struct Hashing {
    file: File,
    hasher: Box<blake3::Hasher>,
    bytes: u64,
}

impl Write for Hashing {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(buffer)?;
        self.hasher.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}
