//! `forestctl report`: one page about an archive.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::build_rows::batch::{BatchArgs, BatchPlan};
use super::build_rows::previous::{self, Built, PreviousFile};
use super::looking::{self, TokenizerArg};
use super::resolve::ConfigArg;
use super::selecting::SelectingArgs;
use super::ui::{Format, Tone, Ui, thousands};
use crate::archive::{Archive, Group};
use crate::config::document::Node;
use crate::config::recipe::{Recipe, Refusal, guards};
use crate::error::Result;
use crate::explain::{Beside, GroupLine, Summary, Tokens, Verdict, View};
use crate::finding::{Code, Severity};
use crate::id::RolloutId;
use crate::output::{check_free, write_file};
use crate::pictures::{BatchFacts, Bins, Guard, Measure, Report, measures, page};
use crate::rows::{Assembly, BuiltGroup, Counts, Provenance, Row};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl report run.forest -o report.html
  forestctl report run.forest -o report.html --config grpo.yaml --data-parallel 8
  forestctl report run.forest -o report.html --rollout p03_g0 --tokenizer Qwen3-0.6B
  forestctl report run.forest -o report.html --prev-logprobs logprobs.safetensors
  forestctl report run.forest -o - | ssh desk 'cat > report.html'
  forestctl report run.forest -o report.html --format json | jq '.tokens'

",
    exit_status!()
);

/// Write one page about an archive: data flow, calls to rows, compaction, batch size, distributions
///
/// The page is one HTML file without scripts; it fetches nothing, prints, and follows light and dark.
/// Selection, rows, padding and advantages are those of build-rows with the same flags. It draws the
/// rollout that shows the most, or that of --rollout.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// The page to write; - is stdout
    #[arg(short, long, value_name = "HTML")]
    pub output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    /// Draw this rollout: its id, or how it begins
    #[arg(long, value_name = "ROLLOUT")]
    rollout: Option<String>,
    #[command(flatten)]
    tokenizer: TokenizerArg,
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    settings: BatchArgs,
    /// Log-probabilities under the previous policy, as `step --dump-logprobs` writes them
    #[arg(long, value_name = "FILE", help_heading = "Advantages")]
    prev_logprobs: Option<PathBuf>,
}

/// JSON Schema of `--format json`.
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

/// `--format json`: the numbers of the page.
#[derive(Debug, Serialize, JsonSchema)]
struct Document {
    schema_version: u32,
    policy: String,
    /// Captured calls by what became of them.
    calls: BTreeMap<&'static str, u64>,
    /// Selected calls.
    selected_calls: u64,
    /// Rollouts by verdict.
    rollouts: BTreeMap<&'static str, u64>,
    /// Where tokens went.
    tokens: Tokens,
    /// Physical rows, execution padding included.
    rows: u64,
    /// Rows that carry no loss, without padding.
    masked_rows: u64,
    /// Rows of execution padding.
    padding_rows: u64,
    /// Roots that leave what went before, by how.
    leaves: BTreeMap<&'static str, u64>,
    /// Why rollouts carry no loss.
    reasons: Vec<ReasonLine>,
    /// Prompt groups in the order of their ids.
    groups: Vec<GroupLine>,
    /// How numbers spread.
    distributions: Vec<Measure>,
    /// The rollout that is drawn.
    drawn: Option<RolloutId>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ReasonLine {
    code: Code,
    /// Rollouts that have it, among other reasons.
    rollouts: u64,
    /// Rollouts of which it is the first reason.
    first: u64,
}

/// What one group comes to.
struct Counted {
    summary: Summary,
    group: BuiltGroup,
    errors: u64,
    warnings: u64,
}

impl ReportArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let to_stdout = self.output.as_os_str() == "-";
        if !to_stdout && !self.force {
            check_free(&self.output)?;
        }
        let mut resolver = self.config.resolver()?;
        let plan = self.settings.settle(&mut resolver)?;
        resolver.tell_ignored("report", ui);
        let file = self.prev_logprobs.as_deref().map(PreviousFile::open).transpose()?;
        let previous = file.as_ref().map(PreviousFile::read).transpose()?;
        let decoder = self.tokenizer.read()?;
        let archive = SelectingArgs::open(&self.archive)?;
        let wanted =
            self.rollout.as_deref().map(|id| looking::rollout(&archive, id)).transpose()?;
        let wanted = wanted.map(|found| found.rollout_id);
        let (mut summary, mut assembly) = (Summary::default(), Assembly::default());
        let mut findings = (0, 0);
        let work = |group: &Group, judged: super::selecting::Judged| -> Result<Counted> {
            let built = previous::build(group, &judged.selection, &plan, previous.as_ref())?;
            count(group, judged, built, wanted.as_ref(), decoder.as_deref().map(|d| d as _))
        };
        let judging = self.settings.selecting.judging();
        judging.each_judged(&plan.selecting, &archive, ui, work, |counted: Result<Counted>| {
            let Counted { summary: next, group, errors, warnings } = counted?;
            summary.add(next);
            assembly.add(group);
            findings = (findings.0 + errors, findings.1 + warnings);
            Ok(())
        })?;
        let summary = summary.finish();
        let (counts, batch) = laid_out(&plan, &archive, assembly)?;
        let html = page(&Report {
            archive: self.archive.display().to_string(),
            digest: archive.digest().to_string(),
            policy: plan.selecting.policy.to_string(),
            summary: &summary,
            counts,
            batch,
            guards: self.config.config.as_deref().map(Self::guards).transpose()?,
            findings,
            threshold: plan.seq_logprob_error_threshold.filter(|_| previous.is_some()),
        });
        let console = if to_stdout { ui.aside() } else { ui.clone() };
        match to_stdout {
            true => ui.print(&html)?,
            false => write_file(&self.output, self.force, html.as_bytes())?,
        }
        let document = Document::of(&plan, &summary, &counts);
        match ui.format {
            Format::Human => self.tell(&summary, html.len(), &console),
            Format::Json => console.json(&document),
            Format::Jsonl => console.jsonl_all(&document.groups),
            Format::Csv => console.csv(&HEADER, document.groups.iter().map(csv_row)),
        }?;
        Ok(Exit::Fine)
    }

    /// What of the configuration keeps it from forest training.
    fn guards(path: &std::path::Path) -> Result<Vec<Guard>> {
        let document = Node::read(path)?;
        let (recipe, mut refused) = Recipe::of(&document);
        refused.extend(guards(&recipe, &document));
        let guard = |Refusal { place, rule, message, help, .. }: Refusal| Guard {
            place: place.map(|place| place.to_string()),
            rule,
            message,
            help,
        };
        Ok(refused.into_iter().map(guard).collect())
    }

    fn tell(&self, summary: &Summary, bytes: usize, ui: &Ui) -> Result<()> {
        let name = match self.output.as_os_str() == "-" {
            true => "the page".to_owned(),
            false => self.output.display().to_string(),
        };
        let drawn = summary.picked.as_ref().map_or(String::new(), |picked| {
            format!("; it draws rollout {}", picked.portrait.fate.line.rollout_id)
        });
        ui.summary(format!(
            "{}  written, {} KiB\n  {} of {} rollouts are valid{drawn}",
            ui.tone(Tone::Strong, name),
            thousands(bytes.div_ceil(1024) as u64),
            thousands(summary.rollouts_of(Verdict::Valid)),
            thousands(summary.rollouts()),
        ))
    }
}

