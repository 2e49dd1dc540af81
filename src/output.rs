//! Outputs appear whole or not at all: written to a sibling temporary, synced, then renamed.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// Temporaries that are being written, and whether an interrupt leaves them; it removes others.
static DRAFTS: Mutex<Vec<(PathBuf, bool)>> = Mutex::new(Vec::new());

/// How often the removal of a draft is tried.
const REMOVALS: usize = 8;

fn drafts() -> std::sync::MutexGuard<'static, Vec<(PathBuf, bool)>> {
    DRAFTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files of the locks that are held.
static LOCKS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn locks() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    LOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes every output that is not published yet, but for those that can be gone on with; for
/// the moment before an interrupted process ends. Outputs that are being published by another
/// thread finish first, whole. Returns whether there is something to go on with.
pub fn abandon_drafts() -> bool {
    let mut kept = false;
    for (draft, keep) in drafts().drain(..) {
        kept |= keep;
        if !keep {
            // Threads may still put something into it. Nothing can be done about one that cannot be
            // removed.
            let removed = || {
                let _ = fs::remove_dir_all(&draft);
                draft.symlink_metadata().is_err()
            };
            let _ = (0..REMOVALS).any(|_| removed());
        }
    }
    for lock in locks().drain(..) {
        let _ = fs::remove_file(lock);
    }
    kept
}

/// From now on an interrupt leaves what is written at `draft`, for [`AtomicDir::resume`] to find.
pub fn survive_interrupts(draft: &Path) {
    for (path, keep) in drafts().iter_mut() {
        *keep |= path == draft;
    }
}

/// A directory that comes into being, or replaces its predecessor, in one rename.
///
/// Dropped without [`AtomicDir::publish`], it removes itself and the target stays as it was.
#[derive(Debug)]
pub struct AtomicDir {
    staging: PathBuf,
    target: PathBuf,
    published: bool,
}

impl Drop for AtomicDir {
    fn drop(&mut self) {
        drafts().retain(|(draft, _)| *draft != self.staging);
        if !self.published {
            let _ = fs::remove_dir_all(&self.staging);
        }
    }
}

impl AtomicDir {
    /// Prepares to write `target`. An existing target is refused unless `force`, and even then
    /// replaced only when it is an empty folder or an earlier output of the same kind, which holds
    /// a file named `marker`: nothing else of the user's is ever removed.
    pub fn create(target: &Path, force: bool, marker: &str) -> Result<Self> {
        refuse(target, force, marker)?;
        let parent = parent_of(target);
        fs::create_dir_all(parent).map_err(|e| Error::io("cannot create", parent, e))?;
        let staging = tempfile::Builder::new()
            .prefix(&sibling(target, ".partial-"))
            .tempdir_in(parent)
            .map_err(|e| Error::io("cannot create a temporary directory in", parent, e))?;
        Ok(Self::of(staging.keep(), target))
    }

    /// The same under a name that only depends on `target`, so that what a killed process left
    /// is found again. Only for whoever holds the [`Lock`] of `target`.
    pub fn resume(target: &Path, force: bool, marker: &str) -> Result<Self> {
        refuse(target, force, marker)?;
        let staging = parent_of(target).join(sibling(target, ".partial"));
        fs::create_dir_all(&staging).map_err(|e| Error::io("cannot create", &staging, e))?;
        Ok(Self::of(staging, target))
    }

    fn of(staging: PathBuf, target: &Path) -> Self {
        drafts().push((staging.clone(), false));
        Self { staging, target: target.to_owned(), published: false }
    }

