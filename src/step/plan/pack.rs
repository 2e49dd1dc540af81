//! Packs: the tokens that the learner computes at once, and the tokens with loss among them.

use super::forest::{self, Forest};
use crate::error::{Error, Result};
use crate::rows::packing::{MicrobatchOrder, Packing, PackingAlgorithm};
use crate::step::batch::Batch;

/// A token that carries loss, and the place whose output predicts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Place in the pack of the token before.
    pub source: usize,
    /// The id to predict.
    pub target: u32,
    /// Index of the row in the batch.
    pub row: usize,
    /// Which of the row's targets it is.
    pub nth: usize,
}

/// How a batch is put into packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackPlan {
    /// Most tokens of a pack, unless one row alone has more; without it, every row is a pack.
    pub tokens: Option<u64>,
    /// Tokens that rows of a pack share from position 0 on are there once. Each row keeps its own
    /// pairs, so twins share computation and both train.
    pub share: bool,
}

/// Rows whose tokens are computed at once. Every token has the context that it has in its row,
/// and no other (rule 127).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pack {
    /// The tokens.
    pub forest: Forest,
    /// Tokens that carry loss, row after row, by place in the row.
    pub pairs: Vec<Pair>,
    /// Indices of the rows in the batch.
    pub rows: Vec<usize>,
}

impl Pack {
    /// One sequence by itself, with the positions of `targets`, none of which may be 0.
    pub fn of_one(ids: &[u32], targets: &[usize]) -> Self {
        Self::new(&[(0, ids, targets)], false)
    }

    /// Rows with their ids and the positions of their targets, in the order of a forest.
    fn new(rows: &[(usize, &[u32], &[usize])], share: bool) -> Self {
        let sequences: Vec<&[u32]> = rows.iter().map(|(_, ids, _)| *ids).collect();
        let forest = Forest::new(&sequences, share);
        let mut pairs = Vec::new();
        for (at, &(row, ids, targets)) in rows.iter().enumerate() {
            let mut places = forest.stretches(at).into_iter().scan(0, |before, stretch| {
                let begin = *before;
                *before += stretch.len();
                Some((begin, *before, stretch.start))
            });
            let mut here = places.next();
            for (nth, &target) in targets.iter().enumerate() {
                let source = target - 1;
                while here.is_some_and(|(_, end, _)| end <= source) {
                    here = places.next();
                }
                let Some((begin, _, place)) = here else { break };
                let source = place + source - begin;
                pairs.push(Pair { source, target: ids[target], row, nth });
            }
        }
        Self { forest, pairs, rows: rows.iter().map(|(row, ..)| *row).collect() }
    }

    /// Token ids.
    pub fn ids(&self) -> &[u32] {
        &self.forest.ids
    }

    /// Position of every token in its rows.
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.forest.paths.iter().flat_map(|path| path.position..path.position + path.tokens.len())
    }

    /// Positions that there are: tokens of the longest row.
    pub fn longest(&self) -> usize {
        let ends = self.forest.paths.iter().map(|path| path.position + path.tokens.len());
        ends.max().unwrap_or_default()
    }
}

/// Least share of row tokens that must be saved for packs to be put in the order of a forest.
const WORTH_SHARING: f64 = 0.01;

/// Whether the rows of a batch share enough for their shared tokens to be computed once.
pub fn sharing_pays(batch: &Batch) -> bool {
    let rows: Vec<&[u32]> = batch.active().map(|at| &batch.rows()[at].input_ids[..]).collect();
    let order = forest::order(&rows);
    let common = |pair: &[usize]| forest::shared(rows[pair[0]], rows[pair[1]]);
    let shared: usize = order.windows(2).map(common).sum();
    let all: usize = rows.iter().map(|row| row.len()).sum();
    shared as f64 > WORTH_SHARING * all as f64
}

