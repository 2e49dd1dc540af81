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
