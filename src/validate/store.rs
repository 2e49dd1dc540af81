//! Captures whose deltas were cut from full prompts: lineage and entry digests.

use std::collections::HashMap;

use super::lineage::{self, Link};
use super::values::place;
use crate::archive::Rollout;
use crate::finding::{Code, Finding};
use crate::wire::digest::EntryDigest;

/// Findings on the calls of a Gym store or of inline rollouts.
pub fn check(rollout: &Rollout, findings: &mut Vec<Finding>) {
    let calls = &rollout.calls;
    let links: Vec<Link<'_>> = calls
        .iter()
        .map(|c| Link {
            id: c.call_id.as_str(),
            parent: c.parent_call_id.as_ref().map(|p| p.as_str()),
            prev_len: c.prev_len,
            cum_len: c.cum_len,
        })
        .collect();
    let mut broken = vec![false; calls.len()];
    let mut report = |i: usize, code, message: String, field: &str| {
        let call = &calls[i];
        findings.push(
            Finding::new(code, message)
                .rollout(&rollout.rollout_id)
                .call(&call.call_id)
                .at(place(call).field(field)),
        );
    };
    for (i, code, message) in lineage::check(&links) {
        broken[i] = true;
        report(i, code, message, "parent_call_id");
    }
    for (i, call) in calls.iter().enumerate() {
        if call.generation().is_empty() {
            let message = format!("call {} holds no generated token", call.call_id);
            report(i, Code::EmptyGeneration, message, "generation_token_ids");
        }
    }
}
