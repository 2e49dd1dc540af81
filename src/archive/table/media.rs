//! `media/`: pieces of tensors, each once in the archive; and the column of `calls/` that refers
//! to them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, LargeBinaryArray, LargeListArray,
    PrimitiveArray, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields, UInt64Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use super::columns::{Columns, Draft, digests};
use super::{Fault, each};
use crate::archive::media::dtype_of;
use crate::archive::{MediaTensor, Piece, TensorContent};
use crate::columnar::RowGroup;
use crate::id::Digest32;

/// Columns that tell which pieces a file holds, without their data.
pub(in crate::archive) const INDEX: [&str; 2] = ["digest", "bytes"];

/// Pieces with their data.
pub(in crate::archive) fn encode(
    pieces: &[(Piece, Vec<u8>)],
) -> Result<RowGroup<'static>, ArrowError> {
    let data = LargeBinaryArray::from_iter_values(pieces.iter().map(|(_, data)| data));
    let draft = Draft::default()
        .digest("digest", pieces.iter().map(|(piece, _)| Some(piece.digest)))?
        .number::<UInt64Type>("bytes", pieces.iter().map(|(piece, _)| piece.bytes))
        .column("data", false, data);
    Ok(draft.finish())
}

/// Which pieces a batch holds; reads the columns of [`INDEX`] alone.
pub(in crate::archive) fn decode_index(batch: &RecordBatch) -> Result<Vec<Piece>, Fault> {
    let mut pieces = Vec::with_capacity(batch.num_rows());
    each(batch, |row, at| {
        let digest = row.digest("digest", at)?.ok_or("column digest is null")?;
        pieces.push(Piece { digest, bytes: row.number::<UInt64Type>("bytes", at)? });
        Ok(())
    })?;
    Ok(pieces)
}

/// Data of the pieces of a batch, in order.
pub(in crate::archive) fn decode_data(batch: &RecordBatch) -> Result<Vec<&[u8]>, Fault> {
    let columns = Columns::new(batch);
    let data = |at| columns.bytes("data", at)?.ok_or_else(|| "column data is null".to_owned());
    (0..batch.num_rows()).map(data).collect()
}

/// The tensors of each call; null where it has none.
pub(super) fn column<'a>(
    calls: impl Iterator<Item = &'a [MediaTensor]>,
) -> Result<LargeListArray, ArrowError> {
    let calls: Vec<&[MediaTensor]> = calls.collect();
    let all = || calls.iter().copied().flatten();
    let data = |tensor: &'a MediaTensor| match &tensor.content {
        TensorContent::Inline(data) => Some(data),
        TensorContent::Pieces(_) => None,
    };
    let pieces = || all().flat_map(MediaTensor::pieces);
    let apart: NullBuffer = all().map(|tensor| data(tensor).is_none()).collect();
    let fields = tensor_fields();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(all().map(|tensor| &tensor.field))),
        Arc::new(StringArray::from_iter_values(all().map(|tensor| tensor.dtype.to_string()))),
        list(
            OffsetBuffer::from_lengths(all().map(|tensor| tensor.shape.len())),
            numbers(all().flat_map(|tensor| tensor.shape.iter().copied())),
            None,
        )?,
        Arc::new(all().map(data).collect::<LargeBinaryArray>()),
        list(
            OffsetBuffer::from_lengths(all().map(|tensor| tensor.pieces().len())),
            Arc::new(StructArray::try_new(
                piece_fields(),
                vec![
                    Arc::new(digests(pieces().map(|piece| Some(piece.digest)))?),
                    numbers(pieces().map(|piece| piece.bytes)),
                ],
                None,
            )?),
            Some(apart),
        )?,
    ];
    LargeListArray::try_new(
        Arc::new(Field::new("item", DataType::Struct(fields.clone()), false)),
        OffsetBuffer::from_lengths(calls.iter().map(|tensors| tensors.len())),
        Arc::new(StructArray::try_new(fields, columns, None)?),
        Some(calls.iter().map(|tensors| !tensors.is_empty()).collect()),
    )
}

fn numbers(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(PrimitiveArray::<UInt64Type>::from_iter_values(values))
}

