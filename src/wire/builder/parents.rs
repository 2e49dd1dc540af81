//! Which call each call continues: whole prompts from delta records, then recorded links proved
//! by tokens (`spec/gym-wire.md` e.1, e.2, e.5).

use std::borrow::Cow;
use std::collections::HashMap;

use rayon::prelude::*;

use super::prefix::PrefixIndex;
use crate::finding::Code;
use crate::id::Digest32;
use crate::wire::TokenIds;
use crate::wire::digest::Claim;
use crate::wire::entry::{ParentResolution, TokenEntry};

/// Links that are followed before a chain of delta records counts as broken.
pub const MAX_DELTA_DEPTH: usize = 10_000;

/// Tokens that all rebuilt delta prompts of one store may have together (2 GiB); a small file
/// could otherwise ask for any amount.
pub const MAX_REBUILT_TOKENS: usize = 1 << 28;

/// Every token up to the end of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence<'a> {
    /// `[prompt]`, the whole of it.
    pub prompt: Cow<'a, [u64]>,
    /// `[generation]`
    pub generation: &'a [u64],
}

impl<'a> Sequence<'a> {
    /// A sequence of its two parts.
    pub fn new(prompt: &'a [u64], generation: &'a [u64]) -> Self {
        Self { prompt: Cow::Borrowed(prompt), generation }
    }

    /// Tokens of both parts.
    pub fn len(&self) -> usize {
        self.prompt.len() + self.generation.len()
    }

    /// True without any token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `prompt` begins with this whole sequence.
    pub fn begins(&self, prompt: &[u64]) -> bool {
        // Prompts of one conversation share their memory.
        let rest = match std::ptr::eq(self.prompt.as_ptr(), prompt.as_ptr()) {
            true => prompt.get(self.prompt.len()..),
            false => prompt.strip_prefix(&*self.prompt),
        };
        rest.is_some_and(|rest| rest.starts_with(self.generation))
    }

    fn digest(&self) -> Digest32 {
        Claim::Entry(vec![TokenIds::Wide(&self.prompt), TokenIds::Wide(self.generation)]).digest()
    }
}

/// What there is to say of a call's link to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkNote {
    /// The capture itself found no parent for a request that continues something.
    Unresolved,
    /// The recorded parent is not among the earlier calls, and no single call is the longest
    /// prefix.
    Missing,
    /// The recorded parent is not among the earlier calls; one call is the longest prefix.
    Recovered,
    /// The prompt does not begin with the recorded parent's tokens.
    DigestMismatch,
    /// Resolved, but to no call.
    WithoutId,
    /// Neither decision nor parent is recorded.
    NoDecision,
    /// A later entry claims the call with other tokens.
    DuplicateConflict,
    /// A delta prompt cannot be rebuilt: a missing or cyclic parent, or a wrong digest.
    BrokenDelta,
}

impl LinkNote {
    /// The package's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unresolved => "parent_unresolved",
            Self::Missing => "parent_call_id_missing",
            Self::Recovered => "parent_call_id_missing_recovered",
            Self::DigestMismatch => "parent_digest_mismatch",
            Self::WithoutId => "resolved_parent_missing_id",
            Self::NoDecision => "missing_resolution",
            Self::DuplicateConflict => "duplicate_call_id_conflict",
            Self::BrokenDelta => "delta_chain_unreconstructable",
        }
    }

    /// The finding that this is; `None` where the link was recovered and nothing is wrong.
    pub fn code(self) -> Option<Code> {
        match self {
            Self::Recovered => None,
            Self::DigestMismatch => Some(Code::ParentDigestMismatch),
            Self::DuplicateConflict => Some(Code::ConflictingStoreEntry),
            _ => Some(Code::UnresolvedParent),
        }
    }
}

/// One call of a store with its verified parent. Indices are positions in the entries given.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedCall<'a> {
    /// Position of the entry.
    pub entry: usize,
    /// Prompt and generation in full; `None` when a delta prompt cannot be rebuilt.
    pub sequence: Option<Sequence<'a>>,
    /// Position of the verified parent.
    pub parent: Option<usize>,
    /// Tokens of the parent's sequence, 0 without a parent: the carry is
    /// `sequence.prompt[prev_len..]`.
    pub prev_len: usize,
    /// What there is to say of the link.
    pub note: Option<LinkNote>,
}

