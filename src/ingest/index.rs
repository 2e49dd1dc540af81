//! The first pass over the sources: which scope each line belongs to, and where it lies. What a
//! line says is read in a second pass, group by group, so that memory holds one group at a time.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::detect::{self, Found};
use super::gym_store::{self, StoreFiles};
use super::lines::{Blocks, Line, text};
use super::media::FlagsLine;
use super::quarantine::{Quarantine, Rejected};
use super::rollouts::{Identity, RolloutHead, RolloutLine};
use super::staged::{ReceiptLine, Record};
use super::texts::{LineRef, Texts};
use super::{Progress, lineage, lines, recovery, trace};
use crate::archive::{Origin, SourceForm};
use crate::error::{Error, Result};
use crate::id::{CaptureKey, Digest32};
use crate::wire::TokenEntry;
use crate::wire::scan;

/// What the sources hold, and where.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub scopes: BTreeMap<CaptureKey, ScopeIndex>,
    pub rollouts: Vec<RolloutIndex>,
    /// BLAKE3 of the sources that were read whole.
    pub hashes: BTreeMap<u32, Digest32>,
}

/// A call id in 16 bytes, for sets of millions of them. Ids that only look alike are told apart
/// when their records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CallHash(u128);

impl CallHash {
    pub fn of(id: &str) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&blake3::hash(id.as_bytes()).as_bytes()[..16]);
        Self(u128::from_le_bytes(half))
    }
}

/// Everything that names one capture scope.
#[derive(Debug, Default)]
pub(super) struct ScopeIndex {
    /// Staged records.
    pub records: Vec<(CallHash, LineRef)>,
    /// Receipts, each with a digest of its line.
    pub receipts: Vec<(Digest32, LineRef)>,
    /// Calls that a receipt names.
    pub named: Vec<CallHash>,
    /// The source that holds the scope's token-free ledger, and the calls that it names.
    pub lineage: Option<(u32, Vec<CallHash>)>,
    /// Media lines.
    pub media: Vec<(CallHash, LineRef)>,
    /// Files of Gym stores. Only the first store counts.
    pub stores: Vec<StoreFiles>,
    /// Entries of a Gym store that came line by line.
    pub entries: Vec<LineRef>,
}

impl ScopeIndex {
    /// Whether records, a receipt or a ledger speak of it.
    pub fn is_staged(&self) -> bool {
        !self.records.is_empty() || !self.receipts.is_empty() || self.lineage.is_some()
    }

    /// Whether anything but media lines speaks of it.
    pub fn is_captured(&self) -> bool {
        self.is_staged() || !self.stores.is_empty() || !self.entries.is_empty()
    }
}

/// A rollouts line or a trace.
#[derive(Clone, Debug)]
pub(super) struct RolloutIndex {
    pub identity: Identity,
    /// Digest of the text.
    pub digest: Digest32,
    /// What the prompt of an anonymous line comes to.
    pub prompt: String,
    /// Output items carry token arrays.
    pub inline: bool,
    pub place: Place,
}

/// Where the text of a rollouts line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Line(LineRef),
    /// A trace: the whole document.
    Document(u32),
}

impl Place {
    pub fn weight(self) -> u64 {
        match self {
            Place::Line(line) => line.weight(),
            Place::Document(_) => 0,
        }
    }
}

impl RolloutIndex {
    fn new(head: RolloutHead, place: Place) -> Self {
        let RolloutHead { identity, inline, digest, prompt } = head;
        Self { identity, digest, prompt, inline, place }
    }
}

/// What one line is, once it has been looked at.
enum Seen {
    Record { scope: String, call: CallHash },
    Entry { scope: String },
    Receipt { scope: String, named: Vec<CallHash>, digest: Digest32 },
    Media { scope: String, call: CallHash },
    Rollout(RolloutIndex),
}

