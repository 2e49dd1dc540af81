//! A whole archive in numbers, added up group by group.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::divergence::{Decode, DivergenceKind};
use super::fate::{RolloutFate, rollout};
use super::tree::{Mark, Tree, TreeCall, tree};
use super::view::{Slot, Verdict, View};
use crate::error::Result;
use crate::finding::Code;
use crate::id::{CallId, GroupId, RolloutId};
use crate::rows::Row;
use crate::step::plan::repetition::Volume;

/// What an archive comes to under one selection. Groups are added in the order of the archive;
/// [`Summary::finish`] puts them in that of their ids.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Captured calls by what became of them; those that only a ledger names are among them.
    pub calls: BTreeMap<Mark, u64>,
    /// Calls that only a ledger names.
    pub unrecorded_calls: u64,
    /// Selected calls.
    pub selected_calls: u64,
    /// How calls ended, in the capture's words.
    pub endings: Endings,
    /// Rollouts by verdict.
    pub verdicts: BTreeMap<Verdict, u64>,
    /// Where tokens went.
    pub tokens: Tokens,
    /// Roots and branches that leave what went before, by how.
    pub leaves: BTreeMap<DivergenceKind, u64>,
    /// Why rollouts carry no loss, by code.
    pub reasons: BTreeMap<Code, Because>,
    /// Prompt groups.
    pub groups: Vec<GroupLine>,
    /// Numbers of each rollout.
    pub samples: Samples,
    /// Every compaction: tokens of the conversation before it, and of the prompt after it.
    pub compactions: Vec<(u64, u64)>,
    /// The rollout that shows the most, or the one that was asked for.
    pub picked: Option<Picked>,
}

/// Calls by how they ended: finish reason, else status, and the word of a failed capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    /// Selected calls, and others, by word.
    pub by_word: BTreeMap<String, (u64, u64)>,
    /// The same of words beyond the first [`Endings::WORDS`]: a capture may make up any number.
    pub others: (u64, u64),
}

impl Endings {
    /// Words that are counted one by one.
    pub const WORDS: usize = 32;

    fn count(&mut self, call: &TreeCall) {
        let ending = call.ending.as_deref().unwrap_or("not recorded");
        let word = match &call.failure {
            Some(failure) => format!("{ending}, capture failed: {failure}"),
            None => ending.to_owned(),
        };
        let counts = if call.selected { (1, 0) } else { (0, 1) };
        self.add_word(word, counts);
    }

    fn add_word(&mut self, word: String, (selected, others): (u64, u64)) {
        let known = self.by_word.len() < Self::WORDS || self.by_word.contains_key(&word);
        let counts = if known { self.by_word.entry(word).or_default() } else { &mut self.others };
        counts.0 += selected;
        counts.1 += others;
    }

    fn add(&mut self, next: Self) {
        for (word, counts) in next.by_word {
            self.add_word(word, counts);
        }
        self.others.0 += next.others.0;
        self.others.1 += next.others.1;
    }
}

/// Where tokens went, from captured calls to physical rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tokens {
    /// Captured tokens, the delta of each call once. The next five add up to it.
    pub captured: u64,
    /// Generated tokens that carry loss.
    pub loss: u64,
    /// Other tokens of calls in rows that train, each call once.
    pub context: u64,
    /// Tokens of rollouts that train, of calls that are in no row.
    pub unselected: u64,
    /// Tokens of masked rollouts.
    pub masked: u64,
    /// Tokens of dropped groups.
    pub dropped: u64,
    /// Captured tokens that were generated.
    pub generated: u64,
    /// Tokens of rows that train, beyond the first time that a call stands in one.
    pub repeated: u64,
    /// Tokens of rows that carry no loss, for masked rollouts.
    pub masked_rows: u64,
    /// Tokens of execution padding.
    pub padding: u64,
}

impl Tokens {
    /// Tokens of all physical rows.
    pub fn physical(&self) -> u64 {
        self.loss + self.context + self.repeated + self.masked_rows + self.padding
    }

