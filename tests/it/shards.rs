//! Shards of a batch, and batches whose groups lie in an archive out of order.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use forestctl::config::GrpoSettings;
use forestctl::rows::{RowsDir, build, read};
use forestctl::select::PolicyName;

use crate::closed_loop::{groups, selected};

const SEED1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/closed-loop/seed1/staged-v2");

fn run(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_forestctl")).args(args).output().unwrap()
}

fn succeed(args: &[&str]) {
    let output = run(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn archive(home: &Path) -> PathBuf {
    let archive = home.join("run.forest");
    succeed(&["ingest", SEED1, "-o", text(&archive)]);
    archive
}

fn rows(archive: &Path, name: &str, more: &[&str]) -> RowsDir {
    let target = archive.with_file_name(name);
    succeed(&[&["build-rows", text(archive), "-o", text(&target)], more].concat());
    read(&target).unwrap()
}

#[test]
fn the_union_of_all_shards_is_the_whole_batch() {
    let home = tempfile::tempdir().unwrap();
    let archive = archive(home.path());
    let args = ["--policy", "all_captured", "--data-parallel", "2", "--train-micro-batch", "2"];
    let whole = rows(&archive, "whole", &args);
    let kept = whole.manifest.groups.len();
    assert!(kept >= 3);
    for count in 1..=kept {
        let shards: Vec<RowsDir> = (1..=count)
            .map(|index| {
                let shard = format!("{index}/{count}");
                let args = [&args[..], &["--shard", &shard]].concat();
                rows(&archive, &format!("shard-{index}-of-{count}"), &args)
            })
            .collect();
        let mut union: Vec<_> = shards.iter().flat_map(|shard| shard.rows.clone()).collect();
        union.sort_by_key(|row| whole.rows.iter().position(|r| r.row_id == row.row_id));
        assert_eq!(union, whole.rows);
        for shard in &shards {
            // Counts and metrics are those of the whole batch.
            assert_eq!(shard.manifest.counts, whole.manifest.counts);
            assert_eq!(shard.manifest.metrics, whole.manifest.metrics);
            assert_eq!(shard.manifest.masked, whole.manifest.masked);
            assert_eq!(shard.manifest.provenance, whole.manifest.provenance);
            assert!(!shard.rows.is_empty());
        }
        let own = |f: fn(&RowsDir) -> u64| shards.iter().map(f).sum::<u64>();
        let counts = whole.manifest.counts;
        assert_eq!(own(|s| s.manifest.own_counts().rows), counts.rows);
        assert_eq!(own(|s| s.manifest.own_counts().loss_tokens), counts.loss_tokens);
        assert_eq!(own(|s| s.manifest.own_counts().rollouts), counts.rollouts);
        assert_eq!(own(|s| s.manifest.own_counts().dropped_groups), counts.dropped_groups);
        // A prompt group is in one shard alone.
        let mut seen = BTreeSet::new();
        for shard in &shards {
            for group in &shard.manifest.groups {
                assert!(seen.insert(&group.group_id), "{}", group.group_id);
            }
        }
    }
    let none = run(&[
        "build-rows",
        text(&archive),
        "-o",
        text(&home.path().join("none")),
        "--shard",
        "40/40",
    ]);
    assert_eq!(none.status.code(), Some(4), "{}", String::from_utf8_lossy(&none.stderr));
    assert!(!home.path().join("none").exists());
}

#[test]
fn groups_of_an_archive_that_was_added_to_come_in_order_of_their_ids() {
    let home = tempfile::tempdir().unwrap();
    let whole = rows(&archive(home.path()), "whole", &[]);
    // Every other group first, then the rest, so that no part follows on the one before.
    let grown = home.path().join("grown.forest");
    for parity in [1, 0] {
        let source = home.path().join(format!("source-{parity}"));
        std::fs::create_dir(&source).unwrap();
        for file in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl"] {
            std::fs::copy(Path::new(SEED1).join(file), source.join(file)).unwrap();
        }
        let ids: BTreeSet<String> = groups("staged-v2")
            .iter()
            .enumerate()
            .filter(|(at, _)| at % 2 == parity)
            .flat_map(|(_, group)| group.rollouts.iter().map(|r| r.capture_key.to_string()))
            .collect();
        for file in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl"] {
            let path = source.join(file);
            let kept: Vec<String> = std::fs::read_to_string(&path)
                .unwrap()
                .lines()
                .filter(|line| {
                    let line: serde_json::Value = serde_json::from_str(line).unwrap();
                    let manifest = &line["manifest"];
                    let scope =
                        [&line["capture_key"], &line["rollout_id"], &manifest["rollout_id"]]
                            .into_iter()
                            .find_map(|id| id.as_str())
                            .unwrap();
                    ids.contains(scope)
                })
                .map(|line| format!("{line}\n"))
                .collect();
            assert!(!kept.is_empty());
            std::fs::write(&path, kept.concat()).unwrap();
        }
        succeed(&["ingest", text(&source), "-o", text(&grown)]);
    }
    let back = rows(&grown, "back", &[]);
    assert_eq!(back.rows, whole.rows);
    let mut manifest = back.manifest;
    manifest.provenance.archive = whole.manifest.provenance.archive;
    assert_eq!(manifest, whole.manifest);
    for part in &whole.manifest.parts {
        let bytes = |name: &str| std::fs::read(home.path().join(name).join(&part.path)).unwrap();
        assert!(bytes("whole") == bytes("back"), "{}", part.path);
    }
}

