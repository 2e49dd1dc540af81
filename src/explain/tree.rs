//! A rollout as a tree of its calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use super::chains::Chains;
use super::divergence::{Decode, Divergence, divergence};
use super::view::Slot;
use crate::archive::{Call, Completion, Ending};
use crate::finding::Code;
use crate::id::CallId;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Selected.
    Accepted,
    /// Captured and committed, and not selected.
    Rejected,
    /// Admitted, and neither acknowledged nor failed.
    Pending,
    /// Its capture failed, or it ended badly.
    Failed,
    /// Staged, and the ledger does not commit to it.
    Uncommitted,
}

impl Mark {
    /// The word of every format.
    pub fn as_str(self) -> &'static str {
        match self {
            Mark::Accepted => "accepted",
            Mark::Rejected => "rejected",
            Mark::Pending => "pending",
            Mark::Failed => "failed",
            Mark::Uncommitted => "uncommitted",
        }
    }

    /// The letter that stands for it where there is no colour.
    pub fn letter(self) -> char {
        match self {
            Mark::Accepted => '+',
            Mark::Rejected => '-',
            Mark::Failed => '!',
            Mark::Pending => '?',
            Mark::Uncommitted => '~',
        }
    }
}

/// One call of a tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TreeCall {
    /// The call.
    pub call_id: CallId,
    /// What it continues.
    pub parent_call_id: Option<CallId>,
    /// Number of the root above it, from zero; null for a call without a record or a whole chain.
    pub root: Option<u64>,
    /// Branches between it and its root: each earlier way on from a fork is one deeper.
    pub depth: u64,
    /// What became of it.
    pub mark: Mark,
    /// Whether it is selected; a failed call may be.
    pub selected: bool,
    /// Whether it was scored.
    pub scored: bool,
    /// Whether it is selected and no selected call continues it: the end of a row.
    pub endpoint: bool,
    /// Whether a record of it was captured.
    pub recorded: bool,
    /// Position of its first new token, from the root.
    pub start: u64,
    /// New prompt tokens.
    pub carry: u64,
    /// Generated tokens.
    pub generated: u64,
    /// Weights that sampled it; null when unknown.
    pub weight_version: Option<u64>,
    /// Finish reason, else status; null where neither was recorded.
    pub ending: Option<String>,
    /// Why its capture failed, in the capture's word.
    pub failure: Option<String>,
    /// Row that has its loss, if it has a layout.
    pub owned_in: Option<String>,
    /// Rows that have it as context: a shared ancestor.
    pub context_in: Vec<String>,
    /// Codes of findings on it.
    pub findings: BTreeSet<Code>,
}

/// One root of a tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RootLine {
    /// The call.
    pub call_id: CallId,
    /// How it leaves what went before: the compaction points of a rollout; null for the first.
    pub divergence: Option<Divergence>,
}

/// One row of a tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RowLine {
    /// `{rollout}_s{segment}`.
    pub row_id: String,
    /// Its last call; null for a row on borrowed input.
    pub endpoint: Option<CallId>,
    /// Calls along it.
    pub calls: u64,
    /// Its tokens.
    pub tokens: u64,
    /// Tokens that carry loss.
    pub loss_tokens: u64,
    /// Whether its tokens are another rollout's, as its own has no layout.
    pub borrowed: bool,
}

/// The calls of a rollout, each branch before what goes on after it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Tree {
    /// Roots in the order of capture.
    pub roots: Vec<RootLine>,
    /// Rows in order.
    pub rows: Vec<RowLine>,
    /// Calls below their roots, then those without a whole chain.
    pub calls: Vec<TreeCall>,
}

/// The tree of a rollout.
pub fn tree(slot: Slot<'_>, decoder: Option<&dyn Decode>) -> Tree {
    let chains = Chains::new(&slot.rollout.calls);
    let facts = Facts::new(slot);
    let selected = |number: usize| facts.places.get(&chains.call(number).call_id).copied();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); slot.rollout.calls.len()];
    let mut starts = Vec::new();
    for &number in chains.order() {
        match chains.parent(number) {
            Some(parent) => children[parent].push(number),
            None => starts.push(number),
        }
    }
    // What was given up first, then the branches in the order of their rows.
    for children in &mut children {
        children.sort_by_key(|&child| (selected(child), child));
    }
    starts.sort_unstable();
    let mut calls = Vec::new();
    for (root, &start) in starts.iter().enumerate() {
        let mut open = vec![(start, 0)];
        while let Some((number, depth)) = open.pop() {
            calls.push(facts.call(chains.call(number), Some(root as u64), depth));
            let mut on = children[number].iter().rev();
            open.extend(on.next().map(|&child| (child, depth)));
            open.extend(on.map(|&child| (child, depth + 1)));
        }
    }
    let placed: BTreeSet<CallId> = calls.iter().map(|call| call.call_id.clone()).collect();
    let loose = slot.rollout.calls.iter().filter(|call| !placed.contains(&call.call_id));
    calls.extend(loose.map(|call| facts.call(call, None, 0)));
    calls.extend(facts.unrecorded());
    let root = |(at, &number): (usize, &usize)| RootLine {
        call_id: chains.call(number).call_id.clone(),
        divergence: (at > 0).then(|| divergence(&chains, number, decoder)).flatten(),
    };
    Tree { roots: starts.iter().enumerate().map(root).collect(), rows: rows(slot), calls }
}