/// Gives each call of one store its verified parent. The result holds one element per call id,
/// in entry order: of entries that repeat a call the first counts, and a later one with other
/// tokens leaves the note [`LinkNote::DuplicateConflict`] on it.
///
/// Stricter than the package in one thing: a parent counts only if the prompt begins with all of
/// its real tokens, whatever length and digest it is stamped with.
///
/// Entries that record neither decisions nor parents all get the note [`LinkNote::NoDecision`];
/// [`infer_parents`] is for those.
pub fn resolve_parents(entries: &[TokenEntry]) -> Vec<ResolvedCall<'_>> {
    let kept = Kept::of(entries);
    let mut links = kept.links();
    let mut prev_lens = vec![0; links.len()];
    links.par_iter_mut().zip(&mut prev_lens).enumerate().for_each(|(at, (link, prev_len))| {
        if let Some(parent) = link.parent {
            if kept.sequences[parent].as_ref().is_some_and(|before| before.begins(kept.prompt(at)))
            {
                *prev_len = kept.len(parent);
            } else {
                *link = Link::noted(LinkNote::DigestMismatch);
            }
        }
    });
    for &call in &kept.conflicts {
        links[call].note = Some(LinkNote::DuplicateConflict);
    }
    let Kept { calls, sequences, .. } = kept;
    let resolved = calls.iter().zip(sequences).zip(links.into_iter().zip(prev_lens));
    resolved
        .map(|((&entry, sequence), (link, prev_len))| ResolvedCall {
            entry,
            sequence,
            parent: link.parent.map(|parent| calls[parent]),
            prev_len,
            note: link.note,
        })
        .collect()
}

/// A call whose source records no parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InferredParent {
    /// No other call is a prefix of the prompt.
    Root,
    /// The one longest call that is.
    Call(usize),
    /// Several calls with the same tokens are the longest.
    Ambiguous(Vec<usize>),
}

/// Finds each call's parent by tokens alone: the longest prompt and generation that its prompt
/// begins with. Such a call is always the earlier one, its prompt being shorter. Calls without
/// generated tokens are nobody's parent.
pub fn infer_parents(calls: &[Sequence<'_>]) -> Vec<InferredParent> {
    let mut index = PrefixIndex::default();
    for (at, call) in calls.iter().enumerate() {
        if !call.generation.is_empty() {
            index.insert(at, call);
        }
    }
    let parent = |call: &Sequence<'_>| match index.longest(&call.prompt).as_slice() {
        [] => InferredParent::Root,
        [one] => InferredParent::Call(*one),
        several => InferredParent::Ambiguous(several.to_vec()),
    };
    calls.iter().map(parent).collect()
}

/// The first entry of each call id, with its whole sequence.
pub(super) struct Kept<'a> {
    pub(super) entries: &'a [TokenEntry],
    /// Entry of each call.
    pub(super) calls: Vec<usize>,
    /// Sequence of each call; `None` when it cannot be rebuilt.
    pub(super) sequences: Vec<Option<Sequence<'a>>>,
    /// Calls that a later entry contradicts, once per such entry.
    pub(super) conflicts: Vec<usize>,
}

/// A call's link as recorded and verified. `parent` is a position in [`Kept::calls`].
#[derive(Clone, Copy, Default)]
pub(super) struct Link {
    pub(super) parent: Option<usize>,
    pub(super) note: Option<LinkNote>,
}

