//! The diagnostics of a step: means over the retained valid tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::loss::{Loss, Terms, Token, unclamped};
use crate::config::loss::KlType;

/// Added to the token count in every mean, as upstream does.
const MEAN_EPSILON: f64 = 1e-8;

/// Mean over `tokens`, as loss and diagnostics take it.
pub fn mean(sum: f64, tokens: u64) -> f64 {
    sum / (tokens as f64 + MEAN_EPSILON)
}

/// What a step reports besides its loss (section "RL math" of upstream's semantics). `c`, `p` and
/// `g` are the log-probabilities under the current, previous and generating policy. JSON has null
/// for what overflows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metrics {
    /// Mean of `exp |g - p|`.
    pub token_mult_prob_error: f64,
    /// Mean of KL(g, p), unclamped.
    pub gen_kl_error: f64,
    /// Mean of KL(p, g), unclamped.
    pub policy_kl_error: f64,
    /// Mean Jensen-Shannon divergence of p and g.
    pub js_divergence_error: f64,
    /// Mean importance weight, after truncation.
    pub sampling_importance_ratio: f64,
    /// Share of importance weights outside the truncation interval.
    pub is_oob_ratio: f64,
    /// Minus the mean of `exp(c - g) c`.
    pub approx_entropy: f64,
    /// Mean probability ratio.
    pub probs_ratio: f64,
    /// Least probability ratio; `None` without tokens.
    pub probs_ratio_min: Option<f64>,
    /// Greatest probability ratio; `None` without tokens.
    pub probs_ratio_max: Option<f64>,
    /// Mean clipped ratio.
    pub probs_ratio_clamped: f64,
    /// Least clipped ratio; `None` without tokens.
    pub probs_ratio_clamped_min: Option<f64>,
    /// Greatest clipped ratio; `None` without tokens.
    pub probs_ratio_clamped_max: Option<f64>,
    /// Share of tokens whose clipped ratio decides, so that they have no gradient.
    pub clip_fraction: f64,
    /// Mean of `r - 1 - ln r` with `r = exp(c - p)`: how far the policy has moved since the batch
    /// was scored.
    pub approx_kl: f64,
    /// The policy-gradient part of the loss.
    pub actor_loss: f64,
    /// Mean KL estimate against the reference, without its coefficient.
    pub kl_penalty: f64,
    /// Rows that train.
    pub num_valid_samples: u64,
    /// Trained tokens whose captured or previous log-probability is minus infinity; the
    /// diagnostics of captured against previous leave them out (rule 114).
    pub minus_infinity_tokens: u64,
}

/// Running sums over the trained tokens of a row, or of several.
#[derive(Clone, Debug)]
pub struct Sums {
    token_mult_prob_error: f64,
    gen_kl: f64,
    policy_kl: f64,
    js_divergence: f64,
    importance_weight: f64,
    out_of_bounds: u64,
    entropy: f64,
    ratio: Extent,
    ratio_clamped: Extent,
    clipped: u64,
    approx_kl: f64,
    actor: f64,
    kl: f64,
    minus_infinity: u64,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    sum: f64,
    min: f64,
    max: f64,
}

impl Extent {
    const EMPTY: Self = Self { sum: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY };

    fn add(&mut self, x: f64) {
        self.sum += x;
        self.min = self.min.min(x);
        self.max = self.max.max(x);
    }

    fn join(&mut self, other: &Self) {
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Least and greatest, if anything was added.
    fn ends(&self) -> (Option<f64>, Option<f64>) {
        if self.min <= self.max { (Some(self.min), Some(self.max)) } else { (None, None) }
    }
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            token_mult_prob_error: 0.0,
            gen_kl: 0.0,
            policy_kl: 0.0,
            js_divergence: 0.0,
            importance_weight: 0.0,
            out_of_bounds: 0,
            entropy: 0.0,
            ratio: Extent::EMPTY,
            ratio_clamped: Extent::EMPTY,
            clipped: 0,
            approx_kl: 0.0,
            actor: 0.0,
            kl: 0.0,
            minus_infinity: 0,
        }
    }
}

impl Sums {
    /// Adds one retained valid token.
    pub fn add(&mut self, loss: &Loss, token: &Token, terms: &Terms) {
        self.importance_weight += terms.importance_weight;
        self.out_of_bounds += u64::from(terms.out_of_bounds);
        self.ratio.add(terms.ratio);
        self.ratio_clamped.add(terms.ratio_clamped);
        self.clipped += u64::from(terms.clipped);
        self.actor += terms.actor;
        self.kl += terms.kl;
        let (p, g) = (loss.previous(token), unclamped(token.generation));
        if !p.is_finite() || !g.is_finite() {
            self.minus_infinity += 1;
            return;
        }
        let kind = loss.config().reference_policy_kl_type;
        self.token_mult_prob_error += (g - p).abs().exp();
        self.gen_kl += kind.estimate(p - g);
        self.policy_kl += kind.estimate(g - p);
        self.js_divergence += js_divergence(p, g);
        self.approx_kl += KlType::K3.estimate(token.current - p);
        self.entropy -= (token.current - g).exp() * token.current;
    }

