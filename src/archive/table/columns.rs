//! Arrow columns from and to the values of a row.

use std::cell::Cell;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, FixedSizeBinaryArray,
    LargeBinaryArray, LargeListArray, LargeStringArray, PrimitiveArray, StringArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use super::Fault;
use crate::columnar::{Column, NumberLists, RowGroup};
use crate::id::Digest32;

/// Columns of a batch that is being made, in order.
#[derive(Default)]
pub(super) struct Draft<'a> {
    fields: Vec<Field>,
    columns: Vec<Column<'a>>,
}

impl<'a> Draft<'a> {
    pub fn column(mut self, name: &str, nullable: bool, array: impl Array + 'static) -> Self {
        self.fields.push(Field::new(name, array.data_type().clone(), nullable));
        self.columns.push(Column::Array(Arc::new(array)));
        self
    }

    /// Lists of which none is null.
    pub fn lists(mut self, name: &str, lists: NumberLists<'a>) -> Self {
        let item = Arc::new(Field::new("item", lists.item_type(), false));
        self.fields.push(Field::new(name, DataType::LargeList(item), false));
        self.columns.push(Column::Lists(lists));
        self
    }

    pub fn text<'t>(self, name: &str, values: impl Iterator<Item = &'t str>) -> Self {
        self.column(name, false, StringArray::from_iter_values(values))
    }

    pub fn text_or_null<'t>(
        self,
        name: &str,
        values: impl Iterator<Item = Option<&'t str>>,
    ) -> Self {
        self.column(name, true, values.collect::<StringArray>())
    }

    /// For texts that may be long.
    pub fn long_text<'t>(self, name: &str, values: impl Iterator<Item = Option<&'t str>>) -> Self {
        self.column(name, true, values.collect::<LargeStringArray>())
    }

    pub fn bytes<'t>(self, name: &str, values: impl Iterator<Item = Option<&'t [u8]>>) -> Self {
        self.column(name, true, values.collect::<LargeBinaryArray>())
    }

    pub fn number<T: ArrowPrimitiveType>(
        self,
        name: &str,
        values: impl Iterator<Item = T::Native>,
    ) -> Self {
        self.column(name, false, PrimitiveArray::<T>::from_iter_values(values))
    }

    pub fn number_or_null<T: ArrowPrimitiveType>(
        self,
        name: &str,
        values: impl Iterator<Item = Option<T::Native>>,
    ) -> Self {
        let (values, valid): (Vec<_>, Vec<_>) =
            values.map(|value| (value.unwrap_or_default(), value.is_some())).unzip();
        let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        self.column(name, true, PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls))
    }

    pub fn flag(self, name: &str, values: impl Iterator<Item = Option<bool>>) -> Self {
        self.column(name, true, values.collect::<BooleanArray>())
    }

    pub fn digest(
        self,
        name: &str,
        values: impl Iterator<Item = Option<Digest32>>,
    ) -> Result<Self, ArrowError> {
        Ok(self.column(name, true, digests(values)?))
    }

    /// Lists that may be null, as most are.
    pub fn lists_or_null<'t, T: ArrowPrimitiveType>(
        self,
        name: &str,
        values: impl Iterator<Item = Option<&'t [T::Native]>>,
    ) -> Self {
        let values: Vec<_> = values.collect();
        let count = values.iter().flatten().map(|value| value.len()).sum();
        let mut items: Vec<T::Native> = Vec::with_capacity(count);
        let mut offsets = Vec::with_capacity(values.len() + 1);
        offsets.push(0i64);
        let mut valid = Vec::with_capacity(values.len());
        for value in values {
            items.extend_from_slice(value.unwrap_or_default());
            offsets.push(items.len() as i64);
            valid.push(value.is_some());
        }
        let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        let array = LargeListArray::new(
            Arc::new(Field::new("item", T::DATA_TYPE, false)),
            OffsetBuffer::new(ScalarBuffer::from(offsets)),
            Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(items), None)),
            nulls,
        );
        self.column(name, true, array)
    }

    pub fn finish(self) -> RowGroup<'a> {
        RowGroup::new(Arc::new(Schema::new(self.fields)), self.columns)
    }
}

