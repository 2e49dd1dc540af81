//! Whether selected calls can be laid out as rows: records of this scope, closed under parents,
//! consistent in their lengths, with routes and media that fit. Digests are `validate`'s concern; nothing here trusts them.

use std::collections::{BTreeSet, HashMap};

use super::Reason;
use super::index::Index;
use crate::archive::{Call, Mode, Rollout};
use crate::finding::Code;
use crate::forest::{Forest, ForestError};
use crate::id::CallId;
use crate::validate::{Cumulative, media};
use crate::wire::json::{Dialect, Json};
use crate::wire::route::{RouteError, Routes};

/// What keeps the selected calls from being rows.
pub fn problems(rollout: &Rollout, index: &Index, calls: &[CallId]) -> Vec<Reason> {
    let mut problems = Vec::new();
    let mut selected = Vec::with_capacity(calls.len());
    for id in calls {
        match index.number(id).and_then(|number| index.records[number]) {
            Some(call) => selected.push(call),
            None => {
                let message = format!("selected call {id} has no captured record");
                problems.push(Reason::new(Code::RowCountMismatch, vec![id.clone()], message));
            }
        }
    }
    for call in &selected {
        if call.capture_key != rollout.capture_key {
            let message = format!(
                "selected call {} is a record of scope {}, and the rollout's scope is {}",
                call.call_id, call.capture_key, rollout.capture_key
            );
            problems.push(Reason::new(Code::WrongRollout, vec![call.call_id.clone()], message));
        }
        if let Some((code, what)) = by_itself(call) {
            let message = format!("selected call {} {what}", call.call_id);
            problems.push(Reason::new(code, vec![call.call_id.clone()], message));
        }
    }
    problems.extend(lineage(index, &selected));
    problems.extend(routes(&selected));
    problems.extend(media(&selected));
    problems
}

/// A record's own columns.
fn by_itself(call: &Call) -> Option<(Code, &'static str)> {
    let tokens = call.token_ids.len();
    let carry = call.carry_len as usize;
    if call.delta_len != tokens as u64
        || call.prev_len.checked_add(call.delta_len) != Some(call.cum_len)
    {
        return Some((Code::InvalidSnapshot, "has lengths that do not add up"));
    }
    if let Some(raw) = &call.raw_columns {
        let generated = raw.token_mask.iter().position(|&m| m != 0.0).unwrap_or(tokens);
        if raw.token_mask.len() != tokens || raw.logprobs.len() != tokens {
            return Some((Code::InvalidSnapshot, "has columns of different lengths"));
        }
        if generated != carry || raw.token_mask[generated..].iter().any(|&m| m != 1.0) {
            return Some((Code::InvalidMaskOrder, "does not carry first and then generate"));
        }
    }
    if carry >= tokens {
        return Some((Code::EmptyGeneration, "holds no generated token"));
    }
    if call.generation_logprobs.len() != tokens - carry {
        return Some((Code::InvalidSnapshot, "has columns of different lengths"));
    }
    let root = call.parent_call_id.is_none();
    if root != (call.mode == Mode::Text) || root != (call.prev_len == 0) {
        return Some((Code::InvalidSnapshot, "is neither a root nor a continuation"));
    }
    None
}

/// Parents are selected too (rule 71), end where their children begin, and lead to roots.
fn lineage(index: &Index, selected: &[&Call]) -> Vec<Reason> {
    let mut problems = Vec::new();
    let chosen: BTreeSet<&CallId> = selected.iter().map(|call| &call.call_id).collect();
    let mut orphans = Vec::new();
    for call in selected {
        let Some(parent) = &call.parent_call_id else { continue };
        let Some(parent) = chosen
            .get(parent)
            .and_then(|id| index.number(id))
            .and_then(|number| index.records[number])
        else {
            orphans.push(call);
            continue;
        };
        if parent.cum_len != call.prev_len {
            let message = format!(
                "selected call {} starts at token {}, and its parent {} ends at {}",
                call.call_id, call.prev_len, parent.call_id, parent.cum_len
            );
            let calls = vec![call.call_id.clone()];
            problems.push(Reason::new(Code::ParentLengthMismatch, calls, message));
        }
    }
    if let Some(first) = orphans.first() {
        let parent = first.parent_call_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let message = format!(
            "selected call {} continues call {parent}, which is not selected",
            first.call_id
        );
        let calls = orphans.iter().map(|call| call.call_id.clone()).collect();
        problems.push(Reason::new(Code::SelectionNotClosed, calls, message));
    }
    if let Err(ForestError::Cycle { call }) = Forest::new(&parents(selected)) {
        let message = format!("selected call {} descends from itself", selected[call].call_id);
        let calls = vec![selected[call].call_id.clone()];
        problems.push(Reason::new(Code::LineageCycle, calls, message));
    }
    problems
}

