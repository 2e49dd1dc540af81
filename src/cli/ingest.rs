//! `forestctl ingest`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::HumanBytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::ui::{Format, Tone, Ui, thousands};
use crate::archive::{self, Archive, Counts, Quarantined, SourceFile, SourceForm, Summary};
use crate::error::{Error, Result};
use crate::finding::{Code, Finding, Severity};
use crate::id::Digest32;
use crate::ingest::{self, Ingested};
use crate::report;

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl ingest captures/ -o run.forest
  forestctl ingest staged.jsonl.zst receipts.jsonl rollouts.jsonl -o run.forest
  forestctl ingest gym-store/ -o run.forest --force

",
    exit_status!()
);

/// Read captures into an archive
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct IngestArgs {
    /// Files or folders of captures: staged records with receipts, a Gym file store, Gym rollouts
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<PathBuf>,
    /// The archive to write
    #[arg(short, long, value_name = "ARCHIVE")]
    pub output: PathBuf,
    /// Replace an existing archive
    #[arg(long)]
    pub force: bool,
}

impl IngestArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        // Anything but an archive can be refused before hours of reading.
        if !self.force
            && self.output.symlink_metadata().is_ok()
            && Archive::open(&self.output).is_err()
        {
            return Err(Error::usage(format!("{} already exists", self.output.display()))
                .help("Choose another output, or replace it with --force"));
        }
        let reading = ui.spinner("reading");
        let ingested = ingest::read(&self.sources)?;
        for SourceFile { path, form, bytes, .. } in &ingested.sources {
            tracing::info!(bytes, "{path} is read as {form:?}");
        }
        for Quarantined { source, line, code, message, .. } in &ingested.quarantine {
            tracing::debug!(?line, "{source}: {code}: {message}");
        }
        reading.set_message("writing");
        let summary = archive::write(&self.output, self.force, &ingested)?;
        reading.finish_and_clear();
        let report = Report::new(&self.output, &ingested, &summary);
        match ui.format {
            Format::Human => report.human(ui)?,
            Format::Json => ui.json(&report)?,
            Format::Jsonl => report.lines(ui)?,
            Format::Csv => report.csv(ui)?,
        }
        let broken = |entry: &Quarantined| entry.code.severity() == Severity::Error;
        Ok(if ingested.quarantine.iter().any(broken) { Exit::Findings } else { Exit::Fine })
    }
}

/// What was put where.
#[derive(Debug, Serialize, JsonSchema)]
struct Totals {
    archive: String,
    /// The archive was there already, and is the same.
    unchanged: bool,
    #[serde(flatten)]
    counts: Counts,
    parts: u64,
    bytes: u64,
    content: Digest32,
}

/// JSON Schema of `--format json`.
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(Report<'_>)
}

/// What `--format json` prints.
#[derive(Debug, Serialize, JsonSchema)]
struct Report<'a> {
    schema_version: u32,
    #[serde(flatten)]
    totals: Totals,
    quarantined_by_code: BTreeMap<Code, u64>,
    findings: &'a [Finding],
    sources: &'a [SourceFile],
    #[serde(skip)]
    quarantine: &'a [Quarantined],
}

/// One line of `--format jsonl`.
#[derive(Debug, Serialize, JsonSchema)]
struct Line<'a, T> {
    schema_version: u32,
    kind: &'static str,
    #[serde(flatten)]
    item: &'a T,
}

impl<'a> Report<'a> {
    fn new(output: &Path, ingested: &'a Ingested, summary: &Summary) -> Self {
        let mut by_code = BTreeMap::new();
        for entry in &ingested.quarantine {
            *by_code.entry(entry.code).or_default() += 1;
        }
        Self {
            schema_version: 1,
            totals: Totals {
                archive: output.display().to_string(),
                unchanged: summary.unchanged,
                counts: summary.counts,
                parts: summary.parts,
                bytes: summary.bytes,
                content: summary.content,
            },
            quarantined_by_code: by_code,
            findings: &ingested.findings,
            sources: &ingested.sources,
            quarantine: &ingested.quarantine,
        }
    }

    fn human(&self, ui: &Ui) -> Result<()> {
        let n = |count: u64, one: &str| {
            format!("{} {one}{}", thousands(count), if count == 1 { "" } else { "s" })
        };
        let Totals { archive, unchanged, counts, parts, bytes, .. } = &self.totals;
        let (state, tone) = match unchanged {
            true => ("unchanged", Tone::Dim),
            false => ("written", Tone::Good),
        };
        let mut text = format!(
            "{}  {}\n  {} in {}\n  {}, {} ({} generated)\n  {} in {}\n",
            ui.tone(Tone::Strong, archive),
            ui.tone(tone, state),
            n(counts.rollouts, "rollout"),
            n(counts.groups, "prompt group"),
            n(counts.calls, "call"),
            n(counts.tokens, "token"),
            thousands(counts.generated_tokens),
            HumanBytes(*bytes),
            n(*parts, "part"),
        );
        if counts.quarantined > 0 {
            let codes = self.quarantined_by_code.iter();
            let codes: Vec<_> = codes.map(|(code, count)| format!("{code} {count}")).collect();
            text += &format!(
                "  {} in quarantine ({}): {archive}/quarantine.jsonl\n",
                ui.tone(Tone::Bad, n(counts.quarantined, "line")),
                codes.join(", "),
            );
        }
        ui.summary(text.trim_end())?;
        let ignored: Vec<_> =
            self.sources.iter().filter(|s| s.form == SourceForm::Ignored).collect();
        if let Some(first) = ignored.first() {
            let more = match ignored.len() {
                1 => String::new(),
                count => format!(" and {}", n(count as u64 - 1, "more file")),
            };
            ui.say(format!(
                "{} {}{more}: no capture",
                ui.tone_err(Tone::Dim, "ignored"),
                first.path
            ));
        }
        if !self.findings.is_empty() {
            let tone = |severity, label: &str| {
                let tone = match severity {
                    Severity::Error => Tone::Bad,
                    Severity::Warning => Tone::Warn,
                };
                ui.tone_err(tone, label)
            };
            ui.say(report::human(self.findings, tone).trim_end());
        }
        Ok(())
    }

    fn lines(&self, ui: &Ui) -> Result<()> {
        fn line<T: Serialize>(ui: &Ui, kind: &'static str, item: &T) -> Result<()> {
            ui.jsonl(&Line { schema_version: 1, kind, item })
        }
        line(ui, "archive", &self.totals)?;
        self.sources.iter().try_for_each(|source| line(ui, "source", source))?;
        self.findings.iter().try_for_each(|finding| line(ui, "finding", finding))?;
        self.quarantine.iter().try_for_each(|entry| line(ui, "quarantined", entry))
    }

    fn csv(&self, ui: &Ui) -> Result<()> {
        let Totals { archive, unchanged, counts, parts, bytes, content } = &self.totals;
        let columns = [
            ("schema_version", self.schema_version.to_string()),
            ("archive", archive.clone()),
            ("unchanged", unchanged.to_string()),
            ("groups", counts.groups.to_string()),
            ("rollouts", counts.rollouts.to_string()),
            ("calls", counts.calls.to_string()),
            ("tokens", counts.tokens.to_string()),
            ("generated_tokens", counts.generated_tokens.to_string()),
            ("quarantined", counts.quarantined.to_string()),
            ("parts", parts.to_string()),
            ("bytes", bytes.to_string()),
            ("content", content.to_string()),
        ];
        let header = columns.each_ref().map(|(name, _)| *name);
        ui.csv(&header, [columns.map(|(_, value)| value).to_vec()])
    }
}
