//! Rows, padding and advantages against the closed-loop oracle.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use forestctl::archive::Group;
use forestctl::config::{BatchSettings, GrpoSettings, MaskedRewardPolicy};
use forestctl::finding::Code;
use forestctl::id::RolloutId;
use forestctl::rows::{Batch, Row, advantage, build};
use forestctl::select::{PolicyName, SelectSettings, select};
use serde_json::Value;

use crate::closed_loop::{POLICIES, Tensors, expected, groups, selected, strings};

fn batch(form: &str, policy: PolicyName, row_multiple: u32) -> Batch {
    let groups = groups(form);
    build(&groups, &selected(&groups, policy), row_multiple, &GrpoSettings::default())
}

/// Rows with input of their own.
fn real(batch: &Batch) -> Vec<&Row> {
    batch.rows.iter().filter(|row| !row.uses_borrowed_input).collect()
}

fn number(value: &Value) -> u64 {
    value.as_f64().unwrap() as u64
}

#[test]
fn ids_masks_logprobs_and_routes_are_the_oracles_bit_for_bit() {
    for form in ["staged-v2", "staged-v3"] {
        for policy in POLICIES {
            let batch = batch(form, policy, 1);
            let rows = real(&batch);
            let oracle = Tensors::read(policy);
            let ids: Vec<&str> = rows.iter().map(|row| row.row_id.as_str()).collect();
            assert_eq!(ids, oracle.row_ids());
            let offsets: Vec<usize> = oracle
                .raw("row_offsets")
                .into_iter()
                .map(|b| i64::from_le_bytes(b) as usize)
                .collect();
            let tokens = oracle.raw::<4>("input_ids");
            let masks = oracle.raw::<1>("loss_mask");
            let logprobs = oracle.raw::<4>("generation_logprobs");
            for (row, ends) in rows.iter().zip(offsets.windows(2)) {
                let range = ends[0]..ends[1];
                let id = &row.row_id;
                let bytes = |xs: Vec<[u8; 4]>| xs;
                let found = bytes(row.input_ids.iter().map(|t| t.to_le_bytes()).collect());
                assert_eq!(found, tokens[range.clone()], "{id}");
                let found: Vec<[u8; 1]> = row.loss_mask.iter().map(|m| [*m]).collect();
                assert_eq!(found, masks[range.clone()], "{id}");
                let found: Vec<_> =
                    row.generation_logprobs.iter().map(|x| x.to_le_bytes()).collect();
                assert_eq!(found, logprobs[range], "{id}");
                let name = format!("routes.{id}");
                let routes = oracle.names().contains(&name).then(|| oracle.raw::<4>(&name));
                let found = row.routes.as_ref().map(|routes| {
                    assert_eq!((routes.layers, routes.topk), (2, 2));
                    routes.experts.iter().map(|e| e.to_le_bytes()).collect::<Vec<_>>()
                });
                assert!(found == routes, "routes of {id}");
            }
        }
    }
}

#[test]
fn spans_segments_and_lengths_are_the_oracles() {
    for policy in POLICIES {
        let batch = batch("staged-v2", policy, 1);
        let oracle = expected(policy);
        for (row, wanted) in real(&batch).into_iter().zip(oracle["rows"].as_array().unwrap()) {
            assert_eq!(row.row_id, wanted["row_id"].as_str().unwrap());
            assert_eq!(u64::from(row.segment), number(&wanted["segment"]));
            assert_eq!(u64::from(row.segment_count), number(&wanted["segment_count"]));
            assert_eq!(
                serde_json::to_value(&row.spans).unwrap(),
                wanted["spans"],
                "{}",
                row.row_id
            );
            assert_eq!(row.loss_tokens() as u64, number(&wanted["loss_tokens"]));
            assert_eq!(row.inconsistency(), None);
        }
        let rollouts = oracle["rollouts"].as_array().unwrap();
        assert_eq!(batch.lengths.len(), rollouts.len());
        for (lengths, wanted) in batch.lengths.iter().zip(rollouts) {
            let id = lengths.rollout_id.as_str();
            assert_eq!(id, wanted["rollout_id"].as_str().unwrap());
            assert_eq!(lengths.gen_tokens_per_sample, number(&wanted["gen_tokens_per_sample"]));
            assert_eq!(lengths.max_gen_tokens_per_turn, number(&wanted["max_gen_tokens_per_turn"]));
            assert_eq!(lengths.total_tokens_per_sample, number(&wanted["total_tokens_per_sample"]));
            let own: Vec<&str> = real(&batch)
                .into_iter()
                .filter(|row| row.rollout_id.as_ref().is_some_and(|r| r.as_str() == id))
                .map(|row| row.row_id.as_str())
                .collect();
            assert_eq!(own, strings(&wanted["row_ids"]));
        }
        for (id, wanted) in oracle["groups"].as_object().unwrap() {
            let kept = batch.groups.iter().find(|g| g.group_id.as_str() == id);
            assert_eq!(kept.is_some(), wanted["verdict"] == "kept", "{id}");
            let valid = kept.map_or(0, |g| u64::from(g.valid_rollouts));
            assert_eq!(valid, number(&wanted["valid_rollouts"]), "{id}");
            let weights = kept.and_then(|g| g.weight_version);
            assert_eq!(weights, wanted["weight_version"].as_u64(), "{id}");
        }
    }
}

