//! Which captured call a request continues, as the package decides it (`spec/gym-wire.md` d.1).

use std::collections::HashMap;

use super::entry::TokenEntry;
use super::fingerprint::{
    FINGERPRINT_VERSION, FingerprintError, assistant_fingerprint, conversation_digest,
};
use super::json::Json;

/// The decision on one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lineage {
    /// Nothing that a model authored is in the request.
    Root,
    /// The request continues this call (position in the entries).
    Resolved(usize),
    /// It continues something: no call matches.
    NoMatch,
    /// It continues something: several calls with different tokens match.
    Ambiguous,
}

/// Finds the call whose request and output together are the assistant turns of `request`, and
/// whose own request is how `request` begins. Only the last assistant turn's call can match; there
/// is no search for a longest prefix.
///
/// # Errors
///
/// [`FingerprintError`] when an item of the request cannot be read.
pub fn resolve_request(
    entries: &[TokenEntry],
    request: &[Json],
) -> Result<Lineage, FingerprintError> {
    let Some(fingerprint) = assistant_fingerprint(request)? else { return Ok(Lineage::Root) };
    let fingerprint = fingerprint.to_string();
    let mut contexts: HashMap<usize, String> = HashMap::new();
    let mut matches: Vec<usize> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let current = entry.fingerprint_version.is_none_or(|v| v == FINGERPRINT_VERSION as i64);
        let length = usize::try_from(entry.continuation_context_len).ok();
        let context = length.and_then(|length| request.get(..length));
        let (Some(context), true) = (context, current) else { continue };
        let named = !entry.continuation_context_digest.is_empty();
        if !named || entry.continuation_fingerprint != fingerprint {
            continue;
        }
        let digest = match contexts.get(&context.len()) {
            Some(digest) => digest,
            None => {
                let digest = conversation_digest(context)?.to_string();
                contexts.entry(context.len()).or_insert(digest)
            }
        };
        if *digest == entry.continuation_context_digest {
            matches.push(at);
        }
    }
    let identity = |at: &usize| {
        let entry = &entries[*at];
        entry.digest.as_deref().filter(|d| !d.is_empty()).map(|digest| (digest, entry.cum_len))
    };
    let smallest = matches.iter().copied().min_by_key(|&at| &entries[at].model_call_id);
    Ok(match (matches.as_slice(), smallest) {
        ([], _) | (_, None) => Lineage::NoMatch,
        ([only], _) => Lineage::Resolved(*only),
        ([first, rest @ ..], Some(smallest)) => {
            let same =
                identity(first).is_some() && rest.iter().all(|at| identity(at) == identity(first));
            if same { Lineage::Resolved(smallest) } else { Lineage::Ambiguous }
        }
    })
}
