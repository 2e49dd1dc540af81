//! `validate --format json`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::finding::Finding;

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Checked {
    /// Logical rollouts.
    pub rollouts: u64,
    /// Captured calls, uncommitted ones too.
    pub calls: u64,
    /// Tokens of all deltas.
    pub tokens: u64,
}

impl std::ops::AddAssign for Checked {
    fn add_assign(&mut self, more: Self) {
        self.rollouts += more.rollouts;
        self.calls += more.calls;
        self.tokens += more.tokens;
    }
}

/// All findings of a validation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FindingsDocument<'a> {
    /// Version of this document's shape.
    pub schema_version: u32,
    /// In archive order.
    pub findings: &'a [Finding],
    /// How much was looked at.
    pub checked: Checked,
}

impl<'a> FindingsDocument<'a> {
    /// The current version of the document.
    pub fn new(findings: &'a [Finding], checked: Checked) -> Self {
        Self { schema_version: 1, findings, checked }
    }
}
