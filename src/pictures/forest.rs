//! Calls to rows: the calls of one rollout along their chains, and the rows that they become.

use std::collections::{BTreeSet, HashMap, HashSet};

use maud::{Markup, html};

use super::svg::{Picture, block, cut, legend, line, text, wide};
use crate::explain::{Decode, Mark, Portrait, RowLine, Slot, TreeCall, Verdict, segment};
use crate::id::CallId;
use crate::report::thousands;

/// Calls and rows that are drawn at most; a picture of more shows nothing.
const MOST_CALLS: usize = 300;
const MOST_ROWS: usize = 60;
/// Calls along all drawn rows, at most, unless the first row has more.
const MOST_ALONG_ROWS: u64 = 600;
/// Letters of an id that are shown at most, and ids that are told beside one another.
const NAME: usize = 80;
const TOLD: usize = 8;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 76.0;
/// A stretch of tokens is drawn at least so wide.
const STRETCH: f64 = 9.0;
const LANE: f64 = 42.0;
const BAR: f64 = 18.0;

/// The picture of a rollout as a file of its own.
pub fn rollout_svg(slot: Slot<'_>, decoder: Option<&dyn Decode>) -> String {
    forest(&Portrait::of(slot, decoder)).standalone()
}

/// The picture of a rollout: above its calls as captured, below its rows. A position along the rows
/// is the same position along the chains.
pub fn forest(portrait: &Portrait) -> Picture {
    let drawing = Drawing::of(portrait);
    let line = &portrait.fate.line;
    let number = |x: Option<f64>| x.map_or("none".to_owned(), super::svg::number);
    let trains = line.verdict == Verdict::Valid;
    let advantage = match trains {
        true => format!(", advantage {}", number(line.advantage)),
        false => String::new(),
    };
    let head = format!("{}, reward {}{advantage}", line.verdict.as_str(), number(line.reward));
    let (calls, rows) = (drawing.calls(), drawing.rows(trains));
    let top = calls.1 + 44.0;
    let note = drawing.cut_off(portrait);
    let below = top + rows.1 + if note.is_empty() { 12.0 } else { 32.0 };
    let (shapes, height) = legend(12.0, below, drawing.width - 24.0, &LEGEND);
    let body = html! {
        (text(12.0, 24.0, "head", cut(line.rollout_id.as_str(), 48)))
        (text(12.0, 42.0, "note", head))
        (calls.0)
        g transform=(format!("translate(0 {})", super::svg::px(top))) { (rows.0) }
        @if !note.is_empty() { (text(12.0, below - 10.0, "note", note)) }
        (shapes)
    };
    Picture {
        width: drawing.width,
        height: below + height + 4.0,
        title: format!("Calls and rows of rollout {}", cut(line.rollout_id.as_str(), NAME)),
        words: words(portrait),
        body,
    }
}

const LEGEND: [(&str, &str); 7] = [
    ("loss", "generated, with loss"),
    ("context", "generated, without loss"),
    ("carry", "carry: never trains"),
    ("off", "- rejected"),
    ("failed", "! failed"),
    ("pending", "? pending"),
    ("uncommitted", "~ uncommitted"),
];

fn words(portrait: &Portrait) -> String {
    let line = &portrait.fate.line;
    let marks = [Mark::Accepted, Mark::Rejected, Mark::Failed, Mark::Pending, Mark::Uncommitted];
    let marks = marks.map(|mark| {
        let count = portrait.tree.calls.iter().filter(|call| call.mark == mark).count();
        format!("{count} {}", mark.as_str())
    });
    let rows = portrait.tree.rows.iter().map(|row| {
        let id = cut(&row.row_id, NAME);
        format!("row {id}: {} tokens, {} with loss", row.tokens, row.loss_tokens)
    });
    let roots = portrait.tree.roots.len();
    let rows: Vec<String> = rows.take(MOST_ROWS).collect();
    format!(
        "Rollout {} is {}: {} calls below {roots} roots ({}); {}.",
        cut(line.rollout_id.as_str(), NAME),
        line.verdict.as_str(),
        portrait.tree.calls.len(),
        marks.join(", "),
        rows.join("; ")
    )
}

