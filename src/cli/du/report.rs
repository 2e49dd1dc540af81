//! What `du` counted, as a document and for people.

use std::path::Path;

use indicatif::HumanBytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Counted, Model, Unit};
use crate::cli::ui::{Format, Tone, Ui, thousands};
use crate::error::Result;
use crate::id::{GroupId, RolloutId};
use crate::step::plan::cost::{Rates, Seconds, Work, balance};
use crate::step::plan::repetition::{Prediction, Repetition, Volume};

/// JSON Schema of `--format json`.
pub(in crate::cli) fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

/// What the rows of a group or of a rollout come to.
pub(super) struct Part {
    pub group_id: Option<GroupId>,
    pub rollout_id: Option<RolloutId>,
    pub repetition: Repetition,
}

/// Everything that is counted.
pub(super) struct Table {
    by: Unit,
    rates: Rates,
    models: Vec<Model>,
    pack_tokens: u64,
    /// The selection; `None` for rows.
    pub policy: Option<String>,
    /// Size of the directory.
    pub bytes: u64,
    /// Rows left out.
    pub media_rows: u64,
    groups: u64,
    rollouts: u64,
    total: Repetition,
    lines: Vec<Line>,
}

/// `--format json`. Seconds are predictions for one device.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Document {
    schema_version: u32,
    /// The device that the predictions are for.
    device: &'static str,
    /// Selection policy; null when rows were given.
    policy: Option<String>,
    /// Bytes of the archive or of the rows directory on disk.
    bytes: u64,
    /// Tokens of a pack at most, unless one row has more.
    pack_tokens: u64,
    /// Prompt groups that have rows to train.
    groups: u64,
    /// Rollouts that have rows to train.
    rollouts: u64,
    /// Rows left out because they hold media.
    media_rows: u64,
    /// Everything. Prefixes are shared within a prompt group.
    total: Line,
    /// Each group or rollout, as `--by` asks; what gains the most seconds with the first model
    /// comes first.
    lines: Vec<Line>,
    /// The packs of shared prefixes of every model over `--ranks`.
    ranks: Vec<RankLine>,
}

/// Counts over rows that train and own a token with loss.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Line {
    /// Null in the total.
    group_id: Option<GroupId>,
    /// Null unless by rollout.
    rollout_id: Option<RolloutId>,
    rows: u64,
    /// Tokens of the rows: R.
    row_tokens: u64,
    /// Tokens of the calls in the rows, each call once.
    call_tokens: u64,
    /// Tokens with each prefix once, whichever calls it is of: U.
    unique_tokens: u64,
    /// R / U.
    token_ratio: f64,
    /// Pairs of a token and one that it attends to, row by row: A_R.
    row_scores: u64,
    /// The same with each prefix once: A_U.
    unique_scores: u64,
    /// A_R / A_U.
    score_ratio: f64,
    /// Most paths that a row runs through; 1 when no two rows part.
    levels: u64,
    /// Tokens of the longest row.
    longest_row: u64,
    loss_tokens: u64,
    /// Tokens that packs of shared prefixes compute: U, and what split rows borrow.
    computed_tokens: u64,
    /// Packs of whole rows.
    row_packs: u64,
    /// Packs of shared prefixes.
    shared_packs: u64,
    /// Predictions by model.
    steps: Vec<StepLine>,
}

/// A step of one model, predicted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct StepLine {
    model: String,
    /// Seconds with packed rows.
    rows: SecondsLine,
    /// Seconds with shared prefixes.
    shared: SecondsLine,
    /// Rows over shared, in seconds.
    speedup: f64,
    /// What the speed-up could be at most: tokens, score pairs and loss alone, each prefix once,
    /// in one pack without end.
    bound: f64,
    /// `speedup` over `bound`.
    share_of_bound: f64,
}

/// Parts of a step.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct SecondsLine {
    total: f64,
    score: f64,
    train: f64,
    /// Of the whole step, and so 0 in groups and rollouts.
    update: f64,
}

/// What one rank computes of a step.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct RankLine {
    model: String,
    /// Counted from 0.
    rank: u32,
    packs: u64,
    tokens: u64,
    /// Seconds of its packs, without the update.
    seconds: f64,
}

