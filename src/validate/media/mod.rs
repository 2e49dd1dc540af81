//! Media of calls: each call by itself, along its chain, and over the rollout
//! (`spec/media.md`; rules 48-51, 90, 99, 100).
//!
//! Whoever calls this has proved the extras of the calls against their digests.

mod call;

use std::collections::{BTreeSet, HashMap, HashSet};

use super::Cumulative;
use crate::archive::Call;
use crate::finding::Code;
use crate::id::CallId;
use crate::wire::media::{FRAMES, GEOMETRY, IMGS, Occurrence, may_hold_geometry, prefix_digest};
use call::{Fault, Media};

/// Retained occurrences up to which every prefix digest is recomputed. Each covers all of them,
/// so checking every one is quadratic in the length of a chain; beyond, the last call of each
/// chain that brings media stands for it, unless all are asked for.
const RETAINED_ALWAYS: usize = 1024;

/// What is wrong with the media of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem<'a> {
    /// The call.
    pub call: &'a Call,
    /// Stable code.
    pub code: Code,
    /// The field of record, media line or sidecar at fault, in wire words.
    pub field: &'static str,
    /// What was found, and what was expected.
    pub message: String,
}

/// Checks the media of `calls`, which are of one rollout and each there once. A call gets its
/// first problem only; what can only be told along a chain is not told below a call that has one,
/// or whose parent is not among `calls`.
pub fn check<'a>(calls: &[&'a Call], cumulative: Cumulative) -> Vec<Problem<'a>> {
    if !calls.iter().any(|call| may_have_media(call)) {
        return Vec::new();
    }
    let mut rollout = Rollout {
        calls,
        links: calls.iter().map(|_| Link::Broken).collect(),
        media: calls.iter().map(|_| None).collect(),
        faults: calls.iter().map(|_| None).collect(),
    };
    rollout.walk();
    rollout.long_chains(cumulative);
    rollout.one_merge_factor();
    rollout.all_covered();
    let faults = calls.iter().zip(rollout.faults);
    faults
        .filter_map(|(call, fault)| {
            let Fault { code, field, message } = fault?;
            let message = format!("call {}: {message}", call.call_id);
            Some(Problem { call, code, field, message })
        })
        .collect()
}

fn may_have_media(call: &Call) -> bool {
    call.media.is_some() || !call.tensors.is_empty() || may_hold_geometry(call.extras.as_deref())
}

/// How a call hangs together with its ancestors.
#[derive(Clone, Copy)]
enum Link {
    /// It, or an ancestor, has a problem or is not there.
    Broken,
    /// All is well up to it.
    Sound {
        /// The nearest call, itself included, that brings media.
        nearest: Option<usize>,
        /// Occurrences brought up to it.
        retained: usize,
    },
}

struct Rollout<'a, 'c> {
    calls: &'c [&'a Call],
    links: Vec<Link>,
    /// What a call brings, where nothing is wrong with it by itself, and the nearest ancestor
    /// that brings media.
    media: Vec<Option<(Media, Option<usize>)>>,
    faults: Vec<Option<Fault>>,
}

impl Rollout<'_, '_> {
    /// Each call by itself and against its ancestors, which come first: along sound links
    /// `prev_len` grows.
    fn walk(&mut self) {
        let mut numbers: HashMap<&CallId, usize> = HashMap::with_capacity(self.calls.len());
        for (i, call) in self.calls.iter().enumerate() {
            numbers.entry(&call.call_id).or_insert(i);
        }
        let mut order: Vec<usize> = (0..self.calls.len()).collect();
        order.sort_by_key(|&i| self.calls[i].prev_len);
        for i in order {
            let call = self.calls[i];
            let above = match &call.parent_call_id {
                None => Link::Sound { nearest: None, retained: 0 },
                Some(parent) => match numbers.get(parent) {
                    Some(&p) if self.calls[p].cum_len == call.prev_len => self.links[p],
                    _ => Link::Broken,
                },
            };
            let nearest = match above {
                Link::Sound { nearest, .. } => nearest,
                Link::Broken => None,
            };
            match call::check(call, |span| self.brought_at(nearest, span)) {
                Err(fault) => self.faults[i] = Some(fault),
                Ok(None) => self.links[i] = above,
                Ok(Some(media)) => {
                    if let Link::Sound { nearest, retained } = above {
                        self.faults[i] = self.chain(&media, nearest, retained);
                        if self.faults[i].is_none() {
                            let brought = media.geometry.images.len();
                            self.links[i] = Link::Sound {
                                nearest: if brought > 0 { Some(i) } else { nearest },
                                retained: retained + brought,
                            };
                        }
                    }
                    self.media[i] = Some((media, nearest));
                }
            }
        }
    }

    /// Calls that bring media, from `nearest` up to the root.
    fn ancestry(&self, nearest: Option<usize>) -> impl Iterator<Item = &Media> {
        let at = |i: Option<usize>| self.media.get(i?)?.as_ref();
        std::iter::successors(at(nearest), move |(_, above)| at(*above)).map(|(media, _)| media)
    }

