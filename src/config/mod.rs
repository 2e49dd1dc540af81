//! Settings of the later stages as plain values.

pub mod document;
mod fraction;
pub mod loss;
mod packing;
pub mod recipe;

use std::num::NonZeroU32;

pub use fraction::Fraction;
pub use packing::{MicrobatchOrder, PackingAlgorithm};

use serde::{Deserialize, Serialize};

/// How rows are spread over ranks and microbatches; decides the execution padding (rule 103).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSettings {
    /// Data-parallel ranks.
    pub data_parallel: NonZeroU32,
    /// Rows of one training microbatch.
    pub train_micro_batch: NonZeroU32,
    /// Rows of one log-probability microbatch.
    pub logprob_micro_batch: NonZeroU32,
    /// Rows are packed into bins, so that only the ranks divide their number.
    pub sequence_packing: bool,
}

impl Default for BatchSettings {
    fn default() -> Self {
        let one = NonZeroU32::MIN;
        Self {
            data_parallel: one,
            train_micro_batch: one,
            logprob_micro_batch: one,
            sequence_packing: false,
        }
    }
}

impl BatchSettings {
    /// The number that divides the rows of every prompt group: lcm(ranks x train microbatch,
    /// ranks x log-probability microbatch), or the ranks alone with packing. `None` beyond
    /// [`MAX_ROW_MULTIPLE`].
    pub fn row_multiple(&self) -> Option<u32> {
        let (train, logprob) = match self.sequence_packing {
            true => (1, 1),
            false => (self.train_micro_batch.get(), self.logprob_micro_batch.get()),
        };
        let micro = u64::from(train) / u64::from(gcd(train, logprob)) * u64::from(logprob);
        let multiple = u128::from(micro) * u128::from(self.data_parallel.get());
        u32::try_from(multiple).ok().filter(|&multiple| multiple <= MAX_ROW_MULTIPLE)
    }
}

/// Every prompt group is padded to a multiple of at most this many rows, each as long as a real
/// one; a larger number is a slip, and would fill the memory with padding.
pub const MAX_ROW_MULTIPLE: u32 = 1 << 14;

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whose rewards enter the baseline of a group (rule 116, `grpo.masked_reward_policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum MaskedRewardPolicy {
    /// Only owners that train
    #[default]
    Exclude,
    /// Also owners that a learner filter masks (overlong, sequence error)
    Include,
    /// Every slot of the group
    IncludeAll,
}

/// How rewards become advantages (`grpo.*`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrpoSettings {
    /// Leave the owner's own reward out of its baseline.
    pub leave_one_out: bool,
    /// Divide by the standard deviation of the rewards.
    pub normalize: bool,
    /// Lower bound of advantages (`grpo.advantage_clip_low`).
    pub advantage_clip_low: Option<f64>,
    /// Upper bound of advantages (`grpo.advantage_clip_high`).
    pub advantage_clip_high: Option<f64>,
    /// Rollouts with a length stop carry no loss (rule 109).
    pub overlong_filtering: bool,
    /// Who votes in the baseline.
    pub masked_reward_policy: MaskedRewardPolicy,
}

impl Default for GrpoSettings {
    fn default() -> Self {
        Self {
            leave_one_out: true,
            normalize: true,
            advantage_clip_low: None,
            advantage_clip_high: None,
            overlong_filtering: false,
            masked_reward_policy: MaskedRewardPolicy::Exclude,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multiple(ranks: u32, train: u32, logprob: u32, sequence_packing: bool) -> Option<u32> {
        let n = |n| NonZeroU32::new(n).unwrap();
        BatchSettings {
            data_parallel: n(ranks),
            train_micro_batch: n(train),
            logprob_micro_batch: n(logprob),
            sequence_packing,
        }
        .row_multiple()
    }

    #[test]
    fn row_multiple_is_the_least_that_divides_both_batches() {
        assert_eq!(multiple(4, 1, 1, false), Some(4));
        assert_eq!(multiple(2, 4, 6, false), Some(24));
        assert_eq!(multiple(2, 4, 6, true), Some(2));
        assert_eq!(multiple(u32::MAX, u32::MAX, u32::MAX - 1, false), None);
    }
}
