//! How often rows repeat their tokens, and what a step gains by computing each prefix once.

use std::collections::BTreeMap;

use super::cost::{Rates, Seconds, Work};
use super::forest::{Forest, order, triangle};
use super::pack::{Pack, PackPlan, bins, packs};
use super::shape::Shape;
use crate::error::Result;
use crate::rows::{Row, Span};
use crate::step::batch::Batch;

/// Counts over rows that train and own a token with loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Rows.
    pub rows: u64,
    /// Their tokens: R.
    pub row_tokens: u64,
    /// Tokens of their calls, each call of a rollout once.
    pub call_tokens: u64,
    /// Tokens by prefix: those of rows that begin with the same tokens count once. U.
    pub unique_tokens: u64,
    /// Tokens that carry loss; no sharing makes them fewer.
    pub loss_tokens: u64,
    /// Pairs of a token and one that it attends to, itself included, row by row: A_R.
    pub row_scores: u64,
    /// The same with each prefix once: A_U. A token still attends to all of its prefix.
    pub unique_scores: u64,
    /// Most paths that a row runs through, where at each fork a path goes on with the branch that
    /// goes deepest; 1 when no two rows part.
    pub levels: u64,
    /// Tokens of the longest row.
    pub longest_row: u64,
}

impl Volume {
    /// Counts rows that may share: those of a prompt group, or of one rollout.
    ///
    /// # Errors
    ///
    /// Rows that no step takes ([`Batch::new`]).
    pub fn of(rows: &[Row]) -> Result<Self> {
        let batch = Batch::new(rows)?;
        Ok(Self::counted(&batch, &forest(&batch)))
    }

    fn counted(batch: &Batch, forest: &Forest) -> Self {
        let active: Vec<&Row> = batch.active().map(|at| &batch.rows()[at]).collect();
        let tokens = |row: &&Row| row.input_ids.len();
        Self {
            rows: active.len() as u64,
            row_tokens: active.iter().map(tokens).sum::<usize>() as u64,
            call_tokens: call_tokens(&active),
            unique_tokens: forest.ids.len() as u64,
            loss_tokens: batch.valid_tokens(),
            row_scores: active.iter().map(|row| triangle(tokens(row))).sum(),
            unique_scores: forest.scores(),
            levels: forest.paths.iter().map(|path| path.level as u64 + 1).max().unwrap_or(0),
            longest_row: active.iter().map(tokens).max().unwrap_or(0) as u64,
        }
    }

    /// Adds rows that share nothing with these.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.row_tokens += other.row_tokens;
        self.call_tokens += other.call_tokens;
        self.unique_tokens += other.unique_tokens;
        self.loss_tokens += other.loss_tokens;
        self.row_scores += other.row_scores;
        self.unique_scores += other.unique_scores;
        self.levels = self.levels.max(other.levels);
        self.longest_row = self.longest_row.max(other.longest_row);
    }
}

/// What rows repeat, and the packs that they make in either way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repetition {
    /// Counts.
    pub volume: Volume,
    /// Packs of whole rows.
    pub packed: Vec<Work>,
    /// Packs that have a shared prefix once. Rows that do not fit into one pack are split over
    /// several, and what they share is computed in each.
    pub shared: Vec<Work>,
    /// Everything with each prefix once, as if a pack had no end.
    pub ideal: Work,
}

/// Seconds of a step either way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// With packed rows.
    pub rows: Seconds,
    /// With shared prefixes.
    pub shared: Seconds,
    /// How many times faster sharing could get at most ([`Rates::bound`]).
    pub bound: f64,
}

impl Repetition {
    /// Of rows that may share: those of a prompt group, or of one rollout. Packs hold at most
    /// `pack_tokens`, unless one row has more; `dense_tokens` as of [`Work::of`].
    ///
    /// # Errors
    ///
    /// Rows that no step takes ([`Batch::new`]).
    pub fn of(rows: &[Row], pack_tokens: u64, dense_tokens: usize) -> Result<Self> {
        let batch = Batch::new(rows)?;
        let forest = forest(&batch);
        let volume = Volume::counted(&batch, &forest);
        let work = |pack: &Pack| Work::of(&pack.forest, pack.pairs.len(), dense_tokens);
        let packed = |share| -> Result<Vec<Work>> {
            let plan = PackPlan { tokens: Some(pack_tokens), share };
            Ok(packs(&batch, plan)?.iter().map(work).collect())
        };
        Ok(Self {
            volume,
            packed: packed(false)?,
            shared: packed(true)?,
            ideal: Work::of(&forest, volume.loss_tokens as usize, dense_tokens),
        })
    }