#[test]
fn the_command_writes_what_the_library_builds() {
    let home = tempfile::tempdir().unwrap();
    let dir = rows(&archive(home.path()), "rows", &["--data-parallel", "4"]);
    let groups = groups("staged-v2");
    let selection = selected(&groups, PolicyName::ReturnedHistory);
    let built = build(&groups, &selection, 4, &GrpoSettings::default());
    assert_eq!(dir.rows, built.rows);
    assert_eq!(dir.manifest.counts, built.counts);
    assert_eq!(dir.manifest.lengths, built.lengths);
    // Rule 128, from the lengths themselves.
    let metric = |name: &str| dir.manifest.metrics[name];
    let lengths: Vec<u64> = built.lengths.iter().map(|l| l.gen_tokens_per_sample).collect();
    assert_eq!(metric("gen_tokens_per_sample/max"), *lengths.iter().max().unwrap() as f64);
    let mean = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
    assert!((metric("gen_tokens_per_sample/mean") - mean).abs() < 1e-9);
    let not_closed = selection.groups.iter().flat_map(|g| &g.rollouts).filter(|rollout| {
        rollout.reasons.iter().any(|r| r.code.as_str() == "selection_not_closed")
    });
    let counted = metric("finalize/selection_not_closed_rollouts");
    assert!(counted > 0.0);
    assert_eq!(counted, not_closed.count() as f64);
    assert_eq!(metric("dropped_prompt_groups"), built.counts.dropped_groups as f64);
}

#[test]
fn drops_beyond_their_budget_stop_the_batch() {
    let home = tempfile::tempdir().unwrap();
    let archive = archive(home.path());
    let dropped = rows(&archive, "rows", &[]).manifest.counts.dropped_groups;
    assert!(dropped >= 1);
    let stop = |flag: &str, most: u64| {
        let target = home.path().join(format!("stopped-{most}{flag}"));
        let output =
            run(&["build-rows", text(&archive), "-o", text(&target), flag, &most.to_string()]);
        assert_eq!(output.status.success(), target.exists());
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for flag in ["--max-skipped-prompts", "--max-consecutive-dropped-prompts"] {
        let (code, told) = stop(flag, 0);
        assert_eq!(code, 4, "{told}");
        assert!(told.contains(flag) && told.contains("allows 0"), "{told}");
    }
    assert_eq!(stop("--max-skipped-prompts", dropped).0, 0);
}
