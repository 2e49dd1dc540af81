//! `forestctl validate`

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use indicatif::HumanBytes;

use super::Exit;
use super::levels::LevelArgs;
use super::reports::{Report, Reports};
use super::resolve::Resolver;
use super::selecting::SelectorArgs;
use super::ui::{Format, Tone, Ui, thousands};
use crate::archive::Archive;
use crate::config::recipe::Recipe;
use crate::error::{Error, Result};
use crate::finding::{Finding, Severity};
use crate::report::{self, FindingsDocument, FindingsLine, Outcome, Summary, Tally};
use crate::select::{Policy, PolicyChoice};
use crate::validate::read_data::{Amount, ReadData};
use crate::validate::{self, Cumulative, Options, Settings};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl validate run.forest
  forestctl validate run.forest --policy returned_history --deny warnings
  forestctl validate run.forest --report junit=junit.xml --report sarif=forest.sarif
  forestctl validate run.forest --report github --allow positive_logprob,clamped_logprob
  forestctl validate run.forest --cumulative all --format jsonl
  forestctl validate run.forest --read-data=1/7

",
    exit_status!()
);

/// Prove an archive: digests, lengths, lineage, completeness
///
/// Computes every digest again and reports whatever differs from what the ledger committed to,
/// by the word that the published verifier uses. Calls off the scored chain are checked too.
///
/// With --format jsonl every finding is printed as it is found; the last line is a summary.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group(ArgGroup::new("selection").args(["policy", "config"]).multiple(true)))]
pub struct ValidateArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// Calls whose cumulative hash is computed again; all is quadratic in the length of a chain
    #[arg(long, value_enum, default_value_t, value_name = "CALLS")]
    pub cumulative: Cumulative,
    /// Read tensor data, too: all, one share of several (2/5), or a percentage (2.5%). Digests of
    /// rollouts whose calls are signed are computed again, too
    #[arg(long, value_name = "SHARE", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "100%")]
    pub read_data: Option<ReadData>,
    /// Select by this policy too, and report why rollouts are masked and groups dropped
    ///
    /// returned_history, all_captured, module:function, or exec:PROGRAM
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicyChoice>,
    #[command(flatten)]
    selector: SelectorArgs,
    /// NeMo-RL YAML whose selection policy is taken, unless --policy says another
    #[arg(long, value_name = "YAML")]
    config: Option<PathBuf>,
    /// Take sources that cannot tell whether calls were lost as complete
    #[arg(long, requires = "selection")]
    assume_complete: bool,
    /// Report to another tool too: junit=FILE, sarif=FILE, github, or github=FILE
    ///
    /// May be given often. An existing file is replaced. `-` and `github` alone mean stdout; text
    /// for people then goes to stderr, and other formats than human are refused.
    ///
    /// junit: a case per rollout, failed by errors, skipped with warnings alone. sarif: SARIF
    /// 2.1.0 for code scanning. github: workflow commands, which GitHub Actions shows as
    /// annotations.
    #[arg(long, value_name = "REPORT", help_heading = "Reports")]
    report: Vec<Report>,
    /// Least severity of a finding that makes the exit code 1
    #[arg(long, value_enum, default_value_t, value_name = "SEVERITY", help_heading = "Reports")]
    pub fail_on: FailOn,
    #[command(flatten, next_help_heading = "Reports")]
    levels: LevelArgs,
}

/// Threshold of the exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// No finding does.
    Never,
    /// Wrong evidence only.
    #[default]
    Error,
    /// Whatever masks, too.
    Warning,
}

impl FailOn {
    /// Severity from which on findings fail; `None` when none does.
    pub(super) fn threshold(self) -> Option<Severity> {
        match self {
            FailOn::Never => None,
            FailOn::Error => Some(Severity::Error),
            FailOn::Warning => Some(Severity::Warning),
        }
    }
}

