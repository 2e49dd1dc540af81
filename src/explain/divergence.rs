//! Where the prompt of a call leaves the conversation that it seems to continue, and why.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::chains::{Chains, Part, common};
use super::text;
use crate::id::CallId;

/// Turns token ids into text, special tokens included.
pub trait Decode {
    /// The text of `ids`; `None` when the tokenizer does not know them.
    fn decode(&self, ids: &[u32]) -> Option<String>;
}

/// Why a prompt is not what went before and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DivergenceKind {
    /// The very prompt of the earlier call again.
    Retry,
    /// The same prefix, and then something else than the earlier call went on with.
    Branch,
    /// The chat template left out thinking or whitespace of an earlier turn.
    TemplateStrip,
    /// The JSON arguments of a tool call were written anew: the same value in other text.
    ToolArguments,
    /// The same text in other token ids.
    Retokenisation,
    /// A root with a shorter prompt than the conversation so far: its context was rewritten, or it
    /// is another agent's.
    Compaction,
    /// A root that is not shorter: another agent's, or one whose context was rewritten.
    NewContext,
    /// A root that holds all tokens of the earlier call, and names no parent.
    Unlinked,
    /// The text decides, and no tokenizer is there to tell it.
    Undetermined,
}

impl DivergenceKind {
    /// The word of every format.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Branch => "branch",
            Self::TemplateStrip => "template_strip",
            Self::ToolArguments => "tool_arguments",
            Self::Retokenisation => "retokenisation",
            Self::Compaction => "compaction",
            Self::NewContext => "new_context",
            Self::Unlinked => "unlinked",
            Self::Undetermined => "undetermined",
        }
    }

    /// What it means, in a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Retry => "the same prompt was sent again",
            Self::Branch => "the same prefix goes on with something else",
            Self::TemplateStrip => {
                "the chat template left out thinking or whitespace of an earlier turn"
            }
            Self::ToolArguments => "the arguments of a tool call were written anew as other text",
            Self::Retokenisation => "the same text was tokenised to other ids",
            Self::Compaction => {
                "a new root, shorter than what came before: a rewritten context or another agent"
            }
            Self::NewContext => "a new root with other text: another agent or a rewritten context",
            Self::Unlinked => "it holds all tokens of the earlier call and names no parent",
            Self::Undetermined => {
                "template strip, tool arguments, retokenisation or other text: --tokenizer tells"
            }
        }
    }
}

impl fmt::Display for DivergenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Tokens around a position of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Window {
    /// Tokens of the whole side: a prompt, or the chain of the earlier call.
    pub tokens: u64,
    /// Position of the first token shown, from the root.
    pub start: u64,
    /// The ids shown.
    pub ids: Vec<u32>,
    /// Text before the first divergent token; null without a tokenizer.
    pub before: Option<String>,
    /// Text from the first divergent token on; null without a tokenizer.
    pub after: Option<String>,
}

/// How a prompt leaves an earlier call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Divergence {
    /// The earlier call that shares the longest prefix, the latest of several: what a reader would
    /// expect to be continued.
    pub expected_parent: CallId,
    /// Why it is not.
    pub kind: DivergenceKind,
    /// Position of the first divergent token, from the root; of a retry, that of the generations.
    pub position: u64,
    /// Call whose carry or generation the earlier side has there; null past its end.
    pub in_call: Option<CallId>,
    /// Which part of it.
    pub in_part: Option<Part>,
    /// This call's side.
    pub ours: Window,
    /// The earlier call's side.
    pub theirs: Window,
}

/// Tokens shown before and after the first divergent one.
const BEFORE: usize = 8;
const AFTER: usize = 16;

/// How call `number` leaves what went before; `None` for one that simply goes on, for the first
/// root, and where chains are not whole.
///
/// Text decides first, in the stretch (one carry or generation) of the earlier call that holds the
/// first divergent token; where texts differ, or none can be told, the links do.
pub fn divergence(
    chains: &Chains<'_>,
    number: usize,
    decoder: Option<&dyn Decode>,
) -> Option<Divergence> {
    let path: BTreeSet<usize> = chains.path(number)?.into_iter().collect();
    let own = chains.tokens(number)?;
    let call = chains.call(number);
    let is_root = call.parent_call_id.is_none();
    let (linked, prompt) = (call.prev_len as usize, own.get(..chains.prompt_len(number))?);
    let shared = chains.shared(prompt);
    let end = |other: usize| chains.call(other).cum_len as usize;
    let candidates: Vec<(usize, usize)> = (0..number)
        .filter(|other| !path.contains(other))
        .filter_map(|other| Some((shared[other]?, other)))
        // A twin of the parent is no other way on.
        .filter(|&(shared, other)| is_root || shared >= linked && end(other) > linked)
        .collect();
    let again = candidates
        .iter()
        .rev()
        .find(|&&(shared, other)| shared == prompt.len() && chains.prompt_len(other) == shared);
    let &(mut position, other) = again.or_else(|| candidates.iter().max())?;
    let theirs = chains.tokens(other)?;
    let (kind, ours) = match again {
        Some(_) => {
            position = common(&own, &theirs);
            (DivergenceKind::Retry, &own[..])
        }
        None => {
            let kind = kind(chains, (other, &theirs), (prompt, is_root), position, decoder);
            (kind, prompt)
        }
    };
    let stretch = chains.stretch(other, position);
    Some(Divergence {
        expected_parent: chains.call(other).call_id.clone(),
        kind,
        position: position as u64,
        in_call: stretch.map(|stretch| chains.call(stretch.call).call_id.clone()),
        in_part: stretch.map(|stretch| stretch.part),
        ours: window(ours, position, decoder),
        theirs: window(&theirs, position, decoder),
    })
}

fn kind(
    chains: &Chains<'_>,
    (other, theirs): (usize, &[u32]),
    (prompt, is_root): (&[u32], bool),
    position: usize,
    decoder: Option<&dyn Decode>,
) -> DivergenceKind {
    if position == prompt.len() {
        return DivergenceKind::Branch;
    }
    let Some(stretch) = chains.stretch(other, position) else {
        return match is_root {
            true => DivergenceKind::Unlinked,
            false => DivergenceKind::Branch,
        };
    };
    let decode = |ids: &[u32]| decoder.and_then(|decoder| decoder.decode(ids));
    let texts = decode(&prompt[stretch.start..]).zip(decode(&theirs[stretch.start..stretch.end]));
    let by_text = texts.as_ref().and_then(|(ours, theirs)| text::kind(ours, theirs));
    match (by_text, is_root) {
        (Some(kind), _) => kind,
        (None, _) if texts.is_none() && stretch.part == Part::Generation => {
            DivergenceKind::Undetermined
        }
        (None, false) => DivergenceKind::Branch,
        (None, true) if prompt.len() < theirs.len() => DivergenceKind::Compaction,
        (None, true) => DivergenceKind::NewContext,
    }
}

fn window(ids: &[u32], position: usize, decoder: Option<&dyn Decode>) -> Window {
    let start = position.saturating_sub(BEFORE);
    let end = ids.len().min(position + AFTER);
    let text = |ids: &[u32]| decoder.and_then(|decoder| decoder.decode(ids));
    Window {
        tokens: ids.len() as u64,
        start: start as u64,
        ids: ids[start..end].to_vec(),
        before: text(&ids[start..position]),
        after: text(&ids[position..end]),
    }
}
