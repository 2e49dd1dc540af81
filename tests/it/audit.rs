//! The context that each captured call had, and the calls that have none.

use forestctl::archive::{Group, MediaFlags, RawColumns};
use forestctl::id::Digest32;
use forestctl::step::audit::{Captured, Unscored, calls_of_rows, captured_calls};
use proptest::prelude::*;

use crate::builders;
use crate::properties::forests::captures;
use crate::properties::rows_of;

/// A chain of three calls, and one beside it.
fn group() -> Group {
    let root = builders::call("root", None, &[1, 2], &[(3, -0.5)]);
    let next = builders::call("next", Some(&root), &[4], &[(5, -0.25), (6, -1.0)]);
    let last = builders::call("last", Some(&next), &[], &[(7, -2.0)]);
    let other = builders::call("other", None, &[8], &[(9, -3.0)]);
    builders::group("p", vec![builders::rollout("p", 0, 1, vec![last, root, other, next])])
}

fn outcomes(group: &Group) -> Vec<(String, Result<Vec<u32>, Unscored>)> {
    let of = |call: Captured| {
        let ids = call.generation.map(|generation| {
            assert_eq!(generation.ids().len(), generation.start() + generation.captured.len());
            generation.ids()
        });
        (call.call_id.to_string(), ids)
    };
    captured_calls(group).into_iter().map(of).collect()
}

#[test]
fn contexts_are_the_chains_whatever_the_order_of_calls() {
    let found = outcomes(&group());
    let expected: [(&str, &[u32]); 4] = [
        ("last", &[1, 2, 3, 4, 5, 6, 7]),
        ("root", &[1, 2, 3]),
        ("other", &[8, 9]),
        ("next", &[1, 2, 3, 4, 5, 6]),
    ];
    let expected = expected.map(|(id, ids)| (id.to_owned(), Ok(ids.to_vec())));
    assert_eq!(found, expected);
}

#[test]
fn calls_without_a_context_that_text_can_tell_are_left_out() {
    let reasons = |change: &dyn Fn(&mut Vec<forestctl::archive::Call>)| {
        let mut group = group();
        change(&mut group.rollouts[0].calls);
        let found = outcomes(&group).into_iter();
        found.filter_map(|(id, ids)| Some((id, ids.err()?))).collect::<Vec<_>>()
    };
    let (last, root, next) = ("last".to_owned(), "root".to_owned(), "next".to_owned());
    let gone = |calls: &mut Vec<_>| drop(calls.remove(1));
    let expected = vec![(last.clone(), Unscored::NoContext), (next.clone(), Unscored::NoContext)];
    assert_eq!(reasons(&gone), expected);
    let circle = reasons(&|calls| calls[1].parent_call_id = Some("last".into()));
    assert!(circle.len() == 3 && circle.iter().all(|(_, why)| *why == Unscored::NoContext));
    let silent = reasons(&|calls| {
        calls[3].carry_len = calls[3].token_ids.len() as u32;
        calls[3].generation_logprobs.clear();
    });
    assert_eq!(silent, [(next.clone(), Unscored::NoGeneration)]);
    let odd = reasons(&|calls| calls[3].raw_columns = Some(RawColumns::default()));
    assert_eq!(odd, [(next.clone(), Unscored::NoGeneration)]);
    let flags = MediaFlags { present: true, has_frames: false, metadata_digest: Digest32([0; 32]) };
    let seen = reasons(&|calls| calls[1].media = Some(flags));
    assert_eq!(seen, [last, root, next].map(|id| (id, Unscored::Media)));
}

proptest! {
    /// Rows know the same contexts as the calls that they are made of.
    #[test]
    fn rows_of_random_forests_hold_the_contexts_of_their_calls(captures in captures()) {
        for rows in rows_of(&captures) {
            let mut found: Vec<_> = calls_of_rows(&rows).into_iter().map(|call| {
                let generation = call.generation.unwrap();
                (call.rollout_id, call.call_id, generation.ids(), generation.start())
            }).collect();
            let all = captures.groups.iter().flat_map(captured_calls);
            let owned: std::collections::BTreeSet<_> =
                found.iter().map(|(rollout, call, ..)| (rollout.clone(), call.clone())).collect();
            prop_assert_eq!(owned.len(), found.len());
            let mut expected: Vec<_> = all.filter_map(|call| {
                let generation = call.generation.unwrap();
                owned.contains(&(call.rollout_id.clone(), call.call_id.clone()))
                    .then(|| (call.rollout_id, call.call_id, generation.ids(), generation.start()))
            }).collect();
            found.sort();
            expected.sort();
            prop_assert_eq!(found, expected);
        }
    }
}
