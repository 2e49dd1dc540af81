//! Columns of lists of numbers, written below Arrow from where the numbers are.
//!
//! Nearly all of a capture, and of the rows made from it, is a few such columns. Arrow would have
//! their numbers side by side, and notes the place of each: three times the memory of the numbers
//! themselves.

use bytes::Bytes;
use parquet::column::writer::{ColumnCloseResult, ColumnWriterImpl};
use parquet::data_type::{DataType, FloatType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

/// One list a row, none of them null and without nulls.
pub enum NumberLists<'a> {
    /// Of the Arrow type `UInt32`.
    U32(Vec<&'a [u32]>),
    /// Of the Arrow type `UInt8`.
    U8(Vec<&'a [u8]>),
    /// Of the Arrow type `Float32`.
    F32(Vec<&'a [f32]>),
}

/// Pages of a column, and what its row group has to know of them.
pub(super) struct EncodedColumn {
    pub pages: Bytes,
    pub close: ColumnCloseResult,
}

impl NumberLists<'_> {
    /// Arrow's type of the items.
    pub fn item_type(&self) -> arrow::datatypes::DataType {
        use arrow::datatypes::DataType;
        match self {
            NumberLists::U32(_) => DataType::UInt32,
            NumberLists::U8(_) => DataType::UInt8,
            NumberLists::F32(_) => DataType::Float32,
        }
    }

    pub(super) fn encode(
        &self,
        column: ColumnDescPtr,
        properties: WriterPropertiesPtr,
    ) -> Result<EncodedColumn, ParquetError> {
        if (column.max_def_level(), column.max_rep_level()) != (1, 1) {
            let name = column.path().string();
            return Err(ParquetError::General(format!("column {name} is no list without nulls")));
        }
        // Parquet keeps unsigned numbers under the signed type of its width.
        match self {
            NumberLists::U32(rows) => {
                encode::<Int32Type, _>(rows, |n| n as i32, column, properties)
            }
            NumberLists::U8(rows) => encode::<Int32Type, _>(rows, i32::from, column, properties),
            NumberLists::F32(rows) => encode::<FloatType, _>(rows, |x| x, column, properties),
        }
    }
}

fn encode<T: DataType, N: Copy>(
    rows: &[&[N]],
    physical: impl Fn(N) -> T::T,
    column: ColumnDescPtr,
    properties: WriterPropertiesPtr,
) -> Result<EncodedColumn, ParquetError> {
    let all: usize = rows.iter().map(|row| row.len()).sum();
    let mut sink = TrackedWrite::new(Vec::with_capacity(all * size_of::<N>()));
    let pages = Box::new(SerializedPageWriter::new(&mut sink));
    let mut writer = ColumnWriterImpl::<T>::new(column, properties, pages);
    let longest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let mut items = Vec::with_capacity(longest);
    // Of a row's items all are there, and all but the first go on with it.
    let present = vec![1; longest];
    let mut repeats = present.clone();
    repeats.iter_mut().take(1).for_each(|first| *first = 0);
    for row in rows {
        items.clear();
        items.extend(row.iter().map(|&item| physical(item)));
        match row.len() {
            0 => writer.write_batch(&[], Some(&[0]), Some(&[0]))?,
            n => writer.write_batch(&items, Some(&present[..n]), Some(&repeats[..n]))?,
        };
    }
    let close = writer.close()?;
    Ok(EncodedColumn { pages: sink.into_inner()?.into(), close })
}
