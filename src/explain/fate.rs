//! Whether a call trains, by which evidence, and where.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::chains::Chains;
use super::divergence::{Decode, Divergence, divergence};
use super::listing::{RolloutLine, line};
use super::tree::{Facts, Mark, TreeCall};
use super::view::{Slot, Verdict};
use crate::archive::{CommittedCall, Completion};
use crate::finding::Code;
use crate::id::CallId;
use crate::select::{PolicyChoice, PolicyName, witnesses};

/// Why a rollout carries no loss.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MaskReason {
    /// Stable code.
    pub code: Code,
    /// The rule of docs/rules.md that asks for it, if a numbered one does.
    pub rule: Option<u16>,
    /// What was found.
    pub message: String,
    /// Calls concerned.
    pub call_ids: Vec<CallId>,
    /// What to do.
    pub help: String,
}

impl MaskReason {
    fn new(code: Code, message: impl Into<String>, call_ids: Vec<CallId>) -> Self {
        let (message, help) = (message.into(), code.help().to_owned());
        Self { code, rule: code.rule(), message, call_ids, help }
    }
}

/// Why a rollout carries no loss, the reason that masks it first.
pub fn mask_reasons(slot: Slot<'_>) -> Vec<MaskReason> {
    let own = slot.selection.reasons.iter();
    let own = own.map(|r| MaskReason::new(r.code, r.message.clone(), r.calls.clone()));
    let filter = slot.filter().map(|code| MaskReason::new(code, code.summary(), Vec::new()));
    let dropped = slot.dropped().map(|code| MaskReason::new(code, code.summary(), Vec::new()));
    own.chain(filter).chain(dropped).collect()
}

/// Where a row has a call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Place {
    /// The row.
    pub row_id: String,
    /// Whether this row has the loss of its generation.
    pub owned: bool,
    /// Position of its first new token.
    pub start: u64,
    /// Position of its first generated token.
    pub gen_start: u64,
    /// One past its last token.
    pub end: u64,
}

/// What became of a call, and why.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CallFate {
    /// What the tree tells of it.
    #[serde(flatten)]
    pub call: TreeCall,
    /// Source file and one-based line of its record.
    pub origin: Option<String>,
    /// Why it is selected, or not.
    pub evidence: String,
    /// The rule of docs/rules.md behind that.
    pub rule: Option<u16>,
    /// Rows that have it.
    pub places: Vec<Place>,
    /// How its prompt leaves what went before; null for a call that simply goes on.
    pub divergence: Option<Divergence>,
}

/// What became of a rollout, and why.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RolloutFate {
    /// What `ls` tells of it.
    #[serde(flatten)]
    pub line: RolloutLine,
    /// Why it carries no loss; empty when it does.
    pub masked: Vec<MaskReason>,
}

/// What became of a rollout.
pub fn rollout(slot: Slot<'_>) -> RolloutFate {
    let masked = match slot.verdict() {
        Verdict::Valid => Vec::new(),
        Verdict::Masked | Verdict::Dropped => mask_reasons(slot),
    };
    RolloutFate { line: line(slot), masked }
}

/// What became of the calls of a rollout, those that are `wanted`: recorded ones first.
pub fn calls(
    slot: Slot<'_>,
    policy: &PolicyChoice,
    decoder: Option<&dyn Decode>,
    wanted: impl Fn(&CallId) -> bool,
) -> Vec<CallFate> {
    let chains = Chains::new(&slot.rollout.calls);
    let facts = Facts::new(slot);
    let evidence = Evidence::new(slot, policy);
    let mut fates = Vec::new();
    for (number, call) in slot.rollout.calls.iter().enumerate() {
        if !wanted(&call.call_id) {
            continue;
        }
        let in_row = |row: &crate::rows::Row| {
            let span = row.spans.iter().find(|span| span.call == call.call_id)?;
            Some(Place {
                row_id: row.row_id.clone(),
                owned: span.owned,
                start: span.start.into(),
                gen_start: span.gen_start.into(),
                end: span.end.into(),
            })
        };
        let told = facts.call(call, None, 0);
        let (text, rule) = evidence.of(&told);
        fates.push(CallFate {
            origin: Some(format!("{}:{}", call.origin.file, call.origin.line))
                .filter(|_| call.origin.line > 0),
            evidence: text,
            rule,
            places: slot.own_rows().filter_map(in_row).collect(),
            divergence: divergence(&chains, number, decoder),
            call: told,
        });
    }
    for told in facts.unrecorded() {
        if wanted(&told.call_id) {
            let (text, rule) = evidence.of(&told);
            let (origin, places, divergence) = (None, Vec::new(), None);
            fates.push(CallFate { call: told, origin, evidence: text, rule, places, divergence });
        }
    }
    fates
}

