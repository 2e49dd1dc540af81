//! `digests/*.json`: hash vectors with preimages, and the golden vectors of the specification.

use forestctl::archive::{Call, Commitment, Mode, Origin, RawColumns};
use forestctl::id::Digest32;
use forestctl::wire::digest::{self, CumulativeHasher, EMPTY_EXTRAS_DIGEST};
use forestctl::wire::json::{Dialect, Json};
use forestctl::wire::{Boundary, StagedRecord, StagedView};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{fixture, list, text, unvalidated_record};

pub const COVERED: [&str; 7] = [
    "token_sequences",
    "running_chain",
    "staged_call",
    "staged_call_errors",
    "extras",
    "staging_key",
    "build_staging_delta",
];

fn vectors(key: &str, count: usize) -> Vec<Value> {
    let found = list(&fixture("digests/digests.json"), key).to_vec();
    assert_eq!(found.len(), count, "{key}");
    found
}

fn sha256(bytes: &[u8]) -> Digest32 {
    Digest32(Sha256::digest(bytes).into())
}

fn parse(hex: &str) -> Digest32 {
    Digest32::parse(hex).expect(hex)
}

/// `args` as a record line; the digest is a stand-in, since the digest is what is computed.
fn record(args: &Value) -> Result<StagedRecord, forestctl::wire::RecordError> {
    let mut line = args.clone();
    line["digest"] = json!("0".repeat(64));
    unvalidated_record(&line)
}

#[test]
fn token_sequences() {
    let eleven = Digest32([0x11; 32]);
    for case in vectors("token_sequences", 8) {
        let name = text(&case, "name");
        let ids: Option<Vec<u64>> = list(&case, "token_ids").iter().map(Value::as_u64).collect();
        let Some(ids) = ids else {
            // A type that holds no such id cannot digest it; files with one are refused.
            assert!(["too_large", "negative"].contains(&name), "{name}");
            assert_eq!(case["cumulative_hash"]["ok"], false);
            continue;
        };
        let digest = |key: &str| parse(text(&case[key], "digest"));
        assert_eq!(digest::cumulative_hash(&ids), digest("cumulative_hash"), "{name}");
        assert_eq!(digest::chain_hash(None, &ids), digest("chain_hash_root"), "{name}");
        assert_eq!(
            digest::chain_hash(Some(eleven), &ids),
            digest("chain_hash_child_of_11"),
            "{name}"
        );
        assert_eq!(digest::entry_digest(&ids), digest("entry_digest_v1"), "{name}");
        let Some(encoding) = case["staging_encoding_hex"].as_str() else { continue };
        let encoding = hex::decode(encoding).unwrap();
        let preimage = [b"nemo-gym-staging-prefix-v2", &encoding[..]].concat();
        assert_eq!(digest::cumulative_hash(&ids), sha256(&preimage), "{name}");
    }
    for case in list(&fixture("digests/digests.json"), "chain_hash_errors") {
        assert_eq!(Digest32::parse(text(case, "parent")), None);
    }
}

#[test]
fn running_chain() {
    let mut parent = None;
    let mut tokens: Vec<u64> = Vec::new();
    for case in vectors("running_chain", 4) {
        let delta: Vec<u64> = serde_json::from_value(case["delta"].clone()).unwrap();
        tokens.extend(&delta);
        parent = Some(digest::chain_hash(parent, &delta));
        assert_eq!(parent, Digest32::parse(text(&case, "chain_hash")));
        let mut hasher = CumulativeHasher::new(tokens.len() as u64);
        tokens.chunks(2).for_each(|chunk| hasher.update(chunk));
        assert_eq!(hasher.finish(), Digest32::parse(text(&case, "cumulative_hash")));
    }
    assert!(CumulativeHasher::new(1).finish().is_none());
}

#[test]
fn staged_calls() {
    for case in vectors("staged_call", 19) {
        let name = text(&case, "name");
        let record = record(&case["args"]).expect(name);
        let expected = parse(text(&case, "digest"));
        assert_eq!(digest::call_digest(&record.view()), Ok(expected), "{name}");
        let preimage = hex::decode(text(&case, "preimage_hex")).unwrap();
        assert_eq!(sha256(&preimage), expected, "{name}");
        for (lp, bits) in
            record.generation_log_probs_delta.iter().zip(list(&case, "logprob_f32_bits"))
        {
            assert_eq!(format!("{:08x}", (*lp as f32).to_bits()), bits.as_str().unwrap(), "{name}");
        }
    }
}

