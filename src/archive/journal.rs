//! Which parts of an archive that is being written are done, so that a killed run can be gone on
//! with.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::content::Known;
use super::manifest::{FileEntry, FormatVersion, PartCounts};
use super::write::SCRATCH;
use super::{part, read};
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

/// The journal of a draft. It is kept by a thread of its own, since waiting for the disk is most
/// of the work.
#[derive(Debug)]
pub(super) struct Journal {
    notes: Option<Sender<Note>>,
    keeper: Option<JoinHandle<Result<()>>>,
}

/// A line that may be written once `files` are on disk.
#[derive(Debug)]
struct Note {
    files: Vec<PathBuf>,
    line: Vec<u8>,
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
        let mut text = part::lines(&[head])?;
        text.extend(part::lines(&written)?);
        let path = dir.join(JOURNAL);
        let failed = |e| Error::io("cannot write", &path, e);
        let mut file = File::create(&path).map_err(failed)?;
        write(&mut file, &text).map_err(failed)?;
        let (sender, notes) = channel();
        let draft = dir.to_owned();
        let keep = move || keep(file, &draft, notes);
        let keeper = std::thread::Builder::new().name("journal".to_owned()).spawn(keep);
        let keeper = keeper.map_err(|e| Error::format("cannot start a thread").because(e))?;
        Ok((Self { notes: Some(sender), keeper: Some(keeper) }, written))
    }

    /// Has a part noted down once it is on disk. From then on an interrupt leaves the draft.
    ///
    /// # Errors
    ///
    /// Failures to sync or write this part or earlier ones.
    pub fn add(&mut self, dir: &Path, part: &Written) -> Result<()> {
        let files = part.files.iter().map(|file| dir.join(&file.path)).collect();
        let note = Note { files, line: part::lines(std::slice::from_ref(part))? };
        let sent = self.notes.as_ref().map(|notes| notes.send(note));
        // Nobody listens after a failure.
        if matches!(sent, Some(Err(_))) { self.close() } else { Ok(()) }
    }

    /// Waits until everything is noted down.
    ///
    /// # Errors
    ///
    /// As [`Journal::add`].
    pub fn close(&mut self) -> Result<()> {
        match self.join() {
            None => Ok(()),
            Some(Ok(kept)) => kept,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }

    fn join(&mut self) -> Option<std::thread::Result<Result<()>>> {
        self.notes = None;
        self.keeper.take().map(JoinHandle::join)
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
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Whoever wants to know of a failure closes it.
        let _ = self.join();
    }
}

/// Writes what is to be noted down in the draft, each once its files are on disk.
fn keep(mut file: File, draft: &Path, notes: Receiver<Note>) -> Result<()> {
    for Note { files, line } in notes {
        output::sync(&files)?;
        let failed = |e| Error::io("cannot write", draft.join(JOURNAL), e);
        write(&mut file, &line).map_err(failed)?;
        output::survive_interrupts(draft);
    }
    Ok(())
}

fn write(file: &mut File, text: &[u8]) -> std::io::Result<()> {
    file.write_all(text).and_then(|()| file.sync_data())
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
