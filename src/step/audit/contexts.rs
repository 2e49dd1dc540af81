//! Generations with the context that the engine had for each.

use std::collections::HashMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::placed::is_scorable;
use crate::archive::{Call, Group, Rollout};
use crate::id::{CallId, GroupId, RolloutId};
use crate::rows::Row;

/// A captured generation and what it was sampled after.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The prompt group.
    pub group_id: GroupId,
    /// The logical rollout.
    pub rollout_id: RolloutId,
    /// The call.
    pub call_id: CallId,
    /// Weights that sampled it; `None` when unknown.
    pub weight_version: Option<u64>,
    /// Tokens from the root of its chain to the end of the generation, in pieces that calls of one
    /// chain share.
    pub pieces: Vec<Arc<[u32]>>,
    /// Captured log-probabilities, `[generated tokens]`, never none; NaN where none was captured.
    pub captured: Vec<f32>,
}

impl Generation {
    /// All tokens: the context, then the generation.
    pub fn ids(&self) -> Vec<u32> {
        self.pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
    }

    /// Tokens of the context: where the generation begins in [`Generation::ids`].
    pub fn start(&self) -> usize {
        let all: usize = self.pieces.iter().map(|piece| piece.len()).sum();
        all.saturating_sub(self.captured.len())
    }
}

/// Why a call has no log-probability of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unscored {
    /// It generated nothing, or its record does not say which of its tokens were generated.
    NoGeneration,
    /// A call that it continues was not captured.
    NoContext,
    /// Its context holds images or videos, which a decoder of text does not see.
    Media,
}

impl Unscored {
    /// The word of the report, with blanks.
    pub fn as_str(self) -> &'static str {
        match self {
            Unscored::NoGeneration => "no generation",
            Unscored::NoContext => "no context",
            Unscored::Media => "media",
        }
    }
}

/// A captured call, as far as it can be scored.
#[derive(Clone, Debug, PartialEq)]
pub struct Captured {
    /// The logical rollout.
    pub rollout_id: RolloutId,
    /// The call.
    pub call_id: CallId,
    /// Its generation.
    pub generation: Result<Generation, Unscored>,
}

/// All calls of a group, each under the tokens of the calls that it continues and its own carry.
pub fn captured_calls(group: &Group) -> Vec<Captured> {
    group.rollouts.iter().flat_map(|rollout| of_rollout(&group.group_id, rollout)).collect()
}

fn of_rollout<'a>(
    group_id: &'a GroupId,
    rollout: &'a Rollout,
) -> impl Iterator<Item = Captured> + 'a {
    let calls: HashMap<&CallId, (&Call, Arc<[u32]>)> = rollout
        .calls
        .iter()
        .map(|call| (&call.call_id, (call, call.token_ids.as_slice().into())))
        .collect();
    rollout.calls.iter().map(move |call| {
        let generation = chain(&calls, call).and_then(|pieces| {
            let captured = call.generation_logprobs.clone();
            if captured.is_empty() || captured.len() != call.generation().len() {
                return Err(Unscored::NoGeneration);
            }
            Ok(Generation {
                group_id: group_id.clone(),
                rollout_id: rollout.rollout_id.clone(),
                call_id: call.call_id.clone(),
                weight_version: call.weight_version,
                pieces,
                captured,
            })
        });
        let (rollout_id, call_id) = (rollout.rollout_id.clone(), call.call_id.clone());
        Captured { rollout_id, call_id, generation }
    })
}

/// Tokens of the calls from the root to `call`.
fn chain(
    calls: &HashMap<&CallId, (&Call, Arc<[u32]>)>,
    call: &Call,
) -> Result<Vec<Arc<[u32]>>, Unscored> {
    let mut pieces = Vec::new();
    let mut next = Some(&call.call_id);
    while let Some(id) = next {
        let (call, ids) = calls.get(id).ok_or(Unscored::NoContext)?;
        if call.raw_columns.is_some() && pieces.is_empty() {
            return Err(Unscored::NoGeneration);
        }
        if !call.tensors.is_empty() || call.media.is_some_and(|media| media.present) {
            return Err(Unscored::Media);
        }
        // A chain of more links than there are calls runs in a circle.
        if pieces.len() == calls.len() {
            return Err(Unscored::NoContext);
        }
        pieces.push(ids.clone());
        next = call.parent_call_id.as_ref();
    }
    pieces.reverse();
    Ok(pieces)
}

/// The owned calls of rows, each under the beginning of its row, for rows without their archive.
/// Whether that is what the engine was given cannot be told from rows.
pub fn calls_of_rows(rows: &[Row]) -> Vec<Captured> {
    let owned = |row: &Row| {
        let spans = row.spans.iter().filter(|span| span.owned);
        let rollout_id = row.rollout_id.clone()?;
        let calls = spans.map(|span| {
            let (start, end) = (span.gen_start as usize, span.end as usize);
            let generation = (start < end).then(|| Generation {
                group_id: row.group_id.clone(),
                rollout_id: rollout_id.clone(),
                call_id: span.call.clone(),
                weight_version: span.weight_version,
                pieces: vec![row.input_ids[..end].into()],
                captured: row.generation_logprobs[start..end].to_vec(),
            });
            Captured {
                rollout_id: rollout_id.clone(),
                call_id: span.call.clone(),
                generation: match row.media.is_empty() {
                    true => generation.ok_or(Unscored::NoGeneration),
                    false => Err(Unscored::Media),
                },
            }
        });
        Some(calls.collect::<Vec<_>>())
    };
    let of_owners = rows.iter().filter(|row| is_scorable(row) || !row.media.is_empty());
    of_owners.filter_map(owned).flatten().collect()
}
