//! `forestctl step` as a program.

use std::path::Path;
use std::process::{Command, Output};

use forestctl::output::AtomicDir;
use forestctl::rows::{self, Row};
use serde_json::Value;

use super::fixture::{
    close, closed_loop, expected, expected_tensors, model, relative_distance, tensors,
};

/// Captured calls as rows, in the folder `rows`.
pub fn build_rows(at: &Path) {
    let captured = closed_loop("seed1/staged-v2");
    let captured = captured.to_str().unwrap();
    for args in [["ingest", captured, "-o", "run"], ["build-rows", "run", "-o", "rows"]] {
        let output = forestctl(&args, at);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    std::fs::remove_dir_all(at.join("run")).unwrap();
}

pub fn forestctl(args: &[&str], at: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forestctl"));
    command.args(["--jobs", "1"]).args(args).current_dir(at).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_step_prints_json_and_writes_checkpoint_and_dumps() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    let policy = model("tiny-qwen3");
    let policy = policy.to_str().unwrap();
    let args = [
        "--format",
        "json",
        "step",
        "rows",
        "--model",
        policy,
        "-o",
        "ckpt",
        "--dtype",
        "float64",
        "--lr",
        "1e-3",
        "--dump-gradients",
        "g.safetensors",
        "--dump-logprobs",
        "p.safetensors",
    ];
    let output = forestctl(&args, home.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let keys: Vec<_> = report.as_object().unwrap().keys().collect();
    let named = ["grad_norm", "loss", "loss_tokens", "metrics", "performance", "schema_version"];
    assert_eq!(keys, named);
    assert_eq!((&report["schema_version"], &report["loss_tokens"]), (&1.into(), &1027.into()));
    let step = &expected()["step"]["f64"];
    for key in ["loss", "grad_norm"] {
        close(report[key].as_f64().unwrap(), step[key].as_f64().unwrap(), 1e-10, key);
    }
    let entropy = expected()["metrics"]["prev_self_f64"]["approx_entropy"].as_f64().unwrap();
    close(report["metrics"]["approx_entropy"].as_f64().unwrap(), entropy, 1e-10, "entropy");

    let found = tensors(&home.path().join("g.safetensors"));
    for (name, grad) in expected_tensors("grads_base_prev_self_f64") {
        assert!(relative_distance(&found[&name], &grad) <= 1e-10, "{name}");
    }
    let found = tensors(&home.path().join("ckpt/model.safetensors"));
    for (name, weight) in expected_tensors("weights_after_step_f64") {
        assert!(relative_distance(&found[&name], &weight) <= 1e-10, "{name}");
    }
    let found = tensors(&home.path().join("p.safetensors"));
    let first = &super::fixture::rows()[0];
    let positions = &found[&format!("{}/positions", first.row_id)];
    assert_eq!(positions.len(), first.loss_tokens());
    assert_eq!(found[&format!("{}/previous", first.row_id)].len(), positions.len());

    let again = forestctl(&args, home.path());
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("ckpt already exists"), "{}", text(&again.stderr));
    let forced = forestctl(&[&args[..], &["--force"]].concat(), home.path());
    let mut again: Value = serde_json::from_slice(&forced.stdout).unwrap();
    again["performance"] = report["performance"].clone();
    assert_eq!(again, report);
    assert_eq!(tensors(&home.path().join("ckpt/model.safetensors")), {
        forestctl(&[&args[..], &["--force"]].concat(), home.path());
        tensors(&home.path().join("ckpt/model.safetensors"))
    });
}

#[test]
fn mistakes_exit_2_with_advice_and_leave_nothing() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    let policy = model("tiny-qwen3");
    let policy = policy.to_str().unwrap();
    std::fs::write(home.path().join("bad.yaml"), "loss_fn: {ratio_clip_maxi: 1}").unwrap();
    std::fs::write(home.path().join("taken"), "").unwrap();
    let cases: [(&[&str], &str); 22] = [
        (&["--model", "nowhere"], "nowhere"),
        (&["--model", policy, "--kl-coef", "0.1"], "--reference-model"),
        (&["--model", policy, "--config", "bad.yaml"], "Did you mean ratio_clip_max?"),
        (&["--model", policy, "--device", "cuda"], "--device cuda"),
        (&["--model", policy, "--device", "tpu"], "expected cpu, cuda or cuda:INDEX"),
        (&["--model", policy, "--betas", "0.9"], "such as 0.9,0.999"),
        (&["--model", policy, "--betas", "-0.1,0.9"], "betas must lie in [0, 1)"),
        (&["--model", policy, "--betas", "0.9,1"], "betas must lie in [0, 1)"),
        (&["--model", policy, "--lr", "-1"], "learning rate must be finite and not negative"),
        (&["--model", policy, "--lr", "NaN"], "learning rate must be finite and not negative"),
        (&["--model", policy, "--lr", "1e300"], "is not finite; nothing was written"),
        (&["--model", policy, "--weight-decay", "-0.1"], "weight decay must be finite"),
        (&["--model", policy, "--max-grad-norm", "0"], "gradient norm must be positive"),
        (&["--model", policy, "--max-grad-norm", "-1"], "gradient norm must be positive"),
        (&["--model", policy, "--kl-coef", "-0.1"], "--kl-coef is -0.1"),
        (&["--model", policy, "--kl-coef", "nan", "--reference-model", policy], "--kl-coef is NaN"),
        (&["--model", policy, "--dtype", "float16"], "float64, float32, bfloat16"),
        (&["--model", policy, "--dump-gradients", "taken"], "taken already exists"),
        (&["--model", policy, "--dump-logprobs", "nowhere/p"], "a directory that is not there"),
        (&["--model", policy, "--dump-gradients", "ckpt/g"], "would lie in the checkpoint"),
        (&["--model", policy, "--dump-gradients", "x", "--dump-logprobs", "./x"], "hold two dumps"),
        (&["--model", policy, "--force", "-o", "rows"], "rows holds no trainer_state.json"),
    ];
    for (flags, word) in cases {
        let output: &[_] = if flags.contains(&"-o") { &[] } else { &["-o", "ckpt"] };
        let args = [&["step", "rows"], output, flags].concat();
        let output = forestctl(&args, home.path());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {stderr}");
        assert!(stderr.contains(word), "{flags:?}: {stderr}");
        let mut left: Vec<_> = std::fs::read_dir(home.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["bad.yaml", "rows", "taken"], "{flags:?}");
    }
}

