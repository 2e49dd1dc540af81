//! `du` as a command, against the closed-loop oracle and against prefixes counted one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use forestctl::archive;
use forestctl::select::PolicyName;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::closed_loop::{Tensors, expected, ingested, strings};

/// A workplace with `run.forest`, an archive of one captured form, and rows of it.
struct Place(TempDir);

impl Place {
    fn new(form: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        archive::write(&home.path().join("run.forest"), false, &ingested(form)).unwrap();
        let place = Self(home);
        let built = place.run(&["build-rows", "run.forest", "-o", "rows", "--data-parallel", "4"]);
        assert!(built.status.success(), "{built:?}");
        place
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_forestctl"))
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--format", "json"]].concat();
        serde_json::from_str(&self.text(&arguments)).unwrap()
    }
}

/// Rows of valid rollouts that the oracle has of a policy: their rollouts, and their tokens.
fn oracle_rows(policy: PolicyName) -> Vec<(String, Vec<[u8; 4]>)> {
    let oracle = expected(policy);
    let rollouts = oracle["rollouts"].as_array().unwrap();
    let valid = rollouts.iter().filter(|rollout| rollout["verdict"] == "valid");
    let owners: BTreeMap<&str, &str> = valid
        .flat_map(|rollout| {
            let id = rollout["rollout_id"].as_str().unwrap();
            strings(&rollout["row_ids"]).into_iter().map(move |row| (row, id))
        })
        .collect();
    let tensors = Tensors::read(policy);
    let offsets: Vec<usize> = tensors
        .raw("row_offsets")
        .into_iter()
        .map(|bytes| i64::from_le_bytes(bytes) as usize)
        .collect();
    let tokens = tensors.raw::<4>("input_ids");
    let rows = tensors.row_ids().into_iter().zip(offsets.windows(2));
    rows.filter_map(|(id, ends)| {
        Some((owners.get(id.as_str())?.to_string(), tokens[ends[0]..ends[1]].to_vec()))
    })
    .collect()
}

/// Rows, tokens, prefixes, and pairs of attention with and without sharing.
fn counted<'a>(rows: impl Iterator<Item = &'a [[u8; 4]]>) -> [usize; 5] {
    let rows: Vec<&[[u8; 4]]> = rows.collect();
    let prefixes: Vec<&[[u8; 4]]> =
        rows.iter().flat_map(|row| (1..=row.len()).map(|end| &row[..end])).collect();
    let unique: BTreeSet<&[[u8; 4]]> = prefixes.iter().copied().collect();
    let pairs = prefixes.iter().map(|prefix| prefix.len()).sum();
    let unique_pairs = unique.iter().map(|prefix| prefix.len()).sum();
    [rows.len(), prefixes.len(), unique.len(), pairs, unique_pairs]
}

fn counts(line: &Value) -> [usize; 5] {
    ["rows", "row_tokens", "unique_tokens", "row_scores", "unique_scores"]
        .map(|key| line[key].as_u64().unwrap() as usize)
}

#[test]
fn seed1_has_3643_tokens_by_call_and_2816_by_prefix() {
    for form in ["staged-v2", "staged-v3"] {
        let place = Place::new(form);
        for source in ["run.forest", "rows"] {
            let document = place.json(&["du", source]);
            let total = &document["total"];
            let oracle = &expected(PolicyName::ReturnedHistory)["tokens"];
            assert_eq!(total["row_tokens"], oracle["rows_R"]);
            assert_eq!(total["loss_tokens"].as_f64(), oracle["loss_tokens_N"].as_f64());
            assert_eq!(total["call_tokens"], oracle["unique_U"]);
            assert_eq!(total["call_tokens"], 3643, "{source}");
            assert_eq!(total["unique_tokens"], 2816, "{source}");
            assert_eq!((&document["groups"], &document["rollouts"]), (&json!(5), &json!(18)));
            assert_eq!(total["computed_tokens"], 2816, "everything fits into one pack");
            assert_eq!(document["lines"], json!([]));
            let policy = if source == "rows" { json!(null) } else { json!("returned_history") };
            assert_eq!(document["policy"], policy);
            let human = place.text(&["du", source]);
            assert!(human.contains("3,920 row tokens; 3,643 by call, 2,816 by prefix (1.39 x)"));
        }
    }
}

