//! Training rows is training calls, for a model that depends on the order of all its tokens.
//!
//! A recurrent network in float64 keeps no token apart from the others: one that is missing, added,
//! changed or moved before a generation changes its log-probabilities. Each call is computed by
//! itself, on what the harness recorded that it sent, with the loss written out here; rows go the
//! way of the learner, through batch, packs, pairs and loss.

use std::collections::BTreeMap;

use forestctl::archive::Group;
use forestctl::config::GrpoSettings;
use forestctl::config::loss::LossConfig;
use forestctl::id::{CallId, RolloutId};
use forestctl::rows::{Row, build};
use forestctl::step::batch::Batch;
use forestctl::step::loss::{Loss, Token};
use forestctl::step::metrics::{Sums, mean};
use forestctl::step::plan::pack::{PackPlan, packs};
use proptest::prelude::*;
use safetensors::SafeTensors;
use serde_json::Value;

use super::forests::{Captures, captures};
use super::rows_of;
use crate::closed_loop::{POLICIES, expected, groups, selected};

const WIDTH: usize = 6;
const SYMBOLS: usize = 37;

/// `state = tanh(step * state + into[token])`, and logits `out * state` of the next token.
/// Parameters lie in one list: step, into, out.
struct Recurrent {
    parameters: Vec<f64>,
}

type State = [f64; WIDTH];

impl Recurrent {
    fn new(seed: u64) -> Self {
        let mut bits = seed;
        let count = WIDTH * WIDTH + 2 * SYMBOLS * WIDTH;
        let draw = |_| {
            bits = bits
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((bits >> 11) as f64 / (1u64 << 53) as f64 - 0.5) * 1.6
        };
        Self { parameters: (0..count).map(draw).collect() }
    }

    fn into(token: u32) -> usize {
        WIDTH * WIDTH + (token as usize % SYMBOLS) * WIDTH
    }

    fn out(symbol: usize) -> usize {
        WIDTH * WIDTH + (SYMBOLS + symbol) * WIDTH
    }

    fn states(&self, ids: &[u32]) -> Vec<State> {
        let mut state = [0.0; WIDTH];
        let next = |&token: &u32| {
            let before = state;
            for (i, value) in state.iter_mut().enumerate() {
                let carried: f64 =
                    (0..WIDTH).map(|j| self.parameters[i * WIDTH + j] * before[j]).sum();
                *value = (carried + self.parameters[Self::into(token) + i]).tanh();
            }
            state
        };
        ids.iter().map(next).collect()
    }

    /// Probabilities of all symbols after a state.
    fn next(&self, state: &State) -> Vec<f64> {
        let logit = |symbol| -> f64 {
            (0..WIDTH).map(|i| self.parameters[Self::out(symbol) + i] * state[i]).sum()
        };
        let weights: Vec<f64> = (0..SYMBOLS).map(|symbol| f64::exp(logit(symbol))).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }

    /// Log-probabilities of the tokens at `targets`.
    fn score(&self, ids: &[u32], targets: &[usize]) -> Vec<f64> {
        let states = self.states(ids);
        let of = |&t: &usize| self.next(&states[t - 1])[ids[t] as usize % SYMBOLS].ln();
        targets.iter().map(of).collect()
    }

    /// Adds the gradient of the sum of log-probabilities at `targets`, times `slopes`.
    fn backward(&self, ids: &[u32], targets: &[usize], slopes: &[f64], gradient: &mut [f64]) {
        let states = self.states(ids);
        let slopes: BTreeMap<usize, f64> =
            targets.iter().copied().zip(slopes.iter().copied()).collect();
        let mut from_later = [0.0; WIDTH];
        for t in (0..ids.len()).rev() {
            let mut by_state = from_later;
            if let Some(slope) = slopes.get(&(t + 1)) {
                let chosen = ids[t + 1] as usize % SYMBOLS;
                for (symbol, probability) in self.next(&states[t]).iter().enumerate() {
                    let by_logit = slope * (f64::from(u8::from(symbol == chosen)) - probability);
                    for i in 0..WIDTH {
                        gradient[Self::out(symbol) + i] += by_logit * states[t][i];
                        by_state[i] += by_logit * self.parameters[Self::out(symbol) + i];
                    }
                }
            }
            let before = if t == 0 { [0.0; WIDTH] } else { states[t - 1] };
            from_later = [0.0; WIDTH];
            for i in 0..WIDTH {
                let inside = by_state[i] * (1.0 - states[t][i].powi(2));
                gradient[Self::into(ids[t]) + i] += inside;
                for j in 0..WIDTH {
                    gradient[i * WIDTH + j] += inside * before[j];
                    from_later[j] += inside * self.parameters[i * WIDTH + j];
                }
            }
        }
    }
}

