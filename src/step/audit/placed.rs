//! Rows with the log-probability of every token that they hold as generated.

use std::collections::{BTreeSet, HashMap};

use super::contexts::Generation;
use crate::id::{CallId, RolloutId};
use crate::rows::{Row, Span};

/// Whether the tokens of a row are its owner's, and a decoder of text can compute them.
pub fn is_scorable(row: &Row) -> bool {
    !row.uses_borrowed_input && !row.is_execution_padding && row.media.is_empty()
}

/// A copy of a row in which every generated token carries loss, borrowed ones too, so that
/// whatever scores rows that train scores all of them. The first token of a row is left out:
/// nothing predicts it.
pub fn generated(row: &Row) -> Row {
    let mut loss_mask = vec![0; row.input_ids.len()];
    for span in &row.spans {
        loss_mask[(span.gen_start as usize).max(1).min(span.end as usize)..span.end as usize]
            .fill(1);
    }
    Row {
        loss_mask,
        generation_logprobs: vec![0.0; row.input_ids.len()],
        advantage: 0.0,
        sample_mask: 1.0,
        ..row.clone()
    }
}

/// A span of a row with the log-probabilities of its generation there.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// The row.
    pub row: &'a Row,
    /// The span.
    pub span: &'a Span,
    /// `[generated tokens of the span]`; NaN at the first token of a row.
    pub in_row: &'a [f64],
}

/// Rows that were scored, and where each call is in them.
#[derive(Clone, Debug, Default)]
pub struct ScoredRows {
    rows: Vec<Row>,
    /// One entry per token, NaN where it was not scored.
    logprobs: Vec<Vec<f64>>,
    places: HashMap<RolloutId, HashMap<CallId, Vec<(usize, usize)>>>,
}

impl ScoredRows {
    /// Joins scorable rows with their scores: those of each row's generated tokens in order, as
    /// [`generated`] marks them.
    pub fn new(rows: Vec<Row>, scores: &[Vec<f64>]) -> Self {
        let mut scored = Self::default();
        for (at, (row, scores)) in rows.iter().zip(scores).enumerate() {
            let mut logprobs = vec![f64::NAN; row.input_ids.len()];
            let marked = generated(row).loss_mask;
            let targets = (0..logprobs.len()).filter(|&t| marked[t] == 1);
            targets.zip(scores).for_each(|(t, &score)| logprobs[t] = score);
            scored.logprobs.push(logprobs);
            let Some(rollout_id) = &row.rollout_id else { continue };
            let places = scored.places.entry(rollout_id.clone()).or_default();
            for (number, span) in row.spans.iter().enumerate() {
                places.entry(span.call.clone()).or_default().push((at, number));
            }
        }
        scored.rows = rows;
        scored
    }

    /// Whether a row holds the call.
    pub fn hold(&self, rollout_id: &RolloutId, call_id: &CallId) -> bool {
        self.places.get(rollout_id).is_some_and(|calls| calls.contains_key(call_id))
    }

    /// The spans of a generation, owned ones first, then in row order.
    pub fn places(&self, generation: &Generation) -> Vec<Placed<'_>> {
        let calls = self.places.get(&generation.rollout_id);
        let at = calls.and_then(|calls| calls.get(&generation.call_id));
        let mut places: Vec<_> =
            at.into_iter().flatten().map(|&(row, span)| self.place(row, span)).collect();
        places.sort_by_key(|placed| !placed.span.owned);
        places
    }

    fn place(&self, row: usize, span: usize) -> Placed<'_> {
        let (at, row) = (row, &self.rows[row]);
        let span = &row.spans[span];
        let in_row = &self.logprobs[at][span.gen_start as usize..span.end as usize];
        Placed { row, span, in_row }
    }

    /// Spans of calls that are not among `known`, in row order.
    pub fn strangers<'a>(
        &'a self,
        known: &'a BTreeSet<(RolloutId, CallId)>,
    ) -> impl Iterator<Item = Placed<'a>> {
        let spans = self.rows.iter().enumerate().flat_map(|(at, row)| {
            let rollout = row.rollout_id.iter();
            rollout.flat_map(move |rollout| {
                let spans = (0..row.spans.len()).map(move |span| (at, span));
                spans.map(move |place| (rollout, place))
            })
        });
        spans
            .map(|(rollout, (row, span))| (rollout, self.place(row, span)))
            .filter(|(rollout, placed)| {
                !known.contains(&((*rollout).clone(), placed.span.call.clone()))
            })
            .map(|(_, placed)| placed)
    }
}
