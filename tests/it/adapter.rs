//! Rule 141: an episode of action ids, a score and a receipt, without Gym, gives the same rows.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use forestctl::finding::Code;
use forestctl::id::CallId;
use forestctl::rows::{self, RowsDir};
use forestctl::select::PolicyName;
use serde_json::{Value, json};

use crate::closed_loop::{groups, selected};
use crate::select::Case;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The program that docs/adapter.md shows.
fn program() -> String {
    let text = std::fs::read_to_string(Path::new(ROOT).join("docs/adapter.md")).unwrap();
    let code = text.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    code.to_owned()
}

fn build(home: &Path, source: &str) -> RowsDir {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forestctl"));
        let output = command.current_dir(home).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let (archive, target) = (format!("{source}.forest"), format!("{source}.rows"));
    run(&["ingest", source, "-o", &archive]);
    run(&["build-rows", &archive, "-o", &target, "--data-parallel", "2"]);
    rows::read(&home.join(&target)).unwrap()
}

#[test]
fn episodes_without_gym_give_the_rows_of_the_harness_that_has_it() {
    let program = program();
    let written = program.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(written <= 22, "{written} lines");
    let home = tempfile::tempdir().unwrap();
    for source in ["gym", "episodes"] {
        std::fs::create_dir(home.path().join(source)).unwrap();
        for file in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl"] {
            if (source, file) == ("episodes", "rollouts.jsonl") {
                continue;
            }
            let from = Path::new(ROOT).join("testdata/closed-loop/seed1/staged-v2").join(file);
            std::fs::copy(from, home.path().join(source).join(file)).unwrap();
        }
    }
    let groups = groups("staged-v2");
    let selection = selected(&groups, PolicyName::ReturnedHistory);
    let mut episodes = String::new();
    let mut without_actions = 0;
    for (group, selected) in groups.iter().zip(&selection.groups) {
        for (rollout, selected) in group.rollouts.iter().zip(&selected.rollouts) {
            let served = |call: &CallId| {
                let row = rollout.ledger.committed.iter().find(|row| row.call_id == *call);
                row.unwrap().response_id.clone().unwrap()
            };
            without_actions += usize::from(selected.calls.is_empty());
            let episode = json!({
                "task": group.group_id,
                "attempt": rollout.slot,
                "attempts": rollout.group_size,
                "scope": rollout.capture_key,
                "score": rollout.reward,
                "actions": selected.calls.iter().map(served).collect::<Vec<_>>(),
                "scored": selected.terminal.as_ref().map(served),
            });
            episodes.push_str(&format!("{episode}\n"));
        }
    }
    std::fs::write(home.path().join("adapter.py"), program).unwrap();
    let mut adapter = Command::new("python3")
        .arg(home.path().join("adapter.py"))
        .current_dir(home.path().join("episodes"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    adapter.stdin.take().unwrap().write_all(episodes.as_bytes()).unwrap();
    assert!(adapter.wait().unwrap().success());

    let (gym, other) = (build(home.path(), "gym"), build(home.path(), "episodes"));
    assert!(gym.manifest.counts.valid_rollouts > 10 && without_actions > 0);
    assert_eq!(other.rows, gym.rows);
    assert_eq!(other.manifest.counts, gym.manifest.counts);
    assert_eq!(other.manifest.masked, gym.manifest.masked);
}

#[test]
fn action_ids_that_name_nothing_or_one_call_twice_mask() {
    let with = |actions: Value| {
        Case::of("staged-v2", "p01_g3").edit(|result| {
            result["action_ids"] = actions;
            result["terminal_response_id"] = result["response"]["id"].clone();
            result.as_object_mut().unwrap().remove("response");
        })
    };
    let plain = Case::of("staged-v2", "p01_g3").selection(PolicyName::ReturnedHistory);
    let calls: Vec<&str> = plain.calls.iter().map(|call| call.as_str()).collect();
    // Calls may be named by their own ids.
    assert_eq!(with(json!(calls)).selection(PolicyName::ReturnedHistory), plain);
    let mut twice = calls.clone();
    twice.push(calls[0]);
    let cases = [
        (json!(twice), Code::DuplicatedEvidence),
        (json!(["nobody"]), Code::UnmatchedEvidence),
        (json!([7]), Code::MissingEvidence),
        (json!([]), Code::MissingEvidence),
    ];
    for (actions, code) in cases {
        assert_eq!(with(actions.clone()).codes().first(), Some(&code), "{actions}");
    }
}
