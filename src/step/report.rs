//! What a step tells: the JSON of `step --format json` and the lines of `metrics.jsonl`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::batch::Batch;
use super::loss::Loss;
use super::metrics::{Metrics, Sums};
use super::sequence_error::Filtered;
use crate::id::{GroupId, RolloutId};

/// Version of the JSON below. Fields are only added within a version.
pub const SCHEMA_VERSION: u32 = 1;

/// Result of one optimizer step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The loss before the update.
    pub loss: f64,
    /// Global norm of the gradient before clipping.
    pub grad_norm: f64,
    /// N: retained valid tokens, over which loss and metrics are means.
    pub loss_tokens: u64,
    /// Diagnostics.
    pub metrics: StepMetrics,
    /// Times and memory; left out of `metrics.jsonl` by a deterministic step, whose checkpoint is
    /// the same bytes every time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub performance: Option<Performance>,
}

impl StepReport {
    /// Every number by name, those of lists left out: loss, gradient norm and tokens, then metrics
    /// and times. `None` stands for a number that overflowed or that there is none of.
    pub fn scalars(&self) -> Vec<(String, Option<f64>)> {
        let value = serde_json::to_value(self).unwrap_or_default();
        let mut scalars = Vec::new();
        for name in ["loss", "grad_norm", "loss_tokens"] {
            scalars.push((name.to_owned(), value[name].as_f64()));
        }
        gather("", &value["metrics"], &mut scalars);
        gather("performance/", &value["performance"], &mut scalars);
        scalars
    }
}

fn gather(prefix: &str, value: &serde_json::Value, scalars: &mut Vec<(String, Option<f64>)>) {
    use serde_json::Value::{Null, Number, Object};
    for (name, value) in value.as_object().into_iter().flatten() {
        let name = format!("{prefix}{name}");
        match value {
            Null | Number(_) => scalars.push((name, value.as_f64())),
            Object(_) => gather(&format!("{name}/"), value, scalars),
            _ => {}
        }
    }
}

/// What an optimizer step took. Seconds are of the wall clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Performance {
    /// Seconds of log-probabilities under the previous and the reference policy: on the first step
    /// of a run, as later ones use the same.
    pub score_seconds: f64,
    /// Seconds of loss and gradients.
    pub train_seconds: f64,
    /// Seconds of the optimizer: gradient norm, clipping and update.
    pub update_seconds: f64,
    /// Seconds of reading rows and models, on the first step of a run, and of writing the
    /// checkpoint, on the last; `metrics.jsonl` itself is not counted.
    pub io_seconds: f64,
    /// Tokens of the rows that were trained on.
    pub row_tokens: u64,
    /// Tokens that were computed for them: fewer where rows share prefixes.
    #[serde(default)]
    pub computed_tokens: u64,
    /// Packs that they were computed in.
    pub packs: u64,
    /// Row tokens over the seconds of training and update.
    pub tokens_per_second: f64,
    /// Floating-point operations of the model that training takes, forward and backward once,
    /// over the seconds that it took.
    pub train_flops_per_second: f64,
    /// Those over the peak of the device in dense bfloat16; none on the processor, in other number
    /// formats, and on devices whose peak is not known.
    pub mfu: Option<f64>,
    /// Most bytes so far at one time: of tensors on a CUDA device, on the processor of the process.
    pub peak_bytes: Option<u64>,
    /// Where `train_seconds` went; on a CUDA device only when it is asked for.
    pub split: Option<TimeSplit>,
}

/// Seconds of training by what was computed, forward, forward again, and backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeSplit {
    /// Attention of queries, keys and values.
    pub attention_seconds: f64,
    /// Products with the weights of the layers.
    pub linear_seconds: f64,
    /// Logits, log-probabilities and the loss.
    pub head_seconds: f64,
    /// The rest: norms, rotary embedding, activations, embedding, sums of gradients.
    pub other_seconds: f64,
}

/// What one measured step took.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepTimes {
    /// Times and memory.
    #[serde(flatten)]
    pub performance: Performance,
    /// The loss, as a check.
    pub loss: f64,
}

/// One row in one optimizer step: a line of `step --dump-rows`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RowReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Optimizer step, as in [`StepMetrics`].
    pub step: u64,
    /// The row.
    pub row_id: String,
    /// Its prompt group.
    pub group_id: GroupId,
    /// Its owner.
    pub rollout_id: Option<RolloutId>,
    /// The owner's reward.
    pub reward: Option<f64>,
    /// The owner's advantage, after all filters.
    pub advantage: f64,
    /// Tokens of the row that carry loss; what follows are means over them.
    pub loss_tokens: u64,
    /// Mean loss of these tokens before the update.
    pub loss: f64,
    /// Means over the row's tokens that carry loss.
    #[serde(flatten)]
    pub metrics: Metrics,
}

impl RowReport {
    /// The rows of a batch that were trained on, in order; `sums` has one entry per row of it.
    pub fn of(batch: &Batch, sums: &[Sums], loss: &Loss, step: u64) -> Vec<Self> {
        let report = |i: usize| {
            let (row, tokens) = (&batch.rows()[i], batch.targets(i).len() as u64);
            Self {
                schema_version: SCHEMA_VERSION,
                step,
                row_id: row.row_id.clone(),
                group_id: row.group_id.clone(),
                rollout_id: row.rollout_id.clone(),
                reward: row.reward,
                advantage: row.advantage,
                loss_tokens: tokens,
                loss: sums[i].loss(loss, tokens),
                metrics: sums[i].finish(tokens, 1),
            }
        };
        batch.active().map(report).collect()
    }
}

/// Diagnostics of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepMetrics {
    /// Optimizer steps behind the checkpoint, this one included.
    pub step: u64,
    /// Pass over the batch, from 1.
    pub epoch: u32,
    /// Share of the batch, from 1.
    pub minibatch: u32,
    /// Means over the retained valid tokens.
    #[serde(flatten)]
    pub tokens: Metrics,
    /// What gradients were multiplied by; below 1 when clipped.
    pub clip_coefficient: f64,
    /// Learning rate.
    pub lr: f64,
    /// Coefficient of the KL term.
    pub kl_coefficient: f64,
    /// The KL term of the loss.
    pub kl_loss: f64,
    /// Errors of whole rows, and the filter on them.
    pub sequence_error: Filtered,
}