fn list(
    offsets: OffsetBuffer<i64>,
    items: ArrayRef,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let item = Arc::new(Field::new("item", items.data_type().clone(), false));
    Ok(Arc::new(LargeListArray::try_new(item, offsets, items, nulls)?))
}

fn list_of(item: DataType) -> DataType {
    DataType::LargeList(Arc::new(Field::new("item", item, false)))
}

fn piece_fields() -> Fields {
    Fields::from(vec![
        Field::new("digest", DataType::FixedSizeBinary(32), true),
        Field::new("bytes", DataType::UInt64, false),
    ])
}

fn tensor_fields() -> Fields {
    Fields::from(vec![
        Field::new("field", DataType::Utf8, false),
        Field::new("dtype", DataType::Utf8, false),
        Field::new("shape", list_of(DataType::UInt64), false),
        Field::new("data", DataType::LargeBinary, true),
        Field::new("pieces", list_of(DataType::Struct(piece_fields())), true),
    ])
}

/// The tensors of one call.
pub(super) fn tensors(row: &Columns<'_>, name: &str, at: usize) -> Result<Vec<MediaTensor>, Fault> {
    let Some(column) = row.get(name, at)? else { return Ok(Vec::new()) };
    let wrong = || format!("column {name} has the type {}", column.data_type());
    let tensors = column.as_list_opt::<i64>().map(|list| list.value(at)).ok_or_else(wrong)?;
    let read = Tensors::new(&tensors).ok_or_else(wrong)?;
    (0..tensors.len())
        .map(|i| read.tensor(i).map_err(|what| format!("column {name}[{i}]: {what}")))
        .collect()
}

/// Columns of the tensors of one call, of the types that they must have.
struct Tensors<'a> {
    field: &'a StringArray,
    dtype: &'a StringArray,
    shape: &'a LargeListArray,
    data: &'a LargeBinaryArray,
    pieces: &'a LargeListArray,
}

impl<'a> Tensors<'a> {
    fn new(tensors: &'a ArrayRef) -> Option<Self> {
        let tensors = tensors.as_struct_opt()?;
        Some(Self {
            field: tensors.column_by_name("field")?.as_string_opt()?,
            dtype: tensors.column_by_name("dtype")?.as_string_opt()?,
            shape: tensors.column_by_name("shape")?.as_list_opt()?,
            data: tensors.column_by_name("data")?.as_binary_opt()?,
            pieces: tensors.column_by_name("pieces")?.as_list_opt()?,
        })
    }

    fn tensor(&self, at: usize) -> Result<MediaTensor, Fault> {
        let word = self.dtype.value(at);
        let dtype = dtype_of(word).ok_or_else(|| format!("{word:?} is no type of elements"))?;
        let shape = self.shape.value(at);
        let shape = shape.as_primitive_opt::<UInt64Type>().ok_or("shape has another type")?;
        let content = match (self.data.is_null(at), self.pieces.is_null(at)) {
            (false, true) => TensorContent::Inline(self.data.value(at).to_vec()),
            (true, false) => TensorContent::Pieces(pieces(&self.pieces.value(at))?),
            _ => return Err("one of data and pieces is there, and only one".to_owned()),
        };
        let field = self.field.value(at).to_owned();
        Ok(MediaTensor { field, dtype, shape: shape.values().to_vec(), content })
    }
}

fn pieces(pieces: &ArrayRef) -> Result<Vec<Piece>, Fault> {
    let columns = || {
        let pieces = pieces.as_struct_opt()?;
        let digest: &FixedSizeBinaryArray =
            pieces.column_by_name("digest")?.as_fixed_size_binary_opt()?;
        Some((digest, pieces.column_by_name("bytes")?.as_primitive_opt::<UInt64Type>()?))
    };
    let (digest, bytes) = columns().ok_or("pieces have another type")?;
    let piece = |at: usize| {
        let digest = (!digest.is_null(at)).then(|| Digest32::from_slice(digest.value(at)));
        let digest = digest.flatten().ok_or("a piece has no digest")?;
        Ok(Piece { digest, bytes: bytes.value(at) })
    };
    (0..pieces.len()).map(piece).collect()
}
