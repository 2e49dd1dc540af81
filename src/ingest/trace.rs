//! A context-compaction trace: one JSON document, one rollout, its calls with full prompts.

use serde::Deserialize;
use serde_json::json;

use super::quarantine::Rejected;
use super::rollouts::{RolloutLine, without_nan};
use crate::archive::Origin;
use crate::finding::Code;

#[derive(Debug, Deserialize)]
struct Trace {
    rollout_id: String,
    #[serde(default)]
    group_id: Option<String>,
    #[serde(default)]
    reward: Option<f64>,
    model_calls: Vec<TraceCall>,
}

#[derive(Debug, Deserialize)]
struct TraceCall {
    completion_id: String,
    #[serde(default)]
    finish_reason: Option<String>,
    prompt_token_ids: Vec<u64>,
    sampled_token_ids: Vec<u64>,
    sampled_logprobs: Vec<Option<f64>>,
}

/// Reads a trace as the rollouts line that says the same: a group of one, each call an assistant
/// message with the completion's id. What the trace tells of physical traces, segments and
/// policies is derived, and left out.
pub(super) fn line(text: &str, origin: Origin) -> Result<RolloutLine, Rejected> {
    let trace: Trace = serde_json::from_str(&without_nan(text))
        .map_err(|e| Rejected::new(Code::MalformedRecord, format!("not a trace: {e}")))?;
    let output: Vec<_> = trace
        .model_calls
        .into_iter()
        .map(|call| {
            json!({
                "id": call.completion_id,
                "type": "message",
                "role": "assistant",
                "content": [],
                "finish_reason": call.finish_reason,
                "prompt_token_ids": call.prompt_token_ids,
                "generation_token_ids": call.sampled_token_ids,
                "generation_log_probs": call.sampled_logprobs,
            })
        })
        .collect();
    let line = json!({
        "group_id": trace.group_id.as_ref().unwrap_or(&trace.rollout_id),
        "rollout_id": trace.rollout_id,
        "slot": 0,
        "group_size": 1,
        "capture_key": trace.rollout_id,
        "reward": trace.reward,
        "response": { "output": output },
    });
    RolloutLine::parse(&line.to_string(), origin)
}
