//! `forestctl ingest`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::HumanBytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::ui::{Format, Tone, Ui, thousands};
use crate::archive::{Counts, Quarantined, SourceFile, SourceForm, Summary, Writer};
use crate::error::{Error, Result};
use crate::finding::{Code, Finding, Severity};
use crate::id::Digest32;
use crate::ingest::{Remarks, Sources};
use crate::report;

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl ingest captures/ -o run.forest
  forestctl ingest staged.jsonl.zst receipts.jsonl rollouts.jsonl -o run.forest
  forestctl ingest 'runs/*/gym-store' -o run.forest
  forestctl ingest gym-store/ -o run.forest --force
  find runs -name '*.jsonl.zst' | forestctl ingest --files-from - -o run.forest
  zcat captures.jsonl.gz | forestctl ingest - -o run.forest

",
    exit_status!()
);

/// Read captures into an archive
///
/// An archive that is there already is added to: what it holds stays, new groups and rollouts
/// are added, and a rollout that it holds differently is refused. A run that was killed is gone
/// on with when the same command is given again.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct IngestArgs {
    /// Files, folders or globs of captures: staged records with receipts, a Gym file store, Gym
    /// rollouts
    ///
    /// `-` reads lines of any kind from stdin, each with its `kind`: staged, receipt, rollout,
    /// media, entry.
    #[arg(required_unless_present = "files_from", value_name = "SOURCE")]
    pub sources: Vec<PathBuf>,
    /// Read more sources from this file, one per line; `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub files_from: Option<PathBuf>,
    /// The archive to write or to add to
    #[arg(short, long, value_name = "ARCHIVE")]
    pub output: PathBuf,
    /// Replace an existing archive as a whole
    #[arg(long)]
    pub force: bool,
}

impl IngestArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let mut writer = Writer::open(&self.output, self.force)?;
        let (paths, stdin) = self.paths(&writer)?;
        let indexing = ui.bytes("index", None);
        let scratch = writer.scratch();
        let mut sources =
            Sources::index(&paths, stdin.as_deref(), scratch, &|bytes| indexing.inc(bytes))?;
        indexing.finish_and_clear();
        let parts = writer.known_parts();
        sources.arrange(|group| parts.get(group).copied().unwrap_or(u64::MAX));
        let done = writer.begin(sources.fingerprint()?)?;
        if done.groups > 0 {
            ui.say(format!("going on after {} groups of an earlier run", done.groups));
        }
        let reading = ui.bytes("archive", Some(sources.weight()));
        let remarks =
            sources.read(&done, &|bytes| reading.inc(bytes), |pushed| writer.push(pushed))?;
        let Remarks { findings, quarantine, sources } = remarks;
        for SourceFile { path, form, bytes, .. } in &sources {
            tracing::info!(bytes, "{path} is read as {form:?}");
        }
        for Quarantined { source, line, code, message, .. } in &quarantine {
            tracing::debug!(?line, "{source}: {code}: {message}");
        }
        let summary = writer.finish(quarantine.clone(), sources.clone())?;
        reading.finish_and_clear();
        let report = Report::new(&self.output, &findings, &quarantine, &sources, &summary);
        match ui.format {
            Format::Human => report.human(ui)?,
            Format::Json => ui.json(&report)?,
            Format::Jsonl => report.lines(ui)?,
            Format::Csv => report.csv(ui)?,
        }
        let broken = |entry: &Quarantined| entry.code.severity() == Severity::Error;
        Ok(if quarantine.iter().any(broken) { Exit::Findings } else { Exit::Fine })
    }
}

impl IngestArgs {
    /// All sources by name, and a file with what came on stdin if that is one of them.
    fn paths(&self, writer: &Writer) -> Result<(Vec<PathBuf>, Option<PathBuf>)> {
        let is_stdin = |path: &Path| path == Path::new("-");
        let mut paths = self.sources.clone();
        if let Some(list) = &self.files_from {
            let text = match is_stdin(list) {
                true => std::io::read_to_string(std::io::stdin()),
                false => std::fs::read_to_string(list),
            };
            let text = text.map_err(|e| Error::io("cannot read", list, e))?;
            paths.extend(text.lines().filter(|line| !line.is_empty()).map(PathBuf::from));
        }
        let named = paths.len();
        paths.retain(|path| !is_stdin(path));
        if named == paths.len() {
            return match named {
                0 => Err(Error::nothing("no source is named").help("Name one per line")),
                _ => Ok((paths, None)),
            };
        }
        if self.files_from.as_deref().is_some_and(is_stdin) {
            return Err(Error::usage("stdin cannot be both a source and the list of sources")
                .help("Write the list to a file, and name that with --files-from"));
        }
        let kept = writer.scratch().join("stdin.jsonl");
        std::fs::File::create(&kept)
            .and_then(|mut file| std::io::copy(&mut std::io::stdin().lock(), &mut file))
            .map_err(|e| Error::io("cannot keep what comes on stdin in", &kept, e))?;
        Ok((paths, Some(kept)))
    }
}

/// What was put where.
#[derive(Debug, Serialize, JsonSchema)]
struct Totals {
    archive: String,
    /// All of it was in the archive already.
    unchanged: bool,
    /// Rollouts that were not in the archive before.
    added: u64,
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
    fn new(
        output: &Path,
        findings: &'a [Finding],
        quarantine: &'a [Quarantined],
        sources: &'a [SourceFile],
        summary: &Summary,
    ) -> Self {
        let mut by_code = BTreeMap::new();
        for entry in quarantine {
            *by_code.entry(entry.code).or_default() += 1;
        }
        Self {
            schema_version: 1,
            totals: Totals {
                archive: output.display().to_string(),
                unchanged: summary.unchanged,
                added: summary.added,
                counts: summary.counts,
                parts: summary.parts,
                bytes: summary.bytes,
                content: summary.content,
            },
            quarantined_by_code: by_code,
            findings,
            sources,
            quarantine,
        }
    }

    fn human(&self, ui: &Ui) -> Result<()> {
        let n = |count: u64, one: &str| {
            format!("{} {one}{}", thousands(count), if count == 1 { "" } else { "s" })
        };
        let Totals { archive, unchanged, added, counts, parts, bytes, .. } = &self.totals;
        let (state, tone) = match unchanged {
            true => ("unchanged".to_owned(), Tone::Dim),
            false if *added == counts.rollouts => ("written".to_owned(), Tone::Good),
            false if *added == 0 => ("quarantine added".to_owned(), Tone::Warn),
            false => (format!("{} added", n(*added, "rollout")), Tone::Good),
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
        let Totals { archive, unchanged, added, counts, parts, bytes, content } = &self.totals;
        let columns = [
            ("schema_version", self.schema_version.to_string()),
            ("archive", archive.clone()),
            ("unchanged", unchanged.to_string()),
            ("added", added.to_string()),
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
