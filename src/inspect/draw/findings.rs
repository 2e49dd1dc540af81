//! Reasons and findings of a rollout, with what to do.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use super::rollout::told_finding;
use super::rollouts::chosen;
use super::{Theme, absent, scrolled, title};
use crate::explain::MaskReason;
use crate::explain::words::rule;
use crate::finding::Finding;
use crate::inspect::screen::Loaded;
use crate::inspect::state::State;
use crate::report::{thousands, visible};

pub fn draw(frame: &mut Frame<'_>, [top, body]: [Rect; 2], state: &mut State, theme: Theme) {
    let Some(screen) = &mut state.rollout else { return };
    let count = screen.findings();
    let left = format!("{}  rollout {}  what is wrong", state.archive, screen.place.rollout_id);
    let at = count.min(screen.finding.at.saturating_add(1));
    title(
        frame,
        top,
        &left,
        &format!("{}/{}", thousands(at as u64), thousands(count as u64)),
        theme,
    );
    if let Some(text) = absent(&screen.document, "the rollout", theme) {
        return frame.render_widget(text, body);
    }
    let Loaded::Here(document) = &screen.document else { return };
    if count == 0 {
        let text = " nothing: each generation that is selected carries loss";
        return frame.render_widget(Line::styled(text, theme.good()), body);
    }
    let wanted = u16::try_from(count).unwrap_or(u16::MAX);
    let high = wanted.min(body.height / 2);
    let [list, details] =
        Layout::vertical([Constraint::Length(high), Constraint::Min(1)]).areas(body);
    let (masked, findings) = (&document.fate.masked, document.findings_beyond());
    let window = screen.finding.window(count, usize::from(list.height));
    let chosen_at = screen.finding.at;
    let lines = window.map(|at| {
        let line = match at.checked_sub(masked.len()) {
            None => told_reason(&masked[at], theme),
            Some(finding) => told_finding(findings[finding], theme),
        };
        let mut indented = Line::from(vec![Span::raw(" ")]);
        indented.spans.extend(line.spans);
        if at == chosen_at { chosen(indented, usize::from(list.width), theme) } else { indented }
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), list);
    let block = Block::new().borders(Borders::TOP).border_style(theme.dim());
    let inner = block.inner(details);
    frame.render_widget(block, details);
    let told = match chosen_at.checked_sub(masked.len()) {
        None => masked.get(chosen_at).map(|reason| reason_details(reason, theme)),
        Some(finding) => findings.get(finding).map(|f| finding_details(f, theme)),
    };
    scrolled(frame, inner, told.unwrap_or_default(), 0, "more");
}

fn told_reason(reason: &MaskReason, theme: Theme) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!(" reason[{}]", reason.code), theme.warn()),
        Span::raw(format!(" {}", visible(&reason.message))),
    ])
}

fn reason_details(reason: &MaskReason, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::styled(format!(" {}{}", reason.code, rule(reason.rule)), theme.warn()),
        Line::raw(format!(" {}", visible(&reason.message))),
        Line::raw(format!(" {}", reason.code.summary())),
        Line::from(vec![
            Span::styled(" help: ", theme.strong()),
            Span::raw(visible(&reason.help).into_owned()),
        ]),
    ];
    lines.extend(
        reason.call_ids.iter().map(|call| Line::raw(format!(" call {}", visible(call.as_str())))),
    );
    lines
}

fn finding_details(finding: &Finding, theme: Theme) -> Vec<Line<'static>> {
    vec![
        told_finding(finding, theme),
        Line::raw(format!(" at {}", visible(&finding.place()))),
        Line::raw(format!(" {}{}", finding.code.summary(), rule(finding.code.rule()))),
        Line::from(vec![
            Span::styled(" help: ", theme.strong()),
            Span::raw(visible(&finding.help).into_owned()),
        ]),
    ]
}
