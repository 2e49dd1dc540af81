//! `forestctl audit-logprobs`, and the command line of the learner that it runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Parser};

use super::resolve::ConfigArg;
use super::selecting::{SelectingArgs, each_part, neither};
use super::step::{LEARNER, hand_over, without_subcommand};
use super::ui::{Format, Tone, Ui, thousands};
use super::validate::FailOn;
use super::{Exit, Global, converse, parse};
use crate::archive::{Archive, Group, MANIFEST as ARCHIVE_MANIFEST};
use crate::config::GrpoSettings;
use crate::error::{Error, Result};
use crate::report::visible;
use crate::rows::{self, MANIFEST, Row, RowsDir, build_group};
use crate::select::GroupSelection;
use crate::step::audit::{
    AuditLine, AuditReport, Captured, Disagreement, OwnContext, Spread, Tolerances, captured_calls,
};
use crate::step::settings::{DeviceChoice, Dtype, PACK_TOKENS};

const WORD: &str = "audit-logprobs";

/// First argument that makes the learner audit instead of making a step; no path begins so.
pub const AUDIT: &str = "--audit-logprobs";

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl audit-logprobs run.forest --model Qwen3-0.6B --policy returned_history
  forestctl audit-logprobs rows --archive run.forest --model Qwen3-0.6B --device cuda
  forestctl audit-logprobs run.forest --model tiny --dtype float64 --weight-version 12
  forestctl audit-logprobs rows --model tiny --pack-tokens 0 --top 3 --format json

",
    exit_status!()
);

/// Compare log-probabilities: captured, under each call's own context, and in rows
///
/// Every generation is scored under the tokens that its call was given, alone, and at its place
/// in rows, in packs as `step` computes them. These two may differ by rounding alone; what
/// differs more is a wrong context in the rows. Both are printed beside what the engine captured,
/// which differs by what engine and learner do differently, and by the weights.
///
/// Of an archive, all calls are scored; rows are built and audited too with --policy, or another
/// flag of the selection. Rows are audited against the archive that they were built from; without
/// --archive, each call's own context is the beginning of its row, so that wrong tokens in a row
/// stay unseen. docs/audit.md tells more.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AuditArgs {
    /// A rows directory or an archive
    #[arg(value_name = "ROWS|ARCHIVE")]
    pub source: PathBuf,
    /// Hugging Face model directory: config.json and safetensors
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// The archive that the rows were built from
    #[arg(long, value_name = "ARCHIVE")]
    archive: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    selecting: SelectingArgs,
    /// Number format of the computation [default: the model's own]
    #[arg(long, value_enum, value_name = "DTYPE")]
    dtype: Option<Dtype>,
    /// cpu, cuda, or cuda:INDEX
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// Tokens of rows that are computed at once; 0 computes row by row
    #[arg(long, value_name = "TOKENS", default_value_t = PACK_TOKENS)]
    pack_tokens: u64,
    /// Own against in the row: largest difference of a token [default: 1e-9, 1e-4 or 0.25 in
    /// float64, float32 or bfloat16]
    #[arg(long, value_name = "X", allow_negative_numbers = true, help_heading = "Tolerances")]
    context_tolerance: Option<f64>,
    /// Captured against own: largest difference of a token [default: 0.001, or 1 for models of 16
    /// bits]
    #[arg(long, value_name = "X", allow_negative_numbers = true, help_heading = "Tolerances")]
    tolerance: Option<f64>,
    /// Captured against own: largest mean difference of a generation [default: 0.0001, or 0.05
    /// for models of 16 bits]
    #[arg(long, value_name = "X", allow_negative_numbers = true, help_heading = "Tolerances")]
    mean_tolerance: Option<f64>,
    /// Hold only what these weights sampled against what was captured
    #[arg(long, value_name = "N")]
    pub weight_version: Option<u64>,
    /// Show this many disagreements, worst first
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = "Reports")]
    pub top: usize,
    /// Least severity of a disagreement that makes the exit code 1; captured ones are warnings
    #[arg(long, value_enum, default_value_t = FailOn::Warning, value_name = "SEVERITY")]
    #[arg(help_heading = "Reports")]
    fail_on: FailOn,
}

