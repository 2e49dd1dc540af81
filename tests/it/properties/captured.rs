//! `all_captured` takes every call but bad leaves, and bad calls that must stay mask.

use std::collections::BTreeSet;

use forestctl::archive::Rollout;
use forestctl::config::GrpoSettings;
use forestctl::finding::Code;
use forestctl::id::CallId;
use forestctl::rows::build;
use forestctl::select::{PolicyName, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::forests::captures;
use super::oracle::{Layout, layouts, samples_of_calls, samples_of_rows};
use crate::builders;
use crate::closed_loop::selected;

/// What a call of some ending is good for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Use {
    /// It trains.
    Whole,
    /// It trains, and marks the rollout as truncated.
    Cut,
    /// It is left out, or masks.
    Bad,
}

/// Status, finish reason, and what follows (rules 74, 75, 78, 108).
pub const ENDINGS: [(Option<&str>, Option<&str>, Use); 14] = [
    (Some("completed"), Some("stop"), Use::Whole),
    (Some("completed"), Some("tool_calls"), Use::Whole),
    (Some("completed"), None, Use::Whole),
    (Some("completed"), Some("length"), Use::Cut),
    (Some("incomplete"), Some("length"), Use::Cut),
    (Some("incomplete"), Some("max_tokens"), Use::Cut),
    (Some("incomplete"), Some("max_output_tokens"), Use::Cut),
    (Some("incomplete"), Some("content_filter"), Use::Bad),
    (Some("incomplete"), Some("stop"), Use::Bad),
    (Some("incomplete"), None, Use::Bad),
    (Some("failed"), None, Use::Bad),
    (Some("failed"), Some("length"), Use::Bad),
    (None, Some("stop"), Use::Bad),
    (None, None, Use::Bad),
];

/// What becomes of a rollout.
struct Expected {
    selected: Vec<CallId>,
    bad: BTreeSet<CallId>,
    truncated: bool,
}

fn expected(rollout: &Rollout, uses: &[Use]) -> Expected {
    let result: Value = serde_json::from_str(rollout.result.as_ref().unwrap()).unwrap();
    let scored = result["terminal_response_id"].as_str();
    let mut expected = Expected { selected: Vec::new(), bad: BTreeSet::new(), truncated: false };
    for (row, &of) in rollout.ledger.committed.iter().zip(uses) {
        let id = &row.call_id;
        let is_parent = rollout.calls.iter().any(|c| c.parent_call_id.as_ref() == Some(id));
        let is_scored = row.response_id.as_deref() == scored;
        if of == Use::Bad && !is_parent && !is_scored {
            continue;
        }
        expected.selected.push(id.clone());
        expected.truncated |= of == Use::Cut;
        if of == Use::Bad {
            expected.bad.insert(id.clone());
        }
    }
    expected.truncated &= expected.bad.is_empty();
    expected
}

proptest! {
    #[test]
    fn bad_leaves_are_left_out_and_bad_parents_and_scored_calls_mask(
        captures in captures(),
        endings in vec(prop_oneof![5 => 0usize..7, 1 => 7..ENDINGS.len()], 40),
        row_multiple in 1u32..4,
    ) {
        let mut groups = captures.groups;
        let mut endings = endings.iter().cycle();
        let mut all = Vec::new();
        for rollout in groups.iter_mut().flat_map(|group| &mut group.rollouts) {
            let mut uses = Vec::new();
            for row in &mut rollout.ledger.committed {
                let (status, finish_reason, of) = ENDINGS[*endings.next().unwrap()];
                row.completion = builders::ending(status, finish_reason);
                uses.push(of);
            }
            all.push(expected(rollout, &uses));
        }
        let selection = selected(&groups, PolicyName::AllCaptured);
        let batch = build(&groups, &selection, row_multiple, &GrpoSettings::default());
        let mut all = all.into_iter();
        let mut samples = Vec::new();
        for (group, found) in groups.iter().zip(&selection.groups) {
            let own: Vec<Expected> = all.by_ref().take(group.rollouts.len()).collect();
            let dropped = own.iter().all(|expected| !expected.bad.is_empty());
            prop_assert_eq!(found.dropped, dropped.then_some(Code::NoVerifiedLayout));
            for ((rollout, found), expected) in
                group.rollouts.iter().zip(&found.rollouts).zip(&own)
            {
                prop_assert_eq!(&found.calls, &expected.selected);
                prop_assert_eq!(found.truncated, expected.truncated);
                let codes = found.reasons.iter().map(|reason| reason.code);
                prop_assert!(codes.clone().all(|code| code == Code::FailedSelectedCall));
                let named: Vec<&CallId> = found.reasons.iter().flat_map(|r| &r.calls).collect();
                prop_assert_eq!(named.len(), expected.bad.len());
                prop_assert!(named.iter().all(|call| expected.bad.contains(*call)));
                let rows: Vec<_> = batch
                    .rows
                    .iter()
                    .filter(|row| row.rollout_id.as_ref() == Some(&rollout.rollout_id))
                    .collect();
                if expected.bad.is_empty() {
                    prop_assert_eq!(found.verdict(), Verdict::Valid);
                    let rows: Vec<Layout> = rows.into_iter().map(Layout::of).collect();
                    prop_assert_eq!(rows, layouts(rollout, &expected.selected));
                    samples.extend(samples_of_calls(rollout, &expected.selected));
                } else {
                    prop_assert_eq!(found.verdict(), Verdict::Masked);
                    prop_assert_eq!(rows.len(), usize::from(!dropped));
                    prop_assert!(rows.iter().all(|r| r.loss_tokens() == 0 && r.sample_mask == 0.0));
                }
            }
        }
        samples.sort_unstable();
        prop_assert_eq!(samples_of_rows(&batch.rows), samples);
    }
}
