//! `forestctl why`: what became of a rollout, a call, or a token, and by which rule.

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::looking::{self, Found, LookingArgs, TokenizerArg, What};
use super::selecting::SelectingArgs;
use super::show::{heading, tone};
use super::ui::{Format, Tone, Ui};
use crate::archive::Archive;
use crate::error::{Error, Kind, Result};
use crate::explain::words::{self, rule, short};
use crate::explain::{
    CallFate, Decode, Divergence, DivergenceKind, RolloutFate, Slot, TokenFate, Window, calls,
    rollout, token, token_of_row,
};
use crate::id::CallId;
use crate::report::visible;

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl why run.forest p04_g0
  forestctl why run.forest 948896a8
  forestctl why run.forest 948896a8:104
  forestctl why run.forest p03_g0_s1:60 --tokenizer Qwen3-0.6B/tokenizer.json
  forestctl why run.forest p03_g0 --format jsonl | jq -r '.divergence.kind // empty'

",
    exit_status!()
);

/// Say why a rollout, a call, or a token trains or does not, by evidence and rule
///
/// A token is named by its position from the root of its chain, from zero: its position in every
/// row that has it, and the one that audit-logprobs prints. Of a call whose prompt is not what
/// went before and more, the first divergent token is shown, and what was done: a template that
/// stripped thinking, arguments written anew, other tokens for the same text, a compaction, a
/// retry, a branch. What was done to text takes --tokenizer.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WhyArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// A rollout, a call, or ROLLOUT:TOKEN, ROW:TOKEN, CALL:TOKEN; ids may be cut short
    #[arg(value_name = "TARGET")]
    pub target: String,
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
struct Document {
    schema_version: u32,
    policy: String,
    /// Whether texts are told.
    tokenizer: bool,
    rollout: RolloutFate,
    /// The call that was asked about; all of them when a rollout was.
    calls: Vec<CallFate>,
    /// The token that was asked about, in each row that has the position when a rollout was.
    tokens: Vec<TokenFate>,
}

impl WhyArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let looking = self.looking.settle("why", ui)?;
        let decoder = self.tokenizer.read()?;
        let decoder: Option<&(dyn Decode + Send + Sync)> = decoder.as_deref();
        let archive = SelectingArgs::open(&self.archive)?;
        let (found, position) = target(&archive, &self.target)?;
        let policy = &looking.selecting.policy;
        let document = self.looking.one(&looking, &archive, &found, |view| {
            let mut own = view.slots().filter(|s| s.rollout.rollout_id == found.rollout_id);
            let slot =
                own.next().ok_or_else(|| Error::format("the rollout is not in its group"))?;
            let decoder = decoder.map(|decoder| decoder as &dyn Decode);
            let tokens = match position {
                None => Vec::new(),
                Some(position) => tokens(slot, &found, position, decoder)?,
            };
            let wanted = |id: &CallId| match &found.what {
                What::Call(call) => call == id,
                What::Rollout | What::Row(_) => position.is_none(),
            };
            Ok(Document {
                schema_version: 1,
                policy: policy.to_string(),
                tokenizer: decoder.is_some(),
                rollout: rollout(slot),
                calls: calls(slot, policy, decoder, wanted),
                tokens,
            })
        })??;
        match ui.format {
            Format::Human => ui.prose(&document.human(&found, ui))?,
            Format::Json => ui.json(&document)?,
            Format::Jsonl => {
                ui.jsonl_all(&document.calls)?;
                ui.jsonl_all(&document.tokens)?;
            }
            Format::Csv if position.is_some() => {
                ui.csv(&TOKEN_HEADER, document.tokens.iter().map(token_row))?;
            }
            Format::Csv => ui.csv(&CALL_HEADER, document.calls.iter().map(call_row))?,
        }
        Ok(Exit::Fine)
    }
}

/// What `text` names, with the position behind a colon.
fn target(archive: &Archive, text: &str) -> Result<(Found, Option<usize>)> {
    let parts = text.rsplit_once(':');
    if let Some((id, position)) = parts.and_then(|(id, at)| Some((id, at.parse().ok()?))) {
        match looking::anything(archive, id) {
            // An id may hold a colon itself.
            Err(error) if error.kind() == Kind::Nothing => {}
            found => return found.map(|found| (found, Some(position))),
        }
    }
    let found = looking::anything(archive, text)?;
    match found.what {
        What::Row(_) => Err(Error::usage(format!("{text} is a row; name a token of it"))
            .help(format!("{text}:0 is its first; `forestctl why` takes its rollout as a whole"))),
        _ => Ok((found, None)),
    }
}

