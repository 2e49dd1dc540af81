//! A receipt as the account of its capture scope.

use super::receipt::Receipt;
use crate::archive::{CommittedCall, Completion, Ledger, OutputItem};
use crate::id::{CallId, Digest32};

/// What a receipt says of a committed call, by reference.
#[derive(PartialEq)]
struct Said<'a> {
    call_id: &'a str,
    response_id: Option<&'a str>,
    completion: &'a Completion,
    output_items: Option<&'a [OutputItem]>,
    output_fingerprint: Option<Digest32>,
    fingerprint_version: u64,
}

impl<'a> Said<'a> {
    fn in_ledger(call: &'a CommittedCall) -> Self {
        Said {
            call_id: call.call_id.as_str(),
            response_id: call.response_id.as_deref(),
            completion: &call.completion,
            output_items: call.output_items.as_deref(),
            output_fingerprint: call.output_fingerprint,
            fingerprint_version: call.fingerprint_version,
        }
    }

    fn to_call(&self) -> CommittedCall {
        CommittedCall {
            call_id: self.call_id.into(),
            response_id: self.response_id.map(str::to_owned),
            completion: self.completion.clone(),
            output_items: self.output_items.map(<[OutputItem]>::to_vec),
            output_fingerprint: self.output_fingerprint,
            fingerprint_version: self.fingerprint_version,
        }
    }
}

impl Receipt {
    fn committed(&self) -> impl Iterator<Item = Said<'_>> {
        self.manifest.iter().map(|row| {
            let beside = self.calls.as_ref().and_then(|calls| calls.get(&row.model_call_id));
            let (completion, output_items) = match beside {
                Some(entry) => (&entry.completion, Some(entry.output_items.as_slice())),
                None => (&row.completion, row.output_items.as_deref()),
            };
            Said {
                call_id: &row.model_call_id,
                response_id: Some(&row.response_id),
                completion,
                output_items,
                output_fingerprint: row.output_fingerprint,
                fingerprint_version: row.fingerprint_version,
            }
        })
    }

    /// A receipt that lists no attempts attempted what it committed.
    fn attempted(&self) -> impl Iterator<Item = &str> {
        let listed = self.attempted_call_ids.iter().flatten().map(String::as_str);
        let committed = self.manifest.iter().map(|row| row.model_call_id.as_str());
        listed.chain(committed.filter(|_| self.attempted_call_ids.is_none()))
    }

    fn pending(&self) -> impl Iterator<Item = &str> {
        self.pending_call_ids.iter().flatten().map(String::as_str)
    }

    /// What this receipt, whose line is `text`, says of its scope.
    pub fn ledger(&self, text: &str) -> Ledger {
        Ledger {
            receipt: Some(text.to_owned()),
            committed: self.committed().map(|call| call.to_call()).collect(),
            attempted: self.attempted().map(CallId::from).collect(),
            pending: self.pending().map(CallId::from).collect(),
            failures: self.failures.clone().unwrap_or_default(),
            terminal_call_id: self.terminal_model_call_id.as_deref().map(CallId::from),
            capture_poisoned: self.capture_poisoned,
            failure_reason: self.failure_reason.clone(),
        }
    }

    /// In which respects `ledger` is not [`Receipt::ledger`].
    pub fn differences(&self, ledger: &Ledger) -> impl Iterator<Item = &'static str> {
        let state = (self.capture_poisoned, self.failure_reason.as_deref());
        let kept_state = (ledger.capture_poisoned, ledger.failure_reason.as_deref());
        let terminal = ledger.terminal_call_id.as_ref().map(CallId::as_str);
        let all = [
            ("committed calls", self.committed().eq(ledger.committed.iter().map(Said::in_ledger))),
            ("attempted calls", self.attempted().eq(ledger.attempted.iter().map(CallId::as_str))),
            ("pending calls", self.pending().eq(ledger.pending.iter().map(CallId::as_str))),
            ("failures", self.failures.as_deref().unwrap_or_default() == ledger.failures),
            ("scored call", self.terminal_model_call_id.as_deref() == terminal),
            ("state of the capture", state == kept_state),
        ];
        all.into_iter().filter(|(_, same)| !same).map(|(what, _)| what)
    }
}
