//! Which staged records may be removed once rollouts are captured, and which may not
//! (rules 130-136; `spec/semantics.md` section 3, "Forest paths").
//!
//! Nothing is removed here. A training job removes what it owns; this says by exact key what that
//! is, so that neither a pending write nor another owner's record goes with it.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::archive::{Rollout, SourceKind};
use crate::id::{CallId, CaptureKey, RolloutId};
use crate::wire::Receipt;
use crate::wire::digest::staging_key;

/// What becomes of a staging key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// May be removed.
    Remove,
    /// Has to stay.
    Keep,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ground {
    /// The ledger committed to the call, selected or not (rule 135).
    Committed,
    /// The call failed and nothing of it is pending; whatever was staged under its key is of no
    /// use. That it failed acknowledges nothing (rule 132): its key may hold no record.
    Failed,
    /// The call was admitted and has neither record nor failure in the ledger; a record that is
    /// there is nobody's evidence.
    Attempted,
    /// Its worker may still write; stays until the partition is torn down (rules 130, 133).
    Pending,
    /// Restored from an earlier scope, which owns the key.
    Restored,
}

impl Ground {
    /// What it means for the key.
    pub fn fate(self) -> Fate {
        match self {
            Ground::Committed | Ground::Failed | Ground::Attempted => Fate::Remove,
            Ground::Pending | Ground::Restored => Fate::Keep,
        }
    }
}

/// One staging key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct PlannedKey {
    /// What becomes of it.
    pub fate: Fate,
    /// The key, as the receipt has it, or `{capture scope}/{call}`.
    pub staging_key: String,
    /// Why.
    pub ground: Ground,
    /// The rollout.
    #[schemars(with = "String")]
    pub rollout_id: RolloutId,
    /// The call.
    #[schemars(with = "String")]
    pub call_id: CallId,
}

/// The keys of every call that `rollout` attempted, in order of fate and key, each once; none for
/// a source that stages nothing.
pub fn plan(rollout: &Rollout) -> Vec<PlannedKey> {
    if rollout.source != SourceKind::Staged {
        return Vec::new();
    }
    let ledger = &rollout.ledger;
    let pending: BTreeSet<&CallId> = ledger.pending.iter().collect();
    let failed: BTreeSet<&CallId> = ledger.failures.iter().map(|f| &f.call_id).collect();
    let committed: BTreeSet<&CallId> = ledger.committed.iter().map(|row| &row.call_id).collect();
    let restored: BTreeMap<&CallId, &CaptureKey> = rollout
        .calls
        .iter()
        .filter_map(|call| Some((&call.call_id, call.source_capture_key.as_ref()?)))
        .collect();
    let recorded = recorded_keys(ledger.receipt.as_deref());
    let calls: BTreeSet<&CallId> = ledger
        .attempted
        .iter()
        .chain(committed.iter().copied())
        .chain(failed.iter().copied())
        .chain(pending.iter().copied())
        .collect();
    let key = |call: &CallId| {
        let scope = restored.get(call).copied().unwrap_or(&rollout.capture_key);
        recorded
            .get(call.as_str())
            .cloned()
            .or_else(|| staging_key(scope.as_str(), call.as_str()).ok())
    };
    let planned = calls.into_iter().filter_map(|call| {
        // A failure record does not end what is pending.
        let ground = if pending.contains(call) {
            Ground::Pending
        } else if restored.contains_key(call) {
            Ground::Restored
        } else if committed.contains(call) {
            Ground::Committed
        } else if failed.contains(call) {
            Ground::Failed
        } else {
            Ground::Attempted
        };
        Some(PlannedKey {
            fate: ground.fate(),
            staging_key: key(call)?,
            ground,
            rollout_id: rollout.rollout_id.clone(),
            call_id: call.clone(),
        })
    });
    let mut planned: Vec<PlannedKey> = planned.collect();
    // Ids with a slash can make one key of two calls; what one of them needs stays.
    let kept: BTreeSet<String> = planned
        .iter()
        .filter(|key| key.fate == Fate::Keep)
        .map(|key| key.staging_key.clone())
        .collect();
    planned.retain(|key| key.fate == Fate::Keep || !kept.contains(&key.staging_key));
    planned.sort();
    planned
}

/// Staging keys that the rows of a receipt state, by call.
fn recorded_keys(receipt: Option<&str>) -> BTreeMap<String, String> {
    let receipt = receipt.and_then(|text| Receipt::parse(text).ok());
    let rows = receipt.into_iter().flat_map(|receipt| receipt.manifest);
    rows.map(|row| (row.model_call_id, row.staging_key)).collect()
}
