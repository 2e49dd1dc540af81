//! How long the context of each call was, and where it was cut.

use std::collections::{HashMap, HashSet};

use maud::html;

use super::svg::{Picture, block, cut, legend, line, short, text, text_at, text_to, wide};
use crate::explain::{DivergenceKind, Mark, Portrait, RootLine, TreeCall};
use crate::id::CallId;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 748.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 210.0;
/// Calls that are drawn at most.
const MOST: usize = 300;

const LEGEND: [(&str, &str); 3] = [
    ("carry", "prompt of the call"),
    ("loss", "its generation, accepted"),
    ("off", "its generation, not accepted"),
];

/// The calls of a rollout in the order of capture, each as tall as its context; a dashed line where
/// a call begins with a new root.
pub fn compaction(portrait: &Portrait) -> Picture {
    let calls: HashMap<&CallId, &TreeCall> =
        portrait.tree.calls.iter().map(|call| (&call.call_id, call)).collect();
    let roots: HashMap<&CallId, &RootLine> =
        portrait.tree.roots.iter().map(|root| (&root.call_id, root)).collect();
    // Of several records of one call, the first is told.
    let mut seen = HashSet::new();
    let all: Vec<&TreeCall> = portrait
        .captured
        .iter()
        .filter(|id| seen.insert(*id))
        .filter_map(|id| calls.get(id).copied())
        // Lengths of a broken chain are claims.
        .filter(|call| call.root.is_some())
        .collect();
    let drawn = &all[..all.len().min(MOST)];
    let end = |call: &TreeCall| prompt(call).saturating_add(call.generated);
    let most = drawn.iter().map(|call| end(call)).max().unwrap_or(0).max(1);
    let step = (RIGHT - LEFT) / drawn.len().max(1) as f64;
    let width = (step * 0.8).min(40.0);
    let up = |tokens: u64| (BOTTOM - TOP) * tokens as f64 / most as f64;
    let every = (drawn.len() as f64 * 30.0 / (RIGHT - LEFT)).ceil().max(1.0) as usize;
    let mut free = 0.0;
    let mut bar = |at: usize, call: &TreeCall| {
        let x = LEFT + step * (at as f64 + 0.5) - width / 2.0;
        let (given, whole) = (up(prompt(call)), up(end(call)));
        let class = if call.mark == Mark::Accepted { "loss" } else { "off" };
        let tells = format!(
            "call {}: {}, prompt of {} tokens, {} generated",
            cut(call.call_id.as_str(), 80),
            call.mark.as_str(),
            prompt(call),
            call.generated
        );
        let leaves = roots.get(&call.call_id).and_then(|root| root.divergence.as_ref());
        // A word that would run into the one before it, or out of the picture, is left out.
        let begin = LEFT + step * at as f64;
        let end = begin + 4.0 + leaves.map_or(0.0, |leaves| wide(leaves.kind.as_str()));
        let named = leaves.is_some() && begin >= free && end <= WIDTH;
        if named {
            free = end;
        }
        html! {
            @if let Some(leaves) = leaves {
                @let x = LEFT + step * at as f64;
                (line("cut", (x, TOP - 3.0), (x, BOTTOM)))
                @if named { (text(x + 4.0, TOP - 8.0, "bad small", leaves.kind.as_str())) }
            }
            (block(x, BOTTOM - given, width, given, "carry", &tells))
            (block(x, BOTTOM - whole, width, whole - given, class, &tells))
            @if at.is_multiple_of(every) {
                @let number = format!("{}{}", at + 1, call.mark.letter());
                (text_at(x + width / 2.0, BOTTOM + 15.0, "note small", number))
            }
        }
    };
    let (shapes, height) = legend(LEFT, BOTTOM + 44.0, RIGHT - LEFT, &LEGEND);
    let left_out = all.len() - drawn.len();
    let body = html! {
        (text(12.0, 24.0, "head", "context of each call, in tokens"))
        @for share in [0.0, 0.5, 1.0] {
            @let y = BOTTOM - (BOTTOM - TOP) * share;
            (line("grid", (LEFT, y), (RIGHT, y)))
            (text_to(LEFT - 6.0, y + 4.0, "note small", short((most as f64 * share).round())))
        }
        @for (at, call) in drawn.iter().enumerate() { (bar(at, call)) }
        (line("line", (LEFT, BOTTOM), (RIGHT, BOTTOM)))
        (text(LEFT, BOTTOM + 32.0, "note small", match left_out {
            0 => "calls in the order of capture".to_owned(),
            n => format!("calls in the order of capture; {n} more are not drawn"),
        }))
        (shapes)
    };
    let cuts = portrait.tree.roots.iter().filter_map(|root| root.divergence.as_ref());
    let cuts = cuts.filter(|leaves| leaves.kind == DivergenceKind::Compaction).map(|leaves| {
        format!("{} tokens before, {} after", leaves.theirs.tokens, leaves.ours.tokens)
    });
    let cuts: Vec<String> = cuts.take(MOST).collect();
    let words = match cuts.len() {
        0 => format!("{} calls; the longest context has {most} tokens; no compaction.", all.len()),
        n => format!(
            "{} calls; the longest context has {most} tokens; {n} compactions: {}.",
            all.len(),
            cuts.join("; ")
        ),
    };
    let title = format!(
        "Context of each call of rollout {}",
        cut(portrait.fate.line.rollout_id.as_str(), 80)
    );
    Picture { width: WIDTH, height: BOTTOM + 48.0 + height, title, words, body }
}

/// Tokens that a call was given.
fn prompt(call: &TreeCall) -> u64 {
    call.start.saturating_add(call.carry)
}
