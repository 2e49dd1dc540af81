//! What other versions wrote is refused: with the version found, the versions read, and what to do.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::capture::{Capture, sorted};
use super::document;
use super::store::{Store, ledger};

/// The one refusal among the findings of an archive of `home/captures`.
fn refusal(home: &Path, code: &str) -> Value {
    document(home, &["ingest", "captures", "-o", "run.forest"], &[1]);
    let report = document(home, &["validate", "run.forest"], &[1]);
    let findings = report["findings"].as_array().unwrap();
    let found: Vec<_> = findings.iter().filter(|finding| finding["code"] == code).collect();
    assert_eq!(found.len(), 1, "{code}: {report:#}");
    found[0].clone()
}

/// Refuses one captured pair after `change`; message, line and help are checked.
fn refused(schema: u64, code: &str, message: &str, help: &str, change: fn(&mut Capture)) {
    let home = tempfile::tempdir().unwrap();
    let mut capture = Capture::pair(schema);
    change(&mut capture);
    capture.write(&home.path().join("captures"));
    let finding = refusal(home.path(), code);
    assert_eq!(finding["message"], message);
    assert_eq!(finding["severity"], "error");
    assert!(finding["help"].as_str().unwrap().contains(help), "{finding:#}");
    assert!(finding["location"]["line"].is_u64(), "{finding:#}");
}

#[test]
fn records_and_receipts_of_another_schema() {
    let message = |found: &str| {
        format!(
            "schema_version: found schema {found}; schema 2 with rollout_id and schema 3 with \
             capture_key are read"
        )
    };
    let help = "no migration of staged checkpoints: capture again";
    for schema in [2, 3] {
        let message = message("4");
        let code = "unsupported_schema";
        refused(schema, code, &message, help, |c| c.record("b")["schema_version"] = json!(4));
        refused(schema, code, &message, help, |c| c.receipt()["schema_version"] = json!(4));
    }
    refused(2, "unsupported_schema", &message("1"), help, |c| {
        c.record("b")["schema_version"] = json!(1);
    });
}

#[test]
fn records_and_receipts_of_another_digest() {
    for (field, code, found, read) in [
        ("digest_version", "unsupported_digest", 3, 2),
        ("extras_digest_version", "unsupported_extras_digest", 2, 1),
    ] {
        let message = format!("{field}: found version {found}; version {read} is read");
        for change in [
            |c: &mut Capture, field: &str, found: u64| c.record("b")[field] = json!(found),
            |c: &mut Capture, field: &str, found: u64| c.receipt()[field] = json!(found),
        ] {
            let home = tempfile::tempdir().unwrap();
            let mut capture = Capture::pair(2);
            change(&mut capture, field, found);
            capture.write(&home.path().join("captures"));
            let finding = refusal(home.path(), code);
            assert_eq!(finding["message"], message.as_str());
            assert!(finding["help"].as_str().unwrap().contains("Capture again"), "{finding:#}");
        }
    }
}

const FINGERPRINT: &str = "found version 3; version 2, and 0 for none, are read";

#[test]
fn receipts_ledgers_and_entries_of_another_fingerprint() {
    let code = "unsupported_fingerprint";
    let help = "forestctl reads fingerprint version 2";
    let message = format!("manifest[1].fingerprint_version: {FINGERPRINT}");
    for schema in [2, 3] {
        refused(schema, code, &message, help, |c| c.row("b")["fingerprint_version"] = json!(3));
    }

    let home = tempfile::tempdir().unwrap();
    let mut capture = Capture::pair(2);
    let mut rows = ledger(&capture.receipts.remove(0));
    rows[1]["fingerprint_version"] = json!(3);
    write_ledger(&mut capture, &rows, home.path());
    let finding = refusal(home.path(), code);
    assert_eq!(finding["message"], format!("records[1].fingerprint_version: {FINGERPRINT}"));

    let home = tempfile::tempdir().unwrap();
    let mut store = Store::pair();
    store.entry("b")["fingerprint_version"] = json!(3);
    store.index();
    store.write(&home.path().join("captures"));
    let finding = refusal(home.path(), code);
    assert_eq!(finding["message"], format!("fingerprint_version: {FINGERPRINT}"));
    assert_eq!(finding["location"]["line"], 2);
}

fn write_ledger(capture: &mut Capture, rows: &[Value], home: &Path) {
    let text: String = rows.iter().map(|row| format!("{}\n", sorted(row))).collect();
    capture.files.insert("0-0.lineage.jsonl".to_owned(), text.into_bytes());
    capture.write(&home.join("captures"));
}

