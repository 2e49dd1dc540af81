//! Masks of one rollout, and what becomes of its siblings and its group.

use forestctl::archive::{Call, CaptureFailure, Group, Rollout};
use forestctl::finding::Code;
use forestctl::id::CallId;
use forestctl::rows::{Batch, Row, build};
use forestctl::select::{PolicyName, Reason, Selection};
use serde_json::{Value, json};

use crate::builders;
use crate::closed_loop::selected;

/// A rollout whose third call branches off its first; each call answers its own id.
fn rollout(slot: u32, slots: u32) -> Rollout {
    let mut calls: Vec<Call> = Vec::new();
    for (i, parent) in [None, Some(0), Some(0)].into_iter().enumerate() {
        let token = 100 * slot + 10 * i as u32;
        let generation = [(token + 1, -0.5), (token + 2, -0.25)];
        let parent = parent.map(|at: usize| &calls[at]);
        calls.push(builders::call(format!("r{slot}c{i}"), parent, &[token], &generation));
    }
    let mut rollout = builders::rollout("p", slot, slots, calls);
    for row in &mut rollout.ledger.committed {
        row.output_items = Some(vec![builders::served(&answer(row.call_id.as_str()))]);
    }
    rollout.reward = Some(f64::from(slot));
    returned(rollout, &[0, 1], 1)
}

fn answer(call: &str) -> Value {
    json!({"type": "message", "role": "assistant", "id": format!("m-{call}"), "content": call})
}

/// The rollout with another returned history and scored call.
fn returned(rollout: Rollout, accepted: &[usize], scored: usize) -> Rollout {
    let rows = &rollout.ledger.committed;
    let output: Vec<Value> =
        accepted.iter().map(|&call| answer(rows[call].call_id.as_str())).collect();
    let scored = &rows[scored].response_id;
    let result = json!({"terminal_response_id": scored, "response": {"output": output}});
    Rollout { result: Some(result.to_string()), ..rollout }
}

/// Three rollouts, of which the middle one is changed.
fn changed(change: impl FnOnce(Rollout) -> Rollout) -> Group {
    let middle = change(rollout(1, 3));
    builders::group("p", vec![rollout(0, 3), middle, rollout(2, 3)])
}

fn rows(groups: &[Group], policy: PolicyName) -> (Selection, Batch) {
    let selection = selected(groups, policy);
    let batch = build(groups, &selection, 1, &Default::default());
    (selection, batch)
}

/// Codes and calls of each rollout's reasons.
fn reasons(selection: &Selection) -> Vec<Vec<(Code, Vec<&str>)>> {
    selection
        .groups
        .iter()
        .flat_map(|group| &group.rollouts)
        .map(|rollout| rollout.reasons.iter().map(told).collect())
        .collect()
}

fn told(reason: &Reason) -> (Code, Vec<&str>) {
    (reason.code, reason.calls.iter().map(CallId::as_str).collect())
}

/// The middle rollout is masked for `code` and `calls`; its siblings train as if alone (rules 71,
/// 105).
fn masks_only_the_middle(group: Group, policy: PolicyName, code: Code, calls: &[&str]) {
    let healthy = rows(&[changed(|rollout| rollout)], policy).1;
    let (selection, batch) = rows(&[group], policy);
    assert_eq!(reasons(&selection), [vec![], vec![(code, calls.to_vec())], vec![]]);
    let own = |batch: &Batch, slot: u32| -> Vec<Row> {
        batch.rows.iter().filter(|row| row.slot == Some(slot)).cloned().collect()
    };
    let lender = own(&healthy, 0).remove(0);
    for slot in [0, 2] {
        // Rewards are 0, 1 and 2; without the middle one, the baseline is the other's reward.
        let advantage = f64::from(slot) - f64::from(2 - slot);
        let expected = own(&healthy, slot).into_iter().map(|row| Row { advantage, ..row });
        assert_eq!(own(&batch, slot), expected.collect::<Vec<_>>());
        assert!(own(&batch, slot).iter().all(|row| row.sample_mask == 1.0));
    }
    let [place] = &own(&batch, 1)[..] else { panic!("{:?}", own(&batch, 1)) };
    assert_eq!((place.row_id.as_str(), place.segment_count), ("p_g1_s0", 1));
    assert_eq!(place.mask_reason.as_deref(), Some(code.as_str()));
    assert_eq!((place.reward, place.advantage, place.sample_mask), (Some(1.0), 0.0, 0.0));
    assert_eq!((&place.input_ids, place.loss_tokens()), (&lender.input_ids, 0));
    assert!(place.uses_borrowed_input && !place.is_execution_padding);
    assert_eq!((batch.counts.valid_rollouts, batch.counts.masked_rows), (2, 1));
    assert_eq!(batch.masked, [(code.as_str().to_owned(), 1)].into());
}

