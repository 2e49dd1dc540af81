//! Captures made by hand: whole calls, their ledger rows, and rollouts of them.

use forestctl::archive::{
    Call, CommittedCall, Completeness, Completion, Group, Ledger, Mode, Origin, OutputItem,
    Rollout, SourceKind,
};
use forestctl::id::{CallId, Digest32};
use forestctl::wire::assistant_fingerprint;
use forestctl::wire::json::{Dialect, Json};
use serde_json::{Value, json};

/// A call that continues `parent`, or begins anew; generated tokens with their log-probabilities.
pub fn call(
    id: impl Into<CallId>,
    parent: Option<&Call>,
    carry: &[u32],
    generation: &[(u32, f32)],
) -> Call {
    let generated = generation.iter().map(|(token, _)| *token);
    let token_ids: Vec<u32> = carry.iter().copied().chain(generated).collect();
    let prev_len = parent.map_or(0, |parent| parent.cum_len);
    let delta_len = token_ids.len() as u64;
    Call {
        call_id: id.into(),
        capture_key: "0-0".into(),
        source_capture_key: None,
        parent_call_id: parent.map(|parent| parent.call_id.clone()),
        mode: if parent.is_some() { Mode::TokenIn } else { Mode::Text },
        prev_len,
        delta_len,
        cum_len: prev_len + delta_len,
        weight_version: Some(1),
        token_ids,
        carry_len: carry.len() as u32,
        generation_logprobs: generation.iter().map(|(_, logprob)| *logprob).collect(),
        raw_columns: None,
        commitment: None,
        entry_digest: None,
        extras: None,
        media: None,
        tensors: Vec::new(),
        origin: Origin::default(),
    }
}

/// The ledger row of a call that completed with response `r-{call}`.
pub fn committed(call: &Call) -> CommittedCall {
    CommittedCall {
        call_id: call.call_id.clone(),
        response_id: Some(format!("r-{}", call.call_id)),
        completion: ending(Some("completed"), Some("stop")),
        output_items: None,
        output_fingerprint: None,
        fingerprint_version: 2,
    }
}

/// How a call ended, as recorded.
pub fn ending(status: Option<&str>, finish_reason: Option<&str>) -> Completion {
    let owned = |word: Option<&str>| word.map(str::to_owned);
    Completion::Recorded { status: owned(status), finish_reason: owned(finish_reason) }
}

/// What a ledger records of an output item.
pub fn served(item: &Value) -> OutputItem {
    let word = |key: &str| item[key].as_str().map(str::to_owned);
    OutputItem { id: word("id"), kind: word("type"), fingerprint: fingerprint(item) }
}

/// Fingerprint of an output item; `None` for reasoning.
pub fn fingerprint(item: &Value) -> Option<Digest32> {
    let item = Json::parse(&item.to_string(), Dialect::Strict).unwrap();
    assistant_fingerprint(&[item]).unwrap()
}

/// A whole rollout of `calls`, committed in their order; the first one was scored.
pub fn rollout(group: &str, slot: u32, slots: u32, mut calls: Vec<Call>) -> Rollout {
    let capture_key = format!("{group}-{slot}");
    calls.iter_mut().for_each(|call| call.capture_key = capture_key.as_str().into());
    let committed: Vec<CommittedCall> = calls.iter().map(committed).collect();
    let scored = committed.first().map(|row| &row.response_id);
    Rollout {
        rollout_id: format!("{group}_g{slot}").into(),
        slot,
        group_size: slots,
        capture_key: capture_key.into(),
        reward: Some(1.0),
        mask_sample: false,
        result: Some(json!({"terminal_response_id": scored}).to_string()),
        source: SourceKind::Staged,
        completeness: Completeness::Complete,
        ledger: Ledger { committed, ..Ledger::default() },
        calls,
    }
}

/// A prompt group.
pub fn group(id: &str, rollouts: Vec<Rollout>) -> Group {
    Group { group_id: id.into(), rollouts }
}