    /// Adds rows that share nothing with these, in packs of their own until [`Repetition::fill`].
    pub fn add(&mut self, other: Self) {
        self.volume.add(&other.volume);
        self.packed.extend(other.packed);
        self.shared.extend(other.shared);
        self.ideal.add(&other.ideal);
    }

    /// Puts small packs together as far as `pack_tokens` allow.
    ///
    /// # Errors
    ///
    /// More packs than a batch can have.
    pub fn fill(&mut self, pack_tokens: u64) -> Result<()> {
        self.packed = filled(&self.packed, pack_tokens)?;
        self.shared = filled(&self.shared, pack_tokens)?;
        Ok(())
    }

    /// What the packs cost at `rates`, and the update of the weights once.
    pub fn predict(&self, rates: &Rates, shape: &Shape) -> Prediction {
        let (rows, shared) = (Work::sum(&self.packed), Work::sum(&self.shared));
        Prediction {
            rows: rates.step(shape, &rows),
            shared: rates.step(shape, &shared),
            bound: rates.bound(shape, &rows, &self.ideal),
        }
    }
}

/// The prefixes of all rows that train.
fn forest(batch: &Batch) -> Forest {
    let active: Vec<&[u32]> =
        batch.active().map(|at| batch.rows()[at].input_ids.as_slice()).collect();
    let sequences: Vec<&[u32]> = order(&active).into_iter().map(|at| active[at]).collect();
    Forest::new(&sequences, true)
}

/// Tokens of all calls of all rollouts, each once.
fn call_tokens(rows: &[&Row]) -> u64 {
    let calls = rows.iter().flat_map(|row| {
        let tokens = |span: &Span| u64::from(span.end - span.start);
        row.spans.iter().map(move |span| ((&row.rollout_id, &span.call), tokens(span)))
    });
    calls.collect::<BTreeMap<_, _>>().into_values().sum()
}

