//! Groups to an archive directory, part by part.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;

use super::content::{self, Known};
use super::existing::Existing;
use super::journal::{Journal, Written};
use super::manifest::{Counts, FileEntry, FormatVersion, MANIFEST, Manifest, PartCounts, Tool};
use super::pieces::{self, is_media};
use super::{Group, Ingested, Piece, PieceSources, Quarantined, SourceFile, part};
use crate::error::{Error, Result};
use crate::id::{Digest32, GroupId};
use crate::ordered::Beside;
use crate::output::{self, AtomicDir, Lock, check_free};

/// Bytes of captured content after which a part ends, unless one group is larger.
const PART_BYTES: usize = 16 << 20;
/// Parts that are written while the next one is filled: the columns of one keep two threads busy.
fn parts_at_a_time() -> usize {
    (rayon::current_num_threads() / 2).clamp(1, 4)
}

/// Folder of a draft for temporary files; no archive has it.
pub(super) const SCRATCH: &str = "scratch";
/// Name of the quarantine within an archive.
pub const QUARANTINE: &str = "quarantine.jsonl";

/// What a [`Writer`] put in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Totals.
    pub counts: Counts,
    /// Parts.
    pub parts: u64,
    /// Size of all files.
    pub bytes: u64,
    /// Digest of what was captured ([`super::Archive::digest`]).
    pub content: Digest32,
    /// Rollouts that the target did not hold before.
    pub added: u64,
    /// The target held all of this already; nothing was written.
    pub unchanged: bool,
}

/// Writes an archive whole or not at all, with memory for a few parts, and the same bytes for
/// the same groups whatever the number of threads.
///
/// Without `force`, what an existing archive holds stays: its parts are taken over as they are,
/// groups that gain rollouts are written again with their part, and new groups become new parts.
/// A part is synced once it is written, so that after a kill the same work goes on from there.
#[derive(Debug)]
pub struct Writer {
    /// Parts that are being written, in order; none is left when the draft goes.
    writing: Beside<Result<Written>>,
    draft: AtomicDir,
    existing: Option<Existing>,
    journal: Option<Journal>,
    open: Open,
    scratch: PathBuf,
    /// Number of the next new part.
    next: u64,
    /// Number of the next media file.
    next_media: u64,
    /// Tensor data that is on disk, or is going to be with the parts that are full.
    stored: BTreeSet<Digest32>,
    /// Parts that are written.
    written: Vec<Written>,
    /// Held until everything else is gone.
    lock: Lock,
}

/// The part that is being filled.
#[derive(Debug, Default)]
struct Open {
    /// Number of the part of the existing archive that is written again.
    old: Option<u64>,
    groups: Vec<Group>,
    pieces: PieceSources,
    bytes: usize,
    /// Groups of the sequence that are in it or before it.
    end: usize,
    /// Those that gave findings or quarantined lines.
    remarked: Vec<usize>,
    added: u64,
}

/// A part to be written.
#[derive(Debug)]
struct Sealed {
    number: u64,
    groups: Vec<Group>,
    /// Number of its media file, and what goes into it.
    media: Option<(u64, Vec<Piece>)>,
    sources: PieceSources,
    end: usize,
    remarked: Vec<usize>,
    added: u64,
}

/// A group in the sequence that a [`Writer`] is given.
#[derive(Debug)]
pub struct Pushed {
    /// Place in the sequence, from 0. The sequence is the same whenever the same sources are read.
    pub index: usize,
    /// The group.
    pub group: Group,
    /// Where the tensor data that it refers to can be read.
    pub pieces: PieceSources,
    /// Reading it gave findings or quarantined lines.
    pub remarked: bool,
}

/// What an earlier run that was killed left done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Groups of the sequence that need not be pushed.
    pub groups: usize,
    /// Those of them that gave findings or quarantined lines.
    pub remarked: BTreeSet<usize>,
}

impl Writer {
    /// Takes the lock of `target` and opens the archive that may be there.
    ///
    /// # Errors
    ///
    /// Another process writes `target`; something that is no archive is there, or, without
    /// `force`, an archive that is damaged; failures to write.
    pub fn open(target: &Path, force: bool) -> Result<Self> {
        let lock = Lock::acquire(target)?;
        let there = target.symlink_metadata().is_ok();
        if there && !force && !target.join(MANIFEST).is_file() {
            check_free(target)?;
        }
        let existing = (there && !force).then(|| Existing::open(target)).transpose()?;
        let draft = AtomicDir::resume(target, there, MANIFEST)?;
        let scratch = draft.path().join(SCRATCH);
        // A killed run may have left some.
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir(&scratch).map_err(|e| Error::io("cannot create", &scratch, e))?;
        let next = existing.as_ref().map_or(0, Existing::part_count);
        let (next_media, stored) = match &existing {
            Some(existing) => existing.media()?,
            None => (0, BTreeSet::new()),
        };
        Ok(Self {
            writing: Beside::default(),
            draft,
            existing,
            journal: None,
            open: Open::default(),
            scratch,
            next,
            next_media,
            stored,
            written: Vec::new(),
            lock,
        })
    }

