//! Lines of one source, parsed in parallel; what cannot be parsed is set aside, never dropped.

use rayon::prelude::*;
use serde::Deserialize;

use super::detect::Found;
use super::lines::{Lines, Unreadable};
use super::rollouts::without_nan;
use crate::archive::{Origin, Quarantined, SourceForm};
use crate::error::Result;
use crate::finding::Code;
use crate::id::{CallId, CaptureKey, RolloutId};
use crate::wire::RecordError;

/// Unreadable lines that are listed of one source; more are counted.
pub(super) const LISTED: usize = 10_000;
/// Lines and bytes that are parsed at a time.
const BATCH: (usize, usize) = (1024, 64 << 20);

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

/// Collects what could not be read.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    entries: Vec<Quarantined>,
}

impl Quarantine {
    /// Sets aside a line of `form` that was read as text.
    pub fn line(&mut self, origin: &Origin, form: SourceForm, text: &str, why: Rejected) {
        let mut entry =
            Quarantined::new(&origin.file, Some(origin.line), why.code, why.message).text(text);
        identify(&mut entry, form, text);
        self.entries.push(entry);
    }

    /// Sets aside a whole file.
    pub fn file(&mut self, name: &str, why: Rejected) {
        self.entries.push(Quarantined::new(name, None, why.code, why.message));
    }

    /// Sets aside what is neither one line nor one file.
    pub fn entry(&mut self, entry: Quarantined) {
        self.entries.push(entry);
    }

    /// Everything set aside, in order of source and line.
    pub fn into_sorted(mut self) -> Vec<Quarantined> {
        self.entries.sort_by(|a, b| {
            (&a.source, a.line, a.code, &a.message).cmp(&(&b.source, b.line, b.code, &b.message))
        });
        self.entries
    }

    /// Parses every line of `found`, in order.
    pub fn parse<T: Send>(
        &mut self,
        found: &Found,
        parse: impl Fn(&str, Origin) -> Result<T, Rejected> + Sync,
    ) -> Result<Vec<T>> {
        let mut parsed = Vec::new();
        let mut refused = 0usize;
        let mut lines = Lines::open(&found.path)?;
        loop {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while batch.len() < BATCH.0 && bytes < BATCH.1 {
                let Some(line) = lines.next() else { break };
                bytes += line.1.as_ref().map_or(0, String::len);
                batch.push(line);
            }
            if batch.is_empty() {
                break;
            }
            let results: Vec<_> = batch
                .into_par_iter()
                .map(|(number, line)| {
                    let origin = Origin { file: found.name.clone(), line: number };
                    match line {
                        Err(broken) => Err((origin, String::new(), broken.into())),
                        Ok(text) => match parse(&text, origin.clone()) {
                            Ok(value) => Ok(value),
                            Err(why) => Err((origin, text, why)),
                        },
                    }
                })
                .collect();
            for result in results {
                match result {
                    Ok(value) => parsed.push(value),
                    Err((origin, text, why)) => {
                        refused += 1;
                        if refused <= LISTED {
                            self.line(&origin, found.form, &text, why);
                        }
                    }
                }
            }
        }
        if refused > LISTED {
            let message = format!("{} more lines cannot be read", refused - LISTED);
            self.file(&found.name, Rejected::new(Code::QuarantineFull, message));
        }
        Ok(parsed)
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
