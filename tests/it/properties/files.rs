//! The bytes of a rows directory, through the binary.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::order::shuffle;

const FILES: [&str; 3] = ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl"];

fn forestctl(args: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_forestctl")).args(args).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {complaint}");
}

/// Lines of the fixture in another order, those of every file spread over two files.
fn shuffled(home: &Path, seed: u64, mut change: impl FnMut(&str, String) -> String) -> PathBuf {
    let source = home.join(format!("captures-{seed}"));
    fs::create_dir(&source).unwrap();
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/closed-loop/seed1/staged-v2");
    for name in FILES {
        let text = fs::read_to_string(fixture.join(name)).unwrap();
        let mut lines: Vec<String> =
            text.lines().map(|line| change(name, line.to_owned())).collect();
        shuffle(&mut lines, seed);
        let (some, rest) = lines.split_at(lines.len() / 3);
        fs::write(source.join(name), some.join("\n")).unwrap();
        fs::write(source.join(name.replace(".jsonl", ".1.jsonl")), rest.join("\n")).unwrap();
    }
    source
}

/// Files of the rows of `archive`, by path.
fn rows(archive: &str, policy: &str, jobs: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let output = format!("{archive}.{policy}.rows-{jobs}");
    let packing = ["--sequence-packing", "--pack-tokens", "4096", "--packer", "first_fit_shuffle"];
    let mut args = vec!["build-rows", archive, "-o", &output, "--policy", policy, "-j", jobs];
    args.extend(["--data-parallel", "2"]);
    args.extend(packing);
    forestctl(&args);
    let mut files = BTreeMap::new();
    let mut folders = vec![PathBuf::from(&output)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let bytes = fs::read(&path).unwrap();
                    files.insert(path.strip_prefix(&output).unwrap().to_owned(), bytes);
                }
            }
        }
    }
    assert!(files.contains_key(Path::new("rows.json")) && files.len() > 1);
    files
}

fn archive(source: &Path, jobs: &str) -> String {
    let archive = format!("{}.forest", source.display());
    forestctl(&["ingest", source.to_str().unwrap(), "-o", &archive, "-j", jobs, "--quiet"]);
    archive
}

#[test]
fn neither_the_order_of_lines_nor_threads_change_a_byte_of_the_rows() {
    let home = tempfile::tempdir().unwrap();
    let archives = [(1, "1"), (2, "2"), (3, "7")]
        .map(|(seed, jobs)| archive(&shuffled(home.path(), seed, |_, line| line), jobs));
    for policy in ["returned_history", "all_captured"] {
        let wanted = rows(&archives[0], policy, "1");
        for (archive, jobs) in
            [(&archives[0], "2"), (&archives[0], "7"), (&archives[1], "2"), (&archives[2], "7")]
        {
            assert!(rows(archive, policy, jobs) == wanted, "{policy} {archive} -j{jobs}");
        }
    }
}

/// Under `returned_history` the order of completion is no evidence (rule 66); only the digest of
/// the archive, which keeps that order, tells.
#[test]
fn the_order_of_completion_changes_no_row_on_disk() {
    let home = tempfile::tempdir().unwrap();
    let reordered = |name: &str, line: String| {
        if name != "receipts.jsonl" {
            return line;
        }
        let mut receipt: Value = serde_json::from_str(&line).unwrap();
        shuffle(receipt["manifest"].as_array_mut().unwrap(), 11);
        receipt.to_string()
    };
    let plain = archive(&shuffled(home.path(), 1, |_, line| line), "2");
    let other = archive(&shuffled(home.path(), 2, reordered), "2");
    let [mut found, mut wanted] =
        [other, plain].map(|archive| rows(&archive, "returned_history", "2"));
    let manifest = |files: &mut BTreeMap<PathBuf, Vec<u8>>| {
        let bytes = files.remove(Path::new("rows.json")).unwrap();
        let mut manifest: Value = serde_json::from_slice(&bytes).unwrap();
        manifest.as_object_mut().unwrap().remove("blake3").unwrap();
        let archive = manifest["provenance"]["archive"].take();
        (manifest, archive)
    };
    let ((found_manifest, other), (manifest, plain)) =
        (manifest(&mut found), manifest(&mut wanted));
    assert_ne!(other, plain);
    assert_eq!(found_manifest, manifest);
    assert!(found == wanted);
}
