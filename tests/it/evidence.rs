//! The forms in which a harness says what it accepted (rules 59-68): output, ordered responses,
//! snapshots per transition, and references of a trajectory.

use std::collections::BTreeMap;

use forestctl::archive::Rollout;
use forestctl::finding::{Code, Finding, Severity};
use forestctl::select::{PolicyName, RolloutSelection};
use serde_json::{Value, json};

use crate::closed_loop::{groups, selected};
use crate::select::Case;

/// The returned output of a rollout, by the call that served each stretch; observations stand
/// before the generation that they lead to.
struct Returned {
    result: Value,
    calls: Vec<(String, Vec<Value>, Vec<Value>)>,
}

impl Returned {
    /// `None` where items do not name their calls by native ids.
    fn of(rollout: &Rollout) -> Option<Self> {
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        for call in &rollout.ledger.committed {
            for item in call.output_items.iter().flatten() {
                owners.insert(item.id.as_deref()?, call.call_id.as_str());
            }
        }
        let mut result: Value = serde_json::from_str(rollout.result.as_ref()?).ok()?;
        let mut calls: Vec<(String, Vec<Value>, Vec<Value>)> = Vec::new();
        let mut observations = Vec::new();
        for item in result["response"]["output"].as_array()? {
            let observation = item["type"] == "function_call_output"
                || (item["role"] != "assistant" && item["type"] == "message");
            if observation {
                observations.push(item.clone());
                continue;
            }
            let call = *owners.get(item["id"].as_str()?)?;
            match calls.last_mut() {
                Some((last, _, items)) if last == call => items.push(item.clone()),
                _ => {
                    let before = std::mem::take(&mut observations);
                    calls.push((call.to_owned(), before, vec![item.clone()]));
                }
            }
        }
        if result["terminal_response_id"].is_null() {
            result["terminal_response_id"] = result["response"]["id"].clone();
        }
        Some(Self { result, calls })
    }

    fn served(&self, rollout: &Rollout, call: &str) -> Value {
        let row = rollout.ledger.committed.iter().find(|row| row.call_id.as_str() == call);
        json!(row.unwrap().response_id)
    }

    /// Ordered responses, one per call.
    fn responses(&self, rollout: &Rollout) -> Value {
        let responses = self
            .calls
            .iter()
            .map(|(call, _, items)| json!({"id": self.served(rollout, call), "output": items}));
        let mut result = self.result.clone();
        result["responses"] = responses.collect();
        result.as_object_mut().unwrap().remove("response");
        result
    }

    /// One snapshot per call, each with all that came before.
    fn snapshots(&self) -> Value {
        let prompt = json!([
            {"role": "system", "content": "s"},
            {"role": "assistant", "content": "an example of an answer"},
            {"role": "user", "content": "q"},
        ]);
        let mut history = prompt.as_array().unwrap().clone();
        let snapshots = self.calls.iter().map(|(_, before, items)| {
            history.extend(before.iter().chain(items).cloned());
            Value::Array(history.clone())
        });
        let mut result = self.result.clone();
        result["response"]["output"] = snapshots.collect();
        result["responses_create_params"] = json!({"input": prompt});
        result
    }

    /// References alone, by call and by response in turn.
    fn references(&self, rollout: &Rollout) -> Value {
        let turns = self.calls.iter().enumerate().map(|(i, (call, _, _))| {
            let reference = match i % 2 {
                0 => json!({"model_call_id": call}),
                _ => json!({
                    "model_ref": {"type": "responses_api_models", "name": "policy"},
                    "response_id": self.served(rollout, call),
                }),
            };
            json!({"rollout_id": "0-0", "turn_no": i + 1, "model_calls": [reference]})
        });
        let mut result = self.result.clone();
        result["ng_trajectory"] =
            json!({"schema_version": "1.0", "turns": turns.collect::<Vec<_>>()});
        result.as_object_mut().unwrap().remove("response");
        result
    }
}

fn with(rollout: &Rollout, result: &Value) -> RolloutSelection {
    let case = Case::of("staged-v2", rollout.rollout_id.as_str())
        .with(|rollout| rollout.result = Some(result.to_string()));
    case.selection(PolicyName::ReturnedHistory)
}

#[test]
fn every_form_of_evidence_selects_what_the_output_does() {
    let mut compared = 0;
    for group in groups("staged-v2") {
        for rollout in &group.rollouts {
            let plain = Case::of("staged-v2", rollout.rollout_id.as_str())
                .selection(PolicyName::ReturnedHistory);
            let Some(returned) = Returned::of(rollout) else { continue };
            let mut both = returned.references(rollout);
            both["response"] = returned.result["response"].clone();
            let mut responses_and_response = returned.responses(rollout);
            responses_and_response["response"] = returned.result["response"].clone();
            for result in [
                returned.result.clone(),
                returned.responses(rollout),
                returned.snapshots(),
                returned.references(rollout),
                both,
                responses_and_response,
            ] {
                assert_eq!(with(rollout, &result), plain, "{result:#}");
            }
            compared += 1;
        }
    }
    assert!(compared >= 20, "{compared}");
}