#[test]
fn every_selected_generation_of_a_valid_rollout_is_owned_exactly_once() {
    for policy in POLICIES {
        let batch = batch("staged-v2", policy, 4);
        let oracle = expected(policy);
        for (name, call) in oracle["calls"].as_object().unwrap() {
            let spans = || {
                let rows = batch.rows.iter();
                rows.flat_map(|row| row.spans.iter().map(move |span| (row, span)))
                    .filter(|(_, span)| span.call.as_str() == call["call"])
            };
            let owners: Vec<&str> =
                spans().filter(|(_, s)| s.owned).map(|(row, _)| row.row_id.as_str()).collect();
            assert_eq!(owners.len() as u64, number(&call["times_owned"]), "{name}");
            assert_eq!(owners.first().copied(), call["owner_row"].as_str(), "{name}");
            let context = spans().filter(|(row, s)| !s.owned && !row.uses_borrowed_input).count();
            assert_eq!(context as u64, number(&call["times_context"]), "{name}");
        }
    }
}

#[test]
fn padding_fills_every_group_for_every_layout() {
    for policy in POLICIES {
        for (name, wanted) in expected(policy)["padding"].as_object().unwrap() {
            let digits = |word: &str| {
                let rest = name.split(word).nth(1).unwrap();
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                digits.parse::<NonZeroU32>().unwrap()
            };
            let settings = BatchSettings {
                data_parallel: digits("dp"),
                train_micro_batch: digits("mb"),
                logprob_micro_batch: digits("mb"),
                sequence_packing: false,
            };
            let multiple = settings.row_multiple().unwrap();
            assert_eq!(u64::from(multiple), number(&wanted["row_multiple"]), "{name}");
            let packed = BatchSettings { sequence_packing: true, ..settings };
            assert_eq!(packed.row_multiple(), Some(settings.data_parallel.get()));

            let batch = batch("staged-v2", policy, multiple);
            assert_eq!(batch.counts.rows, number(&wanted["total_rows"]), "{name}");
            assert_eq!(batch.counts.padding_rows, number(&wanted["total_padding"]), "{name}");
            let tokens: usize = batch.rows.iter().map(|row| row.input_ids.len()).sum();
            assert_eq!(tokens as u64, number(&wanted["row_tokens_with_borrowed"]), "{name}");
            for group in &batch.groups {
                let wanted = &wanted["groups"][group.group_id.as_str()];
                let rows = batch.rows.iter().filter(|row| row.group_id == group.group_id);
                let padding = rows.clone().filter(|row| row.is_execution_padding).count() as u64;
                assert_eq!(padding, number(&wanted["padding"]));
                assert_eq!(rows.count() as u64 - padding, number(&wanted["rows"]));
            }
            let Some(order) = wanted["order"].as_array() else { continue };
            for (row, wanted) in batch.rows.iter().zip(order) {
                let (id, lender) = match wanted.as_str() {
                    Some(id) => (id, None),
                    None => (wanted["row_id"].as_str().unwrap(), wanted["borrowed_from"].as_str()),
                };
                assert_eq!(row.row_id, id);
                assert_eq!(row.uses_borrowed_input, lender.is_some());
                assert_eq!(row.is_execution_padding, wanted["padding"] == true);
                if let Some(lender) = lender {
                    let lender = batch.rows.iter().find(|row| row.row_id == lender).unwrap();
                    assert_eq!(row.input_ids, lender.input_ids);
                    assert!(row.loss_mask.iter().all(|&m| m == 0));
                    assert_eq!((row.sample_mask, row.advantage), (0.0, 0.0));
                    assert_eq!(row.mask_reason.is_none(), row.is_execution_padding);
                }
            }
        }
    }
}

