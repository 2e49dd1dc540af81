//! Sources by list, and lines of any kind in one stream.

use std::io::Write;
use std::process::{Command, Stdio};

use forestctl::archive::Archive;

use super::*;

/// Runs `ingest` with `input` on stdin; exit code and stderr.
fn ingest_with(args: &[&str], input: &[u8]) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_forestctl"))
        .arg("ingest")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Lines of seed1 with their kind, first or last in the object, or without.
fn stream(form: &str) -> String {
    let mut lines = Vec::new();
    for (name, kind) in [("rollouts", "rollout"), ("staged", "staged"), ("receipts", "receipt")] {
        let text = fs::read_to_string(format!("{SEED1}/{form}/{name}.jsonl")).unwrap();
        for (at, line) in text.lines().enumerate() {
            lines.push(match at % 3 {
                0 => line.replacen('{', &format!("{{\"kind\": \"{kind}\", "), 1),
                1 => format!("{} , \"kind\":\"{kind}\" }}", line.strip_suffix('}').unwrap()),
                _ => line.to_owned(),
            });
        }
    }
    lines.join("\n")
}

#[test]
fn a_stream_of_all_kinds_is_the_capture_that_its_lines_are() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("run.forest");
    let output = target.to_str().unwrap();
    let text = stream("staged-v2");
    let zst = zstd::encode_all(text.as_bytes(), 1).unwrap();
    for input in [text.as_bytes(), &zst] {
        let (code, err) = ingest_with(&["-", "-o", output, "--force"], input);
        assert_eq!((code, err.as_str()), (0, ""));
        let archive = Archive::open(&target).unwrap();
        let groups = archive.groups().unwrap();
        assert_eq!(without_origins(groups), without_origins(seed1("staged-v2").groups));
        let [source] = &archive.manifest().sources[..] else { panic!() };
        assert_eq!((source.path.as_str(), source.form), ("stdin", SourceForm::Stream));
    }
    // The same in a file, whatever its name.
    fs::write(home.path().join("all.jsonl"), &text).unwrap();
    let read = read(&[&home.path().join("all.jsonl")]);
    assert_eq!(without_origins(read.groups), without_origins(seed1("staged-v2").groups));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
}

#[test]
fn entries_of_a_store_in_a_stream_are_calls_of_unknown_completeness() {
    let store = seed1("gym-store");
    let text = fs::read_to_string(format!("{SEED1}/gym-store/0-1.tokens.jsonl")).unwrap();
    let lines = text.lines().map(|line| line.replacen('{', "{\"kind\":\"entry\",", 1));
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("entries.jsonl");
    fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let ingested = read(&[&path]);
    let (found, expected) = (rollout(&ingested, "0-1"), rollout(&store, "0-1"));
    assert_eq!(found.completeness, Completeness::Unknown);
    assert_eq!(expected.completeness, Completeness::Complete);
    let plain = |calls: &[Call]| -> Vec<Call> {
        calls.iter().map(|call| Call { origin: Origin::default(), ..call.clone() }).collect()
    };
    assert_eq!(plain(&found.calls), plain(&expected.calls));
    let lines: Vec<u64> = found.calls.iter().map(|call| call.origin.line).collect();
    assert!(lines.iter().all(|line| (1..=text.lines().count() as u64).contains(line)));
}

#[test]
fn lines_of_no_kind_are_set_aside_with_their_number() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("all.jsonl");
    let text = [&stream("staged-v2"), "{\"kind\":\"ledger\"}", "{\"a\":1}", "no"].join("\n");
    fs::write(&path, &text).unwrap();
    let ingested = read(&[&path]);
    let last = text.lines().count() as u64;
    assert_eq!(
        quarantined(&ingested),
        [
            (Some(last - 2), Code::MalformedRecord),
            (Some(last - 1), Code::MalformedRecord),
            (Some(last), Code::MalformedJson),
        ]
    );
    assert!(ingested.quarantine[0].message.contains("staged, receipt, rollout, media, entry"));
}

#[test]
fn sources_come_from_a_list_too() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("run.forest");
    let output = target.to_str().unwrap();
    let list = ["staged.jsonl", "receipts.jsonl", "", "rollouts.jsonl"]
        .map(
            |name| {
                if name.is_empty() { String::new() } else { format!("{SEED1}/staged-v2/{name}") }
            },
        )
        .join("\n");
    let file = home.path().join("list");
    fs::write(&file, &list).unwrap();
    for args in [["--files-from", file.to_str().unwrap()], ["--files-from", "-"]] {
        let args = [&args[..], &["-o", output, "--force"]].concat();
        let (code, err) = ingest_with(&args, list.as_bytes());
        assert_eq!((code, err.as_str()), (0, ""));
        let groups = Archive::open(&target).unwrap().groups().unwrap();
        assert_eq!(without_origins(groups), without_origins(seed1("staged-v2").groups));
    }
    let (code, err) = ingest_with(&["--files-from", "-", "-o", output], b"");
    assert!(code == 4 && err.contains("no source is named"), "{err}");
    let (code, err) = ingest_with(&["--files-from", "-", "-", "-o", output], b"");
    assert!(code == 2 && err.contains("both a source"), "{err}");
    let (code, err) = ingest_with(&["-o", output], b"");
    assert!(code == 2 && err.contains("<SOURCE>"), "{err}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
}
