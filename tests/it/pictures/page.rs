//! The page of `report`: its numbers are those of the other commands.

use std::fs;

use forestctl::archive::CaptureFailure;
use forestctl::explain::Verdict;
use forestctl::rows;
use serde_json::Value;

use super::{hostile, summary, views};
use crate::closed_loop::{POLICIES, expected, groups, strings};
use crate::people::Place;
use crate::sequence_error::previous;

fn sum(of: &Value, key: &str) -> u64 {
    of.as_array().unwrap().iter().map(|line| line[key].as_u64().unwrap()).sum()
}

#[test]
fn numbers_are_those_of_ls_and_du_and_build_rows() {
    let place = Place::closed_loop();
    for policy in ["returned_history", "all_captured"] {
        let html = format!("{policy}.html");
        let flags = ["--policy", policy];
        let report = ["report", "run.forest", "-o", &html, "--data-parallel", "4"];
        let report = place.json(&[&report[..], &flags].concat());
        let lines = place.json(&[&["ls", "run.forest"][..], &flags].concat());
        let lines = &lines["rollouts"];
        let tokens = &report["tokens"];
        let token = |name: &str| tokens[name].as_u64().unwrap();
        assert_eq!(token("captured"), sum(lines, "tokens"));
        assert_eq!(token("generated"), sum(lines, "generated_tokens"));
        assert_eq!(token("loss"), sum(lines, "loss_tokens"));
        assert_eq!(report["selected_calls"], sum(lines, "selected_calls"));
        let parts = ["loss", "context", "unselected", "masked", "dropped"].map(token);
        assert_eq!(parts.iter().sum::<u64>(), token("captured"));

        let dir = format!("rows-{policy}");
        let build = ["build-rows", "run.forest", "-o", &dir, "--data-parallel", "4"];
        assert!(place.run(&[&build[..], &flags].concat()).status.success());
        let built = rows::read(&place.path(&dir)).unwrap();
        let counts = built.manifest.counts;
        assert_eq!(report["rows"], counts.rows);
        assert_eq!(report["padding_rows"], counts.padding_rows);
        assert_eq!(token("loss"), counts.loss_tokens);
        assert_eq!(token("loss") + token("context"), counts.unique_tokens);
        assert_eq!(token("loss") + token("context") + token("repeated"), counts.row_tokens);
        let physical: usize = built.rows.iter().map(|row| row.input_ids.len()).sum();
        let parts = ["loss", "context", "repeated", "masked_rows", "padding"].map(token);
        assert_eq!(parts.iter().sum::<u64>(), physical as u64);
        assert!(counts.padding_rows > 0 && token("repeated") > 0 && token("masked_rows") > 0);

        let du = place.json(&[&["du", "run.forest", "--by", "group"][..], &flags].concat());
        for line in du["lines"].as_array().unwrap() {
            let groups = report["groups"].as_array().unwrap();
            let group = groups.iter().find(|g| g["group_id"] == line["group_id"]).unwrap();
            for key in ["row_tokens", "unique_tokens", "loss_tokens"] {
                assert_eq!(group[key], line[key], "{key}");
            }
        }
        let page = fs::read_to_string(place.path(&html)).unwrap();
        assert!(page.contains("4,606") && page.contains(&format!(">{policy}</code>")));
    }
}

#[test]
fn groups_may_be_added_in_any_way() {
    let groups = groups("staged-v2");
    let views = views(&groups, POLICIES[0]);
    let whole = summary(&views);
    let mut split = summary(&views[..2]);
    split.add(summary(&views[2..]));
    let split = split.finish();
    assert_eq!(format!("{whole:?}"), format!("{split:?}"));
    assert_eq!(whole.rollouts_of(Verdict::Valid), 18);
    // A rollout that leaves out calls and has several roots shows more than one that does not.
    let picked = whole.picked.unwrap().portrait;
    assert!(picked.tree.roots.len() > 1);
}

#[test]
fn the_page_is_the_same_for_any_number_of_threads() {
    let place = Place::closed_loop();
    let pages = ["1", "4"].map(|jobs| {
        let output = place.run(&["report", "run.forest", "-o", "-", "-j", jobs]);
        assert!(String::from_utf8_lossy(&output.stderr).contains("written"));
        output.stdout
    });
    assert!(pages[0].starts_with(b"<!DOCTYPE html>") && pages[0].ends_with(b"</html>\n"));
    assert!(pages[0] == pages[1]);
}

