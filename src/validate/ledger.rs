//! What the ledger itself says went wrong: pending, failed, incomplete, unknown.

use std::collections::BTreeSet;

use crate::archive::{Completeness, Completion, Rollout, SourceKind};
use crate::finding::{Code, Finding, Location};
use crate::id::CallId;

/// The one failure that rule 87 may exempt.
pub const CANCELLATION: &str = "request_finished_without_staged_coordinates";

/// Ledger findings of one rollout. They mask at most: healthy siblings train.
pub fn check(rollout: &Rollout, findings: &mut Vec<Finding>) {
    let scope = || Location::default().scope(rollout.capture_key.clone());
    let mut report = |code, call: Option<&CallId>, message: String| {
        let finding = Finding::new(code, message).rollout(&rollout.rollout_id).at(scope());
        findings.push(match call {
            Some(id) => finding.call(id),
            None => finding,
        });
    };
    let ledger = &rollout.ledger;
    if let Some(reason) = &ledger.failure_reason {
        let message = format!("the receipt gives {reason:?} as the reason why its capture failed");
        report(Code::RolloutFailed, None, message);
    } else if ledger.capture_poisoned {
        let message = "the receipt marks its capture as poisoned and gives no reason".to_owned();
        report(Code::CapturePoisoned, None, message);
    }
    for id in &ledger.pending {
        let message = format!("call {id} was admitted, and never acknowledged or failed");
        report(Code::CapturePending, Some(id), message);
    }
    let committed: BTreeSet<&CallId> = ledger.committed.iter().map(|c| &c.call_id).collect();
    for failure in &ledger.failures {
        // Whether the exemption holds also needs the selection; without one, say what it could be.
        let cancelled = failure.reason == CANCELLATION
            && ledger.pending.is_empty()
            && committed.contains(&failure.call_id);
        let code = if cancelled { Code::CaptureCancelled } else { Code::CaptureFailed };
        let message = format!("call {} failed: {}", failure.call_id, failure.reason);
        report(code, Some(&failure.call_id), message);
    }
    for call in &ledger.committed {
        let Completion::Recorded { status, finish_reason } = &call.completion else { continue };
        let fine = match status.as_deref() {
            Some("completed") => true,
            Some("incomplete") => finish_reason.as_deref().is_some_and(is_length_stop),
            _ => false,
        };
        if !fine {
            let message = format!(
                "call {} ended with status {} and finish reason {}",
                call.call_id,
                status.as_deref().unwrap_or("unknown"),
                finish_reason.as_deref().unwrap_or("unknown"),
            );
            report(Code::CompletionFailed, Some(&call.call_id), message);
        }
    }
    match rollout.completeness {
        Completeness::Complete => {}
        Completeness::Incomplete => {
            let message =
                format!("the store of {} says that calls are missing", rollout.capture_key);
            report(Code::CaptureIncomplete, None, message);
        }
        // A staged scope without a receipt has its own finding, an error.
        Completeness::Unknown if rollout.source == SourceKind::Staged => {}
        Completeness::Unknown => {
            let message =
                format!("nothing tells whether calls of {} were lost", rollout.capture_key);
            report(Code::CompletenessUnknown, None, message);
        }
    }
}

/// Finish reasons that mean a length limit (`spec/semantics.md` section 1).
pub fn is_length_stop(finish_reason: &str) -> bool {
    matches!(finish_reason, "length" | "max_tokens" | "max_output_tokens")
}
