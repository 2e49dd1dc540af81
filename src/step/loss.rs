//! The clipped policy-gradient loss of one token, and its derivative.
//!
//! Every token contributes on its own and the normaliser is known beforehand, so value and
//! derivative are plain arithmetic in float64, whatever the model computes in. The derivative is
//! taken with respect to the current log-probability; everything else is a constant. Where the two
//! arms of a maximum tie (a ratio of exactly 1 does so always), the derivative is that of the
//! unclipped arm.

use crate::archive::CLAMPED_LOGPROB;
use crate::config::loss::{KlGradient, LossConfig, Truncation};
use crate::error::Result;

/// A captured log-probability as diagnostics and weights read it (rule 114).
pub fn unclamped(captured: f64) -> f64 {
    if captured <= f64::from(CLAMPED_LOGPROB) { f64::NEG_INFINITY } else { captured }
}

/// What the loss knows of one owned token.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    /// Log-probability under the policy being trained.
    pub current: f64,
    /// Log-probability under the policy at the start of the step.
    pub previous: f64,
    /// Log-probability that the engine reported when it sampled the token.
    pub generation: f64,
    /// Log-probability under the reference policy; read only with a KL penalty.
    pub reference: f64,
    /// The owner's advantage.
    pub advantage: f64,
}

/// The terms of one token, before the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Weighted policy-gradient term.
    pub actor: f64,
    /// KL estimate, without its coefficient.
    pub kl: f64,
    /// Derivative of `actor + coefficient * kl` by the current log-probability.
    pub derivative: f64,
    /// What stands for the probability ratio.
    pub ratio: f64,
    /// The same, clipped.
    pub ratio_clamped: f64,
    /// Whether the clipped ratio decided the term, which then has no gradient; with CISPO, whether
    /// the ratio was clipped.
    pub clipped: bool,
    /// Importance weight after truncation, whether or not the loss uses it.
    pub importance_weight: f64,
    /// Whether the importance weight lay outside the truncation interval.
    pub out_of_bounds: bool,
}

/// The loss, with options that were found to make sense.
#[derive(Clone, Debug)]
pub struct Loss {
    config: LossConfig,
}

impl Loss {
    /// Refuses options as [`LossConfig::check`] does.
    pub fn new(config: LossConfig) -> Result<Self> {
        config.check()?;
        Ok(Self { config })
    }

    /// The options.
    pub fn config(&self) -> &LossConfig {
        &self.config
    }

    /// Whether reference log-probabilities are read.
    pub fn needs_reference(&self) -> bool {
        self.config.reference_policy_kl_penalty != 0.0
    }

    /// The previous log-probability that ratio and weights see.
    pub fn previous(&self, token: &Token) -> f64 {
        if self.config.force_on_policy_ratio { token.current } else { token.previous }
    }

    /// The terms of one token.
    pub fn terms(&self, token: &Token) -> Terms {
        let (ratio, ratio_slope) = self.ratio(token);
        let ratio_clamped = if self.config.disable_ppo_ratio || self.config.force_on_policy_ratio {
            ratio
        } else {
            ratio.clamp(1.0 - self.config.ratio_clip_min, 1.0 + self.config.ratio_clip_max)
        };
        let (actor, actor_slope) = self.actor(token, ratio, ratio_slope, ratio_clamped);
        let clipped = match self.config.use_cispo {
            true => ratio_clamped != ratio,
            false => -token.advantage * ratio_clamped > -token.advantage * ratio,
        };
        let (importance_weight, out_of_bounds) = self.importance(token);
        let weight =
            if self.config.use_importance_sampling_correction { importance_weight } else { 1.0 };
        let (kl, kl_slope) = if self.needs_reference() { self.kl(token) } else { (0.0, 0.0) };
        Terms {
            actor: weight * actor,
            kl,
            derivative: weight * actor_slope + self.config.reference_policy_kl_penalty * kl_slope,
            ratio,
            ratio_clamped,
            clipped,
            importance_weight,
            out_of_bounds,
        }
    }

    /// The ratio and its derivative.
    fn ratio(&self, token: &Token) -> (f64, f64) {
        if self.config.disable_ppo_ratio {
            (token.current, 1.0)
        } else {
            let ratio = (token.current - self.previous(token)).exp();
            (ratio, ratio)
        }
    }

    fn actor(&self, token: &Token, ratio: f64, slope: f64, clamped: f64) -> (f64, f64) {
        let advantage = token.advantage;
        if self.config.use_cispo {
            return (-advantage * clamped * token.current, -advantage * clamped);
        }
        let (free, clipped) = (-advantage * ratio, -advantage * clamped);
        let (value, derivative) =
            if clipped > free { (clipped, 0.0) } else { (free, -advantage * slope) };
        match self.config.ratio_clip_c.map(|c| -advantage * c) {
            Some(bound) if advantage < 0.0 && value > bound => (bound, 0.0),
            _ => (value, derivative),
        }
    }

    /// The truncated importance weight, and whether truncation acted.
    fn importance(&self, token: &Token) -> (f64, bool) {
        let raw = (self.previous(token) - unclamped(token.generation)).exp();
        let weight = if raw.is_finite() { raw } else { 0.0 };
        let low = self.config.truncated_importance_sampling_ratio_min.unwrap_or(0.0);
        let high = self.config.truncated_importance_sampling_ratio.unwrap_or(f64::INFINITY);
        let outside = weight < low || weight > high;
        match self.config.truncated_importance_sampling_type {
            Some(Truncation::Tis) => (weight.clamp(low, high), outside),
            Some(Truncation::Icepop) if outside => (0.0, true),
            _ => (weight, outside),
        }
    }

