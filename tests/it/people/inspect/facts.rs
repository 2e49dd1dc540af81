//! Screens tell what `ls`, `show` and `why` tell; where there is no terminal, so does the tree.

use forestctl::inspect::keys::Action;
use insta::assert_snapshot;
use serde_json::Value;

use super::{Browser, Place, TOKENIZER};

#[test]
fn lines_are_those_of_ls() {
    let place = Place::closed_loop();
    for policy in ["returned_history", "all_captured"] {
        let browser = Browser::open(&place, (80, 60), &["--policy", policy]);
        let listed = place.json(&["ls", "run.forest", "--policy", policy]);
        let listed = listed["rollouts"].as_array().unwrap();
        let listing = &browser.state.listing;
        let lines: Vec<Value> = (0..listing.count())
            .map(|at| serde_json::to_value(listing.entry(at).unwrap().line.unwrap()).unwrap())
            .collect();
        assert_eq!(&lines, listed, "{policy}");
    }
}

#[test]
fn tokens_are_those_of_why() {
    let place = Place::closed_loop();
    // Owned, shared, selected and masked, rejected.
    for (call, positions) in [
        ("ba28830f", vec![0, 48, 49, 100, 153]),
        ("be3d535d", vec![49, 90, 112]),
        ("948896a8", vec![0, 100, 158]),
        ("20a26b9c", vec![96]),
    ] {
        let mut browser = Browser::open(&place, (80, 24), &[call, "--tokenizer", TOKENIZER]);
        browser.act(Action::Open);
        let tokens = browser.state.tokens.as_ref().unwrap().screen.get().unwrap();
        let document = &tokens.as_ref().unwrap().document;
        for position in positions {
            let position =
                if position < document.ids.len() { position } else { document.ids.len() - 1 };
            let target = format!("{call}:{position}");
            let why = place.json(&["why", "run.forest", &target, "--tokenizer", TOKENIZER]);
            let mut told = why["tokens"][0].clone();
            // JSON has the shortest text of the number.
            let captured = told["logprob"].take().as_f64().map(|x| x as f32);
            let stretch = &document.stretches[document.stretch_of(position)];
            let logprob = document.logprobs[position];
            let ours = serde_json::json!({
                "row_id": null,
                "position": position,
                "token_id": document.ids[position],
                "text": document.text(position),
                "call_id": stretch.call_id,
                "part": stretch.part,
                "offset": position - stretch.start,
                "logprob": null,
                "loss_in": stretch.fate.loss_in,
                "because": stretch.fate.because,
                "rule": stretch.fate.rule,
            });
            assert_eq!(ours, told, "{target}");
            assert_eq!(logprob.is_finite().then_some(logprob), captured, "{target}");
        }
    }
}

#[test]
fn the_tree_where_there_is_no_terminal() {
    let place = Place::closed_loop();
    assert_snapshot!("inspect_piped", place.piped(&["inspect", "run.forest", "p04_g0"]));
    // One rollout as show prints it, and all of them.
    let one = place.piped(&["inspect", "run.forest", "948896a8"]);
    assert_eq!(one, place.piped(&["show", "run.forest", "p04_g0"]));
    let all = place.piped(&["inspect", "run.forest"]);
    assert_eq!(all.matches("rollout p").count(), 24, "{all}");
    assert!(all.contains(&one));
    assert!(all.ends_with("24 rollouts in 6 prompt groups by returned_history\n"), "{all}");
    let document = place.json(&["inspect", "run.forest"]);
    assert_eq!(document["rollouts"].as_array().unwrap().len(), 24);
    let shown = place.json(&["show", "run.forest", "p04_g0"]);
    assert!(document["rollouts"].as_array().unwrap().contains(&shown));
    let csv = place.piped(&["inspect", "run.forest", "p04_g0", "--format", "csv"]);
    assert_eq!(csv.lines().count(), 4, "{csv}");
    assert!(place.piped(&["inspect", "run.forest", "zz"]).ends_with("exit code 4\n"));
}

#[test]
fn the_picture_of_a_rollout_is_written_once() {
    let place = Place::closed_loop();
    let arguments = ["inspect", "run.forest", "p03_g0", "--svg", "picture.svg"];
    assert!(place.run(&arguments).status.success());
    let picture = std::fs::read_to_string(place.path("picture.svg")).unwrap();
    assert_eq!(
        roxmltree::Document::parse(&picture).unwrap().root_element().tag_name().name(),
        "svg"
    );
    let printed = place.run(&["inspect", "run.forest", "p03_g0", "--svg", "-"]);
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), picture);
    // What is there stays without --force.
    std::fs::write(place.path("picture.svg"), "mine").unwrap();
    assert_eq!(place.run(&arguments).status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(place.path("picture.svg")).unwrap(), "mine");
    assert!(place.run(&[&arguments[..], &["--force"]].concat()).status.success());
    assert_eq!(std::fs::read_to_string(place.path("picture.svg")).unwrap(), picture);
    assert_eq!(place.run(&["inspect", "run.forest", "--svg", "other.svg"]).status.code(), Some(2));
}
