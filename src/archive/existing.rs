//! An archive that is added to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::content::{self, Known};
use super::journal::Written;
use super::manifest::{Counts, FileEntry, FormatVersion, TABLES, part_path};
use super::write::Summary;
use super::{Archive, Group, Quarantined, SourceFile};
use crate::error::{Error, Result};
use crate::finding::Code;
use crate::id::{Digest32, GroupId, RolloutId};

/// An open archive, and who is in it.
#[derive(Debug)]
pub(super) struct Existing {
    archive: Archive,
    /// Rollouts of each part.
    known: Vec<Vec<Known>>,
    parts: Arc<BTreeMap<GroupId, u64>>,
    rollouts: BTreeMap<RolloutId, Known>,
}

impl Existing {
    /// Opens the archive at `target`.
    pub fn open(target: &Path) -> Result<Self> {
        let archive = Archive::open(target)?;
        archive.manifest().format.check_growable_by(&FormatVersion::current())?;
        let known = archive.known()?;
        let (mut parts, mut rollouts) = (BTreeMap::new(), BTreeMap::new());
        for (number, known) in (0u64..).zip(&known) {
            for rollout in known {
                parts.insert(rollout.group_id.clone(), number);
                rollouts.insert(rollout.rollout_id.clone(), rollout.clone());
            }
        }
        Ok(Self { archive, known, parts: Arc::new(parts), rollouts })
    }

    /// What tells this archive from others.
    pub fn manifest_digest(&self) -> &str {
        &self.archive.manifest().blake3
    }

    pub fn part_count(&self) -> u64 {
        self.archive.part_count() as u64
    }

    pub fn counts(&self) -> Counts {
        self.archive.counts()
    }

    pub fn parts(&self) -> Arc<BTreeMap<GroupId, u64>> {
        self.parts.clone()
    }

    pub fn part_of(&self, group: &GroupId) -> Option<u64> {
        self.parts.get(group).copied()
    }

    /// The rollouts of `group` that are not here yet.
    ///
    /// # Errors
    ///
    /// A rollout that is here, and is another.
    pub fn gain(&self, mut group: Group) -> Result<Group> {
        let mut different = None;
        group.rollouts.retain(|rollout| match self.rollouts.get(&rollout.rollout_id) {
            None => true,
            Some(known) => {
                if known.group_id != group.group_id || known.digest != content::digest(rollout) {
                    different.get_or_insert_with(|| rollout.rollout_id.clone());
                }
                false
            }
        });
        match different {
            None => Ok(group),
            Some(id) => {
                let archive = self.archive.dir().display();
                Err(Error::usage(format!("{archive} already holds rollout {id}, and another one"))
                    .help(
                        "What is archived is not changed: choose another output, or replace the \
                         whole archive with --force",
                    ))
            }
        }
    }

    /// The groups of a part together with what they gain.
    pub fn merged(&self, number: u64, gains: Vec<Group>) -> Result<Vec<Group>> {
        let mut groups = self.archive.read_part(number as usize)?;
        for gain in gains {
            let Some(group) = groups.iter_mut().find(|g| g.group_id == gain.group_id) else {
                groups.push(gain);
                continue;
            };
            // Gym states no size: it is what was seen, so far.
            let seen = |group: &Group| {
                let size = group.rollouts.len();
                group.rollouts.iter().all(|rollout| rollout.group_size as usize == size)
            };
            let grows = seen(group) && seen(&gain);
            group.rollouts.extend(gain.rollouts);
            group.rollouts.sort_by(|a, b| (a.slot, &a.rollout_id).cmp(&(b.slot, &b.rollout_id)));
            if grows {
                let size = group.rollouts.len() as u32;
                group.rollouts.iter_mut().for_each(|rollout| rollout.group_size = size);
            }
        }
        groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
        Ok(groups)
    }

    /// Takes the parts over that are not written again.
    pub fn kept(&self, dir: &Path, again: impl Fn(u64) -> bool) -> Result<Vec<Written>> {
        let manifest = self.archive.manifest();
        let mut kept = Vec::new();
        for ((number, known), counts) in (0u64..).zip(&self.known).zip(&manifest.parts) {
            if again(number) {
                continue;
            }
            let mut files = Vec::new();
            for table in TABLES {
                let path = part_path(table, number);
                self.link(dir, &path)?;
                files.extend(manifest.file(&path).cloned());
            }
            kept.push(Written {
                number,
                end: 0,
                remarked: Vec::new(),
                added: 0,
                counts: *counts,
                files,
                known: known.clone(),
            });
        }
        Ok(kept)
    }

    /// How many media files there are, and what they hold.
    pub fn media(&self) -> Result<(u64, BTreeSet<Digest32>)> {
        let (mut files, mut stored) = (0, BTreeSet::new());
        for file in self.archive.media_files() {
            let pieces = self.archive.read_piece_index(file).map_err(|what| {
                let archive = self.archive.dir().display();
                Error::format(format!("{archive} is damaged: {}: {what}", file.path))
                    .help(Code::CorruptFile.help())
            })?;
            stored.extend(pieces.iter().map(|piece| piece.digest));
            files += 1;
        }
        Ok((files, stored))
    }

    /// Takes the media files over.
    pub fn kept_media(&self, dir: &Path) -> Result<Vec<FileEntry>> {
        let files = self.archive.media_files();
        files.map(|file| self.link(dir, &file.path).map(|()| file.clone())).collect()
    }

    /// Takes one file over: by a link where the file system has them.
    fn link(&self, dir: &Path, path: &str) -> Result<()> {
        let (from, to) = (self.archive.dir().join(path), dir.join(path));
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(|e| Error::io("cannot create", folder, e))?;
        }
        // One of the kind may be left by a killed run.
        let _ = fs::remove_file(&to);
        fs::hard_link(&from, &to)
            .or_else(|_| fs::copy(&from, &to).map(|_| ()))
            .map_err(|e| Error::io("cannot take over", &from, e))
    }

    /// The quarantine with more entries in it.
    pub fn quarantine_with(&self, more: Vec<Quarantined>) -> Result<Vec<Quarantined>> {
        let mut all = self.archive.quarantine()?;
        let there: BTreeSet<String> = all.iter().map(key).collect();
        all.extend(more.into_iter().filter(|entry| !there.contains(&key(entry))));
        all.sort_by(|a, b| {
            (&a.source, a.line, a.code, &a.message).cmp(&(&b.source, b.line, b.code, &b.message))
        });
        Ok(all)
    }

    /// The sources with more of them.
    pub fn sources_with(&self, more: Vec<SourceFile>) -> Vec<SourceFile> {
        let mut all = self.archive.manifest().sources.clone();
        let more: Vec<_> = more.into_iter().filter(|file| !all.contains(file)).collect();
        all.extend(more);
        all.sort_by(|a, b| (&a.path, a.blake3).cmp(&(&b.path, b.blake3)));
        all
    }

    /// The archive as it is, once it is known to be whole.
    pub fn unchanged(&self) -> Result<Summary> {
        match self.archive.check_files().first() {
            None => Ok(Summary::of(self.archive.manifest(), 0, true)),
            Some(finding) => {
                let archive = self.archive.dir().display();
                Err(Error::format(format!("{archive} is damaged: {}", finding.message))
                    .help(finding.help.clone()))
            }
        }
    }
}

fn key(entry: &Quarantined) -> String {
    format!("{}\0{:?}\0{}\0{}", entry.source, entry.line, entry.code, entry.message)
}
