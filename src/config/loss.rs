//! `loss_fn`: the clipped policy-gradient loss and its options, under the key names of NeMo-RL.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Options of the loss; the defaults are upstream's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Lower end of the ratio interval is `1 - ratio_clip_min`.
    pub ratio_clip_min: f64,
    /// Upper end of the ratio interval is `1 + ratio_clip_max`.
    pub ratio_clip_max: f64,
    /// Dual clipping: a negative advantage costs at most `ratio_clip_c` times itself.
    pub ratio_clip_c: Option<f64>,
    /// REINFORCE: the log-probability takes the place of the ratio, and nothing is clipped.
    pub disable_ppo_ratio: bool,
    /// The ratio is 1 with the gradient of the current policy, whatever the previous one was.
    pub force_on_policy_ratio: bool,
    /// The clipped ratio weighs the log-probability and takes no gradient (CISPO).
    pub use_cispo: bool,
    /// Weight of the KL term against the reference policy; 0 needs no reference.
    pub reference_policy_kl_penalty: f64,
    /// Estimator of the KL term and of the KL diagnostics.
    pub reference_policy_kl_type: KlType,
    /// Bound on `|reference - current|` before the estimator.
    pub kl_input_clamp_value: Option<f64>,
    /// Bound on the estimate.
    pub kl_output_clamp_value: Option<f64>,
    /// Which gradient the KL term has. Its value is the same either way.
    pub kl_gradient: KlGradient,
    /// Weigh the KL term by current over generating probability.
    pub use_on_policy_kl_approximation: bool,
    /// Weigh the actor term by previous over generating probability.
    pub use_importance_sampling_correction: bool,
    /// What to do with weights outside the truncation interval.
    pub truncated_importance_sampling_type: Option<Truncation>,
    /// Upper end of the truncation interval.
    pub truncated_importance_sampling_ratio: Option<f64>,
    /// Lower end of the truncation interval.
    pub truncated_importance_sampling_ratio_min: Option<f64>,
    /// Must stay true: the forest normalises over tokens (rule 10).
    pub token_level_loss: bool,
    /// Must stay false: a rollout has many rows (rule 10).
    pub sequence_level_importance_ratios: bool,
    /// Must stay false: rewards are what the environment gave.
    pub use_kl_in_reward: bool,
    /// Must stay 0.
    pub positive_example_nll_weight: f64,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self {
            ratio_clip_min: 0.2,
            ratio_clip_max: 0.2,
            ratio_clip_c: None,
            disable_ppo_ratio: false,
            force_on_policy_ratio: false,
            use_cispo: false,
            reference_policy_kl_penalty: 0.01,
            reference_policy_kl_type: KlType::K3,
            kl_input_clamp_value: Some(20.0),
            kl_output_clamp_value: Some(10.0),
            kl_gradient: KlGradient::ScoreFunction,
            use_on_policy_kl_approximation: false,
            use_importance_sampling_correction: false,
            truncated_importance_sampling_type: None,
            truncated_importance_sampling_ratio: None,
            truncated_importance_sampling_ratio_min: None,
            token_level_loss: true,
            sequence_level_importance_ratios: false,
            use_kl_in_reward: false,
            positive_example_nll_weight: 0.0,
        }
    }
}

/// Estimator of KL(current, reference) from one sample, with `d = reference - current`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KlType {
    /// `-d`.
    K1,
    /// `d² / 2`.
    K2,
    /// `exp(d) - 1 - d`.
    K3,
}

impl KlType {
    /// The estimate at `d = reference - current`.
    pub fn estimate(self, d: f64) -> f64 {
        match self {
            KlType::K1 => -d,
            KlType::K2 => d * d / 2.0,
            KlType::K3 => d.exp() - 1.0 - d,
        }
    }

    /// Derivative of the estimate by the current log-probability.
    pub fn slope(self, d: f64) -> f64 {
        match self {
            KlType::K1 => 1.0,
            KlType::K2 => -d,
            KlType::K3 => 1.0 - d.exp(),
        }
    }
}

/// Gradient of the KL term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlGradient {
    /// As the samples come from the policy being trained, the estimate also takes the gradient of
    /// their probability: upstream's form since June 2026.
    ScoreFunction,
    /// The derivative of the estimate alone.
    Plain,
}

/// Treatment of importance weights outside `[ratio_min, ratio]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Truncation {
    /// Clamp them; the lower end is 0 unless given.
    Tis,
    /// Replace them by 0.
    Icepop,
    /// Drop whole sequences by their geometric mean; not for forests.
    SeqMaskTis,
}

impl LossConfig {
    /// Refuses what a forest cannot have (rules 10 and 12) and what makes no sense together.
    pub fn check(&self) -> Result<()> {
        let refuse = |key: &str, why: &str| Err(Error::usage(format!("loss_fn.{key} {why}")));
        if !self.token_level_loss {
            return refuse("token_level_loss", "must be true: rows of one rollout share one mean");
        }
        if self.sequence_level_importance_ratios {
            return refuse(
                "sequence_level_importance_ratios",
                "must be false: a rollout has many rows, and no row is a sequence of its own",
            );
        }
        if self.use_kl_in_reward {
            return refuse("use_kl_in_reward", "must be false: rewards are the environment's");
        }
        if self.positive_example_nll_weight != 0.0 {
            return refuse("positive_example_nll_weight", "must be 0");
        }
        self.check_ratio()?;
        self.check_truncation()?;
        let bounds = [
            ("kl_input_clamp_value", self.kl_input_clamp_value),
            ("kl_output_clamp_value", self.kl_output_clamp_value),
        ];
        for (key, bound) in bounds {
            if bound.is_some_and(|b| b.is_nan() || b <= 0.0) {
                return refuse(key, "must be positive, or null for no bound");
            }
        }
        if !self.reference_policy_kl_penalty.is_finite() || self.reference_policy_kl_penalty < 0.0 {
            return refuse("reference_policy_kl_penalty", "must be finite and not negative");
        }
        Ok(())
    }

