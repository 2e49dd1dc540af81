//! One capture scope: what any source knows of one attempt at a rollout.

use crate::archive::{Call, Completeness, Ledger, SourceKind};
use crate::finding::Finding;
use crate::id::CaptureKey;
use crate::wire::RolloutManifest;

/// Calls and account of one capture scope, before it is known whose rollout it fills.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub source: SourceKind,
    /// Reward as the receipt recorded it; used when no rollouts line states one.
    pub reward: Option<f64>,
    pub completeness: Completeness,
    pub ledger: Ledger,
    pub calls: Vec<Call>,
    /// The ledger file that stands for a receipt, and names no scored call.
    pub lineage: Option<RolloutManifest>,
    /// What is doubtful about it.
    pub findings: Vec<Finding>,
}

impl Scope {
    /// A scope of which nothing is known yet.
    pub fn new(source: SourceKind) -> Self {
        Self {
            source,
            reward: None,
            completeness: Completeness::Unknown,
            ledger: Ledger::default(),
            calls: Vec::new(),
            lineage: None,
            findings: Vec::new(),
        }
    }

    /// Whether it speaks of no call at all.
    pub fn is_silent(&self) -> bool {
        let Ledger { receipt, attempted, pending, .. } = &self.ledger;
        self.calls.is_empty() && receipt.is_none() && attempted.is_empty() && pending.is_empty()
    }
}

/// A scope in Gym's spelling, `{task}-{slot}` or `{task}-{slot}-a{attempt}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GymScope {
    pub task: String,
    pub slot: u32,
    pub attempt: u64,
}

impl GymScope {
    pub fn parse(key: &CaptureKey) -> Option<Self> {
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty();
        let key = key.as_str();
        let (run, attempt) = match key.rsplit_once("-a") {
            Some((run, attempt)) if digits(attempt) => (run, attempt.parse().ok()?),
            _ => (key, 0),
        };
        let (task, slot) = run.rsplit_once('-')?;
        if task.is_empty() || !digits(slot) {
            return None;
        }
        Some(Self { task: task.to_owned(), slot: slot.parse().ok()?, attempt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gym_scopes_are_task_slot_and_attempt() {
        let parsed = |key: &str| GymScope::parse(&key.into()).map(|s| (s.task, s.slot, s.attempt));
        assert_eq!(parsed("0-1"), Some(("0".into(), 1, 0)));
        assert_eq!(parsed("12-3-a2"), Some(("12".into(), 3, 2)));
        assert_eq!(parsed("math-hard-3"), Some(("math-hard".into(), 3, 0)));
        for none in ["", "0", "-1", "a-b", "0-1x", "0-99999999999"] {
            assert_eq!(parsed(none), None, "{none}");
        }
    }
}
