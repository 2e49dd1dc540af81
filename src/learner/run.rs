//! One optimizer step, from rows to updated weights.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use forestctl::error::{Error, Result};
use forestctl::finding::Code;
use forestctl::rows::{Row, advantage};
use forestctl::step::batch::Batch;
use forestctl::step::loss::{Loss, Token};
use forestctl::step::metrics::{Sums, mean};
use forestctl::step::pack::{Pack, Pair, packs};
use forestctl::step::report::{SCHEMA_VERSION, StepMetrics, StepReport, StepTimes};
use forestctl::step::sequence_error::{Filtered, sequence_errors};
use forestctl::step::settings::StepSettings;

use tch::Device;

use super::decoder::Decoder;
use super::optim::{OptimizerState, clip_coefficient, grad_norm};
use super::{checkpoint, shim, tensor};

/// Where the weights of a step come from: directories of Hugging Face models.
#[derive(Clone, Copy, Debug)]
pub struct Models<'a> {
    /// The policy to train. A checkpoint of an earlier step continues with its optimizer state.
    pub policy: &'a Path,
    /// Whose log-probabilities count as previous; the policy's own unless given.
    pub previous: Option<&'a Path>,
    /// The reference of the KL term.
    pub reference: Option<&'a Path>,
}

/// Called as work goes on: what is being done, how many rows are done, of how many.
pub type Progress<'a> = &'a dyn Fn(&'static str, u64, u64);

/// A step whose update is made.
#[derive(Debug)]
pub struct Trained {
    /// The policy with updated weights; its gradients are those before clipping.
    pub policy: Decoder,
    /// The optimizer after the update.
    pub optimizer: OptimizerState,
    /// Loss, norms and diagnostics.
    pub report: StepReport,
    /// Log-probabilities under the previous policy, as [`score`] gives them.
    pub previous: Vec<Vec<f64>>,
    /// Log-probabilities under the reference policy, with a KL penalty.
    pub reference: Option<Vec<Vec<f64>>>,
}

/// Runs one step: log-probabilities under the previous and the reference policy, the sequence
/// error filter with advantages recomputed, loss and gradient row by row, and one update.
///
/// # Errors
/// Unsupported or corrupt models, rows that contradict themselves or the vocabulary, no trainable
/// token left, and a loss or gradient that is not finite; weights are then not touched on disk.
pub fn run(
    rows: &mut [Row],
    models: Models,
    settings: &StepSettings,
    progress: Progress,
) -> Result<Trained> {
    settings.check()?;
    let loss = Loss::new(settings.loss.clone())?;
    let device = tensor::open_device(settings.device, settings.seed)?;
    let mut policy = Decoder::load(models.policy, settings.dtype, device, true)?;
    let mut optimizer = match checkpoint::steps_behind(models.policy)? {
        Some(step) => OptimizerState::resume(models.policy, step, &mut policy.parameters)?,
        None => OptimizerState::fresh(&policy.parameters)?,
    };

    let other = |dir| Decoder::load(dir, settings.dtype, device, false);
    let packing = settings.pack_tokens;
    let previous = match models.previous {
        Some(dir) => score(&other(dir)?, rows, packing, "previous", progress)?,
        None => score(&policy, rows, packing, "previous", progress)?,
    };
    let filtered = filter(rows, &previous, settings)?;
    let reference = match (loss.needs_reference(), models.reference) {
        (false, _) => None,
        (true, Some(dir)) => Some(score(&other(dir)?, rows, packing, "reference", progress)?),
        (true, None) => {
            return Err(Error::usage("a KL penalty needs a reference model")
                .help("Give --reference-model DIR, or --kl-coef 0"));
        }
    };

    let batch = Batch::new(rows)?;
    let tokens = batch.valid_tokens();
    if tokens == 0 {
        return Err(Error::nothing("no row has a token left to train on")
            .help("`forestctl select` says why rollouts are masked"));
    }
    let others = OtherPolicies { previous: &previous, reference: reference.as_deref() };
    let sums = accumulate(&mut policy, &batch, &loss, others, packing, progress)?;
    let value = sums.loss(&loss, tokens);
    let norm = grad_norm(&policy.parameters)?;
    if !value.is_finite() || !norm.is_finite() {
        return Err(Error::format(format!(
            "the loss is {value} and the gradient norm {norm}; nothing was written"
        ))
        .help("Look for log-probabilities that are not finite, or use a wider --dtype"));
    }
    let coefficient = clip_coefficient(norm, settings.optimizer.max_grad_norm);
    optimizer.update(&mut policy.parameters, &settings.optimizer, coefficient)?;

    let diagnostics = sums.finish(tokens, batch.valid_rows());
    let kl_coefficient = settings.loss.reference_policy_kl_penalty;
    let report = StepReport {
        schema_version: SCHEMA_VERSION,
        loss: value,
        grad_norm: norm,
        loss_tokens: tokens,
        metrics: StepMetrics {
            step: optimizer.step,
            clip_coefficient: coefficient,
            lr: settings.optimizer.lr,
            kl_coefficient,
            kl_loss: kl_coefficient * diagnostics.kl_penalty,
            sequence_error: filtered,
            tokens: diagnostics,
        },
    };
    Ok(Trained { policy, optimizer, report, previous, reference })
}

/// Runs `steps` steps on weights that are drawn, for measuring; nothing is kept.
///
/// # Errors
/// As [`run`].
pub fn measure(
    rows: &[Row],
    model: &Path,
    settings: &StepSettings,
    steps: u32,
    mut told: impl FnMut(&StepTimes) -> Result<()>,
) -> Result<()> {
    settings.check()?;
    let loss = Loss::new(settings.loss.clone())?;
    let device = tensor::open_device(settings.device, settings.seed)?;
    let mut policy = Decoder::random(model, settings.dtype, device, true)?;
    let mut optimizer = OptimizerState::fresh(&policy.parameters)?;
    let batch = Batch::new(rows)?;
    let packing = settings.pack_tokens;
    let made = packs(&batch, packing)?;
    let row_tokens = made.iter().map(|pack| pack.ids.len() as u64).sum();
    let flops: f64 = made.iter().map(|pack| policy.training_flops(pack)).sum();
    let seconds = |since: Instant| {
        if let Device::Cuda(index) = device {
            tch::Cuda::synchronize(index as i64);
        }
        since.elapsed().as_secs_f64()
    };
    for _ in 0..steps {
        let begun = Instant::now();
        let previous = score(&policy, rows, packing, "previous", &|_, _, _| {})?;
        let score_seconds = seconds(begun);
        let others = OtherPolicies { previous: &previous, reference: None };
        let begun = Instant::now();
        let sums = accumulate(&mut policy, &batch, &loss, others, packing, &|_, _, _| {})?;
        let train_seconds = seconds(begun);
        let begun = Instant::now();
        let norm = grad_norm(&policy.parameters)?;
        let coefficient = clip_coefficient(norm, settings.optimizer.max_grad_norm);
        optimizer.update(&mut policy.parameters, &settings.optimizer, coefficient)?;
        policy.parameters.iter_mut().for_each(|parameter| parameter.grad = None);
        let update_seconds = seconds(begun);
        told(&StepTimes {
            score_seconds,
            train_seconds,
            update_seconds,
            row_tokens,
            packs: made.len() as u64,
            train_flops_per_second: flops / train_seconds,
            peak_bytes: match device {
                Device::Cuda(index) => shim::peak_bytes(index),
                _ => None,
            },
            loss: sums.loss(&loss, batch.valid_tokens()),
        })?;
    }
    Ok(())
}

/// Log-probabilities of every row that trains, aligned to its targets; empty for the others.
pub fn score(
    model: &Decoder,
    rows: &[Row],
    pack_tokens: Option<u64>,
    label: &'static str,
    progress: Progress,
) -> Result<Vec<Vec<f64>>> {
    let batch = Batch::new(rows)?;
    for i in batch.active() {
        let row = &rows[i];
        model
            .check_ids(&row.input_ids)
            .map_err(|e| told(format!("row {} ({} tokens)", row.row_id, row.input_ids.len()), e))?;
    }
    let total = batch.active().count() as u64;
    let mut all: Vec<Vec<f64>> =
        (0..rows.len()).map(|i| Vec::with_capacity(batch.targets(i).len())).collect();
    let mut done = 0;
    for pack in packs(&batch, pack_tokens)? {
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

/// Log-probabilities under the policies that do not train, as [`score`] gives them.
#[derive(Clone, Copy, Debug)]
pub struct OtherPolicies<'a> {
    /// Under the previous policy.
    pub previous: &'a [Vec<f64>],
    /// Under the reference policy; read only with a KL penalty.
    pub reference: Option<&'a [Vec<f64>]>,
}

/// Adds the gradient of the loss to the policy's parameters, pack by pack, each row in its own
/// attention context, and returns the sums behind loss and diagnostics.
pub fn accumulate(
    policy: &mut Decoder,
    batch: &Batch,
    loss: &Loss,
    others: OtherPolicies,
    pack_tokens: Option<u64>,
    progress: Progress,
) -> Result<Sums> {
    let total = batch.active().count() as u64;
    let tokens = batch.valid_tokens();
    let mut sums = Sums::default();
    let mut done = 0;
    for pack in packs(batch, pack_tokens)? {
        progress("training", done, total);
        let slopes = |range: Range<usize>, current: &[f64]| {
            let slope = |(pair, &current): (&Pair, &f64)| {
                let (i, k) = (pair.row, pair.nth);
                let row = &batch.rows()[i];
                let token = Token {
                    current,
                    previous: others.previous[i][k],
                    generation: f64::from(row.generation_logprobs[batch.targets(i)[k]]),
                    reference: others.reference.map_or(f64::NAN, |all| all[i][k]),
                    advantage: row.advantage,
                };
                let terms = loss.terms(&token);
                sums.add(loss, &token, &terms);
                mean(terms.derivative, tokens)
            };
            pack.pairs[range].iter().zip(current).map(slope).collect()
        };
        in_pack(batch.rows(), &pack, policy.accumulate(&pack, slopes))?;
        done += pack.rows.len() as u64;
    }
    progress("training", total, total);
    Ok(sums)
}

/// Says on which rows something failed.
fn in_pack<T>(rows: &[Row], pack: &Pack, result: Result<T>) -> Result<T> {
    result.map_err(|e| {
        let first = pack.rows.first().map_or("", |&i| rows[i].row_id.as_str());
        let others = match pack.rows.len() {
            0 | 1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        told(format!("row {first}{others} ({} tokens)", pack.ids.len()), e)
    })
}

/// An error with the rows that it is about.
fn told(rows: String, e: Error) -> Error {
    match e.advice().map(str::to_owned) {
        Some(help) => Error::format(rows).because(e).help(help),
        None => Error::format(rows).because(e),
    }
}
