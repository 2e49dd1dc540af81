//! `forestctl select`

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::resolve::ConfigArg;
use super::selecting::{GroupFindings, SelectingArgs, has_errors, show_findings};
use super::ui::{Format, Tone, Ui, thousands};
use crate::archive::{Group, Rollout};
use crate::error::Result;
use crate::finding::Code;
use crate::id::{CallId, GroupId, RolloutId};
use crate::select::{GroupSelection, Reason, Verdict};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl select run.forest
  forestctl select run.forest --policy all_captured --format json
  forestctl select run.forest --assume-complete

",
    exit_status!()
);

/// Choose the calls that train, with a verdict and reason for every rollout
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SelectArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    selecting: SelectingArgs,
}

/// JSON Schema of `--format json`.
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(Document<'_>)
}

/// `--format json`.
#[derive(Debug, Serialize, JsonSchema)]
struct Document<'a> {
    schema_version: u32,
    policy: String,
    rollouts: Vec<RolloutLine<'a>>,
    dropped_groups: Vec<DroppedLine<'a>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RolloutLine<'a> {
    group_id: &'a GroupId,
    rollout_id: &'a RolloutId,
    slot: u32,
    verdict: Verdict,
    /// The first of `reasons`.
    reason: Option<Code>,
    /// All reasons for a mask.
    reasons: Vec<ReasonLine<'a>>,
    call_ids: &'a [CallId],
    terminal_call_id: Option<&'a CallId>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ReasonLine<'a> {
    code: Code,
    message: &'a str,
    /// The calls concerned.
    call_ids: &'a [CallId],
}

#[derive(Debug, Serialize, JsonSchema)]
struct DroppedLine<'a> {
    group_id: &'a GroupId,
    reason: Code,
}

/// A selected group, with what the table tells of its rollouts beside.
struct Selected {
    selection: GroupSelection,
    /// Reward and number of captured calls of each rollout.
    captured: Vec<(Option<f64>, usize)>,
}

impl SelectArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let mut resolver = self.config.resolver()?;
        let settled = self.selecting.settle(&mut resolver)?;
        resolver.tell_ignored("select", ui);
        let archive = SelectingArgs::open(&self.archive)?;
        let (mut selected, mut findings) = (Vec::new(), GroupFindings::default());
        let work = |group: &Group, selection, found| {
            let of = |rollout: &Rollout| (rollout.reward, rollout.calls.len());
            (Selected { selection, captured: group.rollouts.iter().map(of).collect() }, found)
        };
        self.selecting.each_group(&settled, &archive, ui, work, |(group, found)| {
            findings.add(&group.selection.group_id, found);
            selected.push(group);
            Ok(())
        })?;
        selected.sort_by(|a, b| a.selection.group_id.cmp(&b.selection.group_id));
        let (document, findings) =
            (Document::new(settled.policy.to_string(), &selected), findings.into_vec());
        match ui.format {
            Format::Human => document.print(&selected, ui)?,
            Format::Json => ui.json(&document)?,
            Format::Jsonl => {
                document.rollouts.iter().try_for_each(|line| ui.jsonl(line))?;
                document.dropped_groups.iter().try_for_each(|line| ui.jsonl(line))?;
            }
            Format::Csv => document.print_csv(ui)?,
        }
        show_findings(&findings, ui);
        Ok(match has_errors(&findings) {
            true => Exit::Findings,
            false => Exit::Fine,
        })
    }
}

impl<'a> ReasonLine<'a> {
    fn of(reason: &'a Reason) -> Self {
        Self { code: reason.code, message: &reason.message, call_ids: &reason.calls }
    }
}

impl<'a> Document<'a> {
    fn new(policy: String, selected: &'a [Selected]) -> Self {
        let groups = || selected.iter().map(|group| &group.selection);
        let lines = groups().flat_map(|group| {
            group.rollouts.iter().map(|rollout| RolloutLine {
                group_id: &group.group_id,
                rollout_id: &rollout.rollout_id,
                slot: rollout.slot,
                verdict: rollout.verdict(),
                reason: rollout.reasons.first().map(|reason| reason.code),
                reasons: rollout.reasons.iter().map(ReasonLine::of).collect(),
                call_ids: &rollout.calls,
                terminal_call_id: rollout.terminal.as_ref(),
            })
        });
        let dropped = groups().filter_map(|group| {
            Some(DroppedLine { group_id: &group.group_id, reason: group.dropped? })
        });
        Self {
            schema_version: 1,
            policy,
            rollouts: lines.collect(),
            dropped_groups: dropped.collect(),
        }
    }

    fn print(&self, selected: &[Selected], ui: &Ui) -> Result<()> {
        let captured = selected.iter().flat_map(|group| &group.captured);
        let rows = self.rollouts.iter().zip(captured).map(|(line, (reward, calls))| {
            vec![
                line.rollout_id.to_string(),
                reward.map_or("-".to_owned(), |reward| reward.to_string()),
                calls.to_string(),
                line.call_ids.len().to_string(),
                match line.verdict {
                    Verdict::Valid => "valid".to_owned(),
                    Verdict::Masked => "masked".to_owned(),
                },
                line.reason.map_or(String::new(), |reason| reason.to_string()),
            ]
        });
        ui.table(&["rollout", "reward", "captured", "selected", "verdict", "reason"], rows)?;
        let valid = self.rollouts.iter().filter(|line| line.verdict == Verdict::Valid).count();
        let calls = self.rollouts.iter().map(|line| line.call_ids.len()).sum::<usize>();
        ui.line(format!(
            "\n{} of {} rollouts are valid; {} calls are selected by {}",
            ui.tone(Tone::Strong, thousands(valid as u64)),
            thousands(self.rollouts.len() as u64),
            thousands(calls as u64),
            self.policy,
        ))?;
        for group in &self.dropped_groups {
            ui.line(format!(
                "group {} is {}: {}",
                group.group_id,
                ui.tone(Tone::Bad, "dropped"),
                group.reason
            ))?;
        }
        Ok(())
    }

    fn print_csv(&self, ui: &Ui) -> Result<()> {
        let text = |id: Option<&CallId>| id.map(ToString::to_string).unwrap_or_default();
        let rows = self.rollouts.iter().map(|line| {
            let calls: Vec<&str> = line.call_ids.iter().map(CallId::as_str).collect();
            vec![
                line.group_id.to_string(),
                line.rollout_id.to_string(),
                line.slot.to_string(),
                if line.verdict == Verdict::Valid { "valid" } else { "masked" }.to_owned(),
                line.reason.map(|reason| reason.to_string()).unwrap_or_default(),
                calls.join(" "),
                text(line.terminal_call_id),
            ]
        });
        let header =
            ["group_id", "rollout_id", "slot", "verdict", "reason", "call_ids", "terminal_call_id"];
        ui.csv(&header, rows)
    }
}
