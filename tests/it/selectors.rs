//! Policies that users write: Python functions and programs (rules 81-84).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use forestctl::archive::{self, Group};
use forestctl::finding::Code;
use forestctl::select::custom::{Custom, Limits, Selector};
use forestctl::select::{PolicyName, SelectSettings, Selection, Verdict, select};
use serde_json::Value;
use tempfile::TempDir;

use crate::closed_loop::ingested;

/// What `all_captured` does, by its rules and in Python; and everything that can go wrong.
const MODULE: &str = r#"
import sys, time

LENGTH = ("length", "max_tokens", "max_output_tokens")

def scored(result):
    result = result or {}
    return result.get("terminal_response_id") or (result.get("response") or {}).get("id")

def everything(records, result):
    print("noise on stdout")
    parents = {record.parent_call_id for record in records}
    def good(record):
        ended = record["status"] == "completed"
        return ended or (record.status == "incomplete" and record.finish_reason in LENGTH)
    kept = [record for record in records if good(record)
            or record.model_call_id in parents or record.response_id == scored(result)]
    return kept, scored(result)

def reversed_order(records, result):
    kept, terminal = everything(records, result)
    return kept[::-1], terminal

def copies(records, result):
    kept, terminal = everything(records, result)
    return [dict(record) for record in kept], terminal

def without_roots(records, result):
    kept, terminal = everything(records, result)
    return [record for record in kept if record.parent_call_id] or kept, terminal

def raises(records, result):
    print("looked at", len(records), file=sys.stderr)
    raise LookupError("no such agent")

def nothing(records, result):
    return [], scored(result)

def twice(records, result):
    return [records[0], records[0]], records[0].response_id

def changed(records, result):
    records[0]["prev_len"] = 7
    return records[:1], records[0].response_id

def shortened(records, result):
    del records[0]["digest"]
    return records[:1], records[0].response_id

def foreign(records, result):
    return [dict(records[0], model_call_id="elsewhere")], records[0].response_id

def numbers(records, result):
    return [7], records[0].response_id

def unscored(records, result):
    return records, None

def unknown_terminal(records, result):
    return records, "resp_of_nobody"

def scored_elsewhere(records, result):
    return records[:-1] or records, records[-1].response_id

def one_value(records, result):
    return records

def sleeps(records, result):
    time.sleep(60)

def leaves(records, result):
    print("goodbye", file=sys.stderr, flush=True)
    import os
    os._exit(3)

def verbose(records, result):
    return records, "x" * 5_000_000

async def later(records, result):
    return records, None

def three(a, b, c):
    return a

constant = 5

class Harness:
    @staticmethod
    def choose(records, result):
        return everything(records, result)
"#;

fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("agents.py"), MODULE).unwrap();
    home
}