    /// A folder for temporary files, with as much room as the archive has.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// In which part of the existing archive each group is. Groups must be pushed in order of
    /// part, those that are in none last, and in order of `group_id` within.
    pub fn known_parts(&self) -> Arc<BTreeMap<GroupId, u64>> {
        self.existing.as_ref().map(Existing::parts).unwrap_or_default()
    }

    /// Says by a digest of the sources which sequence is going to be pushed, and finds out how
    /// much of it an earlier run that was killed has written.
    ///
    /// # Errors
    ///
    /// Failures to read or write.
    pub fn begin(&mut self, sequence: Digest32) -> Result<Done> {
        let target = self.existing.as_ref().map(|existing| existing.manifest_digest());
        let (journal, written) = Journal::open(&self.draft, sequence, target)?;
        self.journal = Some(journal);
        let mut done = Done::default();
        for part in &written {
            done.groups = part.end;
            done.remarked.extend(part.remarked.iter().copied());
            self.next = self.next.max(part.number + 1);
            for file in part.files.iter().filter(|file| is_media(&file.path)) {
                let lost = |e: String| Error::format(format!("{}: {e}", file.path));
                let pieces = pieces::index(self.draft.path(), file).map_err(lost)?;
                self.stored.extend(pieces.iter().map(|piece| piece.digest));
                self.next_media += 1;
            }
        }
        if !written.is_empty() {
            output::survive_interrupts(self.draft.path());
        }
        self.open.end = done.groups;
        self.written = written;
        Ok(done)
    }

    /// Takes the next group.
    ///
    /// # Errors
    ///
    /// A rollout that the existing archive holds differently; failures to write.
    pub fn push(&mut self, pushed: Pushed) -> Result<()> {
        let Pushed { index, group, pieces, remarked } = pushed;
        let old = self.existing.as_ref().and_then(|e| e.part_of(&group.group_id));
        let bytes = part::weight(&group);
        let full = self.open.bytes + bytes > PART_BYTES && !self.open.groups.is_empty();
        if old != self.open.old || (old.is_none() && full) {
            self.seal()?;
            while self.writing.pending() > parts_at_a_time() {
                self.settle(true)?;
            }
            self.open.old = old;
        }
        self.open.end = index + 1;
        if remarked {
            self.open.remarked.push(index);
        }
        let gain = match &self.existing {
            Some(existing) => existing.gain(group)?,
            None => group,
        };
        if !gain.rollouts.is_empty() {
            self.open.added += gain.rollouts.len() as u64;
            self.open.bytes += bytes;
            self.open.groups.push(gain);
            self.open.pieces.extend(pieces);
        }
        Ok(())
    }

    /// Closes the part that is being filled, and begins to write it.
    fn seal(&mut self) -> Result<()> {
        let Open { old, mut groups, pieces: sources, end, remarked, added, .. } =
            std::mem::take(&mut self.open);
        self.open.end = end;
        if groups.is_empty() {
            // Its remarks belong to the next part that is written.
            self.open.remarked = remarked;
            return Ok(());
        }
        let pieces = pieces::new_pieces(&groups, &mut self.stored);
        let media = (!pieces.is_empty()).then(|| {
            self.next_media += 1;
            (self.next_media - 1, pieces)
        });
        let number = match (old, &self.existing) {
            (Some(number), Some(existing)) => {
                groups = existing.merged(number, groups)?;
                number
            }
            _ => {
                self.next += 1;
                self.next - 1
            }
        };
        let sealed = Sealed { number, groups, media, sources, end, remarked, added };
        let dir = self.draft.path().to_owned();
        self.writing.begin(move || sealed.write(&dir));
        Ok(())
    }

    /// Waits until the next part is written, and notes it down if more is to come.
    fn settle(&mut self, note: bool) -> Result<()> {
        let Some(written) = self.writing.first().transpose()? else { return Ok(()) };
        if let Some(journal) = &mut self.journal
            && note
        {
            journal.add(self.draft.path(), &written)?;
        }
        self.written.push(written);
        Ok(())
    }

