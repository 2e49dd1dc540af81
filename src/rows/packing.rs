//! Rows to bins of bounded length, as NeMo-RL packs sequences (`spec/semantics.md` section 3,
//! "Packers"). A bin is one packed sequence of a microbatch; no row is ever cut, and a packed row
//! attends to itself alone (rule 127).

use std::collections::{BTreeMap, BTreeSet};

use rand_mt::Mt;
use serde::{Deserialize, Serialize};

pub use crate::config::{MicrobatchOrder, PackingAlgorithm};

/// What bins have to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packing {
    /// Which packer.
    pub algorithm: PackingAlgorithm,
    /// Tokens of a bin at most, padding included.
    pub bin_tokens: u64,
    /// The length of every row is rounded up to a multiple of this.
    pub row_pad_multiple: u64,
    /// The number of bins is a multiple of this, and at least this: the ranks.
    pub bin_multiple: usize,
    /// Order of the bins of a rank.
    pub microbatch_order: MicrobatchOrder,
    /// Seed of [`PackingAlgorithm::FirstFitShuffle`], as of Python's `random.seed`.
    pub seed: u32,
}

/// Why rows cannot be packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackingError {
    /// A row that no bin can hold.
    #[error("row {row} takes {tokens} tokens, a bin holds {bin_tokens}")]
    RowTooLong {
        /// Index of the row.
        row: usize,
        /// Its tokens, rounded up.
        tokens: u64,
        /// Tokens of a bin.
        bin_tokens: u64,
    },
    /// Ranks would have no row.
    #[error("{bins} bins for the ranks need as many rows; there are {rows}")]
    TooFewRows {
        /// Bins that there must be.
        bins: usize,
        /// Rows that there are.
        rows: usize,
    },
}

impl Packing {
    /// Assigns rows of `lengths` tokens to bins; every row is in exactly one. Bin `k` belongs to
    /// rank `k mod bin_multiple`.
    ///
    /// Two departures from the public packer: no bin is ever empty, and a row that is too long is
    /// an error, not a bin of its own.
    ///
    /// # Errors
    ///
    /// A row longer than a bin; fewer rows than bins are needed.
    pub fn pack(&self, lengths: &[u64]) -> Result<Vec<Vec<usize>>, PackingError> {
        let multiple = self.row_pad_multiple.max(1);
        let tokens: Vec<u64> = lengths
            .iter()
            .map(|&length| length.checked_next_multiple_of(multiple).unwrap_or(u64::MAX))
            .collect();
        if let Some(row) = tokens.iter().position(|&tokens| tokens > self.bin_tokens) {
            let (tokens, bin_tokens) = (tokens[row], self.bin_tokens);
            return Err(PackingError::RowTooLong { row, tokens, bin_tokens });
        }
        let rows = Rows { tokens: &tokens, bin_tokens: self.bin_tokens };
        let mut order: Vec<usize> = (0..tokens.len()).collect();
        let mut bins = match self.algorithm {
            PackingAlgorithm::Concatenative => rows.concatenated(),
            PackingAlgorithm::FirstFitDecreasing => {
                order.sort_by_key(|&row| std::cmp::Reverse((tokens[row], row)));
                rows.first_fit(&order)
            }
            PackingAlgorithm::FirstFitShuffle => {
                shuffle(&mut order, self.seed);
                rows.first_fit(&order)
            }
            PackingAlgorithm::ModifiedFirstFitDecreasing => rows.modified_first_fit(),
        };
        self.add_bins(&mut bins, tokens.len())?;
        if self.microbatch_order == MicrobatchOrder::LargestFirst {
            rows.largest_first(&mut bins, self.bin_multiple.max(1));
        }
        Ok(bins)
    }

    /// Makes the number of bins a multiple of the ranks: each new bin takes the last row of the
    /// bin with the most rows (of equal ones the last), which gives all but one of its rows before
    /// the next has to.
    fn add_bins(&self, bins: &mut Vec<Vec<usize>>, rows: usize) -> Result<(), PackingError> {
        let multiple = self.bin_multiple.max(1);
        let target = bins.len().max(multiple).next_multiple_of(multiple);
        if rows < target {
            return Err(PackingError::TooFewRows { bins: target, rows });
        }
        let mut sources: Vec<usize> = (0..bins.len()).collect();
        sources.sort_by_key(|&bin| std::cmp::Reverse((bins[bin].len(), bin)));
        for source in sources {
            while bins.len() < target && bins[source].len() > 1 {
                let row = bins[source].pop();
                bins.push(row.into_iter().collect());
            }
        }
        Ok(())
    }

