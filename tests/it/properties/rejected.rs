//! Calls that the harness rejected change no row under `returned_history`.

use forestctl::archive::CaptureFailure;
use forestctl::select::PolicyName;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

use super::batch;
use super::captured::ENDINGS;
use super::forests::{Answer, Captures, captures, generation, items, tokens};
use crate::builders;
use crate::closed_loop::selected;

/// A call that is served, and left out of the history.
#[derive(Clone, Debug)]
struct Rejection {
    rollout: Index,
    /// Accepted or not; none for a root.
    parent: Option<Index>,
    carry: Vec<u32>,
    generation: Vec<(u32, f32)>,
    ending: usize,
    /// Where the record and the ledger row stand.
    place: (Index, Index),
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// An answer of its own.
    Other,
    /// A copy of a call that is there: prompt, tokens, and, where ids tell them apart, answer.
    Twin(Index),
    /// Cancelled after its tokens had arrived, which is exempt (rule 87).
    Cancelled,
    /// Without log-probability, and with routes that no other call has.
    Broken,
}

fn rejections() -> impl Strategy<Value = Vec<Rejection>> {
    let kind = prop_oneof![
        3 => Just(Kind::Other),
        3 => any::<Index>().prop_map(Kind::Twin),
        1 => Just(Kind::Cancelled),
        1 => Just(Kind::Broken),
    ];
    let rejection =
        (
            any::<Index>(),
            prop::option::weighted(0.8, any::<Index>()),
            (tokens(0..4), generation()),
            0..ENDINGS.len(),
            any::<(Index, Index)>(),
            kind,
        )
            .prop_map(|(rollout, parent, (carry, generation), ending, place, kind)| {
                Rejection { rollout, parent, carry, generation, ending, place, kind }
            });
    vec(rejection, 1..8)
}

/// Adds `rejection` as call `x{number}`.
fn reject(captures: &mut Captures, number: usize, rejection: &Rejection) {
    let mut rollouts: Vec<_> =
        captures.groups.iter_mut().flat_map(|group| &mut group.rollouts).collect();
    let at = rejection.rollout.index(rollouts.len());
    let rollout = &mut rollouts[at];
    let native = captures.native.contains(&rollout.rollout_id);
    let id = format!("x{number}");
    let parent = rejection.parent.as_ref().map(|at| at.get(&rollout.calls));
    let mut call = builders::call(&*id, parent, &rejection.carry, &rejection.generation);
    let mut output = items(Answer::Message, &id, &format!("rejected {number}"));
    let mut failure = None;
    match rejection.kind {
        Kind::Other => {}
        Kind::Twin(of) => {
            let of = of.get(&rollout.calls);
            call = forestctl::archive::Call { call_id: call.call_id, ..of.clone() };
            if native {
                output = items(Answer::Message, &id, "text 0");
            }
        }
        Kind::Cancelled => {
            failure = Some(CaptureFailure {
                call_id: call.call_id.clone(),
                reason: "request_finished_without_staged_coordinates".to_owned(),
            });
        }
        Kind::Broken => {
            call.generation_logprobs[0] = f32::NAN;
            call.extras = Some(json!({"routed_experts": [[[1, 2, 3]]]}).to_string());
        }
    }
    call.capture_key = rollout.capture_key.clone();
    let mut row = builders::committed(&call);
    let (status, finish_reason, _) = ENDINGS[rejection.ending];
    row.completion = builders::ending(status, finish_reason);
    row.output_items = Some(output.iter().map(builders::served).collect());
    rollout.ledger.failures.extend(failure);
    let (record, commit) = &rejection.place;
    rollout.calls.insert(record.index(rollout.calls.len() + 1), call);
    let committed = &mut rollout.ledger.committed;
    committed.insert(commit.index(committed.len() + 1), row);
}

proptest! {
    #[test]
    fn rejected_calls_change_no_row(
        captures in captures(),
        rejections in rejections(),
        row_multiple in 1u32..5,
    ) {
        let policy = PolicyName::ReturnedHistory;
        let mut more = captures.clone();
        for (number, rejection) in rejections.iter().enumerate() {
            reject(&mut more, number, rejection);
        }
        prop_assert_eq!(selected(&more.groups, policy), selected(&captures.groups, policy));
        let [found, wanted] =
            [&more, &captures].map(|captures| batch(&captures.groups, policy, row_multiple));
        prop_assert_eq!(found, wanted);
    }
}
