//! `validate --format json` and `jsonl`.

use schemars::JsonSchema;
use serde::Serialize;

use super::Tally;
use crate::finding::Finding;
use crate::select::{Selection, Verdict};

/// Version of the shape of both documents.
const SCHEMA_VERSION: u32 = 1;

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

/// What `--policy` makes of the rollouts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Selected {
    /// The policy.
    pub policy: String,
    /// Rollouts that train.
    pub valid_rollouts: u64,
    /// Rollouts that do not; their findings say why.
    pub masked_rollouts: u64,
    /// Prompt groups that are left out as a whole.
    pub dropped_groups: u64,
}

impl Selected {
    /// Counts a selection by `policy`.
    pub fn of(policy: &str, selection: &Selection) -> Self {
        let groups = &selection.groups;
        let rollouts = || groups.iter().flat_map(|group| &group.rollouts);
        let valid = rollouts().filter(|rollout| rollout.verdict() == Verdict::Valid).count();
        Self {
            policy: policy.to_owned(),
            valid_rollouts: valid as u64,
            masked_rollouts: (rollouts().count() - valid) as u64,
            dropped_groups: groups.iter().filter(|group| group.dropped.is_some()).count() as u64,
        }
    }

    /// Counts further rollouts, of the same policy.
    pub fn add(&mut self, more: &Self) {
        self.valid_rollouts += more.valid_rollouts;
        self.masked_rollouts += more.masked_rollouts;
        self.dropped_groups += more.dropped_groups;
    }
}

/// What a validation comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Summary {
    /// How much was looked at.
    pub checked: Checked,
    /// How much was found.
    pub found: Tally,
    /// With `--policy`: how many rollouts train.
    pub selected: Option<Selected>,
}

impl Summary {
    /// Adds what was looked at and selected in one more piece.
    pub fn add(&mut self, checked: Checked, selected: Option<Selected>) {
        self.checked += checked;
        match (&mut self.selected, selected) {
            (Some(sum), Some(more)) => sum.add(&more),
            (sum @ None, more) => *sum = more,
            (Some(_), None) => {}
        }
    }
}

/// All findings of a validation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FindingsDocument<'a> {
    /// Version of this document's shape.
    pub schema_version: u32,
    /// Those of the archive's files, then part by part, then those of its quarantine.
    pub findings: &'a [Finding],
    /// What they come to.
    #[serde(flatten)]
    pub summary: &'a Summary,
}

impl<'a> FindingsDocument<'a> {
    /// The current version of the document.
    pub fn new(findings: &'a [Finding], summary: &'a Summary) -> Self {
        Self { schema_version: SCHEMA_VERSION, findings, summary }
    }
}

/// One line of `--format jsonl`: findings as they are found, in the order of the document, and a
/// summary as the last line. Without a summary the validation did not come to its end.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FindingsLine<'a> {
    /// One finding.
    Finding(&'a Finding),
    /// The last line.
    Summary {
        /// Version of the shape of the lines.
        schema_version: u32,
        /// What the findings come to.
        #[serde(flatten)]
        summary: &'a Summary,
    },
}

impl<'a> FindingsLine<'a> {
    /// The last line.
    pub fn last(summary: &'a Summary) -> Self {
        Self::Summary { schema_version: SCHEMA_VERSION, summary }
    }
}
