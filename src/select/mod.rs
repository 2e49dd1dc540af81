//! Selection: which captured calls train, in which order, and why a rollout does not
//! (rules 59-80, 85-88).

mod all_captured;
pub mod custom;
mod evidence;
mod index;
mod judge;
mod layout;
mod matching;
mod returned_history;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use all_captured::AllCaptured;
pub use layout::{calls_of, parents, routes_of};
pub use returned_history::{ReturnedHistory, witnesses};

use crate::archive::{Completion, Group, Rollout};
use crate::config::Fraction;
use crate::finding::{Code, Finding};
use crate::id::{CallId, GroupId, RolloutId};
use crate::validate;

/// Chooses calls of one rollout and names the scored one.
pub trait Policy: fmt::Debug + Send + Sync {
    /// The word of `--policy`.
    fn name(&self) -> &str;

    /// Chooses. Reads what was captured and the harness's result, and nothing else; whether the
    /// choice may train is judged afterwards, alike for every policy.
    fn choose(&self, rollout: &Rollout) -> Choice;
}

impl<P: Policy + ?Sized> Policy for &P {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn choose(&self, rollout: &Rollout) -> Choice {
        (**self).choose(rollout)
    }
}

/// What a policy chose.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Calls in selection order, each once.
    pub calls: Vec<CallId>,
    /// The scored call; need not be the last one.
    pub terminal: Option<CallId>,
    /// Missing, contradictory, duplicated, or ambiguous evidence.
    pub problems: Vec<Reason>,
}

/// The built-in policies.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum PolicyName {
    /// Calls whose generations the returned history holds
    #[default]
    ReturnedHistory,
    /// Every recorded call, abandoned retries and branches included
    AllCaptured,
}

impl PolicyName {
    /// The policy of this name.
    pub fn policy(self) -> &'static dyn Policy {
        match self {
            PolicyName::ReturnedHistory => &ReturnedHistory,
            PolicyName::AllCaptured => &AllCaptured,
        }
    }
}

/// A policy as `--policy` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyChoice {
    /// One of the built-in ones.
    BuiltIn(PolicyName),
    /// The user's own.
    Custom(custom::Selector),
}

impl Default for PolicyChoice {
    fn default() -> Self {
        Self::BuiltIn(PolicyName::default())
    }
}

impl FromStr for PolicyChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let built_in = PolicyName::value_variants();
        if let Some(&policy) = built_in.iter().find(|policy| policy.policy().name() == text) {
            return Ok(Self::BuiltIn(policy));
        }
        text.parse().map(Self::Custom).map_err(|why| {
            let words = built_in.iter().map(|policy| policy.policy().name());
            format!("{}; or a built-in policy: {}", why, words.collect::<Vec<_>>().join(", "))
        })
    }
}

impl fmt::Display for PolicyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(policy) => f.write_str(policy.policy().name()),
            Self::Custom(selector) => selector.fmt(f),
        }
    }
}

/// Why a rollout is masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Stable code.
    pub code: Code,
    /// Calls concerned.
    pub calls: Vec<CallId>,
    /// What was found and what was expected.
    pub message: String,
    /// The capture's own word, where a failed capture is the reason.
    pub capture_reason: Option<String>,
    /// How the calls ended, where that is the reason.
    pub completion: Option<Completion>,
}

impl Reason {
    /// The reason `code`, concerning `calls`.
    pub fn new(code: Code, calls: Vec<CallId>, message: impl Into<String>) -> Self {
        Self { code, calls, message: message.into(), capture_reason: None, completion: None }
    }
}

/// The verdict on a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Trains.
    Valid,
    /// Kept, without loss.
    Masked,
}

/// What was selected of one rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutSelection {
    /// The rollout.
    pub rollout_id: RolloutId,
    /// Its slot.
    pub slot: u32,
    /// Selected calls in selection order; masked rollouts report theirs too.
    pub calls: Vec<CallId>,
    /// The scored call.
    pub terminal: Option<CallId>,
    /// Why it is masked; empty when it is valid.
    pub reasons: Vec<Reason>,
    /// Whether a selected generation stopped at a length limit (rule 108); false without a
    /// verified layout.
    pub truncated: bool,
}

impl RolloutSelection {
    /// Valid without reasons, masked with some.
    pub fn verdict(&self) -> Verdict {
        if self.reasons.is_empty() { Verdict::Valid } else { Verdict::Masked }
    }

