//! To the next finding, and to what is searched for.

use super::{Hunt, State};
use crate::explain::Part;
use crate::inspect::listing::Entry;
use crate::inspect::screen::Screen;

impl State {
    pub(super) fn seek(&mut self, forward: bool) {
        let found = match (self.screen(), &mut self.rollout) {
            (Screen::Rollouts, _) => return self.seek_rollout(forward),
            (Screen::Rollout, Some(rollout)) => {
                let (at, calls) = (rollout.cursor.at, rollout.calls());
                let found = |at: &usize| !calls[*at].findings.is_empty();
                let next = match forward {
                    true => (at.saturating_add(1)..calls.len()).find(found),
                    false => (0..at.min(calls.len())).rev().find(found),
                };
                next.into_iter().for_each(|at| rollout.choose(at));
                next.is_some()
            }
            (Screen::Tokens, _) => {
                let mut found = false;
                self.on_tokens(|tokens| {
                    found = tokens.next_stretch(forward, |stretch| {
                        let untrained =
                            stretch.part == Part::Generation && stretch.fate.loss_in.is_none();
                        stretch.found || untrained
                    });
                });
                found
            }
            _ => true,
        };
        if !found {
            let way = if forward { "after" } else { "before" };
            self.message = Some(format!("no finding {way} this; w lists those of the rollout"));
        }
    }

    fn seek_rollout(&mut self, forward: bool) {
        let wanted = |entry: &Entry<'_>| {
            let line = entry.line;
            entry.fault.is_some()
                || line.is_some_and(|line| !line.findings.is_empty() || !line.reasons.is_empty())
        };
        // A part in between that is not read yet may hold a nearer one.
        let nearest = self.listing.unread(forward).first().copied();
        let next = self.listing.next(forward, wanted);
        let part = |at: usize| self.listing.entry(at).map(|entry| entry.part);
        let here = part(self.listing.cursor.at);
        match (next, nearest) {
            (Some(at), nearest)
                if nearest.is_none() || self.before(forward, (here, part(at)), at, nearest) =>
            {
                self.listing.cursor.at = at;
                self.hunt = None;
            }
            (_, Some(_)) => self.hunt = Some(Hunt::Finding { forward }),
            (_, None) => {
                self.hunt = None;
                self.message = Some("nothing was found on any listed rollout".to_owned());
            }
        }
    }

    /// Whether a walk from the cursor, in part `here`, meets line `at`, in part `found`, before it
    /// meets part `open`.
    fn before(
        &self,
        forward: bool,
        (here, found): (Option<usize>, Option<usize>),
        at: usize,
        open: Option<usize>,
    ) -> bool {
        let parts = self.listing.judged().1;
        let (Some(here), Some(found), Some(open)) = (here, found, open) else { return false };
        let steps = |part: usize| match forward {
            true => (part + parts - here) % parts,
            false => (here + parts - part) % parts,
        };
        let cursor = self.listing.cursor.at;
        let is_round = here == found && if forward { at <= cursor } else { at >= cursor };
        (if is_round { parts } else { steps(found) }) < steps(open)
    }

    pub(super) fn search(&mut self, forward: bool) {
        let query = self.query.to_lowercase();
        if query.is_empty() {
            return;
        }
        let holds = |text: &str| text.to_lowercase().contains(&query);
        let found = match (self.screen(), &mut self.rollout) {
            (Screen::Rollouts, _) => return self.search_rollouts(&query, forward),
            (Screen::Rollout, Some(rollout)) => {
                let calls = rollout.calls();
                let hit = |at: &usize| holds(calls[*at].call_id.as_str());
                let next = next_in(rollout.cursor.at, calls.len(), forward, hit);
                next.into_iter().for_each(|at| rollout.choose(at));
                next.is_some()
            }
            (Screen::Findings, Some(rollout)) => {
                let texts: Vec<String> = rollout.document.get().map_or(Vec::new(), |document| {
                    let masked = document.fate.masked.iter();
                    let masked = masked.map(|reason| format!("{} {}", reason.code, reason.message));
                    let found = document.findings_beyond().into_iter();
                    masked
                        .chain(found.map(|f| format!("{} {} {}", f.code, f.message, f.place())))
                        .collect()
                });
                let hit = |at: &usize| holds(&texts[*at]);
                let next = next_in(rollout.finding.at, texts.len(), forward, hit);
                next.into_iter().for_each(|at| rollout.finding.at = at);
                next.is_some()
            }
            (Screen::Tokens, _) => {
                let (query, mut hit) = (self.query.clone(), None);
                self.on_tokens(|tokens| {
                    hit = tokens.find(&query, forward);
                    hit.into_iter().for_each(|at| tokens.go_to(at));
                });
                hit.is_some()
            }
            _ => return,
        };
        if !found {
            self.message = Some(format!("nothing holds {}", self.query));
        }
    }

    fn search_rollouts(&mut self, query: &str, forward: bool) {
        let holds = |text: &str| text.to_lowercase().contains(query);
        let hit = |entry: &Entry<'_>| {
            entry.known.is_some_and(|known| {
                holds(known.rollout_id.as_str()) || holds(known.group_id.as_str())
            })
        };
        if let Some(at) = self.listing.next(forward, hit) {
            self.listing.cursor.at = at;
            return;
        }
        // No rollout: perhaps a call.
        let parts = (0..self.listing.judged().1).collect();
        self.hunt = Some(Hunt::Call { text: query.to_owned(), parts });
    }
}

/// The next of `count` lines that `hit` holds for, from `at` on and round the end.
fn next_in(at: usize, count: usize, forward: bool, hit: impl Fn(&usize) -> bool) -> Option<usize> {
    let step = |by: usize| if forward { (at + by) % count } else { (at + count - by) % count };
    (1..=count).map(step).find(hit)
}
