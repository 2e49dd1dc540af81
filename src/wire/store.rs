//! Gym's file store: what the files of one capture scope say, read without touching them.
//!
//! The package's reader repairs what it reads: it truncates a torn tail, extends the index, and
//! raises at the first thing wrong. This one reports, and reads on (`spec/gym-wire.md` d.6).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::digest::Claim;
use super::entries::{EntryDraft, EntryReader};
use super::entry::TokenEntry;
use super::fields::RecordError;
use super::lanes::LANES;
use crate::archive::Completeness;
use crate::finding::Code;
use crate::id::Digest32;

/// The files `<id>.tokens.*` of one scope; `None` where a file is absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreFiles<'a> {
    /// `.tokens.jsonl`
    pub tokens: Option<&'a [u8]>,
    /// `.tokens.intents`
    pub intents: Option<&'a [u8]>,
    /// `.tokens.incomplete`
    pub marker: Option<&'a [u8]>,
    /// `.tokens.state.json`
    pub state: Option<&'a [u8]>,
}

/// Everything that the files of one scope say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreSnapshot {
    /// Readable lines in file order, repeated ones included.
    pub entries: Vec<StoreEntry>,
    /// Calls announced before their dispatch, first announcement first; `None` without the file.
    pub intents: Option<Vec<String>>,
    /// Announced calls that have no entry.
    pub dangling_intents: Vec<String>,
    /// Calls that the state indexes and no line holds.
    pub lost_calls: Vec<String>,
    /// Calls that the marker file names, in order (an empty string: no call was known); the
    /// package never reads it.
    pub marked: Vec<String>,
    /// The state file; `None` when it is absent or unreadable.
    pub state: Option<StoreState>,
    /// What is wrong, in reading order.
    pub faults: Vec<StoreFault>,
}

/// One line of `.tokens.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreEntry {
    /// One-based line.
    pub line: u64,
    /// The call.
    pub entry: TokenEntry,
    /// SHA-256 of the line without its newline.
    pub line_digest: Digest32,
    /// What the state file says of that digest.
    pub index: IndexedAs,
}

/// How a line stands to `entry_digests` of the state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexedAs {
    /// The state has this digest under this call.
    Same,
    /// The state has another digest under this call.
    Different,
    /// The state has no such call: an unindexed tail, or no state file.
    Unlisted,
}

/// `.tokens.state.json`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreState {
    /// Writes are fenced.
    pub frozen: bool,
    /// Payloads were delivered and removed.
    pub retired: bool,
    /// A call's tokens were lost, or two payloads claimed one call.
    pub incomplete: bool,
    /// Id of the frozen snapshot; empty before.
    pub snapshot_id: String,
    /// Counts changes.
    pub version: u64,
    /// Line digest of each indexed call.
    pub entry_digests: BTreeMap<String, String>,
    /// Bytes of `.tokens.jsonl` under the index; `None` in a state written before the index.
    pub indexed_size: Option<u64>,
}

/// What is wrong with a store.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreFault {
    /// The state file is not a JSON object.
    State,
    /// The state file indexes more bytes than there are.
    IndexBeyondFile {
        /// Bytes that the state claims.
        indexed: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// The payloads were delivered and removed.
    Retired,
    /// The unindexed last line was cut while it was written, so it was never acknowledged.
    TornTail {
        /// One-based line.
        line: u64,
        /// Bytes from there to the end of the file.
        bytes: u64,
    },
    /// A line is not a token entry.
    Line {
        /// One-based line.
        line: u64,
        /// Why.
        error: RecordError,
    },
    /// Two lines with different bytes claim one call.
    ConflictingLines {
        /// One-based line of the later.
        line: u64,
        /// The call.
        call_id: String,
    },
    /// A line under the index is not one that the state has a digest of.
    ChangedLine {
        /// One-based line.
        line: u64,
        /// The call.
        call_id: String,
    },
    /// A line belongs to another scope than its file.
    ForeignScope {
        /// One-based line.
        line: u64,
        /// Scope that the line names.
        scope: String,
    },
}