#[test]
fn counts_are_the_oracles() {
    let counts = batch("staged-v2", PolicyName::ReturnedHistory, 4).counts;
    let tokens = &expected(PolicyName::ReturnedHistory)["tokens"];
    assert_eq!(counts.unique_tokens, number(&tokens["unique_U"]));
    assert_eq!(counts.row_tokens, number(&tokens["rows_R"]));
    assert_eq!(counts.loss_tokens, number(&tokens["loss_tokens_N"]));
    assert_eq!(counts.valid_rollouts, number(&tokens["valid_rollouts"]));
    assert_eq!(counts.rows - counts.padding_rows - counts.masked_rows, number(&tokens["rows"]));
    assert_eq!((counts.rollouts, counts.groups, counts.dropped_groups), (24, 6, 1));
    assert_eq!((counts.rows, counts.padding_rows, counts.masked_rows), (36, 7, 2));
}

/// `filter=..;masked_reward_policy=..;leave_one_out=..;normalize=..;clip=low_a_high_b`
fn settings(case: &str) -> (String, GrpoSettings) {
    let parts: BTreeMap<&str, &str> =
        case.split(';').map(|part| part.split_once('=').unwrap()).collect();
    let bound = |word: &str| {
        let words: Vec<&str> = parts["clip"].split('_').collect();
        let at = words.iter().position(|w| *w == word)?;
        words[at + 1].parse().ok()
    };
    let settings = GrpoSettings {
        leave_one_out: parts["leave_one_out"] == "true",
        normalize: parts["normalize"] == "true",
        advantage_clip_low: bound("low"),
        advantage_clip_high: bound("high"),
        overlong_filtering: parts["filter"].contains("overlong"),
        masked_reward_policy: match parts["masked_reward_policy"] {
            "exclude" => MaskedRewardPolicy::Exclude,
            "include" => MaskedRewardPolicy::Include,
            "include_all" => MaskedRewardPolicy::IncludeAll,
            other => panic!("{other}"),
        },
    };
    (parts["filter"].to_owned(), settings)
}

#[test]
fn advantages_of_every_case_are_within_1e_12() {
    for policy in POLICIES {
        let groups = groups("staged-v2");
        let selection = selected(&groups, policy);
        let oracle = &expected(policy)["advantages"];
        let owners = strings(&oracle["rollouts"]);
        let cases = oracle["cases"].as_object().unwrap();
        assert!(cases.len() > 40, "{}", cases.len());
        for (case, wanted) in cases {
            let (filter, settings) = settings(case);
            let mut batch = build(&groups, &selection, 4, &settings);
            // Rollouts that the sequence error masks are the learner's to find.
            let trains = strings(&oracle["trains"][&filter]);
            let filtered: BTreeMap<RolloutId, Code> = batch
                .rows
                .iter()
                .filter(|row| row.mask_reason.is_none())
                .filter_map(|row| row.rollout_id.clone())
                .filter(|id| !trains.contains(&id.as_str()))
                .map(|id| (id, Code::SeqLogprobError))
                .collect();
            assert_eq!(filtered.is_empty(), !filter.contains("seq_error"), "{case}");
            advantage::assign(&mut batch.rows, &settings, &filtered);
            let again = batch.rows.clone();
            advantage::assign(&mut batch.rows, &settings, &filtered);
            assert_eq!(batch.rows, again);
            for (owner, wanted) in owners.iter().zip(wanted["advantage"].as_array().unwrap()) {
                let rows = batch
                    .rows
                    .iter()
                    .filter(|row| row.rollout_id.as_ref().is_some_and(|id| id.as_str() == *owner));
                let wanted = wanted.as_f64().unwrap();
                let mut seen = 0;
                for row in rows {
                    seen += 1;
                    let off = (row.advantage - wanted).abs();
                    assert!(off <= 1e-12, "{case} {owner}: {} {wanted}", row.advantage);
                    assert_eq!(row.sample_mask == 1.0, trains.contains(owner), "{case} {owner}");
                }
                assert!(seen > 0);
            }
            let padding = batch.rows.iter().filter(|row| row.is_execution_padding);
            assert!(padding.clone().count() > 0 && padding.clone().all(|row| row.advantage == 0.0));
        }
    }
}

