//! What `forestctl step` writes beside weights: event files, rows, state; shards; determinism; memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forestctl::error::Kind;
use serde_json::Value;

use super::command::{build_rows, forestctl, text};
use super::fixture::{close, model};
use super::learner::tensor::failed;

fn succeed(args: &[&str], at: &Path) -> String {
    let output = forestctl(args, at);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn policy() -> String {
    model("tiny-qwen3").to_str().unwrap().to_owned()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// All files below a folder with their bytes.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        found.insert(path.strip_prefix(dir).unwrap().to_owned(), std::fs::read(&path).unwrap());
    }
    found
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc: u32, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Contents of the records of a TFRecord file, all checksums checked.
fn records(bytes: &[u8]) -> Vec<Vec<u8>> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    // Undoes the mask, where the writer applies it.
    let unmasked = |masked: u32| masked.wrapping_sub(0xa282_ead8).rotate_left(15);
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        assert_eq!(unmasked(number(at + 8)), crc32c(&bytes[at..at + 8]));
        let content = &bytes[at + 12..at + 12 + length];
        assert_eq!(unmasked(number(at + 12 + length)), crc32c(content));
        found.push(content.to_vec());
        at += 16 + length;
    }
    found
}

/// Fields of a protocol buffer: number, and either a number or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, varint(&mut bytes), Vec::new()));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            kind => panic!("wire type {kind}"),
        };
        found.push((key >> 3, 0, bytes[..length].to_vec()));
        bytes = &bytes[length..];
    }
    found
}

#[test]
fn the_checksum_of_this_test_is_the_published_one() {
    // RFC 3720, appendix B.4: 32 bytes of zeros.
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
}

#[test]
fn event_files_hold_every_metric_of_every_step() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    let args = [
        "--format",
        "jsonl",
        "step",
        "rows",
        "--model",
        &policy(),
        "-o",
        "ckpt",
        "--dtype",
        "float64",
        "--lr",
        "1e-4",
        "--steps",
        "2",
        "--minibatches",
        "2",
        "--tensorboard",
        "tb",
    ];
    let reports = json_lines(&succeed(&args, home.path()));
    assert_eq!(reports.len(), 4);
    let written = files(&home.path().join("tb"));
    assert_eq!(written.len(), 1);
    let (name, bytes) = written.first_key_value().unwrap();
    assert!(name.to_str().unwrap().starts_with("events.out.tfevents."), "{name:?}");
    let events = records(bytes);
    assert_eq!(events.len(), 5);
    assert_eq!(fields(&events[0]).last().unwrap(), &(3, 0, b"brain.Event:2".to_vec()));
    for (event, report) in events[1..].iter().zip(&reports) {
        let event = fields(event);
        let clock = event.iter().find(|field| field.0 == 1).unwrap();
        assert!(f64::from_le_bytes(clock.2.clone().try_into().unwrap()) > 1.7e9);
        let step = event.iter().find(|field| field.0 == 2).unwrap().1;
        assert_eq!(step, report["metrics"]["step"].as_u64().unwrap());
        let summary = &event.iter().find(|field| field.0 == 5).unwrap().2;
        let scalars: BTreeMap<String, f64> = fields(summary)
            .into_iter()
            .map(|(_, _, value)| {
                let value = fields(&value);
                let number = f32::from_le_bytes(value[1].2.clone().try_into().unwrap());
                (text(&value[0].2), number.into())
            })
            .collect();
        let mut expected = 0;
        for (name, value) in report["metrics"].as_object().unwrap() {
            if let Some(value) = value.as_f64() {
                expected += 1;
                assert_eq!(scalars[&format!("train/{name}")], f64::from(value as f32), "{name}");
            }
        }
        assert!(expected > 20, "{report}");
        let loss = report["loss"].as_f64().unwrap();
        assert_eq!(scalars["train/loss"], f64::from(loss as f32));
        assert!(scalars["performance/tokens_per_second"] > 0.0);
    }
    // A second run adds a file.
    succeed(&[&args[..], &["--force"]].concat(), home.path());
    assert_eq!(files(&home.path().join("tb")).len(), 2);
}

