//! Random captures: forests of chains, branches, retries and rewrites, of which a harness accepted
//! a part.

use std::collections::{BTreeMap, BTreeSet};

use forestctl::archive::{Call, Group, Rollout};
use forestctl::id::{CallId, RolloutId};
use forestctl::select::PolicyName;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::builders;

/// What a call continues.
#[derive(Clone, Copy, Debug)]
pub enum Link {
    /// The call before.
    Last,
    /// An older call, or nothing.
    Any(u32),
    /// What the call before continues, with the same prompt.
    Retry,
    /// A retry that generates the very same.
    Twin,
    /// Nothing; the prompt quotes what the call before generated.
    Rewrite,
}

/// Output items of a call.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// A message.
    Message,
    /// A message and a function call.
    Tool,
    /// Reasoning and a message.
    Thought,
}

/// Item ids of a returned history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ids {
    /// Those that were served; equal texts are told apart.
    Native,
    /// None, and every text is another.
    Absent,
    /// Counted by the harness, and every text is another.
    Synthetic,
}

/// A call to be.
#[derive(Clone, Debug)]
pub struct CallPlan {
    pub link: Link,
    pub carry: Vec<u32>,
    pub generation: Vec<(u32, f32)>,
    pub answer: Answer,
    /// Which of a few texts it answers, where texts may be equal.
    pub text: u8,
    /// Whether an observation follows in the returned history.
    pub observed: bool,
    pub accepted: bool,
    /// Place in the returned history, by order.
    pub turn: u16,
    /// Place in the ledger, by order.
    pub commit: u16,
}

/// A rollout to be.
#[derive(Clone, Debug)]
pub struct RolloutPlan {
    pub ids: Ids,
    pub reward: f64,
    /// Which accepted call is scored.
    pub scored: usize,
    pub calls: Vec<CallPlan>,
}

/// Groups of rollouts in which nothing is wrong.
#[derive(Clone, Debug)]
pub struct Captures {
    pub groups: Vec<Group>,
    /// Accepted calls in the order of the returned history; closed under parents.
    pub accepted: BTreeMap<RolloutId, Vec<CallId>>,
    /// Rollouts that return native ids.
    pub native: BTreeSet<RolloutId>,
}

impl Captures {
    pub fn of(plans: &[Vec<RolloutPlan>]) -> Self {
        let mut captures =
            Self { groups: Vec::new(), accepted: BTreeMap::new(), native: BTreeSet::new() };
        for (number, plans) in plans.iter().enumerate() {
            let id = format!("p{number}");
            let slots = plans.len() as u32;
            let rollouts = (0..).zip(plans).map(|(slot, plan)| {
                let (rollout, accepted) = rollout(&id, slot, slots, plan);
                if plan.ids == Ids::Native {
                    captures.native.insert(rollout.rollout_id.clone());
                }
                captures.accepted.insert(rollout.rollout_id.clone(), accepted);
                rollout
            });
            let rollouts = rollouts.collect();
            captures.groups.push(builders::group(&id, rollouts));
        }
        captures
    }

    pub fn rollouts(&self) -> impl Iterator<Item = &Rollout> {
        self.groups.iter().flat_map(|group| &group.rollouts)
    }

    /// Selected calls by rollout, in selection order, under each policy.
    pub fn selections(&self) -> [(PolicyName, BTreeMap<RolloutId, Vec<CallId>>); 2] {
        let committed = |rollout: &Rollout| {
            let calls = rollout.ledger.committed.iter().map(|row| row.call_id.clone());
            (rollout.rollout_id.clone(), calls.collect())
        };
        [
            (PolicyName::ReturnedHistory, self.accepted.clone()),
            (PolicyName::AllCaptured, self.rollouts().map(committed).collect()),
        ]
    }
}