#[test]
fn the_yaml_of_a_run_sets_the_loss() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    let yaml = "loss_fn: {use_importance_sampling_correction: true}\n\
                grpo: {seq_logprob_error_threshold: 1.168438, num_prompts_per_step: 6}\n\
                cluster: {num_nodes: 1}\n";
    std::fs::write(home.path().join("run.yaml"), yaml).unwrap();
    let policy = model("tiny-qwen3");
    let args = [
        "step",
        "rows",
        "--model",
        policy.to_str().unwrap(),
        "-o",
        "ckpt",
        "--dtype",
        "float64",
        "--config",
        "run.yaml",
        "--format",
        "json",
    ];
    let output = forestctl(&args, home.path());
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("cluster, grpo.num_prompts_per_step"), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let filtered = &report["metrics"]["sequence_error"]["masked_rollouts"];
    assert_eq!(filtered, &serde_json::json!(["p04_g3"]));
    assert_eq!(report["loss_tokens"], 967);
    let base = &expected()["filtered_losses_base_prev_self"]["seq_error_1.168438"]["loss"];
    assert_ne!(report["loss"], *base, "importance weights change the loss");
}

/// Rows of `rows` with a change, under a manifest that fits them.
pub fn rewrite_rows(at: &Path, change: impl FnOnce(&mut Vec<Row>)) {
    let target = at.join("rows");
    let mut dir = rows::read(&target).unwrap();
    change(&mut dir.rows);
    let draft = AtomicDir::create(&target, true, "rows.json").unwrap();
    let mut writer = rows::RowsWriter::new(draft).unwrap();
    for group in dir.rows.chunk_by(|row, next| row.group_id == next.group_id) {
        writer.group(group.to_vec()).unwrap();
    }
    writer.publish(dir.manifest).unwrap();
}

fn first_trained(rows: &mut [Row]) -> (&mut Row, usize) {
    let row = rows.iter_mut().find(|row| row.sample_mask == 1.0).unwrap();
    let token = row.loss_mask.iter().position(|&m| m == 1).unwrap();
    (row, token)
}