    fn check_ratio(&self) -> Result<()> {
        let refuse = |message: &str| Err(Error::usage(format!("loss_fn: {message}")));
        if !(0.0..=1.0).contains(&self.ratio_clip_min) {
            return refuse("ratio_clip_min must lie in [0, 1]");
        }
        if !(self.ratio_clip_max >= 0.0 && self.ratio_clip_max.is_finite()) {
            return refuse("ratio_clip_max must be finite and not negative");
        }
        if self.ratio_clip_c.is_some_and(|c| !(c > 1.0 && c.is_finite())) {
            return refuse("ratio_clip_c must exceed 1, or be null for no dual clipping");
        }
        let exclusive = [
            ("use_cispo", self.use_cispo),
            ("disable_ppo_ratio", self.disable_ppo_ratio),
            ("force_on_policy_ratio", self.force_on_policy_ratio),
        ];
        let chosen: Vec<_> = exclusive.iter().filter(|(_, on)| *on).map(|(key, _)| *key).collect();
        if chosen.len() > 1 {
            return refuse(&format!("{} exclude each other", chosen.join(" and ")));
        }
        if self.ratio_clip_c.is_some() && (self.use_cispo || self.disable_ppo_ratio) {
            return refuse(&format!(
                "ratio_clip_c bounds a ratio, and {} has none",
                if self.use_cispo { "use_cispo" } else { "disable_ppo_ratio" }
            ));
        }
        Ok(())
    }

    fn check_truncation(&self) -> Result<()> {
        let refuse = |message: &str| Err(Error::usage(format!("loss_fn: {message}")));
        let (high, low) = (
            self.truncated_importance_sampling_ratio,
            self.truncated_importance_sampling_ratio_min,
        );
        let Some(kind) = self.truncated_importance_sampling_type else {
            if high.is_some() || low.is_some() {
                return refuse(
                    "truncated_importance_sampling_ratio and _ratio_min need a \
                     truncated_importance_sampling_type (tis or icepop)",
                );
            }
            return Ok(());
        };
        if kind == Truncation::SeqMaskTis {
            return refuse(
                "truncated_importance_sampling_type seq-mask-tis masks single rows of a rollout; \
                 use tis or icepop",
            );
        }
        if !self.use_importance_sampling_correction {
            return refuse(
                "truncated_importance_sampling_type needs use_importance_sampling_correction",
            );
        }
        let Some(high) = high.filter(|h| *h > 0.0 && h.is_finite()) else {
            return refuse("truncated_importance_sampling_ratio must be given and positive");
        };
        if kind == Truncation::Icepop && low.is_none() {
            return refuse("icepop needs truncated_importance_sampling_ratio_min");
        }
        if low.is_some_and(|low| !(0.0..=high).contains(&low)) {
            return refuse(
                "truncated_importance_sampling_ratio_min must lie between 0 and \
                 truncated_importance_sampling_ratio",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(yaml: &str) -> String {
        let config: LossConfig = serde_saphyr::from_str(yaml).unwrap();
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_pass() {
        LossConfig::default().check().unwrap();
        assert_eq!(serde_saphyr::from_str::<LossConfig>("{}").unwrap(), LossConfig::default());
    }

    #[test]
    fn what_a_forest_cannot_have_is_refused_by_name() {
        let cases = [
            ("token_level_loss: false", "loss_fn.token_level_loss"),
            ("sequence_level_importance_ratios: true", "loss_fn.sequence_level_importance_ratios"),
            ("use_kl_in_reward: true", "loss_fn.use_kl_in_reward"),
            ("positive_example_nll_weight: 0.1", "loss_fn.positive_example_nll_weight"),
            ("ratio_clip_c: 1.0", "ratio_clip_c"),
            ("kl_input_clamp_value: 0", "kl_input_clamp_value"),
            ("{use_cispo: true, disable_ppo_ratio: true}", "use_cispo and disable_ppo_ratio"),
            ("{use_cispo: true, ratio_clip_c: 3.0}", "use_cispo has none"),
            ("truncated_importance_sampling_type: tis", "needs use_importance"),
            (
                "{truncated_importance_sampling_type: seq-mask-tis, \
                 use_importance_sampling_correction: true}",
                "seq-mask-tis",
            ),
            ("truncated_importance_sampling_ratio: 2.0", "truncated_importance_sampling_type"),
            (
                "{truncated_importance_sampling_type: icepop, \
                 use_importance_sampling_correction: true, \
                 truncated_importance_sampling_ratio: 1.1}",
                "_ratio_min",
            ),
        ];
        for (yaml, word) in cases {
            let message = refused(yaml);
            assert!(message.contains(word), "{yaml}: {message}");
        }
    }
}
