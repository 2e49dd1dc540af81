//! Forests of 10,000 calls.

use super::forests::{Answer, CallPlan, Captures, Ids, Link, RolloutPlan};
use super::oracle::samples_of_rows;
use super::ownership::check;
use super::{batch, packing};

const CALLS: u32 = 10_000;

/// Numbers without order, the same in every run.
pub fn scrambled(i: u32) -> u32 {
    let mut x = u64::from(i).wrapping_add(0x9e37_79b9_7f4a_7c15);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        x = (x ^ (x >> 30)).wrapping_mul(factor);
    }
    (x >> 32) as u32
}

/// One rollout; `link` and `accepted` by the number of the call.
fn capture(ids: Ids, link: impl Fn(u32) -> Link, accepted: impl Fn(u32) -> bool) -> Captures {
    let call = |i: u32| CallPlan {
        link: link(i),
        carry: vec![7; (i % 2) as usize + usize::from(i == 0)],
        generation: (0..1 + i % 3)
            .map(|at| (scrambled(i) % 100 + at, -(i as f32) / 64.0))
            .collect(),
        answer: Answer::Message,
        text: i as u8,
        observed: !i.is_multiple_of(4),
        accepted: accepted(i),
        turn: 0,
        commit: scrambled(i) as u16,
    };
    let plan = RolloutPlan { ids, reward: 1.0, scored: 3, calls: (0..CALLS).map(call).collect() };
    Captures::of(&[vec![plan]])
}

fn check_all(captures: &Captures) {
    for (policy, chosen) in captures.selections() {
        check(captures, policy, &chosen, 4);
    }
}

#[test]
fn a_chain_of_ten_thousand_calls_is_one_row() {
    let captures = capture(Ids::Native, |_| Link::Last, |i| i == CALLS - 1);
    check_all(&captures);
    for (policy, chosen) in captures.selections() {
        let rows = batch(&captures.groups, policy, 1).rows;
        assert_eq!((rows.len(), rows[0].spans.len()), (1, chosen.values().flatten().count()));
        assert_eq!(samples_of_rows(&rows).len(), rows[0].loss_tokens());
    }
}

#[test]
fn ten_thousand_branches_of_one_call_are_rows_of_their_own() {
    let captures = capture(Ids::Absent, |_| Link::Any(0), |i| i % 2 == 1);
    check_all(&captures);
    let [(policy, chosen), _] = captures.selections();
    let rows = batch(&captures.groups, policy, 1).rows;
    assert_eq!(rows.len() + 1, chosen.values().flatten().count());
    packing::check(&rows);
}

#[test]
fn ten_thousand_calls_that_continue_any_older_one_are_owned_once() {
    let captures =
        capture(Ids::Synthetic, |i| Link::Any(scrambled(i)), |i| scrambled(i).is_multiple_of(3));
    check_all(&captures);
    let [_, (policy, _)] = captures.selections();
    packing::check(&batch(&captures.groups, policy, 2).rows);
}
