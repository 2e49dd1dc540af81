//! `forestctl show`: one rollout as a tree of its calls.

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::looking::{self, LookingArgs, TokenizerArg};
use super::selecting::SelectingArgs;
use super::ui::{Format, Tone, Ui};
use crate::error::Result;
use crate::explain::words::{self, short};
use crate::explain::{
    Decode, Drawing, DrawnCall, DrawnLine, Mark, RolloutFate, Slot, Tree, TreeCall, Verdict,
    leaving, rollout, tree,
};
use crate::finding::{Finding, Severity};
use crate::id::CallId;
use crate::report::visible;

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl show run.forest p01_g1
  forestctl show run.forest p01_g1 --policy all_captured
  forestctl show run.forest p01_g1 --tokenizer Qwen3-0.6B/tokenizer.json
  forestctl show run.forest p01_g1 --format jsonl | jq -r 'select(.mark == \"rejected\") | .call_id'

Marks:
  +  accepted     selected by the policy
  -  rejected     captured and committed, and not selected
  !  failed       its capture failed, or it ended badly
  ?  pending      admitted, and neither acknowledged nor failed
  ~  uncommitted  staged, and the ledger does not commit to it

",
    exit_status!()
);

/// Show one rollout as a tree: calls, roots, branches, rows, and findings
///
/// On a terminal, calls stand below one another along their chains, and a branch is drawn before
/// what goes on after it. Elsewhere the same facts are a table with whole ids, one call a line.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// Id of the rollout, or how it begins
    #[arg(value_name = "ROLLOUT")]
    pub rollout: String,
    #[command(flatten)]
    tokenizer: TokenizerArg,
    #[command(flatten)]
    looking: LookingArgs,
}

/// JSON Schema of `--format json`.
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

/// `--format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    schema_version: u32,
    policy: String,
    rollout: RolloutFate,
    #[serde(flatten)]
    tree: Tree,
    findings: Vec<Finding>,
}

impl ShowArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let looking = self.looking.settle("show", ui)?;
        let decoder = self.tokenizer.read()?;
        let archive = SelectingArgs::open(&self.archive)?;
        let found = looking::rollout(&archive, &self.rollout)?;
        let policy = looking.selecting.policy.to_string();
        let documents = self.looking.one(&looking, &archive, &found, |view| {
            let own = view.slots().filter(|slot| slot.rollout.rollout_id == found.rollout_id);
            own.map(|slot| Document::new(slot, &policy, decoder.as_ref().map(|d| &**d as _)))
                .collect::<Vec<_>>()
        })?;
        for document in &documents {
            match ui.format {
                Format::Human => ui.prose(&document.human(ui))?,
                Format::Json => ui.json(document)?,
                Format::Jsonl => ui.jsonl_all(&document.tree.calls)?,
                Format::Csv => ui.csv(&HEADER, document.tree.calls.iter().map(csv_row))?,
            }
        }
        Ok(Exit::Fine)
    }
}

const HEADER: [&str; 17] = [
    "mark",
    "call_id",
    "parent_call_id",
    "root",
    "depth",
    "selected",
    "scored",
    "endpoint",
    "start",
    "carry",
    "generated",
    "weight_version",
    "ending",
    "failure",
    "owned_in",
    "context_in",
    "findings",
];

fn csv_row(call: &TreeCall) -> Vec<String> {
    fn text<T: ToString>(x: &Option<T>) -> String {
        x.as_ref().map(T::to_string).unwrap_or_default()
    }
    vec![
        call.mark.as_str().to_owned(),
        call.call_id.to_string(),
        text(&call.parent_call_id),
        text(&call.root),
        call.depth.to_string(),
        call.selected.to_string(),
        call.scored.to_string(),
        call.endpoint.to_string(),
        call.start.to_string(),
        call.carry.to_string(),
        call.generated.to_string(),
        text(&call.weight_version),
        text(&call.ending),
        text(&call.failure),
        text(&call.owned_in),
        call.context_in.join(" "),
        codes(call),
    ]
}

fn codes(call: &TreeCall) -> String {
    call.findings.iter().map(|code| code.as_str()).collect::<Vec<_>>().join(" ")
}

/// The tone of a mark.
pub(super) fn tone(mark: Mark) -> Tone {
    match mark {
        Mark::Accepted => Tone::Good,
        Mark::Rejected => Tone::Dim,
        Mark::Failed => Tone::Bad,
        Mark::Pending | Mark::Uncommitted => Tone::Warn,
    }
}

/// What a rollout is, in lines; with what to do about each reason, if `helping`.
pub(super) fn heading(fate: &RolloutFate, policy: &str, helping: bool, ui: &Ui) -> String {
    let line = &fate.line;
    let verdict = match line.verdict {
        Verdict::Valid => ui.tone(Tone::Good, "valid"),
        other => ui.tone(Tone::Warn, other.as_str()),
    };
    let mut text = format!(
        "rollout {}  group {}, slot {}\n  {verdict} by {policy}, {}\n  {}\n",
        ui.tone(Tone::Strong, visible(line.rollout_id.as_str())),
        visible(line.group_id.as_str()),
        line.slot,
        words::reward(fate),
        words::counts(fate),
    );
    for reason in &fate.masked {
        let rule = words::rule(reason.rule);
        let label = ui.tone(Tone::Warn, format!("{}{rule}", reason.code));
        text += &format!("  {label}: {}\n", visible(&reason.message));
        if helping {
            text += &format!("    help: {}\n", visible(&reason.help));
        }
    }
    text
}

