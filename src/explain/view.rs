//! A prompt group as the stages leave it.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use crate::archive::{Group, Rollout};
use crate::config::GrpoSettings;
use crate::finding::{Code, Finding};
use crate::rows::{Row, build_group};
use crate::select::{GroupSelection, RolloutSelection};

/// What training does with a rollout.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Verdict {
    /// Its rows carry loss.
    Valid,
    /// Kept, without loss.
    Masked,
    /// Left out with its whole prompt group.
    Dropped,
}

impl Verdict {
    /// The word of every format.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Valid => "valid",
            Verdict::Masked => "masked",
            Verdict::Dropped => "dropped",
        }
    }
}

/// One prompt group: captured, selected, found wrong, laid out.
#[derive(Debug)]
pub struct View<'a> {
    /// What was captured.
    pub group: &'a Group,
    /// What was selected.
    pub selection: GroupSelection,
    /// What validation found, then what selection found beyond it.
    pub findings: Vec<Finding>,
    /// Its rows, without execution padding; none of a dropped group.
    pub rows: Vec<Row>,
}

impl<'a> View<'a> {
    /// Lays out `selection`. Of what selection found, `found`, whatever validation has told
    /// already in `proved` is left out.
    pub fn new(
        group: &'a Group,
        selection: GroupSelection,
        proved: Vec<Finding>,
        found: Vec<Finding>,
        grpo: &GrpoSettings,
    ) -> Self {
        let rows = build_group(group, &selection, 1, grpo).rows;
        Self::of_rows(group, selection, proved, found, rows)
    }

    /// The same of `rows` that are laid out already, without execution padding.
    pub fn of_rows(
        group: &'a Group,
        selection: GroupSelection,
        proved: Vec<Finding>,
        found: Vec<Finding>,
        rows: Vec<Row>,
    ) -> Self {
        let known: BTreeSet<_> =
            proved.iter().map(|finding| (finding.code, finding.rollout_id.clone())).collect();
        let told = |finding: &Finding| known.contains(&(finding.code, finding.rollout_id.clone()));
        let beyond: Vec<Finding> = found.into_iter().filter(|finding| !told(finding)).collect();
        Self { group, selection, findings: proved.into_iter().chain(beyond).collect(), rows }
    }

    /// Its rollouts, in slot order.
    pub fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        let rollouts = self.group.rollouts.iter().zip(&self.selection.rollouts);
        rollouts.map(|(rollout, selection)| Slot { view: self, rollout, selection })
    }
}

/// One rollout of a [`View`].
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    /// The group.
    pub view: &'a View<'a>,
    /// What was captured.
    pub rollout: &'a Rollout,
    /// What was selected.
    pub selection: &'a RolloutSelection,
}

impl<'a> Slot<'a> {
    /// Its rows; one that stands in for it where it has no layout of its own.
    pub fn rows(&self) -> impl Iterator<Item = &'a Row> + use<'a> {
        let own = &self.rollout.rollout_id;
        self.view.rows.iter().filter(move |row| row.rollout_id.as_ref() == Some(own))
    }

    /// Its rows that hold its own tokens.
    pub fn own_rows(&self) -> impl Iterator<Item = &'a Row> + use<'a> {
        self.rows().filter(|row| !row.uses_borrowed_input)
    }

    /// What was found of it.
    pub fn findings(&self) -> impl Iterator<Item = &'a Finding> + use<'a> {
        let own = &self.rollout.rollout_id;
        self.view.findings.iter().filter(move |f| f.rollout_id.as_ref() == Some(own))
    }

    /// What training does with it.
    pub fn verdict(&self) -> Verdict {
        let mut rows = self.rows().peekable();
        match rows.peek() {
            None => Verdict::Dropped,
            Some(row) if row.sample_mask != 0.0 => Verdict::Valid,
            Some(_) => Verdict::Masked,
        }
    }

    /// Why it carries no loss, the first reason first: its own, a filter of the learner, its
    /// group's.
    pub fn reasons(&self) -> Vec<Code> {
        let own = self.selection.reasons.iter().map(|reason| reason.code);
        let mut codes: Vec<Code> = own.chain(self.filter()).chain(self.dropped()).collect();
        let mut seen = BTreeSet::new();
        codes.retain(|code| seen.insert(*code));
        codes
    }

    /// The learner-side filter that masks it.
    pub fn filter(&self) -> Option<Code> {
        let filtered = self.selection.reasons.is_empty();
        self.rows().find_map(|row| Code::parse(row.mask_reason.as_deref()?)).filter(|_| filtered)
    }

    /// Why its group is left out.
    pub fn dropped(&self) -> Option<Code> {
        self.view.selection.dropped
    }

    /// Its advantage; `None` in a dropped group.
    pub fn advantage(&self) -> Option<f64> {
        self.rows().next().map(|row| row.advantage)
    }

    /// Tokens that carry loss.
    pub fn loss_tokens(&self) -> u64 {
        let trains = self.rows().filter(|row| row.sample_mask != 0.0);
        trains.map(|row| row.loss_tokens() as u64).sum()
    }
}
