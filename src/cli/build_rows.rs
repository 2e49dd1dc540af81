//! `forestctl build-rows`

use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::selecting::{SelectingArgs, has_errors, show_findings};
use super::ui::{Format, Tone, Ui, thousands};
use crate::config::{BatchSettings, Fraction, GrpoSettings, MAX_ROW_MULTIPLE, MaskedRewardPolicy};
use crate::error::{Error, Result};
use crate::output::{AtomicDir, write_file};
use crate::rows::packing::{MicrobatchOrder, Packing, PackingAlgorithm, PackingError};
use crate::rows::weights::{EffectiveRollouts, Share, effective, shares};
use crate::rows::{self, Packed, Provenance, Row, RowsManifest};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl build-rows run.forest -o rows
  forestctl build-rows run.forest -o rows --policy all_captured --data-parallel 4
  forestctl build-rows run.forest -o rows --overlong-filtering --advantage-clip-high 2

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

fn finite(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err("not a finite number".to_owned()),
    }
}

/// JSON Schema of `--format json`.
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

/// `--format json`.
#[derive(Debug, Serialize, JsonSchema)]
struct Document {
    schema_version: u32,
    rows: u64,
    padding_rows: u64,
    masked_rows: u64,
    rollouts: u64,
    valid_rollouts: u64,
    groups: u64,
    dropped_groups: u64,
    loss_tokens: u64,
    row_tokens: u64,
    unique_tokens: u64,
    /// How many equally weighted rollouts the gradient amounts to.
    effective_rollouts: EffectiveRollouts,
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
        let selected = self.selecting.select(&self.archive, ui, |group| group)?;
        show_findings(&selected.selection.findings, ui);
        if has_errors(&selected.selection.findings) && !self.mask_errors {
            let refused = Error::format("evidence is wrong; nothing was written")
                .help("--mask-errors masks the rollouts concerned and writes the rest");
            super::show(ui, &refused, Exit::Findings);
            return Ok(Exit::Findings);
        }
        let built = rows::build(&selected.kept, &selected.selection, row_multiple, &grpo);
        if built.counts.valid_rollouts == 0 {
            return Err(Error::nothing(format!(
                "none of the {} rollouts is valid; nothing was written",
                built.counts.rollouts
            ))
            .help("`forestctl select` gives the reason of every rollout"));
        }
        self.require_groups(built.counts.groups, built.groups.len() as u64)?;
        let packed = self.packed(&built.rows)?;
        let shares = shares(&built.rows);
        let mut manifest = RowsManifest::new(
            Provenance {
                archive: Some(selected.archive.digest()),
                policy: self.selecting.policy.to_string(),
                assume_complete: self.selecting.assume_complete,
                batch,
                grpo,
            },
            row_multiple,
            &built,
        );
        manifest.packed = packed;
        let manifest = rows::write(draft, manifest, &built.rows)?;
        if let Some(file) = &self.gradient_weights {
            write_file(file, true, weights_table(&shares)?.as_bytes())?;
        }
        report(&manifest, effective(&shares), &self.output, ui)?;
        Ok(Exit::Fine)
    }

    /// Refuses a batch that lost too many groups (rule 123): the floor is the least whole number
    /// that is no less than the share of the step's prompts.
    fn require_groups(&self, seen: u64, kept: u64) -> Result<()> {
        let Some(fraction) = self.min_step_batch_fraction else { return Ok(()) };
        let prompts = self.prompts_per_step.map_or(seen, |prompts| u64::from(prompts.get()));
        let floor = fraction.ceil_of(prompts);
        if kept >= floor {
            return Ok(());
        }
        Err(Error::nothing(format!(
            "{kept} prompt groups are kept, and {fraction} of {prompts} are {floor}; nothing was \
             written"
        ))
        .help("`forestctl select` gives the reason of every group and rollout"))
    }

    /// The bins, if they are asked for.
    fn packed(&self, rows: &[Row]) -> Result<Option<Packed>> {
        let Some(bin_tokens) = self.pack_tokens else { return Ok(None) };
        let settings = Packing {
            algorithm: self.packer,
            bin_tokens: bin_tokens.get(),
            row_pad_multiple: self.row_pad_multiple.get(),
            bin_multiple: self.data_parallel.get() as usize,
            microbatch_order: self.microbatch_order,
            seed: self.pack_seed,
        };
        Packed::of(rows, settings).map(Some).map_err(|why| match why {
            PackingError::RowTooLong { row, tokens, bin_tokens } => Error::usage(format!(
                "row {} takes {tokens} tokens, and a bin holds {bin_tokens}",
                rows[row].row_id
            ))
            .help("Raise --pack-tokens; a row is never cut"),
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

fn report(
    manifest: &RowsManifest,
    effective_rollouts: EffectiveRollouts,
    output: &Path,
    ui: &Ui,
) -> Result<()> {
    let counts = &manifest.counts;
    let document = Document {
        schema_version: 1,
        rows: counts.rows,
        padding_rows: counts.padding_rows,
        masked_rows: counts.masked_rows,
        rollouts: counts.rollouts,
        valid_rollouts: counts.valid_rollouts,
        groups: counts.groups,
        dropped_groups: counts.dropped_groups,
        loss_tokens: counts.loss_tokens,
        row_tokens: counts.row_tokens,
        unique_tokens: counts.unique_tokens,
        effective_rollouts,
    };
    match ui.format {
        Format::Json => ui.json(&document),
        Format::Jsonl => ui.jsonl(&document),
        Format::Csv => {
            let fields = document.fields();
            let header: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
            let cells = fields.iter().map(|(_, value)| value.clone()).collect();
            ui.csv(&header, [cells])
        }
        Format::Human => {
            let repeated = counts.row_tokens as f64 / counts.unique_tokens.max(1) as f64;
            let masked: Vec<String> =
                manifest.masked.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
            let bins = manifest.packed.as_ref().map_or_else(String::new, |packed| {
                let bins = thousands(packed.bins.len() as u64);
                format!(
                    "\n  {bins} bins of {} tokens, efficiency {:.2}",
                    thousands(packed.settings.bin_tokens),
                    packed.efficiency
                )
            });
            let masked = if masked.is_empty() {
                String::new()
            } else {
                format!("; masked: {}", masked.join(", "))
            };
            ui.summary(format!(
                "{}  {}\n  \
                 {} rows: {} train, {} masked, {} padding\n  \
                 {} of {} rollouts valid{masked}\n  \
                 {} of {} prompt groups kept\n  \
                 {} loss tokens; {} row tokens from {} unique ones ({repeated:.2} x)\n  \
                 weighs like {:.1} equal rollouts by tokens, {:.1} by rows{bins}",
                ui.tone(Tone::Strong, output.display()),
                ui.tone(Tone::Good, "written"),
                thousands(counts.rows),
                thousands(counts.rows - counts.padding_rows - counts.masked_rows),
                thousands(counts.masked_rows),
                thousands(counts.padding_rows),
                thousands(counts.valid_rollouts),
                thousands(counts.rollouts),
                thousands(counts.groups - counts.dropped_groups),
                thousands(counts.groups),
                thousands(counts.loss_tokens),
                thousands(counts.row_tokens),
                thousands(counts.unique_tokens),
                effective_rollouts.token_mean,
                effective_rollouts.sequence_mean,
            ))
        }
    }
}

impl Document {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let EffectiveRollouts { token_mean, sequence_mean, rollout_mean } = self.effective_rollouts;
        let counts = [
            ("schema_version", u64::from(self.schema_version)),
            ("rows", self.rows),
            ("padding_rows", self.padding_rows),
            ("masked_rows", self.masked_rows),
            ("rollouts", self.rollouts),
            ("valid_rollouts", self.valid_rollouts),
            ("groups", self.groups),
            ("dropped_groups", self.dropped_groups),
            ("loss_tokens", self.loss_tokens),
            ("row_tokens", self.row_tokens),
            ("unique_tokens", self.unique_tokens),
        ];
        let effective = [
            ("effective_rollouts_token_mean", token_mean),
            ("effective_rollouts_sequence_mean", sequence_mean),
            ("effective_rollouts_rollout_mean", rollout_mean),
        ];
        let counts = counts.into_iter().map(|(name, count)| (name, count.to_string()));
        counts.chain(effective.map(|(name, size)| (name, size.to_string()))).collect()
    }
}
