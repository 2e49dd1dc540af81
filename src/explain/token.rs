//! Whether a token carries loss, and why not.

use std::collections::{HashMap, HashSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::chains::{Chains, Part};
use super::divergence::Decode;
use super::fate::{MaskReason, mask_reasons};
use super::view::{Slot, Verdict};
use crate::id::CallId;
use crate::rows::Row;

/// What became of a token.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TokenFate {
    /// The row that was asked about; null when a call was.
    pub row_id: Option<String>,
    /// Its position from the root of its chain, which is its position in every row that has it.
    pub position: u64,
    /// Its id.
    pub token_id: u32,
    /// Its text; null without a tokenizer.
    pub text: Option<String>,
    /// The call that brought it: the one asked about, or an ancestor.
    pub call_id: CallId,
    /// New prompt tokens of that call, or its generation.
    pub part: Part,
    /// Its place in that part, from zero.
    pub offset: u64,
    /// Captured log-probability of a generated token; null where none was captured.
    pub logprob: Option<f32>,
    /// The row in which it carries loss; null when it carries none.
    pub loss_in: Option<String>,
    /// Why, in words.
    pub because: String,
    /// The rule of docs/rules.md behind that.
    pub rule: Option<u16>,
}

/// The token at `position` of the chain that ends with `call`.
///
/// # Errors
///
/// How many tokens the chain has, when it has no such token or is not whole.
pub fn token(
    slot: Slot<'_>,
    call: &CallId,
    position: usize,
    decoder: Option<&dyn Decode>,
) -> Result<TokenFate, u64> {
    let chains = Chains::new(&slot.rollout.calls);
    let number = chains.number(call).ok_or(0_u64)?;
    let stretch = chains.stretch(number, position);
    let stretch = stretch.ok_or_else(|| match chains.path(number) {
        Some(_) => chains.call(number).cum_len,
        None => 0,
    })?;
    let owner = chains.call(stretch.call);
    let token_id = owner.token_ids[position - owner.prev_len as usize];
    let offset = position - stretch.start;
    let logprob = match stretch.part {
        Part::Carry => None,
        Part::Generation => owner.generation_logprobs.get(offset).copied(),
    };
    let part = PartFates::new(slot).of(&owner.call_id, stretch.part);
    Ok(TokenFate {
        row_id: None,
        position: position as u64,
        token_id,
        text: decoder.and_then(|decoder| decoder.decode(&[token_id])),
        call_id: owner.call_id.clone(),
        part: stretch.part,
        offset: offset as u64,
        logprob: logprob.filter(|logprob| logprob.is_finite()),
        loss_in: part.loss_in,
        because: part.because,
        rule: part.rule,
    })
}

/// The token at `position` of a row of the rollout.
///
/// # Errors
///
/// How many tokens the row has, when it has no such token.
pub fn token_of_row(
    slot: Slot<'_>,
    row: &Row,
    position: usize,
    decoder: Option<&dyn Decode>,
) -> Result<TokenFate, u64> {
    let tokens = row.input_ids.len() as u64;
    let last = row.spans.last().ok_or(tokens)?;
    let mut fate = token(slot, &last.call, position, decoder).map_err(|_| tokens)?;
    if let Some(owner) = fate.loss_in.as_ref().filter(|owner| **owner != row.row_id) {
        fate.because = format!("context here: row {owner} has the loss of this generation");
        fate.rule = Some(95);
        fate.loss_in = None;
    }
    fate.row_id = Some(row.row_id.clone());
    Ok(fate)
}

/// What became of all tokens of a carry or a generation.
#[derive(Clone, Debug, PartialEq)]
pub struct PartFate {
    /// The row in which they carry loss.
    pub loss_in: Option<String>,
    /// Why, in words.
    pub because: String,
    /// The rule of docs/rules.md behind that.
    pub rule: Option<u16>,
}

/// What became of the carries and generations of a rollout.
#[derive(Debug)]
pub struct PartFates<'a> {
    slot: Slot<'a>,
    selected: HashSet<&'a CallId>,
    /// The row that has the loss of a call.
    loss: HashMap<&'a CallId, &'a str>,
    masked: Option<MaskReason>,
}

impl<'a> PartFates<'a> {
    /// Looks at rows and reasons once.
    pub fn new(slot: Slot<'a>) -> Self {
        let mut loss = HashMap::new();
        for row in slot.own_rows().filter(|row| row.sample_mask != 0.0) {
            for span in row.spans.iter().filter(|span| span.owned) {
                loss.entry(&span.call).or_insert(row.row_id.as_str());
            }
        }
        let masked = mask_reasons(slot).into_iter().next();
        Self { slot, selected: slot.selection.calls.iter().collect(), loss, masked }
    }

    /// What became of one of them.
    pub fn of(&self, call: &CallId, part: Part) -> PartFate {
        let loss_in = self.loss.get(call).filter(|_| part == Part::Generation);
        let (because, rule) = match (part, loss_in) {
            (Part::Carry, _) => (
                "the model was given it: prompts, observations and summaries never train".into(),
                Some(96),
            ),
            (Part::Generation, Some(row)) => {
                (format!("the first row that has this generation, {row}, owns it"), Some(94))
            }
            _ if !self.selected.contains(call) => {
                (format!("call {call} is not selected"), Some(144))
            }
            _ => match (self.slot.verdict(), &self.masked) {
                (Verdict::Valid, _) | (_, None) => {
                    ("no row of the rollout owns it".to_owned(), Some(94))
                }
                (verdict, Some(reason)) => {
                    (format!("the rollout is {}: {}", verdict.as_str(), reason.code), reason.rule)
                }
            },
        };
        PartFate { loss_in: loss_in.map(|row| (*row).to_owned()), because, rule }
    }
}
