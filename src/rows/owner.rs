//! The rows of one logical rollout.

use super::manifest::OwnerLengths;
use super::model::{MediaRef, Row, Span};
use super::routes;
use crate::archive::{Call, MediaTensor, Rollout};
use crate::forest::{Forest, Path};
use crate::id::GroupId;
use crate::select::{RolloutSelection, calls_of, parents};
use crate::wire::media::IMGS;

/// A logical rollout with its verdict, and its rows if it has a verified layout.
pub struct Owner<'a> {
    rollout: &'a Rollout,
    /// The verdict.
    pub selection: &'a RolloutSelection,
    calls: Vec<&'a Call>,
    /// One per endpoint; none without a verified layout.
    pub rows: Vec<Row>,
}

impl<'a> Owner<'a> {
    /// Lays out the selected calls of `rollout`.
    pub fn new(group_id: &GroupId, rollout: &'a Rollout, selection: &'a RolloutSelection) -> Self {
        let mut owner = Self { rollout, selection, calls: Vec::new(), rows: Vec::new() };
        // Selection has proved that every call is there and that the links are a forest.
        let calls = calls_of(rollout, &selection.calls);
        let Ok(forest) = Forest::new(&parents(&calls)) else { return owner };
        if !selection.has_layout() || calls.len() != selection.calls.len() {
            return owner;
        }
        owner.rows = forest
            .paths()
            .enumerate()
            .map(|(segment, path)| owner.row(group_id, segment as u32, &path, &calls))
            .collect();
        let segments = owner.rows.len() as u32;
        owner.rows.iter_mut().for_each(|row| row.segment_count = segments);
        owner.calls = calls;
        owner
    }

    fn row(&self, group_id: &GroupId, segment: u32, path: &Path, calls: &[&Call]) -> Row {
        let Rollout { rollout_id, slot, group_size, reward, .. } = self.rollout;
        let mut row = Row {
            row_id: format!("{rollout_id}_s{segment}"),
            group_id: group_id.clone(),
            rollout_id: Some(rollout_id.clone()),
            slot: Some(*slot),
            group_size: *group_size,
            segment,
            segment_count: 0,
            is_execution_padding: false,
            uses_borrowed_input: false,
            input_ids: Vec::new(),
            loss_mask: Vec::new(),
            generation_logprobs: Vec::new(),
            spans: Vec::with_capacity(path.calls.len()),
            reward: *reward,
            advantage: 0.0,
            sample_mask: 0.0,
            truncated: self.selection.truncated,
            mask_reason: self.selection.reasons.first().map(|r| r.code.as_str().to_owned()),
            routes: None,
            media: Vec::new(),
        };
        let path_calls: Vec<&Call> = path.calls.iter().map(|&i| calls[i]).collect();
        for (depth, call) in path_calls.iter().enumerate() {
            let owned = depth >= path.borrowed;
            let start = row.input_ids.len();
            row.input_ids.extend_from_slice(&call.token_ids);
            let gen_start = start + call.carry_len as usize;
            row.loss_mask.resize(gen_start, 0);
            row.loss_mask.resize(row.input_ids.len(), u8::from(owned));
            row.generation_logprobs.resize(gen_start, 0.0);
            row.generation_logprobs.extend_from_slice(&call.generation_logprobs);
            let pixels = call.tensor(IMGS).map_or(&[][..], MediaTensor::pieces);
            row.media.extend(
                pixels
                    .iter()
                    .map(|piece| MediaRef { call: call.call_id.clone(), digest: piece.digest }),
            );
            row.spans.push(Span {
                call: call.call_id.clone(),
                start: start as u32,
                gen_start: gen_start as u32,
                end: row.input_ids.len() as u32,
                owned,
                weight_version: call.weight_version,
            });
        }
        row.routes = routes::along(&path_calls);
        row
    }

    /// The masked row that keeps the place of an owner without layout (rule 105).
    pub fn stand_in(&self, layout: &Row) -> Row {
        let Rollout { rollout_id, slot, reward, .. } = self.rollout;
        Row {
            row_id: format!("{rollout_id}_s0"),
            rollout_id: Some(rollout_id.clone()),
            slot: Some(*slot),
            segment_count: 1,
            reward: *reward,
            mask_reason: self.selection.reasons.first().map(|r| r.code.as_str().to_owned()),
            ..layout.borrowed()
        }
    }

    /// Tokens of the selected calls, each call once.
    pub fn unique_tokens(&self) -> u64 {
        self.calls.iter().map(|call| call.token_ids.len() as u64).sum()
    }

    /// What rule 128 observes of the owner.
    pub fn lengths(&self) -> OwnerLengths {
        let generated = |call: &&Call| call.generation().len() as u64;
        OwnerLengths {
            rollout_id: self.rollout.rollout_id.clone(),
            gen_tokens_per_sample: self.calls.iter().map(generated).sum(),
            max_gen_tokens_per_turn: self.calls.iter().map(generated).max().unwrap_or_default(),
            total_tokens_per_sample: self
                .rows
                .iter()
                .map(|row| row.input_ids.len() as u64)
                .max()
                .unwrap_or_default(),
        }
    }
}
