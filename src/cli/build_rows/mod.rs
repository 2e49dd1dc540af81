//! `forestctl build-rows`

pub(super) mod batch;
pub(super) mod previous;
mod report;

use std::path::PathBuf;

use clap::Args;

use self::batch::BatchArgs;
use self::previous::PreviousFile;
use super::resolve::ConfigArg;
use super::selecting::{GroupFindings, SelectingArgs, has_errors, show_findings};
use super::ui::Ui;
use super::{Exit, show};
use crate::archive::Group;
use crate::error::{Error, Result};
use crate::output::{AtomicDir, write_file};
use crate::rows::shard::Shard;
use crate::rows::weights::{Share, effective};
use crate::rows::{self, Arrangement, Assembly, BuiltGroup, Provenance, RowsWriter};
use crate::select::GroupSelection;
use crate::step::sequence_error::SequenceFilter;

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl build-rows run.forest -o rows
  forestctl build-rows run.forest -o rows --policy all_captured --data-parallel 4
  forestctl build-rows run.forest -o rows --overlong-filtering --advantage-clip-high 2
  forestctl build-rows run.forest -o rows --config grpo.yaml
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
    config: ConfigArg,
    #[command(flatten)]
    settings: BatchArgs,
    /// Write rows although evidence is wrong; the rollouts concerned are masked
    #[arg(long)]
    mask_errors: bool,
    /// Write one of several shards, as 2/4: whole prompt groups, about as many tokens in each
    ///
    /// Every shard carries the counts of the whole batch, and the advantages are those of the
    /// whole batch too.
    #[arg(long, value_name = "I/N", help_heading = "Batch")]
    shard: Option<Shard>,
    /// Log-probabilities under the previous policy, as `step --dump-logprobs` writes them
    ///
    /// How far the captured ones lie from them is told, and rollouts beyond
    /// --seq-logprob-error-threshold are masked before the advantages are computed.
    #[arg(long, value_name = "FILE", help_heading = "Advantages")]
    prev_logprobs: Option<PathBuf>,
    /// Write each rollout's share of the gradient, by token, row, and rollout means, as CSV
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    gradient_weights: Option<PathBuf>,
}

pub(super) use report::schema;

impl BuildRowsArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let mut resolver = self.config.resolver()?;
        let settled = self.settings.settle(&mut resolver)?;
        resolver.tell_ignored("build-rows", ui);
        let (row_multiple, grpo) = (settled.row_multiple, settled.grpo);
        if settled.seq_logprob_error_threshold.is_some() && self.prev_logprobs.is_none() {
            if self.settings.gives_threshold() {
                return Err(Error::usage("--seq-logprob-error-threshold needs --prev-logprobs"));
            }
            ui.say("grpo.seq_logprob_error_threshold is left to step: no --prev-logprobs is given");
        }
        let file = self.prev_logprobs.as_deref().map(PreviousFile::open).transpose()?;
        let previous = file.as_ref().map(PreviousFile::read).transpose()?;
        let mut filter = SequenceFilter::new(settled.seq_logprob_error_threshold);
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
            let built = previous::build(group, &selection, &settled, previous.as_ref())?;
            let filter = built.errors.map(|(_, filter)| filter);
            Ok((BuiltGroup::of(group.group_id.clone(), built.batch), found, filter))
        };
        self.settings.selecting.each_group(
            &settled.selecting,
            &archive,
            ui,
            work,
            |built: Result<_>| {
                let ((group, of_group), found, of_filter) = built?;
                if let Some(of_filter) = of_filter {
                    filter.join(of_filter);
                }
                refused |= has_errors(&found) && !self.mask_errors;
                findings.add(group.group_id(), found);
                if !refused {
                    rows.group(group.group_id(), of_group)?;
                }
                assembly.add(group);
                Ok(())
            },
        )?;
        show_findings(&findings.into_vec(), ui);
        if refused {
            let refused = Error::format("evidence is wrong; nothing was written")
                .help("--mask-errors masks the rollouts concerned and writes the rest");
            show(ui, &refused, Exit::Findings);
            return Ok(Exit::Findings);
        }
        settled.require_drops_within_budget(&mut assembly)?;
        let provenance = Provenance {
            archive: Some(archive.digest()),
            policy: settled.selecting.policy.to_string(),
            assume_complete: settled.selecting.assume_complete,
            batch: settled.batch,
            grpo,
            seq_logprob_error_threshold: settled
                .seq_logprob_error_threshold
                .filter(|_| previous.is_some()),
        };
        let mut built = assembly.finish(provenance, row_multiple, self.shard);
        settled.require_rows(&built, self.shard)?;
        built.manifest.packed = settled.packed(&built)?;
        if previous.is_some() {
            built.manifest.metrics.extend(filter.finish().metrics());
        }
        let writer = rows.finish(|group| built.own.contains(group))?;
        let manifest = writer.publish(built.manifest)?;
        if let Some(file) = &self.gradient_weights {
            write_file(file, true, weights_table(&built.shares)?.as_bytes())?;
        }
        report::report(&manifest, effective(&built.shares), &self.output, ui)?;
        Ok(Exit::Fine)
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
