//! `audit-logprobs`: one thing is broken at a time, and the audit has to point at it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use forestctl::archive::Group;
use forestctl::config::GrpoSettings;
use forestctl::finding::Code;
use forestctl::rows::{Row, build};
use forestctl::select::PolicyName;
use forestctl::step::audit::{
    Audit, AuditReport, Disagreement, OwnContext, ScoredRows, Tolerances, captured_calls,
};
use forestctl::step::settings::Dtype;
use serde_json::Value;
use tch::Device;

use super::command::rewrite_rows;
use super::fixture::{closed_loop, model};
use super::learner::audit::{hold, in_rows};
use super::learner::decoder::Decoder;
use crate::closed_loop::{groups, selected};

/// Weights that sampled most calls of the fixture, in float32.
const NEW: Option<u64> = Some(12);

fn load(name: &str, dtype: Dtype) -> Decoder {
    Decoder::load(&model(name), dtype, Device::Cpu, false).unwrap()
}

fn rows_of(groups: &[Group], policy: PolicyName) -> Vec<Row> {
    build(groups, &selected(groups, policy), 1, &GrpoSettings::default()).rows
}

fn fresh() -> Audit {
    Audit::new(Tolerances::of(Dtype::Float64, Some("float32")), OwnContext::Archive, NEW)
}

/// Holds all calls of `groups` against `rows`, computed in packs of 300 tokens.
fn audited(model: &Decoder, groups: &[Group], rows: &[Row]) -> AuditReport {
    held(model, groups, &in_rows(model, rows, Some(300), &|_, _, _| {}).unwrap())
}

fn held(model: &Decoder, groups: &[Group], scored: &ScoredRows) -> AuditReport {
    let mut audit = fresh();
    for group in groups {
        hold(&mut audit, model, &captured_calls(group), scored).unwrap();
    }
    audit.finish(usize::MAX)
}

/// The calls of one rollout and its rows.
fn rollouts(groups: &[Group], rows: &[Row]) -> Vec<(Group, Vec<Row>)> {
    let each = groups.iter().flat_map(|group| group.rollouts.iter().map(move |r| (group, r)));
    each.map(|(group, rollout)| {
        let own = |row: &&Row| {
            row.rollout_id.as_ref() == Some(&rollout.rollout_id) && !row.uses_borrowed_input
        };
        let rollouts = vec![rollout.clone()];
        (Group { rollouts, ..group.clone() }, rows.iter().filter(own).cloned().collect())
    })
    .filter(|(_, rows): &(_, Vec<Row>)| !rows.is_empty())
    .collect()
}

fn points_at(found: &Disagreement, code: Code, row: &str, call: &str, token: Option<u64>) {
    let place = (found.code, found.row_id.as_deref(), found.call_id.as_str());
    assert_eq!(place, (code, Some(row), call), "{found:#?}");
    assert!(found.follows.is_none(), "{found:#?}");
    assert!(token.is_none_or(|token| found.token == token), "{found:#?}");
}

#[test]
fn captured_own_and_in_the_row_agree_on_the_fixture() {
    let groups = groups("staged-v2");
    let model = load("tiny-qwen3", Dtype::Float64);
    for policy in [PolicyName::ReturnedHistory, PolicyName::AllCaptured] {
        let rows = rows_of(&groups, policy);
        let own = rows.iter().filter(|row| !row.uses_borrowed_input);
        let spans: Vec<_> = own.flat_map(|row| &row.spans).collect();
        let tokens: u32 = spans.iter().map(|span| span.end - span.gen_start).sum();
        let report = audited(&model, &groups, &rows);
        assert_eq!(report.disagreements, [], "{policy:?}");
        assert_eq!((report.generations, report.unscored.len()), (94, 0));
        assert_eq!(report.spans, spans.len() as u64);
        assert_eq!(report.context.tokens, u64::from(tokens));
        assert!(report.context.max <= 1e-12, "{:e}", report.context.max);
        let spread = |version| {
            report.captured.iter().find(|of| of.weight_version == Some(version)).unwrap().spread
        };
        // The engine was float32, and older weights sampled five calls.
        assert!(spread(12).max <= 1e-5 && spread(12).tokens == 1185, "{:?}", spread(12));
        assert!(spread(11).mean > 0.1 && spread(11).tokens == 110, "{:?}", spread(11));
    }
    let old = audited(&load("tiny-qwen3-old", Dtype::Float64), &groups, &[]);
    let of_old: Vec<f64> = old.captured.iter().map(|version| version.spread.max).collect();
    assert!(of_old[0] <= 1e-5 && of_old[1] > 0.1, "{of_old:?}");
    assert!(old.disagreements.iter().all(|found| found.code == Code::CapturedLogprobMismatch));
    assert_eq!(old.disagreements.len(), 89);
    assert!(
        old.disagreements
            .is_sorted_by(|a, b| { a.difference.unwrap().max >= b.difference.unwrap().max })
    );
}