/// A call that is drawn.
struct Placed<'a> {
    call: &'a TreeCall,
    lane: usize,
    /// Place in the order of capture, from one; none without a record.
    number: Option<usize>,
}

/// A chain of calls that stand beside one another.
struct Lane {
    /// Number of its root, where it begins with one.
    root: Option<usize>,
    note: String,
}

struct Drawing<'a> {
    placed: Vec<Placed<'a>>,
    of: HashMap<&'a CallId, usize>,
    lanes: Vec<Lane>,
    /// Ends of stretches, and where each stands.
    ends: Vec<(u64, f64)>,
    rows: Vec<&'a RowLine>,
    /// Rows with loss.
    training: HashSet<&'a str>,
    width: f64,
}

impl<'a> Drawing<'a> {
    fn of(portrait: &'a Portrait) -> Self {
        let tree = &portrait.tree;
        let numbers: HashMap<&CallId, usize> =
            portrait.captured.iter().enumerate().map(|(at, id)| (id, at + 1)).collect();
        let (mut placed, mut lanes) = (Vec::<Placed>::new(), Vec::new());
        let mut of = HashMap::new();
        for call in tree.calls.iter().take(MOST_CALLS) {
            let parent = call.parent_call_id.as_ref().and_then(|id| of.get(id));
            let parent = parent.map(|&at: &usize| &placed[at]).filter(|_| call.root.is_some());
            let lane = match parent {
                Some(parent) if parent.call.depth == call.depth => parent.lane,
                _ => {
                    let begins = call.root.is_some() && call.parent_call_id.is_none();
                    let root = call.root.filter(|_| begins).map(|root| root as usize);
                    lanes.push(Lane {
                        root,
                        note: root.map_or(String::new(), |r| left(portrait, r)),
                    });
                    lanes.len() - 1
                }
            };
            of.insert(&call.call_id, placed.len());
            placed.push(Placed { call, lane, number: numbers.get(&call.call_id).copied() });
        }
        let mut ends = BTreeSet::from([0]);
        for Placed { call, .. } in placed.iter().filter(|placed| placed.call.recorded) {
            ends.extend(stretches(call));
        }
        // Room for what stands behind a row.
        let behind = tree.rows.iter().map(|row| 20.0 + wide(&lengths(row))).fold(150.0, f64::max);
        let (ends, right) = stretched(ends.into_iter().collect(), WIDTH - LEFT - behind);
        let mut along = 0;
        let few = |row: &&RowLine| {
            along += row.calls;
            along == row.calls || along <= MOST_ALONG_ROWS
        };
        let rows = tree.rows.iter().take(MOST_ROWS).take_while(few).collect();
        let training = tree.rows.iter().filter(|row| row.loss_tokens > 0);
        let training = training.map(|row| row.row_id.as_str()).collect();
        Self { placed, of, lanes, ends, rows, training, width: right + behind }
    }

    /// Where a token stands.
    fn x(&self, position: u64) -> f64 {
        let at = self.ends.partition_point(|(end, _)| *end < position);
        self.ends.get(at).or(self.ends.last()).map_or(LEFT, |(_, x)| *x)
    }

    /// The calls, and where they end.
    fn calls(&self) -> (Markup, f64) {
        let mut y = 58.0;
        let tops: Vec<f64> = self
            .lanes
            .iter()
            .map(|lane| {
                y += if lane.note.is_empty() { 0.0 } else { 16.0 };
                let top = y;
                y += LANE;
                top
            })
            .collect();
        let shapes = html! {
            @for placed in &self.placed {
                (self.fork(placed, &tops))
            }
            @for (lane, top) in self.lanes.iter().zip(&tops) {
                @if let Some(root) = lane.root {
                    (text(12.0, top + 30.0, "strong", format!("root {}", root + 1)))
                }
                @if !lane.note.is_empty() { (text(LEFT, top - 5.0, "bad small", &lane.note)) }
            }
            @for placed in &self.placed { (self.call(placed, tops[placed.lane] + 17.0)) }
            @for (x, lane, name) in self.names() {
                (text(x, tops[lane] + 12.0, "note small", name))
            }
        };
        (shapes, y)
    }

