//! Settings of a batch: what is selected, how it is padded and packed, and its advantages.

use std::num::{NonZeroU32, NonZeroU64};

use clap::Args;

use crate::cli::advantages::{AdvantageArgs, finite};
use crate::cli::resolve::{Resolver, Word};
use crate::cli::selecting::{Selecting, SelectingArgs};
use crate::config::{
    BatchSettings, Fraction, GrpoSettings, MAX_ROW_MULTIPLE, MicrobatchOrder, PackingAlgorithm,
};
use crate::error::{Error, Result};
use crate::rows::packing::{Packing, PackingError};
use crate::rows::shard::Shard;
use crate::rows::{Assembled, Assembly, Packed};

/// Flags of everything that a configuration file settles too, and some that it does not.
#[derive(Debug, Args)]
pub struct BatchArgs {
    #[command(flatten)]
    pub selecting: SelectingArgs,
    /// Ranks that share the rows of a group
    #[arg(long, default_value = "1", value_name = "N", help_heading = "Batch")]
    data_parallel: NonZeroU32,
    /// Rows of a training microbatch [default: 1]
    #[arg(long, value_name = "N", help_heading = "Batch")]
    train_micro_batch: Option<NonZeroU32>,
    /// Rows of a log-probability microbatch [default: 1]
    #[arg(long, value_name = "N", help_heading = "Batch")]
    logprob_micro_batch: Option<NonZeroU32>,
    /// Rows will be packed into bins: only the ranks must divide their number
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", help_heading = "Batch")]
    sequence_packing: Option<bool>,
    /// Stop unless at least this share of the step's prompt groups is kept
    #[arg(long, value_name = "FRACTION", help_heading = "Batch")]
    min_step_batch_fraction: Option<Fraction>,
    /// Prompt groups of a step; without it, those in the archive
    #[arg(long, value_name = "N", help_heading = "Batch")]
    prompts_per_step: Option<NonZeroU32>,
    /// Stop when more prompt groups than this are dropped
    #[arg(long, value_name = "N", help_heading = "Batch")]
    max_skipped_prompts: Option<u32>,
    /// Stop when more prompt groups than this are dropped one after the other, in order of ids
    #[arg(long, value_name = "N", help_heading = "Batch")]
    max_consecutive_dropped_prompts: Option<u32>,
    /// Pack now: tokens that a bin holds at most; rows.json lists the bins
    #[arg(long, value_name = "TOKENS", help_heading = "Packing")]
    pack_tokens: Option<NonZeroU64>,
    /// How rows are assigned to bins [default: modified_first_fit_decreasing]
    #[arg(long, value_enum, value_name = "PACKER", help_heading = "Packing")]
    packer: Option<PackingAlgorithm>,
    /// The length of every row is rounded up to a multiple of this [default: 1]
    #[arg(long, value_name = "N", help_heading = "Packing")]
    row_pad_multiple: Option<NonZeroU64>,
    /// Order of the bins of a rank [default: packer]
    #[arg(long, value_enum, value_name = "ORDER", help_heading = "Packing")]
    microbatch_order: Option<MicrobatchOrder>,
    /// Seed of first_fit_shuffle, as of Python's random.seed
    #[arg(long, default_value_t = 42, value_name = "SEED", help_heading = "Packing")]
    pack_seed: u32,
    #[command(flatten)]
    advantages: AdvantageArgs,
    /// Mask rollouts whose pooled error of captured log-probabilities exceeds this; needs
    /// --prev-logprobs
    #[arg(long, value_name = "X", value_parser = finite, help_heading = "Advantages")]
    seq_logprob_error_threshold: Option<f64>,
}

/// Settings of a batch, settled.
#[derive(Debug)]
pub struct BatchPlan {
    /// What is selected.
    pub selecting: Selecting,
    /// Ranks and microbatches.
    pub batch: BatchSettings,
    /// The number that divides the rows of every group.
    pub row_multiple: u32,
    /// How rewards become advantages.
    pub grpo: GrpoSettings,
    /// Pooled errors above this mask a rollout.
    pub seq_logprob_error_threshold: Option<f64>,
    packing: Option<Packing>,
    min_step_batch_fraction: Option<Fraction>,
    prompts_per_step: Option<NonZeroU32>,
    max_skipped_prompts: Option<u32>,
    max_consecutive_dropped_prompts: Option<u32>,
}

impl BatchArgs {
    /// Whether a threshold is asked for by its flag.
    pub fn gives_threshold(&self) -> bool {
        self.seq_logprob_error_threshold.is_some()
    }