    /// Removes whatever is written so far, but for the folder or file `kept`.
    pub fn clear(&self, kept: &str) -> Result<()> {
        let failed = |e| Error::io("cannot empty", &self.staging, e);
        for entry in fs::read_dir(&self.staging).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name() != kept {
                let folder = entry.file_type().map_err(failed)?.is_dir();
                let remove = if folder { fs::remove_dir_all } else { fs::remove_file::<PathBuf> };
                remove(entry.path()).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Where to write until publication.
    pub fn path(&self) -> &Path {
        &self.staging
    }

    /// Syncs everything and puts it in place.
    pub fn publish(mut self) -> Result<()> {
        sync(&tree(self.path())?)?;
        use std::os::unix::fs::PermissionsExt;
        // A TempDir is private to its owner; what we publish follows the usual mode.
        fs::set_permissions(self.path(), fs::Permissions::from_mode(0o755))
            .map_err(|e| Error::io("cannot set the mode of", self.path(), e))?;
        let put = |e| Error::io("cannot put in place", &self.target, e);
        // Held while renaming, so that an interrupt sees the output before or after, not between.
        let mut drafts = drafts();
        let replaces = self.target.symlink_metadata().is_ok();
        if replaces {
            // The old output moves into the temporary's name in one step, and goes with it.
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            renameat_with(CWD, self.path(), CWD, &self.target, RenameFlags::EXCHANGE)
                .map_err(|e| put(e.into()))?;
        } else {
            fs::rename(self.path(), &self.target).map_err(put)?;
        }
        drafts.retain(|(draft, _)| *draft != self.staging);
        self.published = true;
        drop(drafts);
        if replaces {
            let old = &self.staging;
            fs::remove_dir_all(old).map_err(|e| Error::io("cannot remove the replaced", old, e))?;
        }
        sync_dir(parent_of(&self.target))
    }
}

/// Name of a hidden sibling of `target`.
fn sibling(target: &Path, end: &str) -> String {
    format!(".{}{end}", target.file_name().unwrap_or_default().to_string_lossy())
}

/// Refuses a target that may not be written.
fn refuse(target: &Path, force: bool, marker: &str) -> Result<()> {
    if target.file_name().is_none() {
        return Err(Error::usage("the output path names no file"));
    }
    if target.symlink_metadata().is_err() {
        return Ok(());
    }
    if !force {
        return check_free(target);
    }
    if !is_replaceable(target, marker) {
        return Err(Error::usage(format!(
            "{} holds no {marker}, so --force does not replace it",
            target.display()
        ))
        .help("Choose another output, or remove it by hand"));
    }
    Ok(())
}

/// The right to write an output, held by one process at a time.
///
/// The file of the lock lies beside the output and goes with the lock. One that a killed process
/// left stands in nobody's way.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock of `target`.
    ///
    /// # Errors
    ///
    /// Another process holds it; the folder of `target` cannot be written.
    pub fn acquire(target: &Path) -> Result<Self> {
        if target.file_name().is_none() {
            return Err(Error::usage("the output path names no file"));
        }
        let parent = parent_of(target);
        fs::create_dir_all(parent).map_err(|e| Error::io("cannot create", parent, e))?;
        let path = parent.join(sibling(target, ".lock"));
        let failed = |e| Error::io("cannot lock", &path, e);
        loop {
            let mut open = File::options();
            let mut file = open
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                // A file system without locks cannot keep others out; the rename is still atomic.
                Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => {}
                Err(TryLockError::Error(e)) => return Err(failed(e)),
                Err(TryLockError::WouldBlock) => {
                    let mut holder = String::new();
                    let _ = file.take(32).read_to_string(&mut holder);
                    let holder = holder.trim();
                    let by = if holder.is_empty() { "" } else { " (process " };
                    let end = if holder.is_empty() { "" } else { ")" };
                    return Err(Error::usage(format!(
                        "another forestctl{by}{holder}{end} is writing {}",
                        target.display()
                    ))
                    .help("Wait until it is done, then run the command again"));
                }
            }
            // Whoever held it before may have removed the file between its opening and locking.
            let same = |there: &fs::Metadata| {
                file.metadata().is_ok_and(|m| (m.ino(), m.dev()) == (there.ino(), there.dev()))
            };
            if fs::metadata(&path).is_ok_and(|there| same(&there)) {
                // For people only: without room for it, the lock is held all the same.
                let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                locks().push(path.clone());
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        locks().retain(|lock| *lock != self.path);
        let _ = fs::remove_file(&self.path);
    }
}

fn is_replaceable(target: &Path, marker: &str) -> bool {
    let folder = target.symlink_metadata().is_ok_and(|m| m.is_dir());
    folder
        && (target.join(marker).is_file()
            || fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none()))
}

/// Refuses a target that is there; before long work, too, whose result would have no place.
///
/// # Errors
///
/// The target exists.
pub fn check_free(target: &Path) -> Result<()> {
    match target.symlink_metadata() {
        Ok(_) => Err(Error::usage(format!("{} already exists", target.display()))
            .help("Choose another output, or replace it with --force")),
        Err(_) => Ok(()),
    }
}

/// Writes one file whole or not at all. An existing file is refused unless `force`.
pub fn write_file(target: &Path, force: bool, bytes: &[u8]) -> Result<()> {
    if !force {
        check_free(target)?;
    }
    let parent = parent_of(target);
    let failed = |e| Error::io("cannot write", target, e);
    use std::os::unix::fs::PermissionsExt;
    // A temporary is private to its owner; what we publish follows the umask.
    let mode = fs::Permissions::from_mode(0o666);
    let mut file =
        tempfile::Builder::new().permissions(mode).tempfile_in(parent).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    file.persist(target).map_err(|e| failed(e.error))?;
    sync_dir(parent)
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| Error::io("cannot sync", dir, e))
}