    /// Bins that tokens of `lengths` need at least, over the bins that there are: 1 is perfect.
    pub fn efficiency(&self, lengths: &[u64], bins: usize) -> f64 {
        let tokens: u64 = lengths.iter().sum();
        match bins {
            0 => 0.0,
            bins => tokens.div_ceil(self.bin_tokens.max(1)) as f64 / bins as f64,
        }
    }
}

/// Rows by their padded tokens.
struct Rows<'a> {
    tokens: &'a [u64],
    bin_tokens: u64,
}

impl Rows<'_> {
    fn concatenated(&self) -> Vec<Vec<usize>> {
        let mut bins: Vec<Vec<usize>> = Vec::new();
        let mut room = 0;
        for (row, &tokens) in self.tokens.iter().enumerate() {
            match bins.last_mut().filter(|_| tokens <= room) {
                Some(bin) => bin.push(row),
                None => {
                    bins.push(vec![row]);
                    room = self.bin_tokens;
                }
            }
            room -= tokens;
        }
        bins
    }

    fn first_fit(&self, order: &[usize]) -> Vec<Vec<usize>> {
        let mut bins: Vec<Vec<usize>> = Vec::new();
        let mut room = Room::of(order.len());
        for &row in order {
            let tokens = self.tokens[row];
            match room.first(bins.len(), tokens) {
                Some(bin) => {
                    bins[bin].push(row);
                    room.take(bin, tokens);
                }
                None => {
                    room.set(bins.len(), self.bin_tokens - tokens);
                    bins.push(vec![row]);
                }
            }
        }
        bins
    }

    /// Johnson and Garey's modified first fit decreasing, with the public packer's ties.
    fn modified_first_fit(&self) -> Vec<Vec<usize>> {
        let more_than = |row: usize, part: u64| {
            u128::from(self.tokens[row]) * u128::from(part) > u128::from(self.bin_tokens)
        };
        let class = |least: u64, below: Option<u64>| {
            (0..self.tokens.len()).filter(move |&row| {
                (least == 0 || more_than(row, least)) && below.is_none_or(|b| !more_than(row, b))
            })
        };
        let by_length = |row: &usize| (self.tokens[*row], *row);
        let falling = |row: usize| (std::cmp::Reverse(self.tokens[row]), row);
        let mut large: Vec<usize> = class(2, None).collect();
        large.sort_by_key(|&row| falling(row));
        let mut medium: BTreeSet<_> = class(3, Some(2)).map(falling).collect();
        let mut small: BTreeSet<_> = class(6, Some(3)).map(|row| by_length(&row)).collect();
        let tiny = class(0, Some(6));

        let mut bins: Vec<Vec<usize>> = large.iter().map(|&row| vec![row]).collect();
        let mut room: Vec<u64> =
            large.iter().map(|&row| self.bin_tokens - self.tokens[row]).collect();
        let mut has_medium = vec![false; bins.len()];
        // The longest medium row that fits, where the bins stand from full to less full.
        for bin in 0..bins.len() {
            let fits = medium.range((std::cmp::Reverse(room[bin]), 0)..).next().copied();
            if let Some(key @ (std::cmp::Reverse(tokens), row)) = fits {
                medium.remove(&key);
                bins[bin].push(row);
                room[bin] -= tokens;
                has_medium[bin] = true;
            }
        }
        // Two small rows each into those that got none: the shortest, and the longest beside it.
        for bin in (0..bins.len()).rev().filter(|&bin| !has_medium[bin]) {
            let mut shortest = small.iter();
            let (Some(&first), Some(&second)) = (shortest.next(), shortest.next()) else { break };
            if first.0 + second.0 > room[bin] {
                continue;
            }
            small.remove(&first);
            bins[bin].push(first.1);
            room[bin] -= first.0;
            // Of equally long ones the first in ascending order that is the longest: the last.
            if let Some(&longest) = small.range(..=(room[bin], usize::MAX)).next_back() {
                small.remove(&longest);
                bins[bin].push(longest.1);
                room[bin] -= longest.0;
            }
        }
        // Everything else by length, as long as the shortest of it fits.
        let order: Vec<usize> = medium
            .into_iter()
            .map(|(_, row)| row)
            .chain(small.into_iter().map(|(_, row)| row))
            .chain({
                let mut tiny: Vec<usize> = tiny.collect();
                tiny.sort_by_key(by_length);
                tiny
            })
            .collect();
        let mut rest: BTreeSet<(std::cmp::Reverse<u64>, usize)> = order
            .iter()
            .enumerate()
            .map(|(place, &row)| (std::cmp::Reverse(self.tokens[row]), place))
            .collect();
        for bin in 0..bins.len() {
            while let Some(&key) = rest.range((std::cmp::Reverse(room[bin]), 0)..).next() {
                rest.remove(&key);
                bins[bin].push(order[key.1]);
                room[bin] -= key.0.0;
            }
        }
        // What is left over: each into the least loaded of new bins, if it fits there. They come
        // by load; of equally loaded ones that which has been so for longest comes first.
        let mut left: BTreeMap<(u64, usize), Vec<usize>> = BTreeMap::new();
        for (turn, (std::cmp::Reverse(tokens), place)) in rest.into_iter().enumerate() {
            let least = left.first_entry().filter(|bin| bin.key().0 + tokens <= self.bin_tokens);
            let (load, mut bin) = match least {
                Some(least) => {
                    let ((load, _), bin) = least.remove_entry();
                    (load, bin)
                }
                None => (0, Vec::new()),
            };
            bin.push(order[place]);
            left.insert((load + tokens, turn), bin);
        }
        bins.extend(left.into_values());
        bins
    }

    /// Sorts the bins of each rank by their tokens, and deals them out again.
    fn largest_first(&self, bins: &mut [Vec<usize>], ranks: usize) {
        let load = |bin: &Vec<usize>| bin.iter().map(|&row| self.tokens[row]).sum::<u64>();
        for rank in 0..ranks.min(bins.len()) {
            let mut own: Vec<Vec<usize>> =
                bins.iter_mut().skip(rank).step_by(ranks).map(std::mem::take).collect();
            own.sort_by_key(|bin| std::cmp::Reverse(load(bin)));
            for (place, bin) in bins.iter_mut().skip(rank).step_by(ranks).zip(own) {
                *place = bin;
            }
        }
    }
}