/// The rollout that the tests below change: several calls, each with native ids.
fn case() -> (Rollout, Returned) {
    let rollout = Case::of("staged-v2", "p01_g3").group.rollouts.remove(0);
    let returned = Returned::of(&rollout).unwrap();
    assert!(returned.calls.len() >= 3);
    (rollout, returned)
}

/// The one error on `result`; that its calls are then not closed under parents is no error.
fn told(rollout: &Rollout, result: &Value) -> (Code, String) {
    let case = Case::of("staged-v2", rollout.rollout_id.as_str())
        .with(|rollout| rollout.result = Some(result.to_string()));
    let found = selected(std::slice::from_ref(&case.group), PolicyName::ReturnedHistory);
    let errors: Vec<&Finding> =
        found.findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    (errors[0].code, errors[0].message.clone())
}

#[test]
fn references_that_name_no_call_or_several_or_one_twice_are_errors() {
    let (rollout, returned) = case();
    let first = returned.calls[0].0.as_str();
    let second_response = returned.served(&rollout, &returned.calls[1].0);
    let model = json!({"type": "responses_api_models", "name": "policy"});
    let with = |reference: Value| {
        let mut result = returned.references(&rollout);
        result["ng_trajectory"]["turns"][0]["model_calls"] = json!([reference]);
        told(&rollout, &result)
    };
    let cases = [
        (json!({}), Code::MissingEvidence, "needs model_call_id, or model_ref and response_id"),
        // A response without its model names no call.
        (json!({"response_id": second_response}), Code::MissingEvidence, "names no call"),
        (json!({"model_call_id": "elsewhere"}), Code::UnmatchedEvidence, "elsewhere"),
        (
            json!({"model_ref": model, "response_id": "resp_of_nobody"}),
            Code::UnmatchedEvidence,
            "resp_of_nobody",
        ),
        (
            json!({"model_ref": model, "response_id": second_response}),
            Code::DuplicatedEvidence,
            "turns[0].model_calls[0] and ng_trajectory.turns[1].model_calls[0] both name",
        ),
        (
            json!({"model_call_id": first, "model_ref": model, "response_id": second_response}),
            Code::ContradictoryEvidence,
            first,
        ),
    ];
    for (reference, code, message) in cases {
        let (found, told) = with(reference);
        assert_eq!(found, code, "{told}");
        assert!(told.contains(message), "{told}");
    }
}

#[test]
fn a_response_that_several_calls_served_is_ambiguous_as_a_reference() {
    let (rollout, returned) = case();
    let result = returned.references(&rollout);
    let (first, second) = (&returned.calls[0].0, returned.served(&rollout, &returned.calls[1].0));
    let case = Case::of("staged-v2", "p01_g3").with(|rollout| {
        rollout.result = Some(result.to_string());
        let mut rows = rollout.ledger.committed.iter_mut();
        let row = rows.find(|row| row.call_id.as_str() == first).unwrap();
        row.response_id = second.as_str().map(str::to_owned);
    });
    assert_eq!(case.codes().first(), Some(&Code::AmbiguousEvidence));
}

/// Rule 62: with output, references must agree; both sides are shown.
#[test]
fn references_and_output_that_disagree_show_both_sides() {
    let (rollout, returned) = case();
    let with = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut result = returned.references(&rollout);
        result["response"] = returned.result["response"].clone();
        change(result["ng_trajectory"]["turns"].as_array_mut().unwrap());
        told(&rollout, &result)
    };
    let second = returned.calls[1].0.as_str();
    let (code, message) = with(&|turns| drop(turns.remove(1)));
    assert_eq!(code, Code::ContradictoryEvidence);
    assert_eq!(message, format!("the output holds what is not referenced: call {second}"));
    let selected: Vec<&str> = returned.calls.iter().map(|(call, ..)| call.as_str()).collect();
    let rejected = rollout.calls.iter().find(|c| !selected.contains(&c.call_id.as_str()));
    let Some(rejected) = rejected else { panic!("the rollout has no rejected call") };
    let (code, message) =
        with(&|turns| turns[1]["model_calls"] = json!([{"model_call_id": rejected.call_id}]));
    assert_eq!(code, Code::ContradictoryEvidence);
    assert!(message.contains(second) && message.contains(rejected.call_id.as_str()), "{message}");
}

/// Rule 68.
#[test]
fn several_sessions_are_refused() {
    let (rollout, returned) = case();
    let mut result = returned.references(&rollout);
    result["ng_trajectory"]["turns"][1]["rollout_id"] = json!("0-1");
    let (code, message) = told(&rollout, &result);
    assert_eq!(code, Code::SeveralSessions);
    assert!(message.contains("0-0, 0-1"), "{message}");
}

