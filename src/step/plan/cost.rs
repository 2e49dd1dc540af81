//! What a step costs on a GPU: seconds from counts of work, the shape of a model, and measured rates.
//!
//! A step scores every pack once without gradients, then trains on it with every layer computed
//! again on the way back, and updates the weights. Matrix products are counted in floating-point
//! operations; what runs at the speed of memory in bytes. The source of the counts is the learner
//! itself (`src/learner/decoder.rs`, `attention.cpp`); docs/shared-prefix.md tells how they add up.

use std::collections::BTreeSet;

use super::blocks::{DENSE_SIDE, blocks};
use super::forest::Forest;
use super::shape::Shape;
use crate::rows::shard;

/// Counts of what one pack, or several, make the device do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Packs.
    pub packs: u64,
    /// Tokens that are computed.
    pub tokens: u64,
    /// Tokens that carry loss.
    pub pairs: u64,
    /// Pairs of a query and a key in blocks of the dense kernel.
    pub dense_scores: u64,
    /// Pairs of a query and a key in calls of the flash kernel.
    pub flash_scores: u64,
    /// Queries of forks, whose output is merged with what they have so far.
    pub merged_queries: u64,
    /// Keys of forks, whose gradients are added to what they have so far.
    pub merged_keys: u64,
    /// Calls of the dense kernel in one layer and direction.
    pub dense_calls: u64,
    /// Calls of the flash kernel in one layer and direction.
    pub flash_calls: u64,
}

impl Work {
    /// One pack over `forest` of which `pairs` tokens carry loss. A block with at least
    /// `dense_tokens` queries and keys is a dense call of its own; the others of a level are one
    /// flash call together.
    pub fn of(forest: &Forest, pairs: usize, dense_tokens: usize) -> Self {
        let mut work = Self {
            packs: 1,
            tokens: forest.ids.len() as u64,
            pairs: pairs as u64,
            ..Self::default()
        };
        let mut levels = BTreeSet::new();
        for block in blocks(forest, None) {
            let (queries, keys) = (block.queries(), block.keys());
            if queries.min(keys) >= dense_tokens {
                work.dense_scores += block.scores();
                work.dense_calls += 1;
            } else {
                work.flash_scores += block.scores();
                work.flash_calls += u64::from(levels.insert(block.level));
            }
            if block.level > 0 {
                work.merged_queries += queries as u64;
                work.merged_keys += keys as u64;
            }
        }
        work
    }

    /// Adds other work.
    pub fn add(&mut self, other: &Self) {
        self.packs += other.packs;
        self.tokens += other.tokens;
        self.pairs += other.pairs;
        self.dense_scores += other.dense_scores;
        self.flash_scores += other.flash_scores;
        self.merged_queries += other.merged_queries;
        self.merged_keys += other.merged_keys;
        self.dense_calls += other.dense_calls;
        self.flash_calls += other.flash_calls;
    }

    /// Several packs as one: what the flash kernel computes of a level is one call then.
    pub fn joined<'a>(packs: impl IntoIterator<Item = &'a Self> + Clone) -> Self {
        let flash_calls = packs.clone().into_iter().map(|pack| pack.flash_calls).max();
        Self { packs: 1, flash_calls: flash_calls.unwrap_or(0), ..Self::sum(packs) }
    }

    /// The sum of several.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        all.into_iter().fold(Self::default(), |mut sum, work| {
            sum.add(work);
            sum
        })
    }
}

/// Seconds of the three parts of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seconds {
    /// Log-probabilities under the previous policy, without gradients.
    pub score: f64,
    /// Forward, layers again, and backward.
    pub train: f64,
    /// Gradient norm, update, and weights in bfloat16 again; once a step.
    pub update: f64,
}

impl Seconds {
    /// Of what grows with the packs: all but the update.
    pub fn packs(&self) -> f64 {
        self.score + self.train
    }

