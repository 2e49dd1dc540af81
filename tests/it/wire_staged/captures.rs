//! Whole captures: `staging/*.json`, the 64 rollouts of `archive/`, and the closed-loop sets.

use forestctl::archive::Completion;
use forestctl::wire::digest::{self, extras_text_digest};
use forestctl::wire::json::{Dialect, Json};
use forestctl::wire::route::{self, RouteSpan};
use forestctl::wire::terminal::select_terminal_call;
use forestctl::wire::{
    CallRecord, LinearizedRow, Manifest, Receipt, RolloutManifest, StagedRecord, linearize,
    verify_and_linearize,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{assert_same_json, fixture, list, object, read, row_json, text};

pub const STAGING: [&str; 26] = [
    "single_call",
    "chain_4",
    "chain_20",
    "chain_weight_versions",
    "compaction_2_roots_seed_figure",
    "compaction_after_turn_10_of_20",
    "compaction_3_roots",
    "interleaved_chains",
    "branch_A_B_C",
    "retry_siblings_resolved",
    "retry_siblings_unresolved",
    "retry_siblings_identical_tokens",
    "root_retry",
    "abandoned_attempt",
    "nested_branches",
    "empty_generation_terminal",
    "empty_generation_middle",
    "empty_generation_off_path",
    "zero_prompt",
    "unicode_ids",
    "large_token_ids",
    "logprob_extremes",
    "routed_experts",
    "extras_nested",
    "childless_roots",
    "childless_roots_unstamped",
];

fn selection(rows: &[CallRecord]) -> Value {
    let candidates: Vec<_> = rows.iter().map(Into::into).collect();
    match select_terminal_call(&candidates) {
        Ok(call) => json!({"terminal_model_call_id": call, "reason": "selected"}),
        Err(why) => json!({"terminal_model_call_id": null, "reason": why.as_str()}),
    }
}

/// Rows that no other row continues.
fn leaves(rows: &[CallRecord]) -> Vec<&str> {
    let continued = |id: &str| rows.iter().any(|row| row.parent_call_id.as_deref() == Some(id));
    rows.iter().map(|row| row.model_call_id.as_str()).filter(|id| !continued(id)).collect()
}

#[test]
fn staged_rollout_shapes() {
    for name in STAGING {
        let case = fixture(&format!("staging/{name}.json"));
        let receipt = Receipt::parse(&case["receipt"].to_string()).expect(name);
        receipt.check().expect(name);
        let mut records: Vec<_> = list(&case, "staged_records")
            .iter()
            .map(|r| StagedRecord::parse(&r.to_string()).expect(name))
            .collect();
        for record in &records {
            record.check().expect(name);
            let key = digest::staging_key(&record.scope, &record.model_call_id).unwrap();
            let row = receipt.manifest.iter().find(|r| r.model_call_id == record.model_call_id);
            assert!(row.is_none_or(|row| row.staging_key == key), "{name}");
        }
        if let Some(manifest) = case.get("manifest") {
            let manifest = RolloutManifest::parse(&manifest.to_string()).expect(name);
            manifest.check().expect(name);
            assert_eq!(manifest.records, receipt.manifest, "{name}");
            assert!(!manifest.failures.is_empty(), "{name}");
        }
        let order: Vec<_> =
            list(&case, "snapshot_order").iter().map(|c| c.as_str().unwrap()).collect();
        records.retain(|r| order.contains(&r.model_call_id.as_str()));
        records.sort_by_key(|r| order.iter().position(|c| *c == r.model_call_id));

        let expected = &case["expected"];
        assert_eq!(selection(&receipt.manifest), expected["select_terminal_call"], "{name}");
        let verified = verify_and_linearize(&receipt, &records);
        compare(name, &verified, &expected["verify_and_linearize"]);
        let per_leaf = object(&expected["per_leaf"]);
        let mut found = leaves(&receipt.manifest);
        found.sort_unstable();
        assert!(found.iter().eq(per_leaf.keys()), "{name}");
        for (leaf, expected) in per_leaf {
            let row = linearize(&receipt.scope, &records, &receipt.manifest, Some(leaf));
            match expected.as_str() {
                Some(_) => assert_eq!(row, verified, "{name} {leaf}"),
                None => compare(name, &row, expected),
            }
        }

        if let Some(digests) = case.get("extras_digests") {
            for record in &records {
                let found = extras_text_digest(record.extras.as_deref()).unwrap();
                assert_eq!(digests[&record.model_call_id], found.to_string());
            }
        }
        if let Some(spans) = case.get("expected_route_spans") {
            let found: Vec<_> = records.iter().map(route_span).collect();
            assert_eq!(&Value::from(found), spans);
        }
    }
}

fn compare(
    name: &str,
    found: &Result<LinearizedRow, forestctl::wire::VerifyError>,
    expected: &Value,
) {
    match found {
        Ok(row) => assert_same_json(&row_json(row), &expected["row"], name),
        Err(error) => {
            assert_eq!(error.to_string(), text(expected, "message"), "{name}");
            assert_eq!(error.class.as_str(), text(expected, "error_class"), "{name}");
        }
    }
}

fn route_span(record: &StagedRecord) -> Value {
    let carry = record.token_mask_delta.iter().filter(|&&mask| mask == 0.0).count();
    let generation = record.token_ids_delta.len() - carry;
    let extras = record.extras.as_deref().map(|text| Json::parse(text, Dialect::Strict).unwrap());
    let routes = extras.as_ref().and_then(|extras| extras.get("routed_experts"));
    let staged = routes.map_or(0, |routes| route::token_count(routes).unwrap());
    json!({
        "model_call_id": record.model_call_id,
        "carry_len": carry,
        "generation_len": generation,
        "staged_route_len": staged,
        "mode": RouteSpan::classify(carry, generation, staged).as_str(),
    })
}

/// A compact record of `archive/rollouts.jsonl.zst`, with the row that commits to it.
fn compact_record(row: &CallRecord, scope: &str, staged: &Value) -> StagedRecord {
    assert_eq!(staged["model_call_id"], row.model_call_id.as_str());
    let carry = staged["carry_len"].as_u64().unwrap() as usize;
    let generated: Vec<f64> =
        serde_json::from_value(staged["generation_log_probs"].clone()).unwrap();
    let zeros = || vec![0.0; carry];
    StagedRecord {
        schema_version: 2,
        digest_version: 2,
        extras_digest_version: 1,
        scope: scope.to_owned(),
        source_capture_key: None,
        model_call_id: row.model_call_id.clone(),
        parent_call_id: row.parent_call_id.clone(),
        mode: row.mode,
        prev_len: row.prev_len,
        delta_len: row.delta_len,
        cum_len: row.cum_len,
        weight_version: row.weight_version,
        digest: row.digest,
        token_ids_delta: serde_json::from_value(staged["token_ids_delta"].clone()).unwrap(),
        token_mask_delta: [zeros(), vec![1.0; generated.len()]].concat(),
        generation_log_probs_delta: [zeros(), generated].concat(),
        extras_digest: row.extras_digest,
        chain_hash: row.chain_hash,
        cumulative_hash: row.cumulative_hash,
        extras: None,
    }
}

/// A row as `archive/expected.jsonl` sums it up.
fn summary(row: &LinearizedRow) -> Value {
    let hash = |bytes: Vec<u8>| hex::encode(Sha256::digest(bytes));
    let floats = |xs: &[f64]| hash(xs.iter().flat_map(|&x| (x as f32).to_be_bytes()).collect());
    let spans = row.spans.iter().zip(&row.weight_versions);
    json!({
        "ok": true,
        "tokens": row.token_ids.len(),
        "generated": row.links.iter().map(|(_, generation)| generation).sum::<usize>(),
        "prompt_len": row.prompt_len,
        "model_call_ids": row.model_call_ids,
        "weight_versions": row.weight_versions,
        "weight_version_spans": spans.map(|((a, b), w)| json!([a, b, w])).collect::<Vec<_>>(),
        "link_spans": row.links,
        "sha256_tokens_u64be": hash(row.token_ids.iter().flat_map(|id| id.to_be_bytes()).collect()),
        "sha256_mask_f32be": floats(&row.token_mask),
        "sha256_logprobs_f32be": floats(&row.logprobs),
    })
}

#[test]
fn sixty_four_rollouts() {
    let rollouts = read("gym-0.7/archive/rollouts.jsonl.zst");
    let expected = read("gym-0.7/archive/expected.jsonl");
    let (mut count, mut calls, mut tokens) = (0, 0, 0);
    for (rollout, expected) in rollouts.lines().zip(expected.lines()) {
        let rollout: Value = serde_json::from_str(rollout).unwrap();
        let expected: Value = serde_json::from_str(expected).unwrap();
        let scope = text(&rollout, "rollout_id");
        assert_eq!(scope, text(&expected, "rollout_id"));
        let mut receipt = expected["receipt"].clone();
        receipt["rollout_id"] = json!(scope);
        receipt["manifest"] = rollout["manifest"]["records"].clone();
        let receipt = Receipt::parse(&receipt.to_string()).expect(scope);
        receipt.check().expect(scope);
        let records: Vec<_> = receipt
            .manifest
            .iter()
            .zip(list(&rollout, "staged"))
            .map(|(row, staged)| compact_record(row, scope, staged))
            .collect();
        assert_eq!(records.len(), receipt.manifest.len());
        records.iter().for_each(|record| record.check().expect(scope));

        assert_eq!(selection(&receipt.manifest), expected["select_terminal_call"], "{scope}");
        match verify_and_linearize(&receipt, &records) {
            Ok(row) => assert_same_json(&summary(&row), &expected["verify"], scope),
            Err(error) => {
                assert_eq!(expected["verify"], json!({"ok": false, "code": error.code.as_str()}));
            }
        }
        let per_leaf = object(&expected["per_leaf"]);
        assert_eq!(leaves(&receipt.manifest).len(), per_leaf.len(), "{scope}");
        for (leaf, expected) in per_leaf {
            let row = linearize(scope, &records, &receipt.manifest, Some(leaf)).expect(scope);
            assert_same_json(&summary(&row), expected, leaf);
        }
        count += 1;
        calls += records.len();
        tokens += records.iter().map(|r| r.token_ids_delta.len()).sum::<usize>();
    }
    assert_eq!((count, calls, tokens), (64, 533, 457_077));
}

#[test]
fn closed_loop_records_hold_their_digests() {
    let mut rows = Vec::new();
    for (staged, receipts, schema) in [
        ("staged-v2/staged.jsonl", "staged-v2/receipts.jsonl", 2),
        ("staged-v3/staged.jsonl.gz", "staged-v3/receipts.jsonl.gz", 3),
    ] {
        let staged = read(&format!("closed-loop/seed1/{staged}"));
        let records: Vec<_> =
            staged.lines().map(|line| StagedRecord::parse(line).expect(line)).collect();
        for record in &records {
            assert_eq!(record.schema_version, schema);
            record.check().expect(&record.model_call_id);
            assert_eq!(digest::call_digest(&record.view()), Ok(record.digest));
        }
        let receipts = read(&format!("closed-loop/seed1/{receipts}"));
        let mut calls = 0;
        for line in receipts.lines() {
            let receipt = Receipt::parse(line).expect(line);
            let scope = receipt.scope.as_str();
            receipt.check().expect(scope);
            assert!(receipt.attempted_call_ids.is_some() && receipt.pending_call_ids.is_some());
            assert_eq!(receipt.calls.is_some(), schema == 2, "{scope}");
            let snapshots: Vec<_> = receipt
                .manifest
                .iter()
                .map(|row| {
                    let record = records.iter().find(|r| r.model_call_id == row.model_call_id);
                    record.expect(&row.model_call_id).clone()
                })
                .collect();
            for row in &receipt.manifest {
                let completion = match &receipt.calls {
                    Some(calls) => &calls[&row.model_call_id].completion,
                    None => &row.completion,
                };
                assert!(matches!(completion, Completion::Recorded { .. }), "{scope}");
                assert_eq!(row.output_items.is_some(), schema == 3);
            }
            let manifest = Manifest::new(&receipt.manifest);
            assert_eq!(manifest.link_errors().count(), 0, "{scope}");
            for leaf in leaves(&receipt.manifest) {
                let row = linearize(scope, &snapshots, &receipt.manifest, Some(leaf)).expect(leaf);
                rows.push((schema, row));
            }
            calls += snapshots.len();
        }
        // Some records are named by no receipt: pending calls, lost acknowledgements.
        assert!(0 < calls && calls < records.len(), "{calls} of {}", records.len());
    }
    let (v2, v3): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(schema, _)| *schema == 2);
    assert!(v2.iter().map(|(_, row)| row).eq(v3.iter().map(|(_, row)| row)));
    assert!(v2.len() > 30, "{}", v2.len());
    assert!(v2.iter().all(|(_, row)| !row.token_ids.is_empty()));
}
