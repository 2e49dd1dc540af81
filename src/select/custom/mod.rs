//! Policies that users write: a Python function, or any program (rules 81-84).
//!
//! A selector is asked about one rollout at a time: it gets the attempt's call records and the
//! harness's result, and answers with the records that it selects and the response id of the
//! scored call. What it answers is held against what it was given; completion, masks and layout
//! are then judged as for every policy.

mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

pub use process::Limits;
use process::{Process, Silence};

use super::index::Index;
use super::{Choice, Policy, Reason};
use crate::archive::{Completion, Rollout};
use crate::error::{Error, Result};
use crate::finding::Code;
use crate::id::CallId;

/// The program that serves a Python function.
const DRIVER: &str = include_str!("driver.py");

/// A selector as `--policy` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `module:function`.
    Python(String),
    /// `exec:PROGRAM`.
    Program(PathBuf),
}

/// Beginning of a selector that is a program; a reserved word, so never a module.
const PROGRAM: &str = "exec:";

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(program) = text.strip_prefix(PROGRAM) {
            return match program {
                "" => Err("exec: is followed by a program".to_owned()),
                program => Ok(Selector::Program(program.into())),
            };
        }
        let is_name = |name: &str| {
            let mut letters = name.chars();
            letters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
                && letters.all(|c| c.is_alphanumeric() || c == '_')
        };
        let is_path = |path: &str| path.split('.').all(is_name);
        match text.split_once(':') {
            Some((module, function)) if is_path(module) && is_path(function) => {
                Ok(Selector::Python(text.to_owned()))
            }
            _ => Err("expected module:function or exec:PROGRAM".to_owned()),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Python(target) => f.write_str(target),
            Selector::Program(program) => write!(f, "{PROGRAM}{}", program.display()),
        }
    }
}

/// A selector that is ready to be asked.
#[derive(Debug)]
pub struct Custom {
    name: String,
    command: Vec<OsString>,
    is_python: bool,
    limits: Limits,
    /// Processes that nobody is asking.
    idle: Mutex<Vec<Process>>,
}

impl Custom {
    /// Starts the selector; a Python function is imported and looked at. `python` is the
    /// interpreter.
    ///
    /// # Errors
    ///
    /// A program that does not start; a module that is not there or fails to import; a target that
    /// is no synchronous function of records and result.
    pub fn start(selector: &Selector, python: &std::path::Path, limits: Limits) -> Result<Self> {
        let (command, is_python) = match selector {
            Selector::Python(target) => {
                let command = [python.into(), "-c".into(), DRIVER.into(), target.into()];
                (command.to_vec(), true)
            }
            Selector::Program(program) => (vec![program.into()], false),
        };
        let name = selector.to_string();
        let custom = Self { name, command, is_python, limits, idle: Mutex::default() };
        let process = custom.process().map_err(|why| {
            let help = match is_python {
                true => {
                    "The module must be importable where forestctl runs; set PYTHONPATH, or \
                         another interpreter with --selector-python"
                }
                false => "The program must be on PATH, or named with its folder",
            };
            Error::usage(format!("policy {} cannot be used: {why}", custom.name)).help(help)
        })?;
        custom.rest(process);
        Ok(custom)
    }

    fn process(&self) -> Result<Process, String> {
        let program = self.command[0].display();
        let mut process = Process::start(&self.command, self.limits)
            .map_err(|error| format!("{program} does not start: {error}"))?;
        if self.is_python {
            let said = process.answer().map_err(|why| told(&process, format!("it {why}")))?;
            if let Ok(Answer { error: Some(error), .. }) = serde_json::from_str(&said) {
                return Err(told(&process, error));
            }
        }
        Ok(process)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Process>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rest(&self, process: Process) {
        self.idle().push(process);
    }

    /// The selector's own answer on a rollout.
    fn ask(&self, request: String) -> Result<Answer, (Code, String)> {
        let idle = self.idle().pop();
        let mut process = match idle {
            Some(process) => process,
            None => self.process().map_err(|why| (Code::SelectorFailed, why))?,
        };
        let answer = match process.ask(request) {
            Ok(answer) => answer,
            Err(why) => {
                let code = match why {
                    Silence::Timeout(_) => Code::SelectorTimeout,
                    _ => Code::SelectorFailed,
                };
                return Err((code, told(&process, format!("it {why}"))));
            }
        };
        let answer = match serde_json::from_str::<Answer>(&answer) {
            Ok(Answer { error: Some(error), .. }) => {
                Err((Code::SelectorFailed, told(&process, error)))
            }
            Ok(answer) => Ok(answer),
            Err(error) => {
                let message = format!("its answer is no selection: {error}");
                Err((Code::InvalidSelection, told(&process, message)))
            }
        };
        self.rest(process);
        answer
    }
}

/// A failure with what the selector itself had to say.
fn told(process: &Process, what: String) -> String {
    match process.words() {
        words if words.is_empty() => what,
        words => format!("{what}\nstderr of the selector:\n{words}"),
    }
}

/// One line of a selector.
#[derive(Debug, Default, Deserialize)]
struct Answer {
    /// Records, or ids of their calls.
    #[serde(default)]
    selected: Vec<Value>,
    #[serde(default)]
    terminal_response_id: Option<String>,
    #[serde(default)]
    error: Option<String>,
}

impl Policy for Custom {
    fn name(&self) -> &str {
        &self.name
    }

