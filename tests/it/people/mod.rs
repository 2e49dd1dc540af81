//! What people read: `ls`, `show`, `why`, `diff`, on a terminal and in a pipe.

mod diff;
mod inspect;
mod ls;
mod show;
mod why;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forestctl::archive::{self, Group, Ingested, Rollout, SourceKind};
use serde_json::Value;
use tempfile::TempDir;

use crate::closed_loop::ingested;

/// Runs a command whose stdout is a terminal of its own, and prints what the terminal gets.
const TERMINAL: &str = "
import fcntl, os, pty, struct, subprocess, sys, termios
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', 24, int(sys.argv[1]), 0, 0))
child = subprocess.Popen(sys.argv[2:], stdout=theirs)
os.close(theirs)
shown = b''
while True:
    try:
        more = os.read(ours, 65536)
    except OSError:
        break
    if not more:
        break
    shown += more
sys.stdout.buffer.write(shown.replace(b'\\r\\n', b'\\n'))
sys.exit(child.wait())
";

/// The rollout as if a Gym store had captured it: no receipts and digests that have to agree.
pub fn stored(mut rollout: Rollout) -> Rollout {
    rollout.source = SourceKind::GymStore;
    rollout.calls.iter_mut().for_each(|call| call.weight_version = None);
    rollout
}

/// A workplace with an archive `run.forest`.
pub struct Place(TempDir);

impl Place {
    pub fn of(groups: Vec<Group>) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.add("run.forest", groups);
        place
    }

    pub fn closed_loop() -> Self {
        Self::of(ingested("staged-v2").groups)
    }

    /// Writes another archive.
    pub fn add(&self, name: &str, groups: Vec<Group>) {
        let read = Ingested { groups, ..Ingested::default() };
        archive::write(&self.0.path().join(name), false, &read).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).env_remove("NO_COLOR").env("TERM", "xterm");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_forestctl")).args(arguments).output().unwrap()
    }

    /// What a pipe gets: stdout, then stderr, then the exit code if it is not 0.
    pub fn piped(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let mut text = String::from_utf8(output.stdout).unwrap();
        text += &String::from_utf8(output.stderr).unwrap();
        match output.status.code().unwrap() {
            0 => text,
            code => format!("{text}exit code {code}\n"),
        }
    }

    /// What a terminal of `width` columns gets, with escape sequences written out.
    pub fn on_terminal(&self, width: u32, color: bool, arguments: &[&str]) -> String {
        let mut command = self.command("python3");
        command.args(["-c", TERMINAL, &width.to_string(), env!("CARGO_BIN_EXE_forestctl")]);
        if !color {
            command.env("NO_COLOR", "1");
        }
        let output = command.args(arguments).output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().replace('\u{1b}', "^")
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--format", "json"]].concat());
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let schema = format!("schemas/{}.json", arguments[0]);
        let schema = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(schema)).unwrap();
        let schema: Value = serde_json::from_slice(&schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let wrong: Vec<_> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
        assert!(wrong.is_empty(), "{arguments:?}: {wrong:?}");
        document
    }
}
