//! `forestctl build-rows`

mod report;

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use clap::Args;

use super::selecting::{GroupFindings, SelectingArgs, has_errors, show_findings};
use super::ui::Ui;
use super::{Exit, show};
use crate::archive::Group;
use crate::config::{BatchSettings, Fraction, GrpoSettings, MAX_ROW_MULTIPLE, MaskedRewardPolicy};
use crate::error::{Error, Result};
use crate::output::{AtomicDir, write_file};
use crate::rows::packing::{MicrobatchOrder, Packing, PackingAlgorithm, PackingError};
use crate::rows::shard::Shard;
use crate::rows::weights::{Share, effective};
use crate::rows::{
    self, Arrangement, Assembled, Assembly, BuiltGroup, Packed, Provenance, RowsWriter, build_group,
};
use crate::select::GroupSelection;

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl build-rows run.forest -o rows
  forestctl build-rows run.forest -o rows --policy all_captured --data-parallel 4
  forestctl build-rows run.forest -o rows --overlong-filtering --advantage-clip-high 2
  forestctl build-rows run.forest -o rows-2 --shard 2/4

",
    exit_status!()
);

/// Turn selected calls into training rows, with masks, padding, and advantages
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BuildRowsArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// The rows directory to write
    #[arg(short, long, value_name = "ROWS")]
    pub output: PathBuf,
    /// Replace existing rows
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    selecting: SelectingArgs,
    /// Write rows although evidence is wrong; the rollouts concerned are masked
    #[arg(long)]
    mask_errors: bool,
    /// Ranks that share the rows of a group
    #[arg(long, default_value = "1", value_name = "N", help_heading = "Batch")]
    data_parallel: NonZeroU32,
    /// Rows of a training microbatch
    #[arg(long, default_value = "1", value_name = "N", help_heading = "Batch")]
    train_micro_batch: NonZeroU32,
    /// Rows of a log-probability microbatch
    #[arg(long, default_value = "1", value_name = "N", help_heading = "Batch")]
    logprob_micro_batch: NonZeroU32,
    /// Rows will be packed into bins: only the ranks must divide their number
    #[arg(long, help_heading = "Batch")]
    sequence_packing: bool,
    /// Pack now: tokens that a bin holds at most; rows.json lists the bins
    #[arg(long, value_name = "TOKENS", requires = "sequence_packing", help_heading = "Packing")]
    pack_tokens: Option<NonZeroU64>,
    /// How rows are assigned to bins
    #[arg(long, value_enum, default_value_t, value_name = "PACKER", requires = "pack_tokens")]
    #[arg(help_heading = "Packing")]
    packer: PackingAlgorithm,
    /// The length of every row is rounded up to a multiple of this
    #[arg(long, default_value = "1", value_name = "N", requires = "pack_tokens")]
    #[arg(help_heading = "Packing")]
    row_pad_multiple: NonZeroU64,
    /// Order of the bins of a rank
    #[arg(long, value_enum, default_value_t, value_name = "ORDER", requires = "pack_tokens")]
    #[arg(help_heading = "Packing")]
    microbatch_order: MicrobatchOrder,
    /// Seed of first_fit_shuffle, as of Python's random.seed
    #[arg(long, default_value_t = 42, value_name = "SEED", requires = "pack_tokens")]
    #[arg(help_heading = "Packing")]
    pack_seed: u32,
    /// Write each rollout's share of the gradient, by token, row, and rollout means, as CSV
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    gradient_weights: Option<PathBuf>,
    /// Stop unless at least this share of the step's prompt groups is kept
    #[arg(long, value_name = "FRACTION", help_heading = "Batch")]
    min_step_batch_fraction: Option<Fraction>,
    /// Prompt groups of a step; without it, those in the archive
    #[arg(long, value_name = "N", requires = "min_step_batch_fraction", help_heading = "Batch")]
    prompts_per_step: Option<NonZeroU32>,
    /// Stop when more prompt groups than this are dropped
    #[arg(long, value_name = "N", help_heading = "Batch")]
    max_skipped_prompts: Option<u32>,
    /// Stop when more prompt groups than this are dropped one after the other, in order of ids
    #[arg(long, value_name = "N", help_heading = "Batch")]
    max_consecutive_dropped_prompts: Option<u32>,
    /// Write one of several shards, as 2/4: whole prompt groups, about as many tokens in each
    ///
    /// Every shard carries the counts of the whole batch, and the advantages are those of the
    /// whole batch too.
    #[arg(long, value_name = "I/N", help_heading = "Batch")]
    shard: Option<Shard>,
    /// Keep the owner's own reward in its baseline
    #[arg(long, help_heading = "Advantages")]
    no_leave_one_out: bool,
    /// Do not divide by the standard deviation of the rewards
    #[arg(long, help_heading = "Advantages")]
    no_normalize: bool,
    /// Least advantage of an owner that trains
    #[arg(
        long,
        value_name = "A",
        value_parser = finite,
        allow_negative_numbers = true,
        help_heading = "Advantages"
    )]
    advantage_clip_low: Option<f64>,
    /// Greatest advantage of an owner that trains
    #[arg(
        long,
        value_name = "A",
        value_parser = finite,
        allow_negative_numbers = true,
        help_heading = "Advantages"
    )]
    advantage_clip_high: Option<f64>,
    /// Mask rollouts of which a selected generation stopped at a length limit
    #[arg(long, help_heading = "Advantages")]
    overlong_filtering: bool,
    /// Whose rewards enter the baseline
    #[arg(long, value_enum, default_value_t, value_name = "POLICY", help_heading = "Advantages")]
    masked_reward_policy: MaskedRewardPolicy,
}