/// Reads all sources once.
pub(super) fn index(
    texts: &mut Texts,
    quarantine: &mut Quarantine,
    progress: Progress<'_>,
) -> Result<Index> {
    let mut index = Index::default();
    let found: Vec<Found> = texts.sources().cloned().collect();
    for (at, file) in found.iter().enumerate() {
        let source = at as u32;
        match file.form {
            form if form.is_lines() => index.lines(texts, at, file, quarantine, progress)?,
            SourceForm::Trace => {
                if let Some(line) = read_trace(file, quarantine)? {
                    let head = RolloutHead::parse(&line.text).ok();
                    let place = Place::Document(source);
                    index.rollouts.extend(head.map(|head| RolloutIndex::new(head, place)));
                }
                progress(file.bytes);
            }
            SourceForm::Lineage => {
                if let Some(manifest) = lineage::read(file, quarantine)? {
                    let scope = index.scopes.entry(lineage::key(&manifest)).or_default();
                    let rows = manifest.records.iter();
                    let named = rows.map(|row| CallHash::of(&row.model_call_id)).collect();
                    scope.lineage = Some((source, named));
                }
                progress(file.bytes);
            }
            SourceForm::Recovery => quarantine.file(&file.name, recovery::refusal(file)?),
            _ => {}
        }
    }
    for (key, files) in gym_store::stores(&found)? {
        index.scopes.entry(key).or_default().stores.push(files);
    }
    Ok(index)
}

/// Reads the trace in a file.
pub(super) fn read_trace(file: &Found, quarantine: &mut Quarantine) -> Result<Option<RolloutLine>> {
    let origin = Origin { file: file.name.clone(), line: 1 };
    let read = lines::document(&file.path)?;
    Ok(match read.map_err(Into::into).and_then(|text| trace::line(&text, origin)) {
        Ok(line) => Some(line),
        Err(why) => {
            quarantine.file(&file.name, why);
            None
        }
    })
}

impl Index {
    fn lines(
        &mut self,
        texts: &mut Texts,
        at: usize,
        file: &Found,
        quarantine: &mut Quarantine,
        progress: Progress<'_>,
    ) -> Result<()> {
        let spilled = texts.is_spilled(at);
        let mut hasher = (!spilled).then(|| Box::new(blake3::Hasher::new()));
        let mut blocks = Blocks::open(&file.path)?;
        let mut next = blocks.next();
        while let Some(mut block) = next {
            let work = || {
                let lines: Vec<Line<'_>> = block.lines().collect();
                let seen = lines.into_par_iter().map(|line| {
                    let seen = look(file, at, &line);
                    let packed = match (&seen, spilled) {
                        (Ok(_), true) => Some(
                            Texts::pack(line.bytes)
                                .map_err(|e| Error::io("cannot keep a line of", &file.path, e))?,
                        ),
                        _ => None,
                    };
                    Ok((line, seen, packed))
                });
                seen.collect::<Result<Vec<_>>>()
            };
            let hash = || {
                if let Some(hasher) = &mut hasher {
                    hasher.update_rayon(&block.bytes);
                }
            };
            let ((following, ()), seen) = rayon::join(|| rayon::join(|| blocks.next(), hash), work);
            for (line, seen, packed) in seen? {
                match seen {
                    Ok(seen) => {
                        let place = match packed {
                            Some(packed) => texts.keep(at, line.number, &packed)?,
                            None => Texts::at(at, line.number, line.offset, line.bytes),
                        };
                        self.put(seen, place);
                    }
                    Err((form, why)) => {
                        let origin = Origin { file: file.name.clone(), line: line.number };
                        let text = String::from_utf8_lossy(line.bytes);
                        quarantine.line(&origin, form, &text, why);
                    }
                }
            }
            if let Some((number, why)) = block.broken.take() {
                let origin = Origin { file: file.name.clone(), line: number };
                quarantine.line(&origin, file.form, "", why.into());
                // What was passed over is not hashed here.
                hasher = None;
            }
            progress(block.bytes.len() as u64);
            blocks.reuse(block);
            next = following;
        }
        if let Some(hasher) = hasher {
            self.hashes.insert(at as u32, Digest32(*hasher.finalize().as_bytes()));
        }
        Ok(())
    }

    fn scope(&mut self, key: String) -> &mut ScopeIndex {
        self.scopes.entry(CaptureKey::from(key)).or_default()
    }

