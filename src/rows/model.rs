//! Physical rows as values.

use serde::{Deserialize, Serialize};

use crate::id::{CallId, Digest32, GroupId, RolloutId};

/// One call's stretch of a row, in row token positions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The call.
    pub call: CallId,
    /// First token of the delta.
    pub start: u32,
    /// First generated token.
    pub gen_start: u32,
    /// One past the last token.
    pub end: u32,
    /// Whether this row carries the loss of the generation.
    pub owned: bool,
    /// Weights that sampled it; `None` when unknown.
    pub weight_version: Option<u64>,
}

/// One physical row: a path of the selected forest, or a masked stand-in of the same layout.
///
/// `input_ids`, `loss_mask` and `generation_logprobs` have one entry per token.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `{rollout}_s{j}` or `{group}_pad{k}`.
    pub row_id: String,
    /// The prompt group.
    pub group_id: GroupId,
    /// The owner; `None` for execution padding.
    pub rollout_id: Option<RolloutId>,
    /// The owner's slot; `None` for execution padding.
    pub slot: Option<u32>,
    /// Slots of the group.
    pub group_size: u32,
    /// Index among the owner's rows; 0 for padding.
    pub segment: u32,
    /// Rows of the owner; 0 for padding.
    pub segment_count: u32,
    /// Added only to make the row count divisible.
    pub is_execution_padding: bool,
    /// Tokens come from another owner's row; nothing here trains.
    pub uses_borrowed_input: bool,
    /// Token ids.
    pub input_ids: Vec<u32>,
    /// 1 on generated tokens that this row owns, else 0.
    pub loss_mask: Vec<u8>,
    /// Captured log-probability at each generated token, borrowed ones too; 0.0 on carry.
    pub generation_logprobs: Vec<f32>,
    /// Calls along the row.
    pub spans: Vec<Span>,
    /// The owner's reward; `None` when missing; 0 for padding.
    pub reward: Option<f64>,
    /// The owner's advantage; 0 for masked owners and padding.
    pub advantage: f64,
    /// 1.0 when the row trains, else 0.0.
    pub sample_mask: f32,
    /// Whether any selected generation of the owner stopped at a length limit.
    pub truncated: bool,
    /// Why the owner is masked: a code.
    pub mask_reason: Option<String>,
    /// Routes of the row's tokens, when any were captured.
    pub routes: Option<RowRoutes>,
    /// Pixels of the row's media, in the order of its tokens: what each call brought.
    pub media: Vec<MediaRef>,
}

impl Row {
    /// Owned generated tokens.
    pub fn loss_tokens(&self) -> usize {
        self.loss_mask.iter().filter(|&&m| m == 1).count()
    }

    /// A copy of which nothing trains, for rows whose owner has no input of its own.
    pub fn borrowed(&self) -> Row {
        let mut row = Row {
            segment: 0,
            uses_borrowed_input: true,
            advantage: 0.0,
            sample_mask: 0.0,
            truncated: false,
            mask_reason: None,
            ..self.clone()
        };
        row.loss_mask.fill(0);
        row.spans.iter_mut().for_each(|span| span.owned = false);
        row
    }

    /// What is wrong with the row by itself: columns of different lengths, spans that do not tile
    /// the row, loss outside owned generations, an owner that is half there.
    pub fn inconsistency(&self) -> Option<&'static str> {
        let length = self.input_ids.len();
        if self.loss_mask.len() != length || self.generation_logprobs.len() != length {
            return Some("its columns differ in length");
        }
        let mut start = 0;
        let mut owned = vec![0; length];
        for span in &self.spans {
            let (gen_start, end) = (span.gen_start as usize, span.end as usize);
            if span.start as usize != start || gen_start < start || end < gen_start || end > length
            {
                return Some("its spans do not follow one another");
            }
            owned[gen_start..end].fill(u8::from(span.owned));
            start = end;
        }
        if start != length {
            return Some("its spans do not cover it");
        }
        if owned != self.loss_mask {
            return Some("its loss mask is not its owned generations");
        }
        if self.is_execution_padding != self.rollout_id.is_none()
            || self.is_execution_padding != self.slot.is_none()
        {
            return Some("execution padding has no owner, and every other row has one");
        }
        let routes = self.routes.as_ref().is_some_and(|routes| {
            let per_token = u64::from(routes.layers) * u64::from(routes.topk);
            per_token.checked_mul(length as u64) != Some(routes.experts.len() as u64)
        });
        routes.then_some("its routes do not have one entry per token, layer and expert")
    }
}

/// A piece of the pixels that a call brought; the archive holds it by its digest, and the call's
/// sizes and frame counts (rules 99, 100).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaRef {
    /// The call.
    pub call: CallId,
    /// BLAKE3 of the piece.
    pub digest: Digest32,
}

/// Expert routes of one row, row-major `[tokens][layers][topk]`, -1 where unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRoutes {
    /// Mixture-of-experts layers.
    pub layers: u32,
    /// Experts per token.
    pub topk: u32,
    /// Expert indices.
    pub experts: Vec<i32>,
}