#[test]
fn baselines_and_deviations_are_the_oracles_too() {
    use advantage::{Owner, Standing};
    for policy in POLICIES {
        let oracle = &expected(policy)["advantages"];
        let owners = strings(&oracle["rollouts"]);
        let valid = strings(&oracle["trains"]["none"]);
        for (case, wanted) in oracle["cases"].as_object().unwrap() {
            let (Some(baselines), Some(stds)) =
                (wanted["baseline"].as_array(), wanted["std"].as_array())
            else {
                continue;
            };
            let (filter, settings) = settings(case);
            let trains = strings(&oracle["trains"][&filter]);
            let rewards = oracle["rewards"].as_array().unwrap();
            let all: Vec<Owner> = owners
                .iter()
                .zip(rewards)
                .map(|(owner, reward)| Owner {
                    reward: reward.as_f64(),
                    standing: match (trains.contains(owner), valid.contains(owner)) {
                        (true, _) => Standing::Trains,
                        (false, true) => Standing::Filtered,
                        (false, false) => Standing::Masked,
                    },
                })
                .collect();
            let group = |i: &usize| &owners[*i][..3];
            let numbers: Vec<usize> = (0..owners.len()).collect();
            for members in numbers.chunk_by(|a, b| group(a) == group(b)) {
                let found = advantage::advantages(&all[members[0]..][..members.len()], &settings);
                for (i, found) in members.iter().zip(found) {
                    let off = (found.baseline - baselines[*i].as_f64().unwrap()).abs();
                    let std = (found.std - stds[*i].as_f64().unwrap()).abs();
                    assert!(off <= 1e-12 && std <= 1e-12, "{case} {}: {found:?}", owners[*i]);
                }
            }
        }
    }
}

#[test]
fn a_gym_store_gives_the_rows_of_the_staged_capture_of_the_same_scopes() {
    let policy = PolicyName::ReturnedHistory;
    let (store, staged) = (groups("gym-store"), groups("staged-v2"));
    let scopes = |groups: &[Group]| -> BTreeMap<RolloutId, String> {
        let rollouts = groups.iter().flat_map(|g| &g.rollouts);
        rollouts.map(|r| (r.rollout_id.clone(), r.capture_key.to_string())).collect()
    };
    let by_scope = |groups: &[Group]| -> BTreeMap<String, Vec<Row>> {
        let scopes = scopes(groups);
        let batch = build(groups, &selected(groups, policy), 1, &GrpoSettings::default());
        let mut rows: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        for row in batch.rows {
            let scope = scopes[row.rollout_id.as_ref().unwrap()].clone();
            rows.entry(scope).or_default().push(row);
        }
        rows
    };
    let (found, wanted) = (by_scope(&store), by_scope(&staged));
    assert_eq!(found.len(), 6);
    for (scope, rows) in &found {
        assert_eq!(rows.len(), wanted[scope].len(), "{scope}");
        for (row, wanted) in rows.iter().zip(&wanted[scope]) {
            assert_eq!((row.sample_mask, &row.mask_reason), (1.0, &None), "{scope}");
            assert_eq!(row.input_ids, wanted.input_ids, "{scope}");
            assert_eq!(row.loss_mask, wanted.loss_mask, "{scope}");
            let bits = |row: &Row| -> Vec<u32> {
                row.generation_logprobs.iter().map(|x| x.to_bits()).collect()
            };
            assert_eq!(bits(row), bits(wanted), "{scope}");
            assert_eq!(row.reward, wanted.reward);
            assert_eq!((row.segment, row.segment_count), (wanted.segment, wanted.segment_count));
            let mut spans = wanted.spans.clone();
            spans.iter_mut().for_each(|span| span.weight_version = None);
            assert_eq!(row.spans, spans, "{scope}");
            assert_eq!(row.routes.is_some(), wanted.routes.is_some(), "{scope}");
        }
    }
    for rollout in selected(&store, PolicyName::AllCaptured).groups.iter().flat_map(|g| &g.rollouts)
    {
        assert_eq!(rollout.reasons[0].code, Code::MissingCompletion);
    }
}