/// The interpreter with `home` on its path, as a script: tests share one environment.
fn python(home: &Path) -> PathBuf {
    let script = home.join("python");
    let path = home.display();
    fs::write(&script, format!("#!/bin/sh\nPYTHONPATH='{path}' exec python3 \"$@\"\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

fn limits() -> Limits {
    Limits { timeout: Duration::from_secs(60), answer_bytes: 1 << 20 }
}

fn start(home: &Path, function: &str) -> Result<Custom, String> {
    let selector: Selector = format!("agents:{function}").parse().unwrap();
    Custom::start(&selector, &python(home), limits()).map_err(|error| error.to_string())
}

fn chosen(groups: &[Group], policy: &Custom) -> Selection {
    select(groups, policy, &SelectSettings::default())
}

/// Groups of seed1 in which every rollout has something to select from.
fn groups() -> Vec<Group> {
    ingested("staged-v2").groups
}

#[test]
fn a_function_in_python_selects_as_the_built_in_policy_whose_rules_it_follows() {
    let (home, groups) = (home(), groups());
    let built_in = PolicyName::AllCaptured.policy();
    let expected = select(&groups, built_in, &SelectSettings::default());
    for function in ["everything", "copies", "Harness.choose"] {
        let found = chosen(&groups, &start(home.path(), function).unwrap());
        let mut valid = 0;
        let pairs = found.groups.iter().zip(&expected.groups);
        for (found, expected) in pairs.flat_map(|(a, b)| a.rollouts.iter().zip(&b.rollouts)) {
            if expected.verdict() == Verdict::Valid {
                assert_eq!(found, expected);
                valid += 1;
            }
        }
        assert!(valid >= 15, "{valid}");
    }
}

#[test]
fn the_order_of_a_selection_is_kept_and_decides_the_rows() {
    let (home, groups) = (home(), groups());
    let forwards = chosen(&groups, &start(home.path(), "everything").unwrap());
    let backwards = chosen(&groups, &start(home.path(), "reversed_order").unwrap());
    let pairs = forwards.groups.iter().zip(&backwards.groups);
    let mut branched = 0;
    for (a, b) in pairs.flat_map(|(a, b)| a.rollouts.iter().zip(&b.rollouts)) {
        assert!(a.calls.iter().rev().eq(&b.calls));
        branched += usize::from(a.verdict() == Verdict::Valid && a.calls.len() > 1);
    }
    assert!(branched > 5);
    let rows = |selection: &Selection| {
        forestctl::rows::build(&groups, selection, 1, &Default::default()).rows
    };
    let (a, b) = (rows(&forwards), rows(&backwards));
    assert_eq!(
        a.iter().map(|row| row.loss_tokens()).sum::<usize>(),
        b.iter().map(|row| row.loss_tokens()).sum::<usize>()
    );
    assert_ne!(a, b);
}

#[test]
fn an_omitted_parent_masks_that_rollout_and_adds_nothing() {
    let (home, groups) = (home(), groups());
    let found = chosen(&groups, &start(home.path(), "without_roots").unwrap());
    let mut open = 0;
    for rollout in found.groups.iter().flat_map(|group| &group.rollouts) {
        let codes: Vec<Code> = rollout.reasons.iter().map(|reason| reason.code).collect();
        open += usize::from(codes == [Code::SelectionNotClosed]);
    }
    assert!(open > 5, "{open}");
}

#[test]
fn what_a_selector_may_not_return_is_told_with_its_own_words() {
    let (home, groups) = (home(), groups());
    let cases = [
        ("raises", Code::SelectorFailed, "LookupError: no such agent"),
        ("nothing", Code::InvalidSelection, "it selected no call"),
        ("twice", Code::InvalidSelection, "twice"),
        ("changed", Code::InvalidSelection, "it changed prev_len of the record of call"),
        ("shortened", Code::InvalidSelection, "it changed digest of the record of call"),
        ("foreign", Code::InvalidSelection, "it selected call elsewhere, which is not of this"),
        ("numbers", Code::InvalidSelection, "selected[0] is no record and no call id"),
        ("unscored", Code::InvalidSelection, "it named no scored response"),
        ("unknown_terminal", Code::InvalidSelection, "resp_of_nobody, which it scored, is of no"),
        ("one_value", Code::SelectorFailed, "TypeError"),
        ("leaves", Code::SelectorFailed, "goodbye"),
        ("verbose", Code::SelectorFailed, "more than 1048576 bytes"),
    ];
    for (function, code, message) in cases {
        let found = chosen(&groups[..1], &start(home.path(), function).unwrap());
        let told: Vec<_> = found.findings.iter().filter(|f| f.code == code).collect();
        assert_eq!(told.len(), groups[0].rollouts.len(), "{function}: {:?}", found.findings);
        for finding in told {
            assert!(finding.message.contains(message), "{function}: {}", finding.message);
            assert!(finding.message.starts_with("selector agents:"), "{}", finding.message);
            assert!(finding.rollout_id.is_some());
        }
        let rollouts = &found.groups[0].rollouts;
        assert!(rollouts.iter().all(|rollout| rollout.reasons[0].code == code));
        assert_eq!(found.groups[0].dropped, Some(Code::NoVerifiedLayout));
    }
    // A scored response that was captured, of a call that is not selected.
    let found = chosen(&groups[..1], &start(home.path(), "scored_elsewhere").unwrap());
    let several = |at: &usize| groups[0].rollouts[*at].ledger.committed.len() > 1;
    for at in (0..groups[0].rollouts.len()).filter(several) {
        let reason = &found.groups[0].rollouts[at].reasons[0];
        assert_eq!(reason.code, Code::InvalidSelection);
        assert!(reason.message.contains("is of no selected call"), "{}", reason.message);
    }
    let raised = chosen(&groups[..1], &start(home.path(), "raises").unwrap());
    assert!(raised.findings[0].message.contains("looked at"), "{}", raised.findings[0].message);
}

#[test]
fn a_selector_that_gives_no_answer_is_not_waited_for() {
    let (home, groups) = (home(), groups());
    let selector: Selector = "agents:sleeps".parse().unwrap();
    let limits = Limits { timeout: Duration::from_secs(2), ..limits() };
    let policy = Custom::start(&selector, &python(home.path()), limits).unwrap();
    let begun = Instant::now();
    let mut one = groups[0].clone();
    one.rollouts.truncate(1);
    let found = chosen(std::slice::from_ref(&one), &policy);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(found.groups[0].rollouts[0].reasons[0].code, Code::SelectorTimeout);
    assert!(found.findings.iter().any(|f| f.message.contains("no answer within 2 s")));
}

#[test]
fn a_selector_that_cannot_be_used_is_refused_before_anything_is_read() {
    let home = home();
    for (function, why) in [
        ("missing", "has no attribute 'missing'"),
        ("constant", "is no function but a int"),
        ("later", "a selector is synchronous"),
        ("three", "cannot be called as (records, result)"),
    ] {
        let error = start(home.path(), function).unwrap_err();
        assert!(error.contains(why), "{function}: {error}");
        assert!(error.starts_with(&format!("policy agents:{function} cannot be used")), "{error}");
    }
    let absent: Selector = "no_such_module_here:choose".parse().unwrap();
    let error = Custom::start(&absent, &python(home.path()), limits()).unwrap_err().to_string();
    assert!(error.contains("No module named 'no_such_module_here'"), "{error}");
    let absent: Selector = "exec:./no-such-program".parse().unwrap();
    let error = Custom::start(&absent, Path::new("python3"), limits()).unwrap_err().to_string();
    assert!(error.contains("./no-such-program does not start"), "{error}");
    for text in ["", "exec:", "module", "module:", ":f", "a b:c", "a:b c", "a.:b", "1a:b"] {
        assert!(text.parse::<Selector>().is_err(), "{text}");
    }
    for text in ["exec:/bin/x y", "a.b_c:D.e", "exec:tool"] {
        assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
    }
}

fn forestctl(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forestctl"))
        .args(arguments)
        .current_dir(home)
        .output()
        .unwrap()
}

/// A program of any language: ids instead of records, and no Python module.
const PROGRAM: &str = r#"#!/usr/bin/env python3
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    assert request["schema_version"] == 1 and request["rollout_id"]
    result = request["result"] or {}
    scored = result.get("terminal_response_id") or (result.get("response") or {}).get("id")
    by_id = {record["model_call_id"]: record for record in request["records"]}
    path = [record for record in request["records"] if record["response_id"] == scored][:1]
    while path and path[-1]["parent_call_id"]:
        path.append(by_id[path[-1]["parent_call_id"]])
    selected = [record["model_call_id"] for record in reversed(path)]
    print(json.dumps({"selected": selected, "terminal_response_id": scored}), flush=True)
"#;

#[test]
fn any_program_can_be_a_policy_and_its_rows_do_not_depend_on_threads() {
    let home = home();
    let mut capture = ingested("staged-v2");
    // Rollouts whose capture failed would mask whatever the policy.
    capture.groups.retain(|group| ["p01", "p02", "p03"].contains(&group.group_id.as_str()));
    archive::write(&home.path().join("run.forest"), false, &capture).unwrap();
    let program = home.path().join("scored-path");
    fs::write(&program, PROGRAM).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let select = ["select", "run.forest", "--policy", "exec:./scored-path", "--format", "json"];
    let output = forestctl(home.path(), &select);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["policy"], "exec:./scored-path");
    let valid = document["rollouts"].as_array().unwrap().iter();
    let valid: Vec<_> = valid.filter(|rollout| rollout["verdict"] == "valid").collect();
    assert!(valid.len() >= 8, "{}", valid.len());
    for rollout in valid {
        let calls = rollout["call_ids"].as_array().unwrap();
        assert_eq!(calls.last(), Some(&rollout["terminal_call_id"]));
    }
    for jobs in ["1", "2"] {
        let build = ["build-rows", "run.forest", "--policy", "exec:./scored-path"];
        let rest = ["--mask-errors", "-j", jobs, "-o", jobs];
        let output = forestctl(home.path(), &[&build[..], &rest].concat());
        assert!(output.status.success(), "{output:?}");
    }
    for name in ["rows.json", "rows/part-00000.parquet"] {
        let read = |jobs| fs::read(home.path().join(jobs).join(name)).unwrap();
        assert_eq!(read("1"), read("2"), "{name}");
    }
}

#[test]
fn commands_say_what_is_wrong_with_a_selector() {
    let home = home();
    archive::write(&home.path().join("run.forest"), false, &ingested("staged-v2")).unwrap();
    let (archive, python) = ("run.forest", python(home.path()));
    let python = python.to_str().unwrap();
    let run = |command: &str, function: &str| {
        let policy = format!("agents:{function}");
        let selector = ["--policy", &policy, "--selector-python", python];
        forestctl(home.path(), &[&[command, archive][..], &selector].concat())
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = run("select", "missing");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused).contains("has no attribute 'missing'"));
    let refused = run("validate", "later");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let failed = run("validate", "raises");
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert!(
        text(&failed).contains("LookupError") || {
            let stdout = String::from_utf8_lossy(&failed.stdout);
            stdout.contains("LookupError")
        }
    );
    let nonsense = forestctl(home.path(), &["select", archive, "--policy", "nonsense"]);
    assert_eq!(nonsense.status.code(), Some(2));
    assert!(text(&nonsense).contains("returned_history, all_captured"), "{}", text(&nonsense));
}
