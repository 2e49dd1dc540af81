//! What `ls`, `show`, `why` and `diff` have in common: rollouts as training sees them, and the ids
//! by which people name them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;

use super::advantages::AdvantageArgs;
use super::resolve::ConfigArg;
use super::selecting::{Judged, JudgingArgs, Selecting, SelectingArgs};
use super::ui::Ui;
use crate::archive::{Archive, Group};
use crate::config::GrpoSettings;
use crate::error::{Error, Result};
use crate::explain::{Decode, View};
use crate::id::{CallId, GroupId, RolloutId};

/// Flags of every command that looks at rollouts as training sees them.
#[derive(Debug, Args)]
pub struct LookingArgs {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    selecting: SelectingArgs,
    #[command(flatten)]
    advantages: AdvantageArgs,
}

/// How to look, settled.
#[derive(Debug)]
pub struct Looking {
    /// What is selected.
    pub selecting: Selecting,
    /// How rewards become advantages.
    pub grpo: GrpoSettings,
}

impl LookingArgs {
    /// Settles flags and file.
    ///
    /// # Errors
    ///
    /// A file that cannot be read; settings that contradict one another.
    pub fn settle(&self, command: &str, ui: &Ui) -> Result<Looking> {
        let mut resolver = self.config.resolver()?;
        let selecting = self.selecting.settle(&mut resolver)?;
        let grpo = self.advantages.settle(&mut resolver)?;
        resolver.tell_ignored(command, ui);
        Ok(Looking { selecting, grpo })
    }

    /// Its flags that select, but for the policy.
    pub fn judging(&self) -> &JudgingArgs {
        self.selecting.judging()
    }

    /// Does `work` on every group, in parallel, and hands the results to `take` in the order of
    /// the archive.
    ///
    /// # Errors
    ///
    /// A selector that cannot be used, a part that cannot be read; those of `take`.
    pub fn each<T: Send>(
        &self,
        looking: &Looking,
        archive: &Archive,
        ui: &Ui,
        work: impl Fn(&View<'_>) -> T + Sync,
        take: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let work = |group: &Group, judged| work(&view(group, judged, &looking.grpo));
        self.selecting.judging().each_judged(&looking.selecting, archive, ui, work, take)
    }

    /// Does `work` on the group of `found`; no other part than its own is read.
    ///
    /// # Errors
    ///
    /// A selector that cannot be used, a part that cannot be read.
    pub fn one<T: Send>(
        &self,
        looking: &Looking,
        archive: &Archive,
        found: &Found,
        work: impl Fn(&View<'_>) -> T + Sync,
    ) -> Result<T> {
        let mut groups = archive.read_part(found.part)?;
        groups.retain(|group| group.group_id == found.group_id);
        let work = |group: &Group, judged| work(&view(group, judged, &looking.grpo));
        let done = self.selecting.judging().judge(&looking.selecting, &groups, work)?;
        done.into_iter().next().ok_or_else(|| {
            Error::format(format!("part {} lost group {}", found.part, found.group_id))
                .help("The archive was changed while it was read; run the command again")
        })
    }
}

/// The view of a group that was selected from.
pub fn view<'a>(group: &'a Group, judged: Judged, grpo: &GrpoSettings) -> View<'a> {
    View::new(group, judged.selection, judged.proved, judged.findings, grpo)
}

/// A rollout that was named, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Part of the archive.
    pub part: usize,
    /// Its group.
    pub group_id: GroupId,
    /// The rollout.
    pub rollout_id: RolloutId,
    /// What of it.
    pub what: What,
}

/// What of a rollout was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// All of it.
    Rollout,
    /// One of its calls.
    Call(CallId),
    /// One of its rows, by its number.
    Row(u32),
}

/// Candidates that an error lists.
const LISTED: usize = 10;

/// The rollout of this id, or the only one whose id begins so.
///
/// # Errors
///
/// None, or several; an archive that cannot be read.
pub fn rollout(archive: &Archive, text: &str) -> Result<Found> {
    let rollouts = rollouts(archive)?;
    pick(text, "rollout", &rollouts)?.ok_or_else(|| nothing(archive, text, "rollout", &rollouts))
}

