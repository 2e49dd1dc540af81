//! An archive as bytes, to be damaged, with the digests that a careful forger would fix.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use forestctl::archive::{Archive, Group, Piece, PieceData, Quarantined};
use forestctl::error::Error;
use forestctl::finding::Severity;
use forestctl::validate::read_data::ReadData;
use forestctl::validate::{self, Cumulative, Options, Settings};
use safetensors::SafeTensors;
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
    /// Tensor data, or why it cannot be read.
    pub pieces: Vec<(Piece, Result<Vec<u8>, String>)>,
}

impl Decoded {
    pub fn of(archive: &Archive) -> forestctl::error::Result<Self> {
        let mut pieces = Vec::new();
        for file in archive.media_files() {
            let keep = |piece, data: PieceData<'_>| {
                pieces.push((piece, data.map(<[u8]>::to_vec).map_err(str::to_owned)));
            };
            archive.read_pieces(file, |_| true, keep).map_err(Error::format)?;
        }
        Ok(Self { groups: archive.groups()?, quarantine: archive.quarantine()?, pieces })
    }
}

/// What `validate --read-data` calls wrong in an archive; `None` when something of it cannot be
/// read.
pub fn errors(archive: &Archive) -> Option<Vec<String>> {
    let options = Options { cumulative: Cumulative::All };
    let read_data = Some(ReadData::ALL);
    let settings = Settings { options, read_data, ..Settings::default() };
    let (mut errors, mut read) = (Vec::new(), true);
    validate::archive(archive, &settings, |piece| {
        let wrong = piece.findings.into_iter().filter(|f| f.severity == Severity::Error);
        errors.extend(wrong.map(|finding| format!("{} {}", finding.code, finding.message)));
        read &= piece.unread.is_none();
        Ok(())
    })
    .unwrap();
    read.then_some(errors)
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

/// One rollout of the media fixtures with its tensors: image A, then A and B, then a rewrite to B
/// alone and its continuation.
pub fn with_media(home: &Path) {
    const SCOPE: &str = "rewrite_to_a_and_b";
    let from = Path::new("testdata/media/capture");
    fs::create_dir_all(home.join("media")).unwrap();
    for name in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl", "media.jsonl"] {
        let text = fs::read_to_string(from.join(name)).unwrap();
        let lines = text.lines().filter(|line| line.contains(&format!("\"{SCOPE}-0\"")));
        let lines: String = lines.map(|line| format!("{line}\n")).collect();
        assert!(!lines.is_empty(), "{name}");
        fs::write(home.join(name), lines).unwrap();
    }
    for part in ["part-0.safetensors", "part-1.safetensors"] {
        let bytes = fs::read(from.join("media").join(part)).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let mut kept = tensors.tensors();
        kept.retain(|(name, _)| name.starts_with(&format!("{SCOPE}.")));
        let bytes = safetensors::serialize(kept, None).unwrap();
        fs::write(home.join("media").join(part), bytes).unwrap();
    }
}

impl Sealed {
    /// The archive that `ingest` makes of a capture.
    pub fn of(capture: &Capture) -> Self {
        Self::of_folder(|home| capture.write(home))
    }

    /// The archive that `ingest` makes of what is written to a folder.
    pub fn of_folder(write: impl FnOnce(&Path)) -> Self {
        let home = tempfile::tempdir().unwrap();
        write(&home.path().join("captures"));
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