impl StoreFault {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::State | Self::IndexBeyondFile { .. } | Self::Retired => Code::StoreUnreadable,
            Self::TornTail { .. } => Code::TornStoreTail,
            Self::Line { error, .. } => error.code,
            Self::ConflictingLines { .. } | Self::ChangedLine { .. } => Code::ConflictingStoreEntry,
            Self::ForeignScope { .. } => Code::WrongRollout,
        }
    }

    /// One-based line, where one is at fault.
    pub fn line(&self) -> Option<u64> {
        match self {
            Self::TornTail { line, .. }
            | Self::Line { line, .. }
            | Self::ConflictingLines { line, .. }
            | Self::ChangedLine { line, .. }
            | Self::ForeignScope { line, .. } => Some(*line),
            Self::State | Self::IndexBeyondFile { .. } | Self::Retired => None,
        }
    }

    /// Whether the package itself refuses to freeze, and so to deliver, such a store. It does
    /// not notice changed indexed lines and foreign scopes, and drops a torn tail.
    pub fn refuses_freeze(&self) -> bool {
        match self {
            Self::State
            | Self::IndexBeyondFile { .. }
            | Self::Retired
            | Self::Line { .. }
            | Self::ConflictingLines { .. } => true,
            Self::TornTail { .. } | Self::ChangedLine { .. } | Self::ForeignScope { .. } => false,
        }
    }
}

impl std::fmt::Display for StoreFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::State => f.write_str("the state file is not a JSON object"),
            Self::IndexBeyondFile { indexed, size } => {
                write!(f, "the state file indexes {indexed} bytes of a file of {size}")
            }
            Self::Retired => f.write_str("the store is retired: its entries were removed"),
            Self::TornTail { bytes, .. } => {
                write!(f, "the last line was cut while being written ({bytes} bytes)")
            }
            Self::Line { error, .. } => error.fmt(f),
            Self::ConflictingLines { call_id, .. } => {
                write!(f, "call {call_id} has another line with different bytes")
            }
            Self::ChangedLine { call_id, .. } => {
                write!(f, "the line of call {call_id} is not the one that the state file indexes")
            }
            Self::ForeignScope { scope, .. } => {
                write!(f, "the line names scope {scope}, its file another one")
            }
        }
    }
}

impl StoreSnapshot {
    /// Whether calls are missing, as the package answers when it freezes: the state's flag, or an
    /// intent without an entry.
    pub fn incomplete(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.incomplete)
            || !self.dangling_intents.is_empty()
    }

    /// Whether calls are missing, as far as these files can tell. Without a state file its flag
    /// is lost, and the marker file, which the package never reads, is the only witness left;
    /// without intents, a call that died with its worker leaves no trace. A call that the state
    /// indexes and no line holds is missing too, though the package does not look.
    pub fn completeness(&self) -> Completeness {
        let marked = self.state.is_none() && !self.marked.is_empty();
        if self.incomplete() || marked || !self.lost_calls.is_empty() {
            Completeness::Incomplete
        } else if self.state.is_none() || self.intents.is_none() {
            Completeness::Unknown
        } else {
            Completeness::Complete
        }
    }

    /// The first fault at which the package refuses this store.
    pub fn refusal(&self) -> Option<&StoreFault> {
        self.faults.iter().find(|fault| fault.refuses_freeze())
    }
}

/// Whether a file name of the store can carry this rollout id: ASCII letters, digits, `.`, `_`
/// and `-`.
pub fn is_store_id(id: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    !id.is_empty() && id.bytes().all(allowed)
}

/// Reads the files of the scope `scope` (the `<id>` of their names). Never fails: what is wrong is in
/// [`faults`](StoreSnapshot::faults), and every line that can be read is read.
pub fn read_store(scope: &str, files: StoreFiles<'_>) -> StoreSnapshot {
    let mut reader = StoreReader::new(scope, files.state);
    reader.add(1, 0, files.tokens.unwrap_or_default());
    reader.finish(files.intents, files.marker)
}

