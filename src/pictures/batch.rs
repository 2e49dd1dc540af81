//! Batch size: logical rollouts, their physical rows, and what fills the batch up.

use maud::{Markup, html};

use super::svg::{self, Picture, block, cut, legend, line, short, text, text_at};
use crate::config::BatchSettings;
use crate::explain::GroupLine;
use crate::report::thousands;
use crate::rows::Packed;

/// How a batch is spread over ranks.
#[derive(Clone, Debug)]
pub struct BatchFacts {
    /// Ranks and microbatches.
    pub settings: BatchSettings,
    /// The number that divides the rows of every group.
    pub row_multiple: u32,
    /// The bins, with packing.
    pub bins: Option<Bins>,
}

/// Rows in bins.
#[derive(Clone, Debug)]
pub struct Bins {
    /// Tokens that a bin holds at most.
    pub capacity: u64,
    /// Bins that the tokens need at least, over those that there are.
    pub efficiency: f64,
    /// Tokens of each bin; bin `k` belongs to rank `k` modulo the ranks.
    pub tokens: Vec<u64>,
}

impl Bins {
    /// The bins of rows of these lengths.
    pub fn of(packed: &Packed, lengths: &[u64]) -> Self {
        let tokens =
            |bin: &Vec<u32>| bin.iter().filter_map(|&row| lengths.get(row as usize)).sum::<u64>();
        Self {
            capacity: packed.settings.bin_tokens,
            efficiency: packed.efficiency,
            tokens: packed.bins.iter().map(tokens).collect(),
        }
    }
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 148.0;
const CELL: f64 = 20.0;
/// Prompt groups and rows of each that are drawn at most, and ranks.
const MOST_GROUPS: usize = 6;
const MOST_ROWS: usize = 120;
const MOST_RANKS: usize = 16;

const LEGEND: [(&str, &str); 3] = [
    ("context", "physical row that trains"),
    ("off", "row without loss: its rollout is masked"),
    ("padding", "execution padding"),
];

/// The first kept groups, row by row, and below them the ranks.
pub fn batch(groups: &[GroupLine], facts: &BatchFacts) -> Picture {
    let kept: Vec<&GroupLine> = groups.iter().filter(|group| group.dropped.is_none()).collect();
    let kept: Vec<&GroupLine> = kept.into_iter().filter(|group| group.rows() > 0).collect();
    let columns = match facts.row_multiple as usize {
        n @ 4..=16 => n,
        n @ 2..=3 => n * (12 / n),
        _ => 12,
    };
    let wide = ((WIDTH - LEFT - 12.0) / columns as f64).min(54.0);
    let mut y = 60.0;
    let mut drawn = Vec::new();
    for group in kept.iter().take(MOST_GROUPS) {
        let (shapes, height) = cells(group, y, columns, wide);
        drawn.push(shapes);
        y += height + 12.0;
    }
    let left_out = kept.len().saturating_sub(MOST_GROUPS);
    let sum = |of: fn(&GroupLine) -> u64| kept.iter().map(|group| of(group)).sum::<u64>();
    let (rows, padding) = (sum(GroupLine::rows), sum(|group| group.padding));
    let rollouts = sum(|group| group.slots.len() as u64);
    let ranks = facts.settings.data_parallel.get();
    let head = format!(
        "{} rollouts, {} rows, {} of padding: {} rows over {ranks} {}",
        thousands(rollouts),
        thousands(rows - padding),
        thousands(padding),
        thousands(rows),
        if ranks == 1 { "rank" } else { "ranks" }
    );
    let note = match facts.settings.sequence_packing {
        _ if facts.row_multiple == 1 => {
            "one rank, microbatches of one row: nothing to fill up".to_owned()
        }
        true => format!(
            "packed: every group has a multiple of {} rows, one per rank",
            facts.row_multiple
        ),
        false => format!(
            "every group has a multiple of {} rows: {ranks} ranks, microbatches of {} (training) and \
             {} (log-probabilities)",
            facts.row_multiple,
            facts.settings.train_micro_batch,
            facts.settings.logprob_micro_batch
        ),
    };
    let more = match left_out {
        0 => String::new(),
        n => format!("and {} more groups", thousands(n as u64)),
    };
    let (of_ranks, tall) = ranks_of(facts, rows, y + if left_out > 0 { 24.0 } else { 8.0 });
    let (shapes, height) = legend(12.0, y + tall + 32.0, WIDTH - 24.0, &LEGEND);
    let body = html! {
        (text(12.0, 24.0, "head", &head))
        (text(12.0, 42.0, "note", &note))
        @for group in &drawn { (group) }
        @if left_out > 0 { (text(LEFT, y + 8.0, "note", more)) }
        (of_ranks)
        (shapes)
    };
    let title = "Batch size: logical rollouts, physical rows, ranks".to_owned();
    let words = format!("{head}; {note}.");
    Picture { width: WIDTH, height: y + tall + 36.0 + height, title, words, body }
}

/// The rows of one group, a line for each multiple.
fn cells(group: &GroupLine, top: f64, columns: usize, wide: f64) -> (Markup, f64) {
    let rows = group.slots.iter().flat_map(|slot| {
        (0..slot.rows).map(move |segment| {
            let class = if slot.trains { "context" } else { "off" };
            (class, format!("r{}\u{b7}s{segment}", slot.slot))
        })
    });
    let padding = (0..group.padding).map(|at| ("padding", format!("pad{at}")));
    let all: Vec<(&str, String)> = rows.chain(padding).take(MOST_ROWS).collect();
    let place = |at: usize| {
        let (line, column) = (at / columns, at % columns);
        (LEFT + wide * column as f64, top + (CELL + 4.0) * line as f64)
    };
    let lines = all.len().div_ceil(columns).max(1);
    let left_out = group.rows() as usize - all.len();
    let shapes = html! {
        (text(12.0, top + 14.0, "strong", cut(group.group_id.as_str(), 9)))
        @for (at, (class, name)) in all.iter().enumerate() {
            @let (x, y) = place(at);
            @let tells = format!("group {}: {name}", group.group_id);
            (block(x, y, wide - 4.0, CELL, class, &tells))
            @if *class == "context" && wide >= 44.0 {
                (text_at(x + wide / 2.0 - 2.0, y + 14.0, "small", name))
            }
        }
        @if left_out > 0 {
            (text(LEFT, top + (CELL + 4.0) * lines as f64 + 10.0, "note small",
                format!("and {left_out} more rows")))
        }
    };
    (shapes, (CELL + 4.0) * lines as f64 + if left_out > 0 { 14.0 } else { 0.0 })
}

/// What each rank computes.
fn ranks_of(facts: &BatchFacts, rows: u64, top: f64) -> (Markup, f64) {
    let ranks = facts.settings.data_parallel.get() as usize;
    let drawn = ranks.min(MOST_RANKS);
    let wide = ((WIDTH - LEFT - 12.0) / drawn as f64).min(160.0);
    let more = if ranks > drawn { format!("and {} more", ranks - drawn) } else { String::new() };
    let each: Vec<[String; 2]> = match &facts.bins {
        None => vec![[thousands(rows / ranks as u64), "rows".to_owned()]; drawn],
        Some(bins) => {
            let of = |rank: usize| bins.tokens.iter().skip(rank).step_by(ranks);
            let told = |rank| {
                let (count, tokens) = (of(rank).count() as u64, of(rank).sum::<u64>());
                [format!("{} bins", thousands(count)), format!("{} tokens", short(tokens as f64))]
            };
            (0..drawn).map(told).collect()
        }
    };
    let shapes = html! {
        (line("grid", (12.0, top + 2.0), (WIDTH - 12.0, top + 2.0)))
        (text(12.0, top + 28.0, "strong", "ranks"))
        @for (rank, told) in each.iter().enumerate() {
            @let x = LEFT + wide * rank as f64;
            rect.grid x=(svg::px(x)) y=(svg::px(top + 12.0))
                width=(svg::px(wide - 6.0)) height="52" rx="4" {}
            @let middle = x + wide / 2.0 - 3.0;
            @let name = if wide > 60.0 { format!("rank {rank}") } else { rank.to_string() };
            (text_at(middle, top + 27.0, "strong small", name))
            @for (line, word) in told.iter().enumerate().filter(|(_, word)| wide > svg::wide(word)) {
                (text_at(middle, top + 41.0 + 13.0 * line as f64, "note small", word))
            }
        }
        @if !more.is_empty() { (text(12.0, top + 42.0, "note small", more)) }
        @if let Some(bins) = &facts.bins {
            (text(LEFT, top + 80.0, "note small", format!(
                "{} bins of at most {} tokens; the fewest that could hold the rows are {}% of that",
                thousands(bins.tokens.len() as u64),
                thousands(bins.capacity),
                svg::number((bins.efficiency * 1000.0).round() / 10.0)
            )))
        }
    };
    (shapes, if facts.bins.is_some() { 94.0 } else { 76.0 })
}
