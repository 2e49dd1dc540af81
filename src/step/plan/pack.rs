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
/// into one pack as far as they fit; where they do not, what they share is computed in each. Packs
/// are made as even as that leaves them: memory is that of the largest.
///
/// # Errors
///
/// More rows than a batch can have.
pub fn packs(batch: &Batch, plan: PackPlan) -> Result<Vec<Pack>> {
    let active: Vec<usize> = batch.active().collect();
    let ids = |row: usize| batch.rows()[row].input_ids.as_slice();
    let in_order: Vec<usize> = match plan.share {
        true => {
            let sequences: Vec<&[u32]> = active.iter().map(|&row| ids(row)).collect();
            forest::order(&sequences).into_iter().map(|at| active[at]).collect()
        }
        false => active,
    };
    let mut queue: Vec<Queued> = Vec::with_capacity(in_order.len());
    for (at, &row) in in_order.iter().enumerate() {
        let before = at.checked_sub(1).filter(|_| plan.share).map(|before| in_order[before]);
        let shared = before.map_or(0, |before| forest::shared(ids(before), ids(row)) as u64);
        queue.push(Queued { row, tokens: ids(row).len() as u64, shared });
    }
    let Some(longest) = queue.iter().map(|queued| queued.tokens).max() else {
        return Ok(Vec::new());
    };
    let rows = match plan.tokens {
        None => in_order.iter().map(|&row| vec![row]).collect(),
        Some(tokens) => even(&queue, longest, tokens.max(longest))?.rows,
    };
    let pack = |rows: Vec<usize>| {
        let rows: Vec<_> = rows.iter().map(|&row| (row, ids(row), batch.targets(row))).collect();
        Pack::new(&rows, plan.share)
    };
    Ok(rows.into_iter().map(pack).collect())
}

/// A row in the order in which packs take them.
struct Queued {
    row: usize,
    tokens: u64,
    /// Tokens of its beginning that are those of the row before.
    shared: u64,
}

/// Which rows come into which pack, and the tokens of each pack.
struct Layout {
    rows: Vec<Vec<usize>>,
    tokens: Vec<u64>,
}

/// Steps by which the most tokens of a pack are lowered, as a share of what is allowed.
const EVEN_STEPS: u64 = 64;

/// The layout whose largest pack is the smallest, of those with as few packs and tokens as
/// `budget` allows.
fn even(queue: &[Queued], longest: u64, budget: u64) -> Result<Layout> {
    let mut best = lay_out(queue, budget)?;
    let largest = |layout: &Layout| layout.tokens.iter().copied().max().unwrap_or_default();
    let (mut low, mut high) = (longest, largest(&best));
    while best.rows.len() > 1 && low + (budget / EVEN_STEPS).max(1) < high {
        let middle = low.midpoint(high);
        let layout = lay_out(queue, middle)?;
        let no_worse = layout.rows.len() <= best.rows.len()
            && layout.tokens.iter().sum::<u64>() <= best.tokens.iter().sum::<u64>();
        if no_worse {
            high = largest(&layout);
            best = layout;
        } else {
            low = middle;
        }
    }
    Ok(best)
}

/// Packs of at most `budget` tokens. Rows that share anything with the one before stay with it while
/// there is room.
fn lay_out(queue: &[Queued], budget: u64) -> Result<Layout> {
    let mut bunches: Vec<(Vec<usize>, u64)> = Vec::new();
    for queued in queue {
        let more = queued.tokens - queued.shared;
        let fits = |tokens: u64| queued.shared > 0 && tokens + more <= budget;
        match bunches.last_mut().filter(|(_, tokens)| fits(*tokens)) {
            Some((rows, tokens)) => {
                rows.push(queued.row);
                *tokens += more;
            }
            None => bunches.push((vec![queued.row], queued.tokens)),
        }
    }
    let weights: Vec<u64> = bunches.iter().map(|(_, tokens)| *tokens).collect();
    let mut bins = bins(&weights, budget)?;
    bins.retain(|bin| !bin.is_empty());
    // In the order of the forest again, as bunches of one tree may meet in a bin.
    if queue.iter().any(|queued| queued.shared > 0) {
        bins.iter_mut().for_each(|bin| bin.sort_unstable());
    }
    let rows_of =
        |bin: &Vec<usize>| bin.iter().flat_map(|&at| bunches[at].0.iter().copied()).collect();
    let tokens_of = |bin: &Vec<usize>| bin.iter().map(|&at| weights[at]).sum();
    Ok(Layout {
        rows: bins.iter().map(rows_of).collect(),
        tokens: bins.iter().map(tokens_of).collect(),
    })
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

    #[test]
    fn packs_are_even() {
        // A prompt of 400 and 24 generations of 600: ten fit at most, eight in each of three packs.
        let row = |branch: u32| {
            let tokens = (0..400).chain(1000 * (branch + 1)..1000 * (branch + 1) + 600);
            let mask: Vec<u8> = (0..1000).map(|at| u8::from(at >= 400)).collect();
            Row { input_ids: tokens.collect(), ..row(&format!("r{branch}_s0"), &mask) }
        };
        let rows: Vec<Row> = (0..24).map(row).collect();
        let batch = Batch::new(&rows).unwrap();
        let of = |share, tokens| -> Vec<usize> {
            let packs = packs(&batch, PackPlan { tokens: Some(tokens), share }).unwrap();
            packs.iter().map(|pack| pack.ids().len()).collect()
        };
        assert_eq!(of(true, 6400), [5200; 3]);
        assert_eq!(of(false, 7900), [6000; 4]);
        assert_eq!(of(true, 100_000), [400 + 24 * 600]);
    }

    proptest! {
        #[test]
        fn even_packs_are_no_more_and_hold_no_more(
            rows in prop::collection::vec((1..50_u64, 0..50_u64), 1..40),
            room in 0..200_u64,
        ) {
            let queued = rows.iter().enumerate().map(|(row, &(tokens, shared))| {
                let before = row.checked_sub(1).map_or(0, |before| rows[before].0);
                Queued { row, tokens, shared: shared.min(tokens - 1).min(before) }
            });
            let queue: Vec<Queued> = queued.collect();
            let longest = queue.iter().map(|queued| queued.tokens).max().unwrap();
            let full = lay_out(&queue, longest + room).unwrap();
            let even = even(&queue, longest, longest + room).unwrap();
            prop_assert!(even.rows.len() <= full.rows.len());
            prop_assert!(even.tokens.iter().sum::<u64>() <= full.tokens.iter().sum::<u64>());
            prop_assert!(even.tokens.iter().max() <= full.tokens.iter().max());
            let mut all: Vec<usize> = even.rows.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..queue.len()).collect::<Vec<_>>());
        }

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
