//! The captured calls of a rollout as chains of tokens from their roots.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::archive::Call;
use crate::id::CallId;

/// Which part of a delta a token is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// New prompt tokens: observations, summaries, rewritten context.
    Carry,
    /// Sampled tokens.
    Generation,
}

impl Part {
    /// The word of every format.
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Carry => "carry",
            Part::Generation => "generation",
        }
    }
}

/// The stretch of a chain that holds a token: the carry or the generation of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Number of the call that brought it.
    pub call: usize,
    /// Which part of its delta.
    pub part: Part,
    /// Position of its first token, from the root.
    pub start: usize,
    /// One past its last token.
    pub end: usize,
}

/// Calls by number, as they stand in the rollout, with what each continues.
#[derive(Debug)]
pub struct Chains<'a> {
    calls: &'a [Call],
    numbers: HashMap<&'a CallId, usize>,
    parents: Vec<Option<usize>>,
    /// Calls whose chain reaches a root with lengths that agree, parents first.
    order: Vec<usize>,
    whole: Vec<bool>,
}

impl<'a> Chains<'a> {
    /// Arranges `calls`; of several records of one call, the first.
    pub fn new(calls: &'a [Call]) -> Self {
        let mut numbers = HashMap::with_capacity(calls.len());
        for (number, call) in calls.iter().enumerate() {
            numbers.entry(&call.call_id).or_insert(number);
        }
        let parent = |call: &Call| numbers.get(call.parent_call_id.as_ref()?).copied();
        let parents: Vec<Option<usize>> = calls.iter().map(parent).collect();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); calls.len()];
        let fits = |number: usize, before: u64| {
            let call = &calls[number];
            call.prev_len == before
                && call.delta_len == call.token_ids.len() as u64
                && call.cum_len == before + call.delta_len
        };
        let mut open: Vec<usize> = Vec::new();
        for (number, call) in calls.iter().enumerate().rev() {
            match (&call.parent_call_id, parents[number]) {
                (None, _) if fits(number, 0) => open.push(number),
                (Some(_), Some(parent)) => children[parent].push(number),
                _ => {}
            }
        }
        let (mut order, mut whole) = (Vec::with_capacity(calls.len()), vec![false; calls.len()]);
        while let Some(number) = open.pop() {
            whole[number] = true;
            order.push(number);
            let end = calls[number].cum_len;
            open.extend(children[number].iter().filter(|&&child| fits(child, end)));
        }
        Self { calls, numbers, parents, order, whole }
    }

    /// The record of a call.
    pub fn call(&self, number: usize) -> &'a Call {
        &self.calls[number]
    }

    /// Number of a call.
    pub fn number(&self, id: &CallId) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    /// Number of the call that a call continues, if it was captured.
    pub fn parent(&self, number: usize) -> Option<usize> {
        self.parents[number]
    }

    /// Calls whose chain is whole, parents before children.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// Calls from the root to a call; `None` when its chain is not whole.
    pub fn path(&self, number: usize) -> Option<Vec<usize>> {
        self.whole[number].then(|| {
            let mut path: Vec<usize> =
                std::iter::successors(Some(number), |&call| self.parents[call]).collect();
            path.reverse();
            path
        })
    }

    /// Tokens from the root to the end of a call; `None` when its chain is not whole.
    pub fn tokens(&self, number: usize) -> Option<Vec<u32>> {
        let path = self.path(number)?;
        Some(path.iter().flat_map(|&call| self.calls[call].token_ids.iter().copied()).collect())
    }

    /// Tokens that a call was given.
    pub fn prompt_len(&self, number: usize) -> usize {
        let call = &self.calls[number];
        call.prev_len as usize + call.carry_len as usize
    }

    /// The stretch of the chain of `number` that holds `position`.
    pub fn stretch(&self, number: usize, position: usize) -> Option<Stretch> {
        let path = self.path(number)?;
        let call = *path.iter().find(|&&call| position < self.calls[call].cum_len as usize)?;
        let (start, end) = (self.calls[call].prev_len as usize, self.calls[call].cum_len as usize);
        let generated = self.prompt_len(call);
        Some(match position < generated {
            true => Stretch { call, part: Part::Carry, start, end: generated },
            false => Stretch { call, part: Part::Generation, start: generated, end },
        })
    }

    /// How many leading tokens each call's chain has in common with `tokens`; `None` where the
    /// chain is not whole. Every delta is looked at once.
    pub fn shared(&self, tokens: &[u32]) -> Vec<Option<usize>> {
        let mut shared = vec![None; self.calls.len()];
        for &number in &self.order {
            let call = &self.calls[number];
            let start = call.prev_len as usize;
            let before = self.parents[number].and_then(|parent| shared[parent]).unwrap_or(0);
            shared[number] = Some(match before == start {
                true => start + common(&call.token_ids, tokens.get(start..).unwrap_or_default()),
                false => before,
            });
        }
        shared
    }
}

/// Leading tokens that both have.
pub fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
