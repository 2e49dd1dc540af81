//! Fingerprints, token entries, Gym stores, ledgers and the builder against the package's answers.

mod entries;
mod fingerprints;

use std::path::{Path, PathBuf};

use forestctl::wire::json::{Dialect, Json};

/// A path under `testdata/gym-0.7`.
fn gym(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/gym-0.7").join(path)
}

/// A fixture as exact JSON.
fn exact(path: &Path) -> Json {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Json::parse(&text, Dialect::Strict).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A fixture as serde_json.
fn value(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn list<'a>(json: &'a Json, key: &str) -> &'a [Json] {
    json.get(key).and_then(Json::as_list).unwrap_or_else(|| panic!("no list {key}"))
}

fn text<'a>(json: &'a Json, key: &str) -> &'a str {
    json.get(key).and_then(Json::as_str).unwrap_or_else(|| panic!("no string {key}"))
}
