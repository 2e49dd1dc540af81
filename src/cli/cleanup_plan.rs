//! `forestctl cleanup-plan`: staging keys that may go, and those that must stay.

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::selecting::each_part;
use super::ui::{Format, Ui, thousands};
use crate::archive::{Archive, Group, SourceKind};
use crate::cleanup::{self, Fate, Ground, PlannedKey};
use crate::error::{Error, Result};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl cleanup-plan run.forest
  forestctl cleanup-plan run.forest --format json | jq '.totals'
  forestctl cleanup-plan run.forest --format jsonl | jq -r 'select(.fate == \"remove\") | .staging_key'

",
    exit_status!()
);

/// List staging keys that may be removed, and those that must stay
///
/// Nothing is removed. Calls that the ledger committed to may go, whether they are selected or
/// not: the archive holds them. So may those that failed, and what attempts without a record
/// left. Pending calls stay until the staging partition is torn down, and restored calls belong
/// to the scope that they come from.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CleanupPlanArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
}

/// JSON Schema of `--format json`.
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

/// `--format json`.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Document {
    schema_version: u32,
    totals: Totals,
    keys: Vec<PlannedKey>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
struct Totals {
    rollouts: u64,
    /// Rollouts of a source that stages nothing.
    rollouts_without_staging: u64,
    remove: u64,
    keep: u64,
}

impl CleanupPlanArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let archive = Archive::open(&self.archive)?;
        let mut document = Document { schema_version: 1, ..Document::default() };
        let of_part = |groups: Vec<Group>| {
            let rollouts: Vec<_> = groups.into_iter().flat_map(|group| group.rollouts).collect();
            let unstaged = rollouts.iter().filter(|r| r.source != SourceKind::Staged).count();
            let keys: Vec<PlannedKey> = rollouts.iter().flat_map(cleanup::plan).collect();
            (rollouts.len() as u64, unstaged as u64, keys)
        };
        each_part(&archive, "plan", ui, of_part, |(rollouts, unstaged, keys)| {
            document.totals.rollouts += rollouts;
            document.totals.rollouts_without_staging += unstaged;
            document.keys.extend(keys);
            Ok(())
        })?;
        document.keys.sort();
        let count = |fate| document.keys.iter().filter(|key| key.fate == fate).count() as u64;
        (document.totals.remove, document.totals.keep) = (count(Fate::Remove), count(Fate::Keep));
        if document.keys.is_empty() {
            return Err(Error::nothing(format!("{} stages nothing", self.archive.display())).help(
                "Only staged captures have staging keys; the files of a Gym store are whole",
            ));
        }
        match ui.format {
            Format::Human => document.print(ui)?,
            Format::Json => ui.json(&document)?,
            Format::Jsonl => document.keys.iter().try_for_each(|key| ui.jsonl(key))?,
            Format::Csv => {
                let rows = document.keys.iter().map(|key| {
                    let PlannedKey { fate, staging_key, ground, rollout_id, call_id } = key;
                    vec![
                        word(fate),
                        staging_key.clone(),
                        word(ground),
                        rollout_id.to_string(),
                        call_id.to_string(),
                    ]
                });
                ui.csv(&["fate", "staging_key", "ground", "rollout_id", "call_id"], rows)?;
            }
        }
        Ok(Exit::Fine)
    }
}

impl Document {
    fn print(&self, ui: &Ui) -> Result<()> {
        let rows = self.keys.iter().map(|key| {
            vec![
                word(&key.fate),
                key.staging_key.clone(),
                word(&key.ground),
                key.rollout_id.to_string(),
            ]
        });
        ui.table(&["fate", "staging key", "because it is", "rollout"], rows)?;
        let pending = self.keys.iter().filter(|key| key.ground == Ground::Pending).count();
        ui.line(format!(
            "\n{} keys of {} rollouts may be removed, {} must stay ({} of them pending)",
            thousands(self.totals.remove),
            thousands(self.totals.rollouts),
            thousands(self.totals.keep),
            thousands(pending as u64),
        ))?;
        if self.totals.rollouts_without_staging > 0 {
            ui.line(format!(
                "{} rollouts come from sources that stage nothing",
                thousands(self.totals.rollouts_without_staging)
            ))?;
        }
        Ok(())
    }
}

/// The word of a fate or ground.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