/// Columns of `--format csv` where there are several rollouts.
pub(super) fn header_of_many() -> Vec<&'static str> {
    ["rollout_id"].into_iter().chain(HEADER).collect()
}

impl Document {
    /// What is told of a rollout.
    pub fn new(slot: Slot<'_>, policy: &str, decoder: Option<&dyn Decode>) -> Self {
        Self {
            schema_version: 1,
            policy: policy.to_owned(),
            rollout: rollout(slot),
            tree: tree(slot, decoder),
            findings: slot.findings().cloned().collect(),
        }
    }

    /// Its calls as rows below [`header_of_many`].
    pub(super) fn csv_rows(&self) -> impl Iterator<Item = Vec<String>> {
        let rollout = self.rollout.line.rollout_id.to_string();
        self.tree
            .calls
            .iter()
            .map(move |call| [rollout.clone()].into_iter().chain(csv_row(call)).collect())
    }

    /// For people: drawn on a terminal, a table elsewhere.
    pub fn human(&self, ui: &Ui) -> String {
        let mut text = heading(&self.rollout, &self.policy, false, ui);
        let shorten = short(self.tree.calls.iter().map(|call| &call.call_id));
        let name = |id: &CallId| match ui.terminal {
            true => visible(&shorten(id)).into_owned(),
            false => visible(id.as_str()).into_owned(),
        };
        text += &format!("\n{}\n", ui.tone(Tone::Strong, "rows"));
        for row in &self.tree.rows {
            text += &format!("  {}\n", words::row(row, &name));
        }
        if self.tree.rows.is_empty() {
            text += "  none: the group is dropped\n";
        }
        text += &format!("\n{}\n", ui.tone(Tone::Strong, "calls"));
        text += &match ui.terminal {
            true => self.drawn(&name, ui),
            false => self.table(&name, ui),
        };
        // What masks is told above.
        let told = |finding: &&Finding| self.rollout.masked.iter().all(|m| m.code != finding.code);
        let findings: Vec<&Finding> = self.findings.iter().filter(told).collect();
        if !findings.is_empty() {
            text += &format!("\n{}\n", ui.tone(Tone::Strong, "findings"));
        }
        for finding in findings {
            let tone = if finding.severity == Severity::Error { Tone::Bad } else { Tone::Warn };
            let label = ui.tone(tone, format!("{}[{}]", finding.severity, finding.code));
            text += &format!("  {label} {}\n", visible(&finding.message));
        }
        text
    }

    /// How a root leaves what went before.
    fn root(&self, number: usize, name: &impl Fn(&CallId) -> String, ui: &Ui) -> String {
        let head = ui.tone(Tone::Dim, format!("root {}", number + 1));
        match leaving(&self.tree, number, name) {
            None => format!("{head}\n"),
            Some((kind, rest)) => format!("{head}  {}: {rest}\n", ui.tone(Tone::Strong, kind)),
        }
    }

    fn drawn(&self, name: &impl Fn(&CallId) -> String, ui: &Ui) -> String {
        let drawing = Drawing::new(&self.tree, name, usize::MAX);
        let mut text = ui.tone(Tone::Dim, format!("  {}", drawing.header())) + "\n";
        for line in &drawing.lines {
            text += &match *line {
                DrawnLine::Root(number) => format!("  {}", self.root(number, name, ui)),
                DrawnLine::Loose => format!("  {}\n", ui.tone(Tone::Dim, "not below any root")),
                DrawnLine::Call(number) => {
                    let call = &self.tree.calls[number];
                    let drawn = drawing.call(number, call);
                    let mark = ui.tone(tone(call.mark), &drawn.mark);
                    let id = ui.tone(Tone::Strong, &drawn.id);
                    let roles = roles(call, |codes| ui.tone(Tone::Warn, codes));
                    let DrawnCall { bars, gap, tokens, .. } = drawn;
                    let line = format!("  {bars}{mark}{gap} {id} {tokens} {roles}");
                    format!("{}\n", line.trim_end())
                }
            };
        }
        text
    }

    fn table(&self, name: &impl Fn(&CallId) -> String, ui: &Ui) -> String {
        let header = ["", "mark", "call", "continues", "at", "new", "gen", "ended, rows, findings"];
        let rows = self.tree.calls.iter().map(|call| {
            vec![
                call.mark.letter().to_string(),
                call.mark.as_str().to_owned(),
                name(&call.call_id),
                match &call.parent_call_id {
                    Some(parent) => name(parent),
                    None if call.recorded => "root".to_owned(),
                    None => String::new(),
                },
                call.start.to_string(),
                call.carry.to_string(),
                call.generated.to_string(),
                roles(call, |codes| codes),
            ]
        });
        let mut text = ui.tabulated(&header, rows);
        for number in 1..self.tree.roots.len() {
            let root = name(&self.tree.roots[number].call_id);
            text += &format!("  call {root} is {}", self.root(number, name, ui));
        }
        text
    }
}

/// How a call ended, what rows have it, and what was found on it.
fn roles(call: &TreeCall, tone: impl Fn(String) -> String) -> String {
    let mut text = words::roles(call);
    if !call.findings.is_empty() {
        text += &format!(" {}", tone(format!("[{}]", codes(call))));
    }
    text.trim_start().to_owned()
}