/// Sums up one group; its rows go.
fn count(
    group: &Group,
    judged: super::selecting::Judged,
    built: Built,
    wanted: Option<&RolloutId>,
    decoder: Option<&(dyn crate::explain::Decode + Sync)>,
) -> Result<Counted> {
    let Built { batch, errors } = built;
    let (of_group, rows) = BuiltGroup::of(group.group_id.clone(), batch);
    let (padding, rows): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| row.is_execution_padding);
    let view = View::of_rows(group, judged.selection, judged.proved, judged.findings, rows);
    let errors = errors.map(|(errors, _)| errors.pooled);
    let beside = Beside { padding: &padding, errors: errors.as_ref(), wanted, decoder };
    let bad = view.findings.iter().filter(|f| f.severity == Severity::Error).count() as u64;
    Ok(Counted {
        summary: Summary::of(&view, beside)?,
        group: of_group,
        errors: bad,
        warnings: view.findings.len() as u64 - bad,
    })
}

/// The batch as build-rows would write it: its counts, and its bins.
fn laid_out(
    plan: &BatchPlan,
    archive: &Archive,
    assembly: Assembly,
) -> Result<(Counts, BatchFacts)> {
    let provenance = Provenance {
        archive: Some(archive.digest()),
        policy: plan.selecting.policy.to_string(),
        assume_complete: plan.selecting.assume_complete,
        batch: plan.batch,
        grpo: plan.grpo,
        seq_logprob_error_threshold: None,
    };
    let built = assembly.finish(provenance, plan.row_multiple, None);
    let packed = match built.lengths.is_empty() {
        true => None,
        false => plan.packed(&built)?,
    };
    let bins = packed.map(|packed| Bins::of(&packed, &built.lengths));
    let facts = BatchFacts { settings: plan.batch, row_multiple: plan.row_multiple, bins };
    Ok((built.manifest.counts, facts))
}

impl Document {
    fn of(plan: &BatchPlan, summary: &Summary, counts: &Counts) -> Self {
        let reasons = summary.reasons.iter().map(|(&code, because)| ReasonLine {
            code,
            rollouts: because.rollouts,
            first: because.first,
        });
        let picked = summary.picked.as_ref();
        Self {
            schema_version: 1,
            policy: plan.selecting.policy.to_string(),
            calls: summary.calls.iter().map(|(mark, n)| (mark.as_str(), *n)).collect(),
            selected_calls: summary.selected_calls,
            rollouts: summary.verdicts.iter().map(|(v, n)| (v.as_str(), *n)).collect(),
            tokens: summary.tokens,
            rows: counts.rows,
            masked_rows: counts.masked_rows,
            padding_rows: counts.padding_rows,
            leaves: summary.leaves.iter().map(|(kind, n)| (kind.as_str(), *n)).collect(),
            reasons: reasons.collect(),
            groups: summary.groups.clone(),
            distributions: measures(summary),
            drawn: picked.map(|picked| picked.portrait.fate.line.rollout_id.clone()),
        }
    }
}

const HEADER: [&str; 10] = [
    "group_id",
    "dropped",
    "rollouts",
    "valid_rollouts",
    "rows",
    "padding_rows",
    "tokens",
    "loss_tokens",
    "row_tokens",
    "unique_tokens",
];

fn csv_row(group: &GroupLine) -> Vec<String> {
    let valid = group.slots.iter().filter(|slot| slot.trains).count() as u64;
    let mut cells = vec![
        group.group_id.to_string(),
        group.dropped.map(|code| code.to_string()).unwrap_or_default(),
    ];
    let counts = [
        group.slots.len() as u64,
        valid,
        group.rows(),
        group.padding,
        group.tokens,
        group.loss_tokens,
        group.row_tokens,
        group.unique_tokens,
    ];
    cells.extend(counts.map(|n| n.to_string()));
    cells
}