    fn add(&mut self, next: &Self) {
        self.captured += next.captured;
        self.loss += next.loss;
        self.context += next.context;
        self.unselected += next.unselected;
        self.masked += next.masked;
        self.dropped += next.dropped;
        self.generated += next.generated;
        self.repeated += next.repeated;
        self.masked_rows += next.masked_rows;
        self.padding += next.padding;
    }
}

/// Rollouts that have a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Because {
    /// Rollouts, whichever of their reasons this is.
    pub rollouts: u64,
    /// Rollouts of which it is the first reason.
    pub first: u64,
    /// The first few of them.
    pub examples: Vec<RolloutId>,
}

/// Rollouts that are named with a reason.
const EXAMPLES: usize = 3;

/// One prompt group in numbers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GroupLine {
    /// The group.
    pub group_id: GroupId,
    /// Why it is left out, if it is.
    pub dropped: Option<Code>,
    /// Mean of its finite rewards; null without any.
    pub reward: Option<f64>,
    /// Its rollouts, in slot order.
    pub slots: Vec<SlotRows>,
    /// Rows of execution padding.
    pub padding: u64,
    /// Captured tokens.
    pub tokens: u64,
    /// Tokens that carry loss.
    pub loss_tokens: u64,
    /// Tokens of rows that train: R. Rows with media are left out, as of `du`.
    pub row_tokens: u64,
    /// Their tokens, with each prefix once: U.
    pub unique_tokens: u64,
}

impl GroupLine {
    /// R / U; none without rows that train.
    pub fn ratio(&self) -> Option<f64> {
        (self.unique_tokens > 0).then(|| self.row_tokens as f64 / self.unique_tokens as f64)
    }

    /// Physical rows, padding among them.
    pub fn rows(&self) -> u64 {
        self.slots.iter().map(|slot| slot.rows).sum::<u64>() + self.padding
    }
}

/// The rows of one rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SlotRows {
    /// Its slot.
    pub slot: u32,
    /// Physical rows, a masked stand-in included; 0 in a dropped group.
    pub rows: u64,
    /// Whether they carry loss.
    pub trains: bool,
}

/// Numbers of rollouts, one each: of those that train, and of the others.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Rows of rollouts that train.
    pub rows: Sample,
    /// Captured tokens.
    pub tokens: Sample,
    /// Tokens that carry loss, of rollouts that train.
    pub loss_tokens: Sample,
    /// Finite rewards.
    pub rewards: Sample,
    /// Means of `exp |g - p|` over owned tokens, where log-probabilities were given.
    pub mismatch: Sample,
}

/// Numbers of two kinds of rollouts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Of rollouts that train.
    pub trains: Vec<f64>,
    /// Of rollouts that do not.
    pub others: Vec<f64>,
}

impl Sample {
    fn push(&mut self, trains: bool, value: f64) {
        if trains { self.trains.push(value) } else { self.others.push(value) }
    }

    fn append(&mut self, mut next: Self) {
        self.trains.append(&mut next.trains);
        self.others.append(&mut next.others);
    }
}

/// One rollout whole: what a picture of it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Portrait {
    /// What became of it.
    pub fate: RolloutFate,
    /// Its calls and rows.
    pub tree: Tree,
    /// Its recorded calls in the order of capture.
    pub captured: Vec<CallId>,
}

impl Portrait {
    /// That of a rollout.
    pub fn of(slot: Slot<'_>, decoder: Option<&dyn Decode>) -> Self {
        let captured = slot.rollout.calls.iter().map(|call| call.call_id.clone()).collect();
        Self { fate: rollout(slot), tree: tree(slot, decoder), captured }
    }
}

/// A rollout to draw.
#[derive(Clone, Debug)]
pub struct Picked {
    /// How much it shows; of equals, the first is kept.
    score: Score,
    /// The rollout.
    pub portrait: Portrait,
}

/// Asked for, trains, kinds of things shown, few enough calls to read, rows, calls.
type Score = (bool, bool, u8, bool, u64, u64);

/// Calls of a rollout that people still read as a picture.
const READABLE: u64 = 24;

