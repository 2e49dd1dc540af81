//! Sources to groups, in two passes: the first one finds out which scope each line belongs to,
//! the second one reads group by group, so that memory holds no more than the groups in work.

mod assemble;
mod detect;
mod gym_store;
mod index;
mod inline;
mod lineage;
mod lines;
mod media;
mod pickle;
mod plan;
mod quarantine;
mod recovery;
mod rollouts;
mod scope;
mod served;
mod staged;
mod tensors;
mod texts;
mod trace;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use detect::Found;
use plan::PlannedGroup;
use quarantine::Quarantine;
use tensors::Sidecars;
use texts::Texts;

pub use lines::MAX_LINE;

use crate::archive::{Done, PieceSources, Pushed};
pub use crate::archive::{Ingested, Quarantined, SourceFile, SourceForm};
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::id::{Digest32, GroupId};
use crate::ordered::in_order;

/// Is told of bytes that have been read.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);

/// Bytes of captures that a thread reads at a time, unless one group is larger.
const BATCH: u64 = 4 << 20;

/// Sources after the first pass: every group is known, and where to read it.
#[derive(Debug)]
pub struct Sources {
    texts: Texts,
    groups: Vec<PlannedGroup>,
    sidecars: Sidecars,
    findings: Vec<Finding>,
    quarantine: Quarantine,
    hashes: BTreeMap<u32, Digest32>,
}

/// What reading brought to light beside the groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remarks {
    /// As [`Ingested::findings`].
    pub findings: Vec<Finding>,
    /// As [`Ingested::quarantine`].
    pub quarantine: Vec<Quarantined>,
    /// As [`Ingested::sources`].
    pub sources: Vec<SourceFile>,
}

impl Sources {
    /// Finds every capture below `paths`, and indexes it; so too `stdin`, a file whose lines are
    /// of any kind. `scratch` is a folder with room for the lines of compressed sources.
    ///
    /// # Errors
    ///
    /// A source that is not there or cannot be opened; [`crate::error::Kind::Nothing`] when there
    /// is no capture at all. Broken lines and files are quarantined, not errors.
    pub fn index(
        paths: &[PathBuf],
        stdin: Option<&Path>,
        scratch: &Path,
        progress: Progress<'_>,
    ) -> Result<Self> {
        let mut found = detect::find(paths)?;
        found.extend(stdin.map(detect::stdin).transpose()?);
        let mut texts = Texts::new(found, scratch)?;
        let mut quarantine = Quarantine::default();
        let mut index = index::index(&mut texts, &mut quarantine, progress)?;
        let sidecars = texts.sources().filter(|file| file.form == SourceForm::MediaTensors);
        let sidecars = Sidecars::read(sidecars, &mut quarantine)?;
        let hashes = std::mem::take(&mut index.hashes);
        let (groups, findings) = plan::groups(index, &texts, &mut quarantine)?;
        if groups.is_empty() && quarantine.is_empty() {
            return Err(nothing(texts.sources()));
        }
        Ok(Self { texts, groups, sidecars, findings, quarantine, hashes })
    }

    /// Bytes that the second pass reads, about.
    pub fn weight(&self) -> u64 {
        self.groups.iter().map(PlannedGroup::weight).sum()
    }