    /// Whether the selection can be laid out as rows of its own. A rollout that only its
    /// environment masked keeps its verified rows.
    pub fn has_layout(&self) -> bool {
        self.reasons.iter().all(|r| r.code == Code::EnvironmentMasked)
    }
}

/// What was selected of one prompt group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSelection {
    /// The group.
    pub group_id: GroupId,
    /// One per rollout, in slot order.
    pub rollouts: Vec<RolloutSelection>,
    /// Why the whole group is left out, if it is.
    pub dropped: Option<Code>,
}

/// A selection over many groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// One per group, in the order of the groups.
    pub groups: Vec<GroupSelection>,
    /// What is wrong with the evidence, and what masks, in the same order.
    pub findings: Vec<Finding>,
}

impl Selection {
    /// Its findings, but for those that `known` ones of validation tell already: with the same
    /// code, on the same rollout.
    pub fn findings_beyond(self, known: &[Finding]) -> Vec<Finding> {
        let known: BTreeSet<_> = known.iter().map(|f| (f.code, f.rollout_id.as_ref())).collect();
        let told = |f: &Finding| known.contains(&(f.code, f.rollout_id.as_ref()));
        self.findings.into_iter().filter(|finding| !told(finding)).collect()
    }
}

/// What a selection may rely on beyond the archive.
#[derive(Clone, Debug, Default)]
pub struct SelectSettings {
    /// Take sources of unknown completeness as complete.
    pub assume_complete: bool,
    /// Share of a group's rollouts that must have a verified layout (rule 118).
    pub min_valid_fraction: Option<Fraction>,
    /// Rollouts whose capture validation proved wrong, and the first code that says so.
    pub invalid: BTreeMap<RolloutId, Code>,
}

/// Selects calls of every rollout. Groups are independent, and the result does not depend on the
/// number of threads.
pub fn select(groups: &[Group], policy: &dyn Policy, settings: &SelectSettings) -> Selection {
    let parts: Vec<_> =
        groups.par_iter().map(|group| select_group(group, policy, settings)).collect();
    let mut selection = Selection::default();
    for (group, findings) in parts {
        selection.groups.push(group);
        selection.findings.extend(findings);
    }
    selection
}

/// Selects calls of one group.
pub fn select_group(
    group: &Group,
    policy: &dyn Policy,
    settings: &SelectSettings,
) -> (GroupSelection, Vec<Finding>) {
    let mut findings = Vec::new();
    let mut rollouts = Vec::with_capacity(group.rollouts.len());
    for rollout in &group.rollouts {
        let (selection, found) = judge::judge(rollout, policy, settings);
        rollouts.push(selection);
        findings.extend(found);
    }
    let mut inconsistent = Vec::new();
    validate::group::check(group, &mut inconsistent);
    let worst = inconsistent.iter().max_by_key(|finding| finding.severity).map(|f| f.code);
    findings.append(&mut inconsistent);
    let dropped = if let Some(code) = worst {
        Some(code)
    } else if !rollouts.iter().any(RolloutSelection::has_layout) {
        findings.push(no_layout(group));
        Some(Code::NoVerifiedLayout)
    } else if let Some(finding) = too_few(group, &rollouts, settings) {
        findings.push(finding);
        Some(Code::TooFewValidRollouts)
    } else {
        None
    };
    (GroupSelection { group_id: group.group_id.clone(), rollouts, dropped }, findings)
}

/// Rollouts count, however many rows they have (rule 118).
fn too_few(
    group: &Group,
    rollouts: &[RolloutSelection],
    settings: &SelectSettings,
) -> Option<Finding> {
    let fraction = settings.min_valid_fraction?;
    let valid = rollouts.iter().filter(|rollout| rollout.has_layout()).count();
    let (count, id) = (rollouts.len(), &group.group_id);
    if fraction.is_reached(valid as u64, count as u64) {
        return None;
    }
    let message = format!(
        "{valid} of the {count} rollouts of {id} have a verified layout, less than {fraction} of \
         them: the group is dropped"
    );
    let finding = Finding::new(Code::TooFewValidRollouts, message);
    Some(match group.rollouts.first() {
        Some(rollout) => finding.rollout(&rollout.rollout_id),
        None => finding,
    })
}

fn no_layout(group: &Group) -> Finding {
    let (count, id) = (group.rollouts.len(), &group.group_id);
    let message =
        format!("none of the {count} rollouts of {id} has a verified layout: the group is dropped");
    let finding = Finding::new(Code::NoVerifiedLayout, message);
    match group.rollouts.first() {
        Some(rollout) => finding.rollout(&rollout.rollout_id),
        None => finding,
    }
}