/// All files and folders below `dir`, and itself.
fn tree(dir: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| Error::io("cannot sync", dir, e);
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        match path.is_dir() {
            true => paths.extend(tree(&path)?),
            false => paths.push(path),
        }
    }
    paths.push(dir.to_owned());
    Ok(paths)
}

/// Files that are synced at a time: whoever waits together is served by one commit of the file
/// system's journal.
const SYNCED_AT_A_TIME: usize = 16;

/// Puts files and folders on disk.
///
/// # Errors
///
/// The first one that cannot be.
pub fn sync(paths: &[PathBuf]) -> Result<()> {
    let sync = |path: &PathBuf| {
        let synced = File::open(path).and_then(|file| file.sync_all());
        synced.map_err(|e| Error::io("cannot sync", path, e))
    };
    let threads = paths.len().min(SYNCED_AT_A_TIME);
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|first| {
                let mut mine = paths.iter().skip(first).step_by(threads);
                scope.spawn(move || mine.try_for_each(sync))
            })
            .collect();
        let synced = started.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        synced.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_appears_whole_or_not_at_all() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let draft = AtomicDir::create(&target, false, "a").unwrap();
        fs::write(draft.path().join("a"), "1").unwrap();
        drop(draft);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);

        let draft = AtomicDir::create(&target, false, "a").unwrap();
        fs::write(draft.path().join("a"), "1").unwrap();
        draft.publish().unwrap();
        assert!(AtomicDir::create(&target, false, "a").is_err());

        let draft = AtomicDir::create(&target, true, "a").unwrap();
        fs::write(draft.path().join("b"), "2").unwrap();
        assert!(target.join("a").exists());
        draft.publish().unwrap();
        assert!(!target.join("a").exists() && target.join("b").exists());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }
    #[test]
    fn a_lock_has_one_holder_and_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("run.forest");
        let held = Lock::acquire(&target).unwrap();
        let refused = Lock::acquire(&target).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        Lock::acquire(&home.path().join("other")).unwrap();
        drop(held);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        // What a killed process leaves.
        fs::write(home.path().join(".run.forest.lock"), "1").unwrap();
        Lock::acquire(&target).unwrap();
    }

    #[test]
    fn what_was_written_before_a_kill_is_found_again() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("run.forest");
        let killed = AtomicDir::resume(&target, false, "a").unwrap();
        fs::write(killed.path().join("a"), "1").unwrap();
        std::mem::forget(killed);
        let draft = AtomicDir::resume(&target, false, "a").unwrap();
        assert_eq!(fs::read(draft.path().join("a")).unwrap(), b"1");
        draft.publish().unwrap();
        assert_eq!(fs::read(target.join("a")).unwrap(), b"1");
        let draft = AtomicDir::resume(&target, true, "a").unwrap();
        assert_eq!(fs::read_dir(draft.path()).unwrap().count(), 0);
        drop(draft);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn force_replaces_nothing_but_an_output_of_its_kind() {
        let home = tempfile::tempdir().unwrap();
        let photos = home.path().join("photos");
        fs::create_dir(&photos).unwrap();
        AtomicDir::create(&photos, true, "archive.json").unwrap();
        fs::write(photos.join("a.jpg"), "").unwrap();
        let file = home.path().join("notes");
        fs::write(&file, "").unwrap();
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&photos, &link).unwrap();
        for target in [&photos, &file, &link] {
            let refused = AtomicDir::create(target, true, "archive.json").unwrap_err();
            assert!(refused.to_string().contains("archive.json"), "{refused}");
        }
        assert!(photos.join("a.jpg").exists());
    }
}
