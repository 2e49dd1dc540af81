//! What screens need of an archive, as values: a trait for whoever reads it, and the documents of
//! one rollout and one call.

use std::collections::HashMap;

use crate::archive::Known;
use crate::error::Result;
use crate::explain::{
    CallFate, Chains, Decode, Mark, Part, PartFate, PartFates, RolloutFate, RolloutLine, Slot,
    Tree, TreeCall, View, calls, rollout, tree,
};
use crate::finding::Finding;
use crate::id::{CallId, GroupId, RolloutId};
use crate::select::PolicyChoice;

/// Where a rollout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Part of the archive.
    pub part: usize,
    /// Its prompt group.
    pub group_id: GroupId,
    /// The rollout.
    pub rollout_id: RolloutId,
}

/// Reads an archive as screens ask for it. Used on one thread of its own, so it may take its time.
pub trait Source: Send {
    /// Who is in a part, in the order of the archive.
    ///
    /// # Errors
    ///
    /// A part that cannot be read.
    fn known(&mut self, part: usize) -> Result<Vec<Known>>;

    /// Whether the rollouts of all parts are those that the manifest speaks of; every part was
    /// asked for with [`Source::known`] before.
    ///
    /// # Errors
    ///
    /// They are not.
    fn check(&mut self) -> Result<()>;

    /// Recorded calls of a part with their rollouts.
    ///
    /// # Errors
    ///
    /// A part that cannot be read.
    fn call_ids(&mut self, part: usize) -> Result<Vec<(RolloutId, CallId)>>;

    /// What `ls` tells of the rollouts of a part, in the order of the archive.
    ///
    /// # Errors
    ///
    /// A part that cannot be read, a selector that cannot be used.
    fn lines(&mut self, part: usize) -> Result<Vec<RolloutLine>>;

    /// Does `work` on the group of a rollout as the stages leave it.
    ///
    /// # Errors
    ///
    /// As [`Source::lines`]; a group that is not there.
    fn view(&mut self, at: &Place, work: &mut dyn FnMut(&View<'_>, &Looked<'_>)) -> Result<()>;
}

/// How a view came to be.
#[derive(Clone, Copy)]
pub struct Looked<'a> {
    /// The policy that selected.
    pub policy: &'a PolicyChoice,
    /// The tokenizer, if one was given.
    pub decoder: Option<&'a dyn Decode>,
}

/// One rollout: what `show` tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutDocument {
    /// What became of it.
    pub fate: RolloutFate,
    /// The policy, in its word.
    pub policy: String,
    /// Its calls, roots and rows.
    pub tree: Tree,
    /// What was found of it.
    pub findings: Vec<Finding>,
}

impl RolloutDocument {
    /// Findings beyond what masks it, which [`RolloutFate::masked`] tells.
    pub fn findings_beyond(&self) -> Vec<&Finding> {
        let told = |finding: &&Finding| self.fate.masked.iter().all(|m| m.code != finding.code);
        self.findings.iter().filter(told).collect()
    }
}

/// The tokens from the root of a chain to the end of one call: what `why` tells of each.
#[derive(Clone, Debug, PartialEq)]
pub struct TokensDocument {
    /// The call at the end.
    pub call_id: CallId,
    /// Carries and generations along the chain; none is empty.
    pub stretches: Vec<StretchDocument>,
    /// Token ids, `[tokens]`.
    pub ids: Vec<u32>,
    /// Captured log-probabilities, `[tokens]`; NaN where none was captured.
    pub logprobs: Vec<f32>,
    /// Texts of the tokens; `None` without a tokenizer.
    texts: Option<Texts>,
}

/// One text per token, in one allocation.
#[derive(Clone, Debug, Default, PartialEq)]
struct Texts {
    all: String,
    ends: Vec<usize>,
}

/// One carry or generation, of which every token has the same fate.
#[derive(Clone, Debug, PartialEq)]
pub struct StretchDocument {
    /// The call that brought it.
    pub call_id: CallId,
    /// What became of that call.
    pub mark: Mark,
    /// Which part of its delta.
    pub part: Part,
    /// Position of its first token, from the root.
    pub start: usize,
    /// One past its last token.
    pub end: usize,
    /// Rows that have it.
    pub rows: Vec<String>,
    /// Whether it carries loss, and why.
    pub fate: PartFate,
    /// Whether something was found on its call.
    pub found: bool,
}