impl<'a> Kept<'a> {
    pub(super) fn of(entries: &'a [TokenEntry]) -> Self {
        let mut position: HashMap<&str, usize> = HashMap::new();
        let (mut calls, mut conflicts) = (Vec::new(), Vec::new());
        for (at, entry) in entries.iter().enumerate() {
            match position.get(entry.model_call_id.as_str()) {
                None => {
                    position.insert(&entry.model_call_id, calls.len());
                    calls.push(at);
                }
                Some(&call) => {
                    let first: &TokenEntry = &entries[calls[call]];
                    let same = first.prompt_token_ids == entry.prompt_token_ids
                        && first.generation_token_ids == entry.generation_token_ids;
                    if !same {
                        conflicts.push(call);
                    }
                }
            }
        }
        let sequences = rebuild(entries, &calls, &position);
        Self { entries, calls, sequences, conflicts }
    }

    pub(super) fn entry(&self, call: usize) -> &'a TokenEntry {
        &self.entries[self.calls[call]]
    }

    /// Tokens of a call; 0 when they cannot be rebuilt.
    pub(super) fn len(&self, call: usize) -> usize {
        self.sequences[call].as_ref().map_or(0, Sequence::len)
    }

    /// The whole prompt of a call; empty when it cannot be rebuilt.
    pub(super) fn prompt(&self, call: usize) -> &[u64] {
        self.sequences[call].as_ref().map_or(&[], |sequence| &sequence.prompt)
    }

    pub(super) fn generated(&self, call: usize) -> usize {
        self.entry(call).generation_token_ids.len()
    }

    /// Calls in processing order: by prompt length, then call id.
    pub(super) fn order(&self) -> Vec<usize> {
        let whole = |&call: &usize| self.sequences[call].is_some();
        let mut order: Vec<usize> = (0..self.calls.len()).filter(whole).collect();
        order.sort_by_key(|&call| (self.prompt(call).len(), &self.entry(call).model_call_id));
        order
    }

    /// The link of every call. A call without generated tokens is nobody's parent.
    pub(super) fn links(&self) -> Vec<Link> {
        let broken = Link { parent: None, note: Some(LinkNote::BrokenDelta) };
        let mut links = vec![broken; self.calls.len()];
        let order = self.order();
        let mut earlier: HashMap<&str, usize> = HashMap::new();
        let mut digests: HashMap<usize, Digest32> = HashMap::new();
        let heads = self.heads();
        let mut index: Option<PrefixIndex<'_>> = None;
        for (done, &call) in order.iter().enumerate() {
            let entry = self.entry(call);
            links[call] = match (entry.parent_resolution, entry.parent_call_id.as_deref()) {
                (Some(ParentResolution::Root), _) => Link::default(),
                (Some(ParentResolution::Unresolved), _) => Link::noted(LinkNote::Unresolved),
                (None, None | Some("")) => Link::noted(LinkNote::NoDecision),
                (_, None | Some("")) => Link::noted(LinkNote::WithoutId),
                (_, Some(claimed)) => match earlier.get(claimed) {
                    Some(&parent) if self.extends(parent, heads[call], &mut digests) => {
                        Link { parent: Some(parent), note: None }
                    }
                    Some(_) => Link::noted(LinkNote::DigestMismatch),
                    None => {
                        let index = index.get_or_insert_with(|| {
                            let mut index = PrefixIndex::default();
                            for &before in order.iter().take(done) {
                                self.offer(&mut index, before);
                            }
                            index
                        });
                        match index.longest(self.prompt(call)).as_slice() {
                            [parent] => {
                                Link { parent: Some(*parent), note: Some(LinkNote::Recovered) }
                            }
                            _ => Link::noted(LinkNote::Missing),
                        }
                    }
                },
            };
            if self.generated(call) > 0 {
                earlier.insert(&entry.model_call_id, call);
            }
            if let Some(index) = &mut index {
                self.offer(index, call);
            }
        }
        links
    }

    fn offer<'s>(&'s self, index: &mut PrefixIndex<'s>, call: usize) {
        if let Some(sequence) = self.sequences[call].as_ref().filter(|s| !s.generation.is_empty()) {
            index.insert(call, sequence);
        }
    }

    /// Digest of the beginning of each call's prompt that its recorded parent stands for, if the
    /// prompt is that long.
    fn heads(&self) -> Vec<Option<Digest32>> {
        let by_id: HashMap<&str, usize> =
            (0..self.calls.len()).map(|call| (&*self.entry(call).model_call_id, call)).collect();
        let head = |call: usize| {
            let parent = *by_id.get(self.entry(call).parent_call_id.as_deref()?)?;
            let length = match self.entry(parent).cum_len {
                Some(stamped) => usize::try_from(stamped).ok()?,
                None => self.sequences[parent].as_ref()?.len(),
            };
            Some((call, self.prompt(call).get(..length)?))
        };
        let mut known: Vec<(usize, &[u64])> = (0..self.calls.len()).filter_map(head).collect();
        known.sort_by_key(|(_, head)| std::cmp::Reverse(head.len()));
        let digests =
            Claim::digests_on_threads(&known, |(_, head)| Claim::Entry(vec![TokenIds::Wide(head)]));
        let mut heads = vec![None; self.calls.len()];
        for ((call, _), digest) in known.into_iter().zip(digests) {
            heads[call] = Some(digest);
        }
        heads
    }

    /// Whether a prompt, of whose beginning `head` is the digest, begins with what its parent is
    /// stamped with. Length and digest stand for the tokens; what is not stamped is computed.
    fn extends(
        &self,
        parent: usize,
        head: Option<Digest32>,
        digests: &mut HashMap<usize, Digest32>,
    ) -> bool {
        let (Some(sequence), Some(head)) = (&self.sequences[parent], head) else { return false };
        match self.entry(parent).digest.as_deref() {
            None | Some("") => *digests.entry(parent).or_insert_with(|| sequence.digest()) == head,
            Some(stamped) => stamped == head.to_string(),
        }
    }
}