/// What is audited.
#[derive(Debug)]
pub enum Source {
    /// All calls of an archive, and rows of it when a selection is stated.
    Archive(Archive),
    /// Rows, with the archive that tells each call's own context.
    Rows(Box<RowsDir>, Option<Archive>),
}

/// What an archive tells of one prompt group.
#[derive(Clone, Debug)]
pub struct AuditGroup {
    /// Its calls.
    pub calls: Vec<Captured>,
    /// Its rows, when a selection is stated.
    pub rows: Vec<Row>,
}

impl AuditArgs {
    /// Hands over to the learner, which replaces this process.
    pub fn run(self, _ui: &Ui) -> Result<Exit> {
        let mut args = without_subcommand(WORD, std::env::args_os().skip(1));
        args.insert(0, AUDIT.into());
        hand_over(&args, false)
    }

    /// Opens what is to be audited.
    ///
    /// # Errors
    ///
    /// Neither rows nor an archive; an archive that the rows were not built from; flags that
    /// belong to the other kind.
    pub fn open(&self) -> Result<Source> {
        if self.source.join(ARCHIVE_MANIFEST).is_file() {
            return match self.archive {
                None => Ok(Source::Archive(SelectingArgs::open(&self.source)?)),
                Some(_) => Err(Error::usage("--archive belongs to rows, and this is an archive")
                    .help(format!("Give rows, or {} alone", self.source.display()))),
            };
        }
        if !self.source.join(MANIFEST).is_file() {
            return Err(neither(&self.source));
        }
        self.selecting.refuse_for_rows(&self.config)?;
        let rows = rows::read(&self.source)?;
        let archive = self.archive.as_deref().map(Archive::open).transpose()?;
        if let Some(archive) = &archive
            && rows.manifest.provenance.archive != Some(archive.digest())
        {
            let of = rows.manifest.provenance.archive;
            return Err(Error::usage(format!(
                "{} were built from {}, and {} is {}",
                self.source.display(),
                of.map_or("no archive".to_owned(), |digest| format!("archive {digest}")),
                archive.dir().display(),
                archive.digest()
            ))
            .help("Give the archive of these rows, or leave --archive out"));
        }
        Ok(Source::Rows(Box::new(rows), archive))
    }

    /// Calls and rows of every group of an archive, in its order. Rows are built with the flags
    /// of the selection when `build` is set and one of them was given.
    ///
    /// # Errors
    ///
    /// What cannot be read; those of `take`.
    pub fn each_group(
        &self,
        archive: &Archive,
        build: bool,
        ui: &Ui,
        mut take: impl FnMut(AuditGroup) -> Result<()>,
    ) -> Result<()> {
        let selects = self.config.config.is_some() || self.selecting.stated().is_some();
        if !(build && selects) {
            let work = |groups: Vec<Group>| -> Vec<AuditGroup> {
                let of = |group| AuditGroup { calls: captured_calls(group), rows: Vec::new() };
                groups.iter().map(of).collect()
            };
            return each_part(archive, "audit", ui, work, |groups| {
                groups.into_iter().try_for_each(&mut take)
            });
        }
        let mut resolver = self.config.resolver()?;
        let settled = self.selecting.settle(&mut resolver)?;
        resolver.tell_ignored(WORD, ui);
        let work = |group: &Group, selection: GroupSelection, _| {
            let rows = build_group(group, &selection, 1, &GrpoSettings::default()).rows;
            AuditGroup { calls: captured_calls(group), rows }
        };
        self.selecting.each_group(&settled, archive, ui, work, take)
    }

    /// Tokens of rows that are computed at once; `None` computes row by row.
    pub fn packing(&self) -> Option<u64> {
        Some(self.pack_tokens).filter(|tokens| *tokens > 0)
    }