    /// The KL estimate and its derivative.
    fn kl(&self, token: &Token) -> (f64, f64) {
        let kind = self.config.reference_policy_kl_type;
        let bound = self.config.kl_input_clamp_value.unwrap_or(f64::INFINITY);
        let d = token.reference - token.current;
        let saturated = d.abs() > bound;
        let d = d.clamp(-bound, bound);
        let weight = if self.config.use_on_policy_kl_approximation {
            let weight = (token.current - unclamped(token.generation)).exp();
            if weight.is_finite() { weight } else { 0.0 }
        } else {
            1.0
        };
        let value = weight * kind.estimate(d);
        let derivative = match (saturated, self.config.kl_gradient) {
            (true, _) => 0.0,
            (false, KlGradient::Plain) => weight * kind.slope(d),
            (false, KlGradient::ScoreFunction) => weight * kind.slope(d) + value,
        };
        let bound = self.config.kl_output_clamp_value.unwrap_or(f64::INFINITY);
        if value.abs() > bound { (value.clamp(-bound, bound), 0.0) } else { (value, derivative) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::loss::KlType;

    fn loss(change: impl FnOnce(&mut LossConfig)) -> Loss {
        let mut config = LossConfig { kl_gradient: KlGradient::Plain, ..LossConfig::default() };
        change(&mut config);
        Loss::new(config).unwrap()
    }

    fn value(loss: &Loss, token: &Token) -> f64 {
        let terms = loss.terms(token);
        terms.actor + loss.config().reference_policy_kl_penalty * terms.kl
    }

    fn tokens() -> impl Strategy<Value = Token> {
        let logprob = || -8.0..-0.01f64;
        (logprob(), -0.6..0.6f64, -0.6..0.6f64, -1.0..1.0f64, -2.0..2.0f64).prop_map(
            |(current, previous, generation, reference, advantage)| Token {
                current,
                previous: current + previous,
                generation: current + generation,
                reference: current + reference,
                advantage,
            },
        )
    }

    proptest! {
        /// The derivative is the slope of the value wherever the value has one.
        #[test]
        fn derivatives_agree_with_differences(token in tokens(), which in 0..6usize) {
            let loss = loss(|c| match which {
                0 => {}
                1 => c.ratio_clip_c = Some(1.2),
                2 => c.disable_ppo_ratio = true,
                3 => c.reference_policy_kl_type = KlType::K2,
                4 => {
                    c.use_importance_sampling_correction = true;
                    c.truncated_importance_sampling_type = Some(Truncation::Icepop);
                    c.truncated_importance_sampling_ratio = Some(1.1);
                    c.truncated_importance_sampling_ratio_min = Some(0.9);
                }
                _ => {
                    c.reference_policy_kl_type = KlType::K1;
                    c.kl_input_clamp_value = Some(0.5);
                    c.kl_output_clamp_value = Some(0.3);
                }
            });
            let h = 1e-6;
            let at = |current| value(&loss, &Token { current, ..token });
            let (left, right) = (
                (at(token.current) - at(token.current - h)) / h,
                (at(token.current + h) - at(token.current)) / h,
            );
            // A kink lies within reach of the differences: there is no slope to compare with.
            prop_assume!((left - right).abs() < 1e-4);
            let derivative = loss.terms(&token).derivative;
            prop_assert!((derivative - (left + right) / 2.0).abs() < 2e-5);
        }
    }

    #[test]
    fn a_tie_takes_the_gradient_of_the_unclipped_arm() {
        for advantage in [-1.5, 1.5] {
            let token = Token {
                current: -2.0,
                previous: -2.0,
                generation: -2.0,
                reference: 0.0,
                advantage,
            };
            let terms = loss(|c| c.reference_policy_kl_penalty = 0.0).terms(&token);
            assert_eq!((terms.actor, terms.derivative), (-advantage, -advantage));
        }
    }

    #[test]
    fn a_clamped_engine_logprob_weighs_nothing() {
        let token = Token {
            current: -2.0,
            previous: -2.0,
            generation: -9999.0,
            reference: -2.0,
            advantage: 1.0,
        };
        let terms = loss(|c| c.use_importance_sampling_correction = true).terms(&token);
        assert_eq!((terms.importance_weight, terms.actor, terms.derivative), (0.0, 0.0, 0.0));
    }

    #[test]
    fn saturated_input_and_output_clamps_take_no_gradient() {
        let token = |reference| Token {
            current: -2.0,
            previous: -2.0,
            generation: -2.0,
            reference,
            advantage: 0.0,
        };
        let score = loss(|c| c.kl_gradient = KlGradient::ScoreFunction);
        // d = 8 gives e^8 - 9, which the output clamp bounds by 10.
        assert_eq!((score.terms(&token(6.0)).kl, score.terms(&token(6.0)).derivative), (10.0, 0.0));
        // d = -30 enters as -20.
        let terms = score.terms(&token(-32.0));
        assert_eq!((terms.kl, terms.derivative), (10.0, 0.0));
        let unbounded = loss(|c| c.kl_output_clamp_value = None);
        assert_eq!(unbounded.terms(&token(-32.0)).kl, (-20.0f64).exp() + 19.0);
    }
}
