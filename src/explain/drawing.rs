//! A tree of calls as lines of text, the same wherever it is drawn.

use std::collections::{BTreeSet, HashMap};

use super::tree::{Tree, TreeCall};
use super::words;
use crate::id::CallId;
use crate::report::{thousands, visible};

/// One line of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawnLine {
    /// A root begins: its number.
    Root(usize),
    /// Calls without a whole chain follow.
    Loose,
    /// A call: its number in the tree.
    Call(usize),
}

/// A call in pieces, to be painted and put together with one space between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnCall {
    /// Lines that join it to what is above.
    pub bars: String,
    /// Its mark: a letter and a word.
    pub mark: String,
    /// Fills up to the ids.
    pub gap: String,
    /// Its id.
    pub id: String,
    /// Position, carry and generation.
    pub tokens: String,
    /// How it ended, and what rows have it.
    pub roles: String,
    /// Codes of findings, in brackets; empty without any.
    pub codes: String,
}

/// How a tree is drawn: calls below one another along their chains, a branch before what goes on
/// after it.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    /// Its lines.
    pub lines: Vec<DrawnLine>,
    names: Vec<String>,
    /// Calls that are the first of a branch: their parent is less deep.
    branches: BTreeSet<usize>,
    deepest: usize,
    bars: usize,
    ids: usize,
    at: usize,
    carry: usize,
    generated: usize,
}

impl Drawing {
    /// Lays a tree out. Branches deeper than `deepest` are drawn at that depth.
    pub fn new(tree: &Tree, name: impl Fn(&CallId) -> String, deepest: usize) -> Self {
        let calls = &tree.calls;
        let depths: HashMap<&CallId, u64> = calls.iter().map(|c| (&c.call_id, c.depth)).collect();
        let less = |call: &TreeCall| {
            let parent = call.parent_call_id.as_ref().and_then(|parent| depths.get(parent));
            parent.is_some_and(|parent| *parent < call.depth)
        };
        let branches = calls.iter().enumerate().filter(|(_, call)| less(call)).map(|(at, _)| at);
        let branches = branches.collect();
        let (mut lines, mut root) = (Vec::new(), None);
        for (number, call) in calls.iter().enumerate() {
            if root != Some(call.root) {
                root = Some(call.root);
                lines.push(match call.root {
                    Some(number) => DrawnLine::Root(number as usize),
                    None => DrawnLine::Loose,
                });
            }
            lines.push(DrawnLine::Call(number));
        }
        let names: Vec<String> =
            calls.iter().map(|call| visible(&name(&call.call_id)).into_owned()).collect();
        let digits = |of: fn(&TreeCall) -> u64, least: usize| {
            calls.iter().map(of).max().unwrap_or_default().to_string().len().max(least)
        };
        let depth = calls.iter().map(|call| deepest.min(call.depth as usize)).max();
        Self {
            lines,
            ids: names.iter().map(|name| name.chars().count()).max().unwrap_or(0),
            names,
            branches,
            deepest,
            bars: 2 * depth.unwrap_or(0),
            at: digits(|call| call.start, 2),
            carry: digits(|call| call.carry, 3),
            generated: digits(|call| call.generated, 3),
        }
    }

    /// What stands above the columns.
    pub fn header(&self) -> String {
        let Self { ids, at, carry, generated, .. } = *self;
        let wide = self.bars + 13;
        format!(
            "{:wide$} {:ids$} {:>at$} {:>carry$}+{:<generated$}",
            "mark", "call", "at", "new", "gen"
        )
    }

    /// A call of the tree that was laid out.
    pub fn call(&self, number: usize, call: &TreeCall) -> DrawnCall {
        let Self { ids, at, carry, generated, .. } = *self;
        let depth = self.deepest.min(call.depth as usize);
        let bars = match depth > 0 && self.branches.contains(&number) {
            true => "│ ".repeat(depth - 1) + "├─",
            false => "│ ".repeat(depth),
        };
        let tokens = match call.recorded {
            true => {
                format!("{:>at$} {:>carry$}+{:<generated$}", call.start, call.carry, call.generated)
            }
            false => " ".repeat(at + carry + generated + 2),
        };
        let codes: Vec<&str> = call.findings.iter().map(|code| code.as_str()).collect();
        DrawnCall {
            gap: " ".repeat(self.bars.saturating_sub(2 * depth)),
            bars,
            mark: format!("{} {:<11}", call.mark.letter(), call.mark.as_str()),
            id: format!("{:<ids$}", self.names.get(number).map_or("", String::as_str)),
            tokens,
            roles: words::roles(call),
            codes: if codes.is_empty() { String::new() } else { format!("[{}]", codes.join(" ")) },
        }
    }
}

/// How a root leaves what went before: its kind, and the rest in words; `None` for one that leaves
/// nothing.
pub fn leaving(
    tree: &Tree,
    root: usize,
    name: &impl Fn(&CallId) -> String,
) -> Option<(String, String)> {
    let divergence = tree.roots.get(root)?.divergence.as_ref()?;
    let (parent, at) = (name(&divergence.expected_parent), thousands(divergence.position));
    Some((divergence.kind.to_string(), format!("leaves {} at token {at}", visible(&parent))))
}