/// A call as a training sample of its own.
struct Sample {
    /// What was sent, and what was generated.
    ids: Vec<u32>,
    /// First generated token.
    start: usize,
    advantage: f64,
}

/// Loss and its gradient.
type Outcome = (f64, Vec<f64>);

/// The policy that trains, and the one before it.
fn policies() -> (Recurrent, Recurrent) {
    (Recurrent::new(1), Recurrent::new(2))
}

/// Call by call: the mean of `max(-A r, -A clamp(r, 0.8, 1.2))` over generated tokens.
fn of_calls(samples: &[Sample]) -> Outcome {
    let (policy, previous) = policies();
    let count: usize = samples.iter().map(|sample| sample.ids.len() - sample.start).sum();
    let count = count as f64 + 1e-8;
    let (mut loss, mut gradient) = (0.0, vec![0.0; policy.parameters.len()]);
    for Sample { ids, start, advantage } in samples {
        let targets: Vec<usize> = (*start..ids.len()).collect();
        let (now, before) = (policy.score(ids, &targets), previous.score(ids, &targets));
        let slopes = now.iter().zip(&before).map(|(now, before)| {
            let ratio = (now - before).exp();
            let (free, clipped) = (-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2));
            loss += free.max(clipped) / count;
            if clipped > free { 0.0 } else { free / count }
        });
        let slopes: Vec<f64> = slopes.collect();
        policy.backward(ids, &targets, &slopes, &mut gradient);
    }
    (loss, gradient)
}