/// What beside the view a summary of a group takes.
#[derive(Clone, Copy, Default)]
pub struct Beside<'a> {
    /// Execution padding of the group.
    pub padding: &'a [Row],
    /// How far captured log-probabilities lie from given ones, per rollout that has some.
    pub errors: Option<&'a BTreeMap<RolloutId, f64>>,
    /// The rollout to pick, instead of the one that shows the most.
    pub wanted: Option<&'a RolloutId>,
    /// Tells text of tokens.
    pub decoder: Option<&'a (dyn Decode + Sync)>,
}

impl Summary {
    /// Sums up one group.
    ///
    /// # Errors
    ///
    /// Rows that no step takes, as of `du`.
    pub fn of(view: &View<'_>, beside: Beside<'_>) -> Result<Self> {
        let mut summary = Self::default();
        let mut line = GroupLine {
            group_id: view.group.group_id.clone(),
            dropped: view.selection.dropped,
            reward: None,
            slots: Vec::new(),
            padding: beside.padding.len() as u64,
            tokens: 0,
            loss_tokens: 0,
            row_tokens: 0,
            unique_tokens: 0,
        };
        let mut rewards = Vec::new();
        for slot in view.slots() {
            let portrait = Portrait::of(slot, beside.decoder.map(|d| d as _));
            let of = &portrait.fate.line;
            rewards.extend(of.reward);
            let trains = of.verdict == Verdict::Valid;
            line.slots.push(SlotRows { slot: of.slot, rows: of.rows, trains });
            line.tokens += of.tokens;
            line.loss_tokens += of.loss_tokens;
            summary.rollout(slot, portrait, beside);
        }
        let padding = beside.padding.iter().map(|row| row.input_ids.len() as u64);
        summary.tokens.padding = padding.sum();
        let text = |row: &&Row| row.sample_mask == 0.0 || row.media.is_empty();
        let rows: Vec<Row> = view.rows.iter().filter(text).cloned().collect();
        let volume = Volume::of(&rows)?;
        (line.row_tokens, line.unique_tokens) = (volume.row_tokens, volume.unique_tokens);
        line.reward =
            (!rewards.is_empty()).then(|| rewards.iter().sum::<f64>() / rewards.len() as f64);
        summary.groups.push(line);
        Ok(summary)
    }

    fn rollout(&mut self, slot: Slot<'_>, portrait: Portrait, beside: Beside<'_>) {
        let Portrait { fate, tree, .. } = &portrait;
        let (line, trains) = (&fate.line, fate.line.verdict == Verdict::Valid);
        for call in &tree.calls {
            *self.calls.entry(call.mark).or_default() += 1;
            self.unrecorded_calls += u64::from(!call.recorded);
            self.endings.count(call);
        }
        self.selected_calls += line.selected_calls;
        *self.verdicts.entry(line.verdict).or_default() += 1;
        for (place, &code) in line.reasons.iter().enumerate().filter(|_| !trains) {
            let because = self.reasons.entry(code).or_default();
            because.rollouts += 1;
            because.first += u64::from(place == 0);
            if because.examples.len() < EXAMPLES {
                because.examples.push(line.rollout_id.clone());
            }
        }
        for leave in tree.roots.iter().filter_map(|root| root.divergence.as_ref()) {
            *self.leaves.entry(leave.kind).or_default() += 1;
            if leave.kind == DivergenceKind::Compaction {
                self.compactions.push((leave.theirs.tokens, leave.ours.tokens));
            }
        }
        self.tokens.add(&tokens(slot, fate, tree));
        let samples = &mut self.samples;
        if trains {
            samples.rows.push(true, line.rows as f64);
            samples.loss_tokens.push(true, line.loss_tokens as f64);
        }
        samples.tokens.push(trains, line.tokens as f64);
        if let Some(reward) = line.reward {
            samples.rewards.push(trains, reward);
        }
        if let Some(&error) = beside.errors.and_then(|errors| errors.get(&line.rollout_id)) {
            samples.mismatch.push(trains, error);
        }
        let score = score(fate, tree, beside.wanted);
        if self.picked.as_ref().is_none_or(|picked| score > picked.score) {
            self.picked = Some(Picked { score, portrait });
        }
    }

