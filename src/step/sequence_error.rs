//! How far the captured log-probabilities of whole rollouts lie from recomputed ones, and the
//! filter on it (rules 113 to 117).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::batch::Batch;
use super::loss::unclamped;
use crate::id::RolloutId;

/// Mean of `exp |g - p|` over owned tokens, minus infinities left out.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceErrors {
    /// Per rollout over all its rows: every token weighs the same, however it was segmented.
    pub pooled: BTreeMap<RolloutId, f64>,
    /// Per row that trains and owns a finite token, as its index and error.
    pub per_row: Vec<(usize, f64)>,
}

/// The errors of the rows that train, from previous log-probabilities aligned to
/// [`Batch::targets`].
pub fn sequence_errors(batch: &Batch, previous: &[Vec<f64>]) -> SequenceErrors {
    let mut pools: BTreeMap<RolloutId, (f64, u64)> = BTreeMap::new();
    let mut per_row = Vec::new();
    for i in batch.active() {
        let row = &batch.rows()[i];
        let (mut sum, mut count) = (0.0, 0u64);
        for (&position, &p) in batch.targets(i).iter().zip(&previous[i]) {
            let g = unclamped(f64::from(row.generation_logprobs[position]));
            if g.is_finite() && p.is_finite() {
                sum += (g - p).abs().exp();
                count += 1;
            }
        }
        if count == 0 {
            continue;
        }
        per_row.push((i, sum / count as f64));
        if let Some(owner) = &row.rollout_id {
            let pool = pools.entry(owner.clone()).or_default();
            pool.0 += sum;
            pool.1 += count;
        }
    }
    let pooled = pools.into_iter().map(|(id, (sum, count))| (id, sum / count as f64)).collect();
    SequenceErrors { pooled, per_row }
}

/// What a threshold on the pooled error does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Filtered {
    /// Rollouts above the threshold, all of whose rows are masked.
    pub masked_rollouts: Vec<RolloutId>,
    /// Rows masked.
    pub num_masked_seqs: u64,
    /// Share of the masked rows whose reward is exactly 1.
    pub masked_correct_pct: f64,
    /// Errors of single rows before the filter.
    pub before: Option<Spread>,
    /// Errors of single rows that it leaves.
    pub after: Option<Spread>,
}

/// Extent of some errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Greatest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Least.
    pub min: f64,
}

impl SequenceErrors {
    /// The rollouts whose pooled error exceeds `threshold`; without one, none (rule 115). Masking
    /// their rows and recomputing the advantages is the caller's.
    pub fn filter(&self, batch: &Batch, threshold: Option<f64>) -> Filtered {
        let mut filter = SequenceFilter::new(threshold);
        filter.add(self, batch);
        filter.finish()
    }
}

/// The filter over groups that come one after the other.
#[derive(Clone, Debug)]
pub struct SequenceFilter {
    threshold: Option<f64>,
    masked_rollouts: Vec<RolloutId>,
    num_masked_seqs: u64,
    correct: u64,
    before: Vec<f64>,
    after: Vec<f64>,
}

impl SequenceFilter {
    /// A filter that masks whatever exceeds `threshold`.
    pub fn new(threshold: Option<f64>) -> Self {
        Self {
            threshold,
            masked_rollouts: Vec::new(),
            num_masked_seqs: 0,
            correct: 0,
            before: Vec::new(),
            after: Vec::new(),
        }
    }

    /// The rollouts that exceeded the threshold so far.
    pub fn masked_rollouts(&self) -> &[RolloutId] {
        &self.masked_rollouts
    }

    fn masked<'a>(&self, errors: &'a SequenceErrors) -> BTreeSet<&'a RolloutId> {
        let above = |error: f64| self.threshold.is_some_and(|threshold| error > threshold);
        errors.pooled.iter().filter(|(_, error)| above(**error)).map(|(id, _)| id).collect()
    }

    /// Takes the errors of the rows of `batch`.
    pub fn add(&mut self, errors: &SequenceErrors, batch: &Batch) {
        let masked = self.masked(errors);
        let rows = batch.rows();
        let is_masked =
            |i: usize| rows[i].rollout_id.as_ref().is_some_and(|id| masked.contains(id));
        let of_masked = (0..rows.len()).filter(|&i| batch.trains(i) && is_masked(i));
        self.num_masked_seqs += of_masked.clone().count() as u64;
        self.correct += of_masked.filter(|&i| rows[i].reward == Some(1.0)).count() as u64;
        for &(i, error) in &errors.per_row {
            self.before.push(error);
            if !is_masked(i) {
                self.after.push(error);
            }
        }
        self.masked_rollouts.extend(masked.into_iter().cloned());
    }

    /// Takes what another filter of the same threshold took.
    pub fn join(&mut self, next: SequenceFilter) {
        self.masked_rollouts.extend(next.masked_rollouts);
        self.num_masked_seqs += next.num_masked_seqs;
        self.correct += next.correct;
        self.before.extend(next.before);
        self.after.extend(next.after);
    }

    /// What the threshold did: the same numbers in whatever order the groups came.
    pub fn finish(mut self) -> Filtered {
        self.masked_rollouts.sort_unstable();
        self.before.sort_unstable_by(f64::total_cmp);
        self.after.sort_unstable_by(f64::total_cmp);
        Filtered {
            masked_rollouts: self.masked_rollouts,
            num_masked_seqs: self.num_masked_seqs,
            masked_correct_pct: match self.num_masked_seqs {
                0 => 0.0,
                n => self.correct as f64 / n as f64,
            },
            before: Spread::of(self.before.into_iter()),
            after: Spread::of(self.after.into_iter()),
        }
    }
}