#[test]
fn a_wrong_context_token_points_at_the_call_that_brought_it() {
    let groups = groups("staged-v2");
    let rows = rows_of(&groups, PolicyName::ReturnedHistory);
    let model = load("tiny-qwen3", Dtype::Float64);
    let (mut broken, mut followed) = (0, 0);
    for (group, rows) in rollouts(&groups, &rows) {
        for (at, span) in (0..rows.len())
            .flat_map(|at| (0..rows[at].spans.len()).map(move |span| (at, span)).step_by(2))
        {
            let mut rows = rows.clone();
            let whole = rows[at].spans[span].clone();
            // The last token that the call brought as context.
            let carry = whole.gen_start as usize - 1;
            rows[at].input_ids[carry] ^= 1;
            let report = audited(&model, std::slice::from_ref(&group), &rows);
            let (row_id, call) = (rows[at].row_id.clone(), whole.call.as_str());
            let first = &report.disagreements[0];
            points_at(first, Code::RowContextMismatch, &row_id, call, None);
            assert_eq!(first.first_difference, Some(carry as u64));
            assert_eq!(first.owned, whole.owned);
            let worst = first.difference.unwrap();
            assert!(worst.max > 1e-6 && worst.mean <= worst.max, "{worst:?}");
            let off = (first.own.unwrap() - first.in_row.unwrap()).abs();
            assert!((off - worst.max).abs() <= 1e-12, "the worst token is told");
            assert_eq!(first.position, u64::from(whole.gen_start) + first.token);
            for later in &report.disagreements[1..] {
                assert_eq!(later.follows.as_ref().map(|call| call.as_str()), Some(call));
                assert_eq!(later.row_id.as_deref(), Some(row_id.as_str()));
                followed += 1;
            }
            let later = rows[at].spans.len() - span - 1;
            assert_eq!(report.disagreements.len(), 1 + later);
            broken += 1;
        }
    }
    assert!(broken > 40 && followed > 20, "{broken} {followed}");
}

#[test]
fn a_moved_span_and_other_captured_values_in_a_row_are_told_from_contexts() {
    let groups = groups("staged-v2");
    let rows = rows_of(&groups, PolicyName::ReturnedHistory);
    let model = load("tiny-qwen3", Dtype::Float64);
    let (mut moved, mut changed) = (0, 0);
    for (group, rows) in rollouts(&groups, &rows) {
        for at in 0..rows.len() {
            let spans = rows[at].spans.len();
            let audit = |change: &dyn Fn(&mut Row)| {
                let mut rows = rows.clone();
                change(&mut rows[at]);
                audited(&model, std::slice::from_ref(&group), &rows).disagreements
            };
            let row_id = rows[at].row_id.as_str();
            // A span, its mask and its values one token later; the next one begins later.
            for span in 0..spans.saturating_sub(1) {
                let found = audit(&|row| {
                    row.spans[span].gen_start += 1;
                    row.spans[span].end += 1;
                    row.spans[span + 1].start += 1;
                    let (start, end) =
                        (row.spans[span].gen_start as usize, row.spans[span].end as usize);
                    row.generation_logprobs.copy_within(start - 1..end - 1, start);
                });
                let call = rows[at].spans[span].call.as_str();
                points_at(&found[0], Code::RowSpanMismatch, row_id, call, None);
                assert_eq!(found.len(), 1, "{found:#?}");
                moved += 1;
            }
            let last = rows[at].spans[spans - 1].clone();
            let token = (last.end - last.gen_start) / 2;
            let found =
                audit(&|row| row.generation_logprobs[(last.gen_start + token) as usize] -= 0.5);
            let token = Some(u64::from(token));
            points_at(&found[0], Code::RowSpanMismatch, row_id, last.call.as_str(), token);
            let found = audit(&|row| row.spans[spans - 1].end -= 1);
            points_at(&found[0], Code::RowSpanMismatch, row_id, last.call.as_str(), None);
            changed += 1;
        }
    }
    assert!(moved > 20 && changed == 27, "{moved} {changed}");
}