fn rollout(group: &str, slot: u32, slots: u32, plan: &RolloutPlan) -> (Rollout, Vec<CallId>) {
    let mut calls: Vec<Call> = Vec::new();
    let mut parents: Vec<Option<usize>> = Vec::new();
    for (i, plan) in plan.calls.iter().enumerate() {
        let last = calls.last();
        let (parent, carry) = match (plan.link, last) {
            (Link::Last, _) => (i.checked_sub(1), plan.carry.clone()),
            (Link::Any(link), _) => {
                (Some(link as usize % (i + 1)).filter(|&at| at < i), plan.carry.clone())
            }
            (Link::Retry | Link::Twin, Some(last)) => {
                (parents[i - 1], last.token_ids[..last.carry_len as usize].to_vec())
            }
            (Link::Rewrite, Some(last)) => (None, [&plan.carry[..], last.generation()].concat()),
            (_, None) => (None, plan.carry.clone()),
        };
        let generation = match (plan.link, last) {
            (Link::Twin, Some(last)) => {
                let logprobs = last.generation_logprobs.iter().copied();
                last.generation().iter().copied().zip(logprobs).collect()
            }
            _ => plan.generation.clone(),
        };
        let id = format!("{group}-{slot}c{i}");
        calls.push(builders::call(id, parent.map(|at| &calls[at]), &carry, &generation));
        parents.push(parent);
    }
    let mut accepted: Vec<bool> = plan.calls.iter().map(|call| call.accepted).collect();
    accepted[0] |= !accepted.contains(&true);
    for call in (0..calls.len()).rev() {
        if let (true, Some(parent)) = (accepted[call], parents[call]) {
            accepted[parent] = true;
        }
    }
    let mut history: Vec<usize> = (0..calls.len()).filter(|&call| accepted[call]).collect();
    history.sort_by_key(|&call| plan.calls[call].turn);
    let scored = history[plan.scored % history.len()];
    let ids = plan.ids;

    let output = |(i, plan): (usize, &CallPlan)| {
        let text = match ids {
            Ids::Native => format!("text {}", plan.text % 3),
            Ids::Absent | Ids::Synthetic => format!("text {i}"),
        };
        items(plan.answer, calls[i].call_id.as_str(), &text)
    };
    let outputs: Vec<Vec<Value>> = plan.calls.iter().enumerate().map(output).collect();
    let mut returned: Vec<Value> = Vec::new();
    for &call in &history {
        for mut item in outputs[call].clone() {
            match ids {
                Ids::Native => {}
                Ids::Absent => drop(item.as_object_mut().unwrap().remove("id")),
                Ids::Synthetic => item["id"] = json!(format!("item_{:04}", returned.len())),
            }
            returned.push(item);
        }
        if plan.calls[call].observed {
            returned.push(json!({"role": "user", "content": "go on"}));
        }
    }
    let accepted = history.iter().map(|&call| calls[call].call_id.clone()).collect();
    let mut rollout = builders::rollout(group, slot, slots, calls);
    for (row, output) in rollout.ledger.committed.iter_mut().zip(&outputs) {
        row.output_items = Some(output.iter().map(builders::served).collect());
    }
    let scored = &rollout.ledger.committed[scored].response_id;
    let result = json!({"terminal_response_id": scored, "response": {"output": returned}});
    rollout.result = Some(result.to_string());
    rollout.reward = Some(plan.reward);
    let mut rows: Vec<_> = plan.calls.iter().zip(rollout.ledger.committed).collect();
    rows.sort_by_key(|(call, _)| call.commit);
    rollout.ledger.committed = rows.into_iter().map(|(_, row)| row).collect();
    (rollout, accepted)
}

/// Output items as they were served.
pub fn items(answer: Answer, call: &str, text: &str) -> Vec<Value> {
    let message = json!({"type": "message", "role": "assistant", "id": format!("m-{call}"),
        "content": [{"type": "output_text", "text": text}]});
    let tool = json!({"type": "function_call", "id": format!("f-{call}"), "call_id": text,
        "name": "look", "arguments": json!({"at": text}).to_string()});
    let thought = json!({"type": "reasoning", "id": format!("t-{call}"), "summary": []});
    match answer {
        Answer::Message => vec![message],
        Answer::Tool => vec![message, tool],
        Answer::Thought => vec![thought, message],
    }
}

/// Few different tokens, so that equal stretches and equal calls are common.
pub fn tokens(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u32>> {
    vec(prop_oneof![9 => 0u32..3, 1 => any::<u32>()], count)
}

/// One token in most cases.
pub fn generation() -> impl Strategy<Value = Vec<(u32, f32)>> {
    let logprob = prop_oneof![
        4 => Just(-0.5f32),
        4 => -20.0f32..=0.0,
        1 => prop::sample::select(vec![0.0, -0.0, -1e-40, -9999.0, f32::MIN]),
    ];
    prop_oneof![Just(1usize), 1usize..5].prop_flat_map(move |length| {
        (tokens(length..length + 1), vec(logprob.clone(), length))
            .prop_map(|(tokens, logprobs)| tokens.into_iter().zip(logprobs).collect())
    })
}

fn call() -> impl Strategy<Value = CallPlan> {
    let link = prop_oneof![
        4 => Just(Link::Last),
        4 => any::<u32>().prop_map(Link::Any),
        1 => Just(Link::Retry),
        1 => Just(Link::Twin),
        1 => Just(Link::Rewrite),
    ];
    let answer = prop::sample::select(vec![Answer::Message, Answer::Tool, Answer::Thought]);
    let says = (answer, any::<u8>(), any::<bool>());
    let order = (prop::bool::weighted(0.6), any::<u16>(), any::<u16>());
    (link, tokens(0..4), generation(), says, order).prop_map(
        |(link, carry, generation, (answer, text, observed), (accepted, turn, commit))| CallPlan {
            link,
            carry,
            generation,
            answer,
            text,
            observed,
            accepted,
            turn,
            commit,
        },
    )
}

fn rollouts(calls: usize) -> impl Strategy<Value = RolloutPlan> {
    let ids = prop::sample::select(vec![Ids::Native, Ids::Absent, Ids::Synthetic]);
    let rewards = prop::sample::select(vec![0.0, 0.25, 1.0]);
    (ids, rewards, any::<u16>(), vec(call(), 1..=calls)).prop_map(|(ids, reward, scored, calls)| {
        RolloutPlan { ids, reward, scored: scored.into(), calls }
    })
}

/// Several rollouts of a few calls, or one of many.
pub fn captures() -> impl Strategy<Value = Captures> {
    let plans = prop_oneof![
        2 => vec(vec(rollouts(6), 1..4), 1..3),
        1 => vec(vec(rollouts(40), 1), 1),
    ];
    plans.prop_map(|plans| Captures::of(&plans))
}
