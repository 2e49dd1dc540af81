//! How rewards become advantages: flags, and the keys `grpo.*` of a configuration file.

use clap::Args;

use super::resolve::{Resolver, Word};
use crate::config::{GrpoSettings, MaskedRewardPolicy};
use crate::error::{Error, Result};

/// Flags of every command that computes advantages.
#[derive(Debug, Args)]
pub struct AdvantageArgs {
    /// Keep the owner's own reward in its baseline
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", help_heading = "Advantages")]
    no_leave_one_out: Option<bool>,
    /// Do not divide by the standard deviation of the rewards
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", help_heading = "Advantages")]
    no_normalize: Option<bool>,
    /// Least advantage of an owner that trains
    #[arg(
        long,
        value_name = "A",
        value_parser = finite,
        allow_negative_numbers = true,
        help_heading = "Advantages"
    )]
    advantage_clip_low: Option<f64>,
    /// Greatest advantage of an owner that trains
    #[arg(
        long,
        value_name = "A",
        value_parser = finite,
        allow_negative_numbers = true,
        help_heading = "Advantages"
    )]
    advantage_clip_high: Option<f64>,
    /// Mask rollouts of which a selected generation stopped at a length limit
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", help_heading = "Advantages")]
    overlong_filtering: Option<bool>,
    /// Whose rewards enter the baseline [default: exclude]
    #[arg(long, value_enum, value_name = "POLICY", help_heading = "Advantages")]
    masked_reward_policy: Option<MaskedRewardPolicy>,
}

/// A finite number.
pub fn finite(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err("not a finite number".to_owned()),
    }
}

impl AdvantageArgs {
    /// Settles flags and file.
    ///
    /// # Errors
    ///
    /// Bounds that leave no advantage between them.
    pub fn settle(&self, resolver: &mut Resolver) -> Result<GrpoSettings> {
        let defaults = GrpoSettings::default();
        let settings = GrpoSettings {
            leave_one_out: resolver.value(
                "grpo.use_leave_one_out_baseline",
                ("--no-leave-one-out", self.no_leave_one_out.map(|no| !no)),
                |recipe| recipe.grpo.use_leave_one_out_baseline,
                defaults.leave_one_out,
            ),
            normalize: resolver.value(
                "grpo.normalize_rewards",
                ("--no-normalize", self.no_normalize.map(|no| !no)),
                |recipe| recipe.grpo.normalize_rewards,
                defaults.normalize,
            ),
            advantage_clip_low: resolver.optional(
                "grpo.advantage_clip_low",
                ("--advantage-clip-low", self.advantage_clip_low),
                |recipe| recipe.grpo.advantage_clip_low,
            ),
            advantage_clip_high: resolver.optional(
                "grpo.advantage_clip_high",
                ("--advantage-clip-high", self.advantage_clip_high),
                |recipe| recipe.grpo.advantage_clip_high,
            ),
            overlong_filtering: resolver.value(
                "grpo.overlong_filtering",
                ("--overlong-filtering", self.overlong_filtering),
                |recipe| recipe.grpo.overlong_filtering,
                defaults.overlong_filtering,
            ),
            masked_reward_policy: {
                let Word(policy) = resolver.value(
                    "grpo.masked_reward_policy",
                    ("--masked-reward-policy", self.masked_reward_policy.map(Word)),
                    |recipe| recipe.grpo.masked_reward_policy.map(Word),
                    Word(defaults.masked_reward_policy),
                );
                policy
            },
        };
        if let (Some(low), Some(high)) = (settings.advantage_clip_low, settings.advantage_clip_high)
            && low > high
        {
            return Err(Error::usage(format!(
                "the least advantage {low} (--advantage-clip-low) is above the greatest {high} \
                 (--advantage-clip-high)"
            )));
        }
        Ok(settings)
    }
}
