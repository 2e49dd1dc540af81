//! Data flow: where captured tokens go, and what rows are made of.

use maud::{Markup, PreEscaped, html};

use super::svg::{Picture, block, px, text, text_to};
use crate::explain::Tokens;
use crate::report::thousands;

const WIDTH: f64 = 760.0;
const TOP: f64 = 56.0;
const TALL: f64 = 210.0;
const GAP: f64 = 12.0;
const BAR: f64 = 16.0;
/// Where the bars of captured, selected and physical tokens stand.
const COLUMNS: [f64; 3] = [96.0, 330.0, 590.0];
/// Labels are no closer than this.
const LABEL: f64 = 15.0;

/// Tokens of one kind, as they stand in one column.
struct Part {
    class: &'static str,
    name: &'static str,
    tokens: u64,
    y: f64,
    height: f64,
    label: f64,
}

/// Tokens from captured calls over selection to physical rows. Heights are tokens, in one scale.
pub fn flow(tokens: &Tokens) -> Picture {
    let physical = tokens.physical();
    let scale = TALL / tokens.captured.max(physical).max(1) as f64;
    let captured = column(&[("carry", "captured", tokens.captured)], scale);
    let selected = column(
        &[
            ("loss", "generated, with loss", tokens.loss),
            ("context", "context of rows that train", tokens.context),
            ("off", "in no row", tokens.unselected),
            ("off", "masked rollouts", tokens.masked),
            ("off", "dropped groups", tokens.dropped),
        ],
        scale,
    );
    let rows = column(
        &[
            ("loss", "loss", tokens.loss),
            ("context", "context", tokens.context),
            ("repeat", "repeated context", tokens.repeated),
            ("off", "rows without loss", tokens.masked_rows),
            ("padding", "execution padding", tokens.padding),
        ],
        scale,
    );
    let mut from = captured[0].y;
    let captured_to_selected: Vec<Markup> = selected
        .iter()
        .map(|part| {
            let height = part.tokens as f64 * scale;
            let shape = ribbon(0, (from, height), (part.y, part.height), part.class);
            from += height;
            shape
        })
        .collect();
    let same = |name: usize, into: usize| {
        let (from, to) = (find(&selected, name), find(&rows, into));
        from.zip(to).map(|(from, to)| ribbon(1, (from.y, from.height), (to.y, to.height), to.class))
    };
    // Repetition begins at the context that it repeats.
    let repeats = find(&selected, 1)
        .zip(find(&rows, 2))
        .map(|(from, to)| ribbon(1, (from.y + from.height, 0.0), (to.y, to.height), to.class));
    let bottom = [&captured, &selected, &rows]
        .iter()
        .flat_map(|column| column.iter().map(|part| (part.y + part.height).max(part.label + 6.0)))
        .fold(TOP, f64::max);
    let heads = [
        ("captured", thousands(tokens.captured)),
        ("selected and laid out", thousands(tokens.loss + tokens.context)),
        ("physical rows", thousands(physical)),
    ];
    let body = html! {
        @for (x, (name, count)) in COLUMNS.iter().zip(&heads) {
            (text(*x, 22.0, "head", *name))
            (text(*x, 40.0, "note", format!("{count} tokens")))
        }
        @for shape in &captured_to_selected { (shape) }
        @for shape in [same(0, 0), same(1, 1), repeats].into_iter().flatten() { (shape) }
        @for (at, column) in [&captured, &selected, &rows].into_iter().enumerate() {
            @for part in column.iter().filter(|part| part.tokens > 0) {
                @let tells = format!("{}: {} tokens", part.name, part.tokens);
                (block(COLUMNS[at], part.y, BAR, part.height, part.class, &tells))
                @if at > 0 {
                    (text(COLUMNS[at] + BAR + 8.0, part.label, "strong small", part.name))
                    (text(COLUMNS[at] + BAR + 8.0, part.label + 12.0, "note small",
                        thousands(part.tokens)))
                }
            }
        }
        (text_to(COLUMNS[0] - 8.0, TOP + 14.0, "note small", "generated"))
        (text_to(COLUMNS[0] - 8.0, TOP + 28.0, "note small", thousands(tokens.generated)))
        (text_to(COLUMNS[0] - 8.0, TOP + 52.0, "note small", "carry"))
        (text_to(COLUMNS[0] - 8.0, TOP + 66.0, "note small",
            thousands(tokens.captured.saturating_sub(tokens.generated))))
    };
    let told = |parts: &[Part]| {
        let told: Vec<String> =
            parts.iter().map(|part| format!("{} {}", part.name, part.tokens)).collect();
        told.join(", ")
    };
    let words = format!(
        "Of {} captured tokens: {}. Physical rows have {physical} tokens: {}.",
        tokens.captured,
        told(&selected),
        told(&rows)
    );
    let title = "Data flow: tokens from captured calls to physical rows".to_owned();
    Picture { width: WIDTH, height: bottom + 20.0, title, words, body }
}

/// Parts below one another; none is thinner than can be seen, and labels do not overlap.
fn column(parts: &[(&'static str, &'static str, u64)], scale: f64) -> Vec<Part> {
    let (mut y, mut label) = (TOP, 0.0_f64);
    parts
        .iter()
        .map(|&(class, name, tokens)| {
            let height = match tokens {
                0 => 0.0,
                n => (n as f64 * scale).max(2.0),
            };
            let top = y;
            if tokens > 0 {
                label = (top + height / 2.0).max(label + 2.0 * LABEL);
                y = (top + height + GAP).max(label - height / 2.0 + LABEL);
            }
            Part { class, name, tokens, y: top, height, label }
        })
        .collect()
}

fn find(parts: &[Part], at: usize) -> Option<&Part> {
    parts.get(at).filter(|part| part.tokens > 0)
}

/// A band from one column to the next.
fn ribbon(column: usize, from: (f64, f64), to: (f64, f64), class: &str) -> Markup {
    if to.1 <= 0.0 {
        return html! {};
    }
    let (left, right) = (COLUMNS[column] + BAR, COLUMNS[column + 1]);
    let middle = (left + right) / 2.0;
    let [a, b, c, d] = [from.0, to.0, to.0 + to.1, from.0 + from.1].map(px);
    let [l, m, r] = [left, middle, right].map(px);
    let path = format!("M{l} {a} C{m} {a} {m} {b} {r} {b} L{r} {c} C{m} {c} {m} {d} {l} {d} Z");
    html! { path class=(format!("{class} ribbon")) d=(PreEscaped(path)) {} }
}