impl Table {
    pub fn new(by: Unit, rates: Rates, models: Vec<Model>, pack_tokens: u64) -> Self {
        Self {
            by,
            rates,
            models,
            pack_tokens,
            policy: None,
            bytes: 0,
            media_rows: 0,
            groups: 0,
            rollouts: 0,
            total: Repetition::default(),
            lines: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.total.volume.rows == 0
    }

    /// Adds a prompt group; of its packs only the counts are kept.
    pub fn add(&mut self, counted: Counted) {
        self.media_rows += counted.media_rows;
        let Counted { group, rollouts, training_rollouts, .. } = counted;
        if group.repetition.volume.rows == 0 {
            return;
        }
        self.groups += 1;
        self.rollouts += training_rollouts;
        match self.by {
            Unit::Archive => {}
            Unit::Group => self.lines.extend(self.line(&group)),
            Unit::Rollout => {
                let lines: Vec<Line> = rollouts.iter().filter_map(|part| self.line(part)).collect();
                self.lines.extend(lines);
            }
        }
        self.total.add(group.repetition);
    }

    /// A line of a part that has rows. The update belongs to the whole step.
    fn line(&self, part: &Part) -> Option<Line> {
        let (group_id, rollout_id) = (part.group_id.clone(), part.rollout_id.clone());
        let line = Line { group_id, rollout_id, ..self.total_line(&part.repetition, false) };
        (line.rows > 0).then_some(line)
    }

    fn total_line(&self, repetition: &Repetition, update: bool) -> Line {
        let Repetition { volume, packed, shared, .. } = repetition;
        let ratio = |all: u64, once: u64| all as f64 / once.max(1) as f64;
        let Volume { row_tokens, unique_tokens, row_scores, unique_scores, .. } = *volume;
        let steps = self.models.iter().map(|model| {
            let mut predicted = repetition.predict(&self.rates, &model.shape);
            if !update {
                (predicted.rows.update, predicted.shared.update) = (0.0, 0.0);
            }
            StepLine::of(model, predicted)
        });
        Line {
            group_id: None,
            rollout_id: None,
            rows: volume.rows,
            row_tokens,
            call_tokens: volume.call_tokens,
            unique_tokens,
            token_ratio: ratio(row_tokens, unique_tokens),
            row_scores,
            unique_scores,
            score_ratio: ratio(row_scores, unique_scores),
            levels: volume.levels,
            longest_row: volume.longest_row,
            loss_tokens: volume.loss_tokens,
            computed_tokens: Work::sum(shared).tokens,
            row_packs: packed.len() as u64,
            shared_packs: shared.len() as u64,
            steps: steps.collect(),
        }
    }

    /// The document, with the packs balanced over `ranks`.
    pub fn finish(mut self, ranks: Option<u32>) -> Result<Document> {
        self.total.fill(self.pack_tokens)?;
        let saved = |line: &Line| line.steps.first().map_or(0.0, StepLine::saved);
        self.lines.sort_by(|a, b| {
            let ids = |line: &Line| (line.group_id.clone(), line.rollout_id.clone());
            saved(b).total_cmp(&saved(a)).then_with(|| ids(a).cmp(&ids(b)))
        });
        let total = self.total_line(&self.total, true);
        let ranks = ranks.map_or_else(Vec::new, |ranks| {
            self.models.iter().flat_map(|model| self.balanced(model, ranks)).collect()
        });
        Ok(Document {
            schema_version: 1,
            device: "NVIDIA H200",
            policy: self.policy,
            bytes: self.bytes,
            pack_tokens: self.pack_tokens,
            groups: self.groups,
            rollouts: self.rollouts,
            media_rows: self.media_rows,
            total,
            lines: self.lines,
            ranks,
        })
    }

    fn balanced(&self, model: &Model, ranks: u32) -> Vec<RankLine> {
        let packs = &self.total.shared;
        let seconds = |pack: &Work| self.rates.step(&model.shape, pack).packs();
        let costs: Vec<f64> = packs.iter().map(seconds).collect();
        let empty =
            |rank| RankLine { model: model.name.clone(), rank, packs: 0, tokens: 0, seconds: 0.0 };
        let mut lines: Vec<RankLine> = (0..ranks).map(empty).collect();
        for ((rank, pack), cost) in balance(&costs, ranks).into_iter().zip(packs).zip(costs) {
            let line = &mut lines[rank as usize];
            line.packs += 1;
            line.tokens += pack.tokens;
            line.seconds += cost;
        }
        lines
    }
}

impl StepLine {
    fn of(model: &Model, predicted: Prediction) -> Self {
        let Prediction { rows, shared, bound } = predicted;
        let speedup = rows.total() / shared.total();
        Self {
            model: model.name.clone(),
            rows: SecondsLine::of(rows),
            shared: SecondsLine::of(shared),
            speedup,
            bound,
            share_of_bound: speedup / bound,
        }
    }

    fn saved(&self) -> f64 {
        self.rows.total - self.shared.total
    }
}

impl SecondsLine {
    fn of(seconds: Seconds) -> Self {
        let Seconds { score, train, update } = seconds;
        Self { total: seconds.total(), score, train, update }
    }
}

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
