//! An archive directory to groups.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;

use arrow::record_batch::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rayon::prelude::*;

use super::content::{self, Known};
use super::manifest::{Counts, FileEntry, MANIFEST, Manifest, PartCounts, TABLES, part_path};
use super::pieces::is_media;
use super::table::{Fault, calls, ledger, origins, rollouts};
use super::write::QUARANTINE;
use super::{Group, Quarantined, Rollout, SourceKind};
use crate::error::{Error, Result};
use crate::finding::{Code, Finding, Location};
use crate::id::{CallId, Digest32, GroupId, RolloutId};

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 1024;

/// Whether the results of harnesses are read: large texts, which only policies look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// Every rollout has its own.
    Read,
    /// Those of staged rollouts may be left out.
    OfUnsigned,
}

/// One part of an archive.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its groups in order.
    pub groups: Vec<Group>,
    /// What is said of their rollouts, in the same order.
    pub known: Vec<Known>,
}

/// An archive that is open for reading: its manifest was read and found whole.
#[derive(Clone, Debug)]
pub struct Archive {
    dir: PathBuf,
    manifest: Manifest,
}

impl Archive {
    /// Opens the archive at `dir`.
    ///
    /// # Errors
    ///
    /// No archive there; a manifest of another format version, or one that was changed.
    pub fn open(dir: &Path) -> Result<Self> {
        let manifest = Manifest::read(dir)?;
        Ok(Self { dir: dir.to_owned(), manifest })
    }

    /// Where it lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Totals as the manifest states them.
    pub fn counts(&self) -> Counts {
        self.manifest.counts
    }

    /// Digest of what was captured: equal for archives of the same calls, rollouts and ledgers,
    /// however their sources were ordered, split or compressed.
    pub fn digest(&self) -> Digest32 {
        self.manifest.content
    }

    /// Parts, each of whole prompt groups.
    pub fn part_count(&self) -> usize {
        self.manifest.parts.len()
    }

    /// Groups of one part, in order.
    ///
    /// # Errors
    ///
    /// A file that is missing, differs from its BLAKE3, or is not the table that it should be.
    pub fn read_part(&self, part: usize) -> Result<Vec<Group>> {
        self.part(part, Results::Read).map(|part| part.groups)
    }

    /// One part.
    ///
    /// # Errors
    ///
    /// As [`Archive::read_part`].
    pub fn part(&self, part: usize, results: Results) -> Result<Part> {
        let part = part as u64;
        let (mut groups, mut all_known): (Vec<Group>, Vec<Known>) = (Vec::new(), Vec::new());
        let mut places = Places::default();
        for (known, rollout) in self.rollouts(part, results)? {
            let group_id = known.group_id.clone();
            all_known.push(known);
            if groups.last().is_none_or(|group| group.group_id != group_id) {
                groups.push(Group { group_id: group_id.clone(), rollouts: Vec::new() });
            }
            let at = groups.len() - 1;
            let rollouts = &mut groups[at].rollouts;
            if !places.insert(group_id, rollout.rollout_id.clone(), (at, rollouts.len())) {
                let what = format!("rollout {} is there twice", rollout.rollout_id);
                return Err(self.corrupt(&part_path("rollouts", part), &what));
            }
            rollouts.push(rollout);
        }
        let ledger = || {
            self.table(part, "ledger", |batch| {
                ledger::decode(batch, |group, rollout, put| {
                    put(&mut places.find(&mut groups, group, rollout)?.ledger)
                })
            })
        };
        let (ledger, runs) = rayon::join(ledger, || self.calls(part));
        ledger?;
        for run in runs? {
            let (group, rollout) = (run.group_id.as_str(), run.rollout_id.as_str());
            let put = || {
                let calls = &mut places.find(&mut groups, group, rollout)?.calls;
                for (index, call) in run.calls {
                    if calls.len() != index as usize {
                        return Err(format!("call {index} comes as number {}", calls.len()));
                    }
                    calls.push(call);
                }
                Ok(())
            };
            put().map_err(|what: Fault| self.corrupt(&part_path("calls", part), &what))?;
        }
        self.table(part, "origins", |batch| {
            origins::decode(batch, |group, rollout, index, origin| {
                let calls = &mut places.find(&mut groups, group, rollout)?.calls;
                let call = calls.get_mut(index as usize);
                call.ok_or_else(|| format!("call {index} is not in the table of calls"))?.origin =
                    origin;
                Ok(())
            })
        })?;
        let (found, stated) = (PartCounts::of(&groups), self.manifest.parts.get(part as usize));
        if stated != Some(&found) {
            let what = format!("part {part} holds {found:?}, where the manifest says {stated:?}");
            return Err(self.corrupt(MANIFEST, &what));
        }
        Ok(Part { groups, known: all_known })
    }

