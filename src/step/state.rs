//! `trainer_state.json` of a checkpoint: how many updates are behind it, with which settings, on
//! which rows.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::report::SCHEMA_VERSION;
use super::settings::StepSettings;
use crate::error::{Error, Result};
use crate::id::Digest32;

/// What marks a directory as a checkpoint of ours.
pub const TRAINER_STATE: &str = "trainer_state.json";

/// Settings that say where and how a step is computed, not what: a resumed run may have others.
const FREE: [&str; 5] =
    ["device", "seed", "schedule.steps", "schedule.minibatches", "deterministic"];

/// Content of `trainer_state.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    /// [`SCHEMA_VERSION`] of the program that wrote it.
    pub schema_version: u32,
    /// That program, with its version.
    pub tool: String,
    /// Optimizer steps behind the checkpoint.
    pub global_step: u64,
    /// BLAKE3 of the rows of the last run.
    pub rows_blake3: Digest32,
    /// Settings of the last run.
    pub settings: StepSettings,
    /// Every batch of rows that was trained on, in order.
    #[serde(default)]
    pub trained: Vec<TrainedRows>,
}

/// One run over one batch of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainedRows {
    /// BLAKE3 of the rows.
    pub rows_blake3: Digest32,
    /// First optimizer step on them, counted from 1.
    pub first_step: u64,
    /// Last optimizer step on them.
    pub last_step: u64,
}

impl TrainerState {
    /// Reads the state of a checkpoint that a run resumes.
    ///
    /// # Errors
    ///
    /// A directory without one, another version, and settings that this program does not know.
    pub fn read(checkpoint: &Path) -> Result<Self> {
        let path = checkpoint.join(TRAINER_STATE);
        let text = fs::read(&path).map_err(|e| {
            Error::io("cannot read", &path, e).help(
                "--resume takes a checkpoint that `forestctl step` wrote; for any other model, \
                 use --model",
            )
        })?;
        let refused = |what: &str| {
            Error::format(format!("{} {what}", path.display()))
                .help("Use --model instead of --resume to take the model and to state all settings")
        };
        let value: Value =
            serde_json::from_slice(&text).map_err(|e| refused("is no JSON").because(e))?;
        match value.get("schema_version").and_then(Value::as_u64) {
            Some(version) if version == u64::from(SCHEMA_VERSION) => {}
            Some(version) => {
                return Err(refused(&format!(
                    "has schema_version {version}, and this forestctl reads {SCHEMA_VERSION}"
                )));
            }
            None => return Err(refused("is of another trainer: it has no schema_version")),
        }
        serde_json::from_value(value).map_err(|e| refused("is no trainer state").because(e))
    }

    /// Runs on the same rows that are behind the checkpoint.
    pub fn runs_on(&self, rows: Digest32) -> impl Iterator<Item = &TrainedRows> {
        self.trained.iter().filter(move |run| run.rows_blake3 == rows)
    }
}

/// The batches behind a model directory, so far as it tells.
pub fn trained_before(model: &Path) -> Vec<TrainedRows> {
    TrainerState::read(model).map(|state| state.trained).unwrap_or_default()
}

/// A setting that two runs do not share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Path of the key in `trainer_state.json`, such as `optimizer.lr`.
    pub key: String,
    /// What the checkpoint was trained with, as JSON.
    pub checkpoint: String,
    /// What this run has, as JSON.
    pub here: String,
}

/// Settings of `here` that differ from those of the checkpoint, by key; those that may differ are
/// left out.
pub fn differences(checkpoint: &StepSettings, here: &StepSettings) -> Vec<Difference> {
    let value = |settings| serde_json::to_value(settings).unwrap_or_default();
    let mut found = Vec::new();
    compare("", &value(checkpoint), &value(here), &mut found);
    found
}

fn compare(key: &str, checkpoint: &Value, here: &Value, found: &mut Vec<Difference>) {
    if FREE.contains(&key) || checkpoint == here {
        return;
    }
    if let (Value::Object(old), Value::Object(new)) = (checkpoint, here) {
        for (name, value) in new {
            let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            compare(&key, old.get(name).unwrap_or(&Value::Null), value, found);
        }
        return;
    }
    found.push(Difference {
        key: key.to_owned(),
        checkpoint: checkpoint.to_string(),
        here: here.to_string(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_cannot_be_resumed_say_why_and_what_else_to_do() {
        let home = tempfile::tempdir().unwrap();
        let refused = |text: &str| {
            fs::write(home.path().join(TRAINER_STATE), text).unwrap();
            assert_eq!(trained_before(home.path()), []);
            let error = TrainerState::read(home.path()).unwrap_err();
            assert!(error.advice().unwrap().contains("--model"), "{text}");
            error.to_string()
        };
        for (text, word) in [
            (r#"{"epoch": 1.0, "log_history": []}"#, "another trainer"),
            (r#"{"schema_version": 2, "global_step": 7}"#, "has schema_version 2"),
            (r#"{"schema_version": 1, "global_step": 7}"#, "is no trainer state"),
            (r#"{"schema_version": 1"#, "is no JSON"),
        ] {
            assert!(refused(text).contains(word), "{text}");
        }
        fs::remove_file(home.path().join(TRAINER_STATE)).unwrap();
        let error = TrainerState::read(home.path()).unwrap_err();
        assert!(error.advice().unwrap().contains("--resume takes a checkpoint"));
    }
}
