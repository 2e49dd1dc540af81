//! Which parts of an archive that is being written are done, so that a killed run can be gone on
//! with.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::content::Known;
use super::manifest::{FileEntry, FormatVersion, PartCounts};
use super::read;
use super::write::SCRATCH;
use crate::error::{Error, Result};
use crate::id::Digest32;
use crate::output::{self, AtomicDir};

/// Name of the journal within a draft; no archive has it.
const JOURNAL: &str = "journal.jsonl";

/// A part that is on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Written {
    pub number: u64,
    /// Groups of the sequence that are in this part or an earlier one.
    pub end: usize,
    /// Groups since the part before that gave findings or quarantined lines.
    pub remarked: Vec<usize>,
    /// Rollouts that the existing archive lacks.
    pub added: u64,
    pub counts: PartCounts,
    pub files: Vec<FileEntry>,
    /// Read from the table of rollouts.
    #[serde(skip)]
    pub known: Vec<Known>,
}

/// What a journal belongs to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    format: FormatVersion,
    tool: String,
    sequence: Digest32,
    /// Digest of the manifest of the archive that is added to.
    target: Option<String>,
}

/// The journal of a draft.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// Opens the journal of `draft` and returns the parts that are whole. Of a journal that
    /// belongs to something else nothing is left in the draft.
    pub fn open(
        draft: &AtomicDir,
        sequence: Digest32,
        target: Option<&str>,
    ) -> Result<(Self, Vec<Written>)> {
        let dir = draft.path();
        let head = Head {
            format: FormatVersion::current(),
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            sequence,
            target: target.map(str::to_owned),
        };
        let written = written(dir, &head);
        if written.is_empty() {
            draft.clear(SCRATCH)?;
        }
        let path = dir.join(JOURNAL);
        let failed = |e| Error::io("cannot write", &path, e);
        let mut journal = Self { file: File::create(&path).map_err(failed)? };
        journal.lines(&[head]).and_then(|()| journal.lines(&written)).map_err(failed)?;
        Ok((journal, written))
    }

    /// Notes parts down once all of them are on disk.
    pub fn add(&mut self, dir: &Path, parts: &[Written]) -> Result<()> {
        let files = parts.iter().flat_map(|part| &part.files);
        output::sync(&files.map(|file| dir.join(&file.path)).collect::<Vec<_>>())?;
        self.lines(parts).map_err(|e| Error::io("cannot write", dir.join(JOURNAL), e))
    }

    /// Removes the journal of a draft that is done.
    pub fn remove(dir: &Path) -> Result<()> {
        let path = dir.join(JOURNAL);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("cannot remove", path, e))
            }
            _ => Ok(()),
        }
    }

    fn lines(&mut self, values: &[impl Serialize]) -> std::io::Result<()> {
        let mut text = Vec::new();
        for value in values {
            serde_json::to_writer(&mut text, value)?;
            text.push(b'\n');
        }
        match text.is_empty() {
            true => Ok(()),
            false => self.file.write_all(&text).and_then(|()| self.file.sync_data()),
        }
    }
}

/// The parts that the journal in `dir` lists and that are as it says; none when it is another's.
fn written(dir: &Path, head: &Head) -> Vec<Written> {
    let Ok(text) = fs::read_to_string(dir.join(JOURNAL)) else { return Vec::new() };
    let mut lines = text.lines();
    if lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok()).as_ref() != Some(head)
    {
        return Vec::new();
    }
    let whole = |line| {
        let mut part: Written = serde_json::from_str(line).ok()?;
        let whole = |file: &FileEntry| read::checked(dir, file).is_ok();
        if !part.files.iter().all(whole) {
            return None;
        }
        part.known = read::known_in(dir, &part.files, part.number).ok()?;
        Some(part)
    };
    lines.map_while(whole).collect()
}