impl TokensDocument {
    /// The text of a token; `None` without a tokenizer.
    pub fn text(&self, token: usize) -> Option<&str> {
        let texts = self.texts.as_ref()?;
        let start = if token == 0 { 0 } else { *texts.ends.get(token - 1)? };
        texts.all.get(start..*texts.ends.get(token)?)
    }

    /// Tokens whose id `query` is, and those where text begins that holds it, whatever its case.
    pub fn hits(&self, query: &str) -> Vec<usize> {
        let id: Option<u32> = query.parse().ok();
        let same = self.ids.iter().enumerate().filter(|(_, token)| Some(**token) == id);
        let mut hits: Vec<usize> = same.map(|(at, _)| at).collect();
        if let Some(texts) = self.texts.as_ref().filter(|_| !query.is_empty()) {
            // ASCII alone, so that places stay what they are.
            let (all, query) = (texts.all.to_ascii_lowercase(), query.to_ascii_lowercase());
            let token = |(place, _)| texts.ends.partition_point(|&end| end <= place);
            hits.extend(all.match_indices(&query).map(token));
            hits.sort_unstable();
            hits.dedup();
        }
        hits
    }

    /// Number of the stretch that holds a token.
    pub fn stretch_of(&self, token: usize) -> usize {
        self.stretches.partition_point(|stretch| stretch.end <= token)
    }
}

/// The rollout of `place` in a view of its group.
pub fn slot<'a>(view: &'a View<'_>, rollout_id: &RolloutId) -> Option<Slot<'a>> {
    view.slots().find(|slot| slot.rollout.rollout_id == *rollout_id)
}

/// One rollout.
pub fn rollout_document(slot: Slot<'_>, looked: &Looked<'_>) -> RolloutDocument {
    RolloutDocument {
        fate: rollout(slot),
        policy: looked.policy.to_string(),
        tree: tree(slot, looked.decoder),
        findings: slot.findings().cloned().collect(),
    }
}

/// What `why` tells of one call.
pub fn call_document(slot: Slot<'_>, call: &CallId, looked: &Looked<'_>) -> Option<CallFate> {
    calls(slot, looked.policy, looked.decoder, |id| id == call).into_iter().next()
}

/// The chain that ends with `call`; `None` when it is not whole.
pub fn tokens_document(
    slot: Slot<'_>,
    call: &CallId,
    looked: &Looked<'_>,
) -> Option<TokensDocument> {
    let chains = Chains::new(&slot.rollout.calls);
    let path = chains.path(chains.number(call)?)?;
    let told = tree(slot, None).calls;
    let told: HashMap<&CallId, &TreeCall> = told.iter().map(|c| (&c.call_id, c)).collect();
    let fates = PartFates::new(slot);
    let (mut ids, mut logprobs, mut stretches) = (Vec::new(), Vec::new(), Vec::new());
    for number in path {
        let owner = chains.call(number);
        let (start, given) = (owner.prev_len as usize, chains.prompt_len(number));
        let end = owner.cum_len as usize;
        ids.extend_from_slice(&owner.token_ids);
        logprobs.resize(given.min(ids.len()), f32::NAN);
        logprobs.extend(owner.generation_logprobs.iter().take(ids.len() - logprobs.len()));
        logprobs.resize(ids.len(), f32::NAN);
        let fate = told.get(&owner.call_id)?;
        let rows: Vec<String> = fate.owned_in.iter().chain(&fate.context_in).cloned().collect();
        for (part, start, end) in
            [(Part::Carry, start, given.min(end)), (Part::Generation, given.min(end), end)]
        {
            if start == end {
                continue;
            }
            stretches.push(StretchDocument {
                call_id: owner.call_id.clone(),
                mark: fate.mark,
                part,
                start,
                end,
                rows: rows.clone(),
                fate: fates.of(&owner.call_id, part),
                found: !fate.findings.is_empty(),
            });
        }
    }
    let texts = looked.decoder.map(|decoder| {
        let mut texts = Texts::default();
        for id in &ids {
            match decoder.decode(&[*id]) {
                Some(text) => texts.all.push_str(&text),
                None => texts.all.push_str(&format!("<{id}>")),
            }
            texts.ends.push(texts.all.len());
        }
        texts
    });
    Some(TokensDocument { call_id: call.clone(), stretches, ids, logprobs, texts })
}
