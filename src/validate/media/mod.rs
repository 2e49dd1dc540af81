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
const RETAINED_ALWAYS: usize = if cfg!(test) { 32 } else { 1024 };

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Dtype, MediaFlags, MediaTensor, Mode, Origin, Piece, TensorContent};
    use crate::id::Digest32;
    use crate::wire::media::{SIZES, geometry, metadata_digests};

    /// One image of a patch and a token per call, each call continuing the one before.
    fn chain(length: u64) -> Vec<Call> {
        let mut brought = Vec::new();
        let mut calls = Vec::new();
        for n in 0..length {
            let offset = 2 * n;
            let prefix = prefix_digest(brought.iter()).unwrap();
            let extras = format!(
                r#"{{"cc_image_geometry":{{"prefix_digest":"{prefix}","images":[
                    {{"offset":{offset},"length":1,"height":2,"width":2,"token_id":9}}]}}}}"#
            );
            brought.extend(geometry(Some(&extras)).unwrap().unwrap().images);
            let [metadata_digest, _] = metadata_digests(Some(&extras)).unwrap();
            let tensor = |field: &str, dtype, shape: [u64; 2], content| MediaTensor {
                field: field.to_owned(),
                dtype,
                shape: shape.to_vec(),
                content,
            };
            let pixels = vec![Piece { digest: Digest32([0; 32]), bytes: 24 }];
            let sizes = [2, 0, 0, 0].repeat(2);
            calls.push(Call {
                call_id: format!("c{n}").into(),
                capture_key: "s".into(),
                source_capture_key: None,
                parent_call_id: n.checked_sub(1).map(|n| format!("c{n}").into()),
                mode: if n == 0 { Mode::Text } else { Mode::TokenIn },
                prev_len: offset,
                delta_len: 2,
                cum_len: offset + 2,
                weight_version: None,
                token_ids: vec![9, 5],
                carry_len: 1,
                generation_logprobs: vec![-1.0],
                raw_columns: None,
                commitment: None,
                entry_digest: None,
                media: Some(MediaFlags { present: true, has_frames: false, metadata_digest }),
                tensors: vec![
                    tensor(IMGS, Dtype::F16, [1, 12], TensorContent::Pieces(pixels)),
                    tensor(SIZES, Dtype::I32, [1, 2], TensorContent::Inline(sizes)),
                ],
                extras: Some(extras),
                origin: Origin::default(),
            });
        }
        calls
    }

    /// The chain, of which some calls say something else of what came before.
    fn wrong(calls: &[Call], numbers: &[u64]) -> Vec<Call> {
        let mut calls = calls.to_vec();
        for &n in numbers {
            let call = &mut calls[n as usize];
            let extras = call.extras.as_deref().unwrap();
            let said = geometry(Some(extras)).unwrap().unwrap().prefix_digest.to_string();
            let extras = extras.replace(&said, &"7".repeat(64));
            let [metadata_digest, _] = metadata_digests(Some(&extras)).unwrap();
            call.extras = Some(extras);
            call.media = Some(MediaFlags { metadata_digest, ..call.media.unwrap() });
        }
        calls
    }

    /// Calls in any order, and what is found, by number of call.
    fn found(calls: &[Call], cumulative: Cumulative) -> Vec<(usize, Code)> {
        let mut shuffled: Vec<&Call> = calls.iter().collect();
        shuffled.sort_by_key(|call| blake3::hash(call.call_id.as_str().as_bytes()).to_hex());
        let mut found: Vec<(usize, Code)> = check(&shuffled, cumulative)
            .into_iter()
            .map(|problem| {
                let number = calls.iter().position(|call| std::ptr::eq(call, problem.call));
                (number.unwrap(), problem.code)
            })
            .collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn every_prefix_digest_of_a_chain_is_checked_and_the_last_of_a_long_one() {
        use Cumulative::{All, Endpoints};
        const LAST: u64 = RETAINED_ALWAYS as u64 + 3;
        let calls = chain(LAST + 1);
        let only = |n: u64| vec![(n as usize, Code::MediaPrefixMismatch)];
        assert_eq!(found(&calls, All), []);
        // Below a wrong call nothing more is said.
        assert_eq!(found(&wrong(&calls, &[3, 9, LAST]), All), only(3));
        for (n, endpoints) in [(LAST - 1, vec![]), (LAST, only(LAST)), (LAST - 3, only(LAST - 3))] {
            let calls = wrong(&calls, &[n]);
            assert_eq!((found(&calls, Endpoints), found(&calls, All)), (endpoints, only(n)), "{n}");
        }
    }

    #[test]
    fn a_call_without_its_parent_is_checked_by_itself() {
        let mut calls = wrong(&chain(4), &[3]);
        assert_eq!(found(&calls[1..], Cumulative::All), []);
        calls[2].token_ids[0] = 8;
        assert_eq!(found(&calls, Cumulative::All), [(2, Code::MediaTokenMismatch)]);
    }

    #[test]
    fn numbers_at_the_end_of_their_range_are_faults() {
        let mut calls = chain(1);
        for carry_len in [1, 2] {
            let call = &mut calls[0];
            (call.prev_len, call.cum_len, call.carry_len) = (u64::MAX - 1, u64::MAX, carry_len);
            let wrong = found(&calls, Cumulative::All);
            assert_eq!(wrong, [(0, Code::MediaSpanOutsidePrompt)]);
        }
        let mut text = chain(1).remove(0);
        (text.extras, text.media, text.tensors) = (None, None, Vec::new());
        (text.call_id, text.carry_len) = ("t".into(), 2);
        (text.prev_len, text.cum_len, text.token_ids) = (u64::MAX - 1, u64::MAX, vec![5, 9]);
        let calls = [chain(1).remove(0), text];
        assert_eq!(found(&calls, Cumulative::All), [(1, Code::MediaUncovered)]);
    }
}
