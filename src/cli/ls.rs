//! `forestctl ls`: rollouts, filtered and sorted.

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::advantages::finite;
use super::looking::LookingArgs;
use super::selecting::SelectingArgs;
use super::ui::{Format, Tone, Ui, thousands};
use crate::archive::SourceKind;
use crate::error::{Error, Result};
use crate::explain::{Filter, RolloutLine, SortKey, Verdict, line, sort};
use crate::finding::Code;
use crate::id::GroupId;

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl ls run.forest
  forestctl ls run.forest --verdict masked
  forestctl ls run.forest --group p04 --group p05 --policy all_captured
  forestctl ls run.forest --min-reward 1 --sort tokens
  forestctl ls run.forest --reason selection_not_closed --format json | jq -r '.rollouts[].rollout_id'

",
    exit_status!()
);

/// List rollouts with verdict, reward, advantage, and tokens
///
/// The same selection, rows and advantages as of build-rows, without writing any. Nothing that
/// matches is exit code 4.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LsArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// Only this prompt group; may be given several times
    #[arg(long, value_name = "GROUP", help_heading = "Which")]
    group: Vec<String>,
    /// Only these: valid, masked, or dropped with their group
    #[arg(long, value_enum, value_name = "VERDICT", help_heading = "Which")]
    #[arg(hide_possible_values = true)]
    verdict: Option<Verdict>,
    /// Only those that carry no loss for this reason, among others; docs/codes.md lists them
    #[arg(long, value_name = "CODE", value_parser = code, help_heading = "Which")]
    reason: Option<Code>,
    /// Only those with a finding of this code, whether it masks or not
    #[arg(long, value_name = "CODE", value_parser = code, help_heading = "Which")]
    finding: Option<Code>,
    /// Only those with at least this reward
    #[arg(long, value_name = "X", value_parser = finite, allow_negative_numbers = true)]
    #[arg(help_heading = "Which")]
    min_reward: Option<f64>,
    /// Only those with at most this reward
    #[arg(long, value_name = "X", value_parser = finite, allow_negative_numbers = true)]
    #[arg(help_heading = "Which")]
    max_reward: Option<f64>,
    /// Only this form of capture: staged, gym_store, or inline_rollouts
    #[arg(long, value_enum, value_name = "FORM", help_heading = "Which")]
    #[arg(hide_possible_values = true)]
    source: Option<SourceKind>,
    /// Sort by id, reward, tokens, calls, or rows; numbers from the largest down
    #[arg(long, value_enum, default_value_t, value_name = "KEY", help_heading = "Order")]
    #[arg(hide_possible_values = true)]
    sort: SortKey,
    /// Turn the order around
    #[arg(long, help_heading = "Order")]
    reverse: bool,
    #[command(flatten)]
    looking: LookingArgs,
}

/// A code by its word.
fn code(word: &str) -> Result<Code, String> {
    Code::parse(word).ok_or_else(|| {
        let all = Code::ALL.iter().map(|code| code.as_str());
        let alike = |code: &str| {
            f64::from(u8::from(code.contains(word))) + strsim::jaro_winkler(code, word)
        };
        let near = all.max_by(|a, b| alike(a).total_cmp(&alike(b)));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        format!("no code of docs/codes.md{near}")
    })
}

/// JSON Schema of `--format json`.
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

/// `--format json`.
#[derive(Debug, Serialize, JsonSchema)]
struct Document {
    schema_version: u32,
    policy: String,
    /// Rollouts of the archive, listed or not.
    total: u64,
    rollouts: Vec<RolloutLine>,
}