    /// The line from the end of a parent down to a branch.
    fn fork(&self, placed: &Placed<'_>, tops: &[f64]) -> Markup {
        let parent = placed.call.parent_call_id.as_ref().and_then(|id| self.of.get(id));
        let parent = parent.map(|&at| &self.placed[at]).filter(|p| p.lane != placed.lane);
        let Some(parent) = parent else { return html! {} };
        let x = self.x(stretches(placed.call)[0]);
        let (from, to) = (tops[parent.lane] + 17.0 + BAR, tops[placed.lane] + 17.0 + BAR);
        line("line", (x, from), (x, to))
    }

    fn call(&self, placed: &Placed<'_>, y: f64) -> Markup {
        let call = placed.call;
        if !call.recorded {
            return block(LEFT, y, 40.0, BAR, class(call, false), &tells(call));
        }
        let [x, gen_x, end_x] = stretches(call).map(|position| self.x(position));
        html! {
            @if gen_x > x { (block(x, y, gen_x - x - 1.0, BAR, "carry", &tells(call))) }
            @if end_x > gen_x {
                @let trains = self.trains(call);
                (block(gen_x, y, end_x - gen_x - 1.0, BAR, class(call, trains), &tells(call)))
                @if call.selected {
                    (count(gen_x, end_x, y, if trains { "on" } else { "small" }, call.generated))
                }
            }
        }
    }

    /// Names of calls: where each begins, its lane, and the name. One that would run into the name
    /// before it is left out.
    fn names(&self) -> Vec<(f64, usize, String)> {
        let mut free = vec![0.0; self.lanes.len()];
        let name = |placed: &Placed<'_>| {
            let Placed { call, number, lane } = placed;
            let scored = if call.scored { " scored" } else { "" };
            let name = match number {
                Some(number) => format!("{number}{}{scored}", call.mark.letter()),
                None => format!("{} no record", call.mark.letter()),
            };
            // Beside the line that comes down to a branch.
            let beside =
                if call.parent_call_id.is_some() && free[*lane] == 0.0 { 4.0 } else { 0.0 };
            let x = if call.recorded { self.x(stretches(call)[0]) + beside } else { LEFT };
            let fits = x >= free[*lane];
            if fits {
                free[*lane] = x + wide(&name) + 4.0;
            }
            fits.then_some((x, *lane, name))
        };
        self.placed.iter().filter_map(name).collect()
    }

    fn trains(&self, call: &TreeCall) -> bool {
        call.owned_in.as_deref().is_some_and(|row| self.training.contains(row))
    }

    /// The rows, and how far down they reach.
    fn rows(&self, trains: bool) -> (Markup, f64) {
        let row = |at: usize, row: &RowLine| {
            let y = 14.0 + 28.0 * at as f64;
            let mut path = Vec::new();
            let mut next = row.endpoint.as_ref();
            while let Some(&place) = next.and_then(|id| self.of.get(id)) {
                path.push(&self.placed[place]);
                next = self.placed[place].call.parent_call_id.as_ref();
                if path.len() as u64 >= row.calls {
                    break;
                }
            }
            let end = path.first().map_or(LEFT, |placed| self.x(stretches(placed.call)[2]));
            let stretch = |placed: &Placed<'_>| {
                let call = placed.call;
                let [x, gen_x, end_x] = stretches(call).map(|at| self.x(at));
                let owned = call.owned_in.as_deref() == Some(&row.row_id) && trains;
                let class = if owned { "loss" } else { "context" };
                html! {
                    @if gen_x > x { (block(x, y, gen_x - x, BAR, "carry", &tells(call))) }
                    @if end_x > gen_x {
                        (block(gen_x, y, end_x - gen_x - 1.0, BAR, class, &tells(call)))
                        @if owned { (count(gen_x, end_x, y, "on", call.generated)) }
                    }
                }
            };
            html! {
                (text(12.0, y + 13.0, "strong", cut(segment(&row.row_id), 8)))
                @for placed in path.iter().rev() { (stretch(placed)) }
                @if row.borrowed {
                    (block(LEFT, y, 120.0, BAR, "padding", "borrowed input"))
                    (text(LEFT + 128.0, y + 13.0, "note small", "stands in, on borrowed input"))
                } @else {
                    (text(end + 8.0, y + 13.0, "note small", lengths(row)))
                }
            }
        };
        let shapes = html! {
            (text(12.0, -2.0, "head", "rows"))
            @if self.rows.is_empty() { (text(LEFT, 20.0, "note", "none: its prompt group is dropped")) }
            @for (at, line) in self.rows.iter().enumerate() { (row(at, line)) }
        };
        (shapes, 14.0 + 28.0 * self.rows.len().max(1) as f64)
    }

    /// What is left out of a large rollout.
    fn cut_off(&self, portrait: &Portrait) -> String {
        let calls = portrait.tree.calls.len() - self.placed.len();
        let rows = portrait.tree.rows.len() - self.rows.len();
        match (calls, rows) {
            (0, 0) => String::new(),
            _ => format!("{} more calls and {} more rows are not drawn", calls, rows),
        }
    }
}

