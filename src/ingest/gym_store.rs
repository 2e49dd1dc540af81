//! Gym's file store: the files of each scope together, full prompts as deltas.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::detect::{Found, LINES_TO_TRY, stem};
use super::lines::{Blocks, MAX_LINE, has_content, is_plain, text, whole};
use super::quarantine::{Quarantine, Rejected};
use super::scope::Scope;
use super::served::{committed, routes_only};
use super::staged::{all_narrow, narrow};
use crate::archive::{
    Call, CaptureFailure, Completeness, Completion, Mode, Origin, Quarantined, SourceForm,
    SourceKind,
};
use crate::error::{Error, Result};
use crate::finding::{Code, Finding, Location};
use crate::id::{CallId, CaptureKey, Digest32};
use crate::wire::builder::{LinkNote, ResolvedCall, resolve_parents};
use crate::wire::fingerprint::check_version;
use crate::wire::{
    self, RecordError, StoreFault, StoreReader, StoreSnapshot, TokenEntry, read_store,
};

/// Largest store of one scope, in bytes after decompression.
const MAX_STORE: usize = 2 << 30;

/// Suffixes of the files of a store, entries first.
const SUFFIXES: [&str; 4] =
    [".tokens.jsonl", ".tokens.intents", ".tokens.incomplete", ".tokens.state.json"];

/// The files of one scope in one folder, by suffix.
pub(super) type StoreFiles = [Option<Found>; 4];

