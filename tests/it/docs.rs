//! What the documents show, done: every command of a `console` block in its order, with what it
//! prints, and every `sql` block. `...` stands for any lines there, `[..]` for any part of a line.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use snapbox::{Assert, Data};

use crate::reader::python;

/// A fenced block of a document.
#[derive(Debug, PartialEq)]
struct Block<'a> {
    language: &'a str,
    text: &'a str,
    line: usize,
}

fn blocks(document: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut open: Option<(&str, usize, usize)> = None;
    let mut at = 0;
    for (number, line) in document.split_inclusive('\n').enumerate() {
        if let Some(language) = line.trim_end().strip_prefix("```") {
            open = match open {
                None => Some((language, at + line.len(), number + 2)),
                Some((language, start, line)) => {
                    found.push(Block { language, text: &document[start..at], line });
                    None
                }
            };
        }
        at += line.len();
    }
    assert_eq!(open, None, "a block is not closed");
    found
}

/// A command, with the lines that continue it, and what it is shown to print.
fn commands(block: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in block.split_inclusive('\n') {
        match (line.strip_prefix("$ "), line.strip_prefix("> "), commands.last_mut()) {
            (Some(command), ..) => commands.push((command.to_owned(), String::new())),
            (None, Some(more), Some((command, output))) if output.is_empty() => {
                command.push_str(more);
            }
            (_, _, Some((_, output))) => output.push_str(line),
            (_, _, None) => panic!("a console block begins with a command: {block}"),
        }
    }
    commands
}

/// Why this command cannot run here.
fn missing(command: &str) -> Option<&'static str> {
    let learner = ["forestctl step", "forestctl audit-logprobs", "--prev-logprobs"];
    (learner.iter().any(|word| command.contains(word)) && !cfg!(feature = "torch"))
        .then_some("the learner is built with the feature torch alone")
}

/// Runs the examples of `document` in an empty folder beside `testdata`.
fn run(document: &str) {
    let text = fs::read_to_string(document).unwrap();
    let folder = tempfile::tempdir().unwrap();
    symlink(fs::canonicalize("testdata").unwrap(), folder.path().join("testdata")).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_forestctl")).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(programs.to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let path = path.unwrap();
    let mut ran = 0;
    for block in blocks(&text) {
        let place = format!("{document}:{}", block.line);
        match block.language {
            "console" => {
                for (command, expected) in commands(block.text) {
                    if let Some(why) = missing(&command) {
                        let _ = writeln!(std::io::stderr(), "skipped {place}: {why}");
                        continue;
                    }
                    let output = Command::new("bash")
                        .args(["-c", &format!("exec 2>&1\n{command}")])
                        .current_dir(folder.path())
                        .env("PATH", &path)
                        .env("COLUMNS", "120")
                        .output()
                        .unwrap();
                    let printed = String::from_utf8(output.stdout).unwrap();
                    let code = output.status.code();
                    let shown = !expected.is_empty();
                    assert!(
                        code == Some(0) || (shown && code == Some(1)),
                        "{place}: {command}: {code:?}\n{printed}"
                    );
                    if shown {
                        let name = format!("{place}: {command}");
                        let (printed, expected) = (Data::text(printed), Data::text(expected));
                        let same = Assert::new().normalize_paths(false).try_eq(
                            Some(&name),
                            printed,
                            expected,
                        );
                        same.unwrap_or_else(|differs| panic!("{differs}"));
                    }
                    ran += 1;
                }
            }
            "sql" => {
                let Some(python) = python() else { continue };
                let query = "import duckdb, sys; print(len(duckdb.sql(sys.argv[1]).fetchall()))";
                let output = Command::new(
                    fs::canonicalize(python.parent().unwrap()).unwrap().join("python"),
                )
                .args(["-c", query, block.text])
                .current_dir(folder.path())
                .output()
                .unwrap();
                let told = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{place}: {told}");
                let rows: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
                assert!(rows > 0, "{place}: the query finds nothing");
                ran += 1;
            }
            _ => {}
        }
    }
    assert!(ran > 0, "{document} has no examples");
}

#[test]
fn the_readme_does_what_it_shows() {
    run("README.md");
}

#[test]
fn the_tutorial_does_what_it_shows() {
    run("docs/tutorial.md");
}

#[test]
fn shards_are_made_as_shown() {
    run("docs/sharding.md");
}

#[test]
fn queries_find_something() {
    run("docs/duckdb.md");
}

#[test]
fn looking_into_an_archive_goes_as_shown() {
    run("docs/inspecting.md");
}

#[test]
fn a_page_is_made_as_shown() {
    run("docs/report.md");
}

#[test]
fn blocks_and_commands_are_taken_apart() {
    let document = "a\n```console\n$ one \\\n> two\nout\n\n$ three\n```\n```sql\nSELECT 1\n```\n";
    let found = blocks(document);
    assert_eq!(found[1], Block { language: "sql", text: "SELECT 1\n", line: 10 });
    assert_eq!(
        commands(found[0].text),
        [("one \\\ntwo\n".to_owned(), "out\n\n".to_owned()), ("three\n".to_owned(), String::new())]
    );
}