#[test]
fn staged_call_errors() {
    for case in vectors("staged_call_errors", 21) {
        let name = text(&case, "name");
        let expected = text(&case["result"], "message");
        match name {
            // Schema 3 has its own golden vector below; under schema 2's names it is refused.
            "schema_3" => {
                let mut line = case["args"].clone();
                line["digest"] = json!("0".repeat(64));
                let error = StagedRecord::parse(&line.to_string()).unwrap_err();
                assert_eq!(error.code.as_str(), "unsupported_schema");
            }
            // The types have no room for these; the form is refused before a digest is asked for.
            "mode_other" | "upper_digest" | "short_digest" | "weight_u64_overflow" => {
                let error = record(&case["args"]).unwrap_err();
                assert_eq!(error.code.as_str(), "malformed_record", "{name}");
            }
            "negative_token" => {
                let error = record(&case["args"]).unwrap_err();
                assert_eq!(error.code.as_str(), "invalid_snapshot");
                assert!(error.message.ends_with(expected), "{error}");
            }
            "empty_rollout" | "empty_parent" => {
                let mut args = case["args"].clone();
                let key = if name == "empty_rollout" { "rollout_id" } else { "parent_call_id" };
                assert_eq!(record(&args).unwrap_err().field.as_deref(), Some(key));
                args[key] = json!("x");
                let mut record = record(&args).unwrap();
                match key {
                    "rollout_id" => record.scope.clear(),
                    _ => record.parent_call_id = Some(String::new()),
                }
                let error = digest::call_digest(&record.view()).unwrap_err();
                assert_eq!(error.to_string(), expected);
            }
            _ => {
                let record = record(&case["args"]).expect(name);
                let error = digest::call_digest(&record.view()).unwrap_err();
                assert_eq!(error.to_string(), expected, "{name}");
            }
        }
    }
}

#[test]
fn extras() {
    for case in vectors("extras", 24) {
        let name = text(&case, "name");
        let value = Json::parse(text(&case, "json"), Dialect::Python).expect(name);
        let found = digest::extras_digest(&value);
        if case["result"]["ok"] == true {
            let expected = parse(text(&case["result"], "digest"));
            assert_eq!(found, Ok(expected), "{name}");
            assert_eq!(digest::extras_text_digest(Some(text(&case, "json"))), found, "{name}");
            let preimage = hex::decode(text(&case, "preimage_hex")).unwrap();
            assert_eq!(sha256(&preimage), expected, "{name}");
        } else {
            assert_eq!(found.unwrap_err().to_string(), text(&case["result"], "message"), "{name}");
        }
    }
    assert_eq!(digest::extras_digest(&Json::Null), Ok(EMPTY_EXTRAS_DIGEST));
    assert_eq!(digest::extras_text_digest(None), Ok(EMPTY_EXTRAS_DIGEST));
}

#[test]
fn staging_keys() {
    for case in vectors("staging_key", 6) {
        let found = digest::staging_key(text(&case, "rollout_id"), text(&case, "model_call_id"));
        match case["result"]["ok"] == true {
            true => assert_eq!(found.as_deref(), Ok(text(&case["result"], "digest"))),
            false => assert_eq!(found.unwrap_err().to_string(), text(&case["result"], "message")),
        }
    }
}

#[test]
fn slicing() {
    for case in vectors("build_staging_delta", 7) {
        let args = &case["args"];
        let ids = |key: &str| -> Vec<u64> { serde_json::from_value(args[key].clone()).unwrap() };
        let logprobs: Vec<f64> =
            serde_json::from_value(args["generated_log_probs"].clone()).unwrap();
        let found = digest::slice_delta(
            &ids("prompt_token_ids"),
            &ids("generated_token_ids"),
            &logprobs,
            args["prev_len"].as_u64().unwrap() as usize,
        );
        match found {
            Ok(delta) => assert_eq!(
                json!([delta.token_ids, delta.token_mask, delta.logprobs]),
                case["result"]["delta"]
            ),
            Err(e) => assert_eq!(e.to_string(), text(&case["result"], "message")),
        }
    }
}