    fn choose(&self, rollout: &Rollout) -> Choice {
        let index = Index::new(rollout);
        if index.committed.is_empty() {
            let message = "the ledger commits to no call that could be selected";
            let problem = Reason::new(Code::MissingEvidence, Vec::new(), message);
            return Choice { problems: vec![problem], ..Choice::default() };
        }
        let records = records(rollout, &index);
        let answer = self.ask(request(rollout, &records));
        let chosen = answer.and_then(|answer| {
            chosen(&index, &records, answer).map_err(|why| (Code::InvalidSelection, why))
        });
        match chosen {
            Ok((calls, terminal)) => {
                Choice { calls, terminal: Some(terminal), problems: Vec::new() }
            }
            Err((code, why)) => {
                let message = format!("selector {}: {why}", self.name);
                let problem = Reason::new(code, Vec::new(), message);
                Choice { problems: vec![problem], ..Choice::default() }
            }
        }
    }
}

/// The records that a selector is given, in commit order: the rows of the receipt as they are, or
/// what else is known of the calls; with the completion where a row does not hold it.
fn records(rollout: &Rollout, index: &Index) -> Vec<Map<String, Value>> {
    let receipt = rollout.ledger.receipt.as_deref();
    let manifest = receipt.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let rows = manifest.as_ref().and_then(|receipt| receipt.get("manifest")?.as_array());
    let mut by_call: BTreeMap<&str, &Map<String, Value>> = BTreeMap::new();
    for row in rows.into_iter().flatten().filter_map(Value::as_object) {
        if let Some(call) = row.get("model_call_id").and_then(Value::as_str) {
            by_call.entry(call).or_insert(row);
        }
    }
    let record = |number: usize| {
        let committed = index.committed[number];
        let mut record =
            by_call.get(committed.call_id.as_str()).map_or_else(Map::new, |row| (*row).clone());
        let mut add = |key: &str, value: Value| {
            record.entry(key).or_insert(value);
        };
        add("model_call_id", json!(committed.call_id));
        add("response_id", json!(committed.response_id));
        if let Some(call) = index.records[number] {
            add("parent_call_id", json!(call.parent_call_id));
            add("mode", json!(call.mode));
            add("prev_len", json!(call.prev_len));
            add("delta_len", json!(call.delta_len));
            add("cum_len", json!(call.cum_len));
            add("weight_version", json!(call.weight_version));
        }
        if let Completion::Recorded { status, finish_reason } = &committed.completion {
            add("status", json!(status));
            add("finish_reason", json!(finish_reason));
        }
        if let Some(items) = &committed.output_items {
            add("output_items", json!(items));
        }
        record
    };
    (0..index.committed.len()).map(record).collect()
}

/// One line for the selector.
fn request(rollout: &Rollout, records: &[Map<String, Value>]) -> String {
    // A line break can only stand between tokens of JSON.
    let result = rollout.result.as_deref().map(|result| result.replace(['\n', '\r'], " "));
    let result = result.and_then(|result| RawValue::from_string(result).ok());
    let request = serde_json::to_string(&Request {
        schema_version: 1,
        rollout_id: rollout.rollout_id.as_str(),
        records,
        result: result.as_deref(),
    });
    // Maps with keys of text and numbers that were read from JSON are always JSON.
    request.unwrap_or_default() + "\n"
}

#[derive(serde::Serialize)]
struct Request<'a> {
    schema_version: u32,
    rollout_id: &'a str,
    records: &'a [Map<String, Value>],
    result: Option<&'a RawValue>,
}

/// The calls of an answer, and the scored one; or what is wrong with it (rules 82, 83).
fn chosen(
    index: &Index,
    records: &[Map<String, Value>],
    answer: Answer,
) -> Result<(Vec<CallId>, CallId), String> {
    let mut numbers = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, selected) in answer.selected.iter().enumerate() {
        let id = match selected {
            Value::String(id) => Some(id.as_str()),
            Value::Object(record) => record.get("model_call_id").and_then(Value::as_str),
            _ => None,
        };
        let id = id.ok_or_else(|| format!("selected[{at}] is no record and no call id"))?;
        let number = index
            .number(&CallId::from(id))
            .ok_or_else(|| format!("it selected call {id}, which is not of this rollout"))?;
        if let Value::Object(record) = selected
            && *record != records[number]
        {
            let key = record
                .iter()
                .find(|(key, value)| records[number].get(*key) != Some(*value))
                .or_else(|| records[number].iter().find(|(key, _)| !record.contains_key(*key)))
                .map_or("", |(key, _)| key);
            return Err(format!("it changed {key} of the record of call {id}"));
        }
        if !seen.insert(number) {
            return Err(format!("it selected call {id} twice"));
        }
        numbers.push(number);
    }
    if numbers.is_empty() {
        return Err("it selected no call".to_owned());
    }
    let Some(response) = answer.terminal_response_id.filter(|id| !id.is_empty()) else {
        return Err("it named no scored response".to_owned());
    };
    let served = index.served(&response);
    let mut scored = served.iter().filter(|number| seen.contains(number));
    match (scored.next(), scored.next()) {
        (Some(&call), None) => {
            Ok((numbers.into_iter().map(|number| index.id(number)).collect(), index.id(call)))
        }
        (None, _) => Err(format!("response {response}, which it scored, is of no selected call")),
        (Some(_), Some(_)) => Err(format!("response {response} is of several selected calls")),
    }
}
