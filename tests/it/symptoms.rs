//! What users of other tools complain of, each as a small capture with the right values; and the
//! figures of the forest training guide.

use std::collections::BTreeMap;

use forestctl::archive::{Call, Group, Rollout};
use forestctl::config::GrpoSettings;
use forestctl::rows::advantage::{Owner, Standing, advantages};
use forestctl::rows::weights::{effective, shares};
use forestctl::rows::{Batch, Row, build};
use forestctl::select::{PolicyName, SelectSettings, select};

use crate::builders;

/// A rollout of calls that each carry one token and generate `generated`; `parents` by position.
fn rollout(
    slot: u32,
    slots: u32,
    reward: f64,
    parents: &[Option<usize>],
    generated: &[u64],
) -> Rollout {
    let mut calls: Vec<Call> = Vec::new();
    for (i, (parent, &generated)) in parents.iter().zip(generated).enumerate() {
        let carry = 1000 * i as u32;
        let generation: Vec<_> = (1..=generated as u32).map(|t| (carry + t, -0.5)).collect();
        let parent = parent.map(|at| &calls[at]);
        calls.push(builders::call(format!("r{slot}c{i}"), parent, &[carry], &generation));
    }
    Rollout { reward: Some(reward), ..builders::rollout("p", slot, slots, calls) }
}

fn rows(rollouts: Vec<Rollout>, row_multiple: u32) -> Batch {
    let groups = [builders::group("p", rollouts)];
    let policy = PolicyName::AllCaptured.policy();
    let selection = select(&groups, policy, &SelectSettings::default());
    assert_eq!(selection.findings, []);
    build(&groups, &selection, row_multiple, &GrpoSettings::default())
}

/// The calls along each row, those that it owns in capitals.
fn paths(batch: &Batch) -> Vec<String> {
    let call = |row: &Row| {
        let names = row.spans.iter().map(|span| {
            let letter =
                b'a' + span.call.as_str().rsplit('c').next().unwrap().parse::<u8>().unwrap();
            let letter = char::from(letter);
            if span.owned { letter.to_ascii_uppercase() } else { letter }
        });
        names.collect()
    };
    batch.rows.iter().filter(|row| !row.is_execution_padding).map(call).collect()
}

fn forest(parents: &[Option<usize>]) -> Batch {
    rows(vec![rollout(0, 1, 1.0, parents, &vec![2; parents.len()])], 1)
}

/// A call on N branches is trained once, not N times (prime-rl 2975).
#[test]
fn a_shared_call_is_trained_once_however_many_branches_it_is_on() {
    let batch = forest(&[None, Some(0), Some(0), Some(0)]);
    assert_eq!(paths(&batch), ["AB", "aC", "aD"]);
    assert_eq!(batch.counts.loss_tokens, 8);
    let mut trained: BTreeMap<u32, usize> = BTreeMap::new();
    for row in &batch.rows {
        for (id, mask) in row.input_ids.iter().zip(&row.loss_mask) {
            *trained.entry(*id).or_default() += usize::from(*mask);
        }
    }
    // Ids 1 and 2 are what the first call generated.
    assert_eq!((trained[&1], trained[&2]), (1, 1));
}

/// Groups of different sizes are normalised each by itself (slime 1918).
#[test]
fn uneven_groups_are_not_normalised_together() {
    let group = |rewards: &[f64], leave_one_out: bool| -> Vec<f64> {
        let owner = |&reward: &f64| Owner { reward: Some(reward), standing: Standing::Trains };
        let owners: Vec<Owner> = rewards.iter().map(owner).collect();
        let settings = GrpoSettings { leave_one_out, ..GrpoSettings::default() };
        advantages(&owners, &settings).iter().map(|a| a.advantage).collect()
    };
    assert_eq!(group(&[1.0, 3.0], true), [-2.0, 2.0]);
    assert_eq!(group(&[5.0], true), [0.0]);
    assert_eq!(group(&[5.0], false), [0.0]);
    let half = 1.0 / (2f64.sqrt() + 1e-6);
    for (found, expected) in group(&[1.0, 3.0], false).iter().zip([-half, half]) {
        assert!((found - expected).abs() < 1e-12, "{found}");
    }
}

/// Rows of a parent and of its subagent do not interleave (rllm 773).
#[test]
fn an_interleaved_subagent_is_a_row_of_its_own() {
    // A1, B1, A2, B2.
    assert_eq!(paths(&forest(&[None, None, Some(0), Some(1)])), ["AC", "BD"]);
}

/// An older sibling that is continued shares with its own branch alone (verl 6299).
#[test]
fn an_older_sibling_can_be_continued() {
    assert_eq!(paths(&forest(&[None, Some(0), Some(0), Some(1)])), ["ABD", "aC"]);
    assert_eq!(forest(&[None, None, Some(0), None, Some(1), Some(3)]).rows.len(), 3);
}