#[test]
fn shifted_captured_values_point_at_their_token() {
    let groups = groups("staged-v2");
    let model = load("tiny-qwen3", Dtype::Float64);
    for (shift, call) in [(0.01, 0), (-0.3, 2), (1.5, 5)] {
        let mut broken = groups.clone();
        let calls = broken.iter_mut().flat_map(|group| &mut group.rollouts);
        let mut calls = calls.flat_map(|r| &mut r.calls).filter(|c| c.weight_version == NEW);
        let call = calls.nth(call).unwrap();
        let token = call.generation_logprobs.len() / 2;
        call.generation_logprobs[token] += shift;
        let (id, value) = (call.call_id.clone(), call.generation_logprobs[token]);
        let rows = rows_of(&broken, PolicyName::ReturnedHistory);
        let found = audited(&model, &broken, &rows).disagreements;
        assert_eq!(found.len(), 1, "{found:#?}");
        let row = found[0].row_id.clone().unwrap();
        let code = Code::CapturedLogprobMismatch;
        points_at(&found[0], code, &row, id.as_str(), Some(token as u64));
        assert_eq!(found[0].captured, Some(f64::from(value)));
        let off = found[0].difference.unwrap().max - f64::from(shift.abs());
        assert!(off.abs() <= 1e-5, "{off:e}");
    }
}

/// What a learner that lets rows of a pack see each other would compute.
#[test]
fn a_leak_between_rows_is_no_fault_of_their_tokens() {
    let groups = groups("staged-v2");
    let rows = rows_of(&groups, PolicyName::ReturnedHistory);
    let rows: Vec<Row> = rows.into_iter().filter(|row| !row.uses_borrowed_input).collect();
    let model = load("tiny-qwen3", Dtype::Float64);
    let marked = forestctl::step::audit::generated;
    let scores: Vec<Vec<f64>> = rows
        .iter()
        .enumerate()
        .map(|(at, row)| {
            let mut ids = row.input_ids.clone();
            let mut before = 0;
            if at == 3 {
                ids.splice(0..0, rows[2].input_ids.iter().copied());
                before = rows[2].input_ids.len();
            }
            let mask = marked(row).loss_mask;
            let targets: Vec<usize> =
                (0..mask.len()).filter(|&t| mask[t] == 1).map(|t| before + t).collect();
            model.score(&forestctl::step::plan::pack::Pack::of_one(&ids, &targets)).unwrap()
        })
        .collect();
    let leaking = rows[3].clone();
    let found = held(&model, &groups, &ScoredRows::new(rows, &scores)).disagreements;
    assert_eq!(found.len(), leaking.spans.len());
    for found in found {
        assert_eq!((found.code, found.first_difference), (Code::RowContextMismatch, None));
        assert_eq!(found.row_id.as_deref(), Some(leaking.row_id.as_str()));
        assert!(found.follows.is_none() && found.message.contains("attention"), "{found:#?}");
    }
}

#[test]
fn spans_of_calls_that_were_not_captured_are_told() {
    let groups = groups("staged-v2");
    let mut rows = rows_of(&groups, PolicyName::ReturnedHistory);
    rows[0].spans[0].call = "foreign".into();
    let model = load("tiny-qwen3", Dtype::Float64);
    let scored = in_rows(&model, &rows, None, &|_, _, _| {}).unwrap();
    let calls = groups.iter().flat_map(captured_calls);
    let known: BTreeSet<_> = calls.map(|call| (call.rollout_id, call.call_id)).collect();
    let mut audit = fresh();
    scored.strangers(&known).for_each(|placed| audit.stranger(&placed));
    let found = audit.finish(5).disagreements;
    assert_eq!(found.len(), 1);
    points_at(&found[0], Code::RowSpanMismatch, &rows[0].row_id, "foreign", Some(0));
}

fn forestctl(args: &[&str], at: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forestctl"));
    command.args(["--jobs", "1"]).args(args).current_dir(at).output().unwrap()
}

