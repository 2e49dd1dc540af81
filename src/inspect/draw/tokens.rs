//! The tokens of a call along its chain.

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use super::{Theme, absent, scrolled, title};
use crate::explain::Part;
use crate::explain::words::{rule, segment};
use crate::inspect::screen::{Loaded, OpenTokens};
use crate::inspect::source::StretchDocument;
use crate::inspect::state::State;
use crate::inspect::tokens::{self, HEAT, TokensScreen, UNCAPTURED, heat};
use crate::report::{thousands, visible};

/// Columns left of the tokens.
const GUTTER: u16 = 3;

/// Lines of the panel that says why.
const WHY: u16 = 6;

pub fn draw(frame: &mut Frame<'_>, [top, body]: [Rect; 2], state: &mut State, theme: Theme) {
    let Some(OpenTokens { call_id, screen }) = &mut state.tokens else { return };
    let rollout = state.rollout.as_ref().map(|rollout| rollout.place.rollout_id.to_string());
    let left = format!("rollout {}  tokens of call {call_id}", rollout.unwrap_or_default());
    let right = match screen.get() {
        Some(Some(screen)) => {
            let count = screen.document.ids.len() as u64;
            format!("token {} of {}", thousands(screen.at as u64), thousands(count))
        }
        _ => String::new(),
    };
    title(frame, top, &left, &right, theme);
    if let Some(text) = absent(screen, "the tokens", theme) {
        return frame.render_widget(text, body);
    }
    let Loaded::Here(Some(screen)) = screen else {
        let text =
            " its record, or one that it continues, was not captured whole: no tokens to show";
        return frame.render_widget(Line::styled(text, theme.warn()), body);
    };
    let why = WHY.min(body.height / 3);
    let [text, legend_area, why] =
        Layout::vertical([Constraint::Min(1), Constraint::Length(1), Constraint::Length(why)])
            .areas(body);
    screen.lay_out(usize::from(text.width.saturating_sub(GUTTER + 1)));
    let count = screen.lines().len();
    let window = screen.cursor.window_around(count, usize::from(text.height), 1);
    let lines: Vec<Line<'static>> =
        screen.lines()[window].iter().map(|line| told_line(screen, line, theme)).collect();
    frame.render_widget(Paragraph::new(lines), text);
    frame.render_widget(legend(theme), legend_area);
    let block = Block::new().borders(Borders::TOP).border_style(theme.dim());
    let inner = block.inner(why);
    frame.render_widget(block, why);
    let details = scrolled(frame, inner, told_token(screen, theme), screen.details, "J more");
    screen.details = details;
}

/// What stands left of tokens, so that what carries loss is told without colour.
fn gutter(stretch: &StretchDocument, theme: Theme) -> Span<'static> {
    match (stretch.part, &stretch.fate.loss_in) {
        (Part::Carry, _) => Span::styled(" │ ", theme.dim()),
        (Part::Generation, Some(_)) => Span::styled(" ┃ ", theme.good()),
        (Part::Generation, None) => Span::styled(" ╎ ", theme.warn()),
    }
}

fn token_style(stretch: &StretchDocument, theme: Theme) -> Style {
    match (stretch.part, &stretch.fate.loss_in) {
        (Part::Carry, _) => theme.dim(),
        (Part::Generation, Some(_)) => theme.loss(),
        (Part::Generation, None) => Style::new(),
    }
}

fn told_line(screen: &TokensScreen, line: &tokens::Line, theme: Theme) -> Line<'static> {
    let document = &screen.document;
    match line {
        tokens::Line::Head(number) => document
            .stretches
            .get(*number)
            .map_or_else(Line::default, |stretch| head(stretch, screen.name(*number), theme)),
        tokens::Line::Tokens { stretch, tokens } => {
            let Some(stretch) = document.stretches.get(*stretch) else { return Line::default() };
            let style = token_style(stretch, theme);
            let mut spans = vec![gutter(stretch, theme)];
            spans.extend(tokens.clone().map(|token| {
                let style = if token == screen.at { style.patch(theme.chosen()) } else { style };
                screen.cell(token).style(style)
            }));
            Line::from(spans)
        }
        tokens::Line::Heat { tokens } => heat_line(screen, tokens.clone(), theme),
    }
}

