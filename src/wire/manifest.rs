//! The graph of a manifest: parents, lengths, cycles, and the chain from a root to a call.

use std::collections::{HashMap, HashSet};

use super::receipt::CallRecord;
use super::verify::VerifyError;
use crate::finding::Code;

/// Rows of one manifest, with their parent links resolved.
pub struct Manifest<'a> {
    rows: &'a [CallRecord],
    by_id: HashMap<&'a str, usize>,
}

/// What is known of following parents from a row.
#[derive(Clone, Copy)]
enum Walk {
    Unknown,
    /// On the walk that is being made.
    Open,
    /// Ends at a root, or at a parent that is not there.
    Ends,
    /// Runs into a cycle, which it enters at this row.
    Enters(usize),
}

impl<'a> Manifest<'a> {
    /// Indexes the rows. Of rows with one id the last is found by it, as in a Python dict.
    pub fn new(rows: &'a [CallRecord]) -> Self {
        let by_id = rows.iter().enumerate().map(|(i, row)| (row.model_call_id.as_str(), i));
        Self { rows, by_id: by_id.collect() }
    }

    /// Position of a call.
    pub fn position(&self, model_call_id: &str) -> Option<usize> {
        self.by_id.get(model_call_id).copied()
    }

    fn parent(&self, row: usize) -> Option<usize> {
        self.rows[row].parent_call_id.as_deref().and_then(|id| self.position(id))
    }

    /// Rows that repeat a call id or a staging key, in order, with the error for each (step 6).
    pub fn duplicates(&self) -> impl Iterator<Item = (usize, VerifyError)> + '_ {
        let (mut ids, mut keys) = (HashSet::new(), HashSet::new());
        self.rows.iter().enumerate().filter_map(move |(i, row)| {
            let (code, detail) = if !ids.insert(row.model_call_id.as_str()) {
                (Code::DuplicateManifestRow, "model_call_id values are not unique")
            } else if !keys.insert(row.staging_key.as_str()) {
                (Code::DuplicateStagingKey, "staging keys are not unique")
            } else {
                return None;
            };
            Some((i, VerifyError::receipt(code, detail)))
        })
    }

    /// Rows whose links are broken, in manifest order, with the first error of each (step 9):
    /// `missing_parent`, `parent_length_mismatch`, `lineage_cycle`.
    ///
    /// A row's own length is compared before its ancestors are walked, and later rows are not
    /// yet compared then; so which error a pair of rows gives depends on their order, as in the
    /// package. No row is walked twice.
    pub fn link_errors(&self) -> impl Iterator<Item = (usize, VerifyError)> + '_ {
        let mut walks = vec![Walk::Unknown; self.rows.len()];
        (0..self.rows.len()).filter_map(move |i| {
            let error = self.own_link(i).err().or_else(|| {
                let entry = self.cycle(i, &mut walks)?;
                let call = &self.rows[entry].model_call_id;
                Some(VerifyError::rebuild(Code::LineageCycle, format!("cycle reaches call {call}")))
            });
            error.map(|error| (i, error))
        })
    }

    fn own_link(&self, i: usize) -> Result<(), VerifyError> {
        let row = &self.rows[i];
        let Some(id) = &row.parent_call_id else { return Ok(()) };
        let call = &row.model_call_id;
        let Some(parent) = self.position(id).map(|p| &self.rows[p]) else {
            let detail = format!("call {call} names absent parent {id}");
            return Err(VerifyError::rebuild(Code::MissingParent, detail));
        };
        if parent.cum_len != row.prev_len {
            let (start, end) = (row.prev_len, parent.cum_len);
            let detail = format!("call {call} starts at {start}, parent ends at {end}");
            return Err(VerifyError::rebuild(Code::ParentLengthMismatch, detail));
        }
        Ok(())
    }

    /// The first row that following parents from `start` meets twice.
    fn cycle(&self, start: usize, walks: &mut [Walk]) -> Option<usize> {
        let mut path = Vec::new();
        let mut next = Some(start);
        let end = loop {
            let Some(row) = next else { break Walk::Ends };
            match walks[row] {
                Walk::Unknown => {
                    walks[row] = Walk::Open;
                    path.push(row);
                    next = self.parent(row);
                }
                Walk::Open => {
                    // Every row of the cycle is where a walk that starts there enters it.
                    while let Some(on_cycle) = path.pop() {
                        walks[on_cycle] = Walk::Enters(on_cycle);
                        if on_cycle == row {
                            break;
                        }
                    }
                    break Walk::Enters(row);
                }
                known => break known,
            }
        };
        for row in path {
            walks[row] = end;
        }
        match walks[start] {
            Walk::Enters(entry) => Some(entry),
            _ => None,
        }
    }

    /// Rows from the root to a call, that call last (step 10).
    ///
    /// # Errors
    ///
    /// `missing_terminal`; on rows with broken links also `missing_parent` or `lineage_cycle`.
    pub fn chain(&self, terminal: Option<&str>) -> Result<Vec<usize>, VerifyError> {
        let missing = |detail: String| VerifyError::rebuild(Code::MissingTerminal, detail);
        let terminal =
            terminal.ok_or_else(|| missing("successful receipt has no terminal call".into()))?;
        let mut row = self
            .position(terminal)
            .ok_or_else(|| missing(format!("terminal call {terminal} is absent")))?;
        let mut chain = vec![row];
        while let Some(id) = &self.rows[row].parent_call_id {
            let call = &self.rows[row].model_call_id;
            row = self.position(id).ok_or_else(|| {
                let detail = format!("call {call} names absent parent {id}");
                VerifyError::rebuild(Code::MissingParent, detail)
            })?;
            if chain.len() == self.rows.len() {
                let detail = format!("cycle reaches call {}", self.rows[row].model_call_id);
                return Err(VerifyError::rebuild(Code::LineageCycle, detail));
            }
            chain.push(row);
        }
        chain.reverse();
        Ok(chain)
    }
}