    /// Settles flags and file.
    ///
    /// # Errors
    ///
    /// Settings that contradict one another.
    pub fn settle(&self, resolver: &mut Resolver) -> Result<BatchPlan> {
        let selecting = self.selecting.settle(resolver)?;
        let batch = self.batch(resolver);
        let Some(row_multiple) = batch.row_multiple() else {
            return Err(Error::usage(format!(
                "ranks times microbatches come to more than {MAX_ROW_MULTIPLE} rows"
            ))
            .help("Every prompt group would be padded to a multiple of that many rows"));
        };
        let packing = self.packing(batch, resolver)?;
        let grpo = self.advantages.settle(resolver)?;
        let seq_logprob_error_threshold = resolver.optional(
            "grpo.seq_logprob_error_threshold",
            ("--seq-logprob-error-threshold", self.seq_logprob_error_threshold),
            |recipe| recipe.grpo.seq_logprob_error_threshold,
        );
        const FAILURE: [&str; 3] = [
            "async_rl.rollout_failure.min_step_batch_fraction",
            "async_rl.rollout_failure.max_skipped_prompts",
            "async_rl.rollout_failure.max_consecutive_dropped_prompts",
        ];
        let min_step_batch_fraction = resolver.optional(
            FAILURE[0],
            ("--min-step-batch-fraction", self.min_step_batch_fraction),
            |recipe| recipe.rollout_failure.min_step_batch_fraction,
        );
        let prompts_per_step = resolver.optional(
            "grpo.num_prompts_per_step",
            ("--prompts-per-step", self.prompts_per_step),
            |recipe| recipe.grpo.num_prompts_per_step,
        );
        if self.prompts_per_step.is_some() && min_step_batch_fraction.is_none() {
            return Err(Error::usage("--prompts-per-step needs --min-step-batch-fraction"));
        }
        let max_skipped_prompts = resolver.optional(
            FAILURE[1],
            ("--max-skipped-prompts", self.max_skipped_prompts),
            |recipe| recipe.rollout_failure.max_skipped_prompts,
        );
        let max_consecutive_dropped_prompts = resolver.optional(
            FAILURE[2],
            ("--max-consecutive-dropped-prompts", self.max_consecutive_dropped_prompts),
            |recipe| recipe.rollout_failure.max_consecutive_dropped_prompts,
        );
        Ok(BatchPlan {
            selecting,
            batch,
            row_multiple,
            grpo,
            seq_logprob_error_threshold,
            packing,
            min_step_batch_fraction,
            prompts_per_step,
            max_skipped_prompts,
            max_consecutive_dropped_prompts,
        })
    }

    fn batch(&self, resolver: &mut Resolver) -> BatchSettings {
        let one = NonZeroU32::MIN;
        let ranks = Some(self.data_parallel).filter(|ranks| *ranks != one);
        BatchSettings {
            data_parallel: resolver.value(
                "data_parallel",
                ("--data-parallel", ranks),
                |_| None,
                one,
            ),
            train_micro_batch: resolver.value(
                "policy.train_micro_batch_size",
                ("--train-micro-batch", self.train_micro_batch),
                |recipe| recipe.policy.train_micro_batch_size,
                one,
            ),
            logprob_micro_batch: resolver.value(
                "policy.logprob_batch_size",
                ("--logprob-micro-batch", self.logprob_micro_batch),
                |recipe| recipe.policy.logprob_batch_size,
                one,
            ),
            sequence_packing: resolver.value(
                "policy.sequence_packing.enabled",
                ("--sequence-packing", self.sequence_packing),
                |recipe| recipe.policy.sequence_packing,
                false,
            ),
        }
    }

