//! No room for the archive: the error says so, the old archive stays, and nothing is left over.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::capture::Capture;
use super::kill::{capture, entries};
use super::sealed::Sealed;
use super::{again, code, forestctl};

const TARGET: &str = "run.forest";

/// Folders of captures, and the archives that they make.
struct Captures {
    _home: tempfile::TempDir,
    more: PathBuf,
    old: Sealed,
    grown: Sealed,
    replaced: Sealed,
}

impl Captures {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let source = |name: &str, capture: Capture| {
            let path = home.path().join(name);
            capture.write(&path);
            path
        };
        let (some, more) = (source("some", capture(0..4, 0)), source("more", capture(2..16, 0)));
        let made = |sources: &[&Path]| {
            let home = tempfile::tempdir().unwrap();
            for source in sources {
                let output = ingest(home.path(), source, &[]);
                assert_eq!(code(&output), 0, "{output:?}");
            }
            Sealed::read(&home.path().join(TARGET))
        };
        let (old, grown, replaced) = (made(&[&some]), made(&[&some, &more]), made(&[&more]));
        Self { old, grown, replaced, more, _home: home }
    }

    /// What is there before, what is asked for, and what is there after.
    fn runs(&self) -> [(Option<&Sealed>, &'static [&'static str], &Sealed); 3] {
        [
            (None, &[], &self.replaced),
            (Some(&self.old), &[], &self.grown),
            (Some(&self.old), &["--force"], &self.replaced),
        ]
    }
}

fn ingest(home: &Path, source: &Path, flags: &[&str]) -> Output {
    let source = source.to_str().unwrap();
    forestctl(home, &[&["ingest", source, "-o", TARGET], flags].concat())
}

/// The archive in `home` is `expected`, and beside it there is nothing.
fn holds(home: &Path, expected: Option<&Sealed>) {
    match expected {
        Some(expected) => {
            assert_eq!(entries(home), [TARGET]);
            assert!(Sealed::read(&home.join(TARGET)).0 == expected.0);
        }
        None => assert_eq!(entries(home), [""; 0]),
    }
}

fn told(output: &Output, reason: &str, advice: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output), 2, "{text}");
    assert!(text.contains(".run.forest.") || text.contains(TARGET), "{text}");
    assert!(text.contains(reason) && text.contains(advice), "{text}");
    assert_eq!(text.matches(reason).count(), 1, "said once: {text}");
    assert!(output.stdout.is_empty());
}

/// Bytes that can still be written below `path`.
fn room(path: &Path) -> u64 {
    let found = rustix::fs::statvfs(path).unwrap();
    found.f_bavail * found.f_frsize
}

/// With every amount of room from none to enough, in steps of one page.
fn fill(disk: &Path) {
    const PAGE: u64 = 4096;
    let captures = Captures::new();
    for (before, flags, after) in captures.runs() {
        let (mut refused, mut free) = (0, 0);
        loop {
            let home = disk.join("home");
            fs::create_dir(&home).unwrap();
            if let Some(before) = before {
                before.write(&home.join(TARGET));
            }
            let ballast = disk.join("ballast");
            let size = room(disk).checked_sub(free).expect("the disk is large enough");
            fs::write(&ballast, vec![1; size as usize]).unwrap();
            let output = ingest(&home, &captures.more, flags);
            let done = output.status.success();
            match done {
                true => holds(&home, Some(after)),
                false => {
                    told(&output, "No space left on device", "The file system is full. Make room");
                    holds(&home, before);
                    refused += 1;
                }
            }
            fs::remove_file(&ballast).unwrap();
            // With room, the same command goes through.
            let output = ingest(&home, &captures.more, flags);
            assert_eq!(code(&output), 0, "{output:?}");
            holds(&home, Some(after));
            fs::remove_dir_all(&home).unwrap();
            if done {
                break;
            }
            free += PAGE;
        }
        println!("{flags:?} over {}: refused {refused} times", before.is_some());
        assert!(refused > 3, "the disk was never full");
    }
}

/// Runs this very test again in a namespace of its own, with a small disk of memory mounted there.
#[test]
fn a_full_disk_is_told_and_leaves_the_old_archive() {
    const DISK: &str = "FULL_DISK_AT";
    if let Some(disk) = std::env::var_os(DISK) {
        return fill(Path::new(&disk));
    }
    let home = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=2m none \"$FULL_DISK_AT\"";
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
        command.env(DISK, home.path());
        command
    };
    if !namespace(mount).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no namespace to mount a small disk in (unshare --user --mount)");
        return;
    }
    again(&mut namespace(&format!("{mount} && exec \"$@\"")));
}

/// A limit on the size of files, as `ulimit -f` sets it, in blocks of 512 bytes.
fn limited(home: &Path, source: &Path, flags: &[&str], blocks: u64, trap: &str) -> Output {
    let script = format!("{trap} ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_forestctl"), "ingest"]);
    command.arg(source).args(["-o", TARGET]).args(flags).current_dir(home).output().unwrap()
}

#[test]
fn a_limit_on_files_is_told_and_leaves_the_old_archive() {
    let captures = Captures::new();
    for (before, flags, after) in captures.runs() {
        for blocks in [0, 1, 4, 16, 20, 24, 32] {
            for trap in ["trap '' XFSZ;", ""] {
                let home = tempfile::tempdir().unwrap();
                let home = home.path();
                if let Some(before) = before {
                    before.write(&home.join(TARGET));
                }
                let output = limited(home, &captures.more, flags, blocks, trap);
                if trap.is_empty() && output.status.signal().is_some() {
                    // The system's own way of refusing; what is there is as after a kill.
                    let there =
                        home.join(TARGET).exists().then(|| Sealed::read(&home.join(TARGET)));
                    assert!(there.map(|s| s.0) == before.map(|s| s.0.clone()));
                } else if output.status.success() {
                    holds(home, Some(after));
                } else {
                    told(&output, "File too large", "ulimit -f");
                    holds(home, before);
                }
                let output = ingest(home, &captures.more, flags);
                assert_eq!(code(&output), 0, "{output:?}");
                holds(home, Some(after));
            }
        }
    }
}
