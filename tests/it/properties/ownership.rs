//! Every selected generated token carries loss once, in its own context.

use std::collections::BTreeMap;

use forestctl::archive::Call;
use forestctl::id::{CallId, RolloutId};
use forestctl::rows::Row;
use forestctl::select::PolicyName;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::batch;
use super::forests::{Captures, captures};
use super::oracle::{Layout, layouts, samples_of_calls, samples_of_rows, times_owned};

/// Compares the rows of `captures` with the walks over the chosen calls.
pub fn check(
    captures: &Captures,
    policy: PolicyName,
    chosen: &BTreeMap<RolloutId, Vec<CallId>>,
    row_multiple: u32,
) {
    let batch = batch(&captures.groups, policy, row_multiple);
    let mut rows = batch.rows.iter();
    let (mut samples, mut generated, mut unique) = (Vec::new(), BTreeMap::new(), 0);
    for group in &captures.groups {
        let mut count = 0;
        for rollout in &group.rollouts {
            let chosen = &chosen[&rollout.rollout_id];
            let layouts = layouts(rollout, chosen);
            for (segment, layout) in layouts.iter().enumerate() {
                let row = rows.next().unwrap();
                assert_eq!(row.row_id, format!("{}_s{segment}", rollout.rollout_id));
                assert_eq!(row.segment_count as usize, layouts.len());
                assert_eq!((row.sample_mask, row.inconsistency()), (1.0, None));
                assert_eq!(&Layout::of(row), layout, "{}", row.row_id);
            }
            count += layouts.len();
            samples.extend(samples_of_calls(rollout, chosen));
            let calls: BTreeMap<&CallId, &Call> =
                rollout.calls.iter().map(|call| (&call.call_id, call)).collect();
            for id in chosen {
                let tokens = 0..calls[id].token_ids.len() as u32 - calls[id].carry_len;
                generated.extend(tokens.map(|at| ((id.clone(), at), 1)));
                unique += calls[id].token_ids.len() as u64;
            }
        }
        while count % row_multiple as usize != 0 {
            let padding = rows.next().unwrap();
            assert!(padding.is_execution_padding && padding.sample_mask == 0.0);
            assert_eq!((&padding.group_id, padding.loss_tokens()), (&group.group_id, 0));
            count += 1;
        }
    }
    assert_eq!(rows.next(), None);
    samples.sort_unstable();
    assert!(samples_of_rows(&batch.rows) == samples, "samples differ from their calls");
    assert!(times_owned(&batch.rows) == generated, "generated tokens are not owned once");
    assert_eq!(batch.counts.loss_tokens, samples.len() as u64);
    assert_eq!(batch.counts.unique_tokens, unique);
}

proptest! {
    #[test]
    fn every_selected_generated_token_is_owned_once_in_its_own_context(
        captures in captures(),
        row_multiple in 1u32..5,
    ) {
        for (policy, chosen) in captures.selections() {
            check(&captures, policy, &chosen, row_multiple);
        }
    }
}

/// The random captures hold what the properties are about.
#[test]
fn random_captures_fork_retry_repeat_and_reject() {
    let mut runner = TestRunner::deterministic();
    let [mut borrowed, mut repeated, mut rejected, mut single] = [0; 4];
    for _ in 0..100 {
        let captures = captures().new_tree(&mut runner).unwrap().current();
        let rows = batch(&captures.groups, PolicyName::ReturnedHistory, 1).rows;
        let not_owned = |row: &Row| row.spans.iter().any(|span| !span.owned);
        borrowed += usize::from(rows.iter().any(not_owned));
        let mut samples = samples_of_rows(&rows);
        let all = samples.len();
        samples.dedup();
        repeated += usize::from(samples.len() < all);
        let accepted = captures.accepted.values().map(Vec::len).sum();
        let calls: Vec<&Call> = captures.rollouts().flat_map(|rollout| &rollout.calls).collect();
        rejected += usize::from(calls.len() > accepted);
        single += usize::from(calls.iter().any(|call| call.generation_logprobs.len() == 1));
    }
    for times in [borrowed, repeated, rejected, single] {
        assert!(times > 20, "{borrowed} {repeated} {rejected} {single}");
    }
}
