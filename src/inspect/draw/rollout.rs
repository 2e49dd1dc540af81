//! One rollout: its calls as a tree, and the chosen call in detail.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use super::rollouts::chosen;
use super::{Theme, WIDE, absent, scrolled, title, wrapped};
use crate::explain::words::{self, rule};
use crate::explain::{
    CallFate, Divergence, DivergenceKind, DrawnLine, RolloutFate, Verdict, Window,
};
use crate::finding::{Finding, Severity};
use crate::id::CallId;
use crate::inspect::screen::{Loaded, RolloutScreen};
use crate::inspect::source::RolloutDocument;
use crate::inspect::state::State;
use crate::report::{thousands, visible};

pub fn draw(frame: &mut Frame<'_>, [top, body]: [Rect; 2], state: &mut State, theme: Theme) {
    let Some(screen) = &mut state.rollout else { return };
    let place = &screen.place;
    let left = format!("{}  rollout {}  group {}", state.archive, place.rollout_id, place.group_id);
    let calls = screen.calls().len() as u64;
    let right =
        format!("call {}/{}", thousands(calls.min(screen.cursor.at as u64 + 1)), thousands(calls));
    title(frame, top, &left, &right, theme);
    if let Some(text) = absent(&screen.document, "the rollout", theme) {
        return frame.render_widget(text, body);
    }
    let RolloutScreen { document: Loaded::Here(document), .. } = screen else { return };
    let heading = wrapped(heading(document, theme), usize::from(body.width));
    let most = body.height / 3;
    let high = u16::try_from(heading.len()).unwrap_or(most).min(most.max(2));
    let [head, rest] = Layout::vertical([Constraint::Length(high), Constraint::Min(1)]).areas(body);
    frame.render_widget(Paragraph::new(heading), head);
    let beside = body.width >= WIDE;
    let [tree, details] = match beside {
        true => Layout::horizontal([Constraint::Percentage(58), Constraint::Percentage(42)]),
        false => Layout::vertical([Constraint::Percentage(50), Constraint::Percentage(50)]),
    }
    .areas(rest);
    draw_tree(frame, tree, screen, theme);
    let border = if beside { Borders::LEFT } else { Borders::TOP };
    let block = Block::new().borders(border).border_style(theme.dim());
    let inner = block.inner(details);
    frame.render_widget(block, details);
    let lines = call_details(screen, theme);
    screen.details = scrolled(frame, inner, lines, screen.details, "J more");
}

/// What `show` says of a rollout before its calls.
fn heading(document: &RolloutDocument, theme: Theme) -> Vec<Line<'static>> {
    let RolloutDocument { fate, policy, tree, findings } = document;
    let line = &fate.line;
    let mut lines = vec![Line::from(vec![
        Span::styled(format!(" {}", line.verdict.as_str()), theme.verdict(line.verdict)),
        Span::raw(format!(" by {}, slot {}, {}", visible(policy), line.slot, words::reward(fate))),
    ])];
    lines.extend(reasons(fate, theme));
    lines.push(Line::raw(format!(
        " {}; rows: {}, findings: {}",
        words::counts(fate),
        thousands(tree.rows.len() as u64),
        thousands(findings.len() as u64),
    )));
    lines
}

fn reasons(fate: &RolloutFate, theme: Theme) -> impl Iterator<Item = Line<'static>> {
    fate.masked.iter().map(move |reason| {
        Line::from(vec![
            Span::styled(format!(" {}{}", reason.code, rule(reason.rule)), theme.warn()),
            Span::raw(format!(": {}", visible(&reason.message))),
        ])
    })
}

fn draw_tree(frame: &mut Frame<'_>, area: Rect, screen: &mut RolloutScreen, theme: Theme) {
    let RolloutScreen { document: Loaded::Here(document), drawing, cursor, roots, rows, .. } =
        screen
    else {
        return;
    };
    let at = cursor.at;
    let line_of = drawing.lines.iter().position(|line| *line == DrawnLine::Call(at)).unwrap_or(0);
    let height = usize::from(area.height).saturating_sub(1);
    // The window is that of lines, roots among them; the cursor counts calls.
    let mut lines_cursor = *cursor;
    lines_cursor.at = line_of;
    let window = lines_cursor.window_around(drawing.lines.len(), height, 1);
    *cursor = lines_cursor;
    cursor.at = at;
    let mut lines = vec![Line::styled(format!("  {}", drawing.header()), theme.dim())];
    for line in &drawing.lines[window] {
        lines.push(match *line {
            DrawnLine::Root(number) => {
                let head = Span::styled(format!("  root {}", number + 1), theme.dim());
                match roots.get(number).and_then(Option::as_ref) {
                    None => Line::from(head),
                    Some((kind, rest)) => Line::from(vec![
                        head,
                        Span::styled(format!("  {kind}"), theme.strong()),
                        Span::raw(format!(": {rest}")),
                    ]),
                }
            }
            DrawnLine::Loose => Line::styled("  not below any root", theme.dim()),
            DrawnLine::Call(number) => {
                let call = &document.tree.calls[number];
                let drawn = drawing.call(number, call);
                let line = Line::from(vec![
                    Span::raw("  "),
                    Span::styled(drawn.bars, theme.dim()),
                    Span::styled(drawn.mark, theme.mark(call.mark)),
                    Span::raw(drawn.gap),
                    Span::styled(format!(" {}", drawn.id), theme.strong()),
                    Span::raw(format!(" {} ", drawn.tokens)),
                    Span::styled(drawn.codes.clone(), theme.warn()),
                    Span::raw(if drawn.codes.is_empty() { "" } else { " " }),
                    Span::raw(drawn.roles),
                ]);
                match number == at {
                    true => chosen(line, usize::from(area.width), theme),
                    false => line,
                }
            }
        });
    }
    lines.extend(rows_below(rows, usize::from(area.height).saturating_sub(lines.len()), theme));
    frame.render_widget(Paragraph::new(lines), area);
}

