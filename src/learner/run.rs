//! Optimizer steps over one batch, from rows to updated weights.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use forestctl::error::{Error, Kind, Result};
use forestctl::finding::Code;
use forestctl::rows::{Row, advantage};
use forestctl::step::batch::Batch;
use forestctl::step::failure::{RowTokens, memory_advice};
use forestctl::step::loss::Loss;
use forestctl::step::metrics::Sums;
use forestctl::step::plan::blocks::Repeats;
use forestctl::step::plan::pack::packs;
use forestctl::step::report::{RowReport, SCHEMA_VERSION, StepMetrics, StepReport, StepTimes};
use forestctl::step::sequence_error::{Filtered, sequence_errors};
use forestctl::step::settings::{Layout, StepSettings};

use super::attention::AttentionPlan;
use super::clock::Clock;
use super::decoder::Decoder;
use super::optim::OptimizerState;
use super::tensor::failed;
use super::update::{OtherPolicies, Plan, in_pack};
use super::{checkpoint, shim, tensor};

/// Where the weights of a run come from: directories of Hugging Face models.
#[derive(Clone, Copy, Debug)]
pub struct Models<'a> {
    /// The policy to train. A checkpoint of an earlier run continues with its optimizer state.
    pub policy: &'a Path,
    /// Whose log-probabilities count as previous; the policy's own unless given.
    pub previous: Option<&'a Path>,
    /// The reference of the KL term.
    pub reference: Option<&'a Path>,
}

/// Called as work goes on: what is being done, how many rows are done, of how many.
pub type Progress<'a> = &'a dyn Fn(&'static str, u64, u64);

/// Called after every optimizer step, with the rows that it trained on.
pub type Told<'a> = Box<dyn FnMut(&StepReport, Vec<RowReport>) -> Result<()> + 'a>;

/// Who watches a run.
pub struct Observer<'a> {
    /// Hears of the work.
    pub progress: Progress<'a>,
    /// Hears of every optimizer step.
    pub told: Told<'a>,
    /// Whether a CUDA device measures where the time goes, which the processor always does.
    pub profile: bool,
    /// Seconds that reading the rows took.
    pub read_seconds: f64,
}

/// A run whose updates are made.
#[derive(Debug)]
pub struct Trained {
    /// The policy with updated weights; its gradients are those of the last update.
    pub policy: Decoder,
    /// The optimizer after the updates.
    pub optimizer: OptimizerState,
    /// Loss, norms and diagnostics of every update; there is at least one.
    pub reports: Vec<StepReport>,
    /// Log-probabilities under the previous policy, as [`score`] gives them.
    pub previous: Vec<Vec<f64>>,
    /// Log-probabilities under the reference policy, with a KL penalty.
    pub reference: Option<Vec<Vec<f64>>>,
}