impl Link {
    fn noted(note: LinkNote) -> Self {
        Self { parent: None, note: Some(note) }
    }
}

/// The whole sequence of each call. Delta prompts are rebuilt through their parents, without
/// recursion; every rebuilt sequence is held against its stamped digest.
fn rebuild<'a>(
    entries: &'a [TokenEntry],
    calls: &[usize],
    position: &HashMap<&str, usize>,
) -> Vec<Option<Sequence<'a>>> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        Untouched,
        Underway,
        Done,
    }
    let mut state = vec![State::Untouched; calls.len()];
    let mut depth = vec![0_usize; calls.len()];
    let mut sequences: Vec<Option<Sequence<'a>>> = vec![None; calls.len()];
    let mut budget = MAX_REBUILT_TOKENS;
    for start in 0..calls.len() {
        let mut path = Vec::new();
        let mut next = Some(start);
        while let Some(call) = next.filter(|&call| state[call] == State::Untouched) {
            state[call] = State::Underway;
            path.push(call);
            let entry = &entries[calls[call]];
            let parent = entry.parent_call_id.as_deref().filter(|_| entry.prompt_is_delta);
            next = parent.and_then(|parent| position.get(parent)).copied();
        }
        while let Some(call) = path.pop() {
            let entry = &entries[calls[call]];
            state[call] = State::Done;
            if !entry.prompt_is_delta {
                let generation = &entry.generation_token_ids;
                sequences[call] = Some(Sequence::new(&entry.prompt_token_ids, generation));
                continue;
            }
            let parent = entry.parent_call_id.as_deref().and_then(|parent| position.get(parent));
            // A parent that is still underway closes a cycle, and so has no sequence.
            let Some(&parent) = parent else { continue };
            depth[call] = depth[parent] + 1;
            let Some(before) =
                sequences[parent].as_ref().filter(|_| depth[call] <= MAX_DELTA_DEPTH)
            else {
                continue;
            };
            let Some(left) = budget.checked_sub(before.len() + entry.prompt_token_ids.len()) else {
                continue;
            };
            budget = left;
            let prompt = [&*before.prompt, before.generation, &entry.prompt_token_ids].concat();
            let generation = &entry.generation_token_ids;
            let sequence = Sequence { prompt: Cow::Owned(prompt), generation };
            let stamped = entry.digest.as_deref().filter(|digest| !digest.is_empty());
            let proved = stamped.is_none_or(|digest| digest == sequence.digest().to_string());
            sequences[call] = proved.then_some(sequence);
        }
    }
    sequences
}
