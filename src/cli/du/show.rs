//! What `du` counted, for people and for other programs.

use std::path::Path;

use indicatif::HumanBytes;

use super::report::{Document, Line, SecondsLine, StepLine};
use crate::cli::ui::{Format, Tone, Ui, thousands};
use crate::error::Result;

impl Document {
    /// Prints it.
    pub fn show(&self, source: &Path, ui: &Ui) -> Result<()> {
        match ui.format {
            Format::Human => self.print(source, ui),
            Format::Json => ui.json(self),
            Format::Jsonl => ui.jsonl_all(self.units()),
            Format::Csv => ui.csv(&HEADER, self.units().iter().flat_map(csv_rows)),
        }
    }

    /// What is listed: the total, or its parts where they are asked for.
    fn units(&self) -> &[Line] {
        if self.lines.is_empty() { std::slice::from_ref(&self.total) } else { &self.lines }
    }

    fn print(&self, source: &Path, ui: &Ui) -> Result<()> {
        let total = &self.total;
        let media = match self.media_rows {
            0 => String::new(),
            rows => format!("; {} rows with media are left out", thousands(rows)),
        };
        let paths = if total.levels == 1 { "path" } else { "paths" };
        ui.line(format!(
            "{}  {}\n  \
             {} rows of {} rollouts in {} prompt groups; the longest has {} tokens{media}\n  \
             {} row tokens; {} by call, {} by prefix ({:.2} x)\n  \
             {} pairs of attention; {} with each prefix once ({:.2} x), rows of up to {} {paths}\n  \
             {} loss tokens; {} tokens computed; packs: {} shared, {} of rows\n",
            ui.tone(Tone::Strong, source.display()),
            HumanBytes(self.bytes),
            thousands(total.rows),
            thousands(self.rollouts),
            thousands(self.groups),
            thousands(total.longest_row),
            thousands(total.row_tokens),
            thousands(total.call_tokens),
            thousands(total.unique_tokens),
            total.token_ratio,
            thousands(total.row_scores),
            thousands(total.unique_scores),
            total.score_ratio,
            total.levels,
            thousands(total.loss_tokens),
            thousands(total.computed_tokens),
            thousands(total.shared_packs),
            thousands(total.row_packs),
        ))?;
        let steps = total.steps.iter().map(|step| {
            vec![
                step.model.clone(),
                duration(step.rows.total),
                duration(step.shared.total),
                format!("{:.2}", step.speedup),
                format!("{:.2}", step.bound),
                format!("{:.0} %", 100.0 * step.share_of_bound),
            ]
        });
        ui.table(&["step of", "rows", "shared", "faster", "at most", "reached"], steps)?;
        if !self.lines.is_empty() {
            ui.line("")?;
            self.print_lines(ui)?;
        }
        if !self.ranks.is_empty() {
            ui.line("")?;
            self.print_ranks(ui)?;
        }
        Ok(())
    }

    fn print_lines(&self, ui: &Ui) -> Result<()> {
        let by_rollout = self.lines.iter().any(|line| line.rollout_id.is_some());
        let header = [
            if by_rollout { "rollout" } else { "group" },
            "rows",
            "tokens",
            "by call",
            "by prefix",
            "x",
            "pairs x",
            "paths",
            "longest",
            "loss",
            "saved",
            "faster",
        ];
        let rows = self.lines.iter().map(|line| {
            let id = match (&line.rollout_id, &line.group_id) {
                (Some(id), _) => id.to_string(),
                (None, Some(id)) => id.to_string(),
                (None, None) => String::new(),
            };
            let counts = [line.rows, line.row_tokens, line.call_tokens, line.unique_tokens];
            let ratios = [line.token_ratio, line.score_ratio].map(|ratio| format!("{ratio:.2}"));
            let more = [line.levels, line.longest_row, line.loss_tokens];
            let step = line.steps.first();
            let gain = [
                step.map_or(String::new(), |step| duration(step.saved())),
                step.map_or(String::new(), |step| format!("{:.2}", step.speedup)),
            ];
            let counts = counts.map(thousands).into_iter().chain(ratios);
            std::iter::once(id).chain(counts).chain(more.map(thousands)).chain(gain).collect()
        });
        ui.table(&header, rows)
    }

    fn print_ranks(&self, ui: &Ui) -> Result<()> {
        let rows = self.ranks.iter().map(|line| {
            let of_model = self.ranks.iter().filter(|other| other.model == line.model);
            let slowest = of_model.map(|other| other.seconds).fold(0.0, f64::max);
            vec![
                line.model.clone(),
                line.rank.to_string(),
                thousands(line.packs),
                thousands(line.tokens),
                duration(line.seconds),
                format!("{:.0} %", 100.0 * line.seconds / slowest),
            ]
        });
        ui.table(&["packs of", "rank", "packs", "tokens", "time", "busy"], rows)
    }
}

/// Seconds with three digits that say something.
fn duration(seconds: f64) -> String {
    let milliseconds = seconds * 1e3;
    match seconds.abs() {
        s if s >= 100.0 => format!("{seconds:.0} s"),
        s if s >= 10.0 => format!("{seconds:.1} s"),
        s if s >= 1.0 => format!("{seconds:.2} s"),
        s if s >= 0.1 => format!("{milliseconds:.0} ms"),
        s if s >= 0.01 => format!("{milliseconds:.1} ms"),
        _ => format!("{milliseconds:.2} ms"),
    }
}

const HEADER: [&str; 26] = [
    "group_id",
    "rollout_id",
    "rows",
    "row_tokens",
    "call_tokens",
    "unique_tokens",
    "token_ratio",
    "row_scores",
    "unique_scores",
    "score_ratio",
    "levels",
    "longest_row",
    "loss_tokens",
    "computed_tokens",
    "row_packs",
    "shared_packs",
    "model",
    "rows_score_seconds",
    "rows_train_seconds",
    "rows_seconds",
    "shared_score_seconds",
    "shared_train_seconds",
    "shared_seconds",
    "speedup",
    "bound",
    "share_of_bound",
];

/// One row per model, so that a column means one thing.
fn csv_rows(line: &Line) -> Vec<Vec<String>> {
    fn text<T: ToString>(id: &Option<T>) -> String {
        id.as_ref().map(ToString::to_string).unwrap_or_default()
    }
    let of_step = |step: &StepLine| {
        let mut cells = vec![text(&line.group_id), text(&line.rollout_id)];
        let counts = [line.rows, line.row_tokens, line.call_tokens, line.unique_tokens];
        cells.extend(counts.map(|n| n.to_string()));
        cells.push(line.token_ratio.to_string());
        cells.extend([line.row_scores, line.unique_scores].map(|n| n.to_string()));
        cells.push(line.score_ratio.to_string());
        let counts = [line.levels, line.longest_row, line.loss_tokens, line.computed_tokens];
        cells.extend(counts.map(|n| n.to_string()));
        cells.extend([line.row_packs, line.shared_packs].map(|n| n.to_string()));
        cells.push(step.model.clone());
        for seconds in [&step.rows, &step.shared] {
            let SecondsLine { score, train, total, .. } = seconds;
            cells.extend([score, train, total].map(f64::to_string));
        }
        cells.extend([step.speedup, step.bound, step.share_of_bound].map(|x| x.to_string()));
        cells
    };
    line.steps.iter().map(of_step).collect()
}
