//! Outputs appear whole or not at all: written to a sibling temporary, synced, then renamed.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// Temporaries that are being written; an interrupt removes them.
static DRAFTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn drafts() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    DRAFTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes every output that is not published yet; for the moment before an interrupted process
/// ends. Outputs that are being published by another thread finish first, whole.
pub fn abandon_drafts() {
    for draft in drafts().drain(..) {
        // Nothing can be done about one that cannot be removed.
        let _ = fs::remove_dir_all(draft);
    }
}

/// A directory that comes into being, or replaces its predecessor, in one rename.
///
/// Dropped without [`AtomicDir::publish`], it removes itself and the target stays as it was.
#[derive(Debug)]
pub struct AtomicDir {
    /// `None` once published.
    staging: Option<tempfile::TempDir>,
    target: PathBuf,
}

impl Drop for AtomicDir {
    fn drop(&mut self) {
        if let Some(staging) = &self.staging {
            drafts().retain(|draft| draft != staging.path());
        }
    }
}

impl AtomicDir {
    /// Prepares to write `target`. An existing target is refused unless `force`, and even then
    /// replaced only when it is an empty folder or an earlier output of the same kind, which holds
    /// a file named `marker`: nothing else of the user's is ever removed.
    pub fn create(target: &Path, force: bool, marker: &str) -> Result<Self> {
        if target.as_os_str().is_empty() {
            return Err(Error::usage("the output path is empty"));
        }
        if target.symlink_metadata().is_ok() {
            if !force {
                return Err(Error::usage(format!("{} already exists", target.display()))
                    .help("Choose another output, or replace it with --force"));
            }
            if !is_replaceable(target, marker) {
                return Err(Error::usage(format!(
                    "{} holds no {marker}, so --force does not replace it",
                    target.display()
                ))
                .help("Choose another output, or remove it by hand"));
            }
        }
        let parent = parent_of(target);
        fs::create_dir_all(parent).map_err(|e| Error::io("cannot create", parent, e))?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let staging = tempfile::Builder::new()
            .prefix(&format!(".{name}.partial-"))
            .tempdir_in(parent)
            .map_err(|e| Error::io("cannot create a temporary directory in", parent, e))?;
        drafts().push(staging.path().to_owned());
        Ok(Self { staging: Some(staging), target: target.to_owned() })
    }

    /// Where to write until publication.
    pub fn path(&self) -> &Path {
        self.staging.as_ref().map_or(&self.target, |staging| staging.path())
    }

    /// Syncs everything and puts it in place.
    pub fn publish(mut self) -> Result<()> {
        sync_tree(self.path())?;
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
        drafts.retain(|draft| draft != self.path());
        drop(drafts);
        if let Some(staging) = self.staging.take() {
            let old = staging.keep();
            if replaces {
                fs::remove_dir_all(&old)
                    .map_err(|e| Error::io("cannot remove the replaced", &old, e))?;
            }
        }
        sync_dir(parent_of(&self.target))
    }
}

fn is_replaceable(target: &Path, marker: &str) -> bool {
    let folder = target.symlink_metadata().is_ok_and(|m| m.is_dir());
    folder
        && (target.join(marker).is_file()
            || fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none()))
}

/// Writes one file whole or not at all. An existing file is refused unless `force`.
pub fn write_file(target: &Path, force: bool, bytes: &[u8]) -> Result<()> {
    if !force && target.symlink_metadata().is_ok() {
        return Err(Error::usage(format!("{} already exists", target.display()))
            .help("Choose another output, or replace it with --force"));
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

fn sync_tree(dir: &Path) -> Result<()> {
    let failed = |e| Error::io("cannot sync", dir, e);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            File::open(&path)
                .and_then(|f| f.sync_all())
                .map_err(|e| Error::io("cannot sync", &path, e))?;
        }
    }
    sync_dir(dir)
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
