//! A receipt as the account of its capture scope.

use super::receipt::Receipt;
use crate::archive::{CommittedCall, Ledger};
use crate::id::CallId;

impl Receipt {
    /// What this receipt, whose line is `text`, says of its scope. A receipt that lists no
    /// attempts attempted what it committed.
    pub fn ledger(&self, text: &str) -> Ledger {
        let ids = |ids: &Option<Vec<String>>| -> Option<Vec<CallId>> {
            Some(ids.as_ref()?.iter().map(|id| id.as_str().into()).collect())
        };
        let committed: Vec<_> = self
            .manifest
            .iter()
            .map(|row| {
                let beside = self.calls.as_ref().and_then(|calls| calls.get(&row.model_call_id));
                let (completion, output_items) = match beside {
                    Some(entry) => (&entry.completion, Some(entry.output_items.clone())),
                    None => (&row.completion, row.output_items.clone()),
                };
                CommittedCall {
                    call_id: row.model_call_id.as_str().into(),
                    response_id: Some(row.response_id.clone()),
                    completion: completion.clone(),
                    output_items,
                    output_fingerprint: row.output_fingerprint,
                    fingerprint_version: row.fingerprint_version,
                }
            })
            .collect();
        let attempted = ids(&self.attempted_call_ids)
            .unwrap_or_else(|| committed.iter().map(|row| row.call_id.clone()).collect());
        Ledger {
            receipt: Some(text.to_owned()),
            committed,
            attempted,
            pending: ids(&self.pending_call_ids).unwrap_or_default(),
            failures: self.failures.clone().unwrap_or_default(),
            terminal_call_id: self.terminal_model_call_id.as_deref().map(CallId::from),
            capture_poisoned: self.capture_poisoned,
            failure_reason: self.failure_reason.clone(),
        }
    }
}
