//! Expert routes along a row, span by span.

use super::model::RowRoutes;
use crate::archive::Call;
use crate::select::routes_of;
use crate::wire::route::{RouteSpan, Routes};

const UNKNOWN: i32 = -1;

/// Routes of the row that `calls` make: each call's own, placed on its delta. A call of which
/// only the generation was routed fills only that, one without usable routes nothing. `None` when
/// no call of the row has any.
///
/// An engine has no route for the last token that it samples, as nothing was computed for it yet;
/// the next call's prefill has. So where a call's routes begin with the last token before its
/// delta, or with the whole context, that token's route replaces the one of its own call.
pub fn along(calls: &[&Call]) -> Option<RowRoutes> {
    // Selection has refused routes that cannot be read or that differ in shape.
    let captured: Vec<Option<Routes>> =
        calls.iter().map(|call| routes_of(call).ok().flatten()).collect();
    let (layers, topk) = captured.iter().flatten().map(|r| (r.layers, r.topk)).next()?;
    let width = layers * topk;
    let mut experts = Vec::new();
    for (call, routes) in calls.iter().zip(&captured) {
        let end = experts.len() + call.token_ids.len() * width;
        if let Some(routes) = routes.as_ref().filter(|r| (r.layers, r.topk) == (layers, topk)) {
            let carry = call.carry_len as usize;
            let generation = call.generation().len();
            let known = match RouteSpan::classify(carry, generation, routes.tokens) {
                _ if begins_before_delta(call, routes) => carry + generation + 1,
                RouteSpan::Full => carry + generation,
                RouteSpan::Tail => generation,
                RouteSpan::Sentinel => 0,
            };
            let start = end - known * width;
            experts.truncate(start);
            experts.resize(start, UNKNOWN);
            let skipped = (routes.tokens - known) * width;
            experts.extend(routes.experts().skip(skipped).map(|e| e as i32));
        }
        experts.resize(end, UNKNOWN);
    }
    Some(RowRoutes {
        layers: u32::try_from(layers).ok()?,
        topk: u32::try_from(topk).ok()?,
        experts,
    })
}

/// Whether the routes of a continuation cover one token before its delta, or its whole context.
fn begins_before_delta(call: &Call, routes: &Routes) -> bool {
    let covered = routes.tokens as u64;
    call.prev_len > 0 && (covered == call.delta_len + 1 || covered == call.cum_len)
}
