//! `config` as a command, and files of settings under `select`, `build-rows`, and `validate`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forestctl::archive;
use forestctl::rows;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::closed_loop::ingested;

const GOOD: &str = "\
defaults: base.yaml
token_capture:
  enabled: true
  forest_training: true
  selection_policy: all_captured
  min_valid_fraction_per_group: 0.5
policy:
  model_name: Qwen/Qwen3-0.6B
  train_micro_batch_size: 2
  logprob_batch_size: ${policy.train_micro_batch_size}
  megatron_cfg: {enabled: true}
grpo:
  overlong_filtering: true
  advantage_clip_high: 1.5
";

/// What the file inherits.
const BASE: &str = "\
grpo:
  use_leave_one_out_baseline: false
  overlong_filtering: false
cluster: {num_nodes: 1}
";

struct Place {
    home: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { home: tempfile::tempdir().unwrap() };
        place.write("base.yaml", BASE);
        place.write("good.yaml", GOOD);
        place
    }

    fn with_archive() -> Self {
        let place = Self::new();
        archive::write(&place.path("run.forest"), false, &ingested("staged-v2")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forestctl"));
        command.current_dir(self.home.path()).args(args).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> (Value, i32) {
        let output = self.run(&[args, &["--format", "json"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}{told}"));
        (value, output.status.code().unwrap())
    }
}

#[test]
fn check_names_key_line_and_rule_of_all_that_is_wrong() {
    let place = Place::new();
    let (found, code) = place.json(&["config", "check", "good.yaml"]);
    assert_eq!((code, &found["fit"]), (0, &json!(true)), "{found:#}");
    assert_eq!(found["ignored"], json!(["cluster", "policy.model_name"]));
    let bad = GOOD
        .replace("  forest_training: true\n", "")
        .replace("all_captured", "nowhere.module:select")
        .replace("megatron_cfg: {enabled: true}", "megatron_cfg: {enabled: false}")
        .replace("overlong_filtering: true", "overlong_filterin: true");
    place.write("bad.yaml", &bad);
    let (found, code) = place.json(&["config", "check", "bad.yaml"]);
    assert_eq!((code, &found["fit"]), (1, &json!(false)));
    let problems: Vec<Value> = found["problems"].as_array().unwrap().clone();
    let told: Vec<(Option<&str>, Option<u64>, Option<u64>)> = problems
        .iter()
        .map(|p| (p["key"].as_str(), p["line"].as_u64(), p["rule"].as_u64()))
        .collect();
    assert_eq!(
        told,
        [
            (Some("grpo.overlong_filterin"), Some(12), None),
            (Some("token_capture.forest_training"), None, Some(1)),
            (Some("token_capture.selection_policy"), Some(4), Some(4)),
            (Some("policy.megatron_cfg.enabled"), Some(10), Some(7)),
            (Some("token_capture.selection_policy"), Some(4), Some(5)),
        ]
    );
    assert_eq!(problems[0]["help"], "Did you mean overlong_filtering?");
    assert!(problems[0]["file"].as_str().unwrap().ends_with("bad.yaml"));
    // A module that can be imported, with a function of that name, is found.
    place.write("harness.py", "def choose(records, result):\n    return records, None\nname = 3\n");
    for (name, fit) in [
        ("harness:choose", true),
        ("harness:name", false),
        ("harness:lost", false),
        ("latest_sibling", false),
    ] {
        place.write("own.yaml", &GOOD.replace("all_captured", name));
        let (found, _) = place.json(&["config", "check", "own.yaml"]);
        assert_eq!(found["fit"], fit, "{name}: {found:#}");
    }
    let human = place.run(&["config", "check", "bad.yaml"]);
    let text = String::from_utf8(human.stdout).unwrap();
    assert!(text.contains("policy.megatron_cfg.enabled is false; it must be true (rule 7)"));
    assert!(text.contains("bad.yaml:10") && text.contains("5 problems"), "{text}");
    assert_eq!(place.run(&["config", "check", "nowhere.yaml"]).status.code(), Some(2));
}

#[test]
fn show_tells_where_each_value_is_from() {
    let place = Place::new();
    let args = ["config", "show", "good.yaml", "--policy", "returned_history"];
    let (found, code) = place.json(&[&args[..], &["--no-leave-one-out=false"]].concat());
    assert_eq!(code, 0);
    let settings = found["settings"].as_array().unwrap();
    let of = |key: &str| {
        let line = settings.iter().find(|line| line["key"] == key).unwrap();
        (line["value"].as_str().unwrap(), line["origin"].as_str().unwrap())
    };
    assert_eq!(of("token_capture.selection_policy"), ("returned_history", "--policy"));
    assert_eq!(of("grpo.use_leave_one_out_baseline"), ("true", "--no-leave-one-out"));
    assert_eq!(of("policy.logprob_batch_size"), ("2", "good.yaml:10"));
    assert_eq!(of("grpo.overlong_filtering"), ("true", "good.yaml:13"));
    assert_eq!(of("grpo.advantage_clip_high"), ("1.5", "good.yaml:14"));
    assert_eq!(of("grpo.advantage_clip_low"), ("", "default"));
    assert_eq!(of("grpo.masked_reward_policy"), ("exclude", "default"));
    let (found, _) = place.json(&["config", "show", "good.yaml"]);
    let line = found["settings"].as_array().unwrap().iter();
    let line = line.clone().find(|line| line["key"] == "grpo.use_leave_one_out_baseline").unwrap();
    assert_eq!((&line["value"], &line["origin"]), (&json!("false"), &json!("base.yaml:2")));
}

#[test]
fn a_file_does_what_its_flags_do_and_flags_come_first() {
    let place = Place::with_archive();
    let rows = |name: &str, args: &[&str]| {
        let output = place.run(&[&["build-rows", "run.forest", "-o", name], args].concat());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{told}");
        (rows::read(&place.path(name)).unwrap(), told)
    };
    let (by_file, told) = rows("by-file", &["--config", "good.yaml"]);
    let ignored = told.lines().find(|line| line.contains("does not read from --config")).unwrap();
    assert!(ignored.contains("cluster") && ignored.contains("policy.model_name"), "{ignored}");
    assert!(!ignored.contains("overlong"), "{ignored}");
    let flags = [
        "--policy",
        "all_captured",
        "--min-valid-fraction",
        "0.5",
        "--train-micro-batch",
        "2",
        "--logprob-micro-batch",
        "2",
        "--no-leave-one-out",
        "--overlong-filtering",
        "--advantage-clip-high",
        "1.5",
    ];
    let (by_flags, _) = rows("by-flags", &flags);
    assert_eq!(by_file, by_flags);
    let over =
        ["--config", "good.yaml", "--policy", "returned_history", "--overlong-filtering=false"];
    let (over, _) = rows("over", &over);
    assert_eq!(over.manifest.provenance.policy, "returned_history");
    assert!(!over.manifest.provenance.grpo.overlong_filtering);
    assert!(!over.manifest.provenance.grpo.leave_one_out);

    let (selected, _) = place.json(&["select", "run.forest", "--config", "good.yaml"]);
    assert_eq!(selected["policy"], "all_captured");
    place.write("slip.yaml", "token_capture: {selection_polcy: all_captured}\n");
    for command in [
        &["select", "run.forest"][..],
        &["build-rows", "run.forest", "-o", "no"],
        &["validate", "run.forest"],
    ] {
        let output = place.run(&[command, &["--config", "slip.yaml"]].concat());
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("slip.yaml:1: token_capture has no key selection_polcy"), "{told}");
        assert!(told.contains("Did you mean selection_policy?"), "{told}");
    }
    let validated = |args: &[&str]| place.json(&[&["validate", "run.forest"], args].concat()).0;
    assert_eq!(validated(&["--config", "good.yaml"]), validated(&["--policy", "all_captured"]));
}

#[test]
fn the_migration_message_of_the_former_key_is_told_by_every_command() {
    let place = Place::with_archive();
    place.write("old.yaml", "token_capture:\n  context_compaction: true\n");
    for command in [
        &["config", "check", "old.yaml"][..],
        &["config", "show", "old.yaml"],
        &["select", "run.forest", "--config", "old.yaml"],
    ] {
        let output = place.run(command);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{command:?}");
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains("is now token_capture.forest_training"), "{told}");
        assert!(told.contains("old.yaml:2"), "{told}");
    }
}

/// A recipe with everything that packing takes gives the bins of its flags.
#[test]
fn packing_is_settled_by_a_file_too() {
    let place = Place::with_archive();
    place.write(
        "packed.yaml",
        "policy:\n  max_total_sequence_length: 512\n  train_micro_batch_size: 2\n  \
         make_sequence_length_divisible_by: 8\n  sequence_packing:\n    enabled: true\n    \
         train_mb_tokens: ${mul:${policy.max_total_sequence_length}, \
         ${policy.train_micro_batch_size}}\n    algorithm: first_fit_decreasing\n    \
         microbatch_order: largest_first\n",
    );
    let read = |name: &str, args: &[&str]| {
        let output = place.run(&[&["build-rows", "run.forest", "-o", name], args].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        rows::read(Path::new(&place.path(name))).unwrap().manifest
    };
    let by_file = read("by-file", &["--config", "packed.yaml", "--data-parallel", "2"]);
    let by_flags = read(
        "by-flags",
        &[
            "--data-parallel",
            "2",
            "--train-micro-batch",
            "2",
            "--sequence-packing",
            "--pack-tokens",
            "1024",
            "--packer",
            "first_fit_decreasing",
            "--row-pad-multiple",
            "8",
            "--microbatch-order",
            "largest_first",
        ],
    );
    assert!(by_file.packed.is_some());
    assert_eq!(by_file, by_flags);
}