    fn put(&mut self, seen: Seen, place: LineRef) {
        match seen {
            Seen::Record { scope, call } => self.scope(scope).records.push((call, place)),
            Seen::Entry { scope } => self.scope(scope).entries.push(place),
            Seen::Media { scope, call } => self.scope(scope).media.push((call, place)),
            Seen::Receipt { scope, named, digest } => {
                let scope = self.scope(scope);
                scope.named = named;
                scope.receipts.push((digest, place));
            }
            Seen::Rollout(mut line) => {
                line.place = Place::Line(place);
                self.rollouts.push(line);
            }
        }
    }
}

/// Tells what a line is and whom it speaks of, or what it was taken for and why it is refused.
fn look(file: &Found, source: usize, line: &Line<'_>) -> Result<Seen, (SourceForm, Rejected)> {
    let stripped;
    let (form, bytes) = match file.form {
        SourceForm::Stream => match detect::line(line.bytes) {
            Ok((form, text)) => {
                stripped = text;
                (form, &*stripped)
            }
            Err(why) => return Err((SourceForm::Stream, why)),
        },
        form => (form, line.bytes),
    };
    let origin = || Origin { file: file.name.clone(), line: line.number };
    let whole = || text(bytes).map_err(Rejected::from);
    let seen = match form {
        SourceForm::Staged => match names(bytes) {
            Some((scope, call)) => Ok(Seen::Record { scope, call }),
            None => whole().and_then(|text| Record::parse(text, origin())).map(|record| {
                let (scope, call) = record.names();
                Seen::Record { scope: scope.to_owned(), call: CallHash::of(call) }
            }),
        },
        SourceForm::Store => match names(bytes) {
            Some((scope, _)) => Ok(Seen::Entry { scope }),
            None => whole()
                .and_then(|text| Ok(TokenEntry::parse(text)?))
                .map(|entry| Seen::Entry { scope: entry.rollout_id }),
        },
        SourceForm::Receipts => {
            let digest = Digest32(*blake3::hash(bytes.trim_ascii()).as_bytes());
            match claims(bytes) {
                Some((scope, named)) => Ok(Seen::Receipt { scope, named, digest }),
                None => whole().and_then(|text| ReceiptLine::parse(text, origin())).map(|line| {
                    Seen::Receipt { named: line.named(), scope: line.receipt.scope, digest }
                }),
            }
        }
        SourceForm::Media => {
            whole().and_then(|text| FlagsLine::parse(text, origin())).map(|line| {
                let (scope, call) = line.call();
                Seen::Media { scope, call: CallHash::of(&call) }
            })
        }
        _ => whole().and_then(RolloutHead::parse).map(|head| {
            let place = Texts::at(source, line.number, line.offset, bytes);
            Seen::Rollout(RolloutIndex::new(head, Place::Line(place)))
        }),
    };
    seen.map_err(|why| (form, why))
}

/// Scope and calls that a receipt names, where they are spelled plainly.
fn claims(line: &[u8]) -> Option<(String, Vec<CallHash>)> {
    let [scope, renamed, manifest] = members(line, [b"rollout_id", b"capture_key", b"manifest"])?;
    let call = |row| {
        let [call] = members(row, [b"model_call_id"])?;
        scan::plain_string(call?).map(CallHash::of)
    };
    let named = scan::elements(manifest?)?.into_iter().map(call).collect::<Option<_>>()?;
    Some((word(renamed.or(scope))?.to_owned(), named))
}

/// Scope and call of a record, where they are spelled plainly.
fn names(line: &[u8]) -> Option<(String, CallHash)> {
    let [scope, renamed, call] = members(line, [b"rollout_id", b"capture_key", b"model_call_id"])?;
    Some((word(renamed.or(scope))?.to_owned(), CallHash::of(word(call)?)))
}

/// The values of these members; `None` where a key has an escape, and so may be any key. Of
/// repeated keys the last counts, as for the parser.
fn members<'a, const N: usize>(
    object: &'a [u8],
    names: [&[u8]; N],
) -> Option<[Option<&'a [u8]>; N]> {
    let mut found = [None; N];
    for (key, value) in scan::members(object)? {
        match names.iter().position(|name| *name == key) {
            Some(at) => found[at] = Some(value),
            None if memchr::memchr(b'\\', key).is_some() => return None,
            None => {}
        }
    }
    Some(found)
}

/// A string that is not empty.
fn word(value: Option<&[u8]>) -> Option<&str> {
    scan::plain_string(value?).filter(|text| !text.is_empty())
}
