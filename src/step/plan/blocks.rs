//! Attention over a forest cut into blocks of scores, and what each way to compute them would take.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::cost::Rates;
use super::forest::{Forest, Path, triangle};

/// How attention over shared prefixes is computed. The numbers are the same but for rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum AttentionWay {
    /// Whichever is expected to take less time
    #[default]
    Auto,
    /// One call, with the keys of every path gathered behind one another
    Suffix,
    /// Squares and rectangles, merged by their log-sum-exp
    Cascade,
}

/// A block of scores: the causal square of a path, or the rectangle of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First query.
    pub query: usize,
    /// After the last query.
    pub query_end: usize,
    /// First key.
    pub key: usize,
    /// After the last key.
    pub key_end: usize,
    /// 0 of a square; of a rectangle the level of its fork.
    pub level: usize,
    /// Computed by the kernel for one dense block, rather than with others of its level.
    pub dense: bool,
}

impl Block {
    /// Queries that there are.
    pub fn queries(&self) -> usize {
        self.query_end - self.query
    }

    /// Keys that there are.
    pub fn keys(&self) -> usize {
        self.key_end - self.key
    }

    /// Pairs of query and key.
    pub fn scores(&self) -> u64 {
        match self.level {
            0 => triangle(self.queries()),
            _ => (self.queries() * self.keys()) as u64,
        }
    }

    /// Six numbers, as the learner's C++ takes them.
    pub fn numbers(&self) -> [i64; 6] {
        let Self { query, query_end, key, key_end, level, dense } = *self;
        [query, query_end, key, key_end, level, usize::from(dense)].map(|n| n as i64)
    }
}

/// Heads of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadShape {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub dim: usize,
}

/// How often the attention of a pack is computed before the program ends: layers times passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeats {
    /// Forward passes.
    pub forward: f64,
    /// Backward passes.
    pub backward: f64,
}

/// Least side of a dense block. The dense kernel gives wrong gradients for single keys, fails for
/// single queries, and is slower than the other one below about this size.
pub const DENSE_SIDE: usize = 1024;

/// Seconds that the dense kernel takes to get ready for a size that it has not seen, forward and
/// backward, on one H200 (torch 2.11, cuDNN 9).
const DENSE_START: f64 = 0.14;

/// How fast the device is; of others, which kernel is faster is taken to be the same.
const RATES: Rates = Rates::H200;

/// Seconds of a processor to start one kernel call and what goes with it.
const CALL: f64 = 70e-6;

/// The blocks of a forest: squares in order, then rectangles by level. With `heads`, those that the
/// dense kernel computes sooner are marked; it pays for sizes that come often enough.
pub fn blocks(forest: &Forest, heads: Option<(HeadShape, Repeats)>) -> Vec<Block> {
    let squares = forest.paths.iter().map(|path| (&path.tokens, &path.tokens, 0));
    let mut forks: Vec<_> = forest.forks.iter().collect();
    forks.sort_by_key(|fork| (fork.level, fork.queries.start));
    let rectangles = forks.into_iter().map(|fork| (&fork.queries, &fork.keys, fork.level));
    let mut blocks: Vec<Block> = squares
        .chain(rectangles)
        .map(|(queries, keys, level)| Block {
            query: queries.start,
            query_end: queries.end,
            key: keys.start,
            key_end: keys.end,
            level,
            dense: false,
        })
        .collect();
    if let Some((shape, repeats)) = heads {
        let size = |block: &Block| (block.queries(), block.keys(), block.level == 0);
        let mut saved = BTreeMap::new();
        for block in blocks.iter().filter(|b| b.queries().min(b.keys()) >= DENSE_SIDE) {
            *saved.entry(size(block)).or_insert(0.0) +=
                seconds(block, false, shape, repeats) - seconds(block, true, shape, repeats);
        }
        for block in &mut blocks {
            block.dense = saved.get(&size(block)).is_some_and(|&seconds| seconds > DENSE_START);
        }
    }
    blocks
}