/// Rows, loss tokens, row tokens, and advantages of a public file with inline token arrays.
fn public(name: &str) -> Option<Batch> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures/public").join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    }
    let groups = forestctl::ingest::read(&[path]).unwrap().groups;
    let policy = PolicyName::ReturnedHistory.policy();
    let unknown = select(&groups, policy, &SelectSettings::default());
    let masked = unknown.groups.iter().flat_map(|g| &g.rollouts);
    assert!(masked.flat_map(|r| &r.reasons).all(|r| r.code == Code::CompletenessUnknown));
    assert!(unknown.groups.iter().all(|g| g.dropped == Some(Code::NoVerifiedLayout)));
    let settings = SelectSettings { assume_complete: true, ..Default::default() };
    Some(build(&groups, &select(&groups, policy, &settings), 1, &GrpoSettings::default()))
}

fn advantages_of(batch: &Batch) -> Vec<f64> {
    batch.rows.iter().map(|row| row.advantage).collect()
}

#[test]
fn public_blackjack_rollouts_give_five_rows() {
    let Some(batch) = public("gym-blackjack-rollouts.jsonl") else { return };
    assert_eq!((batch.counts.rows, batch.counts.masked_rows), (5, 0));
    assert_eq!((batch.counts.loss_tokens, batch.counts.row_tokens), (48, 317));
    assert_eq!(batch.rows.iter().map(|row| row.spans.len()).sum::<usize>(), 6);
    // The file lists the slots as 1, 2, 4, 3, 0.
    let wanted = [(-1.0, -0.4999995), (-1.0, -0.4999995), (1.0, 2.0), (-1.0, -0.4999995)];
    for (row, (reward, advantage)) in batch.rows.iter().zip(wanted.iter().chain(&wanted[..1])) {
        assert_eq!(row.reward, Some(*reward));
        assert!((row.advantage - advantage).abs() < 1e-9, "{} {advantage}", row.advantage);
    }
}

#[test]
fn public_customer_service_rollouts_are_five_clean_chains() {
    let Some(batch) = public("gym-customer-service-rollouts.jsonl") else { return };
    assert_eq!((batch.counts.rows, batch.counts.masked_rows), (5, 0));
    assert_eq!((batch.counts.loss_tokens, batch.counts.row_tokens), (9_445, 10_222));
    assert!(batch.rows.iter().all(|row| row.spans.len() == 10));
}

#[test]
fn public_coding_rollouts_are_single_calls_without_advantage() {
    let Some(batch) = public("gym-competitive-coding-rollouts.jsonl") else { return };
    assert_eq!((batch.counts.rows, batch.counts.loss_tokens), (5, 5_023));
    assert!(advantages_of(&batch).iter().all(|a| *a == 0.0));
}

#[test]
fn the_public_compaction_trace_gives_three_rows_and_its_twin_one_chain() {
    let masks = |batch: &Batch| -> Vec<String> {
        let digit = |m: &u8| char::from(b'0' + m);
        batch.rows.iter().map(|row| row.loss_mask.iter().map(digit).collect()).collect()
    };
    let Some(batch) = public("rl-k2-compaction.json") else { return };
    assert_eq!(masks(&batch), ["00101", "000101", "001"]);
    let Some(batch) = public("rl-without-compaction.json") else { return };
    assert_eq!(batch.counts.loss_tokens, 5);
    assert_eq!(batch.rows.len(), 1);
}
