//! What `docs/format.md` promises of versions: another major one is refused before anything else,
//! a newer minor one is read without what is new in it, and not added to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow::array::UInt32Array;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use forestctl::archive::{self, Archive, Ingested, SourceForm, Writer};
use forestctl::error::Kind;
use forestctl::finding::Code;
use forestctl::ingest;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use crate::reader;

const SEED1: &str = "testdata/closed-loop/seed1";

/// A folder with sources, one line of them broken, and their archive.
fn archived() -> (tempfile::TempDir, Ingested, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let sources = home.path().join("captures");
    fs::create_dir(&sources).unwrap();
    for name in ["staged.jsonl", "receipts.jsonl", "rollouts.jsonl"] {
        let mut text = fs::read_to_string(format!("{SEED1}/staged-v2/{name}")).unwrap();
        if name == "staged.jsonl" {
            text.push_str("{\"rollout_id\":\n");
        }
        fs::write(sources.join(name), text).unwrap();
    }
    let ingested = ingest::read(&[sources]).unwrap();
    assert_eq!(ingested.quarantine.len(), 1);
    let path = home.path().join("run.forest");
    archive::write(&path, false, &ingested).unwrap();
    (home, ingested, path)
}

/// Rewrites the manifest after `change`, with sizes and digests of the files as they are.
fn sign(dir: &Path, change: impl FnOnce(&mut Value)) {
    let path = dir.join("archive.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut manifest);
    for file in manifest["files"].as_array_mut().unwrap() {
        let bytes = fs::read(dir.join(file["path"].as_str().unwrap())).unwrap();
        file["bytes"] = bytes.len().into();
        file["blake3"] = blake3::hash(&bytes).to_hex().as_str().into();
    }
    manifest.as_object_mut().unwrap().remove("blake3");
    let text = serde_json::to_string_pretty(&manifest).unwrap();
    let start = format!("{},\n  \"blake3\": ", text.strip_suffix("\n}").unwrap());
    let digest = blake3::hash(format!("{start}\"\"\n}}").as_bytes()).to_hex();
    fs::write(path, format!("{start}\"{digest}\"\n}}\n")).unwrap();
}

/// Rewrites a table.
fn rewrite(path: &Path, change: impl Fn(&RecordBatch) -> RecordBatch) {
    let bytes = bytes::Bytes::from(fs::read(path).unwrap());
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
    let batches: Vec<_> = reader.map(|batch| change(&batch.unwrap())).collect();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batches[0].schema(), None).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
}

