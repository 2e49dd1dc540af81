//! `forestctl diff`: two policies on one archive, or two archives, side by side.

use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::advantages::AdvantageArgs;
use super::looking::view;
use super::resolve::ConfigArg;
use super::selecting::{JudgingArgs, Selecting, SelectingArgs};
use super::ui::{Format, Tone, Ui, thousands};
use crate::archive::Group;
use crate::config::GrpoSettings;
use crate::error::{Error, Result};
use crate::explain::{Changed, Difference, Side, Sides, Totals, compare, sides};
use crate::select::PolicyChoice;

const EXAMPLES: &str = "\
Examples:
  forestctl diff run.forest --policy returned_history --policy all_captured
  forestctl diff run.forest --policy returned_history --policy mine:select
  forestctl diff before.forest after.forest
  forestctl diff before.forest after.forest --policy all_captured --format csv

Exit status:
  0    equal
  1    rollouts differ, as of diff(1)
  2    usage, I/O, a corrupt file, or a missing component
  4    nothing to do
  130  interrupted";

/// Compare two policies on one archive, or two archives, rollout by rollout
///
/// Of one archive, two policies; of two archives, the same policy, or one for each. Rollouts are
/// compared by their ids: selected calls, rows with their tokens, loss tokens, advantages,
/// verdicts and reasons.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DiffArgs {
    /// The archive; two of them to compare archives
    #[arg(value_name = "ARCHIVE", required = true, num_args = 1..=2)]
    pub archives: Vec<PathBuf>,
    /// Which captured calls train, as of select; given twice, once for each side
    #[arg(long = "policy", value_name = "POLICY")]
    policies: Vec<PolicyChoice>,
    #[command(flatten)]
    judging: JudgingArgs,
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    advantages: AdvantageArgs,
}

/// JSON Schema of `--format json`.
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

/// `--format json`.
#[derive(Debug, Serialize, JsonSchema)]
struct Document {
    schema_version: u32,
    left: Named,
    right: Named,
    /// Rollouts without a difference.
    equal: u64,
    /// Rollouts that differ, in order of group and slot.
    rollouts: Vec<Difference>,
}

/// What a side is.
#[derive(Debug, Serialize, JsonSchema)]
struct Named {
    archive: String,
    policy: String,
    #[serde(flatten)]
    totals: Totals,
}

impl DiffArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let [left, right] = self.pairs()?;
        let mut resolver = self.config.resolver()?;
        let grpo = self.advantages.settle(&mut resolver)?;
        let selecting = [left.1, right.1].map(|policy| self.judging.settle(policy, &mut resolver));
        let [ours, theirs] = selecting;
        let (ours, theirs) = (ours?, theirs?);
        resolver.tell_ignored("diff", ui);
        let a = self.sides(left.0, &ours, &grpo, ui)?;
        let b = self.sides(right.0, &theirs, &grpo, ui)?;
        let comparison = compare(&a, &b);
        let named = |archive: &Path, selecting: &Selecting, totals| Named {
            archive: archive.display().to_string(),
            policy: selecting.policy.to_string(),
            totals,
        };
        let document = Document {
            schema_version: 1,
            left: named(left.0, &ours, comparison.left),
            right: named(right.0, &theirs, comparison.right),
            equal: comparison.equal,
            rollouts: comparison.rollouts,
        };
        match ui.format {
            Format::Human => document.print(ui)?,
            Format::Json => ui.json(&document)?,
            Format::Jsonl => ui.jsonl_all(&document.rollouts)?,
            Format::Csv => ui.csv(&HEADER, document.rollouts.iter().map(csv_row))?,
        }
        Ok(match document.rollouts.is_empty() {
            true => Exit::Fine,
            false => Exit::Findings,
        })
    }

    /// Archive and policy of each side.
    fn pairs(&self) -> Result<[(&Path, Option<PolicyChoice>); 2]> {
        let policy = |at: usize| self.policies.get(at).cloned();
        match (&self.archives[..], self.policies.len()) {
            ([one], 2) => Ok([(one, policy(0)), (one, policy(1))]),
            ([one, other], 0 | 1) => Ok([(one, policy(0)), (other, policy(0))]),
            ([one, other], 2) => Ok([(one, policy(0)), (other, policy(1))]),
            ([_], n) => Err(Error::usage(format!("one archive takes two policies, not {n}"))
                .help("forestctl diff ARCHIVE --policy returned_history --policy all_captured")),
            (_, n) => Err(Error::usage(format!("two sides take two policies at most, not {n}"))),
        }
    }

    fn sides(
        &self,
        archive: &Path,
        selecting: &Selecting,
        grpo: &GrpoSettings,
        ui: &Ui,
    ) -> Result<Sides> {
        let archive = SelectingArgs::open(archive)?;
        let mut all = Sides::new();
        let work =
            |group: &Group, judged| -> Vec<_> { sides(&view(group, judged, grpo)).collect() };
        self.judging.each_judged(selecting, &archive, ui, work, |sides| {
            all.extend(sides);
            Ok(())
        })?;
        Ok(all)
    }
}

const HEADER: [&str; 18] = [
    "group_id",
    "rollout_id",
    "changed",
    "only_left",
    "only_right",
    "left_calls",
    "right_calls",
    "left_rows",
    "right_rows",
    "left_row_tokens",
    "right_row_tokens",
    "left_loss_tokens",
    "right_loss_tokens",
    "left_advantage",
    "right_advantage",
    "left_verdict",
    "right_verdict",
    "reasons",
];

