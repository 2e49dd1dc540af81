//! Fingerprints, token entries, Gym stores, ledgers and the builder against the package's answers.

#![allow(clippy::unwrap_used)]

mod attribution;
mod builder;
mod entries;
mod fingerprints;
mod ledgers;
mod public;
mod replay;
mod stores;

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

/// Every case of the index that is this module's is one that a test here runs: files are read
/// case by case with their counts asserted, folders are listed from disk.
#[test]
fn the_index_holds_no_other_case() {
    let index = value(&gym("index.json"));
    let mut found = std::collections::BTreeMap::new();
    for case in index["cases"].as_array().unwrap() {
        let path = case["path"].as_str().unwrap();
        let group = case["group"].as_str().unwrap();
        let part = match group {
            "fingerprints" | "builder" => group,
            "store" | "server" => {
                let name = path.rsplit('/').next().unwrap();
                assert!(cases(group).iter().any(|folder| folder == name), "{path}");
                group
            }
            "terminal" if path.contains("#attribute[") => "terminal attribute",
            "lineage" if path.contains("resolve.json") => "lineage resolve",
            "lineage" => {
                let name = path.rsplit('/').next().unwrap();
                assert!(cases("lineage/ledger").iter().any(|folder| folder == name), "{path}");
                "lineage ledger"
            }
            "models" if path.contains("TokenEntry") => "models TokenEntry",
            _ => continue,
        };
        *found.entry(part).or_insert(0) += 1;
    }
    let expected = [
        ("builder", 48),
        ("fingerprints", 2),
        ("lineage ledger", 20),
        ("lineage resolve", 23),
        ("models TokenEntry", 1),
        ("server", 19),
        ("store", 30),
        ("terminal attribute", 33),
    ];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
}

/// A fixture as serde_json.
fn value(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Case folders of a group, sorted.
fn cases(group: &str) -> Vec<String> {
    let folders = std::fs::read_dir(gym(group)).unwrap_or_else(|e| panic!("{group}: {e}"));
    let mut names: Vec<String> =
        folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn list<'a>(json: &'a Json, key: &str) -> &'a [Json] {
    json.get(key).and_then(Json::as_list).unwrap_or_else(|| panic!("no list {key}"))
}

fn text<'a>(json: &'a Json, key: &str) -> &'a str {
    json.get(key).and_then(Json::as_str).unwrap_or_else(|| panic!("no string {key}"))
}

/// Builder metrics under the package's keys.
fn to_json(metrics: &forestctl::wire::builder::Metrics) -> serde_json::Value {
    use serde_json::json;
    let mut out = json!({"n_calls": metrics.n_calls});
    if let Some(found) = &metrics.attribution {
        let method = if found.method.is_empty() { "none" } else { found.method };
        out["terminal_attribution"] = json!({"method": method, "call_id": found.model_call_id,
            "reason": found.reason, "chain": metrics.terminal_chain});
    }
    if let Some(build) = &metrics.build {
        out["chains"] = json!(build.chains.len());
        out["roots"] = json!(build.roots);
        out["quarantined_calls"] = json!(build.quarantined.len());
        out["quarantined_fraction"] = json!(metrics.quarantined_fraction());
        out["delivered_fraction"] = json!(build.delivered_fraction());
        out["generated_tokens_captured"] = json!(build.generated_tokens_captured);
        out["generated_tokens_delivered"] = json!(build.generated_tokens_delivered);
        out["parent_link_failures"] = json!(build.parent_link_failures);
        out["unresolved_parent_calls"] = json!(build.unresolved_parent_calls.len());
        out["empty_generation_calls"] = json!(build.empty_generation_calls.len());
    }
    if metrics.capture_incomplete {
        out["capture_incomplete"] = json!(true);
    }
    out
}