    /// The rollouts of a part, without their ledgers and calls.
    fn rollouts(&self, part: u64, results: Results) -> Result<Vec<(Known, Rollout)>> {
        let path = part_path("rollouts", part);
        let read = |columns| -> Result<Vec<(Known, Rollout)>> {
            let mut all = Vec::new();
            decode_table(&self.dir, &self.manifest.files, &path, Some(columns), |batch| {
                all.extend(rollouts::decode(batch, columns)?);
                Ok(())
            })?;
            Ok(all)
        };
        if results == Results::OfUnsigned {
            let all = read(&rollouts::WITHOUT_RESULT)?;
            if all.iter().all(|(_, rollout)| rollout.source == SourceKind::Staged) {
                return Ok(all);
            }
        }
        read(&rollouts::COLUMNS)
    }

    /// All groups, in order. Parts are read in parallel.
    ///
    /// # Errors
    ///
    /// As [`Archive::read_part`]; rollouts that do not give the archive's digest.
    pub fn groups(&self) -> Result<Vec<Group>> {
        let parts: Vec<_> = (0..self.part_count())
            .into_par_iter()
            .map(|part| self.part(part, Results::Read))
            .collect::<Result<_>>()?;
        let (groups, known): (Vec<_>, Vec<_>) =
            parts.into_iter().map(|part| (part.groups, part.known)).unzip();
        self.check_content(&known)?;
        let mut groups: Vec<_> = groups.into_iter().flatten().collect();
        groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
        Ok(groups)
    }

    /// Who is in each part.
    ///
    /// # Errors
    ///
    /// As [`Archive::read_part`]; a group in two parts, or rollouts that do not give the digest
    /// and the number that the manifest states.
    pub fn known(&self) -> Result<Vec<Vec<Known>>> {
        let parts: Vec<_> = (0..self.part_count() as u64)
            .into_par_iter()
            .map(|part| known_in(&self.dir, &self.manifest.files, part))
            .collect::<Result<_>>()?;
        self.check_content(&parts)?;
        Ok(parts)
    }

    /// Who is in one part.
    ///
    /// # Errors
    ///
    /// As [`Archive::read_part`].
    pub fn known_of(&self, part: usize) -> Result<Vec<Known>> {
        known_in(&self.dir, &self.manifest.files, part as u64)
    }

    /// Every recorded call of a part with its rollout, in the order of the table.
    ///
    /// # Errors
    ///
    /// As [`Archive::read_part`].
    pub fn call_ids(&self, part: usize) -> Result<Vec<(RolloutId, CallId)>> {
        let mut ids = Vec::new();
        let path = part_path("calls", part as u64);
        let columns = Some(&calls::IDS[..]);
        decode_table(&self.dir, &self.manifest.files, &path, columns, |batch| {
            calls::ids(batch, |rollout, call| ids.push((rollout.into(), call.into())))
        })?;
        Ok(ids)
    }

    /// Whether groups come in order of their ids when parts are read one after the other, as they
    /// do unless an archive was added to.
    ///
    /// # Errors
    ///
    /// As [`Archive::read_part`].
    pub fn is_ordered(&self) -> Result<bool> {
        if self.part_count() < 2 {
            return Ok(true);
        }
        let known = self.known()?;
        let ids = known.iter().flatten().map(|rollout| &rollout.group_id);
        Ok(ids.is_sorted())
    }

    /// Whether the rollouts of all parts are those that the manifest speaks of.
    ///
    /// # Errors
    ///
    /// A group in two parts, or rollouts that do not give the digest and the number that the
    /// manifest states.
    pub fn check_content(&self, parts: &[Vec<Known>]) -> Result<()> {
        let lie = |what: String| Err(self.corrupt(MANIFEST, &what));
        let mut part_of: BTreeMap<&GroupId, usize> = BTreeMap::new();
        for (at, known) in parts.iter().enumerate() {
            for rollout in known {
                if *part_of.entry(&rollout.group_id).or_insert(at) != at {
                    return lie(format!("group {} is in two parts", rollout.group_id));
                }
            }
            let stated = self.manifest.parts.get(at).map_or(0, |part| part.rollouts);
            if known.len() as u64 != stated {
                let found = known.len();
                return lie(format!("part {at} has {found} rollouts, not {stated}"));
            }
        }
        let mut all: Vec<Known> = parts.iter().flatten().cloned().collect();
        if content::content(&mut all) != self.manifest.content {
            return lie("its rollouts do not give the content digest that it carries".to_owned());
        }
        Ok(())
    }