#[test]
fn groups_and_rollouts_are_counted_by_themselves_and_sorted_by_gain() {
    let place = Place::new("staged-v2");
    for (policy, word) in [
        (PolicyName::ReturnedHistory, "returned_history"),
        (PolicyName::AllCaptured, "all_captured"),
    ] {
        let rows = oracle_rows(policy);
        for by in ["group", "rollout"] {
            let unit = |rollout: &str| match by {
                "group" => rollout.split('_').next().unwrap().to_owned(),
                _ => rollout.to_owned(),
            };
            let document = place.json(&["du", "run.forest", "--policy", word, "--by", by]);
            let lines = document["lines"].as_array().unwrap();
            let ids: BTreeSet<String> = rows.iter().map(|(rollout, _)| unit(rollout)).collect();
            assert_eq!(lines.len(), ids.len());
            let mut sum = [0; 5];
            for line in lines {
                let id = line[format!("{by}_id")].as_str().unwrap();
                let of_unit = rows.iter().filter(|(rollout, _)| unit(rollout) == id);
                let wanted = counted(of_unit.map(|(_, tokens)| tokens.as_slice()));
                assert_eq!(counts(line), wanted, "{id}");
                assert_eq!(line["rollout_id"].is_null(), by == "group");
                assert_eq!(line["steps"][0]["shared"]["update"], 0.0);
                (0..5).for_each(|at| sum[at] += wanted[at]);
            }
            if by == "group" {
                assert_eq!(counts(&document["total"]), sum);
            }
            let saved = |line: &Value| {
                let seconds = |arm: &str| line["steps"][0][arm]["total"].as_f64().unwrap();
                seconds("rows") - seconds("shared")
            };
            let gains: Vec<f64> = lines.iter().map(saved).collect();
            assert!(gains.is_sorted_by(|a, b| a >= b), "{gains:?}");
        }
    }
}

#[test]
fn small_packs_compute_again_what_they_borrow() {
    let place = Place::new("staged-v2");
    let computed = |tokens: &str| {
        let total = &place.json(&["du", "rows", "--pack-tokens", tokens])["total"];
        assert_eq!(total["unique_tokens"], 2816);
        (total["computed_tokens"].as_u64().unwrap(), total["shared_packs"].as_u64().unwrap())
    };
    let (whole, split) = (computed("16384"), computed("1"));
    assert_eq!(whole, (2816, 1));
    // No pack holds fewer tokens than the longest row of its group has.
    assert!(split.0 > 2816 && split.0 <= 3920 && split.1 > 1, "{split:?}");
}

