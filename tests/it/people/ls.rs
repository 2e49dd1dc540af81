//! `ls`: lines, filters, orders.

use forestctl::select::PolicyName;
use insta::assert_snapshot;
use serde_json::Value;

use super::Place;
use crate::closed_loop::{POLICIES, expected};

fn ids(document: &Value) -> Vec<&str> {
    let lines = document["rollouts"].as_array().unwrap().iter();
    lines.map(|line| line["rollout_id"].as_str().unwrap()).collect()
}

#[test]
fn what_people_read() {
    let place = Place::closed_loop();
    assert_snapshot!("ls", place.piped(&["ls", "run.forest"]));
    assert_snapshot!(
        "ls_terminal",
        place.on_terminal(80, true, &["ls", "run.forest", "--verdict", "masked"])
    );
    assert_snapshot!(
        "ls_csv",
        place.piped(&["ls", "run.forest", "--group", "p04", "--format", "csv"])
    );
    assert_snapshot!("ls_nothing", place.piped(&["ls", "run.forest", "--min-reward", "2"]));
    assert_snapshot!("ls_no_code", place.piped(&["ls", "run.forest", "--reason", "not_closed"]));
}

#[test]
fn verdicts_rows_and_tokens_are_the_oracles() {
    let place = Place::closed_loop();
    for policy in POLICIES {
        let name = policy.policy().name();
        let document = place.json(&["ls", "run.forest", "--policy", name]);
        let oracle = expected(policy);
        let lines = document["rollouts"].as_array().unwrap();
        let rollouts = oracle["rollouts"].as_array().unwrap();
        assert_eq!(lines.len(), rollouts.len());
        for (line, wanted) in lines.iter().zip(rollouts) {
            let id = wanted["rollout_id"].as_str().unwrap();
            assert_eq!(line["rollout_id"], *id);
            assert_eq!(line["reward"], wanted["reward"], "{id}");
            let group = &oracle["groups"][wanted["group_id"].as_str().unwrap()];
            let verdict = match group["verdict"].as_str().unwrap() {
                "kept" => wanted["verdict"].as_str().unwrap(),
                dropped => dropped,
            };
            assert_eq!(line["verdict"], verdict, "{id}");
            let selected = wanted["selected"].as_array().unwrap().len();
            assert_eq!(line["selected_calls"], selected, "{id}");
            let own = |row: &&Value| row["rollout_id"] == *id;
            let rows: Vec<&Value> = oracle["rows"].as_array().unwrap().iter().filter(own).collect();
            let sum = |key: &str| -> f64 { rows.iter().map(|r| r[key].as_f64().unwrap()).sum() };
            assert_eq!(line["row_tokens"].as_f64().unwrap(), sum("length"), "{id}");
            let loss = if verdict == "valid" { sum("loss_tokens") } else { 0.0 };
            assert_eq!(line["loss_tokens"].as_f64().unwrap(), loss, "{id}");
            let stand_in = usize::from(rows.is_empty() && verdict != "dropped");
            assert_eq!(line["rows"], rows.len() + stand_in, "{id}");
        }
    }
}

/// Two of the rollouts of p04 train, with rewards 1 and 0: each is compared with the other alone.
#[test]
fn advantages_are_those_of_the_rows() {
    let place = Place::closed_loop();
    let document = place.json(&["ls", "run.forest", "--group", "p04", "--group", "p05"]);
    let lines = document["rollouts"].as_array().unwrap().iter();
    let advantages: Vec<Option<f64>> = lines.map(|line| line["advantage"].as_f64()).collect();
    let (kept, dropped) = advantages.split_at(4);
    assert_eq!(kept, [0.0, 0.0, 1.0, -1.0].map(Some));
    assert_eq!(dropped, [None; 4]);
    // With its own reward in the baseline, each lies half as far from it.
    let document =
        place.json(&["ls", "run.forest", "--group", "p04", "--no-leave-one-out", "--no-normalize"]);
    assert_eq!(document["rollouts"][2]["advantage"], 0.5);
}

#[test]
fn filters_hold_together_and_orders_put_the_largest_first() {
    let place = Place::closed_loop();
    let listed = |arguments: &[&str]| -> Vec<String> {
        let document = place.json(&[&["ls", "run.forest"], arguments].concat());
        ids(&document).into_iter().map(str::to_owned).collect()
    };
    assert_eq!(listed(&["--verdict", "masked"]), ["p04_g0", "p04_g1"]);
    assert_eq!(listed(&["--verdict", "dropped"]).len(), 4);
    assert_eq!(listed(&["--reason", "selection_not_closed"]), ["p04_g0"]);
    // The second reason of p05_g0, whose capture failed.
    assert_eq!(listed(&["--reason", "no_verified_layout", "--max-reward", "0"]), ["p05_g0"]);
    // Receipts of this capture that carry a failure_reason.
    let failed = ["p05_g0", "p05_g1", "p05_g3"];
    assert_eq!(listed(&["--finding", "rollout_failed", "--group", "p05"]), failed);
    assert_eq!(listed(&["--min-reward", "0.75", "--max-reward", "0.75"]), ["p01_g3"]);
    assert_eq!(listed(&["--source", "staged"]).len(), 24);
    let none = place.run(&["ls", "run.forest", "--source", "gym_store"]);
    assert_eq!(none.status.code(), Some(4));

    let by_tokens = listed(&["--sort", "tokens"]);
    // p02_g0 has 488 tokens and p02_g1 409, the most of all.
    assert_eq!(by_tokens[..2], ["p02_g0", "p02_g1"]);
    assert_eq!(listed(&["--sort", "tokens", "--reverse"]).last(), by_tokens.first());
    assert_eq!(listed(&["--sort", "calls"])[0], "p02_g0");
    // Rollouts that are equal stay in order of their ids.
    let rewards = listed(&["--sort", "reward", "--group", "p04"]);
    assert_eq!(rewards, ["p04_g0", "p04_g2", "p04_g1", "p04_g3"]);
    let rewards = listed(&["--sort", "reward", "--group", "p04", "--reverse"]);
    assert_eq!(rewards, ["p04_g1", "p04_g3", "p04_g0", "p04_g2"]);
    let rows = listed(&["--sort", "rows", "--policy", PolicyName::AllCaptured.policy().name()]);
    assert_eq!(rows.len(), 24);
}