/// Reads a store block by block, so that no more than its tokens is ever in memory.
#[derive(Debug)]
pub struct StoreReader<'a> {
    scope: &'a str,
    /// Of an empty state, if there is none.
    state: StoreState,
    snapshot: StoreSnapshot,
    reader: EntryReader,
    /// Entries in order, each with its line and digest.
    drafts: Vec<(u64, EntryDraft, Digest32, IndexedAs)>,
    first_line_of: HashMap<String, Digest32>,
    /// Where the last block ended.
    end: u64,
    /// Where the last line begins, if it cannot be read.
    last: Option<u64>,
    /// Not every byte was seen.
    passed: bool,
}

impl<'a> StoreReader<'a> {
    /// So many lines, or a multiple of it, are read fastest.
    pub const LINES: usize = LANES;

    /// A reader of the scope `scope`, whose state file says `state`.
    pub fn new(scope: &'a str, state: Option<&[u8]>) -> Self {
        let mut snapshot = StoreSnapshot::default();
        if let Some(bytes) = state {
            snapshot.state = StoreState::parse(bytes);
            if snapshot.state.is_none() {
                snapshot.faults.push(StoreFault::State);
            }
        }
        let state = snapshot.state.clone().unwrap_or_default();
        if state.retired {
            snapshot.faults.push(StoreFault::Retired);
        }
        Self {
            scope,
            state,
            snapshot,
            reader: EntryReader::default(),
            drafts: Vec::new(),
            first_line_of: HashMap::new(),
            end: 0,
            last: None,
            passed: false,
        }
    }

    /// Reads the next whole lines of `.tokens.jsonl`: `first_line` is one-based, and `offset`
    /// where it begins.
    pub fn add(&mut self, first_line: u64, offset: u64, block: &[u8]) {
        self.end = offset + block.len() as u64;
        let lines = lines(first_line, offset, block);
        let parse = |reader: &mut EntryReader| reader.read(lines.iter().map(|(.., text)| *text));
        let digest = || Claim::digests(&lines, |(.., text)| Claim::Line(text));
        let (drafts, digests) = rayon::join(|| parse(&mut self.reader), digest);
        for (((line, offset, _), draft), digest) in lines.iter().zip(drafts).zip(digests) {
            self.last = None;
            match draft {
                Ok(draft) => self.entry(*line, *offset, draft, digest),
                Err(error) => {
                    self.last = Some(*offset);
                    self.snapshot.faults.push(StoreFault::Line { line: *line, error });
                }
            }
        }
    }

    /// Passes over a line of which nothing is known but why it cannot be read.
    pub fn pass(&mut self, line: u64, error: RecordError) {
        self.last = None;
        self.passed = true;
        self.snapshot.faults.push(StoreFault::Line { line, error });
    }

    fn entry(&mut self, line: u64, offset: u64, draft: EntryDraft, line_digest: Digest32) {
        let indexed_size = self.state.indexed_size.unwrap_or(0);
        let faults = &mut self.snapshot.faults;
        let entry = draft.entry();
        let call_id = || entry.model_call_id.clone();
        let index = match self.state.entry_digests.get(&entry.model_call_id) {
            None => IndexedAs::Unlisted,
            Some(digest) if *digest == line_digest.to_string() => IndexedAs::Same,
            Some(_) => IndexedAs::Different,
        };
        let first = self.first_line_of.entry(call_id()).or_insert(line_digest);
        let conflicts = *first != line_digest;
        match (index, offset < indexed_size) {
            (IndexedAs::Same, true) => {}
            (IndexedAs::Different | IndexedAs::Unlisted, true) => {
                faults.push(StoreFault::ChangedLine { line, call_id: call_id() });
            }
            (IndexedAs::Different, false) => {
                faults.push(StoreFault::ConflictingLines { line, call_id: call_id() });
            }
            _ if conflicts => {
                faults.push(StoreFault::ConflictingLines { line, call_id: call_id() });
            }
            _ => {}
        }
        if entry.rollout_id != self.scope {
            faults.push(StoreFault::ForeignScope { line, scope: entry.rollout_id.clone() });
        }
        self.drafts.push((line, draft, line_digest, index));
    }