    /// Of the whole step.
    pub fn total(&self) -> f64 {
        self.packs() + self.update
    }
}

/// How fast a device works in bfloat16. Operations are floating-point operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Operations per second of matrix products over 16k tokens, at some hidden sizes in ascending
    /// order; linear in between, constant beyond.
    pub gemm: [(usize, f64); 2],
    /// Operations per second of the dense attention kernel, forward.
    pub dense_forward: f64,
    /// Of the dense attention kernel, backward.
    pub dense_backward: f64,
    /// Of the flash attention kernel, forward.
    pub flash_forward: f64,
    /// Of the flash attention kernel, backward.
    pub flash_backward: f64,
    /// Least queries and keys of a block that the dense kernel takes.
    pub dense_tokens: usize,
    /// Forward passes of attention in training: 1 if its output is kept for the way back, 2 if it
    /// is computed again.
    pub attention_forwards: f64,
    /// Bytes per second that element-wise kernels move.
    pub memory: f64,
    /// Bytes per logit beside the products of the head, to score.
    pub head_score_bytes: f64,
    /// The same to train: forward and backward.
    pub head_train_bytes: f64,
    /// Bytes per element of a merged output (queries of forks, by heads and their width).
    pub merge_forward_bytes: f64,
    /// Bytes per element of an added gradient (queries by heads, keys twice by key heads).
    pub merge_backward_bytes: f64,
    /// Seconds that a call of an attention kernel costs beside its operations, one direction.
    pub call: f64,
    /// Bytes per weight that a pack costs: its gradient is added to the float32 sum.
    pub pack_bytes: f64,
    /// Bytes per weight that the update moves: norm, clipping, AdamW, bfloat16 again, checks.
    pub update_bytes: f64,
    /// Seconds of the update, whatever the number of weights: checks of all tensors, one by one.
    pub update_start: f64,
    /// Bytes per second of the update.
    pub optimizer: f64,
}

impl Rates {
    /// One NVIDIA H200 with torch 2.11.0+cu130, fitted to the whole steps of docs/benchmarks.md: five
    /// forests and three models. A kernel by itself is up to a tenth faster, as the device lowers its
    /// clock under long load.
    pub const H200: Self = Self {
        gemm: [(1024, 700e12), (2560, 660e12)],
        dense_forward: 600e12,
        dense_backward: 520e12,
        flash_forward: 290e12,
        flash_backward: 280e12,
        dense_tokens: DENSE_SIDE,
        attention_forwards: 1.0,
        memory: 2.4e12,
        head_score_bytes: 10.0,
        head_train_bytes: 40.0,
        merge_forward_bytes: 28.0,
        merge_backward_bytes: 20.0,
        call: 10e-6,
        pack_bytes: 12.0,
        update_bytes: 100.0,
        update_start: 0.05,
        optimizer: 2.5e12,
    };

    fn gemm(&self, hidden: usize) -> f64 {
        let [(low, slow), (high, fast)] = self.gemm;
        let share = (hidden.clamp(low, high) - low) as f64 / (high - low).max(1) as f64;
        slow + share * (fast - slow)
    }

    /// Seconds of a step that does `work`.
    pub fn step(&self, shape: &Shape, work: &Work) -> Seconds {
        let essential = self.essential(shape, work);
        let layers = shape.layers as f64;
        let width = (shape.heads * shape.head_dim) as f64;
        let key_width = (shape.kv_heads * shape.head_dim) as f64;
        let outputs = layers * work.merged_queries as f64 * width;
        let gradients = outputs + 2.0 * layers * work.merged_keys as f64 * key_width;
        let calls = layers * (work.dense_calls + work.flash_calls) as f64 * self.call;
        let merge = outputs * self.merge_forward_bytes / self.memory;
        let collect = work.packs as f64 * shape.parameters() * self.pack_bytes / self.memory;
        Seconds {
            score: essential.score + merge + calls,
            train: essential.train
                + self.attention_forwards * (merge + calls)
                + gradients * self.merge_backward_bytes / self.memory
                + calls
                + collect,
            update: self.update_start + shape.parameters() * self.update_bytes / self.optimizer,
        }
    }