    /// Adds groups that come later in the archive.
    pub fn add(&mut self, next: Self) {
        fn sum<K: Ord>(ours: &mut BTreeMap<K, u64>, theirs: BTreeMap<K, u64>) {
            for (key, count) in theirs {
                *ours.entry(key).or_default() += count;
            }
        }
        sum(&mut self.calls, next.calls);
        sum(&mut self.verdicts, next.verdicts);
        sum(&mut self.leaves, next.leaves);
        self.selected_calls += next.selected_calls;
        self.unrecorded_calls += next.unrecorded_calls;
        self.endings.add(next.endings);
        self.tokens.add(&next.tokens);
        for (code, theirs) in next.reasons {
            let ours = self.reasons.entry(code).or_default();
            ours.rollouts += theirs.rollouts;
            ours.first += theirs.first;
            ours.examples.extend(theirs.examples);
            ours.examples.truncate(EXAMPLES);
        }
        self.groups.extend(next.groups);
        let Samples { rows, tokens, loss_tokens, rewards, mismatch } = next.samples;
        self.samples.rows.append(rows);
        self.samples.tokens.append(tokens);
        self.samples.loss_tokens.append(loss_tokens);
        self.samples.rewards.append(rewards);
        self.samples.mismatch.append(mismatch);
        self.compactions.extend(next.compactions);
        if let Some(theirs) = next.picked
            && self.picked.as_ref().is_none_or(|ours| theirs.score > ours.score)
        {
            self.picked = Some(theirs);
        }
    }

    /// Puts groups in the order of their ids.
    pub fn finish(mut self) -> Self {
        self.groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
        self
    }

    /// Calls with a record.
    pub fn recorded_calls(&self) -> u64 {
        self.calls.values().sum::<u64>() - self.unrecorded_calls
    }

    /// Calls of a mark.
    pub fn calls_of(&self, mark: Mark) -> u64 {
        self.calls.get(&mark).copied().unwrap_or_default()
    }

    /// Rollouts of a verdict.
    pub fn rollouts_of(&self, verdict: Verdict) -> u64 {
        self.verdicts.get(&verdict).copied().unwrap_or_default()
    }

    /// All rollouts.
    pub fn rollouts(&self) -> u64 {
        self.verdicts.values().sum()
    }
}

/// Where the tokens of one rollout went.
fn tokens(slot: Slot<'_>, fate: &RolloutFate, tree: &Tree) -> Tokens {
    let line = &fate.line;
    let mut tokens =
        Tokens { captured: line.tokens, generated: line.generated_tokens, ..Tokens::default() };
    let physical: u64 = slot.rows().map(|row| row.input_ids.len() as u64).sum();
    match line.verdict {
        Verdict::Valid => {
            let in_rows = tree.calls.iter().filter(|call| call.owned_in.is_some());
            let once: u64 = in_rows.map(|call| call.carry + call.generated).sum();
            tokens.loss = line.loss_tokens;
            tokens.context = once.saturating_sub(line.loss_tokens);
            tokens.unselected = line.tokens.saturating_sub(once);
            tokens.repeated = physical.saturating_sub(once);
        }
        Verdict::Masked => {
            tokens.masked = line.tokens;
            tokens.masked_rows = physical;
        }
        Verdict::Dropped => tokens.dropped = line.tokens,
    }
    tokens
}

fn score(fate: &RolloutFate, tree: &Tree, wanted: Option<&RolloutId>) -> Score {
    let line = &fate.line;
    let compacts = tree.roots.len() > 1;
    let shares = tree.calls.iter().any(|call| !call.context_in.is_empty());
    let gives_up = tree.calls.iter().any(|call| call.mark != Mark::Accepted);
    (
        wanted == Some(&line.rollout_id),
        line.verdict == Verdict::Valid,
        u8::from(compacts) + u8::from(shares) + u8::from(gives_up),
        line.calls <= READABLE,
        line.rows,
        line.calls,
    )
}