#[test]
fn golden_vectors() {
    let golden = fixture("digests/package_golden_vectors.json");
    let extras = digest::extras_text_digest(Some(&golden["extras"].to_string())).unwrap();
    assert_eq!(extras, parse(text(&golden, "extras_digest")));
    let mut record = record(&golden["staged_call"]).unwrap();
    assert_eq!(record.extras_digest, extras);
    let digest = |record: &StagedRecord| digest::call_digest(&record.view()).unwrap().to_string();
    assert_eq!(digest(&record), text(&golden, "staged_call_digest"));

    // Schema 3 (`spec/semantics.md` section 5): the schema version is a byte of the digest.
    record.schema_version = 3;
    assert_eq!(digest(&record), "cdd62002cf93637646f8501ae816eada76e315885219455f53a09dd5a86580f2");

    let root = digest::chain_hash(None, &[10u64, 11, 1001]);
    assert_eq!(
        root.to_string(),
        "576ae2e4b04dcfc3bf0c5c9cd5b98b324bd115ecb0e1cea20d5640509c14d5e1"
    );
    assert_eq!(
        digest::chain_hash(Some(root), &[20u64, 21, 1002]).to_string(),
        "fcdf49592563345d88de0e65278ad4aa9e9caa5df54d17ae9397feb4be889b5b"
    );
    assert_eq!(
        digest::cumulative_hash(&[10u64, 11, 1001, 20, 21, 1002]).to_string(),
        "197840b1d203a5c66b315b1bd28efac3a99589da4f0950ab1d6e4a7c63e39ee2"
    );
    assert_eq!(
        digest::cumulative_hash::<u64>(&[]).to_string(),
        "17088fc6f8fd317bf02bd83e106f7ca2dfb7b9cfc63927c2387d4c87f29578ef"
    );
    assert_eq!(
        digest::entry_digest::<u64>(&[]).to_string(),
        "2e222d36d0c6ae1db1ec18b3f96d9a46df5db61b40137bbfbac4cdf0acde9763"
    );
}

/// A call of an archive gives the digests of its record, over more than one block, whether its
/// columns are split or kept as they were.
#[test]
fn archived_calls_give_the_same_digests() {
    let (carry_len, generation) = (3001, 1999);
    let token_ids: Vec<u32> = (0..carry_len + generation).collect();
    let generation_logprobs: Vec<f32> = (0..generation).map(|i| -0.37 * i as f32).collect();
    let column = |generated: Vec<f64>| [vec![0.0; carry_len as usize], generated].concat();
    let call = Call {
        call_id: "c".into(),
        capture_key: "r".into(),
        source_capture_key: None,
        parent_call_id: Some("p".into()),
        mode: Mode::TokenIn,
        prev_len: 7,
        delta_len: 5000,
        cum_len: 5007,
        weight_version: Some(1),
        token_ids: token_ids.clone(),
        carry_len,
        generation_logprobs: generation_logprobs.clone(),
        raw_columns: None,
        commitment: Some(Commitment {
            schema_version: 3,
            digest_version: 2,
            extras_digest_version: 1,
            digest: EMPTY_EXTRAS_DIGEST,
            extras_digest: EMPTY_EXTRAS_DIGEST,
            chain_hash: EMPTY_EXTRAS_DIGEST,
            cumulative_hash: EMPTY_EXTRAS_DIGEST,
        }),
        entry_digest: None,
        media: None,
        tensors: Vec::new(),
        extras: None,
        origin: Origin::default(),
    };
    let columns = RawColumns {
        token_mask: column(vec![1.0; generation as usize]),
        logprobs: column(generation_logprobs.iter().map(|&x| x.into()).collect()),
    };
    let record = StagedRecord {
        schema_version: 3,
        digest_version: 2,
        extras_digest_version: 1,
        scope: "r".into(),
        source_capture_key: None,
        model_call_id: "c".into(),
        parent_call_id: Some("p".into()),
        mode: Mode::TokenIn,
        prev_len: 7,
        delta_len: 5000,
        cum_len: 5007,
        weight_version: 1,
        digest: EMPTY_EXTRAS_DIGEST,
        token_ids_delta: token_ids.iter().map(|&id| id.into()).collect(),
        token_mask_delta: columns.token_mask.clone(),
        generation_log_probs_delta: columns.logprobs.clone(),
        extras_digest: EMPTY_EXTRAS_DIGEST,
        chain_hash: EMPTY_EXTRAS_DIGEST,
        cumulative_hash: EMPTY_EXTRAS_DIGEST,
        extras: None,
    };
    let raw = Call { raw_columns: Some(columns), ..call.clone() };
    let expected = digest::call_digest(&record.view()).unwrap();
    for call in [&call, &raw] {
        let view = StagedView::of(call).unwrap();
        assert_eq!(digest::call_digest(&view), Ok(expected));
        assert_eq!(view.token_ids.chain_hash(None), record.view().token_ids.chain_hash(None));
        assert_eq!(view.columns.boundary(), Boundary::At(3001));
    }
    assert!(StagedView::of(&Call { commitment: None, ..call.clone() }).is_none());
    let mut short = call;
    short.generation_logprobs.pop();
    let error = digest::call_digest(&StagedView::of(&short).unwrap()).unwrap_err();
    assert!(error.to_string().ends_with("must have equal lengths"));
}
