//! Rollouts lines whose output items carry token arrays: one generated item, one call.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::quarantine::Rejected;
use super::rollouts::{Members, RolloutLine, member};
use super::scope::Scope;
use super::served::{committed, routes_only};
use super::staged::narrow;
use crate::archive::{Call, Completion, Mode, Origin, SourceKind};
use crate::finding::Code;
use crate::id::{CallId, CaptureKey, RolloutId};
use crate::wire::builder::{InferredParent, Sequence, infer_parents};
use crate::wire::fingerprint::TOKEN_FIELDS;
use crate::wire::json::{Dialect, Json};

/// Token arrays of one item.
#[derive(Debug, Deserialize)]
struct Tokens<'a> {
    prompt_token_ids: Vec<u64>,
    generation_token_ids: Vec<u64>,
    /// Null, and what Python writes as NaN, is a log-probability that was lost.
    generation_log_probs: Vec<Option<f64>>,
    #[serde(borrow, default)]
    routed_experts: Option<&'a RawValue>,
}

/// The history of a line as calls.
///
/// An item with token arrays is one call; generated items without arrays just before it, or
/// after it up to the next observation, were served by that call too. The call id is the item's
/// own id, or `{rollout}/call-{n}`. A call continues the longest one whose tokens, prompt and
/// generation, its prompt begins with; of equally long ones the latest before it. The id of the
/// returned response is the last call's.
pub(super) fn scope(
    line: &RolloutLine,
    rollout_id: &RolloutId,
    capture_key: &CaptureKey,
) -> Result<Scope, Rejected> {
    let broken = |message: String| Rejected::new(Code::MalformedRecord, message);
    let members: Members =
        serde_json::from_str(&line.text).map_err(|e| broken(format!("not an object: {e}")))?;
    let response: Members = member_object(&members, "response")
        .ok_or_else(|| broken("response is not an object".to_owned()))?;
    let output: Vec<&RawValue> = response
        .get("output")
        .and_then(|output| serde_json::from_str(output.get()).ok())
        .ok_or_else(|| broken("response.output is not an array".to_owned()))?;

    let mut scope = Scope::new(SourceKind::InlineRollouts);
    let mut captured: Vec<Tokens> = Vec::new();
    let mut served: Vec<Json> = Vec::new();
    let mut open = None;
    for (at, raw) in output.iter().enumerate() {
        let item = item(raw.get());
        let tokens =
            tokens(raw.get()).map_err(|why| broken(format!("response.output[{at}]: {why}")))?;
        let Some(tokens) = tokens else {
            if is_generated(&item) {
                served.push(item);
            } else {
                close(&mut scope, open.take(), &mut served);
            }
            continue;
        };
        served.push(item);
        let number = scope.calls.len();
        let call_id = match served.last().and_then(|item| word(item, "id")) {
            Some(id) if scope.calls.iter().all(|call| call.call_id.as_str() != id) => id.into(),
            _ => CallId::from(format!("{rollout_id}/call-{number}")),
        };
        let completion = completion(served.last());
        scope.calls.push(unplaced(call_id.clone(), capture_key, &tokens, &line.origin));
        captured.push(tokens);
        scope.ledger.attempted.push(call_id.clone());
        scope.ledger.committed.push(committed(call_id, None, completion, &served));
        open = Some(std::mem::take(&mut served));
    }
    close(&mut scope, open, &mut served);
    place(&captured, &mut scope.calls)?;
    if let Some(last) = scope.ledger.committed.last_mut() {
        last.response_id = member(&response, "id");
    }
    Ok(scope)
}

fn member_object<'a>(members: &Members<'a>, key: &str) -> Option<Members<'a>> {
    serde_json::from_str(members.get(key)?.get()).ok()
}

/// Gives generated items that follow a call to that call, whose items so far are `open`. Without
/// a call since the last observation nothing captured them, and only the result speaks of them.
fn close(scope: &mut Scope, open: Option<Vec<Json>>, more: &mut Vec<Json>) {
    let more = std::mem::take(more);
    if let (Some(mut items), Some(row)) = (open, scope.ledger.committed.last_mut()) {
        items.extend(more);
        *row = committed(row.call_id.clone(), None, row.completion.clone(), &items);
    }
}