impl Filtered {
    /// The numbers by name.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let mut metrics = BTreeMap::from([
            ("seq_logprob_error/num_masked_seqs".to_owned(), self.num_masked_seqs as f64),
            ("seq_logprob_error/masked_correct_pct".to_owned(), self.masked_correct_pct),
        ]);
        for (when, spread) in [("before", self.before), ("after", self.after)] {
            let Some(Spread { max, mean, min }) = spread else { continue };
            for (kind, value) in [("max", max), ("mean", mean), ("min", min)] {
                metrics.insert(format!("seq_logprob_error/{when}/{kind}"), value);
            }
        }
        metrics
    }
}

impl Spread {
    fn of(errors: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let count = errors.clone().count();
        (count > 0).then(|| Self {
            max: errors.clone().fold(f64::NEG_INFINITY, f64::max),
            mean: errors.clone().sum::<f64>() / count as f64,
            min: errors.fold(f64::INFINITY, f64::min),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::row;
    use super::*;
    use crate::rows::Row;

    #[test]
    fn tokens_weigh_the_same_however_a_rollout_is_segmented() {
        let whole = [row("a_s0", &[0, 1, 1, 1])];
        let split = [row("a_s0", &[0, 1]), row("a_s1", &[0, 0, 1, 1])];
        let pooled = |rows: &[_], previous: &[Vec<f64>]| {
            sequence_errors(&Batch::new(rows).unwrap(), previous).pooled
        };
        let one = pooled(&whole, &[vec![-0.5, -0.25, -1.0]]);
        assert_eq!(one, pooled(&split, &[vec![-0.5], vec![-0.25, -1.0]]));
        let expected = (0.5f64.exp() + 0.25f64.exp() + 1.0f64.exp()) / 3.0;
        assert!((one.values().next().unwrap() - expected).abs() < 1e-15);
    }

    /// Another row owns the replayed token, and padding owns nothing: neither is compared.
    #[test]
    fn replayed_prefixes_and_padding_are_not_compared() {
        let mut rows = [row("a_s0", &[0, 1]), row("a_s1", &[0, 0, 1]), row("p_pad0", &[0, 0])];
        rows[1].generation_logprobs[1] = -50.0;
        rows[2] = Row {
            rollout_id: None,
            slot: None,
            is_execution_padding: true,
            uses_borrowed_input: true,
            sample_mask: 0.0,
            generation_logprobs: vec![0.0, -50.0],
            ..rows[2].clone()
        };
        let batch = Batch::new(&rows).unwrap();
        let errors = sequence_errors(&batch, &[vec![-0.5], vec![-0.25], vec![]]);
        assert_eq!(errors.pooled["a"], (0.5f64.exp() + 0.25f64.exp()) / 2.0);
        assert_eq!(errors.per_row, [(0, 0.5f64.exp()), (1, 0.25f64.exp())]);
    }

    #[test]
    fn exceeding_masks_every_row_of_the_rollout_and_equality_does_not() {
        let mut rows = [row("a_s0", &[0, 1]), row("a_s1", &[0, 1]), row("b_s0", &[0, 1])];
        rows[0].generation_logprobs[1] = -10000.0;
        let batch = Batch::new(&rows).unwrap();
        let errors = sequence_errors(&batch, &[vec![-1.0], vec![-1.0], vec![-0.5]]);
        assert_eq!(errors.per_row.len(), 2, "a clamped token is no evidence");
        let filtered = errors.filter(&batch, Some(errors.pooled["b"]));
        assert_eq!(filtered.masked_rollouts, ["a".into()]);
        assert_eq!((filtered.num_masked_seqs, filtered.masked_correct_pct), (2, 1.0));
        assert_eq!(filtered.after.unwrap().max, 0.5f64.exp());
    }
}
