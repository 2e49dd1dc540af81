//! Which captured calls train: by how they ended, and by what the harness says of them and leaves
//! unsaid.

use std::process::Command;

use forestctl::archive::{self, Completion};
use forestctl::config::GrpoSettings;
use forestctl::finding::Code;
use forestctl::id::CallId;
use forestctl::rows::{build, metrics};
use forestctl::select::{PolicyName, RolloutSelection, Verdict};
use serde_json::{Value, json};

use crate::closed_loop::{POLICIES, groups, ingested, selected};
use crate::select::Case;

/// What training makes of an ending.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Good,
    Length,
    Bad,
}

const ENDINGS: [(Option<&str>, Option<&str>, Ending); 11] = [
    (Some("completed"), Some("stop"), Ending::Good),
    (Some("completed"), Some("tool_calls"), Ending::Good),
    (Some("completed"), None, Ending::Good),
    (Some("incomplete"), Some("length"), Ending::Length),
    (Some("incomplete"), Some("max_tokens"), Ending::Length),
    (Some("incomplete"), Some("max_output_tokens"), Ending::Length),
    (Some("incomplete"), Some("content_filter"), Ending::Bad),
    (Some("incomplete"), None, Ending::Bad),
    (Some("failed"), None, Ending::Bad),
    (Some("failed"), Some("length"), Ending::Bad),
    (None, None, Ending::Bad),
];

fn completion(status: Option<&str>, finish_reason: Option<&str>) -> Completion {
    let owned = |word: Option<&str>| word.map(str::to_owned);
    Completion::Recorded { status: owned(status), finish_reason: owned(finish_reason) }
}

/// `p01_g3` has a root with two children: a leaf that was not accepted, and an accepted one that
/// the scored call continues.
const PARENT: usize = 0;
const LEAF: usize = 1;
const SCORED: usize = 3;

/// Rules 74 to 78 and 85: a bad leaf that nobody scored is left out; a bad call that was scored,
/// or that others continue, stays and masks; a length stop trains, and marks the rollout (108).
#[test]
fn endings_leave_out_a_leaf_and_mask_through_a_parent_or_a_scored_call() {
    for (status, reason, ending) in ENDINGS {
        for place in [PARENT, LEAF, SCORED] {
            let case = Case::of("staged-v2", "p01_g3").with(|rollout| {
                let rows = &mut rollout.ledger.committed;
                rows[LEAF].completion = completion(Some("completed"), Some("stop"));
                rows[place].completion = completion(status, reason);
            });
            let id = case.group.rollouts[0].ledger.committed[place].call_id.clone();
            for policy in POLICIES {
                let found = case.selection(policy);
                let kept = match (policy, place) {
                    (PolicyName::ReturnedHistory, LEAF) => false,
                    (PolicyName::AllCaptured, LEAF) => ending != Ending::Bad,
                    _ => true,
                };
                let what = format!("{policy:?}: call {place} ended {status:?} {reason:?}");
                assert_eq!(found.calls.contains(&id), kept, "{what}");
                let masked: Vec<(Code, &[CallId])> =
                    found.reasons.iter().map(|r| (r.code, &r.calls[..])).collect();
                match kept && ending == Ending::Bad {
                    true => assert_eq!(
                        masked,
                        [(Code::FailedSelectedCall, std::slice::from_ref(&id))],
                        "{what}"
                    ),
                    false => assert_eq!(masked, [], "{what}"),
                }
                assert_eq!(found.truncated, kept && ending == Ending::Length, "{what}");
            }
        }
    }
}

