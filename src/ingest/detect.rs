//! Finds the files of the sources, and tells by name, then by first line, what each one holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::lines::{Lines, document};
use super::recovery;
use super::rollouts::without_nan;
use crate::archive::SourceForm;
use crate::error::{Error, Result};

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

/// All files below `sources`, each once, in order of name.
pub(super) fn find(sources: &[PathBuf]) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for source in sources {
        let whole = fs::canonicalize(source).map_err(|e| Error::io("cannot read", source, e))?;
        let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
        walk(&whole, name, &mut seen, &mut found)?;
    }
    found.sort();
    Ok(found)
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
const LINES_TO_TRY: usize = 16;

fn by_first_line(path: &Path) -> Result<SourceForm> {
    type Keys = BTreeMap<String, IgnoredAny>;
    let keys = Lines::open(path)?
        .take(LINES_TO_TRY)
        .find_map(|(_, line)| serde_json::from_str::<Keys>(&without_nan(&line.ok()?)).ok())
        .unwrap_or_default();
    let has = |key| keys.contains_key(key);
    Ok(if has("token_ids_delta") {
        SourceForm::Staged
    } else if has("manifest") {
        SourceForm::Receipts
    } else if has("prompt_token_ids") && has("generation_token_ids") && has("model_call_id") {
        SourceForm::Store
    } else if has("response") || (has("group_id") && has("capture_key")) {
        SourceForm::Rollouts
    } else if has("model_calls") {
        SourceForm::Trace
    } else {
        SourceForm::Ignored
    })
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