    /// The whole store, with what its other files say.
    pub fn finish(mut self, intents: Option<&[u8]>, marker: Option<&[u8]>) -> StoreSnapshot {
        let indexed_size = self.state.indexed_size.unwrap_or(0);
        let mut snapshot = self.snapshot;
        if let Some(offset) = self.last
            && offset >= indexed_size
            && let Some(StoreFault::Line { line, error }) = snapshot.faults.last()
            && error.code == Code::MalformedJson
        {
            let torn = StoreFault::TornTail { line: *line, bytes: self.end - offset };
            snapshot.faults.pop();
            snapshot.faults.push(torn);
        }
        if indexed_size > self.end && !self.passed {
            let fault = StoreFault::IndexBeyondFile { indexed: indexed_size, size: self.end };
            let of_state =
                |fault: &&StoreFault| matches!(fault, StoreFault::State | StoreFault::Retired);
            let at = snapshot.faults.iter().take_while(of_state).count();
            snapshot.faults.insert(at, fault);
        }
        let prompts = self.reader.finish();
        let entries = self.drafts.drain(..).map(|(line, draft, line_digest, index)| StoreEntry {
            line,
            entry: draft.finish(&prompts),
            line_digest,
            index,
        });
        snapshot.entries = entries.collect();
        let has: BTreeSet<&str> =
            snapshot.entries.iter().map(|line| line.entry.model_call_id.as_str()).collect();
        snapshot.intents = intents.map(|bytes| {
            let mut seen = BTreeSet::new();
            let intents = names(bytes).into_iter().filter(|call| !call.is_empty());
            intents.filter(|call| seen.insert(call.clone())).collect()
        });
        let indexed = self.state.entry_digests.keys().filter(|call| !has.contains(call.as_str()));
        snapshot.lost_calls = indexed.cloned().collect();
        let intents = snapshot.intents.iter().flatten();
        snapshot.dangling_intents =
            intents.filter(|call| !has.contains(call.as_str())).cloned().collect();
        snapshot.marked = marker.map(names).unwrap_or_default();
        snapshot
    }
}

/// Lines that are not blank: number, offset in the file, and text.
fn lines(first_line: u64, offset: u64, block: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut start = 0;
    let ends = memchr::memchr_iter(b'\n', block).chain(std::iter::once(block.len()));
    let lines = (first_line..).zip(ends).map(|(line, end)| {
        let begin = std::mem::replace(&mut start, end + 1);
        (line, offset + begin as u64, &block[begin..end])
    });
    lines.filter(|(.., text)| !text.trim_ascii().is_empty()).collect()
}

/// The lines of an intents or marker file. A last line without its newline counts: the writer
/// may have died, but the call was about to be made.
fn names(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(|line| line.trim().to_owned()).collect()
}

impl StoreState {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        let members = value.as_object()?;
        let flag = |key: &str| members.get(key).and_then(|v| v.as_bool()).unwrap_or(false);
        let digests = members.get("entry_digests").and_then(|v| v.as_object());
        Some(Self {
            frozen: flag("frozen"),
            retired: flag("retired"),
            incomplete: flag("incomplete"),
            snapshot_id: members
                .get("snapshot_id")
                .and_then(|v| v.as_str())
                .unwrap_or_default()
                .to_owned(),
            version: members.get("version").and_then(|v| v.as_u64()).unwrap_or(0),
            entry_digests: digests
                .into_iter()
                .flatten()
                .filter_map(|(call, digest)| Some((call.clone(), digest.as_str()?.to_owned())))
                .collect(),
            indexed_size: members.get("indexed_size").and_then(|v| v.as_u64()),
        })
    }
}