/// The item without its token arrays.
fn item(raw: &str) -> Json {
    match Json::parse(raw, Dialect::Python) {
        Ok(Json::Dict(mut members)) => {
            members.retain(|key, _| !TOKEN_FIELDS.contains(&key.as_str()));
            Json::Dict(members)
        }
        _ => Json::Null,
    }
}

fn tokens(raw: &str) -> Result<Option<Tokens<'_>>, String> {
    let Ok(members) = serde_json::from_str::<Members>(raw) else { return Ok(None) };
    let set = |key: &&str| members.get(*key).is_some_and(|value| value.get() != "null");
    let carried: Vec<_> = TOKEN_FIELDS[..3].iter().filter(|key| set(key)).collect();
    match carried.len() {
        0 => return Ok(None),
        3 => {}
        _ => return Err(format!("carries {carried:?}, but not all three token arrays")),
    }
    let tokens: Tokens = serde_json::from_str(raw).map_err(|e| e.to_string())?;
    let (ids, logprobs) = (tokens.generation_token_ids.len(), tokens.generation_log_probs.len());
    if ids != logprobs {
        return Err(format!("{logprobs} log-probabilities for {ids} generated tokens"));
    }
    Ok(Some(tokens))
}

fn word<'a>(item: &'a Json, key: &str) -> Option<&'a str> {
    item.get(key).and_then(Json::as_str).filter(|text| !text.is_empty())
}

fn is_generated(item: &Json) -> bool {
    word(item, "role") == Some("assistant")
        || matches!(word(item, "type"), Some("reasoning" | "function_call"))
}

/// Gym's items say `completed` whatever ended them; only a finish reason is a record.
fn completion(item: Option<&Json>) -> Completion {
    match item.and_then(|item| word(item, "finish_reason")) {
        None => Completion::Unrecorded,
        Some(reason) => Completion::Recorded {
            status: match reason {
                "stop" | "tool_calls" | "function_call" => Some("completed".to_owned()),
                "length" | "content_filter" => Some("incomplete".to_owned()),
                _ => None,
            },
            finish_reason: Some(reason.to_owned()),
        },
    }
}

/// A call before its parent, and so its delta, is known.
fn unplaced(
    call_id: CallId,
    capture_key: &CaptureKey,
    tokens: &Tokens<'_>,
    origin: &Origin,
) -> Call {
    let logprob = |p: &Option<f64>| p.map_or(f32::NAN, |p| p as f32);
    Call {
        call_id,
        capture_key: capture_key.clone(),
        source_capture_key: None,
        parent_call_id: None,
        mode: Mode::Text,
        prev_len: 0,
        delta_len: 0,
        cum_len: 0,
        weight_version: None,
        token_ids: Vec::new(),
        carry_len: 0,
        generation_logprobs: tokens.generation_log_probs.iter().map(logprob).collect(),
        raw_columns: None,
        commitment: None,
        entry_digest: None,
        media: None,
        tensors: Vec::new(),
        extras: tokens.routed_experts.map(|routes| routes_only(routes.get())),
        origin: origin.clone(),
    }
}

/// Turns full prompts into deltas under their inferred parents.
fn place(captured: &[Tokens<'_>], calls: &mut [Call]) -> Result<(), Rejected> {
    let sequences: Vec<_> = captured
        .iter()
        .map(|t| Sequence::new(&t.prompt_token_ids, &t.generation_token_ids))
        .collect();
    for (at, parent) in infer_parents(&sequences).into_iter().enumerate() {
        let parent = match parent {
            InferredParent::Root => None,
            InferredParent::Call(parent) => Some(parent),
            InferredParent::Ambiguous(equal) => {
                equal.iter().rfind(|&&call| call < at).or(equal.last()).copied()
            }
        };
        let prev_len = parent.map_or(0, |parent| sequences[parent].len());
        let parent_call_id = parent.map(|parent| calls[parent].call_id.clone());
        let prompt = &captured[at].prompt_token_ids;
        let call = &mut calls[at];
        call.mode = if parent_call_id.is_some() { Mode::TokenIn } else { Mode::Text };
        call.parent_call_id = parent_call_id;
        call.token_ids = narrow(&prompt[prev_len..])?;
        call.carry_len = call.token_ids.len() as u32;
        call.token_ids.extend(narrow(&captured[at].generation_token_ids)?);
        call.prev_len = prev_len as u64;
        call.delta_len = call.token_ids.len() as u64;
        call.cum_len = sequences[at].len() as u64;
    }
    Ok(())
}
