//! What commands that select have in common: flags, the selection, and its findings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rayon::prelude::*;

use super::resolve::{ConfigArg, Resolver};
use super::ui::{Tone, Ui};
use crate::archive::{Archive, Group, MANIFEST as ARCHIVE, Part, Results};
use crate::config::Fraction;
use crate::error::{Error, Result};
use crate::finding::{Code, Finding, Severity};
use crate::id::{GroupId, RolloutId};
use crate::report;
use crate::rows::MANIFEST as ROWS;
use crate::select::custom::{Custom, Limits};
use crate::select::{GroupSelection, Policy, PolicyChoice, SelectSettings, select_group};
use crate::validate::{Options, invalid_rollouts, validate};

/// What a path holds that is neither rows nor an archive, in words.
pub fn neither(path: &Path) -> Error {
    Error::usage(format!("{} holds neither {ROWS} nor {ARCHIVE}", path.display()))
        .help("Give what `build-rows` or `ingest` wrote")
}

/// Flags of every command that selects.
#[derive(Debug, Args)]
pub struct SelectingArgs {
    /// Which captured calls train [default: returned_history]
    ///
    /// returned_history (calls whose generations the returned history holds), all_captured (every
    /// recorded call, abandoned retries and branches included), module:function (a Python
    /// function), or exec:PROGRAM (any program). docs/selectors.md tells what a selector is given
    /// and has to answer.
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicyChoice>,
    #[command(flatten)]
    judging: JudgingArgs,
}

/// Flags of every command that selects, but for the policy.
#[derive(Debug, Args)]
pub struct JudgingArgs {
    #[command(flatten)]
    selector: SelectorArgs,
    /// Take sources that cannot tell whether calls were lost as complete
    #[arg(long)]
    assume_complete: bool,
    /// Drop prompt groups of which a smaller share of rollouts has a verified layout
    #[arg(long, value_name = "FRACTION")]
    min_valid_fraction: Option<Fraction>,
}

/// How to select, settled.
#[derive(Debug)]
pub struct Selecting {
    /// The policy.
    pub policy: PolicyChoice,
    /// Whether sources of unknown completeness pass.
    pub assume_complete: bool,
    min_valid_fraction: Option<Fraction>,
}

/// What is known of a group once calls of it are selected.
#[derive(Debug)]
pub struct Judged {
    /// The selection.
    pub selection: GroupSelection,
    /// What selecting found.
    pub findings: Vec<Finding>,
    /// What validation found.
    pub proved: Vec<Finding>,
}

impl SelectingArgs {
    /// The first of these flags that was given.
    pub fn stated(&self) -> Option<&'static str> {
        let flags = [
            ("--policy", self.policy.is_some()),
            ("--assume-complete", self.judging.assume_complete),
            ("--min-valid-fraction", self.judging.min_valid_fraction.is_some()),
        ];
        flags.into_iter().find_map(|(flag, stated)| stated.then_some(flag))
    }

    /// Refuses flags of the selection where rows were given: they were selected when built.
    ///
    /// # Errors
    ///
    /// One of them, or a configuration file.
    pub fn refuse_for_rows(&self, config: &ConfigArg) -> Result<()> {
        let stated = config.config.is_some().then_some("--config");
        match stated.or(self.stated()) {
            None => Ok(()),
            Some(flag) => {
                Err(Error::usage(format!("{flag} selects calls of an archive, and these are rows"))
                    .help("Give the archive, or leave the flag out: rows were selected when built"))
            }
        }
    }

    /// Settles flags and file.
    ///
    /// # Errors
    ///
    /// A policy of the file that is none.
    pub fn settle(&self, resolver: &mut Resolver) -> Result<Selecting> {
        self.judging.settle(self.policy.clone(), resolver)
    }
}

