//! Captures whose deltas were cut from full prompts: parent links and entry digests.

use std::collections::{HashMap, HashSet};

use super::values::place;
use super::{Cumulative, Options};
use crate::archive::{Call, Rollout};
use crate::finding::{Code, Finding};
use crate::wire::TokenIds;
use crate::wire::digest::Claim;

/// Findings on the calls of a Gym store or of inline rollouts.
pub fn check(rollout: &Rollout, options: Options, findings: &mut Vec<Finding>) {
    let by_id: HashMap<&str, &Call> =
        rollout.calls.iter().map(|c| (c.call_id.as_str(), c)).collect();
    let parent_of =
        |call: &Call| call.parent_call_id.as_ref().and_then(|p| by_id.get(p.as_str()).copied());
    let has_child: HashSet<&str> = rollout
        .calls
        .iter()
        .filter_map(|c| c.parent_call_id.as_ref())
        .map(|p| p.as_str())
        .collect();
    for call in &rollout.calls {
        let mut report = |code, message: String, field: &str| {
            findings.push(
                Finding::new(code, message)
                    .rollout(&rollout.rollout_id)
                    .call(&call.call_id)
                    .at(place(call).field(field)),
            );
        };
        let id = &call.call_id;
        if call.capture_key != rollout.capture_key {
            let (said, file) = (&call.capture_key, &rollout.capture_key);
            let message = format!("the entry of call {id} names scope {said}, its store is {file}");
            report(Code::WrongRollout, message, "rollout_id");
        }
        match (&call.parent_call_id, parent_of(call)) {
            (Some(parent), None) => {
                let message = format!("call {id} names absent parent {parent}");
                report(Code::MissingParent, message, "parent_call_id");
            }
            (_, parent) => {
                // cum_len grows along every accepted link, so a cycle cannot pass this check.
                let start = parent.map_or(0, |p| p.cum_len);
                let end = call.prev_len.checked_add(call.token_ids.len() as u64);
                if start != call.prev_len || end != Some(call.cum_len) || call.token_ids.is_empty()
                {
                    let message = format!(
                        "call {id} spans tokens {}..{} with {} of its own, its parent ends at {start}",
                        call.prev_len,
                        call.cum_len,
                        call.token_ids.len()
                    );
                    report(Code::ParentLengthMismatch, message, "prompt_token_ids");
                    continue;
                }
            }
        }
        if call.generation().is_empty() {
            let message = format!("call {id} holds no generated token");
            report(Code::EmptyGeneration, message, "generation_token_ids");
        }
        let wanted = options.cumulative == Cumulative::All || !has_child.contains(id.as_str());
        if let (true, Some(recorded)) = (wanted, call.entry_digest) {
            let mut path = vec![call];
            while let Some(parent) = path.last().and_then(|c| parent_of(c)) {
                if path.len() > rollout.calls.len() {
                    break;
                }
                path.push(parent);
            }
            // Without its root, nothing can be said of the whole; the break has its own finding.
            if path.last().is_some_and(|first| first.parent_call_id.is_some()) {
                continue;
            }
            let stretches = path.iter().rev().map(|call| TokenIds::Narrow(&call.token_ids));
            if Claim::Entry(stretches.collect()).digest() != recorded {
                let message =
                    format!("the tokens up to call {id} do not give the digest {recorded}");
                report(Code::EntryDigestMismatch, message, "digest");
            }
        }
    }
}
