//! `diff`: policies and archives side by side.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::Place;
use crate::closed_loop::{expected, groups};
use forestctl::select::PolicyName;

const POLICIES: [&str; 4] = ["--policy", "returned_history", "--policy", "all_captured"];

#[test]
fn what_people_read() {
    let place = Place::closed_loop();
    let two = [&["diff", "run.forest"][..], &POLICIES].concat();
    assert_snapshot!("diff", place.piped(&two));
    assert_snapshot!("diff_terminal", place.on_terminal(80, true, &two));
    assert_snapshot!("diff_csv", place.piped(&[&two[..], &["--format", "csv"]].concat()));
    assert_snapshot!("diff_equal", place.piped(&["diff", "run.forest", "run.forest"]));
    assert_snapshot!("diff_one", place.piped(&["diff", "run.forest"]));
}

fn differing(document: &Value) -> Vec<(String, Value)> {
    let rollouts = document["rollouts"].as_array().unwrap().iter();
    rollouts
        .map(|rollout| {
            (rollout["rollout_id"].as_str().unwrap().to_owned(), rollout["changed"].clone())
        })
        .collect()
}

/// The rollouts of which the oracle selects other calls under both policies, and its totals.
#[test]
fn policies_differ_where_the_oracle_says() {
    let place = Place::closed_loop();
    let document = place.json(&[&["diff", "run.forest"][..], &POLICIES].concat());
    let [a, b] = [PolicyName::ReturnedHistory, PolicyName::AllCaptured].map(expected);
    let rollouts = |oracle: &Value| oracle["rollouts"].as_array().unwrap().clone();
    let mut selected = Vec::new();
    for (a, b) in rollouts(&a).iter().zip(rollouts(&b)) {
        if a["selected"] != b["selected"] {
            selected.push(a["rollout_id"].as_str().unwrap().to_owned());
        }
    }
    let found: Vec<String> = differing(&document)
        .into_iter()
        .filter(|(_, changed)| changed.as_array().unwrap().contains(&json!("selection")))
        .map(|(id, _)| id)
        .collect();
    assert_eq!(found, selected);
    assert!(!selected.is_empty() && selected.len() < 24);
    for (side, oracle) in [("left", &a), ("right", &b)] {
        let loss = oracle["tokens"]["loss_tokens_N"].as_f64().unwrap();
        assert_eq!(document[side]["loss_tokens"].as_f64().unwrap(), loss, "{side}");
        let valid = &oracle["tokens"]["valid_rollouts"];
        assert_eq!(&document[side]["valid_rollouts"], valid, "{side}");
    }
    assert_eq!(document["equal"].as_u64().unwrap() + differing(&document).len() as u64, 24);
}

#[test]
fn archives_differ_in_what_was_changed_and_in_nothing_else() {
    let place = Place::closed_loop();
    let changed = |change: &dyn Fn(&mut Vec<forestctl::archive::Group>)| {
        let mut groups = groups("staged-v2");
        change(&mut groups);
        let _ = std::fs::remove_dir_all(place.path("other.forest"));
        place.add("other.forest", groups);
        let output = place.run(&["diff", "run.forest", "other.forest", "--format", "json"]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), differing(&document))
    };
    assert_eq!(changed(&|_| ()), (0, Vec::new()));
    // A reward moves the advantages of its group and nothing else; equal rewards had none.
    let (code, found) = changed(&|groups| groups[5].rollouts[0].reward = Some(1.0));
    assert_eq!(code, 1);
    assert!(found.iter().all(|(id, _)| id.starts_with("p06")), "{found:?}");
    assert!(found.contains(&("p06_g1".to_owned(), json!(["advantage"]))), "{found:?}");
    let (code, found) = changed(&|groups| groups[2].rollouts[1].mask_sample = true);
    assert_eq!(code, 1);
    let masked = found.iter().find(|(id, _)| id == "p03_g1").unwrap();
    assert_eq!(masked.1, json!(["loss_tokens", "verdict", "reasons"]));
    let (_, found) = changed(&|groups| drop(groups.remove(0)));
    let gone: Vec<_> = (0..4).map(|slot| (format!("p01_g{slot}"), json!(["presence"]))).collect();
    assert_eq!(found, gone);
}