#[test]
fn a_selection_that_lacks_a_parent_masks_its_rollout_alone() {
    let group = changed(|rollout| returned(rollout, &[1], 1));
    let code = Code::SelectionNotClosed;
    masks_only_the_middle(group, PolicyName::ReturnedHistory, code, &["r1c1"]);
}

#[test]
fn routes_of_different_shapes_mask_their_rollout_alone() {
    let routed = |rollout: &mut Rollout, call: usize, topk: usize| {
        let routes = vec![vec![vec![0; topk]; 2]; rollout.calls[call].token_ids.len()];
        rollout.calls[call].extras = Some(json!({"routed_experts": routes}).to_string());
    };
    let group = |topk: [usize; 3]| {
        changed(|mut rollout| {
            topk.into_iter().enumerate().for_each(|(call, topk)| routed(&mut rollout, call, topk));
            rollout
        })
    };
    let code = Code::RouteShapeMismatch;
    masks_only_the_middle(group([2, 3, 2]), PolicyName::ReturnedHistory, code, &["r1c1"]);
    masks_only_the_middle(group([2, 2, 1]), PolicyName::AllCaptured, code, &["r1c2"]);
    // Of a call that is not selected, no route matters.
    let (selection, batch) = rows(&[group([2, 2, 1])], PolicyName::ReturnedHistory);
    assert_eq!(reasons(&selection), [vec![], vec![], vec![]]);
    let middle = batch.rows.iter().find(|row| row.slot == Some(1)).unwrap();
    let routes = middle.routes.as_ref().unwrap();
    assert_eq!((routes.layers, routes.topk), (2, 2));
}

#[test]
fn a_scored_call_outside_the_returned_history_masks_its_rollout_alone() {
    let group = changed(|rollout| returned(rollout, &[0, 1], 2));
    let code = Code::TerminalNotSelected;
    masks_only_the_middle(group, PolicyName::ReturnedHistory, code, &["r1c2"]);
    // Everything that was captured includes it.
    let group = changed(|rollout| returned(rollout, &[0, 1], 2));
    let (selection, _) = rows(&[group], PolicyName::AllCaptured);
    assert_eq!(reasons(&selection), [vec![], vec![], vec![]]);
}

/// A rollout of which no call came back has no history to show (rule 107).
fn first_call_failed(rollout: Rollout) -> Rollout {
    let mut failed = builders::rollout("p", rollout.slot, rollout.group_size, Vec::new());
    failed.ledger.attempted = vec!["lost".into()];
    failed.ledger.failures =
        vec![CaptureFailure { call_id: "lost".into(), reason: "worker_capture_failed".into() }];
    Rollout { result: None, reward: rollout.reward, ..failed }
}

#[test]
fn a_first_call_that_fails_needs_no_evidence() {
    for policy in [PolicyName::ReturnedHistory, PolicyName::AllCaptured] {
        let group = changed(first_call_failed);
        masks_only_the_middle(group, policy, Code::CaptureFailed, &["lost"]);
    }
}

#[test]
fn a_group_of_masked_rollouts_is_dropped_and_the_next_one_is_not() {
    let masked = (0..3).map(|slot| match slot {
        0 => returned(rollout(slot, 3), &[1], 1),
        1 => returned(rollout(slot, 3), &[0], 2),
        _ => first_call_failed(rollout(slot, 3)),
    });
    let mut kept = builders::group("q", vec![rollout(0, 1)]);
    kept.rollouts[0].rollout_id = "q_g0".into();
    let groups = [builders::group("p", masked.collect()), kept];
    let (selection, batch) = rows(&groups, PolicyName::ReturnedHistory);
    assert_eq!(selection.groups[0].dropped, Some(Code::NoVerifiedLayout));
    assert_eq!(selection.groups[1].dropped, None);
    assert!(batch.rows.iter().all(|row| row.row_id == "q_g0_s0" && row.sample_mask == 1.0));
    assert_eq!(batch.rows.len(), 1);
    let [dropped] = &batch.dropped_groups[..] else { panic!("{:?}", batch.dropped_groups) };
    assert_eq!((dropped.group_id.as_str(), dropped.reason.as_str()), ("p", "no_verified_layout"));
    let codes = [Code::SelectionNotClosed, Code::TerminalNotSelected, Code::CaptureFailed];
    assert_eq!(batch.masked, codes.map(|code| (code.as_str().to_owned(), 1)).into());
    let lengths: Vec<u64> = batch.lengths.iter().map(|l| l.total_tokens_per_sample).collect();
    assert_eq!(lengths, [0, 0, 0, 6]);
}
