//! A broken rollout is data: a [`Finding`] with a stable [`Code`], never an `Err`.

mod code;
mod rule;

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::id::{CallId, CaptureKey, RolloutId};

pub use code::{Code, Family};

/// How much a finding weighs. An *error* is evidence that is wrong or contradicts itself; a
/// *warning* is a capture event that merely masks, or something unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Masks at most; `validate` still exits 0.
    Warning,
    /// Wrong evidence; `validate` exits 1.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// Where a finding points: a source file and line, or a place in an archive or rows directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Location {
    /// File as the user would open it, relative to the archive or as given on the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// One-based line of a text file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Zero-based row of a Parquet table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// Capture scope of the record or receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture_key: Option<CaptureKey>,
    /// Field of the record, in wire words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl Location {
    /// A line of a text file, counted from one.
    pub fn line(file: impl Into<String>, line: u64) -> Self {
        Self { file: Some(file.into()), line: Some(line), ..Self::default() }
    }

    /// A row of a Parquet table, counted from zero.
    pub fn row(file: impl Into<String>, row: u64) -> Self {
        Self { file: Some(file.into()), row: Some(row), ..Self::default() }
    }

    /// The same place, narrowed to one field.
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The same place, with the capture scope it belongs to.
    pub fn scope(mut self, capture_key: CaptureKey) -> Self {
        self.capture_key = Some(capture_key);
        self
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match (&self.file, self.line, self.row) {
            (Some(file), Some(line), _) => parts.push(format!("{file}:{line}")),
            (Some(file), None, Some(row)) => parts.push(format!("{file} row {row}")),
            (Some(file), None, None) => parts.push(file.clone()),
            _ => {}
        }
        if let Some(key) = &self.capture_key {
            parts.push(format!("scope {key}"));
        }
        if let Some(field) = &self.field {
            parts.push(format!("field {field}"));
        }
        f.write_str(&parts.join(", "))
    }
}

/// One broken thing: what, how bad, where, in one sentence, and what to do about it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// Stable code; upstream's word where upstream has one.
    pub code: Code,
    /// The code's default unless the stage knows better.
    pub severity: Severity,
    /// The logical rollout concerned.
    pub rollout_id: Option<RolloutId>,
    /// The call concerned.
    pub call_id: Option<CallId>,
    /// File, line or row, scope, field.
    pub location: Location,
    /// One sentence: what was found, and what was expected.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl Finding {
    /// A finding of `code` with its default severity and help.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: code.severity(),
            rollout_id: None,
            call_id: None,
            location: Location::default(),
            message: message.into(),
            help: code.help().to_owned(),
        }
    }

    /// Names the logical rollout.
    pub fn rollout(mut self, id: &RolloutId) -> Self {
        self.rollout_id = Some(id.clone());
        self
    }

    /// Names the call.
    pub fn call(mut self, id: &CallId) -> Self {
        self.call_id = Some(id.clone());
        self
    }

    /// Says where.
    pub fn at(mut self, location: Location) -> Self {
        self.location = location;
        self
    }

    /// Replaces the default help by advice that knows the case.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// Rollout, call and location in words; empty when nothing is known.
    pub fn place(&self) -> String {
        let rollout = self.rollout_id.iter().map(|id| format!("rollout {id}"));
        let call = self.call_id.iter().map(|id| format!("call {id}"));
        let location = Some(self.location.to_string()).filter(|location| !location.is_empty());
        rollout.chain(call).chain(location).collect::<Vec<_>>().join(", ")
    }
}