/// How a root leaves what went before, and what it does to the length of the conversation.
fn left(portrait: &Portrait, root: usize) -> String {
    let leaves = portrait.tree.roots.get(root).and_then(|root| root.divergence.as_ref());
    leaves.map_or(String::new(), |leaves| {
        format!(
            "{}: {} tokens before, {} now",
            leaves.kind,
            thousands(leaves.theirs.tokens),
            thousands(leaves.ours.tokens)
        )
    })
}

/// Where the ends of stretches stand: as far apart as their tokens, but no closer than
/// [`STRETCH`]; and where the last one does.
fn stretched(ends: Vec<u64>, room: f64) -> (Vec<(u64, f64)>, f64) {
    let last = ends.last().copied().unwrap_or(0).max(1) as f64;
    let least = STRETCH * ends.len().saturating_sub(1) as f64;
    let free = (room - least).max(0.0);
    let mut x = LEFT;
    let mut before = 0;
    let placed: Vec<(u64, f64)> = ends
        .iter()
        .map(|&end| {
            if end > 0 {
                x += STRETCH + free * (end - before) as f64 / last;
            }
            before = end;
            (end, x)
        })
        .collect();
    (placed, x.max(LEFT + room))
}

fn class(call: &TreeCall, trains: bool) -> &'static str {
    match call.mark {
        Mark::Accepted if trains => "loss",
        Mark::Accepted => "context",
        Mark::Rejected => "off",
        Mark::Failed => "failed",
        Mark::Pending => "pending",
        Mark::Uncommitted => "uncommitted",
    }
}

fn tells(call: &TreeCall) -> String {
    let row = call
        .owned_in
        .as_ref()
        .map_or(String::new(), |row| format!(", owned in {}", cut(row, NAME)));
    let context = match call.context_in.is_empty() {
        true => String::new(),
        false => format!(", context in {}", several(&call.context_in)),
    };
    format!(
        "call {}: {}, at {}, {} carry, {} generated{row}{context}",
        cut(call.call_id.as_str(), NAME),
        call.mark.as_str(),
        call.start,
        call.carry,
        call.generated
    )
}

/// Where the carry of a call begins, its generation, and where that ends. What a broken chain says
/// of its lengths is a claim, so that its calls begin at the left.
fn stretches(call: &TreeCall) -> [u64; 3] {
    let start = if call.root.is_some() { call.start } else { 0 };
    let middle = start.saturating_add(call.carry);
    [start, middle, middle.saturating_add(call.generated)]
}

/// Tokens of a row, in words.
fn lengths(row: &RowLine) -> String {
    format!("{} tokens, {} with loss", thousands(row.tokens), thousands(row.loss_tokens))
}

/// Generated tokens in their block, where there is room.
fn count(left: f64, right: f64, y: f64, class: &str, tokens: u64) -> Markup {
    let shown = thousands(tokens);
    match right - left > wide(&shown) + 7.0 {
        true => text(left + 4.0, y + 13.0, class, shown),
        false => html! {},
    }
}

/// A few ids, and how many more there are.
pub fn several(ids: &[String]) -> String {
    let mut told: Vec<String> = ids.iter().take(TOLD).map(|id| cut(id, NAME)).collect();
    if ids.len() > TOLD {
        told.push(format!("and {} more", ids.len() - TOLD));
    }
    told.join(" ")
}