/// Where a carry or a generation begins, and what becomes of it.
fn head(stretch: &StretchDocument, name: &str, theme: Theme) -> Line<'static> {
    let tokens = thousands((stretch.end - stretch.start) as u64);
    let (what, style) = match (stretch.part, &stretch.fate.loss_in) {
        (Part::Carry, _) => ("context".to_owned(), theme.dim()),
        (Part::Generation, Some(row)) => {
            (format!("LOSS in {}", visible(segment(row))), theme.good())
        }
        (Part::Generation, None) => ("no loss".to_owned(), theme.warn()),
    };
    let mark = stretch.mark.letter();
    Line::from(vec![
        Span::styled(what, style.add_modifier(Modifier::BOLD)),
        Span::styled(
            format!(
                "  {} of {mark} {}, {tokens} tokens from {}",
                stretch.part.as_str(),
                visible(name),
                stretch.start
            ),
            theme.dim(),
        ),
    ])
}

fn heat_line(screen: &TokensScreen, tokens: Range<usize>, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::raw("   ")];
    for token in tokens {
        let wide = screen.cell(token).width();
        let logprob = screen.document.logprobs.get(token).copied().unwrap_or(f32::NAN);
        let heat = heat(logprob);
        // A gap tells one token from the next.
        let filled = if wide > 1 { wide - 1 } else { wide };
        let text = heat.letter.to_string().repeat(filled) + &" ".repeat(wide - filled);
        spans.push(Span::styled(text, theme.heat(heat.step)));
    }
    Line::from(spans)
}

fn legend(theme: Theme) -> Line<'static> {
    let mut spans = vec![
        Span::styled(" ┃ ", theme.good()),
        Span::styled("loss", theme.loss()),
        Span::styled(" ╎", theme.warn()),
        Span::raw(" no loss"),
        Span::styled(" │ context", theme.dim()),
        Span::raw("  p "),
    ];
    for (step, (letter, _, name)) in HEAT.iter().enumerate() {
        spans.push(Span::styled(letter.to_string(), theme.heat(step)));
        spans.push(Span::raw(format!("{name} ")));
    }
    spans.push(Span::raw(format!("{UNCAPTURED} none")));
    Line::from(spans)
}

/// What `why` says of the chosen token.
fn told_token(screen: &TokensScreen, theme: Theme) -> Vec<Line<'static>> {
    let (document, at) = (&screen.document, screen.at);
    let stretch = document.stretches.get(document.stretch_of(at));
    let (Some(stretch), Some(id)) = (stretch, document.ids.get(at)) else { return Vec::new() };
    let shown = document.text(at).map(|text| format!(" \"{}\"", visible(text)));
    let logprob = document.logprobs.get(at).copied().filter(|logprob| logprob.is_finite());
    let logprob = logprob.map(|x| format!(", log-probability {x} (p {:.3})", f64::from(x).exp()));
    let (verdict, style) = match &stretch.fate.loss_in {
        Some(_) => ("loss", theme.good()),
        None => ("no loss", theme.warn()),
    };
    let rows: Vec<&str> = stretch.rows.iter().map(|row| segment(row)).collect();
    let rows = match rows.is_empty() {
        true => "in no row".to_owned(),
        false => format!("in rows {}", visible(&rows.join(" "))),
    };
    vec![
        Line::from(vec![
            Span::styled(format!(" token {at}"), theme.strong()),
            Span::raw(format!(": id {id}{}", shown.unwrap_or_default())),
            Span::raw(logprob.unwrap_or_default()),
        ]),
        Line::from(vec![
            Span::styled(format!(" {verdict}"), style.add_modifier(Modifier::BOLD)),
            Span::raw(format!(": {}{}", visible(&stretch.fate.because), rule(stretch.fate.rule))),
        ]),
        Line::raw(format!(
            " token {} of the {} of call {}",
            at - stretch.start,
            stretch.part.as_str(),
            visible(stretch.call_id.as_str())
        )),
        Line::raw(format!(" {rows}")),
    ]
}
