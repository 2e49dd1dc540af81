//! The command.

use std::fs;
use std::path::Path;

use super::SEED1;

/// Runs the program; exit code, stdout, stderr.
fn forestctl(args: &[&str]) -> (i32, String, String) {
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_forestctl")).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_command_says_what_it_wrote_and_what_it_could_not_read() {
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("captures");
    fs::create_dir(&source).unwrap();
    for name in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl"] {
        fs::copy(format!("{SEED1}/staged-v2/{name}"), source.join(name)).unwrap();
    }
    fs::write(source.join("README.md"), "").unwrap();
    let (source, output) = (source.to_str().unwrap(), home.path().join("run.forest"));
    let output = output.to_str().unwrap();

    let (code, out, err) = forestctl(&["ingest", source, "-o", output]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("24 rollouts in 6 prompt groups") && out.contains("94 calls"), "{out}");
    assert!(err.contains("captures/README.md: no capture"), "{err}");
    let (code, out, _) = forestctl(&["ingest", source, "-o", output]);
    assert!(code == 0 && out.contains("unchanged"), "{out}");

    fs::write(Path::new(source).join("staged-2.jsonl"), "{\n").unwrap();
    let (code, out, _) = forestctl(&["ingest", source, "-o", output]);
    assert!(code == 1 && out.contains("quarantine added"), "{out}");
    assert!(out.contains("1 line in quarantine (malformed_json 1)"), "{out}");
    let rollouts = Path::new(source).join("rollouts.jsonl");
    let text = fs::read_to_string(&rollouts).unwrap();
    fs::write(&rollouts, text.replacen("\"reward\":0.25", "\"reward\":0.75", 1)).unwrap();
    let (code, out, err) = forestctl(&["ingest", source, "-o", output]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("already holds rollout p01_g0") && err.contains("--force"), "{err}");
    fs::write(&rollouts, text).unwrap();
    let (code, out, _) = forestctl(&["ingest", source, "-o", output, "--force"]);
    assert!(code == 1 && out.contains("1 line in quarantine (malformed_json 1)"), "{out}");

    let json = ["ingest", source, "-o", output, "--force", "--format", "json"];
    let (code, out, _) = forestctl(&json);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["schema_version"]), (1, &serde_json::json!(1)));
    assert_eq!(report["quarantined_by_code"], serde_json::json!({"malformed_json": 1}));
    assert_eq!((&report["calls"], report["sources"].as_array().unwrap().len()), (&94.into(), 5));
    let (_, out, _) = forestctl(&["ingest", source, "-o", output, "--force", "--format", "jsonl"]);
    let kinds: Vec<_> = out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["kind"].clone())
        .collect();
    assert_eq!(kinds, ["archive", "source", "source", "source", "source", "source", "quarantined"]);
    let (_, out, _) = forestctl(&["ingest", source, "-o", output, "--force", "--format", "csv"]);
    assert!(out.starts_with("schema_version,archive,") && out.lines().count() == 2, "{out}");

    let (code, _, err) =
        forestctl(&["ingest", home.path().join("none").to_str().unwrap(), "-o", "x"]);
    assert!(code == 2 && err.contains("cannot read"), "{err}");
}