/// Why calls are selected.
struct Evidence<'a> {
    policy: &'a PolicyChoice,
    witnesses: BTreeMap<CallId, String>,
    continued: BTreeSet<&'a CallId>,
    /// Calls that were cut off, by whatever.
    incomplete: BTreeSet<&'a CallId>,
}

impl<'a> Evidence<'a> {
    fn new(slot: Slot<'a>, policy: &'a PolicyChoice) -> Self {
        let witnesses = match policy {
            PolicyChoice::BuiltIn(PolicyName::ReturnedHistory) => witnesses(slot.rollout),
            _ => BTreeMap::new(),
        };
        let calls = slot.rollout.calls.iter();
        let continued = calls.filter_map(|call| call.parent_call_id.as_ref()).collect();
        let cut_off = |row: &&CommittedCall| match &row.completion {
            Completion::Recorded { status, .. } => status.as_deref() == Some("incomplete"),
            Completion::Unrecorded => false,
        };
        let committed = slot.rollout.ledger.committed.iter();
        let incomplete = committed.filter(cut_off).map(|row| &row.call_id).collect();
        Self { policy, witnesses, continued, incomplete }
    }

    /// In words, with the rule behind it.
    fn of(&self, call: &TreeCall) -> (String, Option<u16>) {
        let (id, policy) = (&call.call_id, self.policy);
        let unrecorded = "the ledger names it, and no record of it was captured";
        match (call.mark, &call.failure) {
            (Mark::Pending, _) => {
                return ("admitted, and neither acknowledged nor failed".to_owned(), Some(86));
            }
            (Mark::Failed, Some(reason)) if !call.selected => {
                return (format!("its capture failed: {reason}"), Some(87));
            }
            (Mark::Uncommitted, _) if call.recorded && !call.selected => {
                return ("the ledger does not commit to it".to_owned(), Some(82));
            }
            _ if !call.recorded => return (unrecorded.to_owned(), Some(86)),
            _ => {}
        }
        match (policy, call.selected) {
            (PolicyChoice::BuiltIn(PolicyName::ReturnedHistory), true) => {
                let shown = self.witnesses.get(id);
                (shown.map_or("the returned history".to_owned(), Clone::clone), Some(59))
            }
            (PolicyChoice::BuiltIn(PolicyName::ReturnedHistory), false) => {
                let what = match self.continued.contains(id) {
                    true => {
                        "the returned history does not hold its generation, though calls \
                             continue it"
                    }
                    false => "the returned history does not hold its generation",
                };
                (what.to_owned(), Some(69))
            }
            (PolicyChoice::BuiltIn(PolicyName::AllCaptured), true) if call.mark == Mark::Failed => {
                (
                    "it did not end well, and stays: calls continue it, or it was scored".into(),
                    Some(76),
                )
            }
            (PolicyChoice::BuiltIn(PolicyName::AllCaptured), true) => {
                ("the ledger commits to it, which is all that all_captured asks".into(), Some(73))
            }
            (PolicyChoice::BuiltIn(PolicyName::AllCaptured), false) => {
                let ending = call.ending.as_deref().unwrap_or("an unknown status");
                let what = format!("an unscored call that nothing continues, ended by {ending}");
                (what, Some(if self.incomplete.contains(id) { 75 } else { 74 }))
            }
            (PolicyChoice::Custom(_), true) => (format!("selected by {policy}"), Some(82)),
            (PolicyChoice::Custom(_), false) => (format!("not selected by {policy}"), Some(82)),
        }
    }
}
