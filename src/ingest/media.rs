//! `media*.jsonl`: what the worker says of the media of a call, beside its staged record.

use std::collections::BTreeMap;

use super::quarantine::{Quarantine, Rejected};
use crate::archive::{Call, Group, Origin, SourceForm};
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

    fn call(&self) -> (String, String) {
        (self.line.scope.clone(), self.line.model_call_id.clone())
    }
}

/// Gives every call its flags. A line of no call, and lines of one call that contradict each
/// other, are set aside.
pub(super) fn attach(lines: Vec<FlagsLine>, groups: &mut [Group], quarantine: &mut Quarantine) {
    if lines.is_empty() {
        return;
    }
    let mut by_call: BTreeMap<(String, String), Vec<FlagsLine>> = BTreeMap::new();
    for line in lines {
        by_call.entry(line.call()).or_default().push(line);
    }
    let mut calls: BTreeMap<(String, String), Vec<&mut Call>> = BTreeMap::new();
    for call in groups.iter_mut().flat_map(|g| &mut g.rollouts).flat_map(|r| &mut r.calls) {
        let key = (call.capture_key.as_str().to_owned(), call.call_id.as_str().to_owned());
        calls.entry(key).or_default().push(call);
    }
    for (key, lines) in by_call {
        let (scope, id) = &key;
        let refusal = if lines.iter().any(|other| other.line != lines[0].line) {
            let message =
                format!("media lines of call {id} of scope {scope} contradict each other");
            Some((Code::ConflictingRecord, message))
        } else if !calls.contains_key(&key) {
            Some((Code::UnknownScope, format!("no record of call {id} of scope {scope} is here")))
        } else {
            None
        };
        match refusal {
            None => {
                for call in calls.remove(&key).unwrap_or_default() {
                    call.media = Some(lines[0].line.flags);
                }
            }
            Some((code, message)) => {
                for FlagsLine { text, origin, .. } in lines {
                    let why = Rejected::new(code, message.clone());
                    quarantine.line(&origin, SourceForm::Media, &text, why);
                }
            }
        }
    }
}