/// Makes the optimizer steps of a schedule on one batch. Log-probabilities under the previous and the
/// reference policy, the sequence error filter and the advantages after it are computed once, before
/// the first update; then every pass takes the minibatches in order, each with its own normaliser.
///
/// # Errors
/// Unsupported or corrupt models, rows that contradict themselves or the vocabulary, no trainable
/// token left, fewer rollouts than minibatches, too little memory, and numbers that are not finite;
/// weights are then not touched on disk.
pub fn run(
    rows: &mut [Row],
    models: Models,
    settings: &StepSettings,
    mut observer: Observer,
) -> Result<Trained> {
    settings.check()?;
    let loss = Loss::new(settings.loss.clone())?;
    shim::deterministic(settings.deterministic).map_err(failed)?;
    let device = tensor::open_device(settings.device, settings.seed)?;
    let plan = Plan::new(settings, &loss, device);
    let lengths = row_tokens(rows);
    let loading = |e| advised(e, settings, None);
    let computing = |e| advised(e, settings, Some(lengths));

    let begun = Instant::now();
    let load = |dir: &Path, trains| {
        let mut model = Decoder::load(dir, settings.dtype, device, trains).map_err(loading)?;
        let steps = f64::from(settings.schedule.steps);
        model.attention = attention(
            settings,
            match trains {
                true => Repeats { forward: 1.0 + steps, backward: steps },
                false => Repeats { forward: 1.0, backward: 0.0 },
            },
        );
        Ok::<_, Error>(model)
    };
    let mut policy = load(models.policy, true)?;
    let mut optimizer = match checkpoint::steps_behind(models.policy)? {
        Some(step) => OptimizerState::resume(models.policy, step, &mut policy.parameters),
        None => OptimizerState::fresh(&policy.parameters),
    }
    .map_err(loading)?;
    let mut io_seconds = observer.read_seconds + begun.elapsed().as_secs_f64();

    let mut score_seconds = 0.0;
    let mut scored = |model: Option<&Path>, rows: &[Row], label| {
        let begun = Instant::now();
        let other = model.map(|dir| load(dir, false)).transpose()?;
        io_seconds += begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let model = other.as_ref().unwrap_or(&policy);
        let scores =
            score(model, rows, settings.layout(), label, observer.progress).map_err(computing)?;
        score_seconds += begun.elapsed().as_secs_f64();
        Ok::<_, Error>(scores)
    };
    let previous = scored(models.previous, rows, "previous")?;
    let filtered = filter(rows, &previous, settings)?;
    let reference = match (loss.needs_reference(), models.reference) {
        (false, _) => None,
        (true, Some(dir)) => Some(scored(Some(dir), rows, "reference")?),
        (true, None) => {
            return Err(Error::usage("a KL penalty needs a reference model")
                .help("Give --reference-model DIR, or --kl-coef 0"));
        }
    };

    let batch = Batch::new(rows)?;
    if batch.valid_tokens() == 0 {
        return Err(Error::nothing("no row has a token left to train on")
            .help("`forestctl select` says why rollouts are masked"));
    }
    let minibatches = batch.minibatches(settings.schedule.minibatches)?;
    let others = OtherPolicies { previous: &previous, reference: reference.as_deref() };
    policy.clock = Clock::new(device, observer.profile).map_err(failed)?;
    let mut reports: Vec<StepReport> = Vec::new();
    for epoch in 1..=settings.schedule.steps {
        for (minibatch, part) in (1..).zip(&minibatches) {
            let mut update = plan
                .update(&mut policy, &mut optimizer, part, others, observer.progress)
                .map_err(computing)?;
            if reports.is_empty() {
                update.performance.score_seconds = score_seconds;
                update.performance.io_seconds = io_seconds;
            }
            let tokens = part.valid_tokens();
            let diagnostics = Sums::pooled(&update.sums).finish(tokens, part.valid_rows());
            let kl_coefficient = settings.loss.reference_policy_kl_penalty;
            let report = StepReport {
                schema_version: SCHEMA_VERSION,
                loss: update.loss,
                grad_norm: update.grad_norm,
                loss_tokens: tokens,
                metrics: StepMetrics {
                    step: optimizer.step,
                    epoch,
                    minibatch,
                    clip_coefficient: update.clip_coefficient,
                    lr: settings.optimizer.lr,
                    kl_coefficient,
                    kl_loss: kl_coefficient * diagnostics.kl_penalty,
                    sequence_error: filtered.clone(),
                    tokens: diagnostics,
                },
                performance: Some(update.performance),
            };
            let trained_on = RowReport::of(part, &update.sums, &loss, optimizer.step);
            (observer.told)(&report, trained_on)?;
            reports.push(report);
        }
    }
    Ok(Trained { policy, optimizer, reports, previous, reference })
}

