//! Through the binary: what only a process shows.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn captures() -> PathBuf {
    root().join("testdata/closed-loop/seed1/staged-v2")
}

fn forestctl(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forestctl"));
    command.args(args).env_remove("NO_COLOR");
    command
}

fn run(args: &[&str]) -> Output {
    forestctl(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A folder with an archive of seed1 in it.
fn archive() -> (tempfile::TempDir, String) {
    let home = tempfile::tempdir().unwrap();
    let archive = home.path().join("run.forest").to_str().unwrap().to_owned();
    let output = run(&["ingest", captures().to_str().unwrap(), "-o", &archive, "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty());
    (home, archive)
}

#[test]
fn json_outputs_match_their_schemas() {
    let (home, archive) = archive();
    let other = home.path().join("again").to_str().unwrap().to_owned();
    let rows = home.path().join("rows").to_str().unwrap().to_owned();
    let captures = captures().to_str().unwrap().to_owned();
    for args in [
        vec!["ingest", &captures, "-o", &other],
        vec!["validate", &archive],
        vec!["select", &archive],
        vec!["select", &archive, "--policy", "all_captured"],
        vec!["build-rows", &archive, "-o", &rows, "--data-parallel", "4"],
        vec!["du", &archive, "--by", "rollout", "--ranks", "2"],
        vec!["du", &rows],
    ] {
        let output = forestctl(&args).args(["--format", "json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let schema = fs::read(root().join(format!("schemas/{}.json", args[0]))).unwrap();
        let schema: Value = serde_json::from_slice(&schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let wrong: Vec<_> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
        assert!(wrong.is_empty(), "{args:?}: {wrong:?}");
        assert!(!validator.is_valid(&serde_json::json!({})), "{args:?}: the schema says nothing");
    }
}

#[test]
fn a_reader_that_goes_away_is_success() {
    let (_home, archive) = archive();
    let mut child = forestctl(&["validate", &archive])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{complaint}");
    assert_eq!(complaint, "");
}

#[test]
fn verbose_tells_what_is_read_on_stderr_alone() {
    let (home, _) = archive();
    let other = home.path().join("again").to_str().unwrap().to_owned();
    let args = ["ingest", captures().to_str().unwrap(), "-o", &other, "-v", "--format", "json"]
        .map(str::to_owned);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = run(&args);
    assert!(text(&output.stderr).contains("staged-v2/staged.jsonl is read as Staged"));
    serde_json::from_slice::<Value>(&output.stdout).unwrap();
}

#[test]
fn colour_is_asked_for_or_absent() {
    let (_home, archive) = archive();
    let escapes = |args: &[&str], no_color: bool| {
        let mut command = forestctl(args);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        text(&command.output().unwrap().stdout).contains('\u{1b}')
    };
    assert!(!escapes(&["select", &archive], false), "a pipe is no terminal");
    assert!(escapes(&["select", &archive, "--color", "always"], false));
    assert!(!escapes(&["select", &archive, "--color", "auto"], true));
}

#[test]
fn control_characters_of_a_capture_do_not_reach_the_terminal() {
    let home = tempfile::tempdir().unwrap();
    for name in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl"] {
        let lines = fs::read_to_string(captures().join(name)).unwrap();
        fs::write(home.path().join(name), lines.replace("p05_g0", "p05\\u001b[2J_g0")).unwrap();
    }
    let archive = home.path().join("a").to_str().unwrap().to_owned();
    run(&["ingest", home.path().to_str().unwrap(), "-o", &archive]);
    for command in ["validate", "select", "ls", "show", "why"] {
        let named = if matches!(command, "show" | "why") { &["p05\u{1b}"][..] } else { &[] };
        let output = run(&[&[command, &archive], named].concat());
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(shown.contains("p05\\u{1b}[2J_g0"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}

#[test]
fn errors_say_what_to_do_in_json_too() {
    let (home, archive) = archive();
    let never = home.path().join("never").to_str().unwrap().to_owned();
    for (args, code, words) in [
        (
            vec!["validate", "/nowhere"],
            2,
            vec!["error: cannot read /nowhere/archive.json", "help: "],
        ),
        (
            vec!["build-rows", &archive, "-o", &archive, "--force"],
            2,
            vec!["holds no rows.json", "help: "],
        ),
        (
            vec!["build-rows", &archive, "-o", "x", "--data-parallel", "4000000000"],
            2,
            vec!["16384 rows"],
        ),
        (vec!["select", &archive, "--policy", "returned_histroy"], 2, vec!["returned_history"]),
        (vec!["ingest", "/dev/null", "-o", &never], 4, vec!["is not a capture", "help: "]),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        let complaint = text(&output.stderr);
        for word in words {
            assert!(complaint.contains(word), "{args:?}: {complaint}");
        }
    }
    let output = run(&["validate", "/nowhere", "--format", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["error"]["exit_code"], 2);
    assert!(document["error"]["help"].is_string());
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let lines = fs::read_to_string(captures().join("staged.jsonl")).unwrap();
    let mut big = fs::File::create(home.path().join("staged.jsonl")).unwrap();
    for _ in 0..600 {
        big.write_all(lines.as_bytes()).unwrap();
    }
    let output = home.path().join("out/run.forest");
    let mut child =
        forestctl(&["ingest", home.path().to_str().unwrap(), "-o", output.to_str().unwrap()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let left = fs::read_dir(home.path().join("out")).map_or(0, Iterator::count);
    assert_eq!(left, 0);
}

#[test]
fn doctor_names_what_is_missing_and_the_command_that_mends_it() {
    let run = |path: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_forestctl"))
            .args(["doctor", "--format", "json"])
            .env("PATH", path)
            .output()
            .unwrap();
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (document["checks"].as_array().unwrap().clone(), output.status.code())
    };
    let (checks, code) = run("/nowhere");
    let of = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap();
    assert_eq!(of("forestctl")["found"], env!("CARGO_PKG_VERSION"));
    assert_eq!(of("selectors")["state"], "missing");
    assert!(of("selectors")["help"].as_str().unwrap().contains("--selector-python"));
    assert_eq!(of("cuda")["state"], "absent");
    assert_eq!(code, Some(1));
    // Whatever is missing says what to do.
    for check in &checks {
        assert_eq!(check["state"] == "missing", check["help"].is_string(), "{check}");
    }
    if cfg!(not(feature = "torch")) && !of("learner")["state"].as_str().unwrap().eq("fine") {
        assert!(of("learner")["help"].as_str().unwrap().contains("make build"));
    }
    let path = std::env::var("PATH").unwrap();
    let (checks, _) = run(&path);
    let python = checks.iter().find(|check| check["name"] == "selectors").unwrap();
    assert!(python["found"].as_str().unwrap().starts_with("Python 3"), "{python}");
}

#[test]
fn doctor_looks_for_every_part_that_a_gpu_needs() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let smi = home.path().join("nvidia-smi");
    fs::write(&smi, "#!/bin/sh\necho 'Some GPU, 100 MiB'\n").unwrap();
    fs::set_permissions(&smi, fs::Permissions::from_mode(0o755)).unwrap();
    let states = || {
        let output = Command::new(env!("CARGO_BIN_EXE_forestctl"))
            .args(["doctor", "--format", "json"])
            .env("PATH", home.path())
            .env("LD_LIBRARY_PATH", home.path())
            .output()
            .unwrap();
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = document["checks"].as_array().unwrap().clone();
        let state = |name: &str| {
            let check = checks.iter().find(|check| check["name"] == name)?;
            Some(check["state"].as_str()?.to_owned())
        };
        (state("cuda"), state("cuda compiler"))
    };
    let state = |word: &str| Some(word.to_owned());
    assert_eq!(states(), (state("missing"), None));
    fs::write(home.path().join("libtorch_cuda.so"), "").unwrap();
    assert_eq!(states(), (state("fine"), state("missing")));
    fs::write(home.path().join("libcaffe2_nvrtc.so"), "").unwrap();
    assert_eq!(states(), (state("fine"), state("fine")));
}