/// Room left in bins: a tree of maxima over them, so that the first one with enough is found
/// without looking at all. Entry 1 is the root, those of the bins come last.
struct Room(Vec<u64>);

impl Room {
    /// No room in any of as many bins.
    fn of(bins: usize) -> Self {
        Self(vec![0; 2 * bins.next_power_of_two()])
    }

    fn set(&mut self, bin: usize, room: u64) {
        let mut at = self.0.len() / 2 + bin;
        self.0[at] = room;
        while at > 1 {
            at /= 2;
            self.0[at] = self.0[2 * at].max(self.0[2 * at + 1]);
        }
    }

    fn take(&mut self, bin: usize, tokens: u64) {
        self.set(bin, self.0[self.0.len() / 2 + bin] - tokens);
    }

    /// The first of `bins` with room. A row without tokens would fit even where there is no bin.
    fn first(&self, bins: usize, tokens: u64) -> Option<usize> {
        if self.0[1] < tokens {
            return None;
        }
        let mut at = 1;
        while at < self.0.len() / 2 {
            at *= 2;
            at += usize::from(self.0[at] < tokens);
        }
        Some(at - self.0.len() / 2).filter(|&bin| bin < bins)
    }
}

/// Python's `random.Random(seed).shuffle`.
fn shuffle(rows: &mut [usize], seed: u32) {
    let mut random = Mt::new_with_key([seed]);
    for last in (1..rows.len()).rev() {
        let below = last as u64 + 1;
        let bits = 64 - below.leading_zeros();
        let pick = loop {
            let drawn = match bits {
                0..=32 => u64::from(random.next_u32() >> (32 - bits)),
                _ => {
                    let low = u64::from(random.next_u32());
                    low | u64::from(random.next_u32() >> (64 - bits)) << 32
                }
            };
            if drawn < below {
                break drawn as usize;
            }
        };
        rows.swap(last, pick);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [PackingAlgorithm; 4] = [
        PackingAlgorithm::Concatenative,
        PackingAlgorithm::FirstFitDecreasing,
        PackingAlgorithm::FirstFitShuffle,
        PackingAlgorithm::ModifiedFirstFitDecreasing,
    ];

    fn packing(algorithm: PackingAlgorithm, bin_tokens: u64, bin_multiple: usize) -> Packing {
        let (row_pad_multiple, microbatch_order) = (1, MicrobatchOrder::Packer);
        Packing {
            algorithm,
            bin_tokens,
            row_pad_multiple,
            bin_multiple,
            microbatch_order,
            seed: 42,
        }
    }

    /// Bins as digits: `01.2` is rows 0 and 1 in the first bin, 2 in the second.
    fn shown(bins: &[Vec<usize>]) -> String {
        let bin = |bin: &Vec<usize>| bin.iter().map(|row| row.to_string()).collect::<String>();
        bins.iter().map(bin).collect::<Vec<_>>().join(".")
    }

    #[test]
    fn known_assignments() {
        let mixed = [4, 1, 3, 2, 1, 3, 4, 5];
        let tens = [10, 20, 30, 40, 50, 60, 70, 80, 90];
        let unsorted = [10, 50, 100, 20, 80, 30, 70, 40, 60, 90];
        let [concatenative, decreasing, shuffle, modified] = ALL;
        let cases: [(&[u64], u64, PackingAlgorithm, &str); 15] = [
            (&mixed, 5, concatenative, "01.23.45.6.7"),
            (&mixed, 5, decreasing, "7.64.01.53.2"),
            (&mixed, 5, modified, "7.0.6.23.514"),
            (&mixed, 5, shuffle, "341.6.7.2.5.0"),
            (&mixed, 8, concatenative, "012.345.6.7"),
            (&mixed, 8, decreasing, "75.60.2341"),
            (&mixed, 8, modified, "72.5314.06"),
            (&tens, 100, concatenative, "0123.4.5.6.7.8"),
            (&tens, 100, decreasing, "80.71.62.53.4"),
            (&tens, 100, modified, "80.71.62.53.4"),
            (&tens, 100, shuffle, "340.62.71.8.5"),
            (&[30; 5], 100, concatenative, "012.34"),
            (&[30; 5], 100, decreasing, "432.10"),
            (&[30; 5], 100, modified, "34.012"),
            (&unsorted, 100, modified, "2.90.43.65.87.1"),
        ];
        for (lengths, bin_tokens, algorithm, expected) in cases {
            let bins = packing(algorithm, bin_tokens, 1).pack(lengths).unwrap();
            assert_eq!(shown(&bins), expected, "{algorithm:?} of {lengths:?} in {bin_tokens}");
        }
    }

    #[test]
    fn ranks_get_equally_many_bins() {
        let tens = [10, 20, 30, 40, 50, 60, 70, 80, 90];
        let decreasing = |ranks| packing(PackingAlgorithm::FirstFitDecreasing, 100, ranks);
        assert_eq!(shown(&decreasing(2).pack(&tens).unwrap()), "80.71.62.5.4.3");
        assert_eq!(shown(&decreasing(4).pack(&tens).unwrap()), "80.7.6.5.4.3.2.1");
        let few = PackingError::TooFewRows { bins: 4, rows: 3 };
        assert_eq!(decreasing(2).pack(&[100; 3]), Err(few));
        assert_eq!(decreasing(2).efficiency(&tens, 6), 5.0 / 6.0);
    }

    #[test]
    fn rows_are_padded_before_they_are_packed() {
        let padded =
            Packing { row_pad_multiple: 4, ..packing(PackingAlgorithm::Concatenative, 8, 1) };
        assert_eq!(shown(&padded.pack(&[1, 4, 5, 8]).unwrap()), "01.2.3");
        let long = PackingError::RowTooLong { row: 1, tokens: 12, bin_tokens: 8 };
        assert_eq!(padded.pack(&[8, 9]), Err(long));
        assert_eq!(padded.pack(&[u64::MAX]).unwrap_err().to_string().matches("row 0").count(), 1);
    }

    #[test]
    fn the_bins_of_each_rank_can_begin_with_the_largest() {
        let packed = Packing {
            microbatch_order: MicrobatchOrder::LargestFirst,
            ..packing(PackingAlgorithm::Concatenative, 5, 2)
        };
        // In row order 1.2.3.4.5.5: rank 0 has 1, 3 and 5 tokens.
        let bins = packed.pack(&[1, 5, 3, 4, 5, 2]).unwrap();
        assert_eq!(shown(&bins), "4.1.2.3.0.5");
    }

    /// The packers as their rules read, one bin and one row after the other.
    fn slow_first_fit(tokens: &[u64], order: &[usize], bin_tokens: u64) -> Vec<Vec<usize>> {
        let mut bins: Vec<Vec<usize>> = Vec::new();
        for &row in order {
            let fits = |bin: &&mut Vec<usize>| {
                bin.iter().map(|&row| tokens[row]).sum::<u64>() + tokens[row] <= bin_tokens
            };
            match bins.iter_mut().find(fits) {
                Some(bin) => bin.push(row),
                None => bins.push(vec![row]),
            }
        }
        bins
    }

    fn slow_modified(tokens: &[u64], bin_tokens: u64) -> Vec<Vec<usize>> {
        let half = |row: &usize, part: f64| tokens[*row] as f64 > bin_tokens as f64 / part;
        let all: Vec<usize> = (0..tokens.len()).collect();
        let (mut large, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|r| half(r, 2.0));
        let (mut medium, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|r| half(r, 3.0));
        let (mut small, mut tiny): (Vec<_>, Vec<_>) = rest.into_iter().partition(|r| half(r, 6.0));
        large.sort_by_key(|&row| std::cmp::Reverse(tokens[row]));
        medium.sort_by_key(|&row| std::cmp::Reverse(tokens[row]));
        small.sort_by_key(|&row| tokens[row]);
        tiny.sort_by_key(|&row| tokens[row]);
        let mut bins: Vec<Vec<usize>> = large.into_iter().map(|row| vec![row]).collect();
        let load = |bin: &Vec<usize>| bin.iter().map(|&row| tokens[row]).sum::<u64>();
        for bin in &mut bins {
            if let Some(at) = medium.iter().position(|&row| load(bin) + tokens[row] <= bin_tokens) {
                bin.push(medium.remove(at));
            }
        }
        for bin in bins.iter_mut().rev().filter(|bin| bin.len() == 1) {
            if small.len() < 2 || load(bin) + tokens[small[0]] + tokens[small[1]] > bin_tokens {
                continue;
            }
            bin.push(small.remove(0));
            let beside = small.iter().rposition(|&row| load(bin) + tokens[row] <= bin_tokens);
            bin.push(small.remove(beside.unwrap()));
        }
        let mut rest = [medium, small, tiny].concat();
        rest.sort_by_key(|&row| std::cmp::Reverse(tokens[row]));
        for bin in &mut bins {
            while let Some(at) = rest.iter().position(|&r| load(bin) + tokens[r] <= bin_tokens) {
                bin.push(rest.remove(at));
            }
        }
        let mut left: Vec<(u64, Vec<usize>)> = Vec::new();
        for row in rest {
            let (load, mut bin) = match left.first() {
                Some((least, _)) if least + tokens[row] <= bin_tokens => left.remove(0),
                _ => (0, Vec::new()),
            };
            bin.push(row);
            let now = load + tokens[row];
            let at = left.partition_point(|(load, _)| *load <= now);
            left.insert(at, (now, bin));
        }
        bins.extend(left.into_iter().map(|(_, bin)| bin));
        bins
    }

    proptest! {
        #[test]
        fn packers_do_as_their_rules_read(
            lengths in proptest::collection::vec(prop_oneof![1u64..100, 1u64..20], 0..80),
        ) {
            let decreasing = packing(PackingAlgorithm::FirstFitDecreasing, 100, 1);
            let mut order: Vec<usize> = (0..lengths.len()).collect();
            order.sort_by_key(|&row| std::cmp::Reverse((lengths[row], row)));
            if lengths.is_empty() {
                prop_assert!(decreasing.pack(&lengths).is_err());
                return Ok(());
            }
            prop_assert_eq!(
                decreasing.pack(&lengths).unwrap(), slow_first_fit(&lengths, &order, 100));
            let modified = packing(PackingAlgorithm::ModifiedFirstFitDecreasing, 100, 1);
            prop_assert_eq!(modified.pack(&lengths).unwrap(), slow_modified(&lengths, 100));
        }
    }
}
