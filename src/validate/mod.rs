//! Validation: what was captured is what the ledger committed to, and hangs together.
//!
//! Every check of the published verifier (`spec/gym-wire.md` section c), by the same word, plus
//! those that it skips: off its terminal chain, on records that no row names, on the extras.

mod archive;
pub mod group;
mod ledger;
pub mod media;
pub mod read_data;
mod redundant;
mod scope;
mod staged;
mod store;
mod values;

use std::collections::{BTreeMap, HashSet};

pub use archive::{Piece, Settings, archive};
use rayon::prelude::*;
use scope::Scope;

use crate::archive::{Call, Group, Rollout, SourceKind};
use crate::finding::{Code, Family, Finding, Severity};
use crate::id::{CallId, RolloutId};
use crate::report::Checked;
use crate::wire::RecordError;

/// Which cumulative hashes are recomputed. Each begins with the token count, so checking all of
/// them is quadratic in the length of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Cumulative {
    /// Scored calls and calls without a child.
    #[default]
    Endpoints,
    /// Every call.
    All,
}

/// What to check.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Which cumulative hashes are recomputed.
    pub cumulative: Cumulative,
}

/// Findings in the order of groups, rollouts, and checks, and how much was looked at.
#[derive(Clone, Debug, Default)]
pub struct Validation {
    /// All findings.
    pub findings: Vec<Finding>,
    /// How much was looked at.
    pub checked: Checked,
}

/// Checks whole prompt groups; groups are independent and run in parallel.
pub fn validate(groups: &[Group], options: Options) -> Validation {
    let per_group: Vec<Vec<Finding>> = groups
        .par_iter()
        .map(|group| {
            let mut findings = Vec::new();
            group::check(group, &mut findings);
            let receipts: Vec<_> = group.rollouts.iter().map(staged::read_receipt).collect();
            let mut scopes: Vec<Option<Scope<'_>>> = group
                .rollouts
                .iter()
                .zip(&receipts)
                .map(|(rollout, read)| match read {
                    Some(Ok(receipt)) => Some(Scope::new(rollout, receipt, options)),
                    _ => None,
                })
                .collect();
            scope::take_digests(scopes.iter_mut().flatten());
            for ((rollout, read), scope) in group.rollouts.iter().zip(&receipts).zip(&scopes) {
                let read = match (read, scope) {
                    (_, Some(scope)) => Some(Ok(scope)),
                    (Some(Err(error)), None) => Some(Err(error)),
                    _ => None,
                };
                check_rollout(rollout, read, options, &mut findings);
            }
            findings
        })
        .collect();
    let calls = || groups.iter().flat_map(|g| &g.rollouts).flat_map(|r| &r.calls);
    Validation {
        findings: per_group.into_iter().flatten().collect(),
        checked: Checked {
            rollouts: groups.iter().map(|g| g.rollouts.len() as u64).sum(),
            calls: calls().count() as u64,
            tokens: calls().map(|c| c.token_ids.len() as u64).sum(),
        },
    }
}

/// The first error of every rollout whose evidence is wrong: such a rollout never trains.
///
/// Wrong media invalidate the rollout when a call that has them is selected (rule 91), which the
/// selection sees for itself.
pub fn invalid_rollouts(findings: &[Finding]) -> BTreeMap<RolloutId, Code> {
    let mut invalid = BTreeMap::new();
    let wrong = |f: &&Finding| f.severity == Severity::Error && f.code.family() != Family::Media;
    for finding in findings.iter().filter(wrong) {
        if let Some(id) = &finding.rollout_id {
            invalid.entry(id.clone()).or_insert(finding.code);
        }
    }
    invalid
}

fn check_rollout<'a>(
    rollout: &'a Rollout,
    receipt: Option<Result<&Scope<'a>, &RecordError>>,
    options: Options,
    findings: &mut Vec<Finding>,
) {
    redundant::check_form(rollout, findings);
    let before = findings.len();
    let mut calls: Vec<&Call> = match rollout.source {
        SourceKind::Staged => staged::check(rollout, receipt, findings),
        SourceKind::GymStore | SourceKind::InlineRollouts => {
            store::check(rollout, options, findings);
            rollout.calls.iter().collect()
        }
    };
    let wrong = |f: &&Finding| f.severity == Severity::Error;
    let wrong: HashSet<&CallId> =
        findings[before..].iter().filter(wrong).filter_map(|f| f.call_id.as_ref()).collect();
    calls.retain(|call| !wrong.contains(&call.call_id));
    let media = media::check(&calls, options.cumulative);
    findings.extend(media.into_iter().map(|problem| {
        Finding::new(problem.code, problem.message)
            .rollout(&rollout.rollout_id)
            .call(&problem.call.call_id)
            .at(values::place(problem.call).field(problem.field))
    }));
    values::check(rollout, findings);
    ledger::check(rollout, findings);
}