    /// Puts the archive in place.
    ///
    /// # Errors
    ///
    /// Failures to write; an existing archive that nothing was added to, but that is damaged.
    pub fn finish(
        mut self,
        quarantine: Vec<Quarantined>,
        sources: Vec<SourceFile>,
    ) -> Result<Summary> {
        self.seal()?;
        while self.writing.pending() > 0 {
            self.settle(false)?;
        }
        // Whatever happens, the lock goes last and the draft before it.
        let Self { lock, draft, existing, mut journal, written, scratch, .. } = self;
        let added = written.iter().map(|part| part.added).sum();
        let (quarantine, sources) = match &existing {
            None => (quarantine, sources),
            Some(existing) => {
                let all = existing.quarantine_with(quarantine)?;
                if written.is_empty() && all.len() as u64 == existing.counts().quarantined {
                    return existing.unchanged();
                }
                (all, existing.sources_with(sources))
            }
        };
        let dir = draft.path();
        let mut parts: BTreeMap<u64, Written> =
            written.into_iter().map(|part| (part.number, part)).collect();
        if let Some(existing) = &existing {
            for part in existing.kept(dir, |number| parts.contains_key(&number))? {
                parts.insert(part.number, part);
            }
        }
        let mut files = vec![part::write_lines(dir, QUARANTINE, &quarantine)?];
        if let Some(existing) = &existing {
            files.extend(existing.kept_media(dir)?);
        }
        let (mut counts, mut known) = (Vec::new(), Vec::new());
        for part in parts.into_values() {
            counts.push(part.counts);
            files.extend(part.files);
            known.extend(part.known);
        }
        let manifest = manifest(files, counts, &mut known, quarantine.len() as u64, sources)?;
        part::write_text(dir, MANIFEST, &manifest.to_text()?)?;
        journal.as_mut().map_or(Ok(()), Journal::close)?;
        Journal::remove(dir)?;
        fs::remove_dir_all(&scratch).map_err(|e| Error::io("cannot remove", &scratch, e))?;
        draft.publish()?;
        drop(lock);
        Ok(Summary::of(&manifest, added, false))
    }
}

impl Sealed {
    fn write(self, dir: &Path) -> Result<Written> {
        let Self { number, groups, media, sources, end, remarked, added } = self;
        let known: Vec<Known> = groups
            .par_iter()
            .flat_map_iter(|group| group.rollouts.iter().map(|rollout| Known::of(group, rollout)))
            .collect();
        let mut files = part::write(dir, number, &groups, &known)?;
        if let Some((number, pieces)) = media {
            files.push(part::write_media(dir, number, &pieces, &sources)?);
        }
        let counts = PartCounts::of(&groups);
        Ok(Written { number, end, remarked, added, counts, files, known })
    }
}

impl Summary {
    pub(super) fn of(manifest: &Manifest, added: u64, unchanged: bool) -> Self {
        Self {
            counts: manifest.counts,
            parts: manifest.parts.len() as u64,
            bytes: manifest.files.iter().map(|file| file.bytes).sum(),
            content: manifest.content,
            added,
            unchanged,
        }
    }
}

fn manifest(
    mut files: Vec<FileEntry>,
    parts: Vec<PartCounts>,
    known: &mut [Known],
    quarantined: u64,
    sources: Vec<SourceFile>,
) -> Result<Manifest> {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let counts = Counts::sum(&parts, quarantined)
        .ok_or_else(|| Error::format("the totals of the archive do not fit 64 bits"))?;
    Ok(Manifest {
        format: FormatVersion::current(),
        tool: Tool {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        parts,
        counts,
        content: content::content(known),
        files,
        sources,
        blake3: String::new(),
    })
}

/// Writes all of `ingested` with a [`Writer`].
///
/// # Errors
///
/// As [`Writer::open`], [`Writer::push`] and [`Writer::finish`].
pub fn write(target: &Path, force: bool, ingested: &Ingested) -> Result<Summary> {
    let mut writer = Writer::open(target, force)?;
    let known = writer.known_parts();
    let mut groups: Vec<&Group> = ingested.groups.iter().collect();
    let rank = |group: &Group| known.get(&group.group_id).copied().unwrap_or(u64::MAX);
    groups.sort_by_key(|group| (rank(group), &group.group_id));
    for (index, group) in groups.into_iter().enumerate() {
        let (group, pieces) = (group.clone(), ingested.pieces.of(group));
        writer.push(Pushed { index, group, pieces, remarked: false })?;
    }
    writer.finish(ingested.quarantine.clone(), ingested.sources.clone())
}
