//! What `select` and `build-rows` have in common: flags, the selection, and its findings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rayon::prelude::*;

use super::ui::{Tone, Ui};
use crate::archive::{Archive, Group, Part};
use crate::config::Fraction;
use crate::error::{Error, Result};
use crate::finding::{Code, Finding, Severity};
use crate::report;
use crate::select::custom::{Custom, Limits};
use crate::select::{
    GroupSelection, Policy, PolicyChoice, SelectSettings, Selection, select_group,
};
use crate::validate::{Options, invalid_rollouts, validate};

/// Flags of every command that selects.
#[derive(Debug, Args)]
pub struct SelectingArgs {
    /// Which captured calls train
    ///
    /// returned_history (calls whose generations the returned history holds), all_captured (every
    /// recorded call, abandoned retries and branches included), module:function (a Python
    /// function), or exec:PROGRAM (any program). docs/selectors.md tells what a selector is given
    /// and has to answer.
    #[arg(long, default_value_t, value_name = "POLICY")]
    pub policy: PolicyChoice,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Take sources that cannot tell whether calls were lost as complete
    #[arg(long)]
    pub assume_complete: bool,
    /// Drop prompt groups of which a smaller share of rollouts has a verified layout
    #[arg(long, value_name = "FRACTION")]
    min_valid_fraction: Option<Fraction>,
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

/// An archive with the selection over it.
pub struct Selected<T> {
    /// The archive.
    pub archive: Archive,
    /// What was kept of its groups.
    pub kept: Vec<T>,
    /// The selection, group by group.
    pub selection: Selection,
}

/// Does `work` on the groups of every part, in parallel and with a bar; results come in the order
/// of the parts.
///
/// # Errors
///
/// A part that cannot be read, or rollouts that are not those of the manifest.
pub fn of_parts<T: Send>(
    archive: &Archive,
    doing: &'static str,
    ui: &Ui,
    work: impl Fn(Vec<Group>) -> T + Sync,
) -> Result<Vec<T>> {
    let total = (0..archive.part_count()).map(|part| archive.part_bytes(part)).sum();
    ui.start_threads(total);
    let bar = ui.progress_of_bytes(doing, total);
    let (mut parts, mut known) = (Vec::new(), Vec::new());
    archive.each_part(
        |read| {
            let Part { groups, known } = read?;
            Ok((work(groups), known))
        },
        |part, done: Result<_>| {
            let (of_part, rollouts) = done?;
            parts.push(of_part);
            known.push(rollouts);
            bar.inc(archive.part_bytes(part));
            Ok(())
        },
    )?;
    bar.finish_and_clear();
    archive.check_content(&known)?;
    Ok(parts)
}

impl SelectingArgs {
    /// Opens the archive and selects, part by part; `keep` says what of each group is needed
    /// afterwards. Groups come in order of their ids, whatever parts they are in. An archive
    /// without rollouts is nothing to do.
    pub fn select<T: Send>(
        &self,
        archive: &Path,
        ui: &Ui,
        keep: impl Fn(Group) -> T + Sync,
    ) -> Result<Selected<T>> {
        let policy = self.selector.policy(&self.policy)?;
        let opened = Archive::open(archive)?;
        let parts =
            of_parts(&opened, "select", ui, |groups| self.of_part(groups, &*policy, &keep))?;
        let mut chosen: Vec<_> = parts.into_iter().flatten().collect();
        if chosen.iter().all(|(_, group, _)| group.rollouts.is_empty()) {
            return Err(Error::nothing(format!("{} holds no rollouts", archive.display()))
                .help("Look at its quarantine.jsonl, and ingest sources that hold some"));
        }
        chosen.sort_by(|(_, a, _), (_, b, _)| a.group_id.cmp(&b.group_id));
        let (mut kept, mut selection) = (Vec::new(), Selection::default());
        for (group, selected, findings) in chosen {
            kept.push(group);
            selection.groups.push(selected);
            selection.findings.extend(findings);
        }
        Ok(Selected { archive: opened, kept, selection })
    }

    fn of_part<T: Send>(
        &self,
        groups: Vec<Group>,
        policy: &dyn Policy,
        keep: impl Fn(Group) -> T + Sync,
    ) -> Vec<(T, GroupSelection, Vec<Finding>)> {
        // Nothing is selected from a capture that cannot be proved (rule 89).
        let validation = validate(&groups, Options::default());
        tracing::info!(findings = validation.findings.len(), "a part is validated");
        let settings = SelectSettings {
            assume_complete: self.assume_complete,
            min_valid_fraction: self.min_valid_fraction,
            invalid: invalid_rollouts(&validation.findings),
        };
        let choose = |group: Group| {
            let (selected, findings) = select_group(&group, policy, &settings);
            (keep(group), selected, findings)
        };
        groups.into_par_iter().map(choose).collect()
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