pub(super) use report::schema;

fn finite(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err("not a finite number".to_owned()),
    }
}

impl BuildRowsArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let (batch, grpo) = (self.batch_settings(), self.grpo_settings()?);
        let Some(row_multiple) = batch.row_multiple() else {
            return Err(Error::usage(format!(
                "ranks times microbatches come to more than {MAX_ROW_MULTIPLE} rows"
            ))
            .help("Every prompt group would be padded to a multiple of that many rows"));
        };
        // An output that is in the way is refused before the work, not after.
        let draft = AtomicDir::create(&self.output, self.force, rows::MANIFEST)?;
        let archive = SelectingArgs::open(&self.archive)?;
        let writer = RowsWriter::new(draft)?;
        let mut rows = match self.shard.is_none() && archive.is_ordered()? {
            true => Arrangement::in_order(writer),
            false => Arrangement::in_any_order(writer)?,
        };
        let (mut assembly, mut findings) = (Assembly::default(), GroupFindings::default());
        let mut refused = false;
        let work = |group: &Group, selection: GroupSelection, found| {
            let batch = build_group(group, &selection, row_multiple, &grpo);
            (BuiltGroup::of(group.group_id.clone(), batch), found)
        };
        self.selecting.each_group(&archive, ui, work, |((group, of_group), found)| {
            refused |= has_errors(&found) && !self.mask_errors;
            findings.add(group.group_id(), found);
            if !refused {
                rows.group(group.group_id(), of_group)?;
            }
            assembly.add(group);
            Ok(())
        })?;
        show_findings(&findings.into_vec(), ui);
        if refused {
            let refused = Error::format("evidence is wrong; nothing was written")
                .help("--mask-errors masks the rollouts concerned and writes the rest");
            show(ui, &refused, Exit::Findings);
            return Ok(Exit::Findings);
        }
        self.require_drops_within_budget(&mut assembly)?;
        let provenance = Provenance {
            archive: Some(archive.digest()),
            policy: self.selecting.policy.to_string(),
            assume_complete: self.selecting.assume_complete,
            batch,
            grpo,
        };
        let mut built = assembly.finish(provenance, row_multiple, self.shard);
        self.require_rows(&built)?;
        built.manifest.packed = self.packed(&built)?;
        let writer = rows.finish(|group| built.own.contains(group))?;
        let manifest = writer.publish(built.manifest)?;
        if let Some(file) = &self.gradient_weights {
            write_file(file, true, weights_table(&built.shares)?.as_bytes())?;
        }
        report::report(&manifest, effective(&built.shares), &self.output, ui)?;
        Ok(Exit::Fine)
    }

    /// Refuses a batch that nothing of trains, or that lost too many groups (rule 123): the floor
    /// is the least whole number that is no less than the share of the step's prompts.
    fn require_rows(&self, built: &Assembled) -> Result<()> {
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
        match self.shard {
            Some(shard) if built.lengths.is_empty() => Err(Error::nothing(format!(
                "shard {shard} holds no prompt group; {kept} are kept, and nothing was written"
            ))
            .help("Use no more shards than prompt groups")),
            _ => Ok(()),
        }
    }

    /// Refuses a batch of which more groups were dropped than the budgets allow.
    fn require_drops_within_budget(&self, assembly: &mut Assembly) -> Result<()> {
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
    fn packed(&self, built: &Assembled) -> Result<Option<Packed>> {
        let Some(bin_tokens) = self.pack_tokens else { return Ok(None) };
        let settings = Packing {
            algorithm: self.packer,
            bin_tokens: bin_tokens.get(),
            row_pad_multiple: self.row_pad_multiple.get(),
            bin_multiple: self.data_parallel.get() as usize,
            microbatch_order: self.microbatch_order,
            seed: self.pack_seed,
        };
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

    fn batch_settings(&self) -> BatchSettings {
        BatchSettings {
            data_parallel: self.data_parallel,
            train_micro_batch: self.train_micro_batch,
            logprob_micro_batch: self.logprob_micro_batch,
            sequence_packing: self.sequence_packing,
        }
    }

    fn grpo_settings(&self) -> Result<GrpoSettings> {
        if let (Some(low), Some(high)) = (self.advantage_clip_low, self.advantage_clip_high)
            && low > high
        {
            return Err(Error::usage(format!(
                "--advantage-clip-low {low} is above --advantage-clip-high {high}"
            )));
        }
        Ok(GrpoSettings {
            leave_one_out: !self.no_leave_one_out,
            normalize: !self.no_normalize,
            advantage_clip_low: self.advantage_clip_low,
            advantage_clip_high: self.advantage_clip_high,
            overlong_filtering: self.overlong_filtering,
            masked_reward_policy: self.masked_reward_policy,
        })
    }
}

fn weights_table(shares: &[Share]) -> Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let failed = |e: csv::Error| Error::format("cannot write CSV").because(e);
    let header =
        ["rollout_id", "rows", "loss_tokens", "token_mean", "sequence_mean", "rollout_mean"];
    table.write_record(header).map_err(failed)?;
    for share in shares {
        let Share { rollout_id, rows, loss_tokens, token_mean, sequence_mean, rollout_mean } =
            share;
        let numbers = [token_mean, sequence_mean, rollout_mean].map(f64::to_string);
        let counts = [rows, loss_tokens].map(u64::to_string);
        let cells = std::iter::once(rollout_id.to_string()).chain(counts).chain(numbers);
        table.write_record(cells).map_err(failed)?;
    }
    let bytes = table.into_inner().map_err(|e| failed(e.into_error().into()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
