//! A prompt group as a whole: every slot once, one size.

use std::collections::BTreeMap;

use crate::archive::{Group, SourceKind};
use crate::finding::{Code, Finding};

/// Findings on slots and sizes (rules 111, 122). A slot without a rollout is no contradiction: a
/// timeout or a lost connection leaves no result, and drops the group (rule 125). Gym's own sources know neither the size of a
/// group nor which slots it has, only the rollouts that are there.
pub fn check(group: &Group, findings: &mut Vec<Finding>) {
    let Some(first) = group.rollouts.first() else { return };
    let sized = first.source == SourceKind::Staged;
    let mut by_slot = BTreeMap::new();
    for rollout in &group.rollouts {
        let mut wrong = None;
        if rollout.group_size != first.group_size {
            wrong = Some(format!(
                "rollout {} states group size {}, rollout {} states {}",
                rollout.rollout_id, rollout.group_size, first.rollout_id, first.group_size
            ));
        } else if sized && rollout.slot >= rollout.group_size {
            wrong = Some(format!(
                "slot {} of rollout {} is outside its group of {}",
                rollout.slot, rollout.rollout_id, rollout.group_size
            ));
        } else if let Some(other) = by_slot.insert(rollout.slot, &rollout.rollout_id) {
            wrong = Some(format!(
                "rollouts {other} and {} both take slot {}",
                rollout.rollout_id, rollout.slot
            ));
        }
        if let Some(message) = wrong {
            findings
                .push(Finding::new(Code::InconsistentGroup, message).rollout(&rollout.rollout_id));
        }
    }
    let seen = group.rollouts.len();
    if sized && seen < first.group_size as usize {
        let message =
            format!("group {} has {seen} of {} rollouts", group.group_id, first.group_size);
        findings.push(Finding::new(Code::IncompleteGroup, message).rollout(&first.rollout_id));
    }
}