/// The token at `position` of what was named.
fn tokens(
    slot: Slot<'_>,
    found: &Found,
    position: usize,
    decoder: Option<&dyn Decode>,
) -> Result<Vec<TokenFate>> {
    let beyond = |what: String, tokens: u64| match tokens {
        0 => Error::nothing(format!("{what} has no tokens"))
            .help("Its record, or one that it continues, was not captured whole"),
        n => Error::usage(format!("{what} has no token {position}"))
            .help(format!("Its tokens are 0 to {}", n - 1)),
    };
    if let What::Call(call) = &found.what {
        let told = token(slot, call, position, decoder);
        return told.map(|fate| vec![fate]).map_err(|n| beyond(format!("call {call}"), n));
    }
    let wanted = |segment: u32| match found.what {
        What::Row(number) => number == segment,
        _ => true,
    };
    let rows: Vec<_> = slot.own_rows().filter(|row| wanted(row.segment)).collect();
    let mut longest = 0;
    let mut told = Vec::new();
    for row in &rows {
        match token_of_row(slot, row, position, decoder) {
            Ok(fate) => told.push(fate),
            Err(tokens) => longest = longest.max(tokens),
        }
    }
    match (rows.is_empty(), told.is_empty()) {
        (true, _) => {
            let id = &found.rollout_id;
            let message = match found.what {
                What::Row(number) => format!("rollout {id} has no row s{number} of its own"),
                _ => format!("rollout {id} has no rows of its own"),
            };
            let help = format!("`forestctl why ARCHIVE {id}` tells why; its calls have tokens");
            Err(Error::nothing(message).help(help))
        }
        (false, true) => Err(beyond(format!("rollout {}", found.rollout_id), longest)),
        (false, false) => Ok(told),
    }
}

impl Document {
    fn human(&self, found: &Found, ui: &Ui) -> String {
        let mut text = heading(&self.rollout, &self.policy, true, ui);
        if found.what == What::Rollout && self.tokens.is_empty() {
            let shorten = short(self.calls.iter().map(|fate| &fate.call.call_id));
            let name = |id: &CallId| if ui.terminal { shorten(id) } else { id.to_string() };
            text.push('\n');
            for call in &self.calls {
                text += &brief(call, &name, ui);
            }
        } else {
            for call in &self.calls {
                text += &format!("\n{}", self.call(call, ui));
            }
        }
        for token in &self.tokens {
            text += &format!("\n{}", told_token(token, ui));
        }
        text
    }

    fn call(&self, fate: &CallFate, ui: &Ui) -> String {
        let mut text = format!("{}\n", first_line(fate, &CallId::to_string, ui));
        if let Some(origin) = &fate.origin {
            text += &format!("  read from {}\n", visible(origin));
        }
        match &fate.call.parent_call_id {
            Some(parent) => text += &format!("  continues call {}\n", visible(parent.as_str())),
            None if fate.call.recorded => text += "  a root\n",
            None => {}
        }
        for place in &fate.places {
            text += &format!("  {}\n", words::place(place, self.rollout.masked.is_empty()));
        }
        if fate.places.is_empty() {
            text += "  in no row\n";
        }
        if let Some(divergence) = &fate.divergence {
            text += &told_divergence(divergence, self.tokenizer, ui);
        }
        text
    }
}

/// A call with the evidence for it.
fn first_line(fate: &CallFate, name: &impl Fn(&CallId) -> String, ui: &Ui) -> String {
    let mark = fate.call.mark;
    let label = format!("{} {}", mark.letter(), mark.as_str());
    format!(
        "{} call {}: {}{}",
        ui.tone(tone(mark), label),
        ui.tone(Tone::Strong, visible(&name(&fate.call.call_id))),
        visible(&fate.evidence),
        rule(fate.rule),
    )
}

/// A call of a rollout in one line, two when it leaves what went before.
fn brief(fate: &CallFate, name: &impl Fn(&CallId) -> String, ui: &Ui) -> String {
    let mut text = format!("  {}\n", first_line(fate, name, ui));
    if let Some(divergence) = &fate.divergence {
        text += &format!("    {}\n", leaves(divergence, name, ui));
    }
    text
}