/// Rows as the learner takes them, in packs of so many tokens.
fn of_rows(rows: &[Row], pack_tokens: Option<u64>) -> Outcome {
    let (policy, previous) = policies();
    let config = LossConfig { reference_policy_kl_penalty: 0.0, ..LossConfig::default() };
    let loss = Loss::new(config).unwrap();
    let batch = Batch::new(rows).unwrap();
    let (mut sums, mut gradient) = (Sums::default(), vec![0.0; policy.parameters.len()]);
    for pack in packs(&batch, PackPlan { tokens: pack_tokens, share: false }).unwrap() {
        for (path, &row) in pack.forest.paths.iter().zip(&pack.rows) {
            let ids = &pack.ids()[path.tokens.clone()];
            let pairs: Vec<_> = pack.pairs.iter().filter(|pair| pair.row == row).collect();
            let targets: Vec<usize> =
                pairs.iter().map(|pair| pair.source + 1 - path.tokens.start).collect();
            let (now, before) = (policy.score(ids, &targets), previous.score(ids, &targets));
            let slopes = pairs.iter().zip(now.iter().zip(before)).map(|(pair, (&now, before))| {
                assert_eq!(ids[pair.source + 1 - path.tokens.start], pair.target);
                let token = Token {
                    current: now,
                    previous: before,
                    generation: before,
                    reference: f64::NAN,
                    advantage: rows[row].advantage,
                };
                let terms = loss.terms(&token);
                sums.add(&loss, &token, &terms);
                mean(terms.derivative, batch.valid_tokens())
            });
            let slopes: Vec<f64> = slopes.collect();
            policy.backward(ids, &targets, &slopes, &mut gradient);
        }
    }
    (sums.loss(&loss, batch.valid_tokens()), gradient)
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// How far two outcomes are from each other, relative to the first gradient; where clipping leaves
/// hardly any, relative to a small one.
fn distance(a: &Outcome, b: &Outcome) -> f64 {
    let off: Vec<f64> = a.1.iter().zip(&b.1).map(|(a, b)| a - b).collect();
    let size = norm(&a.1).max(1e-3);
    (norm(&off) / size).max((a.0 - b.0).abs() / a.0.abs().max(size))
}

/// What the harness recorded of the selected calls of seed1, with the oracle's advantages.
fn recorded(expected: &Value) -> Vec<Sample> {
    let home = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let truth = home.join("testdata/closed-loop/seed1/truth");
    let text = std::fs::read(truth.join("truth.json")).unwrap();
    let story: Value = serde_json::from_slice(&text).unwrap();
    let bytes = std::fs::read(truth.join("truth.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let ids = |name: &str, start: &Value, length: &Value| -> Vec<u32> {
        let data = tensors.tensor(name).unwrap().data().as_chunks::<2>().0.to_vec();
        let (start, length) = (start.as_u64().unwrap() as usize, length.as_u64().unwrap() as usize);
        data[start..start + length].iter().map(|b| u16::from_le_bytes(*b).into()).collect()
    };
    let case =
        "filter=none;masked_reward_policy=exclude;leave_one_out=true;normalize=true;clip=none";
    let owners = expected["advantages"]["rollouts"].as_array().unwrap();
    let advantages = expected["advantages"]["cases"][case]["advantage"].as_array().unwrap();
    let advantages: BTreeMap<&str, f64> = owners
        .iter()
        .zip(advantages)
        .map(|(owner, advantage)| (owner.as_str().unwrap(), advantage.as_f64().unwrap()))
        .collect();
    let mut samples = Vec::new();
    let valid = |rollout: &&Value| rollout["verdict"] == "valid";
    for rollout in expected["rollouts"].as_array().unwrap().iter().filter(valid) {
        let told = story["rollouts"].as_array().unwrap().iter();
        let told = told.clone().find(|told| told["rollout_id"] == rollout["rollout_id"]).unwrap();
        for id in rollout["selected"].as_array().unwrap() {
            let mut calls = told["calls"].as_array().unwrap().iter();
            let call = calls.find(|call| call["call_id"] == *id).unwrap();
            let prompt = ids("prompt_ids", &call["prompt_start"], &call["prompt_len"]);
            let generated = ids("gen_ids", &call["gen_start"], &call["gen_len"]);
            samples.push(Sample {
                start: prompt.len(),
                ids: [prompt, generated].concat(),
                advantage: advantages[rollout["rollout_id"].as_str().unwrap()],
            });
        }
    }
    samples
}

#[test]
fn the_gradient_of_the_network_is_that_of_its_differences() {
    let ids = [3, 40, 7, 7, 99, 12];
    let (targets, slopes) = ([2, 3, 5], [0.5, -1.5, 2.0]);
    let mut network = Recurrent::new(5);
    let sum = |network: &Recurrent| -> f64 {
        network.score(&ids, &targets).iter().zip(slopes).map(|(x, slope)| x * slope).sum()
    };
    let mut gradient = vec![0.0; network.parameters.len()];
    network.backward(&ids, &targets, &slopes, &mut gradient);
    for (at, gradient) in gradient.iter().enumerate() {
        let value = network.parameters[at];
        let mut beside = |step: f64| {
            network.parameters[at] = value + step;
            sum(&network)
        };
        let slope = (beside(1e-5) - beside(-1e-5)) / 2e-5;
        network.parameters[at] = value;
        assert!((gradient - slope).abs() < 1e-8, "{at}: {gradient} {slope}");
    }
}

#[test]
fn rows_of_the_closed_loop_train_as_its_recorded_calls() {
    for policy in POLICIES {
        let samples = recorded(&expected(policy));
        let calls = of_calls(&samples);
        assert!(samples.len() > 70 && calls.0.abs() > 1e-3 && norm(&calls.1) > 1e-2);
        for form in ["staged-v2", "staged-v3"] {
            let groups = groups(form);
            let built = build(&groups, &selected(&groups, policy), 4, &GrpoSettings::default());
            assert!(built.rows.iter().any(|row| row.spans.iter().any(|span| !span.owned)));
            for pack_tokens in [None, Some(700)] {
                let off = distance(&calls, &of_rows(&built.rows, pack_tokens));
                assert!(off <= 1e-12, "{policy:?} {form} {pack_tokens:?}: {off:e}");
            }
        }
    }
}

/// Without these differences the tests above would show nothing.
#[test]
fn each_fault_of_a_row_shows_in_the_recurrent_gradient() {
    let policy = POLICIES[0];
    let calls = of_calls(&recorded(&expected(policy)));
    let groups = groups("staged-v2");
    let rows = build(&groups, &selected(&groups, policy), 1, &GrpoSettings::default()).rows;
    let trained = |row: &Row| row.sample_mask == 1.0 && row.advantage != 0.0;
    let shows = |what: &str, least: usize, change: &dyn Fn(&mut Row)| {
        let mut shown = 0;
        for (at, row) in rows.iter().enumerate().filter(|(_, row)| trained(row)) {
            let mut broken = rows.clone();
            change(&mut broken[at]);
            if &broken[at] != row {
                let off = distance(&calls, &of_rows(&broken, None));
                assert!(off > 1e-9, "{what} in {}: {off:e}", row.row_id);
                shown += 1;
            }
        }
        assert!(shown >= least, "{what}: {shown} rows");
    };
    // Two tokens just before the last generation change places.
    shows("a swap", 15, &|row| {
        let start = row.spans.last().unwrap().gen_start as usize;
        if row.input_ids[start - 1] as usize % SYMBOLS
            != row.input_ids[start - 2] as usize % SYMBOLS
        {
            row.input_ids.swap(start - 1, start - 2);
        }
    });
    // A borrowed generation trains again.
    shows("a span owned twice", 3, &|row| {
        for span in row.spans.iter().filter(|span| !span.owned) {
            row.loss_mask[span.gen_start as usize..span.end as usize].fill(1);
        }
    });
    shows("a target that is left out", 15, &|row| {
        let last = row.loss_mask.len() - 1;
        row.loss_mask[last] = 0;
    });
}

/// The same captures with a token before every root, since nothing predicts the first one.
fn with_a_first_token(mut captures: Captures) -> Captures {
    for call in captures.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
        for call in &mut call.calls {
            call.cum_len += 1;
            if call.parent_call_id.is_some() {
                call.prev_len += 1;
            } else {
                call.token_ids.insert(0, 5);
                call.carry_len += 1;
                call.delta_len += 1;
            }
        }
    }
    captures
}

/// The chosen calls of a rollout, each after the tokens of its parents.
fn samples_of(groups: &[Group], captures: &Captures, policy: usize) -> Vec<(RolloutId, Sample)> {
    let chosen = &captures.selections()[policy].1;
    let mut samples = Vec::new();
    for rollout in groups.iter().flat_map(|group| &group.rollouts) {
        for id in &chosen[&rollout.rollout_id] {
            let find = |id: &CallId| rollout.calls.iter().find(|call| call.call_id == *id).unwrap();
            let call = find(id);
            let mut ids = call.token_ids.clone();
            let mut start = call.carry_len as usize;
            let mut parent = call.parent_call_id.as_ref();
            while let Some(above) = parent.map(find) {
                start += above.token_ids.len();
                ids.splice(0..0, above.token_ids.iter().copied());
                parent = above.parent_call_id.as_ref();
            }
            samples.push((rollout.rollout_id.clone(), Sample { ids, start, advantage: 0.0 }));
        }
    }
    samples
}

proptest! {
    #[test]
    fn rows_of_random_forests_train_as_their_calls(captures in captures(), pack in 1u64..200) {
        let captures = with_a_first_token(captures);
        // Rewards of small groups often leave no advantage, so each rollout gets one by its name.
        let advantage = |rollout: &RolloutId| {
            let sum: u32 = rollout.as_str().bytes().map(u32::from).sum();
            (f64::from(sum % 7) - 2.5) / 2.0
        };
        for (policy, mut rows) in rows_of(&captures).into_iter().enumerate() {
            for row in &mut rows {
                row.advantage = advantage(row.rollout_id.as_ref().unwrap());
            }
            let samples = samples_of(&captures.groups, &captures, policy);
            let samples: Vec<Sample> = samples
                .into_iter()
                .map(|(rollout, sample)| Sample { advantage: advantage(&rollout), ..sample })
                .collect();
            let calls = of_calls(&samples);
            for pack in [None, Some(pack)] {
                let off = distance(&calls, &of_rows(&rows, pack));
                prop_assert!(off <= 1e-12, "{off:e}");
            }
        }
    }
}