/// Several roots are all delivered (Gym 3212), and none masks the rollout (Gym 2125).
#[test]
fn every_root_and_branch_is_delivered() {
    let batch = forest(&[None, None]);
    assert_eq!(paths(&batch), ["A", "B"]);
    assert_eq!((batch.counts.valid_rollouts, batch.counts.loss_tokens), (1, 4));
    assert!(batch.masked.is_empty());
}

/// A last call that was tried again trains both times under all_captured, each on its own row.
#[test]
fn a_retried_last_call_does_not_double_what_came_before() {
    let batch = forest(&[None, Some(0), Some(1), Some(1)]);
    assert_eq!(paths(&batch), ["ABC", "abD"]);
    assert_eq!(batch.counts.loss_tokens, 8);
}

/// A rollout that is cut into many rows weighs no more (verl 7580, uni-agent 185).
#[test]
fn rows_of_a_rollout_do_not_multiply_its_weight() {
    let mut rollouts: Vec<Rollout> =
        (0..9).map(|slot| rollout(slot, 10, 0.0, &[None], &[10])).collect();
    rollouts.push(rollout(9, 10, 1.0, &[None; 10], &[1; 10]));
    let shares = shares(&rows(rollouts, 1).rows);
    assert_eq!(shares.len(), 10);
    let cut = &shares[9];
    assert_eq!((cut.rows, cut.loss_tokens), (10, 10));
    let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
    assert!(near(cut.token_mean, 0.1) && near(cut.rollout_mean, 0.1));
    assert!(near(cut.sequence_mean, 10.0 / 19.0));
    let size = effective(&shares);
    assert!(near(size.token_mean, 10.0) && near(size.rollout_mean, 10.0));
    assert!(near(size.sequence_mean, 361.0 / 109.0), "{}", size.sequence_mean);

    let pair = vec![
        rollout(0, 2, 1.0, &[None], &[6]),
        rollout(1, 2, 0.0, &[None, None, None], &[2, 2, 2]),
    ];
    let batch = rows(pair, 1);
    let shares = shares_of(&batch);
    assert_eq!(shares, [(0.5, 0.25, 0.5), (0.5, 0.75, 0.5)]);
    let advantages: Vec<f64> = batch.rows.iter().map(|row| row.advantage).collect();
    assert_eq!(advantages, [1.0, -1.0, -1.0, -1.0]);
}

fn shares_of(batch: &Batch) -> Vec<(f64, f64, f64)> {
    shares(&batch.rows).iter().map(|s| (s.token_mean, s.sequence_mean, s.rollout_mean)).collect()
}

/// Without a rewrite one row; each rewrite of the context begins another.
#[test]
fn a_rewrite_begins_a_row() {
    assert_eq!(paths(&forest(&[None, Some(0), Some(1)])), ["ABC"]);
    assert_eq!(paths(&forest(&[None, Some(0), None, Some(2)])), ["AB", "CD"]);
}

/// Six rollouts with thirteen rows, and three of padding over four ranks.
#[test]
fn thirteen_rows_of_six_rollouts_are_padded_to_sixteen() {
    let roots = [1, 2, 3, 2, 4, 1];
    let rollouts = roots.iter().zip(0..).map(|(&roots, slot)| {
        rollout(slot, 6, f64::from(slot), &vec![None; roots], &vec![3; roots])
    });
    let batch = rows(rollouts.collect(), 4);
    assert_eq!((batch.counts.rows, batch.counts.padding_rows), (16, 3));
    let padding: Vec<&Row> = batch.rows.iter().filter(|row| row.is_execution_padding).collect();
    let ids: Vec<&str> = padding.iter().map(|row| row.row_id.as_str()).collect();
    assert_eq!(ids, ["p_pad0", "p_pad1", "p_pad2"]);
    assert!(padding.iter().all(|row| row.loss_tokens() == 0 && row.sample_mask == 0.0));
    assert_eq!(batch.counts.loss_tokens, 13 * 3);
}

/// Three ranks are no power of two.
#[test]
fn rows_are_padded_to_every_multiple() {
    for (roots, multiple, padding) in [(1, 3, 2), (1, 6, 5), (5, 3, 1), (7, 12, 5), (6, 6, 0)] {
        let batch = rows(vec![rollout(0, 1, 1.0, &vec![None; roots], &vec![2; roots])], multiple);
        assert_eq!(batch.counts.padding_rows, padding, "{roots} rows to a multiple of {multiple}");
        assert_eq!(batch.rows.len() as u64, roots as u64 + padding);
    }
}

/// A row's routes, one expert per token.
fn routes_of(batch: &Batch, row: usize) -> Vec<i32> {
    let routes = batch.rows[row].routes.as_ref().unwrap();
    assert_eq!((routes.layers, routes.topk), (1, 1));
    routes.experts.clone()
}