    /// What ingest could not read.
    ///
    /// # Errors
    ///
    /// As [`Archive::read_part`].
    pub fn quarantine(&self) -> Result<Vec<Quarantined>> {
        let bytes = self.file(QUARANTINE)?;
        let broken = |what: String| self.corrupt(QUARANTINE, &what);
        let text = std::str::from_utf8(&bytes).map_err(|e| broken(e.to_string()))?;
        let entries: Vec<Quarantined> = text
            .lines()
            .map(|line| serde_json::from_str(line).map_err(|e| broken(e.to_string())))
            .collect::<Result<_>>()?;
        let (found, stated) = (entries.len() as u64, self.manifest.counts.quarantined);
        match found == stated {
            true => Ok(entries),
            false => Err(broken(format!("{found} lines, where the manifest says {stated}"))),
        }
    }

    /// Compares every file with the manifest, and looks for files that it does not list. Of
    /// media files only size and index are; their data is what [`Archive::read_pieces`] gives.
    pub fn check_files(&self) -> Vec<Finding> {
        let mut findings = self.check_bytes(|_| true);
        if findings.is_empty()
            && let Err(error) = self.known()
        {
            findings.push(Finding::new(Code::CorruptFile, error.to_string()).at(at(MANIFEST)));
        }
        findings.extend(self.unlisted());
        findings
    }

    /// The same but for the tables of the parts: [`Archive::check_part`] compares them, and
    /// [`Archive::check_content`] what they hold together.
    pub fn check_files_between_parts(&self) -> Vec<Finding> {
        let part = |part| TABLES.iter().map(move |table| part_path(table, part));
        let tables: BTreeSet<String> = (0..self.part_count() as u64).flat_map(part).collect();
        let mut findings = self.check_bytes(|file| !tables.contains(&file.path));
        findings.extend(self.unlisted());
        findings
    }

    /// Compares the tables of a part with the manifest.
    pub fn check_part(&self, part: usize) -> Vec<Finding> {
        let tables: Vec<_> = TABLES.iter().map(|table| part_path(table, part as u64)).collect();
        self.check_bytes(|file| tables.contains(&file.path))
    }

    fn check_bytes(&self, wanted: impl Fn(&FileEntry) -> bool + Sync) -> Vec<Finding> {
        self.manifest
            .files
            .par_iter()
            .filter(|file| wanted(file))
            .filter_map(|file| {
                // Tensor data are checked one by one, and only when asked for.
                let wrong = match is_media(&file.path) {
                    true => self.read_piece_index(file).err()?,
                    false => checked(&self.dir, file).err()?,
                };
                let message = format!("{}: {wrong}", file.path);
                Some(Finding::new(Code::CorruptFile, message).at(at(&file.path)))
            })
            .collect()
    }

    /// Files that the manifest does not list.
    fn unlisted(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut present = BTreeSet::new();
        if let Err(error) = list(&self.dir, "", &mut present) {
            let message = format!("{} cannot be listed: {error}", self.dir.display());
            findings.push(Finding::new(Code::CorruptFile, message));
        }
        for path in present {
            if path != MANIFEST && self.manifest.file(&path).is_none() {
                let message = format!("{path} is not in the manifest");
                findings.push(Finding::new(Code::UnlistedFile, message).at(at(&path)));
            }
        }
        findings
    }

    /// Decodes a table batch by batch.
    fn table(
        &self,
        part: u64,
        table: &str,
        decode: impl FnMut(&RecordBatch) -> Result<(), Fault>,
    ) -> Result<()> {
        decode_table(&self.dir, &self.manifest.files, &part_path(table, part), None, decode)
    }

    /// The bytes of a listed file, once they are known to be those that were written.
    pub(super) fn file(&self, path: &str) -> Result<Vec<u8>> {
        let entry = self
            .manifest
            .file(path)
            .ok_or_else(|| self.corrupt(path, "the manifest does not list it"))?;
        checked(&self.dir, entry).map_err(|what| self.corrupt(path, &what))
    }

    pub(super) fn corrupt(&self, path: &str, what: &str) -> Error {
        corrupt(&self.dir, path, what)
    }
}

fn corrupt(dir: &Path, path: &str, what: &str) -> Error {
    Error::format(format!("{}: {what}", dir.join(path).display())).help(Code::CorruptFile.help())
}

/// Where a listed file is, once it is known to have the size that was written.
pub(super) fn sized(dir: &Path, entry: &FileEntry) -> Result<PathBuf, String> {
    let path = dir.join(&entry.path);
    let meta = fs::metadata(&path).map_err(|e| e.to_string())?;
    // A pipe or a device may have no end, and says that it has no bytes.
    if !meta.is_file() {
        return Err("it is not a file".to_owned());
    }
    match meta.len() == entry.bytes {
        true => Ok(path),
        false => Err(format!("{} bytes, where the manifest says {}", meta.len(), entry.bytes)),
    }
}