/// Makes `steps` optimizer steps on weights that are drawn, for measuring; nothing is kept.
///
/// # Errors
/// As [`run`].
pub fn measure(
    rows: &[Row],
    model: &Path,
    settings: &StepSettings,
    steps: u32,
    profile: bool,
    mut told: impl FnMut(&StepTimes) -> Result<()>,
) -> Result<()> {
    settings.check()?;
    let loss = Loss::new(settings.loss.clone())?;
    shim::deterministic(settings.deterministic).map_err(failed)?;
    let device = tensor::open_device(settings.device, settings.seed)?;
    let plan = Plan::new(settings, &loss, device);
    let loading = |e| advised(e, settings, None);
    let computing = |e| advised(e, settings, Some(row_tokens(rows)));
    let mut policy = Decoder::random(model, settings.dtype, device, true).map_err(loading)?;
    policy.clock = Clock::new(device, profile).map_err(failed)?;
    let passes = f64::from(steps);
    policy.attention = attention(settings, Repeats { forward: 2.0 * passes, backward: passes });
    let mut optimizer = OptimizerState::fresh(&policy.parameters).map_err(loading)?;
    let batch = Batch::new(rows)?;
    for _ in 0..steps {
        let begun = Instant::now();
        let previous = score(&policy, rows, settings.layout(), "previous", &|_, _, _| {})
            .map_err(computing)?;
        let score_seconds = plan.seconds(begun);
        let others = OtherPolicies { previous: &previous, reference: None };
        let update = plan
            .update(&mut policy, &mut optimizer, &batch, others, &|_, _, _| {})
            .map_err(computing)?;
        let mut performance = update.performance;
        performance.score_seconds = score_seconds;
        // Scoring needs no room for gradients.
        policy.parameters.iter_mut().for_each(|parameter| parameter.grad = None);
        told(&StepTimes { performance, loss: update.loss })?;
    }
    Ok(())
}

/// The dense kernel of attention may add up in another order every time.
fn attention(settings: &StepSettings, repeats: Repeats) -> AttentionPlan {
    let repeats = Some(repeats).filter(|_| !settings.deterministic);
    AttentionPlan { way: settings.attention, repeats }
}

fn row_tokens(rows: &[Row]) -> RowTokens {
    let lengths = rows.iter().map(|row| row.input_ids.len() as u64);
    RowTokens { longest: lengths.clone().max().unwrap_or_default(), total: lengths.sum() }
}

/// An error that says what to lower when memory ran out; `rows` as [`memory_advice`] takes them.
fn advised(e: Error, settings: &StepSettings, rows: Option<RowTokens>) -> Error {
    match e.kind() {
        Kind::Memory => e.help(memory_advice(settings, rows)),
        _ => e,
    }
}

/// Log-probabilities of every row that trains, aligned to its targets; empty for the others.
pub fn score(
    model: &Decoder,
    rows: &[Row],
    layout: Layout,
    label: &'static str,
    progress: Progress,
) -> Result<Vec<Vec<f64>>> {
    let batch = Batch::new(rows)?;
    for i in batch.active() {
        let row = &rows[i];
        model.check_ids(&row.input_ids).map_err(|e| {
            e.within(format!("row {} ({} tokens)", row.row_id, row.input_ids.len()))
        })?;
    }
    let total = batch.active().count() as u64;
    let mut all: Vec<Vec<f64>> =
        (0..rows.len()).map(|i| Vec::with_capacity(batch.targets(i).len())).collect();
    let mut done = 0;
    for pack in packs(&batch, layout.plan(&batch))? {
        progress(label, done, total);
        let scores = in_pack(rows, &pack, model.score(&pack))?;
        for (pair, score) in pack.pairs.iter().zip(scores) {
            all[pair.row].push(score);
        }
        done += pack.rows.len() as u64;
    }
    progress(label, total, total);
    Ok(all)
}

/// Measures the sequence errors; above the threshold, masks whole rollouts and recomputes the
/// advantages of their groups (rules 113 to 116).
fn filter(rows: &mut [Row], previous: &[Vec<f64>], settings: &StepSettings) -> Result<Filtered> {
    let batch = Batch::new(rows)?;
    let filtered =
        sequence_errors(&batch, previous).filter(&batch, settings.seq_logprob_error_threshold);
    if !filtered.masked_rollouts.is_empty() {
        let masked: BTreeMap<_, _> =
            filtered.masked_rollouts.iter().map(|id| (id.clone(), Code::SeqLogprobError)).collect();
        advantage::assign(rows, &settings.grpo, &masked);
    }
    Ok(filtered)
}
