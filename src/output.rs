//! Outputs appear whole or not at all: written to a sibling temporary, synced, then renamed.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A directory that comes into being, or replaces its predecessor, in one rename.
///
/// Dropped without [`AtomicDir::publish`], it removes itself and the target stays as it was.
#[derive(Debug)]
pub struct AtomicDir {
    staging: tempfile::TempDir,
    target: PathBuf,
}

impl AtomicDir {
    /// Prepares to write `target`. An existing target is refused unless `force`.
    pub fn create(target: &Path, force: bool) -> Result<Self> {
        if target.as_os_str().is_empty() {
            return Err(Error::usage("the output path is empty"));
        }
        if !force && target.symlink_metadata().is_ok() {
            return Err(Error::usage(format!("{} already exists", target.display()))
                .help("Choose another output, or replace it with --force"));
        }
        let parent = parent_of(target);
        fs::create_dir_all(parent).map_err(|e| Error::io("cannot create", parent, e))?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let staging = tempfile::Builder::new()
            .prefix(&format!(".{name}.partial-"))
            .tempdir_in(parent)
            .map_err(|e| Error::io("cannot create a temporary directory in", parent, e))?;
        Ok(Self { staging, target: target.to_owned() })
    }

    /// Where to write until publication.
    pub fn path(&self) -> &Path {
        self.staging.path()
    }

    /// Syncs everything and puts it in place.
    pub fn publish(self) -> Result<()> {
        sync_tree(self.staging.path())?;
        use std::os::unix::fs::PermissionsExt;
        // A TempDir is private to its owner; what we publish follows the usual mode.
        fs::set_permissions(self.staging.path(), fs::Permissions::from_mode(0o755))
            .map_err(|e| Error::io("cannot set the mode of", self.staging.path(), e))?;
        let put = |e| Error::io("cannot put in place", &self.target, e);
        if self.target.symlink_metadata().is_ok() {
            // The old output moves into the temporary's name in one step, and goes with it.
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            renameat_with(CWD, self.staging.path(), CWD, &self.target, RenameFlags::EXCHANGE)
                .map_err(|e| put(e.into()))?;
            let old = self.staging.keep();
            let removed =
                if old.is_dir() { fs::remove_dir_all(&old) } else { fs::remove_file(&old) };
            removed.map_err(|e| Error::io("cannot remove the replaced", &old, e))?;
        } else {
            fs::rename(self.staging.path(), &self.target).map_err(put)?;
            let _ = self.staging.keep();
        }
        sync_dir(parent_of(&self.target))
    }
}

/// Writes one file whole or not at all. An existing file is refused unless `force`.
pub fn write_file(target: &Path, force: bool, bytes: &[u8]) -> Result<()> {
    if !force && target.symlink_metadata().is_ok() {
        return Err(Error::usage(format!("{} already exists", target.display()))
            .help("Choose another output, or replace it with --force"));
    }
    let parent = parent_of(target);
    let failed = |e| Error::io("cannot write", target, e);
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(failed)?;
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
        let draft = AtomicDir::create(&target, false).unwrap();
        fs::write(draft.path().join("a"), "1").unwrap();
        drop(draft);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);

        let draft = AtomicDir::create(&target, false).unwrap();
        fs::write(draft.path().join("a"), "1").unwrap();
        draft.publish().unwrap();
        assert!(AtomicDir::create(&target, false).is_err());

        let draft = AtomicDir::create(&target, true).unwrap();
        fs::write(draft.path().join("b"), "2").unwrap();
        assert!(target.join("a").exists());
        draft.publish().unwrap();
        assert!(!target.join("a").exists() && target.join("b").exists());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }
}