/// An item that stands in several snapshots is one item, by its id, and has one content.
#[test]
fn an_item_of_several_snapshots_has_one_content() {
    let (rollout, returned) = case();
    let mut result = returned.snapshots();
    let last = result["response"]["output"].as_array().unwrap().len() - 1;
    result["response"]["output"][last][3]["content"][0]["text"] = json!("rewritten");
    let (code, message) = told(&rollout, &result);
    assert_eq!(code, Code::ContradictoryEvidence);
    assert!(
        message.contains(&format!("(response.output[{last}][3]) has other content than"))
            && message.contains("(response.output[0][3])"),
        "{message}"
    );
}

/// Without ids, what follows a common beginning is new, unless it repeats what came before.
#[test]
fn snapshots_without_ids_are_read_by_their_common_beginning() {
    let (rollout, returned) = case();
    let mut result = returned.snapshots();
    let strip = |snapshot: &mut Value| {
        for item in snapshot.as_array_mut().unwrap() {
            item.as_object_mut().unwrap().remove("id");
        }
    };
    result["response"]["output"].as_array_mut().unwrap().iter_mut().for_each(strip);
    let plain = with(&rollout, &returned.result);
    assert_eq!(with(&rollout, &result).calls, plain.calls);
    // A compacted snapshot begins otherwise, and repeats an answer: the same, or an equal one?
    let last = result["response"]["output"].as_array().unwrap().len() - 1;
    let snapshot = result["response"]["output"][last].as_array_mut().unwrap();
    let summary = json!({"role": "assistant", "content": "so far"});
    snapshot.insert(3, summary);
    let codes: Vec<Code> = with(&rollout, &result).reasons.iter().map(|r| r.code).collect();
    assert!(codes.contains(&Code::AmbiguousEvidence), "{codes:?}");
}

/// A response's own id says which call it is of (rule 60).
#[test]
fn a_response_with_the_id_of_another_call_is_contradictory() {
    let (rollout, returned) = case();
    let mut result = returned.responses(&rollout);
    let (first, second) =
        (result["responses"][0]["id"].clone(), result["responses"][1]["id"].clone());
    result["responses"][0]["id"] = second;
    let (code, message) = told(&rollout, &result);
    assert_eq!(code, Code::ContradictoryEvidence, "{message}");
    assert!(message.contains("responses[0].output"), "{message}");
    // An exporter's own id says nothing.
    result["responses"][0]["id"] = json!("exported-1");
    assert_eq!(with(&rollout, &result), with(&rollout, &returned.result));
    result["responses"][0]["id"] = first;
    assert_eq!(with(&rollout, &result), with(&rollout, &returned.result));
}

/// Rule 60: of two calls with one content, a native id on any item of the generation tells which.
#[test]
fn a_native_id_on_any_item_says_whose_generation_it_is() {
    let rollout = Case::of("staged-v2", "p01_g1").group.rollouts.remove(0);
    let second = rollout.ledger.committed[1].call_id.clone();
    for (mark, call) in [("", second.as_str()), ("-twin", "twin")] {
        let case = Case::of("staged-v2", "p01_g1").with(|rollout| {
            let record = rollout.calls.iter().find(|call| call.call_id == second).unwrap();
            let record = forestctl::archive::Call { call_id: "twin".into(), ..record.clone() };
            let mut row = rollout.ledger.committed[1].clone();
            (row.call_id, row.response_id) = ("twin".into(), Some("resp_twin".to_owned()));
            for item in row.output_items.iter_mut().flatten() {
                item.id = item.id.as_ref().map(|id| format!("{id}-twin"));
            }
            rollout.calls.push(record);
            rollout.ledger.committed.push(row);
        });
        // A message without id, and a function call with one.
        let case = case.output(|output| {
            output[2].as_object_mut().unwrap().remove("id");
            output[3]["id"] = json!(format!("{}{mark}", output[3]["id"].as_str().unwrap()));
        });
        let found = case.selection(PolicyName::ReturnedHistory);
        assert_eq!(found.calls[1].as_str(), call, "{:?}", found.reasons);
    }
}

/// The receipt's own attribution keeps a scored leaf that ended badly, which then masks by how it
/// ended (rules 74-76).
#[test]
fn a_bad_leaf_that_only_the_receipt_scores_masks_as_failed() {
    use forestctl::archive::Completion;
    let case = Case::of("staged-v2", "p01_g3").with(|rollout| {
        rollout.result = Some(json!({"response": {"output": []}}).to_string());
        let last = rollout.ledger.committed.last_mut().unwrap();
        last.completion =
            Completion::Recorded { status: Some("failed".to_owned()), finish_reason: None };
        rollout.ledger.terminal_call_id = Some(last.call_id.clone());
    });
    let selection = case.selection(PolicyName::AllCaptured);
    let codes: Vec<Code> = selection.reasons.iter().map(|r| r.code).collect();
    assert_eq!(codes, [Code::FailedSelectedCall]);
}
