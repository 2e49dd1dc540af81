//! What a step tells: the JSON of `step --format json` and the lines of `metrics.jsonl`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metrics::Metrics;
use super::sequence_error::Filtered;

/// Version of the JSON below. Fields are only added within a version.
pub const SCHEMA_VERSION: u32 = 1;

/// Result of one step.
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
}

/// What one measured step took.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepTimes {
    /// Seconds of log-probabilities under the previous policy.
    pub score_seconds: f64,
    /// Seconds of loss and gradients.
    pub train_seconds: f64,
    /// Seconds of clipping and the update.
    pub update_seconds: f64,
    /// Tokens of the rows that were trained on.
    pub row_tokens: u64,
    /// Packs that they were computed in.
    pub packs: u64,
    /// Floating-point operations of the model that training takes, forward and backward once,
    /// over the seconds that it took.
    pub train_flops_per_second: f64,
    /// Most bytes that tensors took at one time so far; none on the processor.
    pub peak_bytes: Option<u64>,
    /// The loss, as a check.
    pub loss: f64,
}

/// Diagnostics of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepMetrics {
    /// Optimizer steps behind the checkpoint, this one included.
    pub step: u64,
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