    /// The sums over all rows. Added in row order, so that they do not depend on packs.
    pub fn pooled<'a>(rows: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for row in rows {
            all.token_mult_prob_error += row.token_mult_prob_error;
            all.gen_kl += row.gen_kl;
            all.policy_kl += row.policy_kl;
            all.js_divergence += row.js_divergence;
            all.importance_weight += row.importance_weight;
            all.out_of_bounds += row.out_of_bounds;
            all.entropy += row.entropy;
            all.ratio.join(&row.ratio);
            all.ratio_clamped.join(&row.ratio_clamped);
            all.clipped += row.clipped;
            all.approx_kl += row.approx_kl;
            all.actor += row.actor;
            all.kl += row.kl;
            all.minus_infinity += row.minus_infinity;
        }
        all
    }

    /// The loss: both terms of it.
    pub fn loss(&self, loss: &Loss, tokens: u64) -> f64 {
        mean(self.actor, tokens) + loss.config().reference_policy_kl_penalty * mean(self.kl, tokens)
    }

    /// The means over `tokens` retained valid tokens in `rows` rows.
    pub fn finish(&self, tokens: u64, rows: u64) -> Metrics {
        let mean = |sum| mean(sum, tokens);
        let (probs_ratio_min, probs_ratio_max) = self.ratio.ends();
        let (probs_ratio_clamped_min, probs_ratio_clamped_max) = self.ratio_clamped.ends();
        Metrics {
            token_mult_prob_error: mean(self.token_mult_prob_error),
            gen_kl_error: mean(self.gen_kl),
            policy_kl_error: mean(self.policy_kl),
            js_divergence_error: mean(self.js_divergence),
            sampling_importance_ratio: mean(self.importance_weight),
            is_oob_ratio: mean(self.out_of_bounds as f64),
            approx_entropy: mean(self.entropy),
            probs_ratio: mean(self.ratio.sum),
            probs_ratio_min,
            probs_ratio_max,
            probs_ratio_clamped: mean(self.ratio_clamped.sum),
            probs_ratio_clamped_min,
            probs_ratio_clamped_max,
            clip_fraction: mean(self.clipped as f64),
            approx_kl: mean(self.approx_kl),
            actor_loss: mean(self.actor),
            kl_penalty: mean(self.kl),
            num_valid_samples: rows,
            minus_infinity_tokens: self.minus_infinity,
        }
    }
}

fn js_divergence(p: f64, g: f64) -> f64 {
    // Relative to the larger one, so that two very unlikely tokens do not vanish.
    let larger = p.max(g);
    let mixture = larger + (0.5 * (p - larger).exp() + 0.5 * (g - larger).exp()).ln();
    let half = |x: f64| (x - mixture).exp() - (x - mixture) - 1.0;
    0.5 * half(p) + 0.5 * half(g)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::loss::LossConfig;

    #[test]
    fn equal_policies_have_no_error_and_clamped_tokens_are_left_out() {
        let config = LossConfig { reference_policy_kl_penalty: 0.0, ..LossConfig::default() };
        let loss = Loss::new(config).unwrap();
        let mut sums = Sums::default();
        for generation in [-2.0, -9999.0, f64::NEG_INFINITY] {
            let token = Token {
                current: -2.0,
                previous: -2.0,
                generation,
                reference: f64::NAN,
                advantage: 0.5,
            };
            sums.add(&loss, &token, &loss.terms(&token));
        }
        let metrics = sums.finish(3, 1);
        assert_eq!(metrics.minus_infinity_tokens, 2);
        assert_eq!(metrics.gen_kl_error, 0.0);
        assert_eq!(metrics.token_mult_prob_error, 1.0 / (3.0 + 1e-8));
        assert_eq!(metrics.probs_ratio_max, Some(1.0));
        assert!((sums.loss(&loss, 3) + 0.5).abs() < 1e-8);
    }

    #[test]
    fn the_divergence_of_very_unlikely_tokens_is_a_number() {
        assert_eq!(js_divergence(-800.0, -800.0), 0.0);
        let far = js_divergence(-0.5, -900.0);
        assert!(far.is_finite() && far > 100.0, "{far}");
        assert!((js_divergence(-800.0, -801.0) - js_divergence(-1.0, -2.0)).abs() < 1e-12);
    }

    #[test]
    fn no_tokens_give_no_extent() {
        let metrics = Sums::default().finish(0, 0);
        assert_eq!((metrics.probs_ratio_min, metrics.probs_ratio_max), (None, None));
        assert_eq!(metrics.actor_loss, 0.0);
    }
}