/// Rules 108 and 109: the stop is in the first of three rows, and none of them trains.
#[test]
fn a_length_stop_anywhere_filters_every_row_of_its_rollout() {
    let mut group = groups("staged-v2").remove(1);
    let cut = &mut group.rollouts[1];
    assert_eq!(cut.rollout_id.as_str(), "p02_g1");
    cut.ledger.committed[0].completion = completion(Some("incomplete"), Some("length"));
    let groups = std::slice::from_ref(&group);
    let selection = selected(groups, PolicyName::ReturnedHistory);
    for overlong_filtering in [false, true] {
        let grpo = GrpoSettings { overlong_filtering, ..GrpoSettings::default() };
        let batch = build(groups, &selection, 1, &grpo);
        let own: Vec<_> = batch.rows.iter().filter(|row| row.slot == Some(1)).collect();
        assert_eq!(own.len(), 3);
        for row in own {
            assert!(row.truncated && row.loss_tokens() > 0);
            let (mask, reason) = (row.sample_mask, row.mask_reason.as_deref());
            match overlong_filtering {
                true => assert_eq!((mask, row.advantage, reason), (0.0, 0.0, Some("overlong"))),
                false => assert_eq!((mask, reason), (1.0, None)),
            }
        }
        // The fixture itself cut the fourth one.
        let trains = |slot| {
            let mut rows = batch.rows.iter().filter(move |row| row.slot == Some(slot));
            rows.all(|row| row.sample_mask == 1.0)
        };
        assert!(trains(0) && trains(2));
        assert_eq!(trains(3), !overlong_filtering);
    }
}

/// Rule 119: three rows and padding beside them are one rollout.
#[test]
fn a_rollout_that_its_environment_flags_counts_once() {
    let mut group = groups("staged-v2").remove(1);
    group.rollouts[1].mask_sample = true;
    let groups = std::slice::from_ref(&group);
    let selection = selected(groups, PolicyName::ReturnedHistory);
    let batch = build(groups, &selection, 5, &GrpoSettings::default());
    let flagged = batch.rows.iter().filter(|row| row.mask_reason.is_some());
    assert_eq!((flagged.count(), batch.counts.padding_rows > 0), (3, true));
    assert_eq!(metrics::of(&batch)["finalize/environment_masked_rollouts"], 1.0);
}

/// Rule 66: the ledger's order of completion says nothing.
#[test]
fn the_order_of_completion_changes_no_selection() {
    let whole = groups("staged-v2");
    let mut reversed = whole.clone();
    for rollout in reversed.iter_mut().flat_map(|group| &mut group.rollouts) {
        rollout.ledger.committed.reverse();
    }
    let policy = PolicyName::ReturnedHistory;
    let (found, wanted) = (selected(&reversed, policy), selected(&whole, policy));
    assert_eq!(found.groups, wanted.groups);
    let rows = |groups, selection| build(groups, selection, 1, &GrpoSettings::default()).rows;
    assert_eq!(rows(&reversed, &found), rows(&whole, &wanted));
}

/// Rule 70: a whole chain that the history leaves out looks like one that the harness rejected.
/// Nothing claims to know; the table shows how many calls were captured, and how many selected.
#[test]
fn an_omitted_chain_is_no_error_and_its_calls_are_counted() {
    let case = Case::of("staged-v2", "p01_g2").output(|output| drop(output.drain(..5)));
    let rollout = &case.group.rollouts[0];
    let kept: Vec<CallId> =
        rollout.ledger.committed[3..].iter().map(|row| row.call_id.clone()).collect();
    let selection = selected(std::slice::from_ref(&case.group), PolicyName::ReturnedHistory);
    assert_eq!(selection.findings, []);
    let found = &selection.groups[0].rollouts[0];
    assert_eq!((found.verdict(), &found.calls), (Verdict::Valid, &kept));

    let home = tempfile::tempdir().unwrap();
    let mut capture = ingested("staged-v2");
    capture.groups[0].rollouts[2].result.clone_from(&rollout.result);
    archive::write(&home.path().join("run.forest"), false, &capture).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_forestctl"))
        .args(["select", "run.forest"])
        .current_dir(home.path())
        .output()
        .unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let line = table.lines().find(|line| line.contains("p01_g2")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells[2..], ["5", "2", "valid"], "{line}");
}