    fn packing(&self, batch: BatchSettings, resolver: &mut Resolver) -> Result<Option<Packing>> {
        let tokens = resolver.optional(
            "policy.sequence_packing.train_mb_tokens",
            ("--pack-tokens", self.pack_tokens),
            |recipe| recipe.policy.train_mb_tokens,
        );
        let Word(algorithm) = resolver.value(
            "policy.sequence_packing.algorithm",
            ("--packer", self.packer.map(Word)),
            |recipe| recipe.policy.packing_algorithm.map(Word),
            Word(PackingAlgorithm::default()),
        );
        let row_pad_multiple = resolver.value(
            "policy.make_sequence_length_divisible_by",
            ("--row-pad-multiple", self.row_pad_multiple),
            |recipe| recipe.policy.make_sequence_length_divisible_by,
            NonZeroU64::MIN,
        );
        let Word(microbatch_order) = resolver.value(
            "policy.sequence_packing.microbatch_order",
            ("--microbatch-order", self.microbatch_order.map(Word)),
            |recipe| recipe.policy.microbatch_order.map(Word),
            Word(MicrobatchOrder::default()),
        );
        let needs = |flag: &str, other: &str| Err(Error::usage(format!("{flag} needs {other}")));
        if self.pack_tokens.is_some() && !batch.sequence_packing {
            return needs("--pack-tokens", "--sequence-packing");
        }
        let flags = [
            ("--packer", self.packer.is_some()),
            ("--row-pad-multiple", self.row_pad_multiple.is_some()),
            ("--microbatch-order", self.microbatch_order.is_some()),
        ];
        if let Some((flag, _)) = flags.iter().find(|(_, given)| *given && tokens.is_none()) {
            return needs(flag, "--pack-tokens");
        }
        let Some(tokens) = tokens.filter(|_| batch.sequence_packing) else { return Ok(None) };
        Ok(Some(Packing {
            algorithm,
            bin_tokens: tokens.get(),
            row_pad_multiple: row_pad_multiple.get(),
            bin_multiple: batch.data_parallel.get() as usize,
            microbatch_order,
            seed: self.pack_seed,
        }))
    }
}

impl BatchPlan {
    /// Refuses a batch that nothing of trains, or that lost too many groups (rule 123): the floor
    /// is the least whole number that is no less than the share of the step's prompts.
    pub fn require_rows(&self, built: &Assembled, shard: Option<Shard>) -> Result<()> {
        let counts = &built.manifest.counts;
        let help = "`forestctl select` gives the reason of every group and rollout";
        if counts.valid_rollouts == 0 {
            let message =
                format!("none of the {} rollouts is valid; nothing was written", counts.rollouts);
            return Err(Error::nothing(message).help(help));
        }
        let kept = counts.groups - counts.dropped_groups;
        if let Some(fraction) = self.min_step_batch_fraction {
            let prompts =
                self.prompts_per_step.map_or(counts.groups, |prompts| u64::from(prompts.get()));
            let floor = fraction.ceil_of(prompts);
            if kept < floor {
                return Err(Error::nothing(format!(
                    "{kept} prompt groups are kept, and {fraction} of {prompts} are {floor}; \
                     nothing was written"
                ))
                .help(help));
            }
        }
        match shard {
            Some(shard) if built.lengths.is_empty() => Err(Error::nothing(format!(
                "shard {shard} holds no prompt group; {kept} are kept, and nothing was written"
            ))
            .help("Use no more shards than prompt groups")),
            _ => Ok(()),
        }
    }

    /// Refuses a batch of which more groups were dropped than the budgets allow.
    pub fn require_drops_within_budget(&self, assembly: &mut Assembly) -> Result<()> {
        let (mut dropped, mut running, mut longest) = (0_u32, 0_u32, 0_u32);
        for is_dropped in assembly.drops() {
            running = if is_dropped { running + 1 } else { 0 };
            dropped += u32::from(is_dropped);
            longest = longest.max(running);
        }
        let budgets = [
            ("--max-skipped-prompts", self.max_skipped_prompts, dropped, ""),
            (
                "--max-consecutive-dropped-prompts",
                self.max_consecutive_dropped_prompts,
                longest,
                " one after the other",
            ),
        ];
        match budgets.iter().find(|(_, most, found, _)| most.is_some_and(|most| *found > most)) {
            None => Ok(()),
            Some((flag, most, found, how)) => Err(Error::nothing(format!(
                "{found} prompt groups are dropped{how}, and {flag} allows {}; nothing was written",
                most.unwrap_or_default()
            ))
            .help("`forestctl select` gives the reason of every group and rollout")),
        }
    }

    /// The bins, if they are asked for.
    pub fn packed(&self, built: &Assembled) -> Result<Option<Packed>> {
        let Some(settings) = self.packing else { return Ok(None) };
        Packed::of(&built.lengths, settings).map(Some).map_err(|why| match why {
            PackingError::RowTooLong { row, tokens, bin_tokens } => {
                let mut ids = built.manifest.groups.iter().flat_map(|group| &group.row_ids);
                let id = ids.nth(row).map_or("", String::as_str);
                Error::usage(format!(
                    "row {id} takes {tokens} tokens, and a bin holds {bin_tokens}"
                ))
                .help("Raise --pack-tokens; a row is never cut")
            }
            PackingError::TooFewRows { .. } => Error::usage(why.to_string()),
        })
    }
}