    /// The number format, with that of the model as `config.json` spells it.
    pub fn dtype(&self, saved: Option<&str>) -> Dtype {
        self.dtype.unwrap_or_else(|| Dtype::of_model(saved))
    }

    /// The bounds: flags, and what rounding explains for a model saved as `saved`.
    ///
    /// # Errors
    ///
    /// Bounds that are negative or not finite.
    pub fn tolerances(&self, saved: Option<&str>) -> Result<Tolerances> {
        let defaults = Tolerances::of(self.dtype(saved), saved);
        let tolerances = Tolerances {
            context: self.context_tolerance.unwrap_or(defaults.context),
            token: self.tolerance.unwrap_or(defaults.token),
            mean: self.mean_tolerance.unwrap_or(defaults.mean),
        };
        tolerances.check()?;
        Ok(tolerances)
    }
}

/// The learner behind `forestctl audit-logprobs`
#[derive(Debug, Parser)]
#[command(name = LEARNER, version, max_term_width = 100)]
struct Auditor {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    audit: AuditArgs,
}

/// The whole of the learner's audit but the scoring: parses, runs, and returns the exit code.
/// `audit` gets the number of threads that were asked for, 0 for all.
pub fn main(
    args: impl IntoIterator<Item = OsString>,
    audit: impl FnOnce(&AuditArgs, usize, &Ui) -> Result<AuditReport>,
) -> u8 {
    match parse::<Auditor>(args) {
        Ok(auditor) => converse(&auditor.global, |ui| {
            let report = audit(&auditor.audit, auditor.global.jobs.into(), ui)?;
            if report.generations == 0 {
                let source = auditor.audit.source.display();
                return Err(Error::nothing(format!("{source} holds no generation to score"))
                    .help(told_unscored(&report)));
            }
            show(&auditor.audit.source, &report, ui)?;
            Ok(match auditor.audit.fail_on.threshold() {
                Some(severity) if report.reaches(severity) => Exit::Findings,
                _ => Exit::Fine,
            })
        }),
        Err(exit) => exit,
    }
}

fn told_unscored(report: &AuditReport) -> String {
    let reasons: Vec<String> = report
        .unscored
        .iter()
        .map(|(why, calls)| format!("{} {}", why.as_str(), thousands(*calls)))
        .collect();
    match reasons.is_empty() {
        true => "There are no calls".to_owned(),
        false => format!("Calls left out: {}", reasons.join(", ")),
    }
}

fn show(source: &Path, report: &AuditReport, ui: &Ui) -> Result<()> {
    match ui.format {
        Format::Json => ui.json(report),
        Format::Jsonl => {
            ui.jsonl_all(report.disagreements.iter().map(AuditLine::Disagreement))?;
            let rest = AuditReport { disagreements: Vec::new(), ..report.clone() };
            ui.jsonl(&AuditLine::Summary(&rest))
        }
        Format::Csv => ui.csv(&HEADER, report.disagreements.iter().map(csv_row)),
        Format::Human => {
            let worst = report.disagreements.iter().map(|worst| human(worst, ui));
            ui.prose(&worst.collect::<String>())?;
            summary(source, report, ui).into_iter().try_for_each(|line| ui.line(line))
        }
    }
}

