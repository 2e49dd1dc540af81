//! All rollouts, those of a prompt group within one bracket.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::{Theme, title};
use crate::explain::{RolloutLine, Verdict};
use crate::id::GroupId;
use crate::inspect::listing::{Entry, Listing};
use crate::inspect::state::State;
use crate::inspect::tokens::cut;
use crate::report::{thousands, visible};

/// A column of numbers: its name, its width, and what it tells.
type Column = (&'static str, usize, fn(&RolloutLine) -> String);

const REWARD: Column = ("reward", 7, |line| line.reward.map_or("-".to_owned(), number));
const ADVANTAGE: Column = ("adv", 8, |line| {
    let advantage = line.advantage.filter(|_| line.verdict == Verdict::Valid);
    advantage.map_or("-".to_owned(), |advantage| cut(&format!("{advantage:.4}"), 8))
});
const CALLS: Column = ("calls", 5, |line| thousands(line.calls));
const ROWS: Column = ("rows", 4, |line| thousands(line.rows));
const TOKENS: Column = ("tokens", 9, |line| thousands(line.tokens));
const LOSS: Column = ("loss", 7, |line| thousands(line.loss_tokens));

/// Columns from which all numbers and the group have room.
const ROOMY: u16 = 100;

fn number(x: f64) -> String {
    let text = x.to_string();
    if text.len() <= 7 { text } else { cut(&format!("{x:.4}"), 7) }
}

pub fn draw(frame: &mut Frame<'_>, [top, body]: [Rect; 2], state: &mut State, theme: Theme) {
    let counts = state.counts;
    let listing = &mut state.listing;
    let told = match listing.filter() {
        None => format!(
            "{}  {} rollouts in {} groups, {} calls, {} tokens; {}",
            state.archive,
            thousands(counts.rollouts),
            thousands(counts.groups),
            thousands(counts.calls),
            thousands(counts.tokens),
            state.policy,
        ),
        Some(verdict) => {
            let (judged, parts) = listing.judged();
            let so_far = match judged < parts {
                true => format!(" so far: {judged} of {parts} parts judged"),
                false => String::new(),
            };
            format!(
                "{}  only {}: {} of {} rollouts{so_far}",
                state.archive,
                verdict.as_str(),
                thousands(listing.count() as u64),
                thousands(counts.rollouts),
            )
        }
    };
    let at = if listing.count() == 0 { 0 } else { listing.cursor.at + 1 };
    let place = format!("{}/{}", thousands(at as u64), thousands(listing.count() as u64));
    title(frame, top, &told, &place, theme);
    let height = usize::from(body.height).saturating_sub(1);
    let count = listing.count();
    let shown = listing.cursor.window(count, height);
    let roomy = body.width >= ROOMY;
    let columns: &[Column] = match roomy {
        true => &[REWARD, ADVANTAGE, CALLS, ROWS, TOKENS, LOSS],
        false => &[REWARD, ADVANTAGE, CALLS, ROWS, LOSS],
    };
    let ids = |of: fn(&Entry<'_>) -> Option<String>, name: &str| {
        let wide =
            |at| listing.entry(at).and_then(|entry| of(&entry)).map(|id| Span::raw(id).width());
        shown.clone().filter_map(wide).max().unwrap_or(0).max(name.len())
    };
    let most = usize::from(body.width) / 4;
    let rollout =
        ids(|e| Some(visible(e.known?.rollout_id.as_str()).into_owned()), "rollout").min(most);
    let group = ids(|e| Some(visible(e.known?.group_id.as_str()).into_owned()), "group").min(most);
    let group = if roomy { group } else { 0 };
    let mut head = format!("   {:rollout$}", "rollout");
    if roomy {
        head = format!("   {:group$} {:rollout$}", "group", "rollout");
    }
    for (name, width, _) in columns {
        head += &format!(" {name:>width$}");
    }
    head += " verdict  reason";
    let mut lines = vec![Line::styled(head, theme.dim())];
    for at in shown.clone() {
        let Some(entry) = listing.entry(at) else { continue };
        let first = at == shown.start;
        let mut spans = vec![Span::styled(format!(" {} ", bracket(listing, at)), theme.dim())];
        spans.extend(cells(&entry, (group, first || begins(listing, at)), rollout, columns, theme));
        let mut line = Line::from(spans);
        if at == listing.cursor.at {
            line = chosen(line, usize::from(body.width), theme);
        }
        lines.push(line);
    }
    if count == 0 {
        lines.push(Line::styled("   none; f lists others", theme.dim()));
    }
    frame.render_widget(Paragraph::new(lines), body);
}

/// A chosen line, marked where nothing is painted too, over its whole width, in one style.
pub fn chosen(mut line: Line<'static>, width: usize, theme: Theme) -> Line<'static> {
    let gap = width.saturating_sub(line.width());
    line.spans.push(Span::raw(" ".repeat(gap)));
    // Dim text on a bar cannot be read.
    line.spans.iter_mut().for_each(|span| span.style = theme.strong());
    if let Some(first) = line.spans.first_mut() {
        let rest: String = first.content.chars().skip(1).collect();
        first.content = format!(">{rest}").into();
    }
    line.style(theme.chosen())
}

fn group_of(listing: &Listing, at: Option<usize>) -> Option<&GroupId> {
    listing.entry(at?)?.known.map(|known| &known.group_id)
}

/// Whether a line is the first of its group.
fn begins(listing: &Listing, at: usize) -> bool {
    group_of(listing, at.checked_sub(1)) != group_of(listing, Some(at))
}

/// What joins the lines of a group.
fn bracket(listing: &Listing, at: usize) -> &'static str {
    if group_of(listing, Some(at)).is_none() {
        return " ";
    }
    match (begins(listing, at), begins(listing, at + 1)) {
        (true, true) => "╶",
        (true, false) => "┌",
        (false, false) => "│",
        (false, true) => "└",
    }
}

fn cells(
    entry: &Entry<'_>,
    (group, named): (usize, bool),
    rollout: usize,
    columns: &[Column],
    theme: Theme,
) -> Vec<Span<'static>> {
    let padded = |text: &str, width: usize| {
        let text = cut(&visible(text), width);
        let gap = width.saturating_sub(Span::raw(&text).width());
        text + &" ".repeat(gap)
    };
    let mut spans = Vec::new();
    let known = entry.known;
    if group > 0 {
        let id = known.map_or("", |known| known.group_id.as_str());
        spans.push(Span::raw(padded(if named { id } else { "" }, group) + " "));
    }
    let id = known.map_or("...", |known| known.rollout_id.as_str());
    spans.push(Span::styled(padded(id, rollout), theme.strong()));
    if let Some(fault) = entry.fault {
        spans.push(Span::styled(format!(" {}", visible(fault)), theme.bad()));
        return spans;
    }
    let Some(line) = entry.line else {
        spans.push(Span::styled(" reading ...", theme.dim()));
        return spans;
    };
    for (_, width, of) in columns {
        spans.push(Span::raw(format!(" {:>width$}", of(line))));
    }
    spans
        .push(Span::styled(format!(" {:<8} ", line.verdict.as_str()), theme.verdict(line.verdict)));
    let why = line.reasons.first().map(|code| code.to_string());
    let found = line.findings.iter().find(|code| Some(**code) != line.reasons.first().copied());
    let more = line.findings.len().saturating_sub(1);
    let told = match (why, found) {
        (Some(why), _) => why,
        // Of a rollout that trains, what was found is told in brackets.
        (None, Some(found)) if more > 0 => format!("[{found} +{more}]"),
        (None, Some(found)) => format!("[{found}]"),
        (None, None) => String::new(),
    };
    spans.push(Span::raw(told));
    spans
}