fn rows(slot: Slot<'_>) -> Vec<RowLine> {
    let line = |row: &crate::rows::Row| RowLine {
        row_id: row.row_id.clone(),
        endpoint: row.spans.last().filter(|_| !row.uses_borrowed_input).map(|s| s.call.clone()),
        calls: row.spans.len() as u64,
        tokens: row.input_ids.len() as u64,
        loss_tokens: if row.sample_mask == 0.0 { 0 } else { row.loss_tokens() as u64 },
        borrowed: row.uses_borrowed_input,
    };
    slot.rows().map(line).collect()
}

/// What is known of calls beside their records.
pub(super) struct Facts<'a> {
    slot: Slot<'a>,
    /// Selected calls by their place in the selection.
    pub places: HashMap<&'a CallId, usize>,
    continued: BTreeSet<&'a CallId>,
    endings: HashMap<&'a CallId, &'a Completion>,
    failures: HashMap<&'a CallId, &'a str>,
    pending: BTreeSet<&'a CallId>,
    owned: HashMap<&'a CallId, &'a str>,
    context: HashMap<&'a CallId, Vec<String>>,
    findings: BTreeMap<&'a CallId, BTreeSet<Code>>,
}

impl<'a> Facts<'a> {
    pub fn new(slot: Slot<'a>) -> Self {
        let ledger = &slot.rollout.ledger;
        let places: HashMap<&CallId, usize> =
            slot.selection.calls.iter().enumerate().map(|(place, id)| (id, place)).collect();
        let selected = slot.rollout.calls.iter().filter(|c| places.contains_key(&c.call_id));
        let continued = selected.filter_map(|call| call.parent_call_id.as_ref()).collect();
        let (mut owned, mut context) = (HashMap::new(), HashMap::<_, Vec<String>>::new());
        for row in slot.own_rows() {
            for span in &row.spans {
                match span.owned {
                    true => drop(owned.insert(&span.call, row.row_id.as_str())),
                    false => context.entry(&span.call).or_default().push(row.row_id.clone()),
                }
            }
        }
        let mut findings = BTreeMap::<_, BTreeSet<Code>>::new();
        for finding in slot.findings() {
            if let Some(call) = &finding.call_id {
                findings.entry(call).or_default().insert(finding.code);
            }
        }
        Self {
            places,
            continued,
            endings: ledger.committed.iter().map(|c| (&c.call_id, &c.completion)).collect(),
            failures: ledger.failures.iter().map(|f| (&f.call_id, f.reason.as_str())).collect(),
            pending: ledger.pending.iter().collect(),
            owned,
            context,
            findings,
            slot,
        }
    }

    pub fn mark(&self, id: &CallId) -> Mark {
        let ending = self.endings.get(id);
        if self.pending.contains(id) {
            Mark::Pending
        } else if self.failures.contains_key(id)
            || ending.is_some_and(|completion| completion.ending() == Ending::Bad)
        {
            Mark::Failed
        } else if self.places.contains_key(id) {
            Mark::Accepted
        } else if ending.is_none() {
            Mark::Uncommitted
        } else {
            Mark::Rejected
        }
    }

    fn bare(&self, id: &CallId) -> TreeCall {
        let selected = self.places.contains_key(id);
        TreeCall {
            call_id: id.clone(),
            parent_call_id: None,
            root: None,
            depth: 0,
            mark: self.mark(id),
            selected,
            scored: self.slot.selection.terminal.as_ref() == Some(id),
            endpoint: selected && !self.continued.contains(id),
            recorded: false,
            start: 0,
            carry: 0,
            generated: 0,
            weight_version: None,
            ending: self.endings.get(id).and_then(|completion| word(completion)),
            failure: self.failures.get(id).map(|&reason| reason.to_owned()),
            owned_in: self.owned.get(id).map(|&row| row.to_owned()),
            context_in: self.context.get(id).cloned().unwrap_or_default(),
            findings: self.findings.get(id).cloned().unwrap_or_default(),
        }
    }

    pub fn call(&self, call: &Call, root: Option<u64>, depth: u64) -> TreeCall {
        TreeCall {
            parent_call_id: call.parent_call_id.clone(),
            root,
            depth,
            recorded: true,
            start: call.prev_len,
            carry: call.token_ids.len() as u64 - call.generation().len() as u64,
            generated: call.generation().len() as u64,
            weight_version: call.weight_version,
            ..self.bare(&call.call_id)
        }
    }

    /// Calls that only the ledger names, in its order.
    pub fn unrecorded(&self) -> Vec<TreeCall> {
        let ledger = &self.slot.rollout.ledger;
        let mut seen: BTreeSet<&CallId> =
            self.slot.rollout.calls.iter().map(|call| &call.call_id).collect();
        let committed = ledger.committed.iter().map(|row| &row.call_id);
        let failed = ledger.failures.iter().map(|failure| &failure.call_id);
        let named = committed.chain(&ledger.attempted).chain(&ledger.pending).chain(failed);
        named.filter(|id| seen.insert(id)).map(|id| self.bare(id)).collect()
    }
}

fn word(completion: &Completion) -> Option<String> {
    match completion {
        Completion::Recorded { status, finish_reason } => finish_reason.clone().or(status.clone()),
        Completion::Unrecorded => None,
    }
}
