//! Rows one after the other as packs: the token sequences that the learner computes at once. Every
//! row keeps its own positions and attends to itself alone (rule 127).

use super::batch::Batch;
use crate::error::{Error, Result};
use crate::rows::packing::{MicrobatchOrder, Packing, PackingAlgorithm};

/// A token that carries loss, and the place whose output predicts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Position in the pack of the token before.
    pub source: usize,
    /// The id to predict.
    pub target: u32,
    /// Index of the row in the batch.
    pub row: usize,
    /// Which of the row's targets it is.
    pub nth: usize,
}

/// Some rows, end to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pack {
    /// Token ids of all rows.
    pub ids: Vec<u32>,
    /// Where each row begins, and the end: one more than there are rows.
    pub bounds: Vec<usize>,
    /// Tokens that carry loss, by row and place.
    pub pairs: Vec<Pair>,
    /// Indices of the rows in the batch.
    pub rows: Vec<usize>,
}

impl Pack {
    /// One sequence by itself, with the positions of `targets`, none of which may be 0.
    pub fn of_one(ids: &[u32], targets: &[usize]) -> Self {
        let mut pack = Self { bounds: vec![0], ..Self::default() };
        pack.push(0, ids, targets);
        pack
    }

    fn push(&mut self, row: usize, ids: &[u32], targets: &[usize]) {
        let start = self.ids.len();
        self.ids.extend_from_slice(ids);
        self.bounds.push(self.ids.len());
        self.rows.push(row);
        self.pairs.extend(targets.iter().enumerate().map(|(nth, &target)| Pair {
            source: start + target - 1,
            target: ids[target],
            row,
            nth,
        }));
    }

    /// Position of every token in its own row.
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.bounds.windows(2).flat_map(|ends| 0..ends[1] - ends[0])
    }

    /// Tokens of the longest row.
    pub fn longest(&self) -> usize {
        self.bounds.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or_default()
    }
}

/// The rows of `batch` that have something to compute, in packs of at most `tokens`, longest rows
/// first; a row that is longer is a pack of its own. Without `tokens`, every row is one, in order.
///
/// # Errors
///
/// More rows than a batch can have.
pub fn packs(batch: &Batch, tokens: Option<u64>) -> Result<Vec<Pack>> {
    let active: Vec<usize> = batch.active().collect();
    if active.is_empty() {
        return Ok(Vec::new());
    }
    let bins: Vec<Vec<usize>> = match tokens {
        None => (0..active.len()).map(|at| vec![at]).collect(),
        Some(tokens) => {
            let lengths: Vec<u64> =
                active.iter().map(|&i| batch.rows()[i].input_ids.len() as u64).collect();
            let longest = lengths.iter().copied().max().unwrap_or_default();
            let packing = Packing {
                algorithm: PackingAlgorithm::FirstFitDecreasing,
                bin_tokens: tokens.max(longest),
                row_pad_multiple: 1,
                bin_multiple: 1,
                microbatch_order: MicrobatchOrder::Packer,
                seed: 0,
            };
            packing.pack(&lengths).map_err(|why| Error::format(why.to_string()))?
        }
    };
    Ok(bins
        .into_iter()
        .filter(|bin| !bin.is_empty())
        .map(|bin| {
            let mut pack = Pack { bounds: vec![0], ..Pack::default() };
            for at in bin {
                let i = active[at];
                pack.push(i, &batch.rows()[i].input_ids, batch.targets(i));
            }
            pack
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::row;
    use super::*;

    #[test]
    fn every_target_of_every_row_is_in_one_pack() {
        let rows = [
            row("a_s0", &[0, 1, 1, 1]),
            row("a_s1", &[0, 0, 1]),
            row("b_s0", &[0, 1]),
            row("c_s0", &[0, 0]),
        ];
        let batch = Batch::new(&rows).unwrap();
        for tokens in [None, Some(1), Some(5), Some(100)] {
            let packs = packs(&batch, tokens).unwrap();
            let mut seen: Vec<(usize, usize)> = Vec::new();
            for pack in &packs {
                assert_eq!(pack.bounds.len(), pack.rows.len() + 1);
                assert_eq!(*pack.bounds.last().unwrap(), pack.ids.len());
                let fits = tokens.is_none_or(|tokens| pack.ids.len() as u64 <= tokens.max(4));
                assert!(fits, "{tokens:?}");
                for pair in &pack.pairs {
                    let at = pack.rows.iter().position(|&row| row == pair.row).unwrap();
                    let target = pair.source + 1 - pack.bounds[at];
                    assert_eq!(batch.targets(pair.row)[pair.nth], target);
                    assert_eq!(rows[pair.row].input_ids[target], pair.target);
                    seen.push((pair.row, pair.nth));
                }
                let positions: Vec<usize> = pack.positions().collect();
                assert_eq!(positions.len(), pack.ids.len());
                assert!(pack.bounds[..pack.rows.len()].iter().all(|&start| positions[start] == 0));
            }
            seen.sort_unstable();
            assert_eq!(seen, [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)], "{tokens:?}");
        }
        assert_eq!(packs(&batch, Some(100)).unwrap().len(), 1);
        assert_eq!(packs(&batch, None).unwrap().len(), 3);
        assert_eq!(packs(&Batch::new(&[]).unwrap(), Some(8)).unwrap(), []);
    }
}
