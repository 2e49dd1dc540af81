//! What rows have to be, by plain walks over the raw calls.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hasher;

use forestctl::archive::{Call, Rollout};
use forestctl::id::CallId;
use forestctl::rows::Row;

/// A generated token as an independent training sample: hash of all tokens before it, the token,
/// and the bits of its log-probability.
pub type Sample = (u64, u32, u32);

/// A row as its calls make it.
#[derive(Debug, PartialEq)]
pub struct Layout {
    pub calls: Vec<CallId>,
    pub owned: Vec<bool>,
    pub input_ids: Vec<u32>,
    pub loss_mask: Vec<u8>,
    pub logprob_bits: Vec<u32>,
}

impl Layout {
    /// What a row has of it.
    pub fn of(row: &Row) -> Self {
        Self {
            calls: row.spans.iter().map(|span| span.call.clone()).collect(),
            owned: row.spans.iter().map(|span| span.owned).collect(),
            input_ids: row.input_ids.clone(),
            loss_mask: row.loss_mask.clone(),
            logprob_bits: row.generation_logprobs.iter().map(|x| x.to_bits()).collect(),
        }
    }
}

fn by_id(rollout: &Rollout) -> HashMap<&CallId, &Call> {
    rollout.calls.iter().map(|call| (&call.call_id, call)).collect()
}

/// Rows of a rollout: a walk back from each chosen call that no chosen one continues, in the order
/// of the choice from the root on; the first row with a call owns it.
pub fn layouts(rollout: &Rollout, chosen: &[CallId]) -> Vec<Layout> {
    let calls = by_id(rollout);
    let number: HashMap<&CallId, usize> = chosen.iter().zip(0..).collect();
    let continued: HashSet<&CallId> =
        chosen.iter().filter_map(|id| calls[id].parent_call_id.as_ref()).collect();
    let mut walks: Vec<Vec<usize>> = Vec::new();
    for endpoint in chosen.iter().filter(|id| !continued.contains(id)) {
        let mut walk = Vec::new();
        let mut next = Some(endpoint);
        while let Some(id) = next {
            walk.push(number[id]);
            next = calls[id].parent_call_id.as_ref();
        }
        walk.reverse();
        walks.push(walk);
    }
    walks.sort();
    let mut seen = HashSet::new();
    let mut layouts = Vec::new();
    for walk in walks {
        let mut layout = Layout {
            calls: walk.iter().map(|&at| chosen[at].clone()).collect(),
            owned: walk.iter().map(|&at| seen.insert(at)).collect(),
            input_ids: Vec::new(),
            loss_mask: Vec::new(),
            logprob_bits: Vec::new(),
        };
        for (id, owned) in layout.calls.iter().zip(&layout.owned) {
            let call = calls[id];
            for (i, token) in call.token_ids.iter().enumerate() {
                let generated = i.checked_sub(call.carry_len as usize);
                layout.input_ids.push(*token);
                layout.loss_mask.push(u8::from(*owned && generated.is_some()));
                let logprob = generated.map_or(0.0, |at| call.generation_logprobs[at]);
                layout.logprob_bits.push(logprob.to_bits());
            }
        }
        layouts.push(layout);
    }
    layouts
}

/// Generated tokens of the chosen calls, each call as a sample of its own.
pub fn samples_of_calls(rollout: &Rollout, chosen: &[CallId]) -> Vec<Sample> {
    let calls = by_id(rollout);
    let mut ends: HashMap<&CallId, DefaultHasher> = HashMap::new();
    let mut samples = Vec::new();
    for id in chosen {
        // Contexts of the calls before it, from the nearest known one on.
        let mut open = vec![id];
        while let Some(parent) = calls[open[open.len() - 1]].parent_call_id.as_ref() {
            if ends.contains_key(parent) {
                break;
            }
            open.push(parent);
        }
        while let Some(id) = open.pop() {
            let call = calls[id];
            let parent = call.parent_call_id.as_ref();
            let mut context = parent.map(|id| ends[id].clone()).unwrap_or_default();
            call.token_ids.iter().for_each(|token| context.write_u32(*token));
            ends.insert(id, context);
        }
        let call = calls[id];
        let parent = call.parent_call_id.as_ref();
        let mut context = parent.map(|id| ends[id].clone()).unwrap_or_default();
        for (i, token) in call.token_ids.iter().enumerate() {
            if let Some(at) = i.checked_sub(call.carry_len as usize) {
                let logprob = call.generation_logprobs[at].to_bits();
                samples.push((context.finish(), *token, logprob));
            }
            context.write_u32(*token);
        }
    }
    samples.sort_unstable();
    samples
}

/// Tokens that carry loss in rows that train.
pub fn samples_of_rows<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Sample> {
    let mut samples = Vec::new();
    for row in rows.into_iter().filter(|row| row.sample_mask != 0.0) {
        let mut context = DefaultHasher::new();
        for (i, token) in row.input_ids.iter().enumerate() {
            if row.loss_mask[i] != 0 {
                samples.push((context.finish(), *token, row.generation_logprobs[i].to_bits()));
            }
            context.write_u32(*token);
        }
    }
    samples.sort_unstable();
    samples
}

/// How many rows each generated token carries loss in, by its call and its place there.
pub fn times_owned(rows: &[Row]) -> BTreeMap<(CallId, u32), u32> {
    let mut times = BTreeMap::new();
    for row in rows {
        let mut rest = row.loss_mask.clone();
        for span in &row.spans {
            for at in span.gen_start..span.end {
                let mask = std::mem::take(&mut rest[at as usize]);
                *times.entry((span.call.clone(), at - span.gen_start)).or_default() +=
                    u32::from(mask);
            }
        }
        assert!(rest.iter().all(|&mask| mask == 0), "loss outside generations in {}", row.row_id);
    }
    times
}