fn csv_row(difference: &Difference) -> Vec<String> {
    let Difference { group_id, rollout_id, changed, only_left, only_right, left, right } =
        difference;
    let list =
        |ids: &[crate::id::CallId]| ids.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" ");
    let changed: Vec<&str> = changed.iter().map(|changed| changed.as_str()).collect();
    let mut cells = vec![
        group_id.to_string(),
        rollout_id.to_string(),
        changed.join(" "),
        list(only_left),
        list(only_right),
    ];
    let of: [fn(&Side) -> String; 6] = [
        |side| side.call_ids.len().to_string(),
        |side| side.rows.to_string(),
        |side| side.row_tokens.to_string(),
        |side| side.loss_tokens.to_string(),
        |side| side.advantage.map(|advantage| advantage.to_string()).unwrap_or_default(),
        |side| side.verdict.as_str().to_owned(),
    ];
    for cell in of {
        cells.extend([left, right].map(|side| side.as_ref().map(cell).unwrap_or_default()));
    }
    cells.push(both(difference, |side| reason(side).to_owned()));
    cells
}

fn reason(side: &Side) -> &'static str {
    side.reasons.first().map_or("", |code| code.as_str())
}

/// What both sides say, once where it is the same.
fn both(difference: &Difference, cell: impl Fn(&Side) -> String) -> String {
    let told = |side: &Option<Side>| side.as_ref().map_or("-".to_owned(), &cell);
    let (left, right) = (told(&difference.left), told(&difference.right));
    match left == right {
        true => left,
        false => format!("{left} -> {right}"),
    }
}

/// Numbers of selected calls; where they are equal and the calls are not, what else differs.
fn calls(difference: &Difference) -> String {
    let told = both(difference, |side| thousands(side.call_ids.len() as u64));
    let other = difference.only_right.len();
    match difference.changed.contains(&Changed::Selection) && !told.contains(' ') {
        true if other == 0 => format!("{told} reordered"),
        true => format!("{told}, {other} other"),
        false => told,
    }
}

/// Numbers of rows; where they are equal and the rows are not, that they are others.
fn rows_told(difference: &Difference) -> String {
    let told = both(difference, |side| thousands(side.rows));
    match difference.changed.contains(&Changed::Rows) && !told.contains(' ') {
        true => format!("{told} other"),
        false => told,
    }
}

impl Document {
    fn print(&self, ui: &Ui) -> Result<()> {
        let rollouts = &self.rollouts;
        let rows = rollouts.iter().map(|difference| {
            let verdict = |side: &Side| match reason(side) {
                "" => side.verdict.as_str().to_owned(),
                reason => format!("{} {reason}", side.verdict.as_str()),
            };
            vec![
                difference.rollout_id.to_string(),
                calls(difference),
                rows_told(difference),
                both(difference, |side| thousands(side.loss_tokens)),
                both(difference, |side| {
                    side.advantage.map_or("none".to_owned(), |advantage| format!("{advantage:.4}"))
                }),
                both(difference, verdict),
            ]
        });
        if !rollouts.is_empty() {
            let header = ["rollout", "calls", "rows", "loss", "advantage", "verdict"];
            ui.prose(&(ui.tabulated(&header, rows) + "\n"))?;
        }
        let sums = [&self.left, &self.right].map(|named| &named.totals);
        type Sum = fn(&Totals) -> u64;
        let of: [(&str, Sum); 7] = [
            ("rollouts", |totals| totals.rollouts),
            ("valid", |totals| totals.valid_rollouts),
            ("dropped groups", |totals| totals.dropped_groups),
            ("selected calls", |totals| totals.selected_calls),
            ("rows", |totals| totals.rows),
            ("row tokens", |totals| totals.row_tokens),
            ("loss tokens", |totals| totals.loss_tokens),
        ];
        let [left, right] = self.names();
        let totals = of.into_iter().map(|(name, of)| {
            let [a, b] = sums.map(of);
            let change = match b as i128 - a as i128 {
                0 => String::new(),
                n if n > 0 => format!("+{}", thousands(b - a)),
                _ => format!("-{}", thousands(a - b)),
            };
            vec![name.to_owned(), thousands(a), thousands(b), change]
        });
        ui.table(&["total", &left, &right, "change"], totals)?;
        let counts: Vec<String> = Changed::ALL
            .iter()
            .filter_map(|what| {
                let count = rollouts.iter().filter(|d| d.changed.contains(what)).count();
                (count > 0).then(|| format!("{} {count}", what.as_str()))
            })
            .collect();
        let all = rollouts.len() as u64 + self.equal;
        ui.prose(&match rollouts.is_empty() {
            true => format!("\n{}: {} rollouts\n", ui.tone(Tone::Good, "equal"), thousands(all)),
            false => format!(
                "\n{} of {} rollouts differ: {}\n",
                ui.tone(Tone::Strong, thousands(rollouts.len() as u64)),
                thousands(all),
                counts.join(", ")
            ),
        })
    }

    /// What tells the sides apart.
    fn names(&self) -> [String; 2] {
        let (left, right) = (&self.left, &self.right);
        match (left.archive == right.archive, left.policy == right.policy) {
            (true, true) => ["left", "right"].map(str::to_owned),
            (true, false) => [left.policy.clone(), right.policy.clone()],
            (false, true) => [left.archive.clone(), right.archive.clone()],
            (false, false) => {
                [left, right].map(|named| format!("{} {}", named.archive, named.policy))
            }
        }
    }
}
