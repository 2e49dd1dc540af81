//! Numbers that can be read, but that say something is odd: log-probabilities and rewards.

use crate::archive::{CLAMPED_LOGPROB, Call, Rollout};
use crate::finding::{Code, Finding, Location};

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
        // The comparison also fails for what is no number.
        let plain = |x: &f32| *x > CLAMPED_LOGPROB && *x <= POSITIVE_LOGPROB;
        if call.generation_logprobs.iter().all(plain) {
            continue;
        }
        for (code, what) in [
            (Code::MissingLogprob, "have no log-probability"),
            (Code::ClampedLogprob, "have a clamped log-probability"),
            (Code::PositiveLogprob, "have a log-probability above zero"),
        ] {
            let odd = |(_, x): &(usize, &f32)| odd(**x) == Some(code);
            let at: Vec<usize> =
                call.generation_logprobs.iter().enumerate().filter(odd).map(|(i, _)| i).collect();
            let Some(first) = at.first() else { continue };
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

fn odd(logprob: f32) -> Option<Code> {
    if logprob.is_nan() {
        Some(Code::MissingLogprob)
    } else if logprob <= CLAMPED_LOGPROB {
        Some(Code::ClampedLogprob)
    } else if logprob > POSITIVE_LOGPROB {
        Some(Code::PositiveLogprob)
    } else {
        None
    }
}

/// Where a call was read.
pub fn place(call: &Call) -> Location {
    Location::line(&call.origin.file, call.origin.line).scope(call.capture_key.clone())
}