/// Packs put together, first fit, the largest first, as the packs themselves are made of rows.
fn filled(packs: &[Work], pack_tokens: u64) -> Result<Vec<Work>> {
    let tokens: Vec<u64> = packs.iter().map(|pack| pack.tokens).collect();
    let Some(longest) = tokens.iter().copied().max() else { return Ok(Vec::new()) };
    let bins = bins(&tokens, pack_tokens.max(longest))?;
    Ok(bins.iter().map(|bin| Work::joined(bin.iter().map(|&at| &packs[at]))).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::step::batch::tests::row;

    /// Rows of one group: ids with their loss, the rollout that owns them, and the lengths of
    /// their calls.
    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let one = (prop::collection::vec((0..2_u32, 0..2_u8), 2..10), 0..3_usize, any::<bool>());
        prop::collection::vec(one, 0..9).prop_map(|rows| {
            let rows = rows.into_iter().enumerate();
            rows.map(|(at, (tokens, owner, trains))| {
                let mut loss_mask: Vec<u8> = tokens.iter().map(|&(_, mask)| mask).collect();
                loss_mask[0] = 0;
                // Calls of two tokens, named by rollout and all that they stand on.
                let ids: Vec<u32> = tokens.iter().map(|&(id, _)| id).collect();
                let spans = (0..ids.len()).step_by(2).map(|start| {
                    let end = (start + 2).min(ids.len());
                    let (start, end) = (start as u32, end as u32);
                    let call = format!("{:?}", &ids[..end as usize]).into();
                    Span { call, start, gen_start: start, end, owned: true, weight_version: None }
                });
                Row {
                    spans: spans.collect(),
                    rollout_id: Some(format!("r{owner}").into()),
                    input_ids: ids,
                    sample_mask: f32::from(trains),
                    ..row(&format!("r{at}_s0"), &loss_mask)
                }
            })
            .collect()
        })
    }

    proptest! {
        #[test]
        fn counts_are_those_of_prefixes_and_calls(rows in rows(), tokens in 1..40_u64) {
            let found = Repetition::of(&rows, tokens, 3).unwrap();
            let active: Vec<&Row> = rows
                .iter()
                .filter(|row| row.sample_mask == 1.0 && row.loss_mask.contains(&1))
                .collect();
            let prefixes: Vec<&[u32]> = active
                .iter()
                .flat_map(|row| (1..=row.input_ids.len()).map(|end| &row.input_ids[..end]))
                .collect();
            let unique: BTreeSet<&[u32]> = prefixes.iter().copied().collect();
            let calls: BTreeSet<_> = active
                .iter()
                .flat_map(|row| row.spans.iter().map(|span| {
                    (row.rollout_id.clone(), span.call.clone(), span.end - span.start)
                }))
                .collect();
            let sum = |lengths: Vec<usize>| lengths.iter().sum::<usize>() as u64;
            let volume = found.volume;
            prop_assert_eq!(volume.rows, active.len() as u64);
            prop_assert_eq!(volume.row_tokens, prefixes.len() as u64);
            prop_assert_eq!(volume.unique_tokens, unique.len() as u64);
            prop_assert_eq!(volume.row_scores, sum(prefixes.iter().map(|p| p.len()).collect()));
            prop_assert_eq!(volume.unique_scores, sum(unique.iter().map(|p| p.len()).collect()));
            prop_assert_eq!(volume.call_tokens, calls.iter().map(|c| u64::from(c.2)).sum::<u64>());
            let loss: usize = active.iter().map(|row| row.loss_tokens()).sum();
            prop_assert_eq!(volume.loss_tokens, loss as u64);
            for packs in [&found.packed, &found.shared] {
                prop_assert_eq!(Work::sum(packs).pairs, volume.loss_tokens);
                prop_assert!(packs.iter().all(|p| p.tokens <= tokens.max(volume.longest_row)));
            }
            prop_assert_eq!(Work::sum(&found.packed).tokens, volume.row_tokens);
            prop_assert!(Work::sum(&found.shared).tokens >= volume.unique_tokens);
            prop_assert!(Work::sum(&found.shared).tokens <= volume.row_tokens);
            prop_assert_eq!(found.ideal.tokens, volume.unique_tokens);

            let mut filled = found.clone();
            filled.fill(tokens).unwrap();
            for (before, after) in
                [(&found.packed, &filled.packed), (&found.shared, &filled.shared)]
            {
                let (before, after) = (Work::sum(before), Work::sum(after));
                prop_assert!(after.packs <= before.packs);
                prop_assert!(after.flash_calls <= before.flash_calls);
                let Work { packs, flash_calls, .. } = before;
                prop_assert_eq!(Work { packs, flash_calls, ..after }, before);
            }
        }

        /// Where both kernels are equally fast and nothing else costs, no split and no shape of
        /// the forest is faster than the bound; where everything fits into one pack, it is met.
        #[test]
        fn nothing_is_faster_than_the_bound(rows in rows(), tokens in 1..60_u64) {
            let rates = Rates {
                flash_forward: Rates::H200.dense_forward,
                flash_backward: Rates::H200.dense_backward,
                merge_forward_bytes: 0.0,
                merge_backward_bytes: 0.0,
                call: 0.0,
                pack_bytes: 0.0,
                update_bytes: 0.0,
                update_start: 0.0,
                ..Rates::H200
            };
            for name in Shape::names() {
                let shape = Shape::named(name).unwrap();
                let predict = |tokens| {
                    let mut found = Repetition::of(&rows, tokens, 3).unwrap();
                    found.fill(tokens).unwrap();
                    found.predict(&rates, &shape)
                };
                let split = predict(tokens);
                prop_assert!(split.bound >= 1.0 - 1e-12);
                let most = split.shared.total() * split.bound;
                prop_assert!(split.rows.total() <= most * (1.0 + 1e-12));
                let whole = predict(u64::MAX);
                let most = whole.shared.total() * whole.bound;
                prop_assert!((whole.rows.total() - most).abs() <= most * 1e-9);
            }
        }
    }

    /// A prompt of 8,192 tokens and sixteen answers of 1,024.
    #[test]
    fn a_tree_over_budget_is_split_and_computes_its_prompt_again() {
        let rows: Vec<Row> = (0..16_u32)
            .map(|answer| {
                let generated = (0..1024).map(|at| 10_000 + 1024 * answer + at);
                Row {
                    input_ids: (0..8192).chain(generated).collect(),
                    ..row(&format!("r{answer}_s0"), &[vec![0; 8192], vec![1; 1024]].concat())
                }
            })
            .collect();
        let of = |tokens| Repetition::of(&rows, tokens, 256).unwrap();
        let tokens = |packs: &[Work]| packs.iter().map(|pack| pack.tokens).collect::<Vec<_>>();
        let split = of(16_384);
        assert_eq!(tokens(&split.shared), [16_384; 2]);
        assert_eq!(tokens(&split.packed), [9216; 16]);
        let whole = of(24_576);
        assert_eq!(tokens(&whole.shared), [24_576]);
        assert_eq!(whole.volume, split.volume);
        assert_eq!((whole.volume.levels, whole.volume.longest_row), (2, 9216));

        let shape = Shape::named("qwen3-4b").unwrap();
        let [split, whole] = [split, whole].map(|found| found.predict(&Rates::H200, &shape));
        let speedup = |found: &Prediction| found.rows.total() / found.shared.total();
        assert_eq!(split.bound, whole.bound);
        assert!(speedup(&split) < speedup(&whole) && speedup(&whole) < whole.bound);
    }
}
