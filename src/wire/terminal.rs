//! Finding the scored call without a witness, by shape alone (`spec/gym-wire.md` c.1).
//!
//! A heuristic of the package: with several context roots it takes the earliest that has
//! children, which is the one before a compaction. forestctl reports what it says and selects
//! nothing by it.

use std::collections::HashMap;

use super::receipt::CallRecord;

/// What the walk looks at in a manifest row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TerminalCandidate<'a> {
    /// The call.
    pub model_call_id: &'a str,
    /// Its parent.
    pub parent_call_id: Option<&'a str>,
    /// Admission time in seconds since the epoch.
    pub admitted_at: Option<f64>,
}

impl<'a> From<&'a CallRecord> for TerminalCandidate<'a> {
    fn from(row: &'a CallRecord) -> Self {
        Self {
            model_call_id: &row.model_call_id,
            parent_call_id: row.parent_call_id.as_deref(),
            admitted_at: row.admitted_at,
        }
    }
}

/// Why the walk found no call, in the package's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTerminal {
    /// The manifest is empty.
    NoRecords,
    /// Two rows name one call.
    DuplicateCallId,
    /// A parent is not in the manifest.
    OrphanedRow,
    /// Every row has a parent.
    NoRoot,
    /// Two children are equally good.
    AmbiguousTerminal,
}

impl NoTerminal {
    /// The package's word.
    pub fn as_str(self) -> &'static str {
        match self {
            NoTerminal::NoRecords => "no_records",
            NoTerminal::DuplicateCallId => "duplicate_call_id",
            NoTerminal::OrphanedRow => "orphaned_row",
            NoTerminal::NoRoot => "no_root",
            NoTerminal::AmbiguousTerminal => "ambiguous_terminal",
        }
    }
}

/// The scored call by shape: from the earliest root down, preferring rows that have children.
///
/// # Errors
///
/// Why there is none.
pub fn select_terminal_call<'a>(rows: &[TerminalCandidate<'a>]) -> Result<&'a str, NoTerminal> {
    if rows.is_empty() {
        return Err(NoTerminal::NoRecords);
    }
    let mut by_id = HashMap::with_capacity(rows.len());
    for (i, row) in rows.iter().enumerate() {
        if by_id.insert(row.model_call_id, i).is_some() {
            return Err(NoTerminal::DuplicateCallId);
        }
    }
    let mut children = vec![Vec::new(); rows.len()];
    let mut roots = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        match row.parent_call_id {
            None => roots.push(i),
            Some(id) => match by_id.get(id) {
                Some(&parent) => children[parent].push(i),
                None => return Err(NoTerminal::OrphanedRow),
            },
        }
    }
    let extended = |pool: &[usize]| {
        let with_children: Vec<_> =
            pool.iter().copied().filter(|&i| !children[i].is_empty()).collect();
        if with_children.is_empty() { pool.to_vec() } else { with_children }
    };
    // Stamped before unstamped, then by time; the first of equals is the first in the manifest.
    let stamp = |&i: &usize| {
        let admitted_at: Option<f64> = rows[i].admitted_at;
        (admitted_at.is_none(), admitted_at.unwrap_or(0.0))
    };
    let earliest = extended(&roots)
        .into_iter()
        .min_by(|a, b| stamp(a).partial_cmp(&stamp(b)).unwrap_or(std::cmp::Ordering::Equal));
    let mut call = earliest.ok_or(NoTerminal::NoRoot)?;
    // Each row has one parent, so nothing below a root leads back up.
    loop {
        match extended(&children[call])[..] {
            [] => return Ok(rows[call].model_call_id),
            [child] => call = child,
            _ => return Err(NoTerminal::AmbiguousTerminal),
        }
    }
}