/// Seconds of a block's scores: two products each forward, five backward.
fn seconds(block: &Block, dense: bool, shape: HeadShape, repeats: Repeats) -> f64 {
    let (forward, backward) = match dense {
        true => (RATES.dense_forward, RATES.dense_backward),
        false => (RATES.flash_forward, RATES.flash_backward),
    };
    let scores = block.scores() as f64 * (shape.heads * shape.dim) as f64;
    scores * (4.0 * repeats.forward / forward + 10.0 * repeats.backward / backward)
}

/// The way that is expected to take less time for all repeats: `Suffix` or `Cascade`.
pub fn choose(
    forest: &Forest,
    blocks: &[Block],
    shape: HeadShape,
    repeats: Repeats,
) -> AttentionWay {
    if forest.forks.is_empty() {
        return AttentionWay::Cascade;
    }
    let both = repeats.forward + repeats.backward;
    let row = |heads: usize| (heads * shape.dim) as f64;

    let keys = |path: &Path| path.position + path.tokens.len();
    let gathered: usize = forest.paths.iter().map(keys).sum();
    // Keys and values are copied before every call; on the way back, their gradients for every
    // head of the queries are written, summed, and added where they belong.
    let copies = 8.0 * row(shape.kv_heads) * both
        + (4.0 * row(shape.heads) + 12.0 * row(shape.kv_heads)) * repeats.backward;
    let flash = |block: &Block| seconds(block, false, shape, repeats);
    let suffix = blocks.iter().map(flash).sum::<f64>() + gathered as f64 * copies / RATES.memory;

    let mut cascade = 0.0;
    let mut calls = 0;
    let mut batched = BTreeSet::new();
    for block in blocks {
        cascade += seconds(block, block.dense, shape, repeats);
        calls += usize::from(block.dense || batched.insert(block.level));
        if block.level > 0 {
            // The merge, and the sums of gradients.
            let queries = block.queries() as f64 * row(shape.heads);
            let keys = block.keys() as f64 * row(shape.kv_heads);
            cascade += (RATES.merge_forward_bytes * queries * repeats.forward
                + RATES.merge_backward_bytes * (queries + 2.0 * keys) * repeats.backward)
                / RATES.memory;
            if !block.dense {
                cascade += keys * 8.0 * both / RATES.memory;
            }
        }
    }
    // Calls cost time only as far as the device waits for them.
    let cascade = cascade.max(calls as f64 * CALL * both);
    if cascade < suffix { AttentionWay::Cascade } else { AttentionWay::Suffix }
}

#[cfg(test)]
mod tests {
    use super::super::forest::order;
    use super::*;

    const SHAPE: HeadShape = HeadShape { heads: 16, kv_heads: 8, dim: 128 };

    fn forest(prompt: u32, branches: u32, length: u32) -> Forest {
        let row = |branch: u32| -> Vec<u32> {
            (0..prompt).chain((0..length).map(|at| prompt + branch * length + at)).collect()
        };
        let rows: Vec<Vec<u32>> = (0..branches).map(row).collect();
        let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
        let rows: Vec<&[u32]> = order(&rows).into_iter().map(|at| rows[at]).collect();
        Forest::new(&rows, true)
    }

    #[test]
    fn blocks_hold_every_score_once() {
        let forest = forest(100, 5, 20);
        let blocks = blocks(&forest, None);
        assert_eq!(blocks.iter().map(Block::scores).sum::<u64>(), forest.scores());
        assert_eq!(blocks.len(), 6);
        assert!(blocks.is_sorted_by_key(|block| block.level));
    }

    #[test]
    fn dense_blocks_are_large_and_come_often() {
        let forest = forest(8192, 16, 1024);
        let often = Repeats { forward: 28.0 * 20.0, backward: 28.0 * 10.0 };
        let marked = blocks(&forest, Some((SHAPE, often)));
        assert!(marked.iter().filter(|b| b.level > 0).all(|b| b.dense));
        let once = Repeats { forward: 1.0, backward: 0.0 };
        assert!(blocks(&forest, Some((SHAPE, once))).iter().all(|block| !block.dense));
        assert_eq!(choose(&forest, &marked, SHAPE, often), AttentionWay::Cascade);
    }
}