#[test]
fn ledgers_that_persisted_replay_items() {
    let message = |field: &str| {
        format!("{field}: found a ReplayContext with its items; a ReplaySummary is read")
    };
    let items = json!({ "items": [{ "role": "user", "content": "x" }] });
    for key in ["replay", "replay_context"] {
        let home = tempfile::tempdir().unwrap();
        let mut capture = Capture::pair(3);
        capture.row("b")[key] = items.clone();
        capture.write(&home.path().join("captures"));
        let finding = refusal(home.path(), "unsupported_replay");
        assert_eq!(finding["message"], message(&format!("manifest[1].{key}.items")));
        assert!(finding["help"].as_str().unwrap().contains("no migration"), "{finding:#}");

        let home = tempfile::tempdir().unwrap();
        let mut capture = Capture::pair(2);
        let mut rows = ledger(&capture.receipts.remove(0));
        rows[1][key] = items.clone();
        write_ledger(&mut capture, &rows, home.path());
        let finding = refusal(home.path(), "unsupported_replay");
        let told = finding["message"].as_str().unwrap();
        assert!(told.contains("line 2") && told.ends_with(&message(&format!("{key}.items"))));
    }
    // The summary that took its place is read.
    let home = tempfile::tempdir().unwrap();
    let mut capture = Capture::pair(3);
    capture.row("b")["replay"] = json!({
        "normalization_version": 1, "item_count": 2, "source_digest": "0".repeat(64),
        "render_digest": null,
    });
    capture.write(&home.path().join("captures"));
    document(home.path(), &["ingest", "captures", "-o", "run.forest"], &[0]);
    document(home.path(), &["validate", "run.forest"], &[0]);
}

/// `pickle.dumps({"schema_version": VERSION, "groups": []}, 2)` of Python.
fn pickled(version: u8) -> Vec<u8> {
    let mut bytes = b"\x80\x02}q\x00(X\x0e\x00\x00\x00schema_versionq\x01K".to_vec();
    bytes.push(version);
    bytes.extend(b"X\x06\x00\x00\x00groupsq\x02]q\x03u.");
    bytes
}

/// A zip as `torch.save` lays it out: members stored, `data.pkl` first, aligned by an extra field,
/// its sizes in a descriptor behind it.
fn saved(pickle: &[u8]) -> Vec<u8> {
    let mut zip = b"PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00".to_vec();
    zip.extend([0; 8]);
    let (name, extra) = (b"archive/data.pkl", b"FB\x04\x00ZZZZ");
    for length in [name.len(), extra.len()] {
        zip.extend((length as u16).to_le_bytes());
    }
    zip.extend(name);
    zip.extend(extra);
    zip.extend(pickle);
    zip.extend(b"PK\x07\x08");
    zip
}

#[test]
fn recovery_checkpoints_by_name_and_schema() {
    let old = "runs resume from schema 5, and there is no migration; ";
    let json = |version: u8| format!("{{\"groups\":[],\"schema_version\":{version}}}").into_bytes();
    let cases: [(&str, Vec<u8>, &str, &str); 8] = [
        ("rollout_recovery.pt", saved(&pickled(3)), "of schema 3", old),
        ("rollout_recovery.pt", saved(&pickled(4)), "of schema 4", old),
        ("rollout_recovery.pt", pickled(2), "of schema 2", old),
        ("rollout_recovery_step_10.pt", saved(&pickled(5)), "of schema 5", ""),
        ("rollout_recovery.json", json(4), "of schema 4", old),
        ("rollout_recovery", json(2), "of schema 2", old),
        ("rollout_recovery.pt", Vec::new(), "that does not tell its schema", old),
        ("rollout_recovery.pt", vec![0xff; 100], "that does not tell its schema", old),
    ];
    for (name, bytes, schema, resumed) in cases {
        let home = tempfile::tempdir().unwrap();
        let mut capture = Capture::pair(2);
        capture.files.insert(name.to_owned(), bytes);
        capture.write(&home.path().join("captures"));
        let finding = refusal(home.path(), "unsupported_recovery");
        let message = format!(
            "found a recovery checkpoint {schema}; {resumed}captures of schema 2 and 3 are read"
        );
        assert_eq!(finding["message"], message, "{name}");
        assert_eq!(finding["location"]["file"], format!("captures/{name}"));
        assert!(finding["help"].as_str().unwrap().starts_with("Leave the file out"));
        // What lies beside it is read all the same.
        let selected = document(home.path(), &["select", "run.forest"], &[0]);
        assert_eq!(selected["rollouts"][0]["verdict"], "valid");
    }
    // Alone, it is refused as well, and not called nothing.
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("captures")).unwrap();
    fs::write(home.path().join("captures/rollout_recovery.pt"), saved(&pickled(4))).unwrap();
    refusal(home.path(), "unsupported_recovery");
}