    /// What tokens, pairs of queries and keys, and tokens with loss cost, and nothing else: no
    /// merge, no call, no pack, no update.
    fn essential(&self, shape: &Shape, work: &Work) -> Seconds {
        let gemm = self.gemm(shape.hidden);
        let tokens = work.tokens as f64;
        // One forward pass; backward is two, by the derivatives of inputs and of weights.
        let layers = tokens * 2.0 * shape.linear() / gemm + tokens * shape.traffic() / self.memory;
        let dense = work.dense_scores as f64 * shape.per_score();
        let flash = work.flash_scores as f64 * shape.per_score();
        let attention = dense / self.dense_forward + flash / self.flash_forward;
        // Five products instead of two: scores again, and the derivatives of four factors.
        let attention_back = 2.5 * (dense / self.dense_backward + flash / self.flash_backward);
        let logits = work.pairs as f64 * shape.vocab as f64;
        let head = logits * 2.0 * shape.hidden as f64 / gemm;
        Seconds {
            score: layers + attention + head + logits * self.head_score_bytes / self.memory,
            train: 4.0 * layers
                + self.attention_forwards * attention
                + attention_back
                + 3.0 * head
                + logits * self.head_train_bytes / self.memory,
            update: 0.0,
        }
    }

    /// How many times faster sharing can get at most: `rows` over `shared`, of which each is one
    /// pack of everything, and only its tokens, pairs of queries and keys, and tokens with loss
    /// cost time. Pairs shrink less than tokens, since every suffix still attends to all of its
    /// prefix, so this lies below the ratio of tokens where attention weighs.
    pub fn bound(&self, shape: &Shape, rows: &Work, shared: &Work) -> f64 {
        let of = |work| self.essential(shape, work).packs();
        match of(shared) {
            0.0 => 1.0,
            shared => of(rows) / shared,
        }
    }
}

