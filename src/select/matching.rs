//! Tiling the returned history with whole captured generations.
//!
//! Every run of generated items must be a sequence of whole generations (rule 60), each used once.
//! Where content alone leaves a choice, three sound arguments decide, in turn: a call used
//! elsewhere is spent; as many positions as calls that fit them take all of these, in commit
//! order; and a call from which an identified one descends is the one meant. What is left open
//! after that is ambiguous; nothing is guessed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Reason;
use super::evidence::Evidence;
use super::index::{Index, agrees, ancestry, names};
use crate::finding::Code;
use crate::id::{CallId, Digest32};

/// Candidates that are kept for one rollout. Equal answers without ids make their number grow with
/// its square.
const CANDIDATES: usize = 1 << 22;

/// A call that fits at a position, and the items that it takes.
type Candidate = (usize, usize);

/// The identified calls by first item, and what could not be identified.
#[derive(Debug, Default)]
pub struct Matching {
    /// Position of the first item -> call.
    pub calls: BTreeMap<usize, usize>,
    /// Why the rest is not identified.
    pub problems: Vec<Reason>,
}

/// Identifies the calls of the history in `evidence`. `scored` is known to be part of it, and so
/// are those that are `referenced`, if any.
pub fn identify(
    evidence: &Evidence,
    index: &Index,
    scored: Option<usize>,
    referenced: &BTreeSet<usize>,
) -> Matching {
    let mut tiling = Tiling {
        evidence,
        index,
        referenced,
        candidates: vec![Vec::new(); evidence.items.len()],
        open: Vec::new(),
        decided: BTreeMap::new(),
        problems: Vec::new(),
        size: 0,
    };
    for (i, run) in evidence.runs.iter().enumerate() {
        if tiling.contradicted(run.clone()) {
            continue;
        }
        if tiling.fill(run.clone()) && tiling.close_envelope(i) {
            tiling.open.push(i);
        }
    }
    while tiling.step(scored) {}
    tiling.report_ambiguity();
    Matching { calls: tiling.positions(), problems: tiling.problems }
}

struct Tiling<'a> {
    evidence: &'a Evidence,
    index: &'a Index<'a>,
    referenced: &'a BTreeSet<usize>,
    /// By position; thinned out as the argument proceeds.
    candidates: Vec<Vec<Candidate>>,
    /// Runs that can still be tiled.
    open: Vec<usize>,
    /// Call -> position.
    decided: BTreeMap<usize, usize>,
    problems: Vec<Reason>,
    /// Candidates found so far.
    size: usize,
}

