//! `select` and `build-rows` as commands: documents, exit codes, and what is written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forestctl::archive;
use forestctl::config::BatchSettings;
use forestctl::rows;
use forestctl::select::PolicyName;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::closed_loop::{expected, ingested, strings};

/// A workplace with the archive of one captured form.
struct Place {
    home: TempDir,
}

impl Place {
    fn new(form: &str, change: impl FnOnce(&mut archive::Ingested)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut read = ingested(form);
        change(&mut read);
        archive::write(&home.path().join("run.forest"), false, &read).unwrap();
        Self { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_forestctl"))
            .args(arguments)
            .current_dir(self.home.path())
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--format", "json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn select_prints_the_promised_document() {
    let place = Place::new("staged-v2", |_| {});
    for policy in ["returned_history", "all_captured"] {
        let document = place.json(&["select", "run.forest", "--policy", policy]);
        assert_eq!(keys(&document), ["dropped_groups", "policy", "rollouts", "schema_version"]);
        assert_eq!((&document["schema_version"], &document["policy"]), (&json!(1), &json!(policy)));
        let oracle = expected(match policy {
            "all_captured" => PolicyName::AllCaptured,
            _ => PolicyName::ReturnedHistory,
        });
        let rollouts = document["rollouts"].as_array().unwrap();
        let wanted = oracle["rollouts"].as_array().unwrap();
        assert_eq!(rollouts.len(), wanted.len());
        for (found, wanted) in rollouts.iter().zip(wanted) {
            assert_eq!(found["group_id"], wanted["group_id"]);
            assert_eq!(found["rollout_id"], wanted["rollout_id"]);
            assert_eq!(found["slot"], wanted["slot"]);
            assert_eq!(found["verdict"], wanted["verdict"]);
            assert_eq!(found["reason"], wanted["reasons"][0]["code"]);
            assert_eq!(strings(&found["call_ids"]), strings(&wanted["selected"]));
            assert_eq!(found["terminal_call_id"], wanted["terminal"]);
            assert_eq!(keys(found).len(), 8);
            let reasons = found["reasons"].as_array().unwrap();
            let told = wanted["reasons"].as_array().unwrap();
            assert_eq!(reasons.len(), told.len());
            for (found, wanted) in reasons.iter().zip(told) {
                assert_eq!(found["code"], wanted["code"]);
                assert_eq!(strings(&found["call_ids"]), strings(&wanted["calls"]));
                assert!(!found["message"].as_str().unwrap().is_empty());
            }
        }
        let dropped = json!([{"group_id": "p05", "reason": "no_verified_layout"}]);
        assert_eq!(document["dropped_groups"], dropped);
    }
    let lines = place.run(&["select", "run.forest", "--format", "jsonl"]);
    assert_eq!(lines.stdout.iter().filter(|b| **b == b'\n').count(), 25);
    let table = String::from_utf8(place.run(&["select", "run.forest"]).stdout).unwrap();
    assert!(table.contains("18 of 24 rollouts are valid"), "{table}");
}

#[test]
fn build_rows_prints_its_counts_and_writes_what_read_reads() {
    let place = Place::new("staged-v3", |_| {});
    let flags = ["--data-parallel", "2", "--train-micro-batch", "2", "--logprob-micro-batch", "1"];
    let arguments = [&["build-rows", "run.forest", "-o", "rows"][..], &flags].concat();
    let mut document = place.json(&arguments);
    // Every valid rollout of this capture trains.
    let effective = document["effective_rollouts"].take();
    assert_eq!(effective["rollout_mean"].as_f64().unwrap().round(), 18.0);
    assert_eq!(document["metrics"]["dropped_prompt_groups"], 1.0);
    assert_eq!(document["metrics"]["gen_tokens_per_sample/max"], 124.0);
    assert_eq!(document["shard"], Value::Null);
    for key in ["effective_rollouts", "metrics", "shard"] {
        document.as_object_mut().unwrap().remove(key);
    }
    let wanted = json!({
        "schema_version": 1, "rows": 36, "padding_rows": 7, "masked_rows": 2,
        "rollouts": 24, "valid_rollouts": 18, "groups": 6, "dropped_groups": 1,
        "loss_tokens": 1027, "row_tokens": 3920, "unique_tokens": 3643,
    });
    assert_eq!(document, wanted);
    let read = rows::read(&place.path("rows")).unwrap();
    assert_eq!(serde_json::to_value(read.manifest.counts).unwrap()["loss_tokens"], 1027);
    assert_eq!(read.manifest.row_multiple, 4);
    let batch = read.manifest.provenance.batch;
    assert_eq!(
        batch,
        BatchSettings {
            data_parallel: 2.try_into().unwrap(),
            train_micro_batch: 2.try_into().unwrap(),
            ..Default::default()
        }
    );
    let opened = archive::Archive::open(&place.path("run.forest")).unwrap();
    assert_eq!(read.manifest.provenance.archive, Some(opened.digest()));
    let groups = crate::closed_loop::groups("staged-v3");
    let selection = crate::closed_loop::selected(&groups, PolicyName::ReturnedHistory);
    assert_eq!(read.rows, rows::build(&groups, &selection, 4, &Default::default()).rows);
    assert!(read.rows.iter().all(|row| row.inconsistency().is_none()));
    let parquet: Vec<_> = walk(&place.path("rows"));
    assert_eq!(parquet, ["rows.json", "rows/part-00000.parquet"]);

    // Existing rows stay, unless replaced; and one thread writes what many do.
    assert_eq!(code(&place.run(&arguments)), 2);
    let bytes = |name: &str| std::fs::read(place.path(name)).unwrap();
    let before = (bytes("rows/rows.json"), bytes("rows/rows/part-00000.parquet"));
    let again = place.run(&[&arguments[..], &["--force", "-j", "1"]].concat());
    assert_eq!(code(&again), 0, "{again:?}");
    assert!(before == (bytes("rows/rows.json"), bytes("rows/rows/part-00000.parquet")));
}

fn walk(dir: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match path.is_dir() {
            true => files.extend(walk(&path).into_iter().map(|file| format!("{name}/{file}"))),
            false => files.push(name),
        }
    }
    files.sort();
    files
}

#[test]
fn advantage_flags_reach_the_rows() {
    let place = Place::new("staged-v2", |_| {});
    let flags = "--no-leave-one-out --no-normalize --advantage-clip-low -0.25 \
                 --advantage-clip-high 0.25 --overlong-filtering --masked-reward-policy include_all \
                 --sequence-packing --train-micro-batch 8 --data-parallel 2";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    place.json(&[&["build-rows", "run.forest", "-o", "rows"][..], &flags].concat());
    let read = rows::read(&place.path("rows")).unwrap();
    assert_eq!(read.manifest.row_multiple, 2);
    let grpo = serde_json::to_value(read.manifest.provenance.grpo).unwrap();
    let wanted = json!({
        "leave_one_out": false, "normalize": false,
        "advantage_clip_low": -0.25, "advantage_clip_high": 0.25,
        "overlong_filtering": true, "masked_reward_policy": "include_all",
    });
    assert_eq!(grpo, wanted);
    let overlong = read.rows.iter().filter(|r| r.mask_reason.as_deref() == Some("overlong"));
    let ids: Vec<&str> = overlong.map(|row| row.row_id.as_str()).collect();
    assert_eq!(ids, ["p02_g3_s0"]);
    assert!(read.rows.iter().any(|row| row.advantage == 0.25));
}

#[test]
fn nonsense_is_a_usage_error() {
    let place = Place::new("staged-v2", |_| {});
    for flags in [
        &["--advantage-clip-low", "2", "--advantage-clip-high", "1"][..],
        &["--advantage-clip-low", "nan"],
        &["--data-parallel", "0"],
        &["--data-parallel", "4294967295", "--train-micro-batch", "2"],
        &["--policy", "latest_sibling"],
    ] {
        let arguments = [&["build-rows", "run.forest", "-o", "rows"][..], flags].concat();
        assert_eq!(code(&place.run(&arguments)), 2, "{flags:?}");
    }
    assert!(!place.path("rows").exists());
}

#[test]
fn wrong_evidence_stops_build_rows_unless_it_is_to_be_masked() {
    let place = Place::new("staged-v2", |read| {
        // One flipped token of a selected call.
        read.groups[0].rollouts[1].calls[0].token_ids[3] ^= 1;
    });
    let select = place.run(&["select", "run.forest"]);
    assert_eq!(code(&select), 1);
    assert!(stderr(&select).contains("error[corrupt_digest]"), "{}", stderr(&select));
    assert!(stderr(&select).contains("p01_g1"), "{}", stderr(&select));
    let refused = place.run(&["build-rows", "run.forest", "-o", "rows"]);
    assert_eq!(code(&refused), 1);
    assert!(stderr(&refused).contains("--mask-errors"), "{}", stderr(&refused));
    assert!(!place.path("rows").exists());
    let masked = place.run(&["build-rows", "run.forest", "-o", "rows", "--mask-errors"]);
    assert_eq!(code(&masked), 0, "{masked:?}");
    let read = rows::read(&place.path("rows")).unwrap();
    let row = read.rows.iter().find(|row| row.row_id == "p01_g1_s0").unwrap();
    assert_eq!(row.mask_reason.as_deref(), Some("corrupt_digest"));
    assert!(row.uses_borrowed_input);
    assert_eq!(read.manifest.counts.valid_rollouts, 17);
}

#[test]
fn nothing_valid_is_nothing_done() {
    let place = Place::new("gym-store", |_| {});
    // The store has no completion status, which all_captured needs: an error by rollout.
    let all = ["build-rows", "run.forest", "-o", "rows", "--policy", "all_captured"];
    assert_eq!(code(&place.run(&all)), 1);
    assert_eq!(code(&place.run(&[&all[..], &["--mask-errors"]].concat())), 4);
    assert!(!place.path("rows").exists());
    let counts = place.json(&["build-rows", "run.forest", "-o", "rows"]);
    assert_eq!((&counts["rows"], &counts["valid_rollouts"]), (&json!(6), &json!(6)));

    let unknown = Place::new("staged-v2", |read| {
        for rollout in read.groups.iter_mut().flat_map(|g| &mut g.rollouts) {
            rollout.completeness = archive::Completeness::Unknown;
        }
    });
    let build = ["build-rows", "run.forest", "-o", "rows"];
    assert_eq!(code(&unknown.run(&build)), 4);
    let assumed = unknown.json(&[&build[..], &["--assume-complete"]].concat());
    assert_eq!(assumed["valid_rollouts"], 18);
    let missing = unknown.run(&["select", "nowhere"]);
    assert_eq!(code(&missing), 2);
}

/// What an archive says it holds is compared before anything is selected from it.
#[test]
fn an_archive_of_other_rollouts_than_it_says_is_not_selected_from() {
    let place = Place::new("staged-v2", |_| {});
    let archive = archive::Archive::open(&place.path("run.forest")).unwrap();
    let mut manifest = archive.manifest().clone();
    manifest.content = forestctl::id::Digest32([7; 32]);
    fs::write(place.path("run.forest/archive.json"), manifest.to_text().unwrap()).unwrap();
    for arguments in [&["select", "run.forest"][..], &["build-rows", "run.forest", "-o", "rows"]] {
        let output = place.run(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains("content digest"), "{}", stderr(&output));
    }
    assert!(!place.path("rows").exists());
    let output = place.run(&["validate", "run.forest", "--format", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = document["findings"].as_array().unwrap().iter();
    let told: Vec<_> = told.filter(|finding| finding["code"] == "corrupt_file").collect();
    assert_eq!((code(&output), told.len()), (1, 1));
    assert_eq!(told[0]["location"]["file"], "archive.json");
}

#[test]
fn rows_are_packed_into_bins_that_read_back() {
    let place = Place::new("staged-v2", |_| {});
    let flags = ["--sequence-packing", "--data-parallel", "2", "--pack-tokens", "512"];
    for packer in [
        "concatenative",
        "first_fit_decreasing",
        "first_fit_shuffle",
        "modified_first_fit_decreasing",
    ] {
        let arguments = ["build-rows", "run.forest", "-o", packer, "--packer", packer];
        place.json(&[&arguments[..], &flags].concat());
        let read = rows::read(&place.path(packer)).unwrap();
        let packed = read.manifest.packed.unwrap();
        let mut all: Vec<u32> = packed.bins.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..read.rows.len() as u32));
        assert_eq!(packed.bins.len() % 2, 0);
        let tokens = |bin: &Vec<u32>| -> usize {
            bin.iter().map(|&row| read.rows[row as usize].input_ids.len()).sum()
        };
        assert!(packed.bins.iter().all(|bin| tokens(bin) <= 512));
        let fewest = packed.bins.iter().map(tokens).sum::<usize>().div_ceil(512);
        assert_eq!(packed.efficiency, fewest as f64 / packed.bins.len() as f64);
    }
    // The longest row of this capture has 488 tokens.
    let small = [&["build-rows", "run.forest", "-o", "x"][..], &flags[..4], &["487"]].concat();
    let refused = place.run(&small);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("takes 488 tokens, and a bin holds 487"));
    assert!(!place.path("x").exists());
    let alone = place.run(&["build-rows", "run.forest", "-o", "x", "--pack-tokens", "512"]);
    assert_eq!(code(&alone), 2);
}

#[test]
fn each_rollouts_share_of_the_gradient_can_be_written() {
    let place = Place::new("staged-v2", |_| {});
    place.json(&["build-rows", "run.forest", "-o", "rows", "--gradient-weights", "w.csv"]);
    let read = rows::read(&place.path("rows")).unwrap();
    let text = fs::read_to_string(place.path("w.csv")).unwrap();
    let mut lines = text.lines();
    let header = "rollout_id,rows,loss_tokens,token_mean,sequence_mean,rollout_mean";
    assert_eq!(lines.next(), Some(header));
    let mut sums = [0.0; 3];
    let mut count = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let own = read.rows.iter().filter(|row| {
            row.sample_mask == 1.0
                && row.rollout_id.as_ref().is_some_and(|id| id.as_str() == cells[0])
        });
        let (rows, tokens) = own.fold((0, 0), |(rows, tokens), row| {
            (rows + 1, tokens + row.loss_mask.iter().map(|&mask| u64::from(mask)).sum::<u64>())
        });
        assert_eq!((cells[1], cells[2]), (&*rows.to_string(), &*tokens.to_string()));
        for (sum, cell) in sums.iter_mut().zip(&cells[3..]) {
            *sum += cell.parse::<f64>().unwrap();
        }
        assert!((cells[3].parse::<f64>().unwrap() - tokens as f64 / 1027.0).abs() < 1e-12);
        count += 1;
    }
    assert_eq!(count, 18);
    assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-12));
}