#[test]
fn what_overflows_is_null_in_json_and_nothing_that_json_lacks() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    // No engine's clamp, and exp(5000) is more than a float64 holds.
    rewrite_rows(home.path(), |rows| {
        let (row, token) = first_trained(rows);
        row.generation_logprobs[token] = -5000.0;
    });
    let policy = model("tiny-qwen3");
    let policy = policy.to_str().unwrap();
    let args = ["step", "rows", "--model", policy, "-o", "ckpt", "--format", "json"];
    let output = forestctl(&args, home.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = std::fs::read_to_string(home.path().join("ckpt/metrics.jsonl")).unwrap();
    for report in [text(&output.stdout), lines] {
        let report: Value = serde_json::from_str(&report).unwrap();
        for key in ["token_mult_prob_error", "gen_kl_error", "approx_entropy"] {
            assert_eq!(report["metrics"][key], Value::Null, "{key}");
        }
        assert!(report["loss"].is_f64() && report["grad_norm"].is_f64());
    }
}

#[test]
fn rows_that_the_model_cannot_read_are_named() {
    type Break = fn(&mut Row, usize);
    let cases: [(Break, &str); 4] = [
        (|row, _| row.input_ids[0] = 320, "token 0 is 320, and the model's vocabulary has 320"),
        (|row, token| row.input_ids[token] = u32::MAX, "is 4294967295"),
        (|row, _| row.advantage = f64::NAN, "advantage"),
        (|row, _| row.sample_mask = 0.25, "sample_mask is 0.25"),
    ];
    let policy = model("tiny-qwen3");
    for (change, word) in cases {
        let home = tempfile::tempdir().unwrap();
        build_rows(home.path());
        let mut id = String::new();
        rewrite_rows(home.path(), |rows| {
            let (row, token) = first_trained(rows);
            change(row, token);
            id.clone_from(&row.row_id);
        });
        let args = ["step", "rows", "--model", policy.to_str().unwrap(), "-o", "ckpt"];
        let output = forestctl(&args, home.path());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{word}: {stderr}");
        assert!(stderr.contains(word) && stderr.contains(&format!("row {id}")), "{word}: {stderr}");
        assert!(!home.path().join("ckpt").exists(), "{word}");
    }
}

/// Without the learner, the error names the command that builds it.
#[test]
fn a_missing_learner_is_told() {
    let home = tempfile::tempdir().unwrap();
    let alone = home.path().join("forestctl");
    std::fs::copy(env!("CARGO_BIN_EXE_forestctl"), &alone).unwrap();
    let step = |path: &Path| {
        let mut command = Command::new(&alone);
        command.args(["step", "rows", "--model", "m", "-o", "ckpt"]).env("PATH", path);
        command.env_remove("LIBTORCH").env_remove("LD_LIBRARY_PATH").output().unwrap()
    };
    let output = step(home.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("make build"), "{}", text(&output.stderr));

    // One that does not start is told as well; a real one fails so without its libtorch.
    std::fs::create_dir(home.path().join("bin")).unwrap();
    let broken = home.path().join("bin/forestctl-step");
    std::fs::write(&broken, "#!/bin/sh\necho 'libtorch_cpu.so: not found' >&2\nexit 127\n")
        .unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&broken, executable).unwrap();
    let output = step(&home.path().join("bin"));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("libtorch_cpu.so") && stderr.contains("libtorch.sh"), "{stderr}");
}

/// A libtorch that is found and does not load.
#[test]
fn a_broken_libtorch_is_told() {
    let home = tempfile::tempdir().unwrap();
    build_rows(home.path());
    let policy = model("tiny-qwen3");
    let step = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forestctl"));
        command.args(["--jobs", "1", "step", "rows", "-o", "ckpt", "--model"]);
        command.arg(&policy).current_dir(home.path());
        command
    };
    let broken = home.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("libtorch_cpu.so"), "no library").unwrap();
    let output = step().env("LD_LIBRARY_PATH", &broken).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("libtorch_cpu.so") && stderr.contains("libtorch.sh"), "{stderr}");
    let output = step().output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// `forestctl` needs no libtorch, whatever features it was built with.
#[test]
fn the_main_program_links_no_libtorch() {
    let linked = |program: &str| {
        let output = Command::new("ldd").arg(program).output().unwrap();
        text(&output.stdout).contains("libtorch_cpu")
    };
    assert!(!linked(env!("CARGO_BIN_EXE_forestctl")));
    assert!(linked(env!("CARGO_BIN_EXE_forestctl-step")));
}