/// The rows of `batch` that have something to compute, in packs. Rows with a common beginning come
/// into one pack as far as they fit; where they do not, what they share is computed in each.
///
/// # Errors
///
/// More rows than a batch can have.
pub fn packs(batch: &Batch, plan: PackPlan) -> Result<Vec<Pack>> {
    let active: Vec<usize> = batch.active().collect();
    let ids = |row: usize| batch.rows()[row].input_ids.as_slice();
    let Some(longest) = active.iter().map(|&row| ids(row).len() as u64).max() else {
        return Ok(Vec::new());
    };
    let budget = plan.tokens.map_or(0, |tokens| tokens.max(longest));
    let in_order: Vec<usize> = match plan.share {
        true => {
            let sequences: Vec<&[u32]> = active.iter().map(|&row| ids(row)).collect();
            forest::order(&sequences).into_iter().map(|at| active[at]).collect()
        }
        false => active,
    };
    // Rows that share anything with the one before stay with it while there is room.
    let mut bunches: Vec<(Vec<usize>, u64)> = Vec::new();
    for &row in &in_order {
        let last = bunches.last_mut().and_then(|(rows, tokens)| {
            let before = rows.last().filter(|_| plan.share)?;
            let common = forest::shared(ids(*before), ids(row)) as u64;
            let more = ids(row).len() as u64 - common;
            (common > 0 && *tokens + more <= budget).then_some((rows, tokens, more))
        });
        match last {
            Some((rows, tokens, more)) => {
                rows.push(row);
                *tokens += more;
            }
            None => bunches.push((vec![row], ids(row).len() as u64)),
        }
    }
    let bins: Vec<Vec<usize>> = match plan.tokens {
        None => (0..bunches.len()).map(|at| vec![at]).collect(),
        Some(_) => {
            let weights: Vec<u64> = bunches.iter().map(|(_, tokens)| *tokens).collect();
            bins(&weights, budget)?
        }
    };
    let pack = |bin: Vec<usize>| {
        // In the order of the forest again, as bunches of one tree may meet here.
        let mut bunched: Vec<usize> = bin;
        if plan.share {
            bunched.sort_unstable();
        }
        let rows = bunched.iter().flat_map(|&bunch| &bunches[bunch].0);
        let rows: Vec<_> = rows.map(|&row| (row, ids(row), batch.targets(row))).collect();
        Pack::new(&rows, plan.share)
    };
    Ok(bins.into_iter().filter(|bin| !bin.is_empty()).map(pack).collect())
}

/// What weighs so many tokens in bins of at most `tokens`: first fit, the heaviest first.
///
/// # Errors
///
/// More than a batch can have.
pub(super) fn bins(weights: &[u64], tokens: u64) -> Result<Vec<Vec<usize>>> {
    let packing = Packing {
        algorithm: PackingAlgorithm::FirstFitDecreasing,
        bin_tokens: tokens,
        row_pad_multiple: 1,
        bin_multiple: 1,
        microbatch_order: MicrobatchOrder::Packer,
        seed: 0,
    };
    packing.pack(weights).map_err(|why| Error::format(why.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rows::Row;
    use crate::step::batch::tests::row;

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let one = (prop::collection::vec((0..2_u32, 0..2_u8), 1..9), any::<bool>());
        prop::collection::vec(one, 0..9).prop_map(|rows| {
            let rows = rows.into_iter().enumerate();
            rows.map(|(at, (tokens, trains))| {
                let mut loss_mask: Vec<u8> = tokens.iter().map(|&(_, mask)| mask).collect();
                loss_mask[0] = 0;
                Row {
                    input_ids: tokens.iter().map(|&(id, _)| id).collect(),
                    sample_mask: f32::from(trains),
                    ..row(&format!("r{at}_s0"), &loss_mask)
                }
            })
            .collect()
        })
    }

    proptest! {
        #[test]
        fn every_target_is_in_one_pack_after_its_own_prefix(
            rows in rows(),
            tokens in prop_oneof![Just(None), (1..40_u64).prop_map(Some)],
            share: bool,
        ) {
            let batch = Batch::new(&rows).unwrap();
            let longest = batch.active().map(|row| rows[row].input_ids.len()).max().unwrap_or(0);
            let mut seen: Vec<(usize, usize)> = Vec::new();
            for pack in packs(&batch, PackPlan { tokens, share }).unwrap() {
                if let Some(tokens) = tokens {
                    prop_assert!(pack.ids().len() <= longest.max(tokens as usize));
                } else if !share {
                    prop_assert_eq!(pack.rows.len(), 1);
                }
                let positions: Vec<usize> = pack.positions().collect();
                prop_assert_eq!(positions.len(), pack.ids().len());
                for pair in &pack.pairs {
                    let target = batch.targets(pair.row)[pair.nth];
                    let ids = &rows[pair.row].input_ids;
                    prop_assert_eq!(ids[target], pair.target);
                    prop_assert_eq!(positions[pair.source], target - 1);
                    let at = pack.rows.iter().position(|&row| row == pair.row).unwrap();
                    let places: Vec<usize> =
                        pack.forest.stretches(at).into_iter().flatten().collect();
                    prop_assert_eq!(places[target - 1], pair.source);
                    let context: Vec<u32> =
                        places[..target].iter().map(|&place| pack.ids()[place]).collect();
                    prop_assert_eq!(&context, &ids[..target]);
                    seen.push((pair.row, pair.nth));
                }
            }
            seen.sort_unstable();
            let all = batch.active().flat_map(|row| {
                (0..batch.targets(row).len()).map(move |nth| (row, nth))
            });
            prop_assert_eq!(seen, all.collect::<Vec<_>>());
        }
    }
}
