//! Numbers that can be read, but that say something is odd: log-probabilities and rewards.

use crate::archive::{Call, Rollout};
use crate::finding::{Code, Finding, Location};

/// At or below this an engine clamped minus infinity (`spec/semantics.md` rule 114; design, "Sources").
pub const CLAMPED_LOGPROB: f32 = -9999.0;

/// Log-probabilities above this are more than rounding.
const POSITIVE_LOGPROB: f32 = 1e-3;

/// Reward and log-probability findings of one rollout, one per call and kind.
pub fn check(rollout: &Rollout, findings: &mut Vec<Finding>) {
    if rollout.reward.is_none() {
        findings.push(
            Finding::new(
                Code::MissingReward,
                format!("rollout {} has no finite reward", rollout.rollout_id),
            )
            .rollout(&rollout.rollout_id),
        );
    }
    for call in &rollout.calls {
        let kinds: [(Code, fn(f32) -> bool, &str); 3] = [
            (Code::MissingLogprob, f32::is_nan, "have no log-probability"),
            (Code::ClampedLogprob, |x| x <= CLAMPED_LOGPROB, "have a clamped log-probability"),
            (Code::PositiveLogprob, |x| x > POSITIVE_LOGPROB, "have a log-probability above zero"),
        ];
        for (code, odd, what) in kinds {
            let at: Vec<usize> = (0..call.generation_logprobs.len())
                .filter(|&i| odd(call.generation_logprobs[i]))
                .collect();
            let Some(&first) = at.first() else { continue };
            let message = format!(
                "{} of {} generated tokens {what}, the first at generated token {first}",
                at.len(),
                call.generation_logprobs.len(),
            );
            findings.push(
                Finding::new(code, message)
                    .rollout(&rollout.rollout_id)
                    .call(&call.call_id)
                    .at(place(call).field("generation_log_probs")),
            );
        }
    }
}

/// Where a call was read.
pub fn place(call: &Call) -> Location {
    Location::line(&call.origin.file, call.origin.line).scope(call.capture_key.clone())
}
