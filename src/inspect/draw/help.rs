//! All keys and marks.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{Theme, scrolled, title, wrapped};
use crate::explain::Mark;
use crate::inspect::keys::BINDINGS;
use crate::inspect::screen::Screen;
use crate::inspect::state::State;

/// What marks mean, in the words of docs/inspecting.md.
const MARKS: [(Mark, &str); 5] = [
    (Mark::Accepted, "selected by the policy"),
    (Mark::Rejected, "captured and committed, and not selected"),
    (Mark::Failed, "its capture failed, or it ended badly"),
    (Mark::Pending, "admitted, and neither acknowledged nor failed"),
    (Mark::Uncommitted, "staged, and the ledger does not commit to it"),
];

pub fn draw(frame: &mut Frame<'_>, [top, body]: [Rect; 2], state: &mut State, theme: Theme) {
    title(frame, top, "forestctl inspect: keys and marks", "Esc goes back", theme);
    let lines = lines(usize::from(body.width), theme);
    let count = lines.len();
    let height = usize::from(body.height);
    state.help.at = state.help.at.min(count.saturating_sub(height));
    // What is drawn begins with the chosen line.
    let first = state.help.at;
    state.help.window(count, height);
    scrolled(frame, body, lines, first, "↓ more");
}

/// Columns of keys and marks.
const KEYS: usize = 22;

fn lines(width: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for binding in BINDINGS {
        let on = match binding.screens.len() {
            n if n + 1 >= Screen::ALL.len() => String::new(),
            _ => {
                let names: Vec<&str> = binding.screens.iter().map(|s| s.as_str()).collect();
                format!(" ({})", names.join(", "))
            }
        };
        let keys = Span::styled(format!(" {:<KEYS$}", binding.told()), theme.strong());
        let told = vec![Span::raw(binding.help), Span::styled(on, theme.dim())];
        lines.extend(beside(keys, told, width));
    }
    lines.push(Line::default());
    for (mark, meaning) in MARKS {
        let word = format!(" {} {:<20}", mark.letter(), mark.as_str());
        lines.extend(beside(Span::styled(word, theme.mark(mark)), vec![Span::raw(meaning)], width));
    }
    lines
}

/// Prose beside a key or mark, below itself where it is longer than a line.
fn beside(left: Span<'static>, told: Vec<Span<'static>>, width: usize) -> Vec<Line<'static>> {
    let indent = left.width();
    let told = wrapped(vec![Line::from(told)], width.saturating_sub(indent).max(16));
    let mut left = Some(left);
    let line = |line: Line<'static>| {
        let first = left.take().unwrap_or_else(|| Span::raw(" ".repeat(indent - 2)));
        Line::from([vec![first], line.spans].concat())
    };
    told.into_iter().map(line).collect()
}