fn captured_and_rows(at: &Path) {
    let captured = closed_loop("seed1/staged-v2");
    let captured = captured.to_str().unwrap();
    for args in [["ingest", captured, "-o", "run"], ["build-rows", "run", "-o", "rows"]] {
        assert!(forestctl(&args, at).status.success());
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_command_prints_what_its_schemas_promise_and_exits_by_what_it_found() {
    let home = tempfile::tempdir().unwrap();
    captured_and_rows(home.path());
    let policy = model("tiny-qwen3");
    let policy = policy.to_str().unwrap();
    let audit = |source: &[&str], flags: &[&str]| {
        let base = ["audit-logprobs", "--model", policy, "--dtype", "float64"];
        forestctl(&[&base[..], source, flags].concat(), home.path())
    };
    let validator = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(name);
        let schema = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        jsonschema::validator_for(&schema).unwrap()
    };
    let json = |output: &Output| -> Value { serde_json::from_slice(&output.stdout).unwrap() };

    // Calls of older weights are off, unless they are left out.
    let with = ["rows", "--archive", "run"];
    let found = audit(&with, &["--format", "json", "--top", "2"]);
    assert_eq!(found.status.code(), Some(1), "{}", text(&found.stderr));
    let report = json(&found);
    validator("audit-logprobs.json").validate(&report).unwrap();
    assert_eq!(report["disagreements"].as_array().unwrap().len(), 2);
    assert_eq!(report["found"], serde_json::json!({"captured_logprob_mismatch": 5}));
    assert_eq!((&report["spans"], &report["own_context"]), (&78.into(), &"archive".into()));
    assert_eq!(audit(&with, &["--fail-on", "error"]).status.code(), Some(0));
    let fine = audit(&with, &["--weight-version", "12"]);
    assert_eq!(fine.status.code(), Some(0), "{}", text(&fine.stderr));
    assert!(text(&fine.stdout).starts_with("agree: 73 generations of rows"));

    // The rows of the same selection are the same.
    let built = audit(&["run"], &["--policy", "returned_history", "--format", "json"]);
    let built = json(&built);
    assert_eq!((&built["spans"], &built["context"]["tokens"]), (&78.into(), &1079.into()));
    assert_eq!(built["generations"], 94);
    let alone = json(&audit(&["run"], &["--weight-version", "12", "--format", "json"]));
    assert_eq!((&alone["spans"], &alone["generations"]), (&0.into(), &94.into()));

    // A token of a row changed: rows alone cannot tell, the archive can.
    rewrite_rows(home.path(), |rows| {
        let row = rows.iter_mut().find(|row| row.spans.len() > 2).unwrap();
        row.input_ids[row.spans[1].start as usize] ^= 1;
    });
    let only = ["--weight-version", "12", "--format", "jsonl"];
    let blind = audit(&["rows"], &only);
    assert_eq!(blind.status.code(), Some(1), "captured values of that row are off");
    let output = audit(&with, &only);
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    let lines: Vec<Value> = stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let validator = validator("audit-logprobs-jsonl.json");
    lines.iter().for_each(|line| validator.validate(line).unwrap());
    assert_eq!(lines[0]["code"], "row_context_mismatch");
    assert_eq!(lines[1]["follows"], lines[0]["call_id"]);
    assert_eq!(lines.last().unwrap()["kind"], "summary");
    let human = text(&audit(&with, &only[..2]).stdout);
    assert!(human.starts_with("error[row_context_mismatch] call "), "{human}");
    assert!(human.contains("  follows from call "), "{human}");
    let csv = text(&audit(&with, &["--format", "csv"]).stdout);
    assert!(csv.starts_with("severity,code,group_id,") && csv.contains(",p01,"), "{csv}");
}

#[test]
fn audits_that_make_no_sense_exit_2_with_advice() {
    let home = tempfile::tempdir().unwrap();
    captured_and_rows(home.path());
    let other = closed_loop("seed1/gym-store");
    let ingest = ["ingest", other.to_str().unwrap(), "-o", "other"];
    assert!(forestctl(&ingest, home.path()).status.success());
    let policy = model("tiny-qwen3");
    let policy = policy.to_str().unwrap();
    let cases: [(&[&str], &str); 10] = [
        (&["nowhere", "--model", policy], "nowhere holds neither rows.json nor archive.json"),
        (&["rows", "--model", "nowhere"], "nowhere/config.json"),
        (&["run", "--model", policy, "--archive", "run"], "--archive belongs to rows"),
        (&["rows", "--model", policy, "--archive", "other"], "were built from archive"),
        (&["rows", "--model", policy, "--policy", "all_captured"], "--policy selects calls"),
        (&["rows", "--model", policy, "--assume-complete"], "--assume-complete selects calls"),
        (&["rows", "--model", policy, "--tolerance", "-1"], "--tolerance is -1"),
        (&["rows", "--model", policy, "--context-tolerance", "nan"], "--context-tolerance is NaN"),
        (&["rows", "--model", policy, "--device", "cuda"], "--device cuda"),
        (&["run", "--model", policy, "--policy", "some"], "some"),
    ];
    for (flags, word) in cases {
        let output = forestctl(&[&["audit-logprobs"], flags].concat(), home.path());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {stderr}");
        assert!(stderr.contains(word), "{flags:?}: {stderr}");
    }
}

#[test]
fn an_archive_without_generations_is_nothing_to_do() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("bare")).unwrap();
    for file in ["receipts.jsonl", "rollouts.jsonl"] {
        let from = closed_loop("seed1/staged-v2").join(file);
        std::fs::copy(from, home.path().join("bare").join(file)).unwrap();
    }
    assert!(forestctl(&["ingest", "bare", "-o", "run"], home.path()).status.success());
    let policy = model("tiny-qwen3");
    let output =
        forestctl(&["audit-logprobs", "run", "--model", policy.to_str().unwrap()], home.path());
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("holds no generation to score"));
}