#[test]
fn outputs_are_not_overwritten_and_rollouts_are_named() {
    let place = Place::closed_loop();
    fs::write(place.path("notes.html"), "mine").unwrap();
    let report = |rest: &[&str]| place.run(&[&["report", "run.forest", "-o"], rest].concat());
    assert_eq!(report(&["notes.html"]).status.code(), Some(2));
    assert_eq!(fs::read(place.path("notes.html")).unwrap(), b"mine");
    assert_eq!(report(&["notes.html", "--force", "--rollout", "p04_g"]).status.code(), Some(2));
    assert_eq!(report(&["new.html", "--rollout", "nobody"]).status.code(), Some(4));
    assert!(!place.path("new.html").exists());
    let told = report(&["notes.html", "--force", "--rollout", "p04_g1"]);
    assert!(String::from_utf8_lossy(&told.stdout).contains("it draws rollout p04_g1"));
    let page = fs::read_to_string(place.path("notes.html")).unwrap();
    assert!(page.contains("Calls and rows of rollout p04_g1"));
}

#[test]
fn guards_of_a_configuration_are_those_of_config_check() {
    let place = Place::closed_loop();
    let yaml = "token_capture: {enabled: true, forest_training: true}\n\
                policy: {megatron_cfg: {enabled: false}, dynamic_batching: {enabled: true}}\n";
    fs::write(place.path("grpo.yaml"), yaml).unwrap();
    let page = place.run(&["report", "run.forest", "-o", "-", "--config", "grpo.yaml"]).stdout;
    let page = String::from_utf8(page).unwrap();
    let check = place.run(&["config", "check", "grpo.yaml", "--format", "json"]).stdout;
    let check: Value = serde_json::from_slice(&check).unwrap();
    let problems = check["problems"].as_array().unwrap();
    assert!(problems.len() > 1);
    assert!(page.contains(&format!("{} guards do not hold", problems.len())));
    for problem in problems {
        assert!(page.contains(problem["message"].as_str().unwrap()), "{problem}");
    }
}

#[test]
fn mismatches_and_the_threshold_are_those_of_the_oracle() {
    let place = Place::closed_loop();
    for policy in POLICIES {
        let file = previous(&place.path(""), policy);
        let name = policy.policy().name();
        let report = |threshold: &[&str]| {
            let html = format!("{name}{}.html", threshold.len());
            let args = ["report", "run.forest", "-o", &html, "--policy", name];
            let file = ["--prev-logprobs", file.to_str().unwrap()];
            place.json(&[&args[..], &file, threshold].concat())
        };
        let mismatch = |report: &Value| {
            let all = report["distributions"].as_array().unwrap();
            all.iter().find(|m| m["name"] == "mismatch").unwrap()["distribution"].clone()
        };
        let free = report(&[]);
        let threshold = ["--seq-logprob-error-threshold", "1.081303"];
        let bound = report(&threshold);
        let trains = &expected(policy)["advantages"]["trains"];
        let kept = strings(&trains["seq_error_1.081303"]).len() as u64;
        let all = strings(&trains["none"]).len() as u64;
        assert!(kept < all);
        assert_eq!(free["rollouts"]["valid"], all);
        assert_eq!(bound["rollouts"]["valid"], kept);
        let of = |report: &Value, kind: &str| sum(&mismatch(report)["bins"], kind);
        assert_eq!((of(&free, "trains"), of(&free, "others")), (all, 0));
        assert_eq!((of(&bound, "trains"), of(&bound, "others")), (kept, all - kept));
        assert_eq!(mismatch(&free)["spread"], mismatch(&bound)["spread"]);
        assert!(mismatch(&free)["spread"]["max"].as_f64().unwrap() > 1.081303);
    }
}

#[test]
fn what_an_input_names_stays_text() {
    let place = Place::of(hostile());
    let output = place.run(&["report", "run.forest", "-o", "-", "--policy", "all_captured"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("&quot;'&gt;&lt;script&gt;alert(1)"), "{page}");
    assert!(!page.contains("<script") && !page.contains("<!--"));
    assert!(!page.contains(['\u{202e}', '\u{1b}']));
    let own = page.replace("http://www.w3.org/2000/svg", "");
    for fetches in ["http:", "https:", "@import", "src=", "<link", "<iframe", "<img"] {
        assert!(!own.contains(fetches), "{fetches}");
    }
    assert_eq!(page.matches("</svg>").count(), page.matches("<svg").count());
}

/// Captures may end in any number of words; few of them are told.
#[test]
fn words_of_endings_are_bounded() {
    let mut groups = groups("staged-v2");
    for (at, rollout) in groups.iter_mut().flat_map(|g| &mut g.rollouts).enumerate() {
        for slot in 0..4 {
            let call_id = format!("made-up-{at}-{slot}").into();
            let reason = format!("word {at} {slot}");
            rollout.ledger.failures.push(CaptureFailure { call_id, reason });
        }
    }
    let summary = summary(&views(&groups, POLICIES[0]));
    assert_eq!(summary.endings.by_word.len(), forestctl::explain::Endings::WORDS);
    let told: u64 = summary.endings.by_word.values().map(|(a, b)| a + b).sum();
    let all = summary.recorded_calls() + summary.unrecorded_calls;
    assert_eq!(told + summary.endings.others.0 + summary.endings.others.1, all);
    assert!(summary.endings.others.1 > 0);
}
