//! One optimizer step: loss and gradients of a batch, clipping, and the update.

use std::ops::Range;
use std::time::Instant;

use forestctl::error::{Error, Result};
use forestctl::rows::Row;
use forestctl::step::batch::Batch;
use forestctl::step::device::peak_bf16_flops;
use forestctl::step::loss::{Loss, Token};
use forestctl::step::metrics::{Sums, mean};
use forestctl::step::plan::pack::{Pack, Pair, packs};
use forestctl::step::report::{Performance, TimeSplit};
use forestctl::step::settings::{AdamW, Dtype, Layout, StepSettings};
use tch::Device;

use super::clock::peak_bytes;
use super::decoder::Decoder;
use super::optim::{OptimizerState, clip_coefficient, grad_norm};
use super::run::Progress;
use super::shim;
use super::tensor::failed;

/// Log-probabilities under the policies that do not train, as [`super::run::score`] gives them.
#[derive(Clone, Copy, Debug)]
pub struct OtherPolicies<'a> {
    /// Under the previous policy.
    pub previous: &'a [Vec<f64>],
    /// Under the reference policy; read only with a KL penalty.
    pub reference: Option<&'a [Vec<f64>]>,
}

/// An update that is made.
#[derive(Clone, Debug)]
pub struct Update {
    /// What loss and diagnostics are the means of, one entry per row of the batch.
    pub sums: Vec<Sums>,
    /// The loss before the update.
    pub loss: f64,
    /// Global norm of the gradient before clipping.
    pub grad_norm: f64,
    /// What gradients were multiplied by.
    pub clip_coefficient: f64,
    /// What it took.
    pub performance: Performance,
}

/// What stays the same over the updates of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The loss.
    pub loss: &'a Loss,
    /// How rows come together.
    pub layout: Layout,
    /// The optimizer.
    pub optimizer: &'a AdamW,
    /// Operations per second that the device can do in the run's number format, where known.
    pub peak_flops: Option<f64>,
    /// Where the run computes.
    pub device: Device,
}

impl<'a> Plan<'a> {
    /// The plan of a run with these settings on an open device.
    pub fn new(settings: &'a StepSettings, loss: &'a Loss, device: Device) -> Self {
        let peak_flops = match device {
            Device::Cuda(index) if settings.dtype == Dtype::Bfloat16 => {
                shim::device_name(index).as_deref().and_then(peak_bf16_flops)
            }
            _ => None,
        };
        let (layout, optimizer) = (settings.layout(), &settings.optimizer);
        Self { loss, layout, optimizer, peak_flops, device }
    }

    /// Seconds since `begun`, with all work on the device done.
    pub fn seconds(&self, begun: Instant) -> f64 {
        if let Device::Cuda(index) = self.device {
            tch::Cuda::synchronize(index as i64);
        }
        begun.elapsed().as_secs_f64()
    }

    /// Makes one update on a batch. The gradients stay in the parameters until the next one.
    ///
    /// # Errors
    ///
    /// A loss, gradient, weight or moment that is not finite, and whatever libtorch complains of.
    pub fn update(
        &self,
        policy: &mut Decoder,
        optimizer: &mut OptimizerState,
        batch: &Batch,
        others: OtherPolicies,
        progress: Progress,
    ) -> Result<Update> {
        policy.parameters.iter_mut().for_each(|parameter| parameter.grad = None);
        let made = packs(batch, self.layout.plan(batch))?;
        let begun = Instant::now();
        let (sums, split) = accumulate(policy, batch, self.loss, others, &made, progress)?;
        let train_seconds = self.seconds(begun);
        let begun = Instant::now();
        let loss = Sums::pooled(&sums).loss(self.loss, batch.valid_tokens());
        let norm = grad_norm(&policy.parameters)?;
        if !loss.is_finite() || !norm.is_finite() {
            return Err(Error::format(format!(
                "the loss is {loss} and the gradient norm {norm}; nothing was written"
            ))
            .help("Look for log-probabilities that are not finite, or use a wider --dtype"));
        }
        let clip_coefficient = clip_coefficient(norm, self.optimizer.max_grad_norm);
        optimizer.update(&mut policy.parameters, self.optimizer, clip_coefficient)?;
        let update_seconds = self.seconds(begun);

        let lengths = batch.active().map(|row| batch.rows()[row].input_ids.len() as u64);
        let row_tokens = lengths.sum();
        let computed_tokens = made.iter().map(|pack| pack.ids().len() as u64).sum();
        let flops: f64 = made.iter().map(|pack| policy.training_flops(pack)).sum();
        let flops_per_second = flops / train_seconds;
        let performance = Performance {
            train_seconds,
            update_seconds,
            row_tokens,
            computed_tokens,
            packs: made.len() as u64,
            tokens_per_second: row_tokens as f64 / (train_seconds + update_seconds),
            train_flops_per_second: flops_per_second,
            mfu: self.peak_flops.map(|peak| flops_per_second / peak),
            peak_bytes: peak_bytes(self.device),
            split: split.map(|split| with_rest(split, train_seconds)),
            ..Performance::default()
        };
        Ok(Update { sums, loss, grad_norm: norm, clip_coefficient, performance })
    }
}

fn with_rest(split: TimeSplit, total: f64) -> TimeSplit {
    let TimeSplit { attention_seconds, linear_seconds, head_seconds, .. } = split;
    let other_seconds = (total - attention_seconds - linear_seconds - head_seconds).max(0.0);
    TimeSplit { other_seconds, ..split }
}

/// Adds the gradient of the loss to the policy's parameters, pack by pack of a batch, each row in its
/// own attention context. Returns the sums behind loss and diagnostics, one entry per row, and where the
/// time went if the policy's clock measures it.
pub fn accumulate(
    policy: &mut Decoder,
    batch: &Batch,
    loss: &Loss,
    others: OtherPolicies,
    packs: &[Pack],
    progress: Progress,
) -> Result<(Vec<Sums>, Option<TimeSplit>)> {
    let total = batch.active().count() as u64;
    let tokens = batch.valid_tokens();
    let mut sums = vec![Sums::default(); batch.rows().len()];
    let mut done = 0;
    // What scoring took is not training.
    policy.clock.add_to(&mut None).map_err(failed)?;
    let mut split = None;
    for pack in packs {
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
                sums[i].add(loss, &token, &terms);
                mean(terms.derivative, tokens)
            };
            pack.pairs[range].iter().zip(current).map(slope).collect()
        };
        in_pack(batch.rows(), pack, policy.accumulate(pack, slopes))?;
        policy.clock.add_to(&mut split).map_err(failed)?;
        done += pack.rows.len() as u64;
    }
    progress("training", total, total);
    Ok((sums, split))
}

/// Says on which rows something failed.
pub fn in_pack<T>(rows: &[Row], pack: &Pack, result: Result<T>) -> Result<T> {
    result.map_err(|e| {
        let first = pack.rows.first().map_or("", |&i| rows[i].row_id.as_str());
        let others = match pack.rows.len() {
            0 | 1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        e.within(format!("row {first}{others} ({} tokens)", pack.ids().len()))
    })
}