/// 32-byte values, null where there is none.
pub(super) fn digests(
    values: impl Iterator<Item = Option<Digest32>>,
) -> Result<FixedSizeBinaryArray, ArrowError> {
    FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.map(|d| d.map(|d| d.0)), 32)
}

/// Columns of a batch that is being read, by name and of the type asked for.
pub(super) struct Columns<'a> {
    batch: &'a RecordBatch,
    /// Where the next name is likely to be: rows are mostly read in the order of their columns.
    next: Cell<usize>,
}

impl<'a> Columns<'a> {
    pub fn new(batch: &'a RecordBatch) -> Self {
        Self { batch, next: Cell::new(0) }
    }

    fn find(&self, name: &str) -> Option<&'a ArrayRef> {
        let fields = self.batch.schema_ref().fields();
        let here = |field: &Arc<Field>| field.name() == name;
        let (before, after) = fields.split_at_checked(self.next.get())?;
        let later = after.iter().position(here).map(|at| before.len() + at);
        let at = later.or_else(|| before.iter().position(here))?;
        self.next.set(at + 1);
        self.batch.columns().get(at)
    }

    /// The column if it has a value in this row.
    pub fn get(&self, name: &str, at: usize) -> Result<Option<&'a ArrayRef>, Fault> {
        let column = self.find(name).ok_or_else(|| format!("column {name} is missing"))?;
        Ok((!column.is_null(at)).then_some(column))
    }

    fn read<T>(
        &self,
        name: &str,
        at: usize,
        read: impl FnOnce(&'a ArrayRef) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let Some(column) = self.get(name, at)? else { return Ok(None) };
        let wrong = || format!("column {name} has the type {}", column.data_type());
        read(column).map(Some).ok_or_else(wrong)
    }

    pub fn text_or_null(&self, name: &str, at: usize) -> Result<Option<&'a str>, Fault> {
        self.read(name, at, |column| match column.data_type() {
            DataType::Utf8 => Some(column.as_string::<i32>().value(at)),
            DataType::LargeUtf8 => Some(column.as_string::<i64>().value(at)),
            _ => None,
        })
    }

    pub fn text(&self, name: &str, at: usize) -> Result<&'a str, Fault> {
        self.text_or_null(name, at)?.ok_or_else(|| null(name))
    }

    pub fn bytes(&self, name: &str, at: usize) -> Result<Option<&'a [u8]>, Fault> {
        self.read(name, at, |column| column.as_binary_opt::<i64>().map(|column| column.value(at)))
    }

    pub fn number_or_null<T: ArrowPrimitiveType>(
        &self,
        name: &str,
        at: usize,
    ) -> Result<Option<T::Native>, Fault> {
        self.read(name, at, |column| column.as_primitive_opt::<T>().map(|c| c.value(at)))
    }

    pub fn number<T: ArrowPrimitiveType>(&self, name: &str, at: usize) -> Result<T::Native, Fault> {
        self.number_or_null::<T>(name, at)?.ok_or_else(|| null(name))
    }

    pub fn flag(&self, name: &str, at: usize) -> Result<Option<bool>, Fault> {
        self.read(name, at, |column| column.as_boolean_opt().map(|column| column.value(at)))
    }

    pub fn digest(&self, name: &str, at: usize) -> Result<Option<Digest32>, Fault> {
        self.read(name, at, |column| {
            Digest32::from_slice(column.as_fixed_size_binary_opt()?.value(at))
        })
    }

    pub fn list<T: ArrowPrimitiveType>(
        &self,
        name: &str,
        at: usize,
    ) -> Result<Option<Vec<T::Native>>, Fault> {
        self.read(name, at, |column| {
            let items = column.as_list_opt::<i64>()?.value(at);
            Some(items.as_primitive_opt::<T>()?.values().to_vec())
        })
    }
}

fn null(name: &str) -> Fault {
    format!("column {name} is null")
}
