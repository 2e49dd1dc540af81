//! What cannot be read is set aside, never dropped; of a source that is no capture, so much of it
//! that one can see why.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::lines::Unreadable;
use super::rollouts::without_nan;
use crate::archive::{Origin, Quarantined, SourceForm};
use crate::finding::Code;
use crate::id::{CallId, CaptureKey, RolloutId};
use crate::wire::RecordError;

/// Unreadable lines that are listed of one source; more are counted.
pub(super) const LISTED: usize = 10_000;

/// Why a line was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejected {
    pub code: Code,
    pub message: String,
}

impl Rejected {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<RecordError> for Rejected {
    fn from(error: RecordError) -> Self {
        Self { message: error.to_string(), code: error.code }
    }
}

impl From<Unreadable> for Rejected {
    fn from(error: Unreadable) -> Self {
        Self { code: error.code, message: error.message }
    }
}

/// Collects what could not be read, in any order.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    sources: BTreeMap<String, Listed>,
}

/// The first entries of one source.
#[derive(Debug, Default)]
struct Listed {
    entries: BTreeMap<(Option<u64>, Code, String), Quarantined>,
    more: u64,
}

impl Quarantine {
    /// Sets aside a line of `form` that was read as text.
    pub fn line(&mut self, origin: &Origin, form: SourceForm, text: &str, why: Rejected) {
        let mut entry =
            Quarantined::new(&origin.file, Some(origin.line), why.code, why.message).text(text);
        identify(&mut entry, form, text);
        self.entry(entry);
    }

    /// Sets aside a whole file.
    pub fn file(&mut self, name: &str, why: Rejected) {
        self.entry(Quarantined::new(name, None, why.code, why.message));
    }

    /// Sets aside what is neither one line nor one file.
    pub fn entry(&mut self, entry: Quarantined) {
        if !self.sources.contains_key(&entry.source) {
            self.sources.insert(entry.source.clone(), Listed::default());
        }
        let Some(listed) = self.sources.get_mut(&entry.source) else { return };
        let key = (entry.line, entry.code, entry.message.clone());
        listed.entries.insert(key, entry);
        if listed.entries.len() > LISTED {
            listed.entries.pop_last();
            listed.more += 1;
        }
    }

    /// Takes what another collected.
    pub fn extend(&mut self, other: Quarantine) {
        for (source, listed) in other.sources {
            listed.entries.into_values().for_each(|entry| self.entry(entry));
            if listed.more > 0 {
                self.sources.entry(source).or_default().more += listed.more;
            }
        }
    }

    /// Whether nothing was set aside.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Everything set aside, in order of source and line.
    pub fn into_sorted(self) -> Vec<Quarantined> {
        let mut sorted = Vec::new();
        for (source, listed) in self.sources {
            if listed.more > 0 {
                let message = format!("{} more entries cannot be read", listed.more);
                sorted.push(Quarantined::new(source, None, Code::QuarantineFull, message));
            }
            sorted.extend(listed.entries.into_values());
        }
        sorted
    }
}

/// Names what the line is about, as far as it can be told.
fn identify(entry: &mut Quarantined, form: SourceForm, text: &str) {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Names {
        rollout_id: Option<String>,
        capture_key: Option<String>,
        model_call_id: Option<String>,
    }
    let Ok(names) = serde_json::from_str::<Names>(&without_nan(text)) else { return };
    entry.call_id = names.model_call_id.map(CallId::from);
    entry.capture_key = names.capture_key.map(CaptureKey::from);
    let rollout_id = names.rollout_id.map(RolloutId::from);
    match form {
        SourceForm::Rollouts | SourceForm::Trace => entry.rollout_id = rollout_id,
        // Schema 2 and the store call the capture scope by this name.
        _ if entry.capture_key.is_none() => {
            entry.capture_key = rollout_id.map(|id| id.as_str().into());
        }
        _ => {}
    }
}