/// The last sampled token has a dummy route in its own call; the next prefill has the true one
/// (NeMo-RL 3485, prime-rl 1807).
#[test]
fn the_next_prefill_replaces_the_route_of_the_last_sampled_token() {
    // Calls of three tokens: a carry, and two generated ones of which the last is not routed.
    let with = |first: &[i32], second: &[i32], third: &[i32]| {
        let mut rollout = rollout(0, 1, 1.0, &[None, Some(0), Some(0)], &[2, 2, 2]);
        for (call, routes) in rollout.calls.iter_mut().zip([first, second, third]) {
            let rows: Vec<String> = routes.iter().map(|expert| format!("[[{expert}]]")).collect();
            call.extras = Some(format!(r#"{{"routed_experts":[{}]}}"#, rows.join(",")));
        }
        rows(vec![rollout], 1)
    };
    // One token before the delta, and the whole context.
    let batch = with(&[1, 2, 0], &[30, 4, 5, 0], &[9, 9, 31, 6, 7, 0]);
    assert_eq!(routes_of(&batch, 0), [1, 2, 30, 4, 5, 0]);
    assert_eq!(routes_of(&batch, 1), [1, 2, 31, 6, 7, 0]);
    // Routes of the delta alone leave it as it was; any other number belongs to the generation.
    let batch = with(&[1, 2, 0], &[4, 5, 0], &[9, 8, 6, 7, 0]);
    assert_eq!(routes_of(&batch, 0), [1, 2, 0, 4, 5, 0]);
    assert_eq!(routes_of(&batch, 1), [1, 2, 0, -1, 7, 0]);
}

/// The walkthrough of the guide: calls 1 and 2; a rewrite before call 3; call 4 is rejected, and
/// call 5 retries it with the same observation.
#[test]
fn a_rejected_retry_is_in_no_row_and_a_rewrite_begins_one() {
    let mut walk = rollout(0, 1, 1.0, &[None, Some(0), None, Some(2), Some(2)], &[2; 5]);
    let accepted = [0, 1, 2, 4].map(|call| format!("r-r0c{call}"));
    walk.result = Some(
        serde_json::json!({"action_ids": accepted, "terminal_response_id": "r-r0c4"}).to_string(),
    );
    let groups = [Group { group_id: "p".into(), rollouts: vec![walk] }];
    let policy = PolicyName::ReturnedHistory.policy();
    let selection = select(&groups, policy, &SelectSettings::default());
    assert_eq!(selection.findings, []);
    let batch = build(&groups, &selection, 1, &GrpoSettings::default());
    assert_eq!(paths(&batch), ["AB", "CE"]);
    assert_eq!(batch.counts.loss_tokens, 4 * 2);
    // The rewritten prompt conditions call 3 and carries no loss.
    assert_eq!(batch.rows[1].loss_mask, [0, 1, 1, 0, 1, 1]);
    // One reward and one advantage, and the rejected call is kept for cleanup.
    assert_eq!(batch.rows[0].advantage, batch.rows[1].advantage);
    let planned = forestctl::cleanup::plan(&groups[0].rollouts[0]);
    assert!(planned.iter().any(|key| key.call_id.as_str() == "r0c3"));
}

/// A second tokenisation of the same text, a thought that the template strips, and tool calls
/// streamed without ids all end as a new root: the tokens that were sampled keep their own context,
/// and nothing is tokenised again (trl 5224, verl 6854, vllm 27482).
#[test]
fn what_the_next_prompt_does_not_repeat_token_by_token_begins_a_row() {
    // What call 1 was prompted with and sampled; what call 2 was prompted with.
    let cases: [(&str, &[u32], &[u32]); 3] = [
        ("other tokens for the same text", &[10, 11, 12], &[10, 111, 7]),
        ("a thought that was stripped", &[10, 50, 51, 12], &[10, 12, 7]),
        ("arguments written anew", &[10, 60, 61, 62], &[10, 60, 63, 62, 7]),
    ];
    for (what, sampled, prompt) in cases {
        let generation: Vec<(u32, f32)> = sampled[1..].iter().map(|&t| (t, -0.25)).collect();
        let first = builders::call("r0c0", None, &sampled[..1], &generation);
        let second = builders::call("r0c1", None, prompt, &[(8, -0.5)]);
        let calls = vec![first, second];
        let rollout = Rollout {
            reward: Some(1.0),
            result: Some(r#"{"terminal_response_id":"r-r0c1"}"#.to_owned()),
            ..builders::rollout("p", 0, 1, calls)
        };
        let batch = rows(vec![rollout], 1);
        let ids: Vec<&[u32]> = batch.rows.iter().map(|row| &row.input_ids[..]).collect();
        assert_eq!(ids, [sampled, &[prompt, &[8]].concat()[..]], "{what}");
        assert_eq!(batch.counts.loss_tokens, sampled.len() as u64, "{what}");
        assert!(batch.rows[0].loss_mask[1..].iter().all(|&mask| mask == 1), "{what}");
        let captured: Vec<f32> = batch.rows[0].generation_logprobs.clone();
        assert!(captured[1..].iter().all(|&logprob| logprob == -0.25), "{what}");
    }
}