#[test]
fn ranks_hold_all_packs_between_them() {
    let place = Place::new("staged-v2");
    let arguments = ["du", "rows", "--pack-tokens", "600", "--ranks", "3", "--model", "qwen3-4b"];
    let document = place.json(&arguments);
    let ranks = document["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 3);
    let sum = |key: &str| ranks.iter().map(|rank| rank[key].as_f64().unwrap()).sum::<f64>();
    let total = &document["total"];
    assert_eq!(Some(sum("packs")), total["shared_packs"].as_f64());
    assert_eq!(Some(sum("tokens")), total["computed_tokens"].as_f64());
    let step = &total["steps"][0]["shared"];
    let packs = step["score"].as_f64().unwrap() + step["train"].as_f64().unwrap();
    assert!((sum("seconds") / packs - 1.0).abs() < 1e-9);
}

#[test]
fn formats_agree_and_threads_change_nothing() {
    let place = Place::new("staged-v2");
    let by = ["du", "run.forest", "--by", "group"];
    let document = place.json(&by);
    let lines = place.text(&[&by[..], &["--format", "jsonl"]].concat());
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(document["lines"], json!(lines));
    let one = place.text(&["du", "rows", "--format", "jsonl"]);
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(one, place.json(&["du", "rows"])["total"]);

    let table = place.text(&[&by[..], &["--format", "csv"]].concat());
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let records: Vec<BTreeMap<String, String>> =
        reader.deserialize().map(|record| record.unwrap()).collect();
    let steps = lines
        .iter()
        .flat_map(|line| line["steps"].as_array().unwrap().iter().map(move |step| (line, step)));
    assert_eq!(records.len(), 5 * 4);
    for (record, (line, step)) in records.iter().zip(steps) {
        assert_eq!(record["group_id"], line["group_id"].as_str().unwrap());
        assert_eq!(record["model"], step["model"].as_str().unwrap());
        let number = |key: &str| record[key].parse::<f64>().unwrap();
        assert_eq!(Some(number("unique_tokens")), line["unique_tokens"].as_f64());
        assert_eq!(Some(number("longest_row")), line["longest_row"].as_f64());
        assert_eq!(Some(number("rows_seconds")), step["rows"]["total"].as_f64());
        assert_eq!(Some(number("shared_train_seconds")), step["shared"]["train"].as_f64());
        assert_eq!(Some(number("share_of_bound")), step["share_of_bound"].as_f64());
    }
    for format in ["human", "json"] {
        let of = |jobs| place.text(&[&by[..], &["--format", format, "-j", jobs]].concat());
        assert_eq!(of("1"), of("3"), "{format}");
    }
}

#[test]
fn a_model_is_a_name_or_a_folder() {
    let place = Place::new("staged-v2");
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/closed-loop/models/tiny-qwen3");
    let document = place
        .json(&["du", "rows", "--model", "Qwen3-4B", "--model", models, "--model", "qwen3-4b"]);
    let steps = document["total"]["steps"].as_array().unwrap();
    let seconds = |at: usize| steps[at]["shared"]["total"].as_f64().unwrap();
    assert_eq!(seconds(0), seconds(2));
    assert!(seconds(1) < seconds(0));
    assert_eq!(steps[1]["model"], models);

    let unknown = place.run(&["du", "rows", "--model", "qwen9"]);
    assert_eq!(unknown.status.code(), Some(2));
    let told = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(told.contains("qwen9 is neither") && told.contains("qwen3-8b"), "{told}");
}

#[test]
fn what_cannot_be_counted_is_told_by_exit_code() {
    let home = tempfile::tempdir().unwrap();
    let mut read = ingested("staged-v2");
    let rollouts = read.groups.iter_mut().flat_map(|group| &mut group.rollouts);
    rollouts.for_each(|rollout| rollout.reward = None);
    archive::write(&home.path().join("run.forest"), false, &read).unwrap();
    let masked = Place(home);
    let nothing = masked.run(&["du", "run.forest", "--format", "json"]);
    assert_eq!(nothing.status.code(), Some(4), "{nothing:?}");
    let told: Value = serde_json::from_slice(&nothing.stdout).unwrap();
    assert_eq!(told["error"]["exit_code"], 4);

    let place = Place::new("staged-v2");
    for arguments in [
        &["du", "."][..],
        &["du", "rows", "--policy", "all_captured"],
        &["du", "rows", "--assume-complete"],
        &["du", "rows", "--pack-tokens", "0"],
        &["du", "rows", "--ranks", "0"],
        &["du", "gone"],
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn rows_with_media_are_left_out_and_told() {
    let home = tempfile::tempdir().unwrap();
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/media/capture");
    let read = forestctl::ingest::read(&[capture.into()]).unwrap();
    archive::write(&home.path().join("run.forest"), false, &read).unwrap();
    let place = Place(home);
    let built = ["build-rows", "run.forest", "-o", "rows", "--mask-errors"];
    let built = place.json(&built);
    let count = |key: &str| built[key].as_u64().unwrap();
    // The capture holds broken calls too, which is exit code 1.
    let output = place.run(&["du", "run.forest", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = |line: &Value| line.as_u64().unwrap();
    assert!(rows(&document["media_rows"]) > 0);
    assert_eq!(
        rows(&document["media_rows"]) + rows(&document["total"]["rows"]),
        count("rows") - count("masked_rows") - count("padding_rows")
    );
    assert_eq!(document["media_rows"], place.json(&["du", "rows"])["media_rows"]);
}
