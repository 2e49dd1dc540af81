//! What `du` counted, and the document that it makes of it.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Counted, Model, Unit};
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
    pub schema_version: u32,
    /// The device that the predictions are for.
    pub device: &'static str,
    /// Selection policy; null when rows were given.
    pub policy: Option<String>,
    /// Bytes of the archive or of the rows directory on disk.
    pub bytes: u64,
    /// Tokens of a pack at most, unless one row has more.
    pub pack_tokens: u64,
    /// Prompt groups that have rows to train.
    pub groups: u64,
    /// Rollouts that have rows to train.
    pub rollouts: u64,
    /// Rows left out because they hold media.
    pub media_rows: u64,
    /// Everything. Prefixes are shared within a prompt group.
    pub total: Line,
    /// Each group or rollout, as `--by` asks; what gains the most seconds with the first model
    /// comes first.
    pub lines: Vec<Line>,
    /// The packs of shared prefixes of every model over `--ranks`.
    pub ranks: Vec<RankLine>,
}

/// Counts over rows that train and own a token with loss.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Line {
    /// Null in the total.
    pub group_id: Option<GroupId>,
    /// Null unless by rollout.
    pub rollout_id: Option<RolloutId>,
    pub rows: u64,
    /// Tokens of the rows: R.
    pub row_tokens: u64,
    /// Tokens of the calls in the rows, each call once.
    pub call_tokens: u64,
    /// Tokens with each prefix once, whichever calls it is of: U.
    pub unique_tokens: u64,
    /// R / U.
    pub token_ratio: f64,
    /// Pairs of a token and one that it attends to, row by row: A_R.
    pub row_scores: u64,
    /// The same with each prefix once: A_U.
    pub unique_scores: u64,
    /// A_R / A_U.
    pub score_ratio: f64,
    /// Most paths that a row runs through; 1 when no two rows part.
    pub levels: u64,
    /// Tokens of the longest row.
    pub longest_row: u64,
    pub loss_tokens: u64,
    /// Tokens that packs of shared prefixes compute: U, and what split rows borrow.
    pub computed_tokens: u64,
    /// Packs of whole rows.
    pub row_packs: u64,
    /// Packs of shared prefixes.
    pub shared_packs: u64,
    /// Predictions by model.
    pub steps: Vec<StepLine>,
}

/// A step of one model, predicted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct StepLine {
    pub model: String,
    /// Seconds with packed rows.
    pub rows: SecondsLine,
    /// Seconds with shared prefixes.
    pub shared: SecondsLine,
    /// Rows over shared, in seconds.
    pub speedup: f64,
    /// What the speed-up could be at most: tokens, score pairs and loss alone, each prefix once,
    /// in one pack without end.
    pub bound: f64,
    /// `speedup` over `bound`.
    pub share_of_bound: f64,
}

/// Parts of a step.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct SecondsLine {
    pub total: f64,
    pub score: f64,
    pub train: f64,
    /// Of the whole step, and so 0 in groups and rollouts.
    pub update: f64,
}

/// What one rank computes of a step.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RankLine {
    pub model: String,
    /// Counted from 0.
    pub rank: u32,
    pub packs: u64,
    pub tokens: u64,
    /// Seconds of its packs, without the update.
    pub seconds: f64,
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

    /// Seconds that sharing saves.
    pub fn saved(&self) -> f64 {
        self.rows.total - self.shared.total
    }
}

impl SecondsLine {
    fn of(seconds: Seconds) -> Self {
        let Seconds { score, train, update } = seconds;
        Self { total: seconds.total(), score, train, update }
    }
}