/// Expert routes can be read, and are of one model.
fn routes(selected: &[&Call]) -> Vec<Reason> {
    let mut problems = Vec::new();
    let mut first: Option<(&Call, (usize, usize))> = None;
    for call in selected {
        let routes = match routes_of(call) {
            Ok(Some(routes)) => routes,
            Ok(None) => continue,
            Err(error) => {
                let message = format!("expert routes of selected call {}: {error}", call.call_id);
                let calls = vec![call.call_id.clone()];
                problems.push(Reason::new(Code::InvalidRoute, calls, message));
                continue;
            }
        };
        let shape = (routes.layers, routes.topk);
        let (example, expected) = *first.get_or_insert((call, shape));
        if shape != expected {
            let message = format!(
                "expert routes have {}x{} layers and experts in call {}, and {}x{} in call {}",
                shape.0, shape.1, call.call_id, expected.0, expected.1, example.call_id
            );
            let calls = vec![call.call_id.clone()];
            problems.push(Reason::new(Code::RouteShapeMismatch, calls, message));
        }
    }
    problems
}

/// Media of the selected calls, by what is wrong with them (rule 91).
fn media(selected: &[&Call]) -> Vec<Reason> {
    let mut problems: Vec<Reason> = Vec::new();
    for found in media::check(selected, Cumulative::default()) {
        let call = found.call.call_id.clone();
        match problems.iter_mut().find(|problem| problem.code == found.code) {
            Some(same) => same.calls.push(call),
            None => problems.push(Reason::new(found.code, vec![call], found.message)),
        }
    }
    problems
}

/// Expert routes captured with a call, if any (`spec/gym-wire.md` b.11).
///
/// # Errors
/// When they cannot be read, or name an expert beyond 32 bits.
pub fn routes_of(call: &Call) -> Result<Option<Routes>, RouteError> {
    #[derive(serde::Deserialize)]
    struct Extras<'a> {
        #[serde(borrow, default)]
        routed_experts: Option<&'a serde_json::value::RawValue>,
    }
    let Some(extras) = &call.extras else { return Ok(None) };
    let failed = |e: &dyn std::fmt::Display| RouteError(format!("cannot read the extras: {e}"));
    let extras: Option<Extras> = serde_json::from_str(extras).map_err(|e| failed(&e))?;
    let Some(value) = extras.and_then(|extras| extras.routed_experts) else { return Ok(None) };
    let value = Json::parse(value.get(), Dialect::Strict).map_err(|e| failed(&e))?;
    if value.is_null() {
        return Ok(None);
    }
    let routes = Routes::decode(&value)?;
    let beyond = routes.experts().find(|expert| i32::try_from(*expert).is_err());
    match beyond {
        Some(expert) => Err(RouteError(format!("expert {expert} does not fit 32 bits"))),
        None => Ok(Some(routes)),
    }
}

/// Records of `calls`, leaving out those without one.
pub fn calls_of<'a>(rollout: &'a Rollout, calls: &[CallId]) -> Vec<&'a Call> {
    let mut records: HashMap<&CallId, &Call> = HashMap::new();
    for call in &rollout.calls {
        records.entry(&call.call_id).or_insert(call);
    }
    calls.iter().filter_map(|id| records.get(id).copied()).collect()
}

/// Parent links by position in the selection; `None` also for a parent outside it.
pub fn parents(selected: &[&Call]) -> Vec<Option<usize>> {
    let places: HashMap<&CallId, usize> =
        selected.iter().enumerate().map(|(i, call)| (&call.call_id, i)).collect();
    selected.iter().map(|c| places.get(c.parent_call_id.as_ref()?).copied()).collect()
}