/// The stores among `found` by scope. One that holds nothing at all is none.
pub(super) fn stores(found: &[Found]) -> Result<Vec<(CaptureKey, StoreFiles)>> {
    let mut stores: BTreeMap<(PathBuf, String), StoreFiles> = BTreeMap::new();
    let parts =
        found.iter().filter(|f| matches!(f.form, SourceForm::Store | SourceForm::StoreSibling));
    for file in parts {
        let name = stem(&file.path);
        let known = SUFFIXES
            .iter()
            .enumerate()
            .find_map(|(at, suffix)| Some((name.strip_suffix(suffix)?.to_owned(), at)));
        let (id, at) = match known {
            Some(known) => known,
            None if file.form == SourceForm::Store => (name, 0),
            // The lock, which says nothing.
            None => continue,
        };
        let folder = file.path.parent().unwrap_or(Path::new("")).to_owned();
        stores.entry((folder, id)).or_default()[at] = Some(file.clone());
    }
    let keyed = stores.into_par_iter().map(|((_, id), files)| {
        let filled = files
            .iter()
            .flatten()
            .try_fold(false, |filled, file| Ok::<_, Error>(filled || has_content(&file.path)?))?;
        let named = files[0].as_ref().filter(|file| !stem(&file.path).ends_with(SUFFIXES[0]));
        let id = match named {
            Some(file) => first_scope(&file.path)?.unwrap_or(id),
            None => id,
        };
        Ok(filled.then(|| (CaptureKey::from(id), files)))
    });
    Ok(keyed.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Reads the store of one scope. Files of which every byte was read go to `hashes`.
pub(super) fn scope(
    key: &CaptureKey,
    files: &StoreFiles,
    quarantine: &mut Quarantine,
    hashes: &mut Vec<(PathBuf, Digest32)>,
) -> Result<Scope> {
    let mut lost = false;
    let mut siblings: [Option<Vec<u8>>; 3] = Default::default();
    for (file, bytes) in files[1..].iter().zip(&mut siblings) {
        let Some(file) = file else { continue };
        match whole(&file.path, MAX_LINE)? {
            Ok(content) => *bytes = Some(content),
            Err(why) => {
                quarantine.file(&file.name, why.into());
                lost = true;
            }
        }
    }
    let [intents, marker, state] = &siblings;
    let mut store = StoreReader::new(key.as_str(), state.as_deref());
    if let Some(file) = &files[0] {
        let hash = read_lines(file, &mut store, quarantine)?;
        lost |= hash.is_none();
        hashes.extend(hash.flatten().map(|hash| (file.path.clone(), hash)));
    }
    let snapshot = store.finish(intents.as_deref(), marker.as_deref());
    let name = |file: Option<&Found>| file.map_or_else(String::new, |file| file.name.clone());
    let first = name(files.iter().flatten().next());
    let origins = |line| Origin { file: first.clone(), line };
    let mut reader = Reader {
        key,
        state: files[3].as_ref().map_or_else(|| first.clone(), |file| file.name.clone()),
        origins: &origins,
        broken: BTreeMap::new(),
        scope: Scope::new(SourceKind::GymStore),
        quarantine,
    };
    reader.read(snapshot);
    if let Some(file) = files[0].as_ref().filter(|_| !reader.broken.is_empty()) {
        reader.show_broken(file)?;
    }
    let Reader { mut scope, broken, quarantine, .. } = reader;
    broken.into_values().flatten().for_each(|entry| quarantine.entry(entry));
    if lost {
        scope.completeness = Completeness::Incomplete;
    }
    Ok(scope)
}

/// Reads the lines of a store, and tells the BLAKE3 of its file; `Some(None)` for a compressed
/// one, `None` if not everything could be read.
fn read_lines(
    file: &Found,
    store: &mut StoreReader<'_>,
    quarantine: &mut Quarantine,
) -> Result<Option<Option<Digest32>>> {
    let mut hasher = is_plain(&file.path)?.then(|| Box::new(blake3::Hasher::new()));
    let mut blocks = Blocks::open(&file.path)?.multiples_of(StoreReader::LINES);
    let mut left = MAX_STORE;
    let mut next = blocks.next();
    while let Some(mut block) = next {
        let broken = block.broken.take();
        let Some(after) = left.checked_sub(block.bytes.len()) else {
            let message = format!("it holds more than {MAX_STORE} bytes");
            quarantine.file(&file.name, Rejected::new(Code::UnreadableSource, message));
            return Ok(None);
        };
        left = after;
        let hash = || {
            if let Some(hasher) = &mut hasher {
                hasher.update_rayon(&block.bytes);
            }
        };
        let add = || store.add(block.first_line, block.offset, &block.bytes);
        ((next, ()), ()) = rayon::join(|| rayon::join(|| blocks.next(), hash), add);
        if let Some((line, why)) = broken {
            // What was passed over is not hashed.
            hasher = None;
            if why.code == Code::UnreadableSource {
                quarantine.file(&file.name, why.into());
                return Ok(None);
            }
            store.pass(line, RecordError { code: why.code, field: None, message: why.message });
        }
        blocks.reuse(block);
    }
    Ok(Some(hasher.map(|hasher| Digest32(*hasher.finalize().as_bytes()))))
}

/// The entries of one scope that came line by line, without the files beside a store that tell
/// whether one is missing.
pub(super) fn scope_of_entries(
    key: &CaptureKey,
    mut entries: Vec<(Origin, String)>,
    quarantine: &mut Quarantine,
) -> Scope {
    // A repeated line is no second entry, wherever it stands.
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let text = entries.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    let files = wire::StoreFiles { tokens: Some(text.as_bytes()), ..wire::StoreFiles::default() };
    let snapshot = read_store(key.as_str(), files);
    let entry = |line: u64| {
        let at = usize::try_from(line).ok().and_then(|line| line.checked_sub(1));
        at.and_then(|at| entries.get(at))
    };
    let origins = |line| entry(line).map(|(origin, _)| origin.clone()).unwrap_or_default();
    let mut reader = Reader {
        key,
        state: String::new(),
        origins: &origins,
        broken: BTreeMap::new(),
        scope: Scope::new(SourceKind::GymStore),
        quarantine,
    };
    reader.read(snapshot);
    let Reader { scope, broken, quarantine, .. } = reader;
    for (line, broken) in broken {
        let text = entry(line).map_or("", |(_, text)| text);
        broken.into_iter().for_each(|broken| quarantine.entry(broken.text(text)));
    }
    scope
}

/// The scope of a store whose file name does not tell it.
fn first_scope(path: &Path) -> Result<Option<String>> {
    let mut blocks = Blocks::open(path)?.multiples_of(LINES_TO_TRY);
    let Some(block) = blocks.next() else { return Ok(None) };
    let entry = block.lines().find_map(|line| TokenEntry::parse(text(line.bytes).ok()?).ok());
    Ok(entry.map(|entry| entry.rollout_id))
}

/// One scope while it is being read.
struct Reader<'a> {
    key: &'a CaptureKey,
    /// Name of the state file.
    state: String,
    /// Where a line of the store came from.
    origins: &'a dyn Fn(u64) -> Origin,
    /// What is quarantined by line, as yet without its text; a line may have several reasons.
    broken: BTreeMap<u64, Vec<Quarantined>>,
    scope: Scope,
    quarantine: &'a mut Quarantine,
}

impl Reader<'_> {
    fn read(&mut self, snapshot: StoreSnapshot) {
        self.scope.completeness = snapshot.completeness();
        let ledger = &mut self.scope.ledger;
        let ids = |ids: &[String]| ids.iter().map(|id| CallId::from(id.as_str())).collect();
        ledger.pending = ids(&snapshot.dangling_intents);
        ledger.attempted = ids(snapshot.intents.as_deref().unwrap_or_default());
        for fault in &snapshot.faults {
            self.fault(fault);
        }
        let (mut lines, mut entries) = (Vec::new(), Vec::new());
        for line in snapshot.entries {
            let ids: [&[u64]; 2] = [&line.entry.prompt_token_ids, &line.entry.generation_token_ids];
            let narrow = ids.into_iter().try_for_each(all_narrow);
            let version = check_version(line.entry.fingerprint_version.unwrap_or(0));
            match narrow.and(version.map_err(Rejected::from)) {
                Ok(()) => {
                    lines.push(line.line);
                    entries.push(line.entry);
                }
                Err(why) => self.set_aside(line.line, why.code, why.message),
            }
        }
        for resolved in resolve_parents(&entries) {
            self.call(&resolved, &lines, &entries);
        }
        let ledger = &mut self.scope.ledger;
        let announced: BTreeSet<_> = ledger.attempted.iter().cloned().collect();
        let more = ledger.committed.iter().map(|row| &row.call_id);
        let more: Vec<_> = more.filter(|id| !announced.contains(*id)).cloned().collect();
        ledger.attempted.extend(more);
    }

    fn fault(&mut self, fault: &StoreFault) {
        match fault {
            // Never acknowledged, so nothing of this scope is lost with it.
            StoreFault::TornTail { line, .. } => {
                self.quarantine_line(*line, fault.code(), fault.to_string());
            }
            StoreFault::Line { line, .. } | StoreFault::ConflictingLines { line, .. } => {
                self.set_aside(*line, fault.code(), fault.to_string());
            }
            StoreFault::ChangedLine { line, call_id } => {
                let call_id = CallId::from(call_id.as_str());
                self.doubt(fault.code(), &call_id, *line, fault.to_string());
            }
            // The call keeps the scope that it names, and validation reports it.
            StoreFault::ForeignScope { .. } => {}
            StoreFault::State | StoreFault::IndexBeyondFile { .. } | StoreFault::Retired => {
                let (code, message) = (fault.code(), fault.to_string());
                let mut entry = Quarantined::new(&self.state, None, code, message);
                entry.capture_key = Some(self.key.clone());
                self.quarantine.entry(entry);
                self.scope.completeness = Completeness::Incomplete;
            }
        }
    }

    /// Quarantines a line; a call of this scope is lost with it.
    fn set_aside(&mut self, line: u64, code: Code, message: String) {
        self.quarantine_line(line, code, message);
        self.scope.completeness = Completeness::Incomplete;
    }

    fn quarantine_line(&mut self, line: u64, code: Code, message: String) {
        let origin = (self.origins)(line);
        let mut entry = Quarantined::new(origin.file, Some(origin.line), code, message);
        entry.capture_key = Some(self.key.clone());
        self.broken.entry(line).or_default().push(entry);
    }

    /// Reads the lines that are quarantined once more, to show their text.
    fn show_broken(&mut self, file: &Found) -> Result<()> {
        for block in Blocks::open(&file.path)? {
            for (number, text) in (block.first_line..).zip(block.bytes.split(|&b| b == b'\n')) {
                for entry in self.broken.get_mut(&number).into_iter().flatten() {
                    *entry = entry.clone().text(&String::from_utf8_lossy(text));
                }
            }
        }
        Ok(())
    }

    /// A call that is archived and cannot be trusted: the failure in the ledger masks its rollout.
    fn doubt(&mut self, code: Code, call_id: &CallId, line: u64, message: String) {
        let origin = (self.origins)(line);
        let location = Location::line(&origin.file, origin.line).scope(self.key.clone());
        self.scope.findings.push(Finding::new(code, message).call(call_id).at(location));
        let failure = CaptureFailure { call_id: call_id.clone(), reason: code.as_str().to_owned() };
        self.scope.ledger.failures.push(failure);
    }

    fn call(&mut self, resolved: &ResolvedCall<'_>, lines: &[u64], entries: &[TokenEntry]) {
        let (line, entry) = (lines[resolved.entry], &entries[resolved.entry]);
        let call_id = CallId::from(entry.model_call_id.as_str());
        if let Some((code, note)) = resolved.note.and_then(|note| Some((note.code()?, note))) {
            let parent = entry.parent_call_id.as_deref().unwrap_or("none");
            let message = message(note, &call_id, parent, &entry.parent_resolution_reason);
            self.doubt(code, &call_id, line, message);
        }
        let delta = Delta::of(resolved, entry, entries);
        // Both were narrowed before.
        let mut token_ids = narrow(delta.carry).unwrap_or_default();
        let carry_len = token_ids.len() as u32;
        token_ids.extend(narrow(&entry.generation_token_ids).unwrap_or_default());
        let cum_len = delta.prev_len + token_ids.len() as u64;
        self.scope.calls.push(Call {
            call_id: call_id.clone(),
            capture_key: entry.rollout_id.as_str().into(),
            source_capture_key: None,
            mode: if delta.parent.is_some() { Mode::TokenIn } else { Mode::Text },
            parent_call_id: delta.parent.map(CallId::from),
            prev_len: delta.prev_len,
            delta_len: token_ids.len() as u64,
            cum_len: entry.cum_len.and_then(|len| u64::try_from(len).ok()).unwrap_or(cum_len),
            weight_version: None,
            token_ids,
            carry_len,
            generation_logprobs: entry.generation_log_probs.iter().map(|&p| p as f32).collect(),
            raw_columns: None,
            commitment: None,
            entry_digest: entry.stamped_digest(),
            media: None,
            tensors: Vec::new(),
            extras: entry.routed_experts.as_deref().map(routes_only),
            origin: (self.origins)(line),
        });
        let response_id = entry.response_id.clone();
        let items = &entry.output_items;
        let row = committed(call_id, response_id, Completion::Unrecorded, items);
        self.scope.ledger.committed.push(row);
    }
}

