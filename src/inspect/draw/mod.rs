//! A [`State`] on a frame.

mod findings;
mod help;
mod rollout;
mod rollouts;
mod theme;
mod tokens;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::keys;
use super::screen::{Loaded, Screen};
use super::state::State;
use super::tokens::cut;
use crate::report::visible;
pub use theme::Theme;

/// The smallest terminal that screens fit on, in columns and lines.
pub const SMALLEST: (u16, u16) = (40, 10);

/// Columns from which details stand beside a list.
const WIDE: u16 = 110;

/// Draws the screen that is shown.
pub fn draw(frame: &mut Frame<'_>, state: &mut State, theme: Theme) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let (width, height) = SMALLEST;
        let text = format!(
            "forestctl inspect needs {width} columns and {height} lines; here are {} and {}. q quits",
            area.width, area.height
        );
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let [top, body, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(area);
    match state.screen() {
        Screen::Rollouts => rollouts::draw(frame, [top, body], state, theme),
        Screen::Rollout => rollout::draw(frame, [top, body], state, theme),
        Screen::Findings => findings::draw(frame, [top, body], state, theme),
        Screen::Tokens => tokens::draw(frame, [top, body], state, theme),
        Screen::Help => help::draw(frame, [top, body], state, theme),
    }
    footer(frame, bottom, state, theme);
}

/// The first line: where one is, and how far.
fn title(frame: &mut Frame<'_>, area: Rect, left: &str, right: &str, theme: Theme) {
    let width = usize::from(area.width);
    let right = format!(" {right} ");
    let left = cut(&format!(" {}", visible(left)), width.saturating_sub(Span::raw(&right).width()));
    let gap = width.saturating_sub(Span::raw(&left).width() + Span::raw(&right).width());
    let line = Line::from(vec![Span::raw(left), Span::raw(" ".repeat(gap)), Span::raw(right)]);
    frame.render_widget(line.style(theme.bar()), area);
}

/// The last line: what is being typed, what happened, or the keys.
fn footer(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let width = usize::from(area.width);
    let line = if let Some(typed) = &state.prompt {
        let shown = format!("/{}", visible(typed));
        // The end of a long one is what is being typed.
        let mut tail: Vec<char> = shown.chars().rev().take(width.saturating_sub(1)).collect();
        tail.reverse();
        let tail: String = tail.into_iter().collect();
        Line::from(vec![Span::raw(tail), Span::styled(" ", theme.chosen())])
    } else if let Some(fault) = &state.fault {
        Line::styled(cut(&visible(fault), width), theme.bad())
    } else if let Some(text) = state.message.clone().or_else(|| state.waits_for()) {
        Line::styled(cut(&visible(&text), width), theme.strong())
    } else {
        hints(state.screen(), width, theme)
    };
    frame.render_widget(line, area);
}

fn hints(screen: Screen, width: usize, theme: Theme) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut used = 0;
    // The way to all other keys is never left out.
    let hinted = keys::of(screen).filter(|binding| !binding.hint.is_empty());
    let (last, first): (Vec<&keys::Binding>, Vec<&keys::Binding>) =
        hinted.partition(|b| matches!(b.action, keys::Action::Help | keys::Action::Quit));
    let wide = |b: &keys::Binding| Span::raw(format!("{}", b.keys[0])).width() + b.hint.len() + 3;
    let reserved: usize = last.iter().map(|binding| wide(binding)).sum();
    for &binding in first.iter().chain(&last) {
        let is_last = matches!(binding.action, keys::Action::Help | keys::Action::Quit);
        if !is_last && used + wide(binding) + reserved > width {
            continue;
        }
        used += wide(binding);
        spans.push(Span::styled(format!(" {}", binding.keys[0]), theme.strong()));
        spans.push(Span::styled(format!(" {} ", binding.hint), theme.dim()));
    }
    Line::from(spans)
}