fn leaves(divergence: &Divergence, name: &impl Fn(&CallId) -> String, ui: &Ui) -> String {
    format!("{}: {}", ui.tone(Tone::Strong, divergence.kind), words::leaves(divergence, name))
}

fn told_divergence(divergence: &Divergence, tokenizer: bool, ui: &Ui) -> String {
    let mut text = format!("  {}\n", leaves(divergence, &CallId::to_string, ui));
    text += &format!("    {}\n", divergence.kind.meaning());
    for (name, window) in [("there", &divergence.theirs), ("here", &divergence.ours)] {
        let text_of = told_text(window, ui);
        // Equal texts leave nothing to see but the ids.
        if let Some(told) = &text_of {
            text += &format!("    {name:<5} {told}\n");
        }
        if text_of.is_none() || divergence.kind == DivergenceKind::Retokenisation {
            text += &format!("    {name:<5} {}\n", told_ids(window, divergence.position, ui));
        }
    }
    if !tokenizer {
        text += "    --tokenizer tokenizer.json shows the text\n";
    }
    text
}

/// Text around a position, with a bar before the first divergent token.
fn told_text(window: &Window, ui: &Ui) -> Option<String> {
    let (before, after) = (window.before.as_ref()?, window.after.as_ref()?);
    Some(format!("{}{}{}", visible(before), ui.tone(Tone::Bad, "|"), visible(after)))
}

/// The same, in ids.
fn told_ids(window: &Window, position: u64, ui: &Ui) -> String {
    let (before, after) = window.ids.split_at((position - window.start) as usize);
    let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    format!("{} {} {}", list(before), ui.tone(Tone::Bad, "|"), list(after))
}

fn told_token(token: &TokenFate, ui: &Ui) -> String {
    let verdict = match token.loss_in {
        Some(_) => ui.tone(Tone::Good, "loss"),
        None => ui.tone(Tone::Warn, "no loss"),
    };
    let place = token.row_id.as_ref().map(|row| format!(" of row {}", visible(row)));
    let shown = token.text.as_ref().map(|text| format!(" \"{}\"", visible(text)));
    let logprob = token.logprob.map(|x| format!(", log-probability {x}")).unwrap_or_default();
    format!(
        "token {}{}: id {}{}\n  {verdict}: {}{}\n  token {} of the {} of call {}{logprob}\n",
        ui.tone(Tone::Strong, token.position),
        place.unwrap_or_default(),
        token.token_id,
        shown.unwrap_or_default(),
        visible(&token.because),
        rule(token.rule),
        token.offset,
        token.part.as_str(),
        visible(token.call_id.as_str()),
    )
}

const CALL_HEADER: [&str; 11] = [
    "call_id",
    "mark",
    "selected",
    "evidence",
    "rule",
    "owned_in",
    "context_in",
    "divergence",
    "position",
    "expected_parent",
    "origin",
];

fn text<T: ToString>(x: Option<T>) -> String {
    x.map(|x| x.to_string()).unwrap_or_default()
}

fn call_row(fate: &CallFate) -> Vec<String> {
    let divergence = fate.divergence.as_ref();
    vec![
        fate.call.call_id.to_string(),
        fate.call.mark.as_str().to_owned(),
        fate.call.selected.to_string(),
        fate.evidence.clone(),
        text(fate.rule),
        text(fate.call.owned_in.as_ref()),
        fate.call.context_in.join(" "),
        text(divergence.map(|divergence| divergence.kind)),
        text(divergence.map(|divergence| divergence.position)),
        text(divergence.map(|divergence| &divergence.expected_parent)),
        text(fate.origin.as_ref()),
    ]
}

const TOKEN_HEADER: [&str; 11] = [
    "row_id", "position", "token_id", "text", "call_id", "part", "offset", "logprob", "loss_in",
    "because", "rule",
];

fn token_row(token: &TokenFate) -> Vec<String> {
    vec![
        text(token.row_id.as_ref()),
        token.position.to_string(),
        token.token_id.to_string(),
        text(token.text.as_ref()),
        token.call_id.to_string(),
        token.part.as_str().to_owned(),
        token.offset.to_string(),
        text(token.logprob),
        text(token.loss_in.as_ref()),
        token.because.clone(),
        text(token.rule),
    ]
}
