//! Finds the files of the sources, and tells by name, then by first line, what each one holds.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::lines::{Blocks, document};
use super::quarantine::Rejected;
use super::recovery;
use crate::archive::SourceForm;
use crate::error::{Error, Result};
use crate::finding::Code;
use crate::wire::scan;

/// A file among the sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Name in the archive; see [`crate::archive::SourceFile::path`].
    pub name: String,
    /// Where to open it.
    pub path: PathBuf,
    /// What it holds.
    pub form: SourceForm,
    /// Size as stored.
    pub bytes: u64,
}

/// All files below `sources`, each once, in order of name. A source that is not there, but is
/// spelled as a glob, stands for the files that it matches.
pub(super) fn find(sources: &[PathBuf]) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for source in sources {
        for source in matches(source)? {
            let whole =
                fs::canonicalize(&source).map_err(|e| Error::io("cannot read", &source, e))?;
            let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
            walk(&whole, name, &mut seen, &mut found)?;
        }
    }
    found.sort();
    Ok(found)
}

/// The lines that came on stdin, kept in a file.
pub(super) fn stdin(path: &Path) -> Result<Found> {
    let bytes = fs::metadata(path).map_err(|e| Error::io("cannot read", path, e))?.len();
    let (name, form) = ("stdin".to_owned(), SourceForm::Stream);
    Ok(Found { name, path: path.to_owned(), form, bytes })
}

/// What a source stands for.
fn matches(source: &Path) -> Result<Vec<PathBuf>> {
    let pattern = source.to_string_lossy();
    if source.symlink_metadata().is_ok() || !pattern.contains(['*', '?', '[']) {
        return Ok(vec![source.to_owned()]);
    }
    let wrong = |what: String| {
        Error::usage(format!("{pattern}: {what}"))
            .help("`*` and `?` match within a name, `**` any folders, `[ab]` one of the characters")
    };
    let mut paths = Vec::new();
    for path in glob::glob(&pattern).map_err(|e| wrong(e.to_string()))? {
        paths.push(path.map_err(|e| {
            let path = e.path().to_owned();
            Error::io("cannot read", path, e.into())
        })?);
    }
    if paths.is_empty() {
        return Err(wrong("no file matches".to_owned()));
    }
    Ok(paths)
}

fn walk(
    path: &Path,
    name: String,
    seen: &mut BTreeSet<PathBuf>,
    found: &mut Vec<Found>,
) -> Result<()> {
    let failed = |e| Error::io("cannot read", path, e);
    let real = fs::canonicalize(path).map_err(failed)?;
    if !seen.insert(real) {
        return Ok(());
    }
    let meta = fs::metadata(path).map_err(failed)?;
    if meta.is_dir() {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            entries.push(entry.map_err(failed)?.file_name());
        }
        entries.sort();
        for entry in entries {
            let name = format!("{name}/{}", entry.to_string_lossy());
            walk(&path.join(&entry), name, seen, found)?;
        }
    } else {
        let form = if meta.is_file() { form(path)? } else { SourceForm::Ignored };
        found.push(Found { name, path: path.to_owned(), form, bytes: meta.len() });
    }
    Ok(())
}

/// File name without `.gz` or `.zst`.
pub(super) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name);
    name.to_owned()
}

fn form(path: &Path) -> Result<SourceForm> {
    let name = stem(path);
    let parent = path.parent().and_then(Path::file_name).unwrap_or_default();
    Ok(match name.rsplit_once('.') {
        _ if recovery::is_named(&name) => SourceForm::Recovery,
        _ if name.ends_with(".tokens.jsonl") => SourceForm::Store,
        _ if [".tokens.intents", ".tokens.incomplete", ".tokens.state.json", ".tokens.lock"]
            .iter()
            .any(|end| name.ends_with(end)) =>
        {
            SourceForm::StoreSibling
        }
        _ if name.ends_with(".lineage.jsonl") => SourceForm::Lineage,
        _ if name.ends_with(".capture.jsonl") => SourceForm::Ignored,
        Some((_, "safetensors")) if parent == "media" => SourceForm::MediaTensors,
        Some((start, "jsonl")) if start.starts_with("staged") => SourceForm::Staged,
        Some((start, "jsonl")) if start.starts_with("receipts") => SourceForm::Receipts,
        Some((start, "jsonl")) if start.starts_with("rollouts") => SourceForm::Rollouts,
        Some((start, "jsonl")) if start.starts_with("media") => SourceForm::Media,
        Some((_, "jsonl")) => by_first_line(path)?,
        Some((_, "json")) => by_document(path)?,
        _ => SourceForm::Ignored,
    })
}

/// A capture may begin with a broken line.
pub(super) const LINES_TO_TRY: usize = 16;

fn by_first_line(path: &Path) -> Result<SourceForm> {
    let Some(block) = Blocks::open(path)?.next() else {
        return Ok(SourceForm::Ignored);
    };
    let form = block.lines().take(LINES_TO_TRY).find_map(|line| {
        let members = scan::members(line.bytes)?;
        let keys: Vec<&[u8]> = members.iter().map(|(key, _)| *key).collect();
        match kind(&members) {
            Some(_) => Some(SourceForm::Stream),
            None => by_keys(&keys).or((!keys.is_empty()).then_some(SourceForm::Ignored)),
        }
    });
    Ok(form.unwrap_or(SourceForm::Ignored))
}