/// What an entry adds to its parent.
struct Delta<'a> {
    parent: Option<&'a str>,
    prev_len: u64,
    carry: &'a [u64],
}

impl<'a> Delta<'a> {
    fn of(
        resolved: &'a ResolvedCall<'_>,
        entry: &'a TokenEntry,
        entries: &'a [TokenEntry],
    ) -> Self {
        match &resolved.sequence {
            Some(sequence) => Delta {
                parent: resolved.parent.map(|at| entries[at].model_call_id.as_str()),
                prev_len: resolved.prev_len as u64,
                carry: sequence.prompt.get(resolved.prev_len..).unwrap_or_default(),
            },
            // A delta that nothing completes stays under the parent that it names.
            None => {
                let own = entry.prompt_token_ids.len() + entry.generation_token_ids.len();
                let cum_len = entry.cum_len.and_then(|len| u64::try_from(len).ok());
                Delta {
                    parent: entry.parent_call_id.as_deref(),
                    prev_len: cum_len.map_or(0, |len| len.saturating_sub(own as u64)),
                    carry: &entry.prompt_token_ids,
                }
            }
        }
    }
}

fn message(note: LinkNote, call_id: &CallId, parent: &str, reason: &str) -> String {
    match note {
        LinkNote::Unresolved => {
            let reason = if reason.is_empty() { "no reason given" } else { reason };
            format!("the capture found no parent of call {call_id} ({reason})")
        }
        LinkNote::Missing => format!("parent {parent} of call {call_id} is not in the store"),
        LinkNote::DigestMismatch => {
            format!("the prompt of call {call_id} does not begin with the tokens of {parent}")
        }
        LinkNote::DuplicateConflict => format!("call {call_id} has two entries of other tokens"),
        LinkNote::BrokenDelta => {
            format!("the prompt of call {call_id} cannot be rebuilt from parent {parent}")
        }
        LinkNote::Recovered | LinkNote::WithoutId | LinkNote::NoDecision => {
            format!(
                "the entry of call {call_id} says nothing usable of its parent ({})",
                note.as_str()
            )
        }
    }
}