/// What stands in the place of something that is not here; `None` when it is.
fn absent<T>(loaded: &Loaded<T>, what: &str, theme: Theme) -> Option<Paragraph<'static>> {
    let (text, style) = match loaded {
        Loaded::Here(_) => return None,
        Loaded::Waiting => (format!("reading {what} ..."), theme.dim()),
        Loaded::Fault(fault) => (visible(fault).into_owned(), theme.bad()),
    };
    Some(Paragraph::new(text).style(style).wrap(Wrap { trim: false }))
}

/// Prose in a scrolled stretch of an area, with a `hint` where there is more; returns the first line
/// that is shown.
fn scrolled(
    frame: &mut Frame<'_>,
    area: Rect,
    lines: Vec<Line<'static>>,
    first: usize,
    hint: &str,
) -> usize {
    let lines = wrapped(lines, usize::from(area.width));
    let height = usize::from(area.height);
    let first = first.min(lines.len().saturating_sub(height));
    let more = lines.len() > first + height;
    let shown: Vec<Line<'static>> = lines.into_iter().skip(first).take(height).collect();
    frame.render_widget(Paragraph::new(shown), area);
    if more && area.height > 0 {
        let hint = format!(" {hint} ");
        let width = u16::try_from(Span::raw(&hint).width()).unwrap_or(0).min(area.width);
        let corner = Rect { x: area.right() - width, y: area.bottom() - 1, width, height: 1 };
        frame.render_widget(Line::styled(hint, Modifier::REVERSED), corner);
    }
    first
}

/// Lines broken at words, what follows indented as its first line is and two more.
fn wrapped(lines: Vec<Line<'static>>, width: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for line in lines {
        if line.width() <= width {
            out.push(line);
            continue;
        }
        let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        let indent = text.len() - text.trim_start().len() + 2;
        let indent = if indent * 2 > width { 0 } else { indent };
        let (mut row, mut used): (Vec<Span<'static>>, usize) = (Vec::new(), 0);
        for span in line.spans {
            for word in span.content.split_inclusive(' ') {
                let mut rest = word;
                while !rest.is_empty() {
                    let wide = Span::raw(rest.trim_end_matches(' ')).width();
                    if used + wide <= width {
                        row.push(Span::styled(rest.to_owned(), span.style));
                        used += Span::raw(rest).width();
                        break;
                    }
                    if used > indent {
                        out.push(Line::from(std::mem::take(&mut row)));
                        row.push(Span::raw(" ".repeat(indent)));
                        used = indent;
                        continue;
                    }
                    // A word that is longer than a line.
                    let head = prefix(rest, width.saturating_sub(used).max(1));
                    row.push(Span::styled(rest[..head].to_owned(), span.style));
                    rest = &rest[head..];
                    used = width;
                }
            }
        }
        out.push(Line::from(row));
    }
    out
}

/// Bytes of the longest beginning of at most `width` columns; one character at least.
fn prefix(text: &str, width: usize) -> usize {
    let mut used = 0;
    for (at, letter) in text.char_indices() {
        used += Span::raw(letter.to_string()).width();
        if used > width && at > 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::wrapped;
    use ratatui::text::Line;

    #[test]
    fn prose_is_broken_at_words_and_long_words_anywhere() {
        let told = |text: &'static str, width| -> Vec<String> {
            // Blanks at the end are not seen.
            let shown = |line: &Line<'_>| line.to_string().trim_end().to_owned();
            wrapped(vec![Line::raw(text)], width).iter().map(shown).collect()
        };
        assert_eq!(told("one two three", 20), ["one two three"]);
        assert_eq!(
            told("  one two three", 9),
            ["  one two", "    three"].map(|s| s.to_owned()).to_vec()
        );
        assert_eq!(
            told("abcdefghij", 4),
            ["abcd", "  ef", "  gh", "  ij"].map(|s| s.to_owned()).to_vec()
        );
        assert_eq!(told("", 4), [""]);
    }
}