#[test]
fn rows_are_told_one_by_one_and_make_up_the_whole() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    let args = [
        "--format",
        "jsonl",
        "step",
        "rows",
        "--model",
        &policy(),
        "-o",
        "ckpt",
        "--dtype",
        "float64",
        "--lr",
        "1e-4",
        "--steps",
        "2",
        "--dump-rows",
        "rows.jsonl",
    ];
    let reports = json_lines(&succeed(&args, home.path()));
    let rows = json_lines(&std::fs::read_to_string(home.path().join("rows.jsonl")).unwrap());
    for report in &reports {
        let of: Vec<_> =
            rows.iter().filter(|row| row["step"] == report["metrics"]["step"]).collect();
        assert_eq!(of.len(), 27);
        let tokens: u64 = of.iter().map(|row| row["loss_tokens"].as_u64().unwrap()).sum();
        assert_eq!(tokens, report["loss_tokens"]);
        let mean = |key: &str| {
            let weighted =
                |row: &&Value| row[key].as_f64().unwrap() * row["loss_tokens"].as_f64().unwrap();
            of.iter().map(weighted).sum::<f64>() / tokens as f64
        };
        close(mean("loss"), report["loss"].as_f64().unwrap(), 1e-8, "loss");
        for key in ["token_mult_prob_error", "gen_kl_error", "approx_entropy", "probs_ratio"] {
            close(mean(key), report["metrics"][key].as_f64().unwrap(), 1e-8, key);
        }
    }
}

/// The same bytes twice, for any number of threads; without the flag, times differ at least.
#[test]
fn a_deterministic_step_writes_the_same_bytes_twice() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    let step = |output: &str, jobs: &str| {
        let policy = policy();
        let args = [
            "--jobs",
            jobs,
            "step",
            "rows",
            "--model",
            &policy,
            "-o",
            output,
            "--steps",
            "2",
            "--deterministic",
            "--dtype",
            "float32",
            "--lr",
            "1e-3",
        ];
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forestctl"));
        let done = command.args(args).current_dir(home.path()).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
        files(&home.path().join(output))
    };
    let (one, two) = (step("one", "1"), step("two", "2"));
    assert!(one.keys().eq(two.keys()));
    assert!(one.contains_key(Path::new("metrics.jsonl")) && one.len() >= 5);
    for (name, bytes) in &one {
        assert!(*bytes == two[name], "{} differs", name.display());
    }
}

/// CUDA's linear algebra reads its setting once, when it starts: the command sets it, and the learner by
/// itself asks for it.
#[test]
fn determinism_on_cuda_needs_its_setting_before_the_start() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    let stderr = |program: &str, first: &[&str]| {
        let policy = policy();
        let flags = ["rows", "--model", &policy, "-o", "c", "--deterministic", "--device", "cuda"];
        let mut command = std::process::Command::new(program);
        command.args(first).args(flags).current_dir(home.path());
        let output = command.env_remove("CUBLAS_WORKSPACE_CONFIG").output().unwrap();
        // The libtorch of these tests has no CUDA library to load.
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    let alone = stderr(env!("CARGO_BIN_EXE_forestctl-step"), &[]);
    assert!(alone.contains("CUBLAS_WORKSPACE_CONFIG=:4096:8"), "{alone}");
    let started = stderr(env!("CARGO_BIN_EXE_forestctl"), &["step"]);
    assert!(!started.contains("CUBLAS_WORKSPACE_CONFIG"), "{started}");
    assert!(started.contains("--device cuda"), "{started}");
}

