//! Which captured call produced the scored response (`spec/gym-wire.md` c.2).

use std::collections::BTreeMap;

use super::entry::TokenEntry;
use super::fingerprint::{
    FINGERPRINT_VERSION, assistant_fingerprint, is_model_authored, python_str,
};
use super::json::Json;
use super::receipt::CallRecord;
use crate::id::Digest32;

/// A captured call that may have produced the response.
#[derive(Clone, Copy, Debug)]
pub enum Candidate<'a> {
    /// A manifest row of a staged capture.
    Row(&'a CallRecord),
    /// An entry of a file store.
    Entry(&'a TokenEntry),
}

/// The answer: a call with the witness that names it, or neither. The trail says what each
/// witness had to say, in the package's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The call.
    pub model_call_id: Option<String>,
    /// First witness: `explicit`, `declared`, `response_id`, `content`, `content_cumulative`,
    /// `content_output`; empty when no call is named.
    pub method: &'static str,
    /// The trail, comma-joined.
    pub reason: String,
}

/// What tells two captures of one sequence from captures of two.
#[derive(PartialEq)]
enum Identity<'a> {
    Row(Digest32, Digest32, u64),
    Stamped(&'a str, i64),
    Tokens(&'a [u64], &'a [u64]),
}

impl<'a> Candidate<'a> {
    fn call_id(&self) -> &'a str {
        match self {
            Self::Row(row) => &row.model_call_id,
            Self::Entry(entry) => &entry.model_call_id,
        }
    }

    fn response_id(&self) -> Option<&'a str> {
        match self {
            Self::Row(row) => Some(&row.response_id),
            Self::Entry(entry) => entry.response_id.as_deref(),
        }
    }

    fn identity(&self) -> Identity<'a> {
        match self {
            Self::Row(row) => Identity::Row(row.cumulative_hash, row.chain_hash, row.cum_len),
            Self::Entry(entry) => match (entry.digest.as_deref(), entry.cum_len) {
                (Some(digest), Some(cum_len)) if !digest.is_empty() => {
                    Identity::Stamped(digest, cum_len)
                }
                _ => Identity::Tokens(&entry.prompt_token_ids, &entry.generation_token_ids),
            },
        }
    }
}

/// Asks every witness in turn: the call id that the harness names, the response id that it
/// declares, the id of the response, and its content. Witnesses that disagree, or a declared id
/// that finds no single call, leave the response unattributed.
pub fn resolve_terminal(
    candidates: &[Candidate<'_>],
    response: Option<&Json>,
    explicit_call_id: Option<&str>,
    declared_response_id: Option<&str>,
) -> Attribution {
    let mut trail: Vec<String> = Vec::new();
    let mut witnesses: Vec<(&'static str, Candidate<'_>)> = Vec::new();
    let answering = |id: &str| {
        let found = candidates.iter().filter(|call| call.response_id() == Some(id));
        found.copied().collect::<Vec<_>>()
    };

    if let Some(id) = explicit_call_id.filter(|id| !id.is_empty()) {
        match candidates.iter().rfind(|call| call.call_id() == id) {
            Some(call) => witnesses.push(("explicit", *call)),
            None => trail.push("explicit_terminal_not_captured".to_owned()),
        }
    }
    if let Some(id) = declared_response_id.filter(|id| !id.is_empty()) {
        let found = answering(id);
        match collapse(&found) {
            Some(call) => witnesses.push(("declared", call)),
            None => {
                let nothing = found.is_empty();
                let why =
                    if nothing { "declared_terminal_not_captured" } else { "declared_ambiguous" };
                trail.push(why.to_owned());
                return Attribution { reason: trail.join(","), ..Attribution::default() };
            }
        }
    }
    match response.filter(|response| response.as_dict().is_some()) {
        None => trail.push("no_response_object".to_owned()),
        Some(response) => {
            match response.get("id").filter(|id| id.truthy()).map(|id| python_str(id, "id")) {
                Some(Ok(id)) => {
                    let found = answering(&id);
                    match collapse(&found) {
                        Some(call) => witnesses.push(("response_id", call)),
                        None if found.is_empty() => trail.push("response_id_no_match".to_owned()),
                        None => trail.push("response_id_ambiguous".to_owned()),
                    }
                }
                Some(Err(_)) => trail.push("response_id_no_match".to_owned()),
                None => trail.push("response_has_no_id".to_owned()),
            }
            match by_content(candidates, response) {
                Ok(witness) => witnesses.push(witness),
                Err(why) => trail.push(why.to_owned()),
            }
        }
    }

    let Some(&(method, first)) = witnesses.first() else {
        return Attribution { reason: trail.join(","), ..Attribution::default() };
    };
    let calls: Vec<Candidate<'_>> = witnesses.iter().map(|(_, call)| *call).collect();
    if collapse(&calls).is_none() {
        let said: Vec<String> =
            witnesses.iter().map(|(method, call)| format!("{method}={}", call.call_id())).collect();
        trail.push(format!("witness_disagreement[{}]", said.join(";")));
        return Attribution { reason: trail.join(","), ..Attribution::default() };
    }
    let others: Vec<&str> = witnesses.iter().skip(1).map(|(method, _)| *method).collect();
    if !others.is_empty() {
        trail.push(format!("corroborated_by={}", others.join("+")));
    }
    Attribution { model_call_id: Some(first.call_id().to_owned()), method, reason: trail.join(",") }
}

/// One call, or several that captured one sequence, of which the smallest call id counts.
fn collapse<'a>(found: &[Candidate<'a>]) -> Option<Candidate<'a>> {
    let first = found.first()?;
    let same_call = found.iter().all(|call| call.call_id() == first.call_id());
    let identity = first.identity();
    if same_call || found.iter().all(|call| call.identity() == identity) {
        found.iter().copied().min_by_key(Candidate::call_id)
    } else {
        None
    }
}

