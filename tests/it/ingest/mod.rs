//! Sources to groups.

mod append;
mod command;
mod gym_store;
mod inline;
mod staged;
mod stream;

use std::fs;
use std::path::{Path, PathBuf};

use forestctl::archive::{Call, Completeness, Group, Origin, Rollout, SourceForm};
use forestctl::finding::Code;
use forestctl::ingest::{self, Ingested};

const SEED1: &str = "testdata/closed-loop/seed1";

fn read(sources: &[&Path]) -> Ingested {
    let sources: Vec<PathBuf> = sources.iter().map(|p| p.to_path_buf()).collect();
    ingest::read(&sources).unwrap()
}

fn seed1(form: &str) -> Ingested {
    read(&[&Path::new(SEED1).join(form)])
}

fn rollouts(ingested: &Ingested) -> impl Iterator<Item = &Rollout> {
    ingested.groups.iter().flat_map(|group| &group.rollouts)
}

fn rollout<'a>(ingested: &'a Ingested, capture_key: &str) -> &'a Rollout {
    rollouts(ingested).find(|r| r.capture_key.as_str() == capture_key).unwrap()
}

/// The groups without the one thing that tells how lines were spread over files.
fn without_origins(mut groups: Vec<Group>) -> Vec<Group> {
    for call in groups.iter_mut().flat_map(|g| &mut g.rollouts).flat_map(|r| &mut r.calls) {
        call.origin = Origin::default();
    }
    groups
}

fn json(path: impl AsRef<Path>) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Writes lines of seed1's staged-v2 after `change`, and reads them.
fn changed(file: &str, change: impl FnOnce(&mut Vec<String>)) -> Ingested {
    let home = tempfile::tempdir().unwrap();
    for name in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl"] {
        fs::copy(format!("{SEED1}/staged-v2/{name}"), home.path().join(name)).unwrap();
    }
    let path = home.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(&path, lines.join("\n")).unwrap();
    read(&[home.path()])
}

fn quarantined(ingested: &Ingested) -> Vec<(Option<u64>, Code)> {
    ingested.quarantine.iter().map(|q| (q.line, q.code)).collect()
}