impl Tiling<'_> {
    /// Finds what fits where in a run; false when that is more than can be kept.
    fn fill(&mut self, run: Range<usize>) -> bool {
        for at in run.clone() {
            self.candidates[at] = self.index.whole_at(&self.evidence.items[at..run.end]);
            if self.candidates[at].iter().any(|(call, _)| self.referenced.contains(call)) {
                self.candidates[at].retain(|(call, _)| self.referenced.contains(call));
            }
            self.size += self.candidates[at].len();
            if self.size > CANDIDATES {
                let item = &self.evidence.items[at];
                let message = format!("{item} is one of too many equal answers without ids");
                self.problems.push(Reason::new(Code::AmbiguousEvidence, Vec::new(), message));
                run.for_each(|at| self.candidates[at] = Vec::new());
                return false;
            }
        }
        true
    }

    /// The response that ends with run `i` says by its id which call did; false, with a report,
    /// when the content says otherwise.
    fn close_envelope(&mut self, i: usize) -> bool {
        let envelope = self.evidence.envelopes.iter().find(|(run, _)| *run == i);
        let Some((_, id)) = envelope else { return true };
        let served = self.index.served(id);
        if served.is_empty() {
            // A synthetic id.
            return true;
        }
        let run = self.evidence.runs[i].clone();
        let mut ends = false;
        for at in run.clone() {
            self.candidates[at].retain(|(call, length)| {
                let last = at + length == run.end;
                ends |= last && served.contains(call);
                !last || served.contains(call)
            });
        }
        if !ends {
            let calls = names(self.index, served.iter().copied());
            let item = &self.evidence.items[run.end - 1];
            let message = format!(
                "response {id} was served by call {}, whose generation does not end with {item}",
                listed(&calls, "and")
            );
            self.problems.push(Reason::new(Code::ContradictoryEvidence, calls, message));
            run.for_each(|at| self.candidates[at].clear());
        }
        ends
    }

    /// Reports items whose native id names one call and whose content another.
    fn contradicted(&mut self, run: Range<usize>) -> bool {
        let before = self.problems.len();
        for item in &self.evidence.items[run] {
            let owners = self.index.owners(item);
            let served = |&(call, place): &Candidate| self.index.output(call).get(place);
            let agreeing = owners.iter().filter_map(served).any(|s| agrees(item, s) != Some(false));
            if !owners.is_empty() && !agreeing {
                let calls = names(self.index, owners.iter().map(|(call, _)| *call));
                let captured = owners.iter().filter_map(served).find_map(|s| s.fingerprint);
                let digest = |digest: Option<Digest32>| {
                    digest.map_or("none".to_owned(), |digest| digest.to_string()[..12].to_owned())
                };
                let message = format!(
                    "{item} has the id of an item of call {}, and other content: fingerprint {} \
                     was returned, {} captured",
                    listed(&calls, "and"),
                    digest(item.fingerprint),
                    digest(captured),
                );
                self.problems.push(Reason::new(Code::ContradictoryEvidence, calls, message));
            }
        }
        self.problems.len() > before
    }

    /// One round of the argument; false when nothing more follows.
    fn step(&mut self, scored: Option<usize>) -> bool {
        let before: usize = self.candidates.iter().map(Vec::len).sum();
        let decided = self.decided.len();
        for i in std::mem::take(&mut self.open) {
            if self.thin_out(i) {
                self.open.push(i);
            }
        }
        let forced = self.forced();
        for &at in &forced {
            if let [(call, _)] = self.candidates[at][..] {
                self.decide(call, at);
            }
        }
        self.spend();
        let mut classes: BTreeMap<Vec<Candidate>, Vec<usize>> = BTreeMap::new();
        for at in forced {
            if self.candidates[at].len() > 1 {
                classes.entry(self.candidates[at].clone()).or_default().push(at);
            }
        }
        let known = self.decided.keys().copied().chain(scored);
        let ancestors = ancestry(&self.index.parents, known);
        for (calls, positions) in classes {
            let same_length = calls.iter().all(|(_, length)| *length == calls[0].1);
            if calls.len() <= positions.len() && same_length {
                // A position too many keeps none, and is reported as a repetition.
                for (i, at) in positions.into_iter().enumerate() {
                    self.candidates[at] = calls.get(i).copied().into_iter().collect();
                }
                continue;
            }
            let meant: Vec<_> =
                calls.iter().copied().filter(|(call, _)| ancestors[*call]).collect();
            if meant.len() >= positions.len() {
                for at in positions {
                    self.candidates[at].clone_from(&meant);
                }
            }
        }
        let after: usize = self.candidates.iter().map(Vec::len).sum();
        after < before || self.decided.len() > decided
    }

    fn decide(&mut self, call: usize, at: usize) {
        let earlier = *self.decided.entry(call).or_insert(at);
        if earlier != at {
            self.candidates[at].clear();
        }
    }

    /// A decided call fits nowhere else.
    fn spend(&mut self) {
        for (at, candidates) in self.candidates.iter_mut().enumerate() {
            candidates.retain(|(call, _)| self.decided.get(call).is_none_or(|&p| p == at));
        }
    }

    /// Drops candidates that no tiling of run `i` uses. Reports the run when none is left.
    fn thin_out(&mut self, i: usize) -> bool {
        let run = self.evidence.runs[i].clone();
        let mut reached = vec![false; run.len() + 1];
        reached[0] = true;
        let mut furthest = run.start;
        for at in run.clone() {
            if reached[at - run.start] {
                furthest = at;
                for (_, length) in &self.candidates[at] {
                    reached[at - run.start + length] = true;
                }
            } else {
                self.candidates[at].clear();
            }
        }
        if !reached[run.len()] {
            self.report_gap(furthest, run.end);
            run.for_each(|at| self.candidates[at].clear());
            return false;
        }
        let mut finishes = vec![false; run.len() + 1];
        finishes[run.len()] = true;
        for at in run.clone().rev() {
            let here = at - run.start;
            self.candidates[at].retain(|(_, length)| finishes[here + length]);
            finishes[here] = !self.candidates[at].is_empty();
        }
        true
    }

    /// Positions at which every tiling begins a generation.
    fn forced(&self) -> Vec<usize> {
        let mut forced = Vec::new();
        for &i in &self.open {
            let mut covered = self.evidence.runs[i].start;
            for at in self.evidence.runs[i].clone() {
                let longest = self.candidates[at].iter().map(|(_, length)| length).max();
                let Some(longest) = longest else { continue };
                if covered <= at {
                    forced.push(at);
                }
                covered = covered.max(at + longest);
            }
        }
        forced
    }

    /// Says why no generation fits at `at`, the furthest that a tiling gets.
    fn report_gap(&mut self, at: usize, end: usize) {
        let item = &self.evidence.items[at];
        let whole = self.index.whole_at(&self.evidence.items[at..end]);
        let spent: Vec<usize> = whole.iter().map(|(call, _)| *call).collect();
        let parts: Vec<usize> = match self.index.owners(item) {
            [] => self.index.holding(item),
            owners => owners.iter().map(|(call, _)| *call).collect(),
        };
        let (code, calls, message) = if !spent.is_empty() {
            let calls = names(self.index, spent);
            let earlier =
                calls.first().and_then(|call| self.decided.get(&self.index.number(call)?));
            let earlier = earlier.map_or_else(String::new, |&at| {
                format!(", which {} begins", self.evidence.items[at])
            });
            let message =
                format!("{item} repeats the generation of call {}{earlier}", listed(&calls, "and"));
            (Code::DuplicatedEvidence, calls, message)
        } else if !parts.is_empty() {
            let calls = names(self.index, parts);
            let message = format!(
                "{item} belongs to call {}, whose other items are missing or elsewhere",
                listed(&calls, "and")
            );
            (Code::PartialGeneration, calls, message)
        } else {
            (Code::UnmatchedEvidence, Vec::new(), format!("{item} matches no captured generation"))
        };
        self.problems.push(Reason::new(code, calls, message));
    }

    fn report_ambiguity(&mut self) {
        let mut classes: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        for (at, candidates) in self.candidates.iter().enumerate() {
            let open = candidates.iter().map(|(call, _)| *call);
            let open: Vec<usize> = open.filter(|call| !self.decided.contains_key(call)).collect();
            if !open.is_empty() {
                classes.entry(open).or_insert(at);
            }
        }
        for (open, at) in classes {
            let calls = names(self.index, open);
            let item = &self.evidence.items[at];
            let message =
                format!("{item} may be call {}, and nothing tells which", listed(&calls, "or"));
            self.problems.push(Reason::new(Code::AmbiguousEvidence, calls, message));
        }
    }

    fn positions(&self) -> BTreeMap<usize, usize> {
        self.decided.iter().map(|(&call, &at)| (at, call)).collect()
    }
}

fn listed(calls: &[CallId], word: &str) -> String {
    match calls {
        [] => "none".to_owned(),
        [one] => one.to_string(),
        [first, second] => format!("{first} {word} {second}"),
        [first, .., last] => format!("{first}, ... {word} {last} ({} calls)", calls.len()),
    }
}
