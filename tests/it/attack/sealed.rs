//! An archive as bytes, to be damaged, with the digests that a careful forger would fix.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use forestctl::archive::{Archive, Group, Quarantined};
use serde_json::{Value, json};

use super::capture::Capture;
use super::{document, forestctl};

/// Files of an archive by path.
#[derive(Clone)]
pub struct Sealed(pub BTreeMap<String, Vec<u8>>);

/// Everything that an archive gives: its groups and its quarantine.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    pub groups: Vec<Group>,
    pub quarantine: Vec<Quarantined>,
}

impl Decoded {
    pub fn of(archive: &Archive) -> forestctl::error::Result<Self> {
        Ok(Self { groups: archive.groups()?, quarantine: archive.quarantine()? })
    }
}

/// A capture with something of everything that an archive of staged records holds: two rollouts,
/// a branch, a retry, routes and other extras, odd columns, pending and failed calls, media flags,
/// lines in quarantine.
pub fn rich() -> Capture {
    let mut capture = Capture::of(2, 2);
    capture.call("a", None, &[1, 2], &[3, 4]);
    capture.call("b", Some("a"), &[5], &[6, 7]);
    capture.call("c", Some("a"), &[8], &[9]);
    capture.reject("c");
    capture.ended("c", Some("incomplete"), Some("length"));
    capture.score("b");
    // A sign that carry-then-generation cannot express.
    capture.record("a")["token_mask_delta"][0] = json!(-0.0);
    capture.forge("a");
    for (call, extras) in [
        ("b", json!({ "routed_experts": "nrlre1:int8:3x1x1:AQID", "x": [1.5, null, "é"] })),
        ("c", json!({})),
    ] {
        let digest = super::capture::extras_digest(&extras);
        let record = capture.record(call);
        record["extras"] = extras;
        record["extras_digest"] = json!(digest);
        capture.forge(call);
    }
    capture.media.push(json!({
        "rollout_id": "0-0", "model_call_id": "a", "media_present": false,
        "media_has_frames": false,
        "media_metadata_digest": "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b",
    }));
    capture.scope(1, 2);
    capture.call("d", None, &[1, 2], &[10]);
    capture.call("e", Some("d"), &[11], &[12]);
    capture.lose("e");
    capture.reject("e");
    capture.score("d");
    capture.receipts[1]["pending_call_ids"] = json!(["e"]);
    capture.receipts[1]["failures"] =
        json!([{ "model_call_id": "d", "reason": "worker_capture_failed" }]);
    capture.files.insert("staged-2.jsonl".to_owned(), b"{\n{}\n".to_vec());
    capture
}

impl Sealed {
    /// The archive that `ingest` makes of a capture.
    pub fn of(capture: &Capture) -> Self {
        let home = tempfile::tempdir().unwrap();
        capture.write(&home.path().join("captures"));
        document(home.path(), &["ingest", "captures", "-o", "run.forest"], &[0, 1]);
        Self::read(&home.path().join("run.forest"))
    }

    /// The files of the archive at `dir`.
    pub fn read(dir: &Path) -> Self {
        fn walk(dir: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
                match entry.file_type().unwrap().is_dir() {
                    true => walk(&entry.path(), &format!("{name}/"), files),
                    false => drop(files.insert(name, fs::read(entry.path()).unwrap())),
                }
            }
        }
        let mut files = BTreeMap::new();
        walk(dir, "", &mut files);
        Self(files)
    }

    /// Writes all files below `dir`.
    pub fn write(&self, dir: &Path) {
        for (name, bytes) in &self.0 {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    /// Bytes of all files.
    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Puts `bytes` in the place of a file, and lets the manifest list them.
    pub fn forge(&mut self, name: &str, bytes: Vec<u8>) {
        let before = self.0.insert(name.to_owned(), bytes).unwrap();
        let after = &self.0[name];
        let hex = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
        let (old, new) = ((before.len(), hex(&before)), (after.len(), hex(after)));
        self.forge_manifest(|manifest| {
            let entry = manifest.find(&format!("\"path\": \"{name}\"")).unwrap();
            let (head, tail) = manifest.split_at(entry);
            let tail = tail
                .replacen(&format!("\"bytes\": {},", old.0), &format!("\"bytes\": {},", new.0), 1)
                .replacen(&old.1, &new.1, 1);
            format!("{head}{tail}")
        });
    }

    /// Changes the text of the manifest and fixes the digest that it carries of itself, as
    /// docs/format.md describes them.
    pub fn forge_manifest(&mut self, change: impl FnOnce(&str) -> String) {
        let before = String::from_utf8(self.0["archive.json"].clone()).unwrap();
        let text = change(&before);
        let at = text.rfind("\"blake3\": \"").unwrap();
        let bare = format!("{}\"blake3\": \"\"\n}}", &text[..at]);
        let digest = blake3::hash(bare.as_bytes()).to_hex();
        let text = format!("{}\"blake3\": \"{digest}\"\n}}\n", &text[..at]);
        self.0.insert("archive.json".to_owned(), text.into_bytes());
    }

    /// Runs `validate` on it: exit code and findings.
    pub fn validate(&self) -> (i32, Vec<Value>) {
        let home = tempfile::tempdir().unwrap();
        self.write(&home.path().join("run.forest"));
        let output = forestctl(home.path(), &["validate", "run.forest", "--format", "json"]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let findings = document["findings"].as_array().cloned();
        (super::code(&output), findings.unwrap_or_default())
    }
}
