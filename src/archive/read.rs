//! An archive directory to groups.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;

use arrow::record_batch::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rayon::prelude::*;

use super::manifest::{Counts, FileEntry, MANIFEST, Manifest, part_path};
use super::table::{Fault, ledger, origins, rollouts};
use super::write::QUARANTINE;
use super::{Group, Quarantined, Rollout};
use crate::error::{Error, Result};
use crate::finding::{Code, Finding, Location};
use crate::id::{Digest32, GroupId, RolloutId};

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 1024;

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
        self.manifest.parts as usize
    }

    /// Groups of one part, in order.
    ///
    /// # Errors
    ///
    /// A file that is missing, differs from its BLAKE3, or is not the table that it should be.
    pub fn read_part(&self, part: usize) -> Result<Vec<Group>> {
        let part = part as u64;
        let mut groups: Vec<Group> = Vec::new();
        let mut places = Places::default();
        self.table(part, "rollouts", |batch| {
            for (group_id, rollout) in rollouts::decode(batch)? {
                if groups.last().is_none_or(|group| group.group_id != group_id) {
                    groups.push(Group { group_id: group_id.clone(), rollouts: Vec::new() });
                }
                let at = groups.len() - 1;
                let rollouts = &mut groups[at].rollouts;
                if !places.insert(group_id, rollout.rollout_id.clone(), (at, rollouts.len())) {
                    return Err(format!("rollout {} is there twice", rollout.rollout_id));
                }
                rollouts.push(rollout);
            }
            Ok(())
        })?;
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
        Ok(groups)
    }

    /// All groups, in order. Parts are read in parallel.
    ///
    /// # Errors
    ///
    /// As [`Archive::read_part`].
    pub fn groups(&self) -> Result<Vec<Group>> {
        let parts: Vec<_> = (0..self.part_count())
            .into_par_iter()
            .map(|part| self.read_part(part))
            .collect::<Result<_>>()?;
        Ok(parts.into_iter().flatten().collect())
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
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(|e| broken(e.to_string())))
            .collect()
    }

    /// Compares every file with the manifest, and looks for files that it does not list.
    pub fn check_files(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self
            .manifest
            .files
            .par_iter()
            .filter_map(|file| {
                let wrong = self.checked(file).err()?;
                let message = format!("{}: {wrong}", file.path);
                Some(Finding::new(Code::CorruptFile, message).at(at(&file.path)))
            })
            .collect();
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
        mut decode: impl FnMut(&RecordBatch) -> Result<(), Fault>,
    ) -> Result<()> {
        let path = part_path(table, part);
        let bytes = self.file(&path)?;
        let rows = self.manifest.file(&path).map_or(0, |file| file.rows);
        let read = quietly(AssertUnwindSafe(|| {
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes))
                .and_then(|builder| builder.with_batch_size(BATCH_ROWS).build())
                .map_err(|e| e.to_string())?;
            let mut seen = 0;
            for batch in reader {
                let batch = batch.map_err(|e| e.to_string())?;
                decode(&batch).map_err(|fault| format!("after row {seen}: {fault}"))?;
                seen += batch.num_rows() as u64;
            }
            match seen == rows {
                true => Ok(()),
                false => Err(format!("{seen} rows, where the manifest says {rows}")),
            }
        }));
        read.unwrap_or_else(|| Err("not a Parquet file that can be decoded".to_owned()))
            .map_err(|what| self.corrupt(&path, &what))
    }

    /// The bytes of a listed file, once they are known to be those that were written.
    pub(super) fn file(&self, path: &str) -> Result<Vec<u8>> {
        let entry = self
            .manifest
            .file(path)
            .ok_or_else(|| self.corrupt(path, "the manifest does not list it"))?;
        self.checked(entry).map_err(|what| self.corrupt(path, &what))
    }

    fn checked(&self, entry: &FileEntry) -> Result<Vec<u8>, String> {
        let path = self.dir.join(&entry.path);
        let size = fs::metadata(&path).map_err(|e| e.to_string())?.len();
        if size != entry.bytes {
            return Err(format!("{size} bytes, where the manifest says {}", entry.bytes));
        }
        let bytes = fs::read(&path).map_err(|e| e.to_string())?;
        match *blake3::hash(&bytes).as_bytes() == entry.blake3.0 {
            true => Ok(bytes),
            false => Err("its bytes do not give the BLAKE3 of the manifest".to_owned()),
        }
    }

    pub(super) fn corrupt(&self, path: &str, what: &str) -> Error {
        Error::format(format!("{}: {what}", self.dir.join(path).display()))
            .help(Code::CorruptFile.help())
    }
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
    QUIET.set(true);
    let result = catch_unwind(work).ok();
    QUIET.set(false);
    result
}
