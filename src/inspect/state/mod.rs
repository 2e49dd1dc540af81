//! Everything that is on screen; what has to be read for it, and what was.

mod press;
mod search;

use super::cursor::Cursor;
use super::listing::Listing;
use super::screen::{Loaded, OpenTokens, RolloutScreen, Screen};
use super::source::Place;
use super::tokens::TokensScreen;
use super::worker::{Answer, Job, Reply};
use crate::archive::Counts;
use crate::id::{CallId, RolloutId};

/// A search through parts that are not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hunt {
    /// The next rollout with a finding or a reason.
    Finding { forward: bool },
    /// A call whose id holds this; parts still to be looked through.
    Call { text: String, parts: Vec<usize> },
}

/// What the program has to do after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Put this into the clipboard.
    Copy(String),
    /// End.
    Quit,
}

/// Everything that is on screen.
#[derive(Clone, Debug)]
pub struct State {
    /// Name of the archive.
    pub archive: String,
    /// The policy, in its word.
    pub policy: String,
    /// Totals of the manifest.
    pub counts: Counts,
    /// All rollouts.
    pub listing: Listing,
    /// The rollout that is open.
    pub rollout: Option<RolloutScreen>,
    /// The tokens that are open.
    pub tokens: Option<OpenTokens>,
    /// The first line of the help that is shown.
    pub help: Cursor,
    /// What is being typed to search for.
    pub prompt: Option<String>,
    /// What came of the last key, in words.
    pub message: Option<String>,
    /// Why the archive is not what its manifest says.
    pub fault: Option<String>,
    query: String,
    stack: Vec<Screen>,
    hunt: Option<Hunt>,
    checked: bool,
}

impl State {
    /// The list of an archive whose parts hold so many rollouts each.
    pub fn new(
        archive: String,
        policy: String,
        counts: Counts,
        parts: impl IntoIterator<Item = u64>,
    ) -> Self {
        Self {
            archive,
            policy,
            counts,
            listing: Listing::new(parts),
            rollout: None,
            tokens: None,
            help: Cursor::default(),
            prompt: None,
            message: None,
            fault: None,
            query: String::new(),
            stack: Vec::new(),
            hunt: None,
            checked: false,
        }
    }

    /// Opens a rollout, with one of its calls chosen.
    pub fn open(&mut self, place: Place, call: Option<CallId>) {
        self.rollout = Some(RolloutScreen::new(place, call));
        self.tokens = None;
        self.stack = vec![Screen::Rollout];
    }

    /// The screen that is shown.
    pub fn screen(&self) -> Screen {
        self.stack.last().copied().unwrap_or(Screen::Rollouts)
    }

    /// What is being waited for, in words; `None` when nothing is.
    pub fn waits_for(&self) -> Option<String> {
        let (judged, parts) = self.listing.judged();
        match &self.hunt {
            Some(Hunt::Finding { .. }) => {
                Some(format!("looking for a finding: {judged} of {parts} parts judged"))
            }
            Some(Hunt::Call { text, parts }) => {
                Some(format!("looking for a call {text}: {} parts to go", parts.len()))
            }
            None => None,
        }
    }

    /// What has to be read, the most urgent first.
    pub fn wants(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        if let Some(rollout) = &self.rollout {
            if rollout.document.is_waiting() {
                jobs.push(Job::Rollout(rollout.place.clone()));
            }
            if let Some(OpenTokens { call_id, screen: Loaded::Waiting }) = &self.tokens {
                jobs.push(Job::Tokens(rollout.place.clone(), call_id.clone()));
            }
            if let Some((call, Loaded::Waiting)) = &rollout.call {
                jobs.push(Job::Call(rollout.place.clone(), call.clone()));
            }
        }
        if self.screen() == Screen::Rollouts {
            jobs.extend(self.listing.jobs_on_screen());
        }
        match &self.hunt {
            Some(Hunt::Finding { forward }) => {
                let parts = self.listing.unread(*forward);
                jobs.extend(parts.into_iter().flat_map(|part| self.listing.jobs_of(part)));
            }
            Some(Hunt::Call { text, parts }) => {
                jobs.extend(parts.iter().map(|&part| Job::Find(part, text.clone())));
            }
            None => {}
        }
        if self.listing.filter().is_some() {
            let parts = self.listing.unread(true);
            jobs.extend(parts.into_iter().flat_map(|part| self.listing.jobs_of(part)));
        }
        let known = jobs.len();
        jobs.extend(self.listing.unknown().map(Job::Known));
        if jobs.len() == known && !self.checked && self.fault.is_none() {
            jobs.push(Job::Check);
        }
        jobs
    }