/// With one column more, and not as the last one.
fn widened(batch: &RecordBatch) -> RecordBatch {
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    let mut columns = batch.columns().to_vec();
    fields.insert(2, Arc::new(Field::new("novel", DataType::UInt32, true)));
    columns.insert(2, Arc::new(UInt32Array::from(vec![Some(7); batch.num_rows()])) as Arc<_>);
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// Makes an archive look like one of format 2.7.
fn renew(dir: &Path) {
    for table in ["calls", "ledger", "origins", "rollouts"] {
        rewrite(&dir.join(table).join("part-00000.parquet"), widened);
    }
    let quarantine = dir.join("quarantine.jsonl");
    let mut line: Value = serde_json::from_slice(&fs::read(&quarantine).unwrap()).unwrap();
    line["code"] = "a_word_of_tomorrow".into();
    line["novel"] = json!([1]);
    fs::write(&quarantine, format!("{line}\n")).unwrap();
    fs::create_dir(dir.join("novel")).unwrap();
    fs::write(dir.join("novel/part-00000.parquet"), "of no known kind").unwrap();
    sign(dir, |manifest| {
        manifest["format"]["minor"] = 7.into();
        for at in ["/format", "/tool", "/parts/0", "/counts", "/files/0", "/sources/0", ""] {
            manifest.pointer_mut(at).unwrap()["novel"] = json!({"of": "tomorrow"});
        }
        manifest["sources"][0]["form"] = "a_form_of_tomorrow".into();
        let files = manifest["files"].as_array_mut().unwrap();
        files.push(json!({"path": "novel/part-00000.parquet", "rows": 3}));
        files.sort_by_key(|file| file["path"].as_str().unwrap().to_owned());
    });
}

#[test]
fn a_newer_minor_version_is_read_without_what_is_new_in_it() {
    let (home, ingested, path) = archived();
    renew(&path);
    let archive = Archive::open(&path).unwrap();
    assert_eq!(archive.manifest().format.minor, 7);
    assert!(archive.groups().unwrap() == ingested.groups);
    assert_eq!(archive.check_files(), []);
    let quarantine = archive.quarantine().unwrap();
    assert_eq!(quarantine.len(), 1);
    let (found, expected) = (&quarantine[0], &ingested.quarantine[0]);
    assert_eq!((found.code, &found.message), (Code::UnknownCode, &expected.message));
    let forms: Vec<_> = archive.manifest().sources.iter().map(|source| source.form).collect();
    assert_eq!(forms, [SourceForm::Ignored, SourceForm::Rollouts, SourceForm::Staged]);
    if reader::python().is_some() {
        let read = reader::run("read_archive.py", &path, &[]).unwrap();
        assert_eq!((&read["calls"], &read["rollouts"]), (&json!(94), &json!(24)));
    }
    drop(home);
}

/// What is new would be lost.
#[test]
fn a_newer_minor_version_is_not_added_to() {
    let (home, ingested, path) = archived();
    renew(&path);
    let before = fs::read(path.join("archive.json")).unwrap();
    let refused = archive::write(&path, false, &ingested).unwrap_err();
    assert_eq!(refused.kind(), Kind::Format);
    let told = refused.to_string();
    assert!(told.contains("format 2.7") && told.contains("writes 2.0"), "{told}");
    assert!(refused.advice().unwrap().contains("newer forestctl"));
    assert_eq!(fs::read(path.join("archive.json")).unwrap(), before);
    assert!(!archive::write(&path, true, &ingested).unwrap().unchanged);
    assert_eq!(Archive::open(&path).unwrap().manifest().format.minor, 0);
    drop(home);
}

#[test]
fn a_column_that_is_missing_is_named() {
    let (home, _, path) = archived();
    rewrite(&path.join("calls/part-00000.parquet"), |batch| {
        let kept: Vec<usize> = (0..batch.num_columns())
            .filter(|&at| batch.schema().field(at).name() != "cum_len")
            .collect();
        batch.project(&kept).unwrap()
    });
    sign(&path, |_| {});
    let told = Archive::open(&path).unwrap().groups().unwrap_err().to_string();
    assert!(told.contains("calls/part-00000.parquet") && told.contains("cum_len"), "{told}");
    drop(home);
}

/// Manifests of other major versions, with nothing in common but `format`.
const OTHERS: [(&str, &str, &str); 2] = [
    (
        r#"{"blake3": [3], "files": "elsewhere", "format": {"major": 3, "minor": 4, "name":
            "forestctl-archive", "codec": {}}, "parts": {}}"#,
        "archive format 3.4; this forestctl reads 2.x",
        "newer forestctl",
    ),
    (
        r#"{"format": {"name": "forestctl-archive", "major": 1, "minor": 0}, "tool": {"name":
            "forestctl", "version": "0.1.0"}, "parts": 1, "counts": {"groups": 6}, "files": [],
            "sources": [], "content": "00", "blake3": "11"}"#,
        "archive format 1.0; this forestctl reads 2.x",
        "Ingest the sources again",
    ),
];

#[test]
fn another_major_version_is_refused_before_anything_else_is_read() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run.forest");
    fs::create_dir(&path).unwrap();
    for (manifest, told, help) in OTHERS {
        fs::write(path.join("archive.json"), manifest).unwrap();
        for refused in [Archive::open(&path).unwrap_err(), Writer::open(&path, false).unwrap_err()]
        {
            assert_eq!((refused.kind(), refused.to_string().as_str()), (Kind::Format, told));
            assert!(refused.advice().unwrap().contains(help), "{:?}", refused.advice());
        }
        if reader::python().is_some() {
            let refused = reader::run("read_archive.py", &path, &[]).unwrap_err();
            let found = told.split(';').next().unwrap();
            assert!(refused.contains(found) && refused.contains("reads 2.x"), "{refused}");
        }
    }
}

#[test]
fn every_command_says_which_version_it_reads_and_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run.forest");
    fs::create_dir(&path).unwrap();
    let (archive, rows) = (path.to_str().unwrap(), home.path().join("rows"));
    let source = format!("{SEED1}/gym-store");
    let commands = [
        vec!["validate", archive],
        vec!["select", archive],
        vec!["build-rows", archive, "-o", rows.to_str().unwrap()],
        vec!["ingest", &source, "-o", archive],
    ];
    for (manifest, told, help) in OTHERS {
        fs::write(path.join("archive.json"), manifest).unwrap();
        for command in &commands {
            let output =
                Command::new(env!("CARGO_BIN_EXE_forestctl")).args(command).output().unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{command:?}: {stderr}");
            assert!(stderr.contains(told) && stderr.contains(help), "{command:?}: {stderr}");
        }
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    // What the help says works.
    let ingest = [&commands[3][..], &["--force", "--quiet"]].concat();
    let status = Command::new(env!("CARGO_BIN_EXE_forestctl")).args(ingest).status().unwrap();
    assert!(status.success());
    assert_eq!(Archive::open(&path).unwrap().manifest().format.major, 2);
}