impl JudgingArgs {
    /// Settles flags and file; `policy` is the flag's.
    ///
    /// # Errors
    ///
    /// A policy of the file that is none.
    pub fn settle(
        &self,
        policy: Option<PolicyChoice>,
        resolver: &mut Resolver,
    ) -> Result<Selecting> {
        let policy = resolver.policy(policy)?;
        let min_valid_fraction = resolver.optional(
            "token_capture.min_valid_fraction_per_group",
            ("--min-valid-fraction", self.min_valid_fraction),
            |recipe| recipe.token_capture.min_valid_fraction_per_group,
        );
        let assume = self.assume_complete.then_some(true);
        let assume_complete =
            resolver.value("assume_complete", ("--assume-complete", assume), |_| None, false);
        Ok(Selecting { policy, assume_complete, min_valid_fraction })
    }

    /// Selects from `groups` and does `work` on each, in parallel; the results are in their order.
    ///
    /// # Errors
    ///
    /// A selector that cannot be used.
    pub fn judge<T: Send>(
        &self,
        settled: &Selecting,
        groups: &[Group],
        work: impl Fn(&Group, Judged) -> T + Sync,
    ) -> Result<Vec<T>> {
        Ok(judge(&*self.selector.policy(&settled.policy)?, settled, groups, work))
    }

    /// Selects part by part and does `work` on every group, in parallel; hands the results to
    /// `take` in the order of the archive.
    ///
    /// # Errors
    ///
    /// A selector that cannot be used; those of [`each_part`].
    pub fn each_judged<T: Send>(
        &self,
        settled: &Selecting,
        archive: &Archive,
        ui: &Ui,
        work: impl Fn(&Group, Judged) -> T + Sync,
        mut take: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let policy = self.selector.policy(&settled.policy)?;
        let of_part = |groups: Vec<Group>| judge(&*policy, settled, &groups, &work);
        each_part(archive, "select", ui, of_part, |groups| {
            groups.into_iter().try_for_each(&mut take)
        })
    }
}

fn judge<T: Send>(
    policy: &dyn Policy,
    settled: &Selecting,
    groups: &[Group],
    work: impl Fn(&Group, Judged) -> T + Sync,
) -> Vec<T> {
    // Nothing is selected from a capture that cannot be proved (rule 89).
    let validation = validate(groups, Options::default());
    tracing::info!(findings = validation.findings.len(), "a part is validated");
    let settings = SelectSettings {
        assume_complete: settled.assume_complete,
        min_valid_fraction: settled.min_valid_fraction,
        invalid: invalid_rollouts(&validation.findings),
    };
    let mut proved: BTreeMap<&RolloutId, Vec<&Finding>> = BTreeMap::new();
    for finding in &validation.findings {
        if let Some(rollout) = &finding.rollout_id {
            proved.entry(rollout).or_default().push(finding);
        }
    }
    let choose = |group: &Group| {
        let (selection, findings) = select_group(group, policy, &settings);
        let of_rollouts = group.rollouts.iter().filter_map(|r| proved.get(&r.rollout_id));
        let proved = of_rollouts.flatten().copied().cloned().collect();
        work(group, Judged { selection, findings, proved })
    };
    groups.par_iter().map(choose).collect()
}

/// Flags of selectors that users write.
#[derive(Debug, Args)]
pub struct SelectorArgs {
    /// Python interpreter of a module:function policy
    #[arg(long, value_name = "PYTHON", default_value = "python3", help_heading = "Selectors")]
    selector_python: PathBuf,
    /// Seconds that a selector may take for one rollout
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    #[arg(help_heading = "Selectors")]
    selector_timeout: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => Ok(seconds),
        _ => Err("not a positive number of seconds".to_owned()),
    }
}

impl SelectorArgs {
    /// The policy, ready to choose.
    pub fn policy(&self, choice: &PolicyChoice) -> Result<Box<dyn Policy>> {
        Ok(match choice {
            PolicyChoice::BuiltIn(policy) => Box::new(policy.policy()),
            PolicyChoice::Custom(selector) => {
                let timeout = Duration::from_secs_f64(self.selector_timeout);
                let limits = Limits { timeout, ..Limits::default() };
                Box::new(Custom::start(selector, &self.selector_python, limits)?)
            }
        })
    }
}