/// The bytes of a file, once they are known to be those that were written.
pub(super) fn checked(dir: &Path, entry: &FileEntry) -> Result<Vec<u8>, String> {
    let path = sized(dir, entry)?;
    let bytes = fs::read(&path).map_err(|e| e.to_string())?;
    match *blake3::hash(&bytes).as_bytes() == entry.blake3.0 {
        true => Ok(bytes),
        false => Err("its bytes do not give the BLAKE3 of the manifest".to_owned()),
    }
}

/// Who is in a part, told by its table of rollouts.
pub(super) fn known_in(dir: &Path, files: &[FileEntry], part: u64) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    let path = part_path("rollouts", part);
    decode_table(dir, files, &path, Some(&rollouts::KNOWN), |batch| {
        known.extend(rollouts::known(batch)?);
        Ok(())
    })?;
    Ok(known)
}

/// Decodes one of `files` batch by batch; of its columns only those that are named, if any are.
fn decode_table(
    dir: &Path,
    files: &[FileEntry],
    path: &str,
    columns: Option<&[&str]>,
    mut decode: impl FnMut(&RecordBatch) -> Result<(), Fault>,
) -> Result<()> {
    let entry = files
        .iter()
        .find(|file| file.path == path)
        .ok_or_else(|| corrupt(dir, path, "the manifest does not list it"))?;
    let bytes = checked(dir, entry).map_err(|what| corrupt(dir, path, &what))?;
    let read = quietly(AssertUnwindSafe(|| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes))
            .map_err(|e| e.to_string())?;
        let mask = match columns {
            None => ProjectionMask::all(),
            Some(names) => ProjectionMask::columns(builder.parquet_schema(), names.iter().copied()),
        };
        let reader = builder
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .build()
            .map_err(|e| e.to_string())?;
        let mut seen = 0;
        for batch in reader {
            let batch = batch.map_err(|e| e.to_string())?;
            decode(&batch).map_err(|fault| format!("after row {seen}: {fault}"))?;
            seen += batch.num_rows() as u64;
        }
        match seen == entry.rows {
            true => Ok(()),
            false => Err(format!("{seen} rows, where the manifest says {}", entry.rows)),
        }
    }));
    read.unwrap_or_else(|| Err("not a Parquet file that can be decoded".to_owned()))
        .map_err(|what| corrupt(dir, path, &what))
}

/// Where the rollouts of a part are.
#[derive(Default)]
struct Places {
    of: BTreeMap<GroupId, BTreeMap<RolloutId, (usize, usize)>>,
    /// The one that was asked for last; rows of a rollout stand together.
    last: (usize, usize),
}

impl Places {
    /// False if the rollout has a place already.
    fn insert(&mut self, group: GroupId, rollout: RolloutId, place: (usize, usize)) -> bool {
        self.of.entry(group).or_default().insert(rollout, place).is_none()
    }

    fn find<'a>(
        &mut self,
        groups: &'a mut [Group],
        group: &str,
        rollout: &str,
    ) -> Result<&'a mut Rollout, Fault> {
        let (at, slot) = self.last;
        let last = groups.get(at).filter(|last| last.group_id.as_str() == group);
        let last = last.and_then(|last| last.rollouts.get(slot));
        if last.is_none_or(|last| last.rollout_id.as_str() != rollout) {
            let place = self.of.get(group).and_then(|rollouts| rollouts.get(rollout));
            let missing = || format!("rollout {rollout} is not in the table of rollouts");
            self.last = *place.ok_or_else(missing)?;
        }
        let (at, slot) = self.last;
        let found = groups.get_mut(at).and_then(|group| group.rollouts.get_mut(slot));
        found.ok_or_else(|| format!("rollout {rollout} has no place"))
    }
}

fn at(path: &str) -> Location {
    Location { file: Some(path.to_owned()), ..Location::default() }
}

/// Paths of all files below `dir`, with `/`.
fn list(dir: &Path, prefix: &str, found: &mut BTreeSet<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &format!("{name}/"), found)?;
        } else {
            found.insert(name);
        }
    }
    Ok(())
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; a panic in it is `None`, and nothing is printed. The decoder is known to panic on
/// files that were made to mislead it.
pub(crate) fn quietly<T>(work: AssertUnwindSafe<impl FnOnce() -> T>) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    // A worker may take on other such work before its own is done.
    let before = QUIET.replace(true);
    let result = catch_unwind(work).ok();
    QUIET.set(before);
    result
}
