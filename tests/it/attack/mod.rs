//! Input that is wrong, broken or hostile: every word that names a fault, and what becomes of it.
//!
//! Captures are built by [`capture`] and [`store`] from the description of the wire alone, and go
//! through the commands, as a user's would.

mod capture;
mod corruption;
mod forged;
mod full_disk;
mod hostile;
mod kill;
mod refusals;
mod sealed;
mod store;
mod words;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// The program with `args`, in `home`.
fn forestctl(home: &Path, args: &[impl AsRef<OsStr>]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forestctl")).args(args).current_dir(home).output().unwrap()
}

/// Runs the test that calls it once more, behind `command`, which ends in what it starts.
fn again(command: &mut Command) {
    let name = std::thread::current().name().unwrap().to_owned();
    command.arg(std::env::current_exe().unwrap()).args(["--exact", &name, "--nocapture"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
    println!("{text}");
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

/// The document that a command prints; `allowed` are the exit codes that it may end with.
fn document(home: &Path, args: &[&str], allowed: &[i32]) -> Value {
    let output = forestctl(home, &[args, &["--format", "json"]].concat());
    assert!(allowed.contains(&code(&output)), "{args:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}
