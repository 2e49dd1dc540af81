//! Selection against the closed-loop oracle, and against histories that were tampered with.

use std::collections::BTreeSet;

use forestctl::archive::{Call, Completeness, Completion, Group, Mode, OutputItem, Rollout};
use forestctl::finding::{Code, Severity};
use forestctl::id::CallId;
use forestctl::rows::build;
use forestctl::select::{
    PolicyName, Reason, RolloutSelection, SelectSettings, Selection, Verdict, select,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::builders;
use crate::closed_loop::{POLICIES, expected, groups, selected, strings};

fn rollouts(selection: &Selection) -> Vec<&RolloutSelection> {
    selection.groups.iter().flat_map(|g| &g.rollouts).collect()
}

/// A reason as the oracle writes it.
fn reason(reason: &Reason) -> Value {
    let mut value = json!({
        "code": reason.code.as_str(),
        "calls": reason.calls.iter().map(|c| c.as_str()).collect::<Vec<_>>(),
    });
    if let Some(word) = &reason.capture_reason {
        value["capture_reason"] = json!(word);
    }
    if let Some(Completion::Recorded { status, finish_reason }) = &reason.completion {
        value["status"] = json!(status);
        value["finish_reason"] = json!(finish_reason);
    }
    value
}

fn rendered(rollout: &RolloutSelection) -> Value {
    json!({
        "rollout_id": rollout.rollout_id.as_str(),
        "slot": rollout.slot,
        "verdict": rollout.verdict(),
        "reasons": rollout.reasons.iter().map(reason).collect::<Vec<_>>(),
        "selected": rollout.calls.iter().map(|c| c.as_str()).collect::<Vec<_>>(),
        "terminal": rollout.terminal.as_ref().map(|c| c.as_str()),
        "truncated": rollout.truncated,
    })
}

fn picked(oracle: &Value) -> Value {
    let keys = ["rollout_id", "slot", "verdict", "reasons", "selected", "terminal", "truncated"];
    Value::Object(keys.iter().map(|key| ((*key).to_owned(), oracle[*key].clone())).collect())
}

#[test]
fn both_schemas_and_policies_give_the_oracles_verdicts_reasons_order_and_terminals() {
    for form in ["staged-v2", "staged-v3"] {
        let groups = groups(form);
        for policy in POLICIES {
            let selection = selected(&groups, policy);
            let oracle = expected(policy);
            let found: Vec<Value> = rollouts(&selection).into_iter().map(rendered).collect();
            let wanted: Vec<Value> =
                oracle["rollouts"].as_array().unwrap().iter().map(picked).collect();
            assert_eq!(found.len(), wanted.len());
            for (found, wanted) in found.iter().zip(&wanted) {
                assert_eq!(found, wanted, "{form} {policy:?}");
            }
            let dropped: Vec<_> = selection.groups.iter().filter(|g| g.dropped.is_some()).collect();
            assert_eq!(dropped.len() as u64, oracle["dropped_prompt_groups"].as_u64().unwrap());
            for group in dropped {
                assert_eq!(oracle["groups"][group.group_id.as_str()]["verdict"], "dropped");
            }
            // Masks are no errors.
            let errors: Vec<_> =
                selection.findings.iter().filter(|f| f.severity == Severity::Error).collect();
            assert!(errors.is_empty(), "{errors:?}");
        }
    }
}

/// The one group and rollout that tampering tests work on.
pub struct Case {
    pub group: Group,
}

impl Case {
    /// Rollout `id` of the fixture, alone in its group.
    pub fn of(form: &str, id: &str) -> Self {
        let all = groups(form).into_iter().flat_map(|g| g.rollouts);
        let mut rollout = all.into_iter().find(|r| r.rollout_id.as_str() == id).unwrap();
        (rollout.slot, rollout.group_size) = (0, 1);
        Self { group: Group { group_id: "p".into(), rollouts: vec![rollout] } }
    }

    pub fn rollout(&mut self) -> &mut Rollout {
        &mut self.group.rollouts[0]
    }

    /// Changes the result object.
    pub fn edit(mut self, change: impl FnOnce(&mut Value)) -> Self {
        let rollout = self.rollout();
        let mut result: Value = serde_json::from_str(rollout.result.as_ref().unwrap()).unwrap();
        change(&mut result);
        rollout.result = Some(result.to_string());
        self
    }

    /// Changes `response.output`.
    pub fn output(self, change: impl FnOnce(&mut Vec<Value>)) -> Self {
        self.edit(|result| change(result["response"]["output"].as_array_mut().unwrap()))
    }

    pub fn with(mut self, change: impl FnOnce(&mut Rollout)) -> Self {
        change(self.rollout());
        self
    }

    pub fn selection(&self, policy: PolicyName) -> RolloutSelection {
        let mut selection = selected(std::slice::from_ref(&self.group), policy);
        selection.groups.remove(0).rollouts.remove(0)
    }

    /// Reason codes under the default policy.
    pub fn codes(&self) -> Vec<Code> {
        let selection = self.selection(PolicyName::ReturnedHistory);
        selection.reasons.iter().map(|reason| reason.code).collect()
    }
}

#[test]
fn a_receipt_that_scores_another_call_is_told_and_the_result_decides() {
    let findings = |form: &str, change: fn(&mut Rollout)| {
        let case = Case::of(form, "p01_g1").with(change);
        let policy = PolicyName::ReturnedHistory.policy();
        select(std::slice::from_ref(&case.group), policy, &SelectSettings::default())
    };
    for form in ["staged-v2", "staged-v3"] {
        let clean = findings(form, |_| {});
        assert!(clean.findings.is_empty(), "{:?}", clean.findings);
        let other = findings(form, |rollout| {
            rollout.ledger.terminal_call_id = Some(rollout.ledger.committed[0].call_id.clone());
        });
        let [finding] = &other.findings[..] else { panic!("{:?}", other.findings) };
        assert_eq!(finding.code, Code::TerminalMismatch);
        assert_eq!(other.groups, clean.groups, "a warning changes no verdict");
    }
}

fn without_ids(output: &mut Vec<Value>) {
    for item in output {
        item.as_object_mut().unwrap().remove("id");
    }
}

#[test]
fn ids_may_be_absent_or_synthetic_and_fingerprints_of_items_too() {
    let oracle = expected(PolicyName::ReturnedHistory);
    for form in ["staged-v2", "staged-v3"] {
        for wanted in oracle["rollouts"].as_array().unwrap() {
            let id = wanted["rollout_id"].as_str().unwrap();
            let reduced = [
                Case::of(form, id).output(without_ids),
                Case::of(form, id).output(|output| {
                    for (i, item) in output.iter_mut().enumerate() {
                        item["id"] = json!(format!("item_{i:04}"));
                    }
                }),
                // A ledger that knows only the fingerprint of a whole output.
                Case::of(form, id).with(|rollout| {
                    rollout.ledger.committed.iter_mut().for_each(|row| row.output_items = None);
                }),
            ];
            for (i, case) in reduced.iter().enumerate() {
                let found = case.selection(PolicyName::ReturnedHistory);
                let calls: Vec<&str> = found.calls.iter().map(CallId::as_str).collect();
                assert_eq!(calls, strings(&wanted["selected"]), "{form} {id}, way {i}");
                assert_eq!(
                    found.terminal.as_ref().map(CallId::as_str),
                    wanted["terminal"].as_str()
                );
                assert_eq!(json!(found.verdict()), wanted["verdict"]);
            }
        }
    }
}

/// `p04_g2` took the second of two answers with one text, and went on from it.
#[test]
fn equal_answers_are_told_apart_by_what_follows_or_by_the_scored_response_and_else_not() {
    let short = |output: &mut Vec<Value>| {
        without_ids(output);
        output.truncate(3);
    };
    let whole = Case::of("staged-v2", "p04_g2");
    let ledger = whole.group.rollouts[0].ledger.committed.clone();
    let silent = |result: &mut Value| {
        result.as_object_mut().unwrap().remove("terminal_response_id");
        result["response"].as_object_mut().unwrap().remove("id");
    };
    let case = whole.output(short).edit(silent).with(|rollout| {
        rollout.ledger.terminal_call_id = None;
    });
    assert_eq!(case.codes(), [Code::AmbiguousEvidence]);
    for twin in [&ledger[1], &ledger[2]] {
        let case = Case::of("staged-v2", "p04_g2").output(short).edit(|result| {
            silent(result);
            result["terminal_response_id"] = json!(twin.response_id);
        });
        let found = case.selection(PolicyName::ReturnedHistory);
        assert_eq!(found.verdict(), Verdict::Valid, "{:?}", found.reasons);
        assert_eq!(found.calls, [ledger[0].call_id.clone(), twin.call_id.clone()]);
        assert_eq!(found.terminal.as_ref(), Some(&twin.call_id));
    }
}

#[test]
fn content_names_the_scored_call_when_no_id_does() {
    let silent = |id: &str| {
        Case::of("staged-v2", id)
            .edit(|result| {
                result.as_object_mut().unwrap().remove("terminal_response_id");
                result["response"]["id"] = json!("resp_of_the_harness");
            })
            .with(|rollout| rollout.ledger.terminal_call_id = None)
    };
    for policy in POLICIES {
        for (id, last) in [("p01_g1", 3), ("p01_g3", 3), ("p03_g0", 6)] {
            let case = silent(id);
            let scored = &case.group.rollouts[0].ledger.committed[last].call_id;
            assert_eq!(case.selection(policy).terminal.as_ref(), Some(scored), "{id}");
        }
        // The last stretch is two generations: capture order is no witness.
        let twins = silent("p06_g3");
        let found = twins.selection(policy);
        assert_eq!((found.terminal, found.reasons[0].code), (None, Code::UnattributedTerminal));
        // The receipt's own attribution is one.
        let recorded = Case::of("staged-v2", "p06_g3").edit(|result| {
            result.as_object_mut().unwrap().remove("terminal_response_id");
            result["response"].as_object_mut().unwrap().remove("id");
        });
        let scored = recorded.group.rollouts[0].ledger.terminal_call_id.clone();
        assert!(scored.is_some());
        assert_eq!(recorded.selection(policy).terminal, scored);
    }
}

#[test]
fn tampered_histories_are_errors_that_mask() {
    let of = |id| Case::of("staged-v2", id);
    let text = |item: &mut Value, text: &str| item["content"][0]["text"] = json!(text);
    let cases = [
        (of("p01_g3").output(|o| text(&mut o[2], "other")), Code::ContradictoryEvidence),
        (
            of("p01_g3").output(|o| {
                without_ids(o);
                text(&mut o[2], "other");
            }),
            Code::UnmatchedEvidence,
        ),
        (of("p01_g3").output(|o| o.push(o[4].clone())), Code::DuplicatedEvidence),
        (
            of("p01_g3").output(|o| {
                without_ids(o);
                o.push(o[4].clone());
            }),
            Code::DuplicatedEvidence,
        ),
        // Message and function call of one generation.
        (of("p01_g1").output(|o| drop(o.remove(2))), Code::PartialGeneration),
        (of("p01_g1").output(|o| drop(o.remove(3))), Code::PartialGeneration),
        (of("p01_g1").output(|o| o.swap(2, 3)), Code::PartialGeneration),
        (of("p01_g1").output(|o| o.push(json!({"type": "computer_call"}))), Code::UnsupportedItem),
        (of("p01_g1").output(Vec::clear), Code::MissingEvidence),
        (of("p01_g1").with(|r| r.result = None), Code::MissingEvidence),
        (of("p01_g1").with(|r| r.result = Some("{".to_owned())), Code::MissingEvidence),
        // The scored response was captured, and is not part of the history.
        (
            of("p01_g3").edit(|r| {
                r["terminal_response_id"] = r["response"]["id"].clone();
                r["response"]["output"].as_array_mut().unwrap().pop();
            }),
            Code::TerminalNotSelected,
        ),
        (
            of("p01_g1").edit(|r| r["terminal_response_id"] = json!("resp_unknown")),
            Code::UnattributedTerminal,
        ),
        (
            of("p01_g1").with(|r| {
                let first = r.ledger.committed[0].response_id.clone();
                *r = Case::of("staged-v2", "p01_g1")
                    .edit(|result| result["terminal_response_id"] = json!(first))
                    .group
                    .rollouts
                    .remove(0);
            }),
            Code::ContradictoryEvidence,
        ),
    ];
    for (case, code) in cases {
        assert_eq!(case.codes().first(), Some(&code));
        let selection = selected(std::slice::from_ref(&case.group), PolicyName::ReturnedHistory);
        let error = selection.findings.iter().find(|f| f.code == code).unwrap();
        assert_eq!(error.severity, Severity::Error);
        assert_eq!(error.rollout_id.as_ref(), Some(&case.group.rollouts[0].rollout_id));
        assert_eq!(selection.groups[0].dropped, Some(Code::NoVerifiedLayout));
    }
}

#[test]
fn captures_that_cannot_be_laid_out_are_masked_and_never_panic() {
    let call = |change: fn(&mut Call)| {
        Case::of("staged-v2", "p01_g3").with(move |rollout| {
            let last = rollout.ledger.committed[3].call_id.clone();
            change(rollout.calls.iter_mut().find(|c| c.call_id == last).unwrap());
        })
    };
    let cases = [
        (call(|c| c.capture_key = "9-9".into()), Code::WrongRollout),
        (call(|c| c.prev_len -= 1), Code::InvalidSnapshot),
        (call(|c| c.token_ids.clear()), Code::InvalidSnapshot),
        (call(|c| c.carry_len = c.delta_len as u32), Code::EmptyGeneration),
        (call(|c| c.carry_len = u32::MAX), Code::EmptyGeneration),
        (call(|c| c.generation_logprobs.truncate(1)), Code::InvalidSnapshot),
        (call(|c| c.generation_logprobs[0] = f32::NAN), Code::MissingLogprob),
        (call(|c| c.mode = Mode::Text), Code::InvalidSnapshot),
        (
            call(|c| {
                c.prev_len += 1;
                c.cum_len += 1;
            }),
            Code::ParentLengthMismatch,
        ),
        (call(|c| c.parent_call_id = Some(c.call_id.clone())), Code::ParentLengthMismatch),
        (call(|c| c.extras = Some(r#"{"routed_experts":"nrlre1:x"}"#.into())), Code::InvalidRoute),
        (call(|c| c.extras = Some("[".into())), Code::InvalidRoute),
    ];
    for (i, (case, code)) in cases.iter().enumerate() {
        assert_eq!(case.codes().first(), Some(code), "case {i}");
        let groups = std::slice::from_ref(&case.group);
        for policy in POLICIES {
            let built = build(groups, &selected(groups, policy), 4, &Default::default());
            assert!(built.rows.is_empty());
        }
    }
    let lost = Case::of("staged-v2", "p01_g3").with(|rollout| drop(rollout.calls.remove(0)));
    assert_eq!(lost.codes().first(), Some(&Code::RowCountMismatch));
}

#[test]
fn what_the_source_says_of_the_whole_capture_masks() {
    let of = || Case::of("staged-v2", "p01_g3");
    let unknown = of().with(|r| r.completeness = Completeness::Unknown);
    assert_eq!(unknown.codes(), [Code::CompletenessUnknown]);
    let assumed = SelectSettings { assume_complete: true, ..Default::default() };
    let groups = std::slice::from_ref(&unknown.group);
    let selection = select(groups, PolicyName::ReturnedHistory.policy(), &assumed);
    assert_eq!(selection.groups[0].rollouts[0].verdict(), Verdict::Valid);

    let incomplete = of().with(|r| r.completeness = Completeness::Incomplete);
    assert_eq!(incomplete.codes(), [Code::CaptureIncomplete]);
    let poisoned = of().with(|r| r.ledger.capture_poisoned = true);
    assert_eq!(poisoned.codes(), [Code::CapturePoisoned]);
    let failed = of().with(|r| r.ledger.failure_reason = Some(String::new()));
    assert_eq!(failed.codes(), [Code::RolloutFailed]);
    let unscored = of().with(|r| r.reward = None);
    assert_eq!(unscored.codes(), [Code::MissingReward]);

    // Gym's own receipts are poisoned by the cancellation that is exempt.
    let cancelled = Case::of("staged-v2", "p03_g2").with(|r| {
        r.ledger.capture_poisoned = true;
        r.ledger.failure_reason = Some(r.ledger.failures[0].reason.clone());
    });
    assert_eq!(cancelled.codes(), []);
    let pending = Case::of("staged-v2", "p03_g2").with(|r| r.ledger.pending.push("late".into()));
    assert_eq!(pending.codes(), [Code::CapturePending, Code::CaptureFailed]);

    let case = of();
    let groups = std::slice::from_ref(&case.group);
    let rollout = case.group.rollouts[0].rollout_id.clone();
    let invalid = [(rollout, Code::CorruptDigest)].into();
    let settings = SelectSettings { invalid, ..Default::default() };
    let selection = select(groups, PolicyName::ReturnedHistory.policy(), &settings);
    assert_eq!(selection.groups[0].rollouts[0].reasons[0].code, Code::CorruptDigest);
    assert!(selection.findings.iter().any(|f| f.code == Code::CorruptDigest));
}

#[test]
fn a_source_without_completion_status_passes_with_a_warning_or_not_at_all() {
    let case = Case::of("staged-v2", "p01_g3").with(|rollout| {
        rollout.ledger.committed.iter_mut().for_each(|c| c.completion = Completion::Unrecorded);
    });
    assert_eq!(case.codes(), []);
    let selection = selected(std::slice::from_ref(&case.group), PolicyName::ReturnedHistory);
    let codes: Vec<_> = selection.findings.iter().map(|f| (f.code, f.severity)).collect();
    assert_eq!(codes, [(Code::CompletionUnrecorded, Severity::Warning)]);
    let all = case.selection(PolicyName::AllCaptured);
    assert_eq!(all.reasons[0].code, Code::MissingCompletion);
}

#[test]
fn a_rollout_masked_by_its_environment_keeps_its_rows_and_carries_no_loss() {
    let mut group = groups("staged-v2").remove(0);
    group.rollouts[0].mask_sample = true;
    let groups = std::slice::from_ref(&group);
    let selection = selected(groups, PolicyName::ReturnedHistory);
    let masked = &selection.groups[0].rollouts[0];
    assert_eq!((masked.verdict(), masked.has_layout()), (Verdict::Masked, true));
    let batch = build(groups, &selection, 1, &Default::default());
    let row = &batch.rows[0];
    assert_eq!(row.mask_reason.as_deref(), Some("environment_masked"));
    assert!(!row.uses_borrowed_input && row.loss_tokens() > 0);
    assert_eq!((row.sample_mask, row.advantage), (0.0, 0.0));
    assert_eq!(batch.lengths[0].gen_tokens_per_sample, row.loss_tokens() as u64);
    let rest: usize = batch.rows[1..].iter().map(|row| row.loss_tokens()).sum();
    assert_eq!(batch.counts.loss_tokens, rest as u64);
}

#[test]
fn a_group_with_a_missing_or_doubled_slot_is_dropped() {
    let whole = groups("staged-v2").remove(0);
    let mut missing = whole.clone();
    missing.rollouts.remove(1);
    let mut doubled = whole.clone();
    doubled.rollouts[2].slot = 1;
    let mut sizes = whole.clone();
    sizes.rollouts[3].group_size = 5;
    let mut beyond = whole;
    beyond.rollouts[3].slot = 7;
    // An agent that timed out gave no result: no contradiction, but no whole group either.
    for (group, code, severity) in [
        (missing, Code::IncompleteGroup, Severity::Warning),
        (doubled, Code::InconsistentGroup, Severity::Error),
        (sizes, Code::InconsistentGroup, Severity::Error),
        (beyond, Code::InconsistentGroup, Severity::Error),
    ] {
        let selection = selected(std::slice::from_ref(&group), PolicyName::ReturnedHistory);
        assert_eq!(selection.groups[0].dropped, Some(code));
        let found = selection.findings.iter().find(|f| f.code == code).unwrap();
        assert_eq!(found.severity, severity);
        let batch = build(std::slice::from_ref(&group), &selection, 1, &Default::default());
        assert_eq!((batch.rows.len(), batch.counts.valid_rollouts), (0, 0));
    }
}

/// One rollout of `n` calls with one carry and one generated token each, call `i` continuing call
/// `i - 1`, and a history without ids in which every answer reads `text(i)`.
fn chain(n: u64, text: impl Fn(u64) -> String) -> Group {
    let message = |i: u64| json!({"type": "message", "role": "assistant", "content": text(i)});
    let mut calls: Vec<Call> = Vec::new();
    for i in 0..n {
        let call = builders::call(format!("c{i}"), calls.last(), &[i as u32], &[(7, -0.5)]);
        calls.push(call);
    }
    let mut rollout = builders::rollout("p", 0, 1, calls);
    for (i, row) in (0..).zip(&mut rollout.ledger.committed) {
        row.response_id = Some(format!("r{i}"));
        row.output_items = Some(vec![OutputItem { kind: None, ..builders::served(&message(i)) }]);
    }
    let output: Vec<Value> =
        (0..n).flat_map(|i| [message(i), json!({"role": "user", "content": "go on"})]).collect();
    let result = json!({
        "response": {"output": output},
        "terminal_response_id": format!("r{}", n - 1),
    });
    rollout.result = Some(result.to_string());
    builders::group("p", vec![rollout])
}

#[test]
fn a_very_long_chain_is_one_row() {
    let group = chain(30_000, |i| format!("answer {i}"));
    let groups = std::slice::from_ref(&group);
    for policy in POLICIES {
        let selection = selected(groups, policy);
        assert_eq!(selection.findings, []);
        let batch = build(groups, &selection, 1, &Default::default());
        assert_eq!(batch.rows.len(), 1);
        assert_eq!(batch.counts.loss_tokens, 30_000);
        assert_eq!(batch.counts.row_tokens, 60_000);
    }
}

#[test]
fn a_chain_of_equal_answers_is_taken_whole_and_in_order() {
    let group = chain(300, |_| "ok".to_owned());
    let found = selected(std::slice::from_ref(&group), PolicyName::ReturnedHistory);
    let calls: Vec<&CallId> = group.rollouts[0].calls.iter().map(|c| &c.call_id).collect();
    assert_eq!(found.groups[0].rollouts[0].calls.iter().collect::<Vec<_>>(), calls);
    // Too many of them are refused before they fill the memory.
    let group = chain(2_200, |_| "ok".to_owned());
    let found = selected(std::slice::from_ref(&group), PolicyName::ReturnedHistory);
    assert_eq!(found.groups[0].rollouts[0].reasons[0].code, Code::AmbiguousEvidence);
}

/// Positions of a history without ids -> every set of calls that explains it: whole generations,
/// each used once, closed under parents, with the scored call.
fn explanations(
    group: &Group,
    texts: &[usize],
    history: &[usize],
    scored: usize,
) -> BTreeSet<BTreeSet<usize>> {
    let calls = &group.rollouts[0].calls;
    let number = |id: &CallId| calls.iter().position(|c| c.call_id == *id).unwrap();
    let parents: Vec<Option<usize>> =
        calls.iter().map(|c| c.parent_call_id.as_ref().map(number)).collect();
    let mut partial: BTreeSet<BTreeSet<usize>> = [BTreeSet::new()].into();
    for &text in history {
        let mut next = BTreeSet::new();
        for chosen in &partial {
            for call in (0..texts.len()).filter(|c| texts[*c] == text && !chosen.contains(c)) {
                let mut more = chosen.clone();
                more.insert(call);
                next.insert(more);
            }
        }
        partial = next;
    }
    let closed = |set: &BTreeSet<usize>| {
        set.contains(&scored) && set.iter().all(|&c| parents[c].is_none_or(|p| set.contains(&p)))
    };
    partial.into_iter().filter(closed).collect()
}

proptest! {
    /// Whatever is selected without objection is the only explanation of the history.
    #[test]
    fn nothing_is_guessed(
        calls in prop::collection::vec((0usize..3, any::<u8>(), any::<bool>()), 1..8),
        scored in any::<prop::sample::Index>(),
    ) {
        let texts: Vec<usize> = calls.iter().map(|(text, _, _)| *text).collect();
        let mut group = chain(calls.len() as u64, |i| format!("text {}", texts[i as usize]));
        let rollout = &mut group.rollouts[0];
        let mut parents = Vec::new();
        for (i, (_, link, _)) in calls.iter().enumerate() {
            let parent = Some(*link as usize % (i + 2)).filter(|p| *p < i);
            let cum = parent.map_or(0, |p| rollout.calls[p].cum_len);
            let id = parent.map(|p| rollout.calls[p].call_id.clone());
            let call = &mut rollout.calls[i];
            call.mode = if parent.is_some() { Mode::TokenIn } else { Mode::Text };
            (call.parent_call_id, call.prev_len, call.cum_len) = (id, cum, cum + 2);
            parents.push(parent);
        }
        // The truth: some calls, and what they continue.
        let mut truth: BTreeSet<usize> = (0..calls.len()).filter(|i| calls[*i].2).collect();
        truth.insert(scored.index(calls.len()));
        for call in (0..calls.len()).rev() {
            if let (true, Some(parent)) = (truth.contains(&call), parents[call]) {
                truth.insert(parent);
            }
        }
        let scored = scored.index(calls.len());
        let history: Vec<usize> = truth.iter().map(|call| texts[*call]).collect();
        let output: Vec<Value> = history
            .iter()
            .map(|text| json!({"role": "assistant", "content": format!("text {text}")}))
            .collect();
        let result = json!({
            "response": {"output": output},
            "terminal_response_id": format!("r{scored}"),
        });
        rollout.result = Some(result.to_string());
        let found = selected(std::slice::from_ref(&group), PolicyName::ReturnedHistory);
        let found = &found.groups[0].rollouts[0];
        let explanations = explanations(&group, &texts, &history, scored);
        prop_assert!(explanations.contains(&truth));
        match found.verdict() {
            Verdict::Valid => {
                let calls: BTreeSet<usize> =
                    found.calls.iter().map(|c| c.as_str()[1..].parse().unwrap()).collect();
                prop_assert_eq!(explanations, [calls].into());
            }
            Verdict::Masked => {
                let only = found.reasons.iter().all(|r| r.code == Code::AmbiguousEvidence);
                let first = found.reasons[0].code == Code::AmbiguousEvidence;
                prop_assert!(only || first, "{:?}", found.reasons);
            }
        }
    }

    /// A result of any shape is judged, never fatal.
    #[test]
    fn any_result_is_judged(text in "[\\[\\]{}\",:a-z0-9 ]{0,60}", output in ".{0,40}") {
        let mut group = chain(2, |i| format!("text {i}"));
        for result in [text, json!({"response": {"output": [output]}}).to_string()] {
            group.rollouts[0].result = Some(result);
            let found = selected(std::slice::from_ref(&group), PolicyName::ReturnedHistory);
            prop_assert_eq!(found.groups[0].rollouts[0].verdict(), Verdict::Masked);
        }
    }
}
