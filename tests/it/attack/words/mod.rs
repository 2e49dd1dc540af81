//! Every word that upstream has for a fault, every code of ingest and validate, and every rule on
//! reading and proving, each with a minimal input that shows it.

mod coverage;
mod ingest;
mod reasons;
mod rules;
mod terminal;
mod verifier;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use forestctl::finding::Code;
use serde_json::Value;

use super::capture::Capture;
use super::store::Store;
use super::{document, forestctl};

/// A minimal input and all that is said of it.
pub struct Case {
    /// Words of upstream, and rules, that the input is for.
    names: &'static [&'static str],
    sources: Sources,
    /// Codes among the findings of `validate`, errors and warnings, each code once.
    errors: &'static [Code],
    warnings: &'static [Code],
    /// Codes among the findings of `ingest`.
    notes: &'static [Code],
    /// Why the first rollout does not train; `None` when it does.
    masked: Option<Code>,
    /// Text that a message must hold.
    says: &'static [&'static str],
}

/// How the input is made.
pub enum Sources {
    /// [`Capture::pair`] of a schema, after a change.
    Staged(u64, fn(&mut Capture)),
    /// [`Store::pair`] with its rollouts line, after a change.
    Store(fn(&mut Store)),
    /// Written by the function.
    Folder(fn(&Path)),
}

/// A case of schema 2 of which nothing is expected yet.
pub fn staged(names: &'static [&'static str], change: fn(&mut Capture)) -> Case {
    Case::of(names, Sources::Staged(2, change))
}

/// The same for a store.
pub fn store(names: &'static [&'static str], change: fn(&mut Store)) -> Case {
    Case::of(names, Sources::Store(change))
}

/// The same for a folder.
pub fn folder(names: &'static [&'static str], write: fn(&Path)) -> Case {
    Case::of(names, Sources::Folder(write))
}

/// What the commands said of one input.
struct Seen {
    errors: BTreeSet<Code>,
    warnings: BTreeSet<Code>,
    notes: BTreeSet<Code>,
    masked: Option<Code>,
    messages: Vec<String>,
}

impl Case {
    fn of(names: &'static [&'static str], sources: Sources) -> Self {
        Self { names, sources, errors: &[], warnings: &[], notes: &[], masked: None, says: &[] }
    }

    /// Findings of `validate` that are errors; the first of them masks the rollout.
    fn errors(self, errors: &'static [Code]) -> Self {
        Self { errors, masked: errors.first().copied(), ..self }
    }

    /// Findings of `validate` that are warnings.
    fn warnings(self, warnings: &'static [Code]) -> Self {
        Self { warnings, ..self }
    }

    /// Findings of `ingest`.
    fn notes(self, notes: &'static [Code]) -> Self {
        Self { notes, ..self }
    }

    /// Why the rollout does not train.
    fn masked(self, code: Code) -> Self {
        Self { masked: Some(code), ..self }
    }

    /// The rollout trains all the same.
    fn trains(self) -> Self {
        Self { masked: None, ..self }
    }

    /// Text of a message.
    fn says(self, says: &'static [&'static str]) -> Self {
        Self { says, ..self }
    }

    fn see(&self) -> Seen {
        let home = tempfile::tempdir().unwrap();
        let source = home.path().join("captures");
        match &self.sources {
            Sources::Staged(schema, change) => {
                let mut capture = Capture::pair(*schema);
                change(&mut capture);
                capture.write(&source);
            }
            Sources::Store(change) => {
                let mut store = Store::pair();
                change(&mut store);
                store.write(&source);
                store.write_rollouts(&source);
            }
            Sources::Folder(write) => write(&source),
        }
        see(home.path())
    }

    /// Compares; the differences, if any.
    fn differences(&self) -> Option<String> {
        let seen = self.see();
        let set = |codes: &[Code]| codes.iter().copied().collect::<BTreeSet<_>>();
        let silent = self
            .says
            .iter()
            .find(|text| !seen.messages.iter().any(|message| message.contains(**text)));
        let equal = seen.errors == set(self.errors)
            && seen.warnings == set(self.warnings)
            && seen.notes == set(self.notes)
            && seen.masked == self.masked
            && silent.is_none();
        (!equal).then(|| {
            format!(
                "{:?}: errors {:?}, warnings {:?}, ingest {:?}, masked {:?}, not said {silent:?}\n{}",
                self.names,
                seen.errors,
                seen.warnings,
                seen.notes,
                seen.masked,
                seen.messages.join("\n"),
            )
        })
    }
}

/// Ingests, validates and selects what is in `home/captures`.
fn see(home: &Path) -> Seen {
    let word = |value: &Value| {
        let word = value.as_str().unwrap();
        Code::parse(word).unwrap_or_else(|| panic!("{word} is no code"))
    };
    let ingest = document(home, &["ingest", "captures", "-o", "run.forest"], &[0, 1]);
    let validate = document(home, &["validate", "run.forest"], &[0, 1]);
    let select = document(home, &["select", "run.forest"], &[0, 1]);
    let mut messages = Vec::new();
    let mut by_severity: BTreeMap<String, BTreeSet<Code>> = BTreeMap::new();
    for finding in validate["findings"].as_array().unwrap() {
        let severity = finding["severity"].as_str().unwrap().to_owned();
        by_severity.entry(severity).or_default().insert(word(&finding["code"]));
        messages.push(finding["message"].as_str().unwrap().to_owned());
    }
    let notes = ingest["findings"].as_array().unwrap();
    messages.extend(notes.iter().map(|note| note["message"].as_str().unwrap().to_owned()));
    // What `select` warns of is told on stderr.
    let told = forestctl(home, &["select", "run.forest", "--color", "never"]).stderr;
    messages.push(String::from_utf8(told).unwrap());
    let masked = &select["rollouts"][0]["reason"];
    Seen {
        errors: by_severity.remove("error").unwrap_or_default(),
        warnings: by_severity.remove("warning").unwrap_or_default(),
        notes: notes.iter().map(|note| word(&note["code"])).collect(),
        masked: masked.as_str().map(|_| word(masked)),
        messages,
    }
}

/// Every case shows what it is for, and nothing else.
fn check(cases: &[Case]) {
    use rayon::prelude::*;
    let differing: Vec<String> = cases.par_iter().filter_map(Case::differences).collect();
    assert!(differing.is_empty(), "{}", differing.join("\n\n"));
}

/// All cases that go through the commands.
fn all() -> Vec<Case> {
    [ingest::cases(), verifier::cases(), reasons::cases(), rules::cases()]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn what_is_right_has_no_findings_and_trains() {
    for schema in [2, 3] {
        check(&[Case::of(&[], Sources::Staged(schema, |_| {}))]);
    }
    check(&[store(&[], |_| {}).says(&["completion_unrecorded"])]);
}
