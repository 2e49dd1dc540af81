//! The bytes of a rows directory, through the binary.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use forestctl::archive::{self, Archive, Ingested, SourceKind};
use serde_json::Value;

use super::forests::{Answer, CallPlan, Captures, Ids, Link, RolloutPlan};
use super::large::scrambled;
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

fn ingested(source: &Path, jobs: &str) -> String {
    let archive = format!("{}.forest", source.display());
    forestctl(&["ingest", source.to_str().unwrap(), "-o", &archive, "-j", jobs, "--quiet"]);
    archive
}

/// A store of several parts, with work for many threads: on a small one there is one thread.
fn large(home: &Path) -> String {
    let call = |i: u32| CallPlan {
        link: Link::Any(scrambled(i)),
        carry: vec![i; 3],
        generation: (0..400)
            .map(|at| 400 * i + at)
            .map(|n| (scrambled(n), -(scrambled(n) as f32)))
            .collect(),
        answer: Answer::Message,
        text: 0,
        observed: true,
        accepted: scrambled(i).is_multiple_of(2),
        turn: 0,
        commit: scrambled(i) as u16,
    };
    let rollout = |n: u32| RolloutPlan {
        ids: Ids::Native,
        reward: f64::from(n % 3),
        scored: 0,
        calls: (0..6).map(|i| call(6 * n + i)).collect(),
    };
    let plans: Vec<Vec<RolloutPlan>> =
        (0..30).map(|group| vec![rollout(2 * group), rollout(2 * group + 1)]).collect();
    let mut groups = Captures::of(&plans).groups;
    for rollout in groups.iter_mut().flat_map(|group| &mut group.rollouts) {
        rollout.source = SourceKind::GymStore;
        rollout.calls.iter_mut().for_each(|call| call.weight_version = None);
    }
    for group in [5, 6, 20] {
        let result = groups[group].rollouts[0].result.as_mut().unwrap();
        result.insert_str(1, &format!("\"note\":\"{}\",", "x".repeat(9 << 20)));
    }
    let path = home.join("large.forest");
    archive::write(&path, false, &Ingested { groups, ..Ingested::default() }).unwrap();
    let written = Archive::open(&path).unwrap();
    let bytes: u64 = (0..written.part_count()).map(|part| written.part_bytes(part)).sum();
    assert!(written.part_count() > 2 && bytes > 1 << 20, "{} {bytes}", written.part_count());
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_number_of_threads_changes_no_byte_of_the_rows() {
    let home = tempfile::tempdir().unwrap();
    let archive = large(home.path());
    for policy in ["returned_history", "all_captured"] {
        let wanted = rows(&archive, policy, "1");
        for jobs in ["2", "7"] {
            assert!(rows(&archive, policy, jobs) == wanted, "{policy} -j{jobs}");
        }
    }
}

#[test]
fn the_order_of_lines_changes_no_byte_of_the_rows() {
    let home = tempfile::tempdir().unwrap();
    let archives = [(1, "1"), (2, "2"), (3, "7")]
        .map(|(seed, jobs)| ingested(&shuffled(home.path(), seed, |_, line| line), jobs));
    for policy in ["returned_history", "all_captured"] {
        let [wanted, found @ ..] = &archives.each_ref().map(|archive| rows(archive, policy, "2"));
        assert!(found.iter().all(|rows| rows == wanted), "{policy}");
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
    let plain = ingested(&shuffled(home.path(), 1, |_, line| line), "2");
    let other = ingested(&shuffled(home.path(), 2, reordered), "2");
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
