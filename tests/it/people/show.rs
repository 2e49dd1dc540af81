//! `show`: trees, marks, prefixes of ids.

use forestctl::archive::CaptureFailure;
use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{Place, stored};
use crate::builders;
use crate::closed_loop::{expected, groups};

/// A rollout with a call of every mark.
pub fn marks() -> Place {
    let root = builders::call("root", None, &[1, 2], &[(3, -0.5)]);
    let tried = builders::call("tried", Some(&root), &[4], &[(5, -0.5)]);
    let next = builders::call("next", Some(&root), &[4], &[(6, -0.5)]);
    let lost = builders::call("lost", Some(&next), &[7], &[(8, -0.5)]);
    let stray = builders::call("stray", Some(&next), &[7], &[(9, -0.5)]);
    let compacted = builders::call("compacted", None, &[1], &[(9, -0.5)]);
    let calls = vec![root, tried, next, lost, compacted, stray];
    let mut rollout = builders::rollout("p", 0, 1, calls);
    rollout.ledger.committed.retain(|row| row.call_id.as_str() != "stray");
    rollout.ledger.pending = vec!["waiting".into()];
    rollout.ledger.failures.push(CaptureFailure {
        call_id: "lost".into(),
        reason: "worker_capture_failed".to_owned(),
    });
    rollout.result = Some(json!({"action_ids": ["root", "next", "compacted"]}).to_string());
    Place::of(vec![builders::group("p", vec![stored(rollout)])])
}

#[test]
fn every_mark_is_a_letter_and_a_word() {
    let place = marks();
    assert_snapshot!("show_marks", place.piped(&["show", "run.forest", "p_g0"]));
    assert_snapshot!(
        "show_marks_terminal",
        place.on_terminal(80, false, &["show", "run.forest", "p_g0"])
    );
    let document = place.json(&["show", "run.forest", "p_g0"]);
    let marks: Vec<(&str, &str)> = document["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["call_id"].as_str().unwrap(), call["mark"].as_str().unwrap()))
        .collect();
    let expected = [
        ("root", "accepted"),
        ("tried", "rejected"),
        ("next", "accepted"),
        ("lost", "failed"),
        ("stray", "uncommitted"),
        ("compacted", "accepted"),
        ("waiting", "pending"),
    ];
    assert_eq!(marks, expected);
}

#[test]
fn what_people_read() {
    let place = Place::closed_loop();
    for (name, rollout) in [("forest", "p03_g0"), ("masked", "p04_g0"), ("dropped", "p05_g0")] {
        let arguments = ["show", "run.forest", rollout];
        assert_snapshot!(format!("show_{name}"), place.piped(&arguments));
        assert_snapshot!(format!("show_{name}_terminal"), place.on_terminal(80, true, &arguments));
    }
    assert_snapshot!("show_ambiguous", place.piped(&["show", "run.forest", "p0"]));
    assert_snapshot!("show_unknown", place.piped(&["show", "run.forest", "p01_g9"]));
    let csv = ["show", "run.forest", "p03_g0", "--format", "csv"];
    assert_snapshot!("show_csv", place.piped(&csv));
}

/// An id as it stands comes before those that begin with it.
#[test]
fn ids_may_be_cut_short() {
    let call = |id: &str| builders::call(id, None, &[1], &[(2, -0.5)]);
    let rollout = |slot| builders::rollout("p", slot, 12, vec![call(&format!("c{slot}"))]);
    let other = builders::rollout("q", 0, 1, vec![call("q")]);
    let place = Place::of(vec![
        builders::group("p", (0..12).map(rollout).collect()),
        builders::group("q", vec![other]),
    ]);
    let named = |text: &str| -> Option<String> {
        let output = place.run(&["show", "run.forest", text, "--format", "json"]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        document["rollout"]["rollout_id"].as_str().map(str::to_owned)
    };
    assert_eq!(named("p_g1").as_deref(), Some("p_g1"));
    assert_eq!(named("p_g11").as_deref(), Some("p_g11"));
    assert_eq!(named("q").as_deref(), Some("q_g0"));
    assert_eq!(named("p"), None);
    assert_eq!(place.run(&["show", "run.forest", "p"]).status.code(), Some(2));
    assert_eq!(place.run(&["show", "run.forest", "_g0"]).status.code(), Some(4));
}

#[test]
fn owners_contexts_and_selections_are_the_oracles() {
    let place = Place::closed_loop();
    for policy in crate::closed_loop::POLICIES {
        let oracle = expected(policy);
        for group in groups("staged-v2") {
            for rollout in &group.rollouts {
                let id = rollout.rollout_id.as_str();
                let name = policy.policy().name();
                let document = place.json(&["show", "run.forest", id, "--policy", name]);
                let known = oracle["calls"].as_object().unwrap().values();
                for wanted in known.filter(|call| {
                    call["owner_row"]
                        .as_str()
                        .is_some_and(|row| row.starts_with(&format!("{id}_s")))
                }) {
                    let call = document["calls"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .find(|call| call["call_id"] == wanted["call"])
                        .unwrap();
                    assert_eq!(call["owned_in"], wanted["owner_row"]);
                    assert_eq!(call["generated"], wanted["generated_tokens"]);
                    assert_eq!(call["selected"], wanted["selected"]);
                    let contexts = call["context_in"].as_array().unwrap().len();
                    assert_eq!(json!(contexts), wanted["times_context"]);
                }
            }
        }
    }
}
