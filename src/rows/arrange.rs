//! Groups in the order of their ids, whatever the order in which they were built, and of these
//! only the ones that are wanted.

use std::collections::BTreeMap;

use super::model::Row;
use super::spill::Spill;
use super::writer::RowsWriter;
use crate::error::Result;
use crate::id::GroupId;

/// Rows on their way to a writer.
pub struct Arrangement {
    writer: RowsWriter,
    aside: Option<Aside>,
}

/// Rows that wait for their turn, by group.
struct Aside {
    spill: Spill,
    groups: BTreeMap<GroupId, usize>,
}

impl Arrangement {
    /// Groups go straight to `writer`, as they come in order and are all wanted.
    pub fn in_order(writer: RowsWriter) -> Self {
        Self { writer, aside: None }
    }

    /// Groups wait on disk until all are there.
    ///
    /// # Errors
    ///
    /// When the disk does not take them, as for all of these.
    pub fn in_any_order(writer: RowsWriter) -> Result<Self> {
        let spill = Spill::create(writer.path())?;
        Ok(Self { writer, aside: Some(Aside { spill, groups: BTreeMap::new() }) })
    }

    /// Takes the rows of a group.
    pub fn group(&mut self, group_id: &GroupId, rows: Vec<Row>) -> Result<()> {
        match &mut self.aside {
            _ if rows.is_empty() => Ok(()),
            None => self.writer.group(rows),
            Some(aside) => {
                let number = aside.spill.push(&rows)?;
                aside.groups.insert(group_id.clone(), number);
                Ok(())
            }
        }
    }

    /// The writer, with the rows of the groups that are `wanted`. Those that came in order are
    /// there in any case.
    pub fn finish(mut self, wanted: impl Fn(&GroupId) -> bool) -> Result<RowsWriter> {
        if let Some(Aside { spill, groups }) = self.aside {
            let spilled = spill.finish()?;
            for (group_id, number) in &groups {
                if wanted(group_id) {
                    self.writer.group(spilled.group(*number)?)?;
                }
            }
        }
        Ok(self.writer)
    }
}