    /// Takes in what was read.
    pub fn take(&mut self, reply: Reply) {
        match (reply.job, reply.answer) {
            (Job::Known(part), Ok(Answer::Known(known))) => self.listing.take_known(part, known),
            (Job::Lines(part), Ok(Answer::Lines(lines))) => self.listing.take_lines(part, lines),
            (Job::Known(part) | Job::Lines(part), Err(fault)) => {
                self.listing.take_fault(part, fault);
            }
            (Job::Check, Ok(_)) => self.checked = true,
            (Job::Check, Err(fault)) => self.fault = Some(fault),
            (Job::Find(part, text), answer) => self.take_found(part, &text, answer),
            (Job::Rollout(place), answer) => self.take_rollout(&place, answer),
            (Job::Call(place, call), answer) => {
                let rollout = self.rollout.as_mut().filter(|rollout| rollout.place == place);
                if let Some((chosen, told)) = rollout.and_then(|rollout| rollout.call.as_mut())
                    && *chosen == call
                {
                    *told = Loaded::from(answer.map(|answer| match answer {
                        Answer::Call(fate) => fate,
                        _ => None,
                    }));
                }
            }
            (Job::Tokens(place, call), answer) => {
                let here = self.rollout.as_ref().is_some_and(|rollout| rollout.place == place);
                if let Some(tokens) = self.tokens.as_mut().filter(|t| here && t.call_id == call) {
                    tokens.screen = Loaded::from(answer.map(|answer| match answer {
                        Answer::Tokens(document) => {
                            document.map(|document| Box::new(TokensScreen::new(*document)))
                        }
                        _ => None,
                    }));
                }
            }
            _ => {}
        }
        self.follow();
    }

    fn take_rollout(&mut self, place: &Place, answer: Result<Answer, String>) {
        let Some(rollout) = self.rollout.as_mut().filter(|r| r.place == *place) else { return };
        let document = Loaded::from(answer.and_then(|answer| match answer {
            Answer::Rollout(document) => Ok(document),
            _ => Err("another answer than was asked for".to_owned()),
        }));
        rollout.show(document);
        if let Some(call) = rollout.wanted.take()
            && !rollout.choose_call(&call)
        {
            self.message = Some(format!("call {call} is not in the tree"));
        }
    }

    fn take_found(&mut self, part: usize, text: &str, answer: Result<Answer, String>) {
        let Some(Hunt::Call { text: wanted, parts }) = &mut self.hunt else { return };
        if wanted != text {
            return;
        }
        parts.retain(|open| *open != part);
        let nowhere = parts.is_empty();
        let first = match answer {
            Ok(Answer::Found(found)) => found.into_iter().next(),
            _ => None,
        };
        match first {
            Some((rollout, call)) => self.found_call(part, &rollout, &call),
            None if nowhere => {
                self.message = Some(format!("no id holds {text}"));
                self.hunt = None;
            }
            None => {}
        }
    }

    fn found_call(&mut self, part: usize, rollout: &RolloutId, call: &CallId) {
        self.hunt = None;
        self.message = Some(match self.listing.go_to(part, rollout) {
            true => format!("call {call} is of rollout {rollout}"),
            false => format!("call {call} is of rollout {rollout}, which is not listed"),
        });
    }

    /// Goes on with a search once more is known, and keeps the details at the chosen call.
    fn follow(&mut self) {
        if let Some(Hunt::Finding { forward }) = self.hunt {
            self.seek(forward);
        }
        if let Some(rollout) = &mut self.rollout {
            let chosen = rollout.chosen().map(|call| call.call_id.clone());
            if rollout.call.as_ref().map(|(id, _)| id) != chosen.as_ref() {
                rollout.call = chosen.map(|id| (id, Loaded::Waiting));
            }
        }
    }
}