    /// The occurrence of an ancestor that shares tokens with `span`.
    fn brought_at(&self, nearest: Option<usize>, span: &Occurrence) -> Option<&Occurrence> {
        let ends = |o: &Occurrence| o.offset.saturating_add(o.length);
        let shared = |o: &&Occurrence| o.offset < ends(span) && span.offset < ends(o);
        self.ancestry(nearest).flat_map(|media| &media.geometry.images).find(shared)
    }

    /// What a call says of its ancestors, and how its media go with theirs.
    fn chain(&self, media: &Media, nearest: Option<usize>, retained: usize) -> Option<Fault> {
        if retained <= RETAINED_ALWAYS
            && let Some(fault) = self.prefix(media, nearest, retained)
        {
            return Some(fault);
        }
        let (ours, theirs) = (media.layout?, self.ancestry(nearest).next()?.layout?);
        let fault = |code, field, message| Some(Fault { code, field, message });
        if ours.frames != theirs.frames {
            let word = |frames| if frames { "counts frames" } else { "counts no frames" };
            let message =
                format!("it {}, the chain before it {}", word(ours.frames), word(theirs.frames));
            return fault(Code::MediaFramesMixed, FRAMES, message);
        }
        if ours.dtype != theirs.dtype {
            let message =
                format!("its pixels are {}, those of its chain {}", ours.dtype, theirs.dtype);
            return fault(Code::MediaDtypeMismatch, IMGS, message);
        }
        if ours.side != theirs.side {
            let message = format!(
                "its patches have sides of {} pixels, those of its chain {}",
                ours.side, theirs.side
            );
            return fault(Code::MediaPatchSizeMismatch, IMGS, message);
        }
        None
    }

    /// The digest of what ancestors brought.
    fn prefix(&self, media: &Media, nearest: Option<usize>, retained: usize) -> Option<Fault> {
        let mut calls: Vec<&[Occurrence]> =
            self.ancestry(nearest).map(|media| media.geometry.images.as_slice()).collect();
        calls.reverse();
        let images: Vec<&Occurrence> = calls.into_iter().flatten().collect();
        let said = media.geometry.prefix_digest;
        let message = match prefix_digest(images.into_iter()) {
            Ok(digest) if digest == said => return None,
            Ok(digest) => format!(
                "the {retained} occurrences that its ancestors brought give {digest}, its \
                 prefix_digest is {said}"
            ),
            Err(error) => error,
        };
        Some(Fault { code: Code::MediaPrefixMismatch, field: GEOMETRY, message })
    }

    /// Prefix digests that [`Rollout::chain`] passed over.
    fn long_chains(&mut self, cumulative: Cumulative) {
        let continued: HashSet<usize> =
            self.media.iter().flatten().filter_map(|(_, above)| *above).collect();
        for i in 0..self.calls.len() {
            let (Link::Sound { retained, .. }, Some((media, nearest))) =
                (self.links[i], &self.media[i])
            else {
                continue;
            };
            let before = retained - media.geometry.images.len();
            let wanted = cumulative == Cumulative::All || !continued.contains(&i);
            if before > RETAINED_ALWAYS && wanted {
                self.faults[i] = self.prefix(media, *nearest, before);
            }
        }
    }

    /// One merge factor over the rollout, the first call's.
    fn one_merge_factor(&mut self) {
        let mut first: Option<(&CallId, u64)> = None;
        for (i, call) in self.calls.iter().enumerate() {
            let layout = self.media[i].as_ref().and_then(|(media, _)| media.layout);
            let Some(layout) = layout.filter(|_| self.faults[i].is_none()) else { continue };
            let (other, merge) = *first.get_or_insert((&call.call_id, layout.merge));
            if layout.merge != merge {
                let message = format!(
                    "its tokens stand for {0}x{0} patches each, those of call {other} for {1}x{1}",
                    layout.merge, merge
                );
                let code = Code::MediaMergeMismatch;
                self.faults[i] = Some(Fault { code, field: GEOMETRY, message });
            }
        }
    }

    /// No token that stands for media elsewhere in the rollout stands alone: a root lists all of
    /// its media, a continuation all that is new (rules 99, 100).
    fn all_covered(&mut self) {
        let media = self.media.iter().flatten().flat_map(|(media, _)| &media.geometry.images);
        let ids: BTreeSet<u64> = media.map(|image| image.token_id).collect();
        let none: &[Occurrence] = &[];
        for (i, call) in self.calls.iter().enumerate() {
            if self.faults[i].is_some() {
                continue;
            }
            let images = self.media[i].as_ref().map_or(none, |(media, _)| &media.geometry.images);
            let mut spans = images.iter().peekable();
            let carry = call.token_ids.iter().take(call.carry_len as usize);
            let mut carry = (0..).map(|n| call.prev_len.saturating_add(n)).zip(carry);
            let alone = carry.find(|&(at, &token)| {
                while spans.next_if(|span| span.offset + span.length <= at).is_some() {}
                ids.contains(&u64::from(token)) && spans.peek().is_none_or(|span| at < span.offset)
            });
            if let Some((at, token)) = alone {
                let message = format!(
                    "token {at} is {token}, which stands for media, and no occurrence covers it"
                );
                let code = Code::MediaUncovered;
                self.faults[i] = Some(Fault { code, field: GEOMETRY, message });
            }
        }
    }
}