/// The rollout, call or row of this id, or the only one whose id begins so. An id as it stands
/// comes before any that begins with it, and a rollout before its calls.
///
/// # Errors
///
/// None, or several; an archive that cannot be read.
pub fn anything(archive: &Archive, text: &str) -> Result<Found> {
    let rollouts = rollouts(archive)?;
    if let Some(found) = exact(text, &rollouts).or_else(|| row(text, &rollouts)) {
        return Ok(found);
    }
    let mut calls = Vec::new();
    for part in 0..archive.part_count() {
        calls.extend(archive.call_ids(part)?);
    }
    // Calls that only a ledger names are looked for where nothing else has the id.
    if !rollouts.iter().any(|(id, _)| id.starts_with(text))
        && !calls.iter().any(|(_, call)| call.as_str().starts_with(text))
    {
        for part in 0..archive.part_count() {
            for rollout in archive.read_part(part)?.into_iter().flat_map(|group| group.rollouts) {
                let ledger = &rollout.ledger;
                let failed = ledger.failures.iter().map(|failure| &failure.call_id);
                let committed = ledger.committed.iter().map(|row| &row.call_id);
                let named = ledger.pending.iter().chain(&ledger.attempted).chain(failed);
                let mut ids: Vec<&CallId> = named.chain(committed).collect();
                ids.sort();
                ids.dedup();
                calls.extend(ids.into_iter().map(|id| (rollout.rollout_id.clone(), id.clone())));
            }
        }
    }
    let of: BTreeMap<&RolloutId, &Found> =
        rollouts.iter().map(|(_, found)| (&found.rollout_id, found)).collect();
    let calls: Vec<(String, Found)> = calls
        .into_iter()
        .filter_map(|(rollout, call)| {
            let found = Found { what: What::Call(call.clone()), ..(*of.get(&rollout)?).clone() };
            Some((call.to_string(), found))
        })
        .collect();
    let both: Vec<(String, Found)> = calls.iter().chain(&rollouts).cloned().collect();
    pick(text, "call or rollout", &both)?
        .ok_or_else(|| nothing(archive, text, "call or rollout", &rollouts))
}

fn rollouts(archive: &Archive) -> Result<Vec<(String, Found)>> {
    let parts = archive.known()?.into_iter().enumerate();
    let found = parts.flat_map(|(part, known)| {
        known.into_iter().map(move |known| {
            let id = known.rollout_id.to_string();
            let (group_id, rollout_id) = (known.group_id, known.rollout_id);
            (id, Found { part, group_id, rollout_id, what: What::Rollout })
        })
    });
    Ok(found.collect())
}

fn exact(text: &str, ids: &[(String, Found)]) -> Option<Found> {
    ids.iter().find(|(id, _)| id == text).map(|(_, found)| found.clone())
}

/// `{rollout}_s{number}`.
fn row(text: &str, rollouts: &[(String, Found)]) -> Option<Found> {
    let (rollout, number) = text.rsplit_once("_s")?;
    let found = exact(rollout, rollouts)?;
    Some(Found { what: What::Row(number.parse().ok()?), ..found })
}

fn pick(text: &str, kind: &str, ids: &[(String, Found)]) -> Result<Option<Found>> {
    let same: Vec<&(String, Found)> = ids.iter().filter(|(id, _)| id == text).collect();
    let begin = || ids.iter().filter(|(id, _)| !text.is_empty() && id.starts_with(text)).collect();
    let candidates = if same.is_empty() { begin() } else { same };
    match &candidates[..] {
        [] => Ok(None),
        [(_, found)] => Ok(Some(found.clone())),
        several => {
            let told = |(id, found): &&(String, Found)| match found.what {
                What::Rollout => format!("rollout {id}"),
                _ => format!("call {id} of rollout {}", found.rollout_id),
            };
            let mut listed: Vec<String> = several.iter().take(LISTED).map(told).collect();
            if several.len() > LISTED {
                listed.push(format!("{} more", several.len() - LISTED));
            }
            let message = format!("{text} names no single {kind}: {} begin so", several.len());
            Err(Error::usage(message).help(format!("Name one of them: {}", listed.join(", "))))
        }
    }
}

fn nothing(archive: &Archive, text: &str, kind: &str, rollouts: &[(String, Found)]) -> Error {
    let near = rollouts
        .iter()
        .map(|(id, _)| (strsim::jaro_winkler(id, text), id))
        .filter(|(alike, _)| *alike > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let help = match near {
        Some((_, id)) => format!("Did you mean {id}? `forestctl ls` lists all rollouts"),
        None => "`forestctl ls` lists the rollouts, and `forestctl show` their calls".to_owned(),
    };
    Error::nothing(format!("{} holds no {kind} {text}", archive.dir().display())).help(help)
}

/// The flag of a tokenizer.
#[derive(Debug, Args)]
pub struct TokenizerArg {
    /// tokenizer.json of the model: shows text beside token ids
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
}

/// A tokenizer that was read.
struct Tokenizer(tokenizers::Tokenizer);

impl Decode for Tokenizer {
    fn decode(&self, ids: &[u32]) -> Option<String> {
        self.0.decode(ids, false).ok()
    }
}

impl TokenizerArg {
    /// Reads the tokenizer, if one is named.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or is none.
    pub fn read(&self) -> Result<Option<Box<dyn Decode + Send + Sync>>> {
        let Some(path) = &self.tokenizer else { return Ok(None) };
        let path: &Path = &if path.is_dir() { path.join("tokenizer.json") } else { path.clone() };
        let bytes = std::fs::read(path).map_err(|e| Error::io("cannot read", path, e))?;
        let read = tokenizers::Tokenizer::from_bytes(&bytes).map_err(|e| {
            Error::format(format!("{} is no tokenizer", path.display()))
                .because(e)
                .help("--tokenizer takes the tokenizer.json beside the weights of a model")
        })?;
        Ok(Some(Box::new(Tokenizer(read))))
    }
}