#[test]
fn a_checkpoint_is_resumed_with_its_settings_and_says_what_it_saw() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    let run = |args: &[&str]| forestctl(&[&["step", "rows"], args].concat(), home.path());
    let first = [
        "--model",
        &policy(),
        "-o",
        "one",
        "--dtype",
        "float64",
        "--lr",
        "1e-4",
        "--steps",
        "2",
        "--pack-tokens",
        "700",
    ];
    let output = run(&first);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("before"), "{}", text(&output.stderr));

    let output = run(&["--resume", "one", "-o", "two"]);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("one was trained on these rows before, in steps 1 to 2"), "{stderr}");
    let read = |name: &str| std::fs::read(home.path().join(name)).unwrap();
    let state = |name: &str| -> Value { serde_json::from_slice(&read(name)).unwrap() };
    let (before, after) = (state("one/trainer_state.json"), state("two/trainer_state.json"));
    assert_eq!(after["global_step"], 3);
    for key in ["dtype", "optimizer", "loss", "pack_tokens", "grpo"] {
        assert_eq!(after["settings"][key], before["settings"][key], "{key}");
    }
    let trained = after["trained"].as_array().unwrap();
    let steps: Vec<_> = trained.iter().map(|run| (&run["first_step"], &run["last_step"])).collect();
    assert_eq!(steps, [(&1.into(), &2.into()), (&3.into(), &3.into())]);
    let lines = json_lines(&text(&read("two/metrics.jsonl")));
    let steps: Vec<_> =
        lines.iter().map(|line| line["metrics"]["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [1, 2, 3]);
    assert!(lines.iter().all(|line| line["performance"]["io_seconds"].is_number()));

    std::fs::write(home.path().join("other.yaml"), "loss_fn: {ratio_clip_max: 0.3}").unwrap();
    let output = run(&["--resume", "one", "-o", "three", "--config", "other.yaml"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("loss.ratio_clip_max is 0.3"), "{stderr}");
    let output = run(&["--resume", "one", "-o", "three", "--lr", "2e-4"]);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("optimizer.lr is 0.0002 from here on"), "{stderr}");
    let output = run(&["--resume", &policy(), "-o", "four"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("trainer_state.json") && stderr.contains("--model"), "{stderr}");
}

#[test]
fn all_shards_of_a_batch_make_the_step_of_the_whole() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    let captured = super::fixture::closed_loop("seed1/staged-v2");
    succeed(&["ingest", captured.to_str().unwrap(), "-o", "run"], home.path());
    for shard in ["1", "2", "3"] {
        let (output, part) = (format!("rows-{shard}"), format!("{shard}/3"));
        succeed(&["build-rows", "run", "-o", &output, "--shard", &part], home.path());
    }
    let policy = policy();
    let step = |rows: &[&str], output: &str| {
        let model = ["--model", &policy, "-o", output, "--deterministic", "--lr", "1e-3"];
        forestctl(&[&["step"], rows, &model].concat(), home.path())
    };
    let whole = step(&["rows"], "whole");
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    let parts = step(&["rows-3", "rows-1", "rows-2"], "parts");
    assert!(parts.status.success(), "{}", text(&parts.stderr));
    let (whole, parts) = (files(&home.path().join("whole")), files(&home.path().join("parts")));
    for (name, bytes) in &whole {
        let same = *bytes == parts[name];
        assert_eq!(same, name != Path::new("trainer_state.json"), "{}", name.display());
    }
    for (rows, word) in [
        (&["rows-1"][..], "shard 2/3 is missing"),
        (&["rows-1", "rows-3"], "shard 2/3 is missing"),
        (&["rows-1", "rows-2", "rows-2"], "both hold shard 2/3"),
        (&["rows", "rows-2"], "is a batch by itself"),
    ] {
        let output = step(rows, "none");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{rows:?}: {stderr}");
        assert!(stderr.contains(word), "{rows:?}: {stderr}");
    }
    let other = ["build-rows", "run", "-o", "rows-9", "--shard", "2/3", "--policy", "all_captured"];
    succeed(&other, home.path());
    let stderr = text(&step(&["rows-1", "rows-9", "rows-3"], "none").stderr);
    assert!(stderr.contains("shards of different batches"), "{stderr}");
}

#[test]
fn more_minibatches_than_rollouts_and_measuring_without_output() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    let policy = policy();
    let step = |args: &[&str]| {
        forestctl(&[&["step", "rows", "--model", &policy], args].concat(), home.path())
    };
    let output = step(&["-o", "ckpt", "--minibatches", "1000"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--minibatches 1000"), "{}", text(&output.stderr));
    let output = step(&["--measure", "2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = json_lines(&text(&output.stdout));
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line["train_seconds"].as_f64().unwrap() > 0.0));
    let output = step(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--output"), "{}", text(&output.stderr));
}

/// The allocator's own words, from an allocation that no machine can make.
#[test]
fn too_little_memory_is_told_as_such() {
    let error = tch::Tensor::f_zeros([1 << 50], (tch::Kind::Double, tch::Device::Cpu)).unwrap_err();
    let error = failed(error);
    assert_eq!(error.kind(), Kind::Memory, "{error:?}");
}