fn by_keys(keys: &[&[u8]]) -> Option<SourceForm> {
    let has = |key: &str| keys.contains(&key.as_bytes());
    Some(if has("token_ids_delta") {
        SourceForm::Staged
    } else if has("manifest") {
        SourceForm::Receipts
    } else if has("prompt_token_ids") && has("generation_token_ids") && has("model_call_id") {
        SourceForm::Store
    } else if has("media_metadata_digest") {
        SourceForm::Media
    } else if has("response") || (has("group_id") && has("capture_key")) {
        SourceForm::Rollouts
    } else if has("model_calls") {
        SourceForm::Trace
    } else {
        return None;
    })
}

/// The member of a line of a stream that tells what it is.
const KIND: &[u8] = b"kind";

/// What a `kind` may say.
const KINDS: [(&str, SourceForm); 5] = [
    ("staged", SourceForm::Staged),
    ("receipt", SourceForm::Receipts),
    ("rollout", SourceForm::Rollouts),
    ("media", SourceForm::Media),
    ("entry", SourceForm::Store),
];

fn kind(members: &[(&[u8], &[u8])]) -> Option<SourceForm> {
    let (_, value) = members.iter().find(|(key, _)| *key == KIND)?;
    let word = scan::plain_string(value)?;
    KINDS.iter().find(|(kind, _)| *kind == word).map(|(_, form)| *form)
}

/// What a line of a stream is, and the line without its `kind`. A line without one is told by
/// its keys.
pub(super) fn line(line: &[u8]) -> Result<(SourceForm, Cow<'_, [u8]>), Rejected> {
    let malformed = |message: String| Err(Rejected::new(Code::MalformedRecord, message));
    let Some(members) = scan::members(line) else {
        return Err(Rejected::new(Code::MalformedJson, "the line is not a JSON object"));
    };
    let Some(at) = members.iter().position(|(key, _)| *key == KIND) else {
        let keys: Vec<&[u8]> = members.iter().map(|(key, _)| *key).collect();
        let form = by_keys(&keys).filter(|form| KINDS.iter().any(|(_, known)| known == form));
        return match form {
            Some(form) => Ok((form, Cow::Borrowed(line))),
            None => malformed("the line has no kind, and its keys tell of none".to_owned()),
        };
    };
    let Some(form) = kind(&members) else {
        let kinds: Vec<_> = KINDS.iter().map(|(kind, _)| *kind).collect();
        let found = String::from_utf8_lossy(members[at].1).into_owned();
        return malformed(format!("kind {found} is none of {}", kinds.join(", ")));
    };
    let rest: Vec<Vec<u8>> = members
        .iter()
        .filter(|(key, _)| *key != KIND)
        .map(|(key, value)| [b"\"", *key, b"\":", *value].concat())
        .collect();
    Ok((form, Cow::Owned([b"{".as_slice(), &rest.join(&b','), b"}"].concat())))
}

/// A whole JSON document is a capture only as a trace; it may be spread over many lines.
fn by_document(path: &Path) -> Result<SourceForm> {
    #[derive(Deserialize)]
    struct Trace {
        #[serde(rename = "model_calls")]
        _calls: IgnoredAny,
        #[serde(rename = "rollout_id")]
        _id: IgnoredAny,
    }
    let trace = document(path)?.is_ok_and(|text| serde_json::from_str::<Trace>(&text).is_ok());
    Ok(if trace { SourceForm::Trace } else { SourceForm::Ignored })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_stream_says_what_it_is() {
        let (form, rest) = line(br#"{"kind": "receipt", "manifest": [], "a": 1.0}"#).unwrap();
        assert_eq!((form, &*rest), (SourceForm::Receipts, &br#"{"manifest":[],"a":1.0}"#[..]));
        let plain = br#"{"manifest": []}"#;
        let (form, rest) = line(plain).unwrap();
        assert_eq!((form, &*rest), (SourceForm::Receipts, &plain[..]));
        for wrong in [&br#"{"kind":"x"}"#[..], br#"{"kind":1}"#, b"{}", br#"{"model_calls":[]}"#] {
            assert_eq!(line(wrong).unwrap_err().code, Code::MalformedRecord);
        }
        assert_eq!(line(b"[").unwrap_err().code, Code::MalformedJson);
    }

    #[test]
    fn a_capture_may_begin_with_a_long_broken_line() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("capture.jsonl");
        let broken = format!("{{\"token_ids_delta\":[{}\n", "1,".repeat(1 << 20));
        fs::write(&path, broken + "{\"token_ids_delta\":[]}\n").unwrap();
        assert_eq!(form(&path).unwrap(), SourceForm::Staged);
    }

    #[test]
    fn globs_stand_for_files_and_files_for_themselves() {
        let home = tempfile::tempdir().unwrap();
        for name in ["a1.jsonl", "a2.jsonl", "b.jsonl", "[x].jsonl"] {
            fs::write(home.path().join(name), "").unwrap();
        }
        let count = |pattern: &str| find(&[home.path().join(pattern)]).map(|found| found.len());
        assert_eq!(count("a*.jsonl").unwrap(), 2);
        assert_eq!(count("?.jsonl").unwrap(), 1);
        assert_eq!(count("[x].jsonl").unwrap(), 1);
        assert!(count("z*").unwrap_err().to_string().contains("no file matches"));
        assert!(count("a***").is_err() && count("absent").is_err());
    }
}
