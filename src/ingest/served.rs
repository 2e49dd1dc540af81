//! Served output items as a ledger keeps them, for sources that record the items themselves.

use crate::archive::{CommittedCall, Completion, OutputItem};
use crate::id::CallId;
use crate::wire::assistant_fingerprint;
use crate::wire::fingerprint::FINGERPRINT_VERSION;
use crate::wire::json::Json;

/// The ledger row of a call that served `items`. An item without a fingerprint, or one that no
/// fingerprint can be made of, keeps its id and type.
pub(super) fn committed(
    call_id: CallId,
    response_id: Option<String>,
    completion: Completion,
    items: &[Json],
) -> CommittedCall {
    let word = |item: &Json, key| item.get(key).and_then(Json::as_str).map(str::to_owned);
    let fingerprint = |items: &[Json]| assistant_fingerprint(items).ok().flatten();
    let output_items = items
        .iter()
        .map(|item| OutputItem {
            id: word(item, "id"),
            kind: word(item, "type"),
            fingerprint: fingerprint(std::slice::from_ref(item)),
        })
        .collect();
    CommittedCall {
        call_id,
        response_id,
        completion,
        output_items: Some(output_items),
        output_fingerprint: fingerprint(items),
        fingerprint_version: FINGERPRINT_VERSION,
    }
}

/// Extras that hold nothing but routes.
pub(super) fn routes_only(routes: &str) -> String {
    format!("{{\"routed_experts\":{routes}}}")
}
