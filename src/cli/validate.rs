//! `forestctl validate`

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use indicatif::HumanBytes;

use super::Exit;
use super::ui::{Format, Tone, Ui, thousands};
use crate::archive::{Archive, Quarantined};
use crate::error::{Error, Result};
use crate::finding::{Finding, Location, Severity};
use crate::id::{CaptureKey, RolloutId};
use crate::report::{self, FindingsDocument};
use crate::validate::read_data::{ReadData, Stored};
use crate::validate::{self, Cumulative, Options, Validation};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl validate run.forest
  forestctl validate run.forest --fail-on warning
  forestctl validate run.forest --cumulative all --format json
  forestctl validate run.forest --read-data=1/7

",
    exit_status!()
);

/// Prove an archive: digests, lengths, lineage, completeness
///
/// Computes every digest again and reports whatever differs from what the ledger committed to,
/// by the word that the published verifier uses. Calls off the scored chain are checked too.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ValidateArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// Least severity of a finding that makes the exit code 1
    #[arg(long, value_enum, default_value_t, value_name = "SEVERITY")]
    pub fail_on: FailOn,
    /// Calls whose cumulative hash is computed again; all is quadratic in the length of a chain
    #[arg(long, value_enum, default_value_t, value_name = "CALLS")]
    pub cumulative: Cumulative,
    /// Read tensor data, too: all, one share of several (2/5), or a percentage (2.5%)
    #[arg(long, value_name = "SHARE", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "100%")]
    pub read_data: Option<ReadData>,
}

/// Threshold of the exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Wrong evidence only.
    #[default]
    Error,
    /// Whatever masks, too.
    Warning,
}

impl ValidateArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let archive = Archive::open(&self.archive)?;
        let mut findings = archive.check_files();
        let bar = ui.progress("validate", archive.part_count() as u64);
        let options = Options { cumulative: self.cumulative };
        let mut checked = report::Checked::default();
        let mut owners = BTreeMap::new();
        let stored = Stored::new(&archive);
        let quarantine = archive.quarantine()?;
        let quarantined_at = findings.len();
        for part in 0..archive.part_count() {
            let groups = archive.read_part(part)?;
            if !quarantine.is_empty() {
                let rollouts = groups.iter().flat_map(|g| &g.rollouts);
                owners.extend(rollouts.map(|r| (r.capture_key.clone(), r.rollout_id.clone())));
            }
            let found = validate::validate(&groups, options);
            checked += found.checked;
            tracing::info!(findings = found.findings.len(), "part {part} is checked");
            findings.extend(found.findings);
            findings.extend(stored.check(&groups));
            bar.inc(1);
        }
        bar.finish_and_clear();
        if let Some(share) = self.read_data {
            let reading = ui.spinner("reading tensor data");
            let read = stored.read(&archive, share, |finding| findings.push(finding))?;
            reading.finish_and_clear();
            let (pieces, bytes) = (thousands(read.pieces), HumanBytes(read.bytes));
            let s = if read.pieces == 1 { "" } else { "s" };
            ui.say(format!("{pieces} piece{s} of tensor data read, {bytes}"));
        }
        let lost = quarantine.iter().map(|entry| quarantined(entry, &owners));
        findings.splice(quarantined_at..quarantined_at, lost);
        if checked.rollouts == 0 && findings.is_empty() {
            let archive = self.archive.display();
            return Err(Error::nothing(format!("{archive} holds no rollouts")));
        }
        let validation = Validation { findings, checked };
        self.show(ui, &validation)?;
        let threshold = match self.fail_on {
            FailOn::Error => Severity::Error,
            FailOn::Warning => Severity::Warning,
        };
        let failed = validation.findings.iter().any(|f| f.severity >= threshold);
        Ok(if failed { Exit::Findings } else { Exit::Fine })
    }

    fn show(&self, ui: &Ui, Validation { findings, checked }: &Validation) -> Result<()> {
        match ui.format {
            Format::Json => ui.json(&FindingsDocument::new(findings, *checked)),
            Format::Jsonl => findings.iter().try_for_each(|f| ui.jsonl(f)),
            Format::Csv => ui.csv(
                &["severity", "code", "rollout_id", "call_id", "location", "message", "help"],
                findings.iter().map(csv_row),
            ),
            Format::Human => {
                ui.prose(&report::human(findings, |severity, label| {
                    let tone = match severity {
                        Severity::Error => Tone::Bad,
                        Severity::Warning => Tone::Warn,
                    };
                    ui.tone(tone, label)
                }))?;
                let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
                let warnings = findings.len() - errors;
                let verdict = if errors > 0 {
                    ui.tone(Tone::Bad, "broken")
                } else {
                    ui.tone(Tone::Good, "intact")
                };
                ui.line(format!(
                    "{verdict}: {} rollouts, {} calls, {} tokens checked; {errors} errors, {warnings} warnings",
                    thousands(checked.rollouts),
                    thousands(checked.calls),
                    thousands(checked.tokens),
                ))
            }
        }
    }
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

/// What ingest could not read is evidence that the archive lacks.
fn quarantined(entry: &Quarantined, owners: &BTreeMap<CaptureKey, RolloutId>) -> Finding {
    let location = Location {
        file: Some(entry.source.clone()),
        line: entry.line,
        capture_key: entry.capture_key.clone(),
        ..Location::default()
    };
    let mut finding = Finding::new(entry.code, &entry.message).at(location);
    let owner = || entry.capture_key.as_ref().and_then(|key| owners.get(key));
    finding.rollout_id = entry.rollout_id.as_ref().or_else(owner).cloned();
    finding.call_id = entry.call_id.clone();
    finding
}