/// Does `work` on the groups of every part, in parallel and with a bar, and hands the results to
/// `take` in the order of the parts. No more than a few parts are in memory at once.
///
/// # Errors
///
/// A part that cannot be read, or rollouts that are not those of the manifest; those of `take`.
pub fn each_part<T: Send>(
    archive: &Archive,
    doing: &'static str,
    ui: &Ui,
    work: impl Fn(Vec<Group>) -> T + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let total = (0..archive.part_count()).map(|part| archive.part_bytes(part)).sum();
    ui.start_threads(total);
    let bar = ui.progress_of_bytes(doing, total);
    let mut known = Vec::new();
    archive.each_part(
        Results::Read,
        |read| {
            let Part { groups, known } = read?;
            Ok((work(groups), known))
        },
        |part, done: Result<_>| {
            let (of_part, rollouts) = done?;
            take(of_part)?;
            known.push(rollouts);
            bar.inc(archive.part_bytes(part));
            Ok(())
        },
    )?;
    bar.finish_and_clear();
    archive.check_content(&known)
}

impl SelectingArgs {
    /// Opens an archive; one without rollouts is nothing to do.
    pub fn open(archive: &Path) -> Result<Archive> {
        let opened = Archive::open(archive)?;
        if opened.counts().rollouts == 0 {
            return Err(Error::nothing(format!("{} holds no rollouts", archive.display()))
                .help("Look at its quarantine.jsonl, and ingest sources that hold some"));
        }
        Ok(opened)
    }

    /// Selects part by part and does `work` on every group, in parallel; hands the results to
    /// `take` in the order of the archive.
    pub fn each_group<T: Send>(
        &self,
        settled: &Selecting,
        archive: &Archive,
        ui: &Ui,
        work: impl Fn(&Group, GroupSelection, Vec<Finding>) -> T + Sync,
        take: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let work = |group: &Group, judged: Judged| work(group, judged.selection, judged.findings);
        self.judging.each_judged(settled, archive, ui, work, take)
    }

    /// Its flags but for the policy.
    pub fn judging(&self) -> &JudgingArgs {
        &self.judging
    }
}

/// Findings of groups, in order of their ids.
#[derive(Debug, Default)]
pub struct GroupFindings(BTreeMap<GroupId, Vec<Finding>>);

impl GroupFindings {
    /// Adds those of a group.
    pub fn add(&mut self, group_id: &GroupId, findings: Vec<Finding>) {
        if !findings.is_empty() {
            self.0.entry(group_id.clone()).or_default().extend(findings);
        }
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<Finding> {
        self.0.into_values().flatten().collect()
    }
}

/// Whether any finding says that the evidence is wrong.
pub fn has_errors(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// Shows errors one by one, and repeated warnings by code: the result names each masked rollout.
pub fn show_findings(findings: &[Finding], ui: &Ui) {
    let (errors, warnings): (Vec<Finding>, Vec<Finding>) =
        findings.iter().cloned().partition(|finding| finding.severity == Severity::Error);
    if !errors.is_empty() {
        let text = report::human(&errors, |_, label| ui.tone_err(Tone::Bad, label));
        ui.say(text.trim_end());
    }
    let mut by_code: BTreeMap<Code, Vec<&Finding>> = BTreeMap::new();
    for warning in &warnings {
        by_code.entry(warning.code).or_default().push(warning);
    }
    for (code, warnings) in by_code {
        let text = match &warnings[..] {
            [Finding { message, rollout_id: Some(id), .. }] => format!("rollout {id}: {message}"),
            [Finding { message, .. }] => message.clone(),
            several => format!("{} ({} times)", code.summary(), several.len()),
        };
        let text = report::visible(&text);
        ui.say(format!("{} {text}", ui.tone_err(Tone::Warn, format!("warning[{code}]"))));
    }
}