impl LsArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let looking = self.looking.settle("ls", ui)?;
        let archive = SelectingArgs::open(&self.archive)?;
        let filter = Filter {
            groups: self.group.iter().map(|id| GroupId::from(id.as_str())).collect(),
            verdict: self.verdict,
            reason: self.reason,
            min_reward: self.min_reward,
            max_reward: self.max_reward,
            source: self.source,
            finding: self.finding,
        };
        let mut rollouts = Vec::new();
        let lines = |view: &crate::explain::View<'_>| -> Vec<RolloutLine> {
            view.slots().map(line).filter(|line| filter.takes(line)).collect()
        };
        self.looking.each(&looking, &archive, ui, lines, |lines| {
            rollouts.extend(lines);
            Ok(())
        })?;
        let total = archive.counts().rollouts;
        if rollouts.is_empty() {
            let message = format!("none of the {} rollouts matches", thousands(total));
            return Err(Error::nothing(message).help("Leave out a filter"));
        }
        sort(&mut rollouts, self.sort, self.reverse);
        let policy = looking.selecting.policy.to_string();
        let document = Document { schema_version: 1, policy, total, rollouts };
        match ui.format {
            Format::Human => document.print(ui)?,
            Format::Json => ui.json(&document)?,
            Format::Jsonl => ui.jsonl_all(&document.rollouts)?,
            Format::Csv => ui.csv(&HEADER, document.rollouts.iter().map(csv_row))?,
        }
        Ok(Exit::Fine)
    }
}

const HEADER: [&str; 16] = [
    "group_id",
    "rollout_id",
    "slot",
    "source",
    "reward",
    "advantage",
    "verdict",
    "reason",
    "findings",
    "calls",
    "selected_calls",
    "rows",
    "tokens",
    "generated_tokens",
    "row_tokens",
    "loss_tokens",
];

fn csv_row(line: &RolloutLine) -> Vec<String> {
    let number = |x: Option<f64>| x.map(|x| x.to_string()).unwrap_or_default();
    let findings: Vec<&str> = line.findings.iter().map(|code| code.as_str()).collect();
    let source = match line.source {
        SourceKind::Staged => "staged",
        SourceKind::GymStore => "gym_store",
        SourceKind::InlineRollouts => "inline_rollouts",
    };
    let mut cells = vec![
        line.group_id.to_string(),
        line.rollout_id.to_string(),
        line.slot.to_string(),
        source.to_owned(),
        number(line.reward),
        number(line.advantage),
        line.verdict.as_str().to_owned(),
        line.reasons.first().map(|code| code.to_string()).unwrap_or_default(),
        findings.join(" "),
    ];
    let counts = [
        line.calls,
        line.selected_calls,
        line.rows,
        line.tokens,
        line.generated_tokens,
        line.row_tokens,
        line.loss_tokens,
    ];
    cells.extend(counts.iter().map(u64::to_string));
    cells
}

impl Document {
    fn print(&self, ui: &Ui) -> Result<()> {
        let rows = self.rollouts.iter().map(|line| {
            let advantage = line.advantage.filter(|_| line.verdict == Verdict::Valid);
            vec![
                line.group_id.to_string(),
                line.rollout_id.to_string(),
                line.slot.to_string(),
                line.reward.map_or("-".to_owned(), |reward| reward.to_string()),
                advantage.map_or("-".to_owned(), |advantage| format!("{advantage:.4}")),
                thousands(line.calls),
                thousands(line.rows),
                thousands(line.tokens),
                thousands(line.loss_tokens),
                line.verdict.as_str().to_owned(),
                line.reasons.first().map(|code| code.to_string()).unwrap_or_default(),
            ]
        });
        let header = [
            "group", "rollout", "slot", "reward", "adv", "calls", "rows", "tokens", "loss",
            "verdict", "reason",
        ];
        ui.prose(&ui.tabulated(&header, rows))?;
        let sum = |of: fn(&RolloutLine) -> u64| thousands(self.rollouts.iter().map(of).sum());
        let valid = self.rollouts.iter().filter(|line| line.verdict == Verdict::Valid).count();
        ui.line(format!(
            "\n{} of {} rollouts, {} valid by {}: {} calls, {} tokens, {} with loss",
            ui.tone(Tone::Strong, thousands(self.rollouts.len() as u64)),
            thousands(self.total),
            thousands(valid as u64),
            self.policy,
            sum(|line| line.calls),
            sum(|line| line.tokens),
            sum(|line| line.loss_tokens),
        ))
    }
}