/// The rows, where the calls leave room for some.
fn rows_below(rows: &[String], height: usize, theme: Theme) -> Vec<Line<'static>> {
    let Some(room) = height.checked_sub(2).filter(|&room| room > 0 && !rows.is_empty()) else {
        return Vec::new();
    };
    let shown = if rows.len() > room { room - 1 } else { rows.len() };
    let mut lines = vec![Line::default(), Line::styled("  rows", theme.dim())];
    lines.extend(rows[..shown].iter().map(|row| Line::raw(format!("  {row}"))));
    if shown < rows.len() {
        lines.push(Line::raw(format!("  and {} more", thousands((rows.len() - shown) as u64))));
    }
    lines
}

fn call_details(screen: &RolloutScreen, theme: Theme) -> Vec<Line<'static>> {
    let (Some(call), Some(document)) = (screen.chosen(), screen.document.get()) else {
        return vec![Line::styled(" no calls were captured", theme.dim())];
    };
    let mut lines = vec![Line::from(vec![
        Span::styled(
            format!(" {} {}", call.mark.letter(), call.mark.as_str()),
            theme.mark(call.mark),
        ),
        Span::styled(format!(" call {}", visible(call.call_id.as_str())), theme.strong()),
    ])];
    match screen.call.as_ref().map(|(_, told)| told) {
        Some(Loaded::Here(Some(fate))) => {
            let trains = document.fate.line.verdict == Verdict::Valid;
            lines.extend(told_call(fate, trains, theme));
        }
        Some(Loaded::Fault(fault)) => {
            lines.push(Line::styled(format!(" {}", visible(fault)), theme.bad()));
        }
        _ => lines.push(Line::styled(" reading ...", theme.dim())),
    }
    let own = document.findings.iter().filter(|f| f.call_id.as_ref() == Some(&call.call_id));
    for finding in own {
        lines.push(told_finding(finding, theme));
        lines.push(Line::raw(format!("   help: {}", visible(&finding.help))));
    }
    lines
}

/// A finding in one line.
pub fn told_finding(finding: &Finding, theme: Theme) -> Line<'static> {
    let style = if finding.severity == Severity::Error { theme.bad() } else { theme.warn() };
    Line::from(vec![
        Span::styled(format!(" {}[{}]", finding.severity, finding.code), style),
        Span::raw(format!(" {}", visible(&finding.message))),
    ])
}

/// What `why` says of a call after its first line.
fn told_call(fate: &CallFate, trains: bool, theme: Theme) -> Vec<Line<'static>> {
    let call = &fate.call;
    let mut lines = vec![Line::raw(format!(" {}{}", visible(&fate.evidence), rule(fate.rule)))];
    if call.recorded {
        let given = call.start + call.carry;
        lines.push(Line::raw(format!(
            " tokens {} to {}: {} new, {} generated{}",
            call.start,
            given + call.generated,
            thousands(call.carry),
            thousands(call.generated),
            call.weight_version.map(|version| format!(", weights {version}")).unwrap_or_default(),
        )));
    }
    match &call.parent_call_id {
        Some(parent) => {
            lines.push(Line::raw(format!(" continues call {}", visible(parent.as_str()))));
        }
        None if call.recorded => lines.push(Line::raw(" a root")),
        None => {}
    }
    lines.extend(
        fate.places.iter().map(|place| Line::raw(format!(" {}", words::place(place, trains)))),
    );
    if fate.places.is_empty() {
        lines.push(Line::raw(" in no row"));
    }
    lines.extend(
        fate.origin.iter().map(|origin| Line::raw(format!(" read from {}", visible(origin)))),
    );
    lines.extend(fate.divergence.iter().flat_map(|divergence| told_divergence(divergence, theme)));
    lines
}

fn told_divergence(divergence: &Divergence, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::from(vec![
            Span::styled(format!(" {}", divergence.kind), theme.strong()),
            Span::raw(format!(": {}", words::leaves(divergence, &CallId::to_string))),
        ]),
        Line::raw(format!("   {}", divergence.kind.meaning())),
    ];
    for (name, window) in [("there", &divergence.theirs), ("here", &divergence.ours)] {
        let text = window.before.as_ref().zip(window.after.as_ref());
        // Equal texts leave nothing to see but the ids.
        if let Some((before, after)) = text {
            lines.push(around(name, visible(before).into(), visible(after).into(), theme));
        }
        if text.is_none() || divergence.kind == DivergenceKind::Retokenisation {
            let (before, after) = ids(window, divergence.position);
            lines.push(around(name, before + " ", format!(" {after}"), theme));
        }
    }
    lines
}

fn ids(window: &Window, position: u64) -> (String, String) {
    let before = position.saturating_sub(window.start) as usize;
    let (before, after) = window.ids.split_at(before.min(window.ids.len()));
    let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    (list(before), list(after))
}

fn around(name: &str, before: String, after: String, theme: Theme) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!("   {name:<5} "), theme.dim()),
        Span::raw(before),
        Span::styled("|", theme.bad()),
        Span::raw(after),
    ])
}
