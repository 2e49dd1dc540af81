//! Nothing is left out: the lists of words are the specification's, and every one has its input.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use forestctl::finding::{Code, Family};

use super::all;
use super::terminal::{WALKS, trail_words};

/// Why a call is not in the capture (a.10).
const POISON: [&str; 7] = [
    "unresolved_parent",
    "request_finished_without_staged_coordinates",
    "ledger_row_missing_response_id",
    "ledger_row_missing_chain_hash",
    "worker_response_missing_commit_coordinates",
    "worker_capture_failed",
    "invalid_worker_commit_coordinates",
];

/// How the walk to a scored call ends (a.10).
const WALK: [&str; 6] = [
    "selected",
    "no_records",
    "duplicate_call_id",
    "orphaned_row",
    "no_root",
    "ambiguous_terminal",
];

/// What attribution leaves in its trail (a.10).
const TRAIL: [&str; 15] = [
    "explicit_terminal_not_captured",
    "declared_ambiguous",
    "declared_terminal_not_captured",
    "response_id_ambiguous",
    "response_id_no_match",
    "response_has_no_id",
    "no_response_object",
    "response_has_no_output",
    "response_output_unfingerprintable",
    "no_model_authored_output",
    "content_ambiguous",
    "no_content_match",
    "witness_disagreement",
    "corroborated_by",
    "attribution_error",
];

/// Codes of the verifier (c).
const VERIFIER: [&str; 35] = [
    "unsupported_schema",
    "unsupported_digest",
    "unsupported_extras_digest",
    "rollout_failed",
    "capture_poisoned",
    "empty_manifest",
    "duplicate_manifest_row",
    "duplicate_staging_key",
    "row_count_mismatch",
    "duplicate_snapshot",
    "snapshot_identity_mismatch",
    "snapshot_order_mismatch",
    "wrong_rollout",
    "wrong_model_call_id",
    "wrong_parent_call_id",
    "wrong_mode",
    "wrong_prev_len",
    "wrong_delta_len",
    "wrong_cum_len",
    "wrong_weight_version",
    "wrong_digest",
    "wrong_extras_digest",
    "wrong_chain_hash",
    "wrong_cumulative_hash",
    "wrong_schema_version",
    "wrong_digest_version",
    "wrong_extras_digest_version",
    "invalid_snapshot",
    "corrupt_digest",
    "missing_parent",
    "parent_length_mismatch",
    "lineage_cycle",
    "missing_terminal",
    "chain_hash_mismatch",
    "invalid_mask_order",
];

/// The rest of them.
const VERIFIER_LAST: [&str; 3] =
    ["empty_generation", "empty_training_row", "cumulative_hash_mismatch"];

/// Why a store's entry has no parent (a.9), and what the builder notes of a link (e.5).
const LINKS: [&str; 13] = [
    "no_match",
    "ambiguous",
    "resolver_unavailable",
    "lookup_error",
    "not_attempted",
    "parent_unresolved",
    "parent_call_id_missing",
    "parent_call_id_missing_recovered",
    "parent_digest_mismatch",
    "resolved_parent_missing_id",
    "missing_resolution",
    "duplicate_call_id_conflict",
    "delta_chain_unreconstructable",
];

/// Rules on reading and on proving.
const RULES: [&str; 12] = [
    "rule 16", "rule 17", "rule 18", "rule 19", "rule 20", "rule 85", "rule 86", "rule 87",
    "rule 88", "rule 89", "rule 90", "rule 91",
];

/// Words that no file can show, and why.
const NOT_SHOWN: [(&str, &str); 4] = [
    ("wrong_model_call_id", "rows are found by call id, in the package as here"),
    ("empty_training_row", "the package looks for it after empty_generation, which it implies"),
    ("resolved_parent_missing_id", "an entry that says so breaks its own model: malformed_record"),
    ("attribution_error", "the package's consumer says it of a crash of its own"),
];

/// Names whose input another test of this suite builds: file and function.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "snapshot_order_mismatch",
        "attack/words/verifier.rs",
        "snapshots_in_another_order_are_called_by_their_word",
    ),
    ("rule 20", "attack/words/rules.rs", "rule_20_ids_keys_and_digests_stay_as_they_were"),
    ("missing_completion", "validate.rs", "a_ledger_that_contradicts_itself_is_an_error"),
    ("malformed_sidecar", "media.rs", "sidecars_that_cannot_be_believed_are_set_aside_by_name"),
    ("orphan_tensor", "media.rs", "sidecars_that_cannot_be_believed_are_set_aside_by_name"),
    ("completion_unrecorded", "attack/words/mod.rs", "what_is_right_has_no_findings_and_trains"),
];

#[test]
fn every_word_of_upstream_and_every_rule_has_an_input() {
    let cases = all();
    let mut named: BTreeSet<&str> = cases.iter().flat_map(|case| case.names).copied().collect();
    named.extend(WALKS.map(|(word, _)| word));
    named.extend(trail_words());
    named.extend(NOT_SHOWN.map(|(word, _)| word));
    named.extend(ELSEWHERE.iter().map(|(word, ..)| *word));
    let listed = [&POISON[..], &WALK, &TRAIL, &VERIFIER, &VERIFIER_LAST, &LINKS, &RULES].concat();
    let missing: Vec<_> = listed.iter().filter(|word| !named.contains(*word)).collect();
    assert!(missing.is_empty(), "no input shows {missing:?}");
}

#[test]
fn every_code_of_ingest_and_validate_has_an_input() {
    let cases = all();
    let mut shown: BTreeSet<&str> = BTreeSet::new();
    for case in &cases {
        let codes = [case.errors, case.warnings, case.notes].concat();
        shown.extend(codes.iter().chain(&case.masked).map(|code| code.as_str()));
    }
    shown.extend(ELSEWHERE.iter().map(|(word, ..)| *word));
    shown.extend(NOT_SHOWN.map(|(word, _)| word));
    let missing: Vec<&str> = Code::ALL
        .iter()
        .filter(|code| matches!(code.family(), Family::Ingest | Family::Validate))
        .map(|code| code.as_str())
        .filter(|word| !shown.contains(word))
        .collect();
    assert!(missing.is_empty(), "no input shows {missing:?}");
}

#[test]
fn tests_named_elsewhere_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for (word, file, test) in ELSEWHERE {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let body = text.split(&format!("fn {test}(")).nth(1);
        let body = body.unwrap_or_else(|| panic!("{file} has no {test} for {word}"));
        let variant: String =
            word.split('_').map(|part| part[..1].to_ascii_uppercase() + &part[1..]).collect();
        let body = body.split("\n}\n").next().unwrap();
        let told = body.contains(word) || body.contains(&variant) || word.starts_with("rule ");
        assert!(told, "{test} of {file} says nothing of {word}");
    }
}