/// Rules 65 and 79: a receipt may say that it found the scored call by the shape of the graph. That
/// is no witness, where the same call declared is one.
#[test]
fn a_leaf_that_the_receipt_found_by_heuristic_is_not_the_scored_call() {
    for (how, known) in [("declared", true), ("content", true), ("heuristic", false)] {
        let case = Case::of("staged-v2", "p06_g3")
            .edit(|result| {
                result.as_object_mut().unwrap().remove("terminal_response_id");
                result["response"].as_object_mut().unwrap().remove("id");
            })
            .with(|rollout| {
                let text = rollout.ledger.receipt.as_ref().unwrap();
                let mut receipt: Value = serde_json::from_str(text).unwrap();
                receipt["terminal_selection"] = json!(how);
                rollout.ledger.receipt = Some(receipt.to_string());
            });
        for policy in POLICIES {
            let found = case.selection(policy);
            assert_eq!(found.terminal.is_some(), known, "{how} {policy:?}");
            let codes: Vec<Code> = found.reasons.iter().map(|reason| reason.code).collect();
            let wanted: &[Code] = if known { &[] } else { &[Code::UnattributedTerminal] };
            assert_eq!(codes, wanted, "{how} {policy:?}");
        }
    }
}

/// Rule 80: what agents are called, and what part they play, decides nothing.
#[test]
fn names_and_roles_of_agents_change_no_selection() {
    for group in groups("staged-v2") {
        for rollout in &group.rollouts {
            let id = rollout.rollout_id.as_str();
            let named = Case::of("staged-v2", id).edit(|result| {
                result["agent_ref"] = json!({"type": "responses_api_agents", "name": "critic"});
                result["response"]["metadata"] = json!({"agent": "planner", "role": "subagent"});
                result["response"]["model"] = json!("judge");
            });
            for policy in POLICIES {
                let plain = Case::of("staged-v2", id).selection(policy);
                assert_eq!(named.selection(policy), plain, "{id} {policy:?}");
            }
        }
    }
}

/// Rule 92: of a chain of four calls the history holds the first one alone.
#[test]
fn a_call_with_discarded_children_only_is_an_endpoint() {
    let mut case = Case::of("staged-v2", "p01_g1").output(|output| output.truncate(1));
    let first = case.rollout().ledger.committed[0].clone();
    let case = case.edit(|result| {
        result["terminal_response_id"] = json!(first.response_id);
        result["response"]["id"] = json!(first.response_id);
    });
    let groups = std::slice::from_ref(&case.group);
    let calls = &case.group.rollouts[0].calls;
    assert!(calls.iter().any(|call| call.parent_call_id.as_ref() == Some(&first.call_id)));
    let selection = selected(groups, PolicyName::ReturnedHistory);
    let found: &RolloutSelection = &selection.groups[0].rollouts[0];
    assert_eq!((found.verdict(), &found.calls[..]), (Verdict::Valid, &[first.call_id.clone()][..]));
    let batch = build(groups, &selection, 1, &GrpoSettings::default());
    let [row] = &batch.rows[..] else { panic!("{:?}", batch.rows) };
    let call = calls.iter().find(|call| call.call_id == first.call_id).unwrap();
    assert_eq!(row.input_ids, call.token_ids);
    assert_eq!(row.loss_tokens(), call.generation().len());
}

/// Rule 144: a record that the ledger does not commit to is there, and is selected by no policy.
#[test]
fn a_record_that_the_ledger_does_not_commit_to_trains_under_no_policy() {
    let case = Case::of("staged-v2", "p01_g3").with(|rollout| {
        let mut record = rollout.calls[SCORED].clone();
        record.call_id = "late".into();
        rollout.calls.push(record);
    });
    let plain = Case::of("staged-v2", "p01_g3");
    for policy in POLICIES {
        assert_eq!(case.selection(policy), plain.selection(policy), "{policy:?}");
        let rows = |case: &Case| {
            let groups = std::slice::from_ref(&case.group);
            build(groups, &selected(groups, policy), 1, &GrpoSettings::default()).rows
        };
        assert_eq!(rows(&case), rows(&plain), "{policy:?}");
    }
}
