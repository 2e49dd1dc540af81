//! Columns of lists, read below Arrow.
//!
//! Nearly all of a capture is two columns of lists. Arrow makes an offset of every level; here
//! the levels are only searched for where rows begin.

use arrow::datatypes::{ArrowPrimitiveType, DataType};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::DataType as Physical;
use parquet::file::serialized_reader::SerializedPageReader;

use super::Fault;

/// A column whose rows are lists without nulls, read from the first row of a row group on.
pub(in crate::archive) struct ListReader<T: Physical> {
    name: &'static str,
    reader: ColumnReaderImpl<T>,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    values: Vec<T::T>,
    /// Where each row that was read ends in `values`.
    ends: Vec<usize>,
}

impl<T: Physical> ListReader<T> {
    /// Opens the column `name` of row group `group`; its items are those of `A` in Arrow's terms.
    pub fn open<A: ArrowPrimitiveType>(
        bytes: &Bytes,
        metadata: &ArrowReaderMetadata,
        group: usize,
        name: &'static str,
    ) -> Result<Self, Fault> {
        let wrong = |found: &dyn std::fmt::Display| format!("column {name} has the type {found}");
        let field = metadata.schema().field_with_name(name);
        let field = field.map_err(|_| format!("column {name} is missing"))?;
        match field.data_type() {
            DataType::LargeList(item) if *item.data_type() == A::DATA_TYPE => {}
            other => return Err(wrong(other)),
        }
        let columns = metadata.parquet_schema().columns();
        let at = columns
            .iter()
            .position(|column| column.path().parts().first().is_some_and(|part| part == name));
        let at = at.ok_or_else(|| format!("column {name} is missing"))?;
        let column = &columns[at];
        if column.physical_type() != T::get_physical_type()
            || column.max_rep_level() != 1
            || column.max_def_level() != 1
        {
            return Err(wrong(&"a list that may hold nulls"));
        }
        let group = metadata.metadata().row_group(group);
        let rows = usize::try_from(group.num_rows()).map_err(|e| e.to_string())?;
        let pages = SerializedPageReader::new(bytes.clone().into(), group.column(at), rows, None);
        let pages: Box<dyn PageReader> = Box::new(pages.map_err(|e| e.to_string())?);
        Ok(Self {
            name,
            reader: ColumnReaderImpl::new(column.clone(), pages),
            definitions: Vec::new(),
            repetitions: Vec::new(),
            values: Vec::new(),
            ends: Vec::new(),
        })
    }

    /// Reads the next `rows` rows, which take the place of those before.
    pub fn read(&mut self, rows: usize) -> Result<(), Fault> {
        self.definitions.clear();
        self.repetitions.clear();
        self.values.clear();
        self.ends.clear();
        let (read, values, levels) = self
            .reader
            .read_records(
                rows,
                Some(&mut self.definitions),
                Some(&mut self.repetitions),
                &mut self.values,
            )
            .map_err(|e| e.to_string())?;
        let (mut start, mut end) = (0, 0);
        while start < levels {
            let next = start + 1;
            let after = self.repetitions.get(next..levels).map_or(levels, |rest| next + row(rest));
            let present = self.definitions.get(start..after).unwrap_or_default();
            end += present.iter().map(|&level| usize::from(level == 1)).sum::<usize>();
            self.ends.push(end);
            start = after;
        }
        match read == rows && self.ends.len() == rows && end == values {
            true => Ok(()),
            false => Err(format!("column {} ends early", self.name)),
        }
    }

    /// The items of a row among those read last.
    pub fn row(&self, at: usize) -> Option<&[T::T]> {
        let start = if at == 0 { 0 } else { *self.ends.get(at - 1)? };
        self.values.get(start..*self.ends.get(at)?)
    }
}

/// Levels before the one where a row begins.
fn row(repetitions: &[i16]) -> usize {
    let (blocks, _) = repetitions.as_chunks::<32>();
    let inside = |block: &&[i16; 32]| !block.iter().fold(false, |any, &level| any | (level == 0));
    let whole = 32 * blocks.iter().take_while(inside).count();
    let rest = &repetitions[whole..];
    whole + rest.iter().position(|&level| level == 0).unwrap_or(rest.len())
}