    /// What tells these sources from others: name and kind of every file, and its content where
    /// that was read already, or else what the file system says of its last change.
    ///
    /// # Errors
    ///
    /// A file that is gone.
    pub fn fingerprint(&self) -> Result<Digest32> {
        let mut hasher = blake3::Hasher::new();
        for (at, file) in (0u32..).zip(self.texts.sources()) {
            let state = match self.hashes.get(&at) {
                Some(hash) => hash.to_string(),
                None => {
                    last_change(&file.path).map_err(|e| Error::io("cannot read", &file.path, e))?
                }
            };
            let text = format!("{}\0{:?}\0{}\0{state}", file.name, file.form, file.bytes);
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        Ok(Digest32(*hasher.finalize().as_bytes()))
    }

    /// Puts the groups in order of `rank`, then of `group_id`.
    pub fn arrange<R: Ord>(&mut self, rank: impl Fn(&GroupId) -> R) {
        self.groups.sort_by(|a, b| {
            (rank(&a.group_id), &a.group_id).cmp(&(rank(&b.group_id), &b.group_id))
        });
    }

    /// Reads the groups in order and gives each to `sink`, but for those that are `done`.
    ///
    /// What comes out depends on the lines alone, not on their order or on how they are spread
    /// over files; only origins and the list of sources tell those apart.
    ///
    /// # Errors
    ///
    /// A source that changed or went away since it was indexed; what `sink` returns;
    /// [`crate::error::Kind::Nothing`] when there was no capture after all.
    pub fn read(
        mut self,
        done: &Done,
        progress: Progress<'_>,
        mut sink: impl FnMut(Pushed) -> Result<()>,
    ) -> Result<Remarks> {
        let groups = std::mem::take(&mut self.groups);
        let mut findings = std::mem::take(&mut self.findings);
        let mut captured = done.groups > 0;
        let wanted = |(index, group): &(usize, PlannedGroup)| {
            let wanted = *index >= done.groups || done.remarked.contains(index);
            if !wanted {
                self.sidecars.pass_over(group.calls());
                progress(group.weight());
            }
            wanted
        };
        let batches = batches(groups.into_iter().enumerate().filter(wanted));
        let (texts, sidecars) = (&self.texts, &self.sidecars);
        let (quarantine, hashes) = (&mut self.quarantine, &mut self.hashes);
        let source_of: HashMap<&Path, u32> =
            texts.sources().map(|file| file.path.as_path()).zip(0u32..).collect();
        let assemble = |batch: usize| -> Result<Vec<_>> {
            let batch = batches[batch].lock().unwrap_or_else(PoisonError::into_inner).take();
            let assemble = |(index, group): (usize, PlannedGroup)| {
                let weight = group.weight();
                let mut assembled = assemble::group(group, texts)?;
                let pieces = sidecars.attach(&mut assembled.group)?;
                progress(weight);
                Ok((index, assembled, pieces))
            };
            batch.unwrap_or_default().into_par_iter().map(assemble).collect()
        };
        // Enough for every thread while a part is written.
        let ahead = 2 * rayon::current_num_threads() + 2;
        in_order(batches.len(), ahead, assemble, |_, assembled| -> Result<()> {
            for (index, read, pieces) in assembled? {
                let remarked = !read.findings.is_empty() || !read.quarantine.is_empty();
                quarantine.extend(read.quarantine);
                findings.extend(read.findings);
                let read_whole = read.hashes.iter();
                hashes.extend(
                    read_whole
                        .filter_map(|(path, hash)| Some((*source_of.get(path.as_path())?, *hash))),
                );
                captured |= read.group.rollouts.iter().any(|rollout| {
                    !rollout.calls.is_empty()
                        || !rollout.ledger.attempted.is_empty()
                        || rollout.ledger.receipt.is_some()
                });
                if index >= done.groups {
                    sink(Pushed { index, group: read.group, pieces, remarked })?;
                }
            }
            Ok(())
        })?;
        if !captured && self.quarantine.is_empty() {
            return Err(nothing(self.texts.sources()));
        }
        self.sidecars.orphans(&mut self.quarantine);
        let sources = self.files()?;
        Ok(Remarks { findings, quarantine: self.quarantine.into_sorted(), sources })
    }

    /// Every file found, with its digest if it was read.
    fn files(&mut self) -> Result<Vec<SourceFile>> {
        let found: Vec<Found> = self.texts.sources().cloned().collect();
        let missing: Vec<(u32, &Found)> = (0u32..)
            .zip(&found)
            .filter(|(at, file)| file.form != SourceForm::Ignored && !self.hashes.contains_key(at))
            .collect();
        let hashed: Vec<_> = missing
            .into_par_iter()
            .map(|(at, file)| Ok((at, hash(file)?)))
            .collect::<Result<_>>()?;
        self.hashes.extend(hashed);
        let files = (0u32..).zip(found).map(|(at, file)| SourceFile {
            path: file.name,
            form: file.form,
            bytes: file.bytes,
            blake3: self.hashes.get(&at).copied(),
        });
        Ok(files.collect())
    }
}

type Batch = Vec<(usize, PlannedGroup)>;

/// Cuts groups into batches that are read at a time.
fn batches(groups: impl Iterator<Item = (usize, PlannedGroup)>) -> Vec<Mutex<Option<Batch>>> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut weight = 0;
    for (index, group) in groups {
        weight += group.weight();
        match batches.last_mut().filter(|_| weight <= BATCH) {
            Some(batch) => batch.push((index, group)),
            None => {
                weight = group.weight();
                batches.push(vec![(index, group)]);
            }
        }
    }
    batches.into_iter().map(|batch| Mutex::new(Some(batch))).collect()
}

/// Reads every capture below `sources` into memory.
///
/// # Errors
///
/// As [`Sources::index`] and [`Sources::read`].
pub fn read(sources: &[PathBuf]) -> Result<Ingested> {
    let (mut groups, mut pieces) = (Vec::new(), PieceSources::default());
    let indexed = Sources::index(sources, None, &std::env::temp_dir(), &|_| ())?;
    let Remarks { findings, quarantine, sources } =
        indexed.read(&Done::default(), &|_| (), |pushed| {
            if !pushed.group.rollouts.is_empty() {
                groups.push(pushed.group);
            }
            pieces.extend(pushed.pieces);
            Ok(())
        })?;
    Ok(Ingested { groups, pieces, findings, quarantine, sources })
}

fn nothing<'a>(found: impl Iterator<Item = &'a Found>) -> Error {
    let found: Vec<&Found> = found.collect();
    let message = match found[..] {
        [] => "the sources hold no file".to_owned(),
        [only] => format!("{} is not a capture", only.name),
        _ => format!("none of the {} files among the sources is a capture", found.len()),
    };
    Error::nothing(message).help(
        "Give a folder with staged*.jsonl, receipts*.jsonl and rollouts*.jsonl, a Gym store \
         (*.tokens.jsonl), or rollouts whose output items carry token arrays",
    )
}

/// Device, inode, and the times of the last change of content and of the inode itself.
fn last_change(path: &Path) -> std::io::Result<String> {
    let meta = std::fs::metadata(path)?;
    let (modified, changed) =
        ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
    Ok(format!("{} {} {modified:?} {changed:?}", meta.dev(), meta.ino()))
}

fn hash(found: &Found) -> Result<Digest32> {
    let mut hasher = blake3::Hasher::new();
    File::open(&found.path)
        .and_then(|file| hasher.update_reader(file).map(|_| ()))
        .map_err(|e| Error::io("cannot read", &found.path, e))?;
    Ok(Digest32(*hasher.finalize().as_bytes()))
}
