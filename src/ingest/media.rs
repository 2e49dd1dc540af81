//! `media*.jsonl`: what the worker says of the media of a call, beside its staged record.

use std::collections::BTreeMap;

use super::quarantine::{Quarantine, Rejected};
use crate::archive::{Call, Origin, SourceForm};
use crate::finding::Code;
use crate::wire::media::MediaLine;

/// A media line with its text and place.
#[derive(Clone, Debug)]
pub(super) struct FlagsLine {
    line: MediaLine,
    text: String,
    origin: Origin,
}

impl FlagsLine {
    pub fn parse(text: &str, origin: Origin) -> Result<Self, Rejected> {
        Ok(Self { line: MediaLine::parse(text)?, text: text.trim().to_owned(), origin })
    }

    /// Scope and call.
    pub fn call(&self) -> (String, String) {
        (self.line.scope.clone(), self.line.model_call_id.clone())
    }

    /// Sets the line aside.
    pub fn refuse(self, code: Code, message: String, quarantine: &mut Quarantine) {
        let why = Rejected::new(code, message);
        quarantine.line(&self.origin, SourceForm::Media, &self.text, why);
    }
}

/// Gives the calls of a rollout their flags. A line of no call, and lines of one call that
/// contradict each other, are set aside.
pub(super) fn attach(lines: Vec<FlagsLine>, calls: &mut [Call], quarantine: &mut Quarantine) {
    if lines.is_empty() {
        return;
    }
    let mut lines_of: BTreeMap<(String, String), Vec<FlagsLine>> = BTreeMap::new();
    for line in lines {
        lines_of.entry(line.call()).or_default().push(line);
    }
    let mut calls_of: BTreeMap<(String, String), Vec<&mut Call>> = BTreeMap::new();
    for call in calls {
        let key = (call.capture_key.as_str().to_owned(), call.call_id.as_str().to_owned());
        calls_of.entry(key).or_default().push(call);
    }
    for (key, lines) in lines_of {
        let (scope, id) = &key;
        let refusal = if lines.iter().any(|other| other.line != lines[0].line) {
            let message =
                format!("media lines of call {id} of scope {scope} contradict each other");
            Some((Code::ConflictingRecord, message))
        } else if !calls_of.contains_key(&key) {
            Some((Code::UnknownScope, format!("no record of call {id} of scope {scope} is here")))
        } else {
            None
        };
        match refusal {
            None => {
                for call in calls_of.remove(&key).unwrap_or_default() {
                    call.media = Some(lines[0].line.flags);
                }
            }
            Some((code, message)) => {
                for line in lines {
                    line.refuse(code, message.clone(), quarantine);
                }
            }
        }
    }
}
