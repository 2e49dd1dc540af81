//! The manifest graph against a brute-force reading of the rule, and on long chains.

use std::collections::HashSet;

use forestctl::archive::{Completion, Mode};
use forestctl::wire::digest::EMPTY_EXTRAS_DIGEST;
use forestctl::wire::{CallRecord, Manifest};
use proptest::prelude::*;

fn row(id: String, parent: Option<String>, prev_len: u64, cum_len: u64) -> CallRecord {
    CallRecord {
        schema_version: 2,
        digest_version: 2,
        extras_digest_version: 1,
        staging_key: format!("r/{id}"),
        model_call_id: id,
        mode: if parent.is_some() { Mode::TokenIn } else { Mode::Text },
        parent_call_id: parent,
        prev_len,
        delta_len: 1,
        cum_len,
        weight_version: 0,
        digest: EMPTY_EXTRAS_DIGEST,
        extras_digest: EMPTY_EXTRAS_DIGEST,
        chain_hash: EMPTY_EXTRAS_DIGEST,
        cumulative_hash: EMPTY_EXTRAS_DIGEST,
        response_id: "x".into(),
        admitted_at: None,
        output_fingerprint: None,
        continuation_fingerprint: None,
        fingerprint_version: 0,
        source_capture_key: None,
        completion: Completion::Unrecorded,
        output_items: None,
        replay: None,
    }
}

/// One row at a time: its parent is there, it starts where that ends, and walking up from it
/// meets no row twice.
fn brute_force(rows: &[CallRecord]) -> Vec<(usize, String)> {
    let find = |id: &str| rows.iter().find(|row| row.model_call_id == id);
    let mut errors = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let call = &row.model_call_id;
        if let Some(id) = &row.parent_call_id {
            let Some(parent) = find(id) else {
                errors.push((i, format!("missing_parent: call {call} names absent parent {id}")));
                continue;
            };
            if parent.cum_len != row.prev_len {
                errors.push((
                    i,
                    format!(
                        "parent_length_mismatch: call {call} starts at {}, parent ends at {}",
                        row.prev_len, parent.cum_len
                    ),
                ));
                continue;
            }
        }
        let mut seen = HashSet::new();
        let mut at = Some(row);
        while let Some(ancestor) = at {
            if !seen.insert(&ancestor.model_call_id) {
                let call = &ancestor.model_call_id;
                errors.push((i, format!("lineage_cycle: cycle reaches call {call}")));
                break;
            }
            at = ancestor.parent_call_id.as_deref().and_then(find);
        }
    }
    errors
}

proptest! {
    #[test]
    fn link_errors_are_those_of_the_rule(
        links in prop::collection::vec((prop::option::weighted(0.85, 0usize..8), 0u64..2, 0u64..2), 0..8)
    ) {
        let rows: Vec<_> = links
            .iter()
            .enumerate()
            .map(|(i, &(parent, prev_len, cum_len))| {
                row(i.to_string(), parent.map(|p| p.to_string()), prev_len, cum_len)
            })
            .collect();
        let manifest = Manifest::new(&rows);
        let found: Vec<_> =
            manifest.link_errors().map(|(i, error)| (i, error.to_string())).collect();
        prop_assert_eq!(&found, &brute_force(&rows));
        for row in &rows {
            // Never loops; a chain exists where the walk ends at a root.
            if let Ok(chain) = manifest.chain(Some(&row.model_call_id)) {
                prop_assert!(rows[chain[0]].parent_call_id.is_none());
            }
        }
    }
}

#[test]
fn long_chains_take_one_pass_in_either_order() {
    let n: u64 = 100_000;
    let mut rows: Vec<_> = (0..n)
        .map(|i| row(i.to_string(), i.checked_sub(1).map(|p| p.to_string()), i, i + 1))
        .collect();
    for _ in 0..2 {
        let manifest = Manifest::new(&rows);
        assert_eq!(manifest.duplicates().count() + manifest.link_errors().count(), 0);
        assert_eq!(manifest.chain(Some("99999")).map(|chain| chain.len()), Ok(n as usize));
        rows.reverse();
    }
    // The root becomes a child of the last call: every row is on the cycle.
    rows[0].parent_call_id = Some("99999".into());
    rows[0].prev_len = n;
    let manifest = Manifest::new(&rows);
    assert_eq!(manifest.link_errors().count(), n as usize);
    assert_eq!(manifest.chain(Some("5")).unwrap_err().code.as_str(), "lineage_cycle");
}
