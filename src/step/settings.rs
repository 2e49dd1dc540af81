//! What a step is asked to do, as plain values.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::config::GrpoSettings;
use crate::config::loss::LossConfig;
use crate::error::{Error, Result};
use crate::step::batch::Batch;
use crate::step::plan::blocks::AttentionWay;
use crate::step::plan::pack::{PackPlan, sharing_pays};

/// Number format of the computation and of the checkpoint's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Everything in float64, also norms, rotary tables and softmax
    Float64,
    /// Everything in float32
    Float32,
    /// Products in bfloat16; norms, softmax, main weights and optimizer in float32
    Bfloat16,
}

impl Dtype {
    /// The word of `config.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Dtype::Float64 => "float64",
            Dtype::Float32 => "float32",
            Dtype::Bfloat16 => "bfloat16",
        }
    }

    /// The format that a model saved as `word` runs in unless told otherwise.
    pub fn of_model(word: Option<&str>) -> Self {
        match word {
            Some("float64") => Dtype::Float64,
            Some("bfloat16") => Dtype::Bfloat16,
            _ => Dtype::Float32,
        }
    }
}

/// Where the computation runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The processor.
    #[default]
    Cpu,
    /// One CUDA device, by index.
    Cuda(u32),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "cpu" => Ok(DeviceChoice::Cpu),
            None if text == "cuda" => Ok(DeviceChoice::Cuda(0)),
            Some(("cuda", index)) if index.parse::<u8>().is_ok() => {
                Ok(DeviceChoice::Cuda(index.parse().unwrap_or_default()))
            }
            _ => Err("expected cpu, cuda or cuda:INDEX".to_owned()),
        }
    }
}

impl Serialize for DeviceChoice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// AdamW with decoupled decay on every parameter, after clipping by the global norm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first and second moment.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decay of weights per unit of learning rate.
    pub weight_decay: f64,
    /// Gradients are scaled down to this norm; infinite, they are not, and JSON has null.
    #[serde(deserialize_with = "null_is_infinite")]
    pub max_grad_norm: f64,
}

fn null_is_infinite<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

impl Default for AdamW {
    fn default() -> Self {
        Self { lr: 5e-6, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.01, max_grad_norm: 1.0 }
    }
}

impl AdamW {
    /// Refuses values that no update can be made with.
    pub fn check(&self) -> Result<()> {
        let fits = |beta: f64| (0.0..1.0).contains(&beta);
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let problem = if !(self.lr >= 0.0 && self.lr.is_finite()) {
            "the learning rate must be finite and not negative"
        } else if !fits(self.betas.0) || !fits(self.betas.1) {
            "betas must lie in [0, 1)"
        } else if !positive(self.eps) {
            "eps must be positive"
        } else if !(self.weight_decay >= 0.0 && self.weight_decay.is_finite()) {
            "weight decay must be finite and not negative"
        } else if self.max_grad_norm.is_nan() || self.max_grad_norm <= 0.0 {
            "the gradient norm must be positive"
        } else {
            return Ok(());
        };
        Err(Error::usage(problem))
    }
}

/// How often a batch is trained on, and in how many pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Passes over the batch.
    pub steps: u32,
    /// Optimizer steps of one pass, each on its own share of the rollouts
    /// ([`super::batch::Batch::minibatches`]).
    pub minibatches: u32,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { steps: 1, minibatches: 1 }
    }
}

/// Tokens that are computed at once unless told.
pub const PACK_TOKENS: u64 = 16384;

/// Whether tokens that rows share from their beginning on are computed once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// When it saves time
    #[default]
    Auto,
    /// Always
    Always,
    /// Every row by itself
    Never,
}

/// How rows come together to be computed. No number depends on it but by rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Tokens that are computed at once; `None` computes row by row.
    pub pack_tokens: Option<u64>,
    /// Whether rows share prefixes.
    pub share_prefixes: Sharing,
}

impl Layout {
    /// How a batch is put into packs.
    pub fn plan(&self, batch: &Batch) -> PackPlan {
        let share = match self.share_prefixes {
            Sharing::Always => true,
            Sharing::Never => false,
            Sharing::Auto => self.pack_tokens.is_some() && sharing_pays(batch),
        };
        PackPlan { tokens: self.pack_tokens, share }
    }
}

/// Everything that decides the numbers of a step, apart from rows and models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepSettings {
    /// Number format.
    pub dtype: Dtype,
    /// Where it runs.
    pub device: DeviceChoice,
    /// Seed of the tensor library's generator; nothing here draws from it.
    pub seed: u64,
    /// Tokens that are computed at once; `None` computes row by row.
    pub pack_tokens: Option<u64>,
    /// Whether tokens that rows share are computed once.
    #[serde(default)]
    pub share_prefixes: Sharing,
    /// How attention over shared tokens is computed.
    #[serde(default)]
    pub attention: AttentionWay,
    /// How often the batch is trained on.
    #[serde(default)]
    pub schedule: Schedule,
    /// Only kernels that give the same bytes every time.
    #[serde(default)]
    pub deterministic: bool,
    /// The optimizer.
    pub optimizer: AdamW,
    /// The loss.
    pub loss: LossConfig,
    /// Rollouts whose pooled error exceeds this are masked; `None` only measures (rule 115).
    pub seq_logprob_error_threshold: Option<f64>,
    /// How advantages are recomputed after that filter.
    pub grpo: GrpoSettings,
}

impl StepSettings {
    /// How rows come together.
    pub fn layout(&self) -> Layout {
        Layout { pack_tokens: self.pack_tokens, share_prefixes: self.share_prefixes }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<()> {
        self.optimizer.check()?;
        if self.schedule.steps == 0 || self.schedule.minibatches == 0 {
            return Err(Error::usage("--steps and --minibatches count from 1"));
        }
        if self.seq_logprob_error_threshold.is_some_and(|t| t.is_nan() || t < 1.0) {
            return Err(Error::usage(
                "grpo.seq_logprob_error_threshold bounds a mean of exp |g - p|, which is at least 1",
            ));
        }
        self.loss.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_parse_as_they_print() {
        for (text, device) in [("cpu", DeviceChoice::Cpu), ("cuda:3", DeviceChoice::Cuda(3))] {
            assert_eq!(text.parse(), Ok(device));
            assert_eq!(device.to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        for bad in ["gpu", "cuda:", "cuda:-1", "cpu:0", ""] {
            assert!(bad.parse::<DeviceChoice>().is_err(), "{bad}");
        }
    }

    #[test]
    fn optimizers_that_cannot_update_are_refused() {
        AdamW::default().check().unwrap();
        let bad = [
            AdamW { lr: f64::NAN, ..AdamW::default() },
            AdamW { betas: (1.0, 0.9), ..AdamW::default() },
            AdamW { weight_decay: -1.0, ..AdamW::default() },
            AdamW { max_grad_norm: 0.0, ..AdamW::default() },
        ];
        assert!(bad.iter().all(|adamw| adamw.check().is_err()));
    }
}