/// The response as a whole transcript, as one output, or with its trailing run of authored items
/// as one output.
fn by_content<'a>(
    candidates: &[Candidate<'a>],
    response: &Json,
) -> Result<(&'static str, Candidate<'a>), &'static str> {
    let output = response.get("output").and_then(Json::as_list).unwrap_or_default();
    if output.is_empty() {
        return Err("response_has_no_output");
    }
    let items: Vec<Json> = output.iter().filter(|item| item.as_dict().is_some()).cloned().collect();
    let print = |items: &[Json]| {
        assistant_fingerprint(items).map_err(|_| "response_output_unfingerprintable")
    };
    let target = print(&items)?.ok_or("no_model_authored_output")?;
    let authored = |item: &&Json| is_model_authored(item).unwrap_or(false);
    let run = items.iter().rev().take_while(authored).count();
    let tail = match run {
        0 => None,
        run if run == items.len() => None,
        run => print(&items[items.len() - run..])?,
    };

    let (mut hits, mut rows, mut cumulative) = (BTreeMap::new(), false, false);
    for call in candidates {
        match call {
            Candidate::Row(row) if row.fingerprint_version == FINGERPRINT_VERSION => {
                let output = row.output_fingerprint;
                let whole = row.continuation_fingerprint == Some(target) || output == Some(target);
                if whole || (tail.is_some() && output == tail) {
                    rows = true;
                    hits.insert(call.call_id(), *call);
                }
            }
            Candidate::Row(_) => {}
            Candidate::Entry(entry) => {
                let current =
                    entry.fingerprint_version.is_none_or(|v| v == FINGERPRINT_VERSION as i64);
                if current && Digest32::parse(&entry.continuation_fingerprint) == Some(target) {
                    cumulative = true;
                    hits.insert(call.call_id(), *call);
                    continue;
                }
                let own = assistant_fingerprint(&entry.output_items).ok().flatten();
                if own == Some(target) || (tail.is_some() && own == tail) {
                    hits.insert(call.call_id(), *call);
                }
            }
        }
    }
    let hits: Vec<Candidate<'a>> = hits.into_values().collect();
    let method = match (rows, cumulative) {
        (true, _) => "content",
        (false, true) => "content_cumulative",
        (false, false) => "content_output",
    };
    match collapse(&hits) {
        Some(call) => Ok((method, call)),
        None if hits.is_empty() => Err("no_content_match"),
        None => Err("content_ambiguous"),
    }
}