fn human(worst: &Disagreement, ui: &Ui) -> String {
    let tone = if worst.follows.is_some() { Tone::Dim } else { Tone::Bad };
    let label = ui.tone(tone, format!("{}[{}]", worst.severity, worst.code));
    let number = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.6}"));
    let mut place = format!("group {}, rollout {}", worst.group_id, worst.rollout_id);
    if let Some(row) = &worst.row_id {
        place += &format!(", row {row}{}", if worst.owned { "" } else { " without its loss" });
    }
    if let Some(version) = worst.weight_version {
        place += &format!(", weights {version}");
    }
    place += &format!(", position {}, token {} of the generation", worst.position, worst.token);
    if let Some(id) = worst.token_id {
        place += &format!(" (id {id})");
    }
    let mut values = format!(
        "captured {}, own {}, in the row {}",
        number(worst.captured),
        number(worst.own),
        number(worst.in_row)
    );
    if let Some(Spread { mean, max, tokens }) = worst.difference {
        values += &format!("; {tokens} tokens differ by {mean:.3e} in the mean, {max:.3e} at most");
    }
    let last = match &worst.follows {
        Some(call) => format!("follows from call {call} of the same row"),
        None => format!("help: {}", worst.help),
    };
    let first = format!("call {}: {}", worst.call_id, worst.message);
    let mut text = format!("{label} {}\n", visible(&first));
    for line in [format!("at {place}"), values, last] {
        text += &format!("  {}\n", visible(&line));
    }
    text
}

fn summary(source: &Path, report: &AuditReport, ui: &Ui) -> Vec<String> {
    let total: u64 = report.found.values().sum();
    let verdict = match total {
        0 => ui.tone(Tone::Good, "agree"),
        _ => ui.tone(Tone::Bad, "disagree"),
    };
    let mut lines = vec![format!(
        "{verdict}: {} generations of {}, {} spans of rows",
        thousands(report.generations),
        source.display(),
        thousands(report.spans),
    )];
    if report.spans > 0 {
        lines.push(format!("  own against in the row: {}", differ(&report.context)));
    }
    for version in &report.captured {
        let weights = version.weight_version.map_or("unknown".to_owned(), |v| v.to_string());
        lines.push(format!(
            "  captured against own, weights {weights}: {} in {} generations",
            differ(&version.spread),
            thousands(version.generations),
        ));
    }
    if report.left_out > 0 {
        let tokens = thousands(report.left_out);
        lines.push(format!("  {tokens} captured tokens without a finite log-probability left out"));
    }
    if !report.unscored.is_empty() {
        lines.push(format!("  {}", told_unscored(report)));
    }
    if report.own_context == OwnContext::Row {
        lines.push(
            "  own contexts are cut from the rows: --archive compares with what was captured"
                .to_owned(),
        );
    }
    if total > 0 {
        let by_code: Vec<String> =
            report.found.iter().map(|(code, n)| format!("{code} {}", thousands(*n))).collect();
        let shown = report.disagreements.len() as u64;
        let shown = if shown < total { format!("; {shown} shown") } else { String::new() };
        lines.push(format!("  {}{shown}", by_code.join(", ")));
    }
    lines
}

fn differ(spread: &Spread) -> String {
    let Spread { tokens, mean, max } = spread;
    format!("mean {mean:.3e}, max {max:.3e} over {} tokens", thousands(*tokens))
}

const HEADER: [&str; 18] = [
    "severity",
    "code",
    "group_id",
    "rollout_id",
    "call_id",
    "weight_version",
    "row_id",
    "owned",
    "position",
    "token",
    "token_id",
    "captured",
    "own",
    "in_row",
    "mean_difference",
    "max_difference",
    "first_difference",
    "message",
];

fn csv_row(worst: &Disagreement) -> Vec<String> {
    fn text<T: ToString>(x: Option<T>) -> String {
        x.map(|x| x.to_string()).unwrap_or_default()
    }
    vec![
        worst.severity.to_string(),
        worst.code.to_string(),
        worst.group_id.to_string(),
        worst.rollout_id.to_string(),
        worst.call_id.to_string(),
        text(worst.weight_version),
        worst.row_id.clone().unwrap_or_default(),
        worst.owned.to_string(),
        worst.position.to_string(),
        worst.token.to_string(),
        text(worst.token_id),
        text(worst.captured),
        text(worst.own),
        text(worst.in_row),
        text(worst.difference.map(|d| d.mean)),
        text(worst.difference.map(|d| d.max)),
        text(worst.first_difference),
        worst.message.clone(),
    ]
}
