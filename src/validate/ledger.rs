//! What the ledger itself says went wrong: pending, failed, incomplete, unknown.

use std::collections::BTreeSet;

use super::values::place;
use crate::archive::{Completeness, Completion, Ending, Rollout, SourceKind};
use crate::finding::{Code, Finding, Location};
use crate::id::CallId;

/// Ledger findings of one rollout. They mask at most: healthy siblings train.
pub fn check(rollout: &Rollout, findings: &mut Vec<Finding>) {
    let scope = || Location::default().scope(rollout.capture_key.clone());
    let mut report = |code, call: Option<&CallId>, message: String| {
        let finding = Finding::new(code, message).rollout(&rollout.rollout_id);
        findings.push(match call {
            Some(id) => {
                let record = rollout.calls.iter().find(|c| c.call_id == *id);
                finding.call(id).at(record.map_or_else(scope, place))
            }
            None => finding.at(scope()),
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
        let cancelled = failure.is_cancellation()
            && ledger.pending.is_empty()
            && committed.contains(&failure.call_id);
        // Ingest names its own codes where it could not place a call of a store.
        let own = Code::parse(&failure.reason).filter(|_| rollout.source != SourceKind::Staged);
        let code = match own {
            Some(code) => code,
            None if cancelled => Code::CaptureCancelled,
            None => Code::CaptureFailed,
        };
        let message = match own {
            Some(code) => format!("call {}: {}", failure.call_id, code.summary()),
            None => format!("call {} failed: {}", failure.call_id, failure.reason),
        };
        report(code, Some(&failure.call_id), message);
    }
    for call in &ledger.committed {
        if let (Ending::Bad, Completion::Recorded { status, finish_reason }) =
            (call.completion.ending(), &call.completion)
        {
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