impl ValidateArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let reports = Reports::new(self.report, ui.format)?;
        let console = if reports.take_stdout() { ui.aside() } else { ui.clone() };
        let archive = Archive::open(&self.archive)?;
        let choice = match &self.config {
            Some(file) => {
                let mut resolver = Resolver::new(Recipe::read(file)?);
                Some(resolver.policy(self.policy.clone())?)
            }
            None => self.policy.clone(),
        };
        let policy = choice.map(|choice| self.selector.policy(&choice)).transpose()?;
        let settings = Settings {
            options: Options { cumulative: self.cumulative },
            policy: policy.as_deref().map(|policy| policy as &dyn Policy),
            assume_complete: self.assume_complete,
            read_data: self.read_data,
        };
        let streamed = ui.format == Format::Jsonl;
        let (mut findings, mut rollouts) = (Vec::new(), Vec::new());
        let (mut summary, mut unread) = (Summary::default(), Vec::new());
        let mut data = Amount::default();
        let total = (0..archive.part_count()).map(|part| archive.part_bytes(part)).sum();
        ui.start_threads(total);
        let bar = ui.progress_of_bytes("validate", total);
        validate::archive(&archive, &settings, |piece| {
            let found = piece.findings.into_iter();
            let reported = found.filter_map(|f| self.levels.levels.apply(f, &mut summary.found));
            let reported: Vec<Finding> = reported.collect();
            summary.add(piece.checked, piece.selected);
            unread.extend(piece.unread);
            data.pieces += piece.data.pieces;
            data.bytes += piece.data.bytes;
            if streamed {
                let lines = reported.iter().map(FindingsLine::Finding);
                bar.suspend(|| ui.jsonl_all(lines))?;
            }
            if !streamed || !reports.is_empty() {
                findings.extend(reported);
                rollouts.extend(piece.rollouts);
            }
            bar.inc(piece.bytes);
            Ok(())
        })?;
        bar.finish_and_clear();
        if self.read_data.is_some() {
            let (pieces, bytes) = (thousands(data.pieces), HumanBytes(data.bytes));
            let s = if data.pieces == 1 { "" } else { "s" };
            ui.say(format!("{pieces} piece{s} of tensor data read, {bytes}"));
        }
        let nothing = summary.checked.rollouts == 0 && summary.found == Tally::default();
        if nothing && unread.is_empty() {
            let archive = self.archive.display();
            return Err(Error::nothing(format!("{archive} holds no rollouts")));
        }
        show(&console, &findings, &summary)?;
        let outcome = Outcome {
            archive: &self.archive.to_string_lossy(),
            rollouts: &rollouts,
            findings: &findings,
            summary: &summary,
        };
        reports.write(&outcome, ui)?;
        for error in &unread {
            ui.complain(&super::told(ui, error));
        }
        let failing = |severity| summary.found.reaches(severity);
        Ok(match self.fail_on.threshold() {
            _ if !unread.is_empty() => Exit::Failed,
            Some(severity) if failing(severity) => Exit::Findings,
            _ => Exit::Fine,
        })
    }
}

/// Shows what was found; of `jsonl`, what is left to show.
fn show(ui: &Ui, findings: &[Finding], summary: &Summary) -> Result<()> {
    match ui.format {
        Format::Json => ui.json(&FindingsDocument::new(findings, summary)),
        Format::Jsonl => ui.jsonl(&FindingsLine::last(summary)),
        Format::Csv => {
            for line in flags(summary) {
                ui.say(line);
            }
            ui.csv(
                &["severity", "code", "rollout_id", "call_id", "location", "message", "help"],
                findings.iter().map(csv_row),
            )
        }
        Format::Human => {
            ui.prose(&report::human(findings, |severity, label| {
                let tone = match severity {
                    Severity::Error => Tone::Bad,
                    Severity::Warning => Tone::Warn,
                };
                ui.tone(tone, label)
            }))?;
            for line in verdict(ui, summary).into_iter().chain(flags(summary)) {
                ui.line(line)?;
            }
            Ok(())
        }
    }
}

fn verdict(ui: &Ui, Summary { checked, found, selected }: &Summary) -> Vec<String> {
    let verdict = if found.errors > 0 {
        ui.tone(Tone::Bad, "broken")
    } else if found.waives_errors() {
        ui.tone(Tone::Warn, "waived")
    } else {
        ui.tone(Tone::Good, "intact")
    };
    let mut lines = vec![format!(
        "{verdict}: {} rollouts, {} calls, {} tokens checked; {} errors, {} warnings",
        thousands(checked.rollouts),
        thousands(checked.calls),
        thousands(checked.tokens),
        thousands(found.errors),
        thousands(found.warnings),
    )];
    lines.extend(selected.as_ref().map(|selected| {
        format!(
            "  {} of {} rollouts are valid by {}; {} prompt groups are dropped",
            thousands(selected.valid_rollouts),
            thousands(selected.valid_rollouts + selected.masked_rollouts),
            selected.policy,
            thousands(selected.dropped_groups),
        )
    }));
    lines
}

/// What flags keep from being seen.
fn flags(summary: &Summary) -> Vec<String> {
    let found = &summary.found;
    let mut lines = Vec::new();
    if !found.allowed.is_empty() {
        let by_code: Vec<String> =
            found.allowed.iter().map(|(code, n)| format!("{code} {}", thousands(*n))).collect();
        lines.push(format!("  left out by --allow: {}", by_code.join(", ")));
    }
    if found.waives_errors() {
        lines.push(format!(
            "  the evidence is wrong all the same: {} errors are allowed, {} lowered to warnings",
            thousands(found.allowed_errors),
            thousands(found.lowered_errors),
        ));
    }
    lines
}

fn csv_row(finding: &Finding) -> Vec<String> {
    vec![
        finding.severity.to_string(),
        finding.code.to_string(),
        finding.rollout_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        finding.call_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        finding.location.to_string(),
        finding.message.clone(),
        finding.help.clone(),
    ]
}