/// The rank of each of `costs`, in seconds: the dearest first, each to the rank with the least so
/// far. Ranks count from 0. Depends on costs and their order alone.
pub fn balance(costs: &[f64], ranks: u32) -> Vec<u32> {
    // Whole nanoseconds, so that sums are exact and the order of additions says nothing.
    let items: Vec<(usize, u64)> =
        costs.iter().enumerate().map(|(at, cost)| (at, (cost * 1e9).round() as u64)).collect();
    shard::balance(&items, ranks).into_iter().map(|rank| rank - 1).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::step::plan::forest::order;

    fn forest(rows: &[Vec<u32>], share: bool) -> Forest {
        let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
        let rows: Vec<&[u32]> = order(&rows).into_iter().map(|at| rows[at]).collect();
        Forest::new(&rows, share)
    }

    /// A tree of `(tokens, branches)` levels; every branch is new text.
    fn tree(levels: &[(usize, usize)]) -> Vec<Vec<u32>> {
        let mut next = 0..;
        let mut rows = vec![Vec::new()];
        for &(tokens, branches) in levels {
            let fork = |row: Vec<u32>| -> Vec<Vec<u32>> {
                let branch = |_| [row.clone(), next.by_ref().take(tokens).collect()].concat();
                (0..branches).map(branch).collect()
            };
            rows = rows.into_iter().flat_map(fork).collect();
        }
        rows
    }

    /// Nothing costs time but products and attention, at one rate each way.
    const PLAIN: Rates = Rates {
        gemm: [(0, 650e12), (1, 650e12)],
        dense_forward: 350e12,
        dense_backward: 300e12,
        flash_forward: 350e12,
        flash_backward: 300e12,
        attention_forwards: 2.0,
        memory: f64::INFINITY,
        call: 0.0,
        optimizer: f64::INFINITY,
        ..Rates::H200
    };

    /// Speed-ups of training that were worked out apart from this code, at the rates of `PLAIN` and
    /// for attention over gathered keys, whose traffic is added here.
    #[test]
    fn speed_ups_of_known_forests() {
        let cases = [
            (vec![(8192, 1), (1024, 16)], 6.00, 3.86, [3.8, 4.5, 4.9]),
            (vec![(1024, 1), (4096, 8)], 1.21, 1.04, [1.05, 1.13, 1.15]),
            (vec![(6144, 1), (3072, 4), (1536, 4)], 4.00, 2.58, [2.6, 3.0, 3.3]),
        ];
        for (levels, ratio, areas, speedups) in cases {
            let rows = tree(&levels);
            let work = |share| Work::of(&forest(&rows, share), 0, 256);
            let (rows, shared) = (work(false), work(true));
            let tokens = rows.tokens as f64 / shared.tokens as f64;
            assert!((tokens - ratio).abs() < 0.006, "{levels:?}: {tokens}");
            let scores = |work: &Work| (work.dense_scores + work.flash_scores) as f64;
            let found = scores(&rows) / scores(&shared);
            assert!((found - areas).abs() < 0.006, "{levels:?}: {found}");
            for (name, speedup) in ["qwen3-0.6b", "qwen3-4b", "qwen3-8b"].iter().zip(speedups) {
                let shape = Shape::named(name).unwrap();
                let train = |work| PLAIN.step(&shape, work).train;
                let copied = (4 * shape.kv_heads * shape.head_dim) as f64 * rows.tokens as f64;
                let times = (11 + 2 * shape.heads / shape.kv_heads) as f64;
                let gather = shape.layers as f64 * times * copied / 3.5e12;
                let found = train(&rows) / (train(&shared) + gather);
                assert!((found / speedup - 1.0).abs() < 0.025, "{levels:?} {name}: {found}");
            }
        }
    }

    /// A chain of 40 texts of 400 tokens, and a branch of 300 that leaves at every second one.
    fn chain() -> Vec<Vec<u32>> {
        let chain: Vec<u32> = (0..16_000).collect();
        let branch = |at: u32| -> Vec<u32> {
            let own = 100_000 + 300 * at..100_000 + 300 * (at + 1);
            chain[..800 * at as usize].iter().copied().chain(own).collect()
        };
        (1..=20).map(branch).chain([chain.clone()]).collect()
    }

    /// Whole steps of docs/benchmarks.md on an H200, in packs of at most 65,536 tokens: seconds
    /// with packed rows and with shared prefixes. A row takes part in the loss with its last text.
    #[test]
    fn steps_of_measured_forests() {
        let cases = [
            (tree(&[(8192, 1), (1024, 16)]), "qwen3-4b", 3, 1, 16_384, [14.0, 3.02]),
            (tree(&[(1024, 1), (4096, 8)]), "qwen3-4b", 1, 1, 32_768, [3.89, 3.48]),
            (tree(&[(8192, 1), (1024, 16)]), "qwen3-1.7b", 3, 1, 16_384, [5.93, 1.36]),
            (tree(&[(6144, 1), (3072, 4), (1536, 4)]), "qwen3-1.7b", 3, 1, 24_576, [7.22, 2.36]),
            (tree(&[(8192, 1), (1024, 16)]), "qwen3-0.6b", 3, 1, 16_384, [3.49, 0.896]),
            (tree(&[(1024, 1), (4096, 8)]), "qwen3-0.6b", 1, 1, 32_768, [1.01, 1.02]),
            (tree(&[(6144, 1), (3072, 4), (1536, 4)]), "qwen3-0.6b", 3, 1, 24_576, [4.31, 1.61]),
            (tree(&[(4096, 1), (6144, 24)]), "qwen3-0.6b", 4, 3, 147_456, [6.53, 5.23]),
            (chain(), "qwen3-0.6b", 3, 1, 17_000, [4.50, 1.02]),
        ];
        for (rows, name, row_packs, shared_packs, pairs, measured) in cases {
            for (share, packs, seconds) in
                [(false, row_packs, measured[0]), (true, shared_packs, measured[1])]
            {
                let work = Work::of(&forest(&rows, share), pairs, DENSE_SIDE);
                // Borrowed prefixes of further packs weigh little here.
                let work = Work { packs, ..work };
                let found = Rates::H200.step(&Shape::named(name).unwrap(), &work).total();
                let off = found / seconds - 1.0;
                assert!(off.abs() < 0.15, "{name} {} rows, share {share}: {off}", rows.len());
            }
        }
    }

    fn forests() -> impl Strategy<Value = Vec<Vec<u32>>> {
        prop::collection::vec(prop::collection::vec(0..3_u32, 1..12), 1..12)
    }

    proptest! {
        #[test]
        fn work_counts_every_prefix_once(rows in forests(), share: bool, dense in 1..8_usize) {
            let prefixes: Vec<&[u32]> =
                rows.iter().flat_map(|row| (1..=row.len()).map(|end| &row[..end])).collect();
            let unique: BTreeSet<&[u32]> = prefixes.iter().copied().collect();
            let seen: Vec<&[u32]> = if share { unique.into_iter().collect() } else { prefixes };
            // A token attends to all of the prefix that ends with it.
            let scores: usize = seen.iter().map(|prefix| prefix.len()).sum();
            let forest = forest(&rows, share);
            let work = Work::of(&forest, 5, dense);
            prop_assert_eq!((work.packs, work.pairs), (1, 5));
            prop_assert_eq!(work.tokens, seen.len() as u64);
            prop_assert_eq!(work.dense_scores + work.flash_scores, scores as u64);

            let all_dense = Work::of(&forest, 0, 1);
            prop_assert_eq!(all_dense.dense_scores, scores as u64);
            prop_assert_eq!(all_dense.dense_calls as usize, forest.paths.len() + forest.forks.len());
            let all_flash = Work::of(&forest, 0, usize::MAX);
            prop_assert_eq!(all_flash.flash_scores, scores as u64);
            let levels = forest.paths.iter().map(|path| path.level).max().unwrap_or(0);
            prop_assert_eq!(all_flash.flash_calls as usize, 1 + levels);
            // Every token of a path is a query once for each path that it runs through before.
            let merged: usize =
                forest.paths.iter().map(|path| path.level * path.tokens.len()).sum();
            prop_assert_eq!(work.merged_queries as usize, merged);
        }

        #[test]
        fn the_dearest_goes_where_least_is(
            costs in prop::collection::vec((0..40_u32).prop_map(|n| f64::from(n) / 8.0), 0..8),
            ranks in 1..4_u32,
        ) {
            let assigned = balance(&costs, ranks);
            prop_assert_eq!(assigned.len(), costs.len());
            let slowest = |assigned: &[u32]| {
                (0..ranks)
                    .map(|rank| {
                        let own = costs.iter().zip(assigned).filter(|(_, at)| **at == rank);
                        own.map(|(cost, _)| cost).sum::<f64>()
                    })
                    .fold(0.0, f64::max)
            };
            let ways = u32::pow(ranks, costs.len() as u32);
            let way = |way: u32| -> Vec<u32> {
                (0..costs.len() as u32).map(|at| way / ranks.pow(at) % ranks).collect()
            };
            let best = (0..ways).map(|at| slowest(&way(at))).fold(f64::INFINITY, f64::min);
            // Graham 1969: largest first is within 4/3 - 1/(3 ranks) of the best.
            let factor = 4.0 / 3.0 - 1.0 / (3.0 * f64::from(ranks));
            prop_assert!(slowest(&assigned) <= best * factor + 1e-6);
        }
    }
}