#[test]
fn groups_below_the_least_valid_share_are_dropped_and_too_few_groups_stop_the_step() {
    let place = Place::new("staged-v2", |_| {});
    let dropped = |fraction: &str| -> Vec<String> {
        let arguments = ["select", "run.forest", "--min-valid-fraction", fraction];
        let document = place.json(&arguments);
        let groups = document["dropped_groups"].as_array().unwrap().iter();
        groups
            .map(|group| format!("{} {}", strings(&json!([group["group_id"]]))[0], group["reason"]))
            .collect()
    };
    // Valid shares of this capture: p04 0.5, p05 0, the others 1.
    let without = "p05 \"no_verified_layout\"";
    assert_eq!(dropped("0.5"), [without]);
    assert_eq!(dropped("0.51"), ["p04 \"too_few_valid_rollouts\"", without]);
    let build = |arguments: &[&str]| {
        let command = ["build-rows", "run.forest", "-o", "rows", "--force"];
        place.run(&[&command[..], arguments].concat())
    };
    // Five of six groups are kept.
    for (arguments, expected) in [
        (&["--min-step-batch-fraction", "0.83"][..], 0),
        (&["--min-step-batch-fraction", "0.84"], 4),
        (&["--min-step-batch-fraction", "0.5", "--prompts-per-step", "10"], 0),
        (&["--min-step-batch-fraction", "0.6", "--prompts-per-step", "10"], 4),
        (&["--min-step-batch-fraction", "1.5"], 2),
        (&["--prompts-per-step", "10"], 2),
    ] {
        let output = build(arguments);
        assert_eq!(code(&output), expected, "{arguments:?}: {}", stderr(&output));
    }
    let refused = build(&["--min-step-batch-fraction", "0.9"]);
    assert!(stderr(&refused).contains("5 prompt groups are kept, and 0.9 of 6 are 6"));
    let document = place.json(&[
        "build-rows",
        "run.forest",
        "-o",
        "rows",
        "--force",
        "--min-valid-fraction",
        "0.75",
    ]);
    assert_eq!((&document["dropped_groups"], &document["rollouts"]), (&json!(2), &json!(24)));
}
