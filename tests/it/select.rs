//! Selection against the closed-loop oracle, and against histories that were tampered with.

use forestctl::archive::Completion;
use forestctl::select::{Reason, RolloutSelection, Selection, Verdict};
use serde_json::{Value, json};

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
            let errors: Vec<_> = selection
                .findings
                .iter()
                .filter(|f| f.severity == forestctl::finding::Severity::Error)
                .collect();
            assert!(errors.is_empty(), "{errors:?}");
            let _ = strings(&oracle["rollouts"][0]["selected"]);
            let _ = Verdict::Valid;
        }
    }
}
