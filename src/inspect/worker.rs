//! The thread that reads and judges while the screen goes on.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::source::{
    Looked, Place, RolloutDocument, Source, TokensDocument, call_document, rollout_document, slot,
    tokens_document,
};
use crate::archive::Known;
use crate::error::{Error, Result};
use crate::explain::{CallFate, RolloutLine, View};
use crate::id::{CallId, GroupId, RolloutId};

/// Something to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Who is in a part.
    Known(usize),
    /// Whether all parts hold what the manifest says.
    Check,
    /// The lines of a part.
    Lines(usize),
    /// Calls of a part whose ids hold this text, in lower case.
    Find(usize, String),
    /// A rollout.
    Rollout(Place),
    /// A call.
    Call(Place, CallId),
    /// The tokens of a call.
    Tokens(Place, CallId),
}

impl Job {
    fn place(&self) -> Option<&Place> {
        match self {
            Job::Rollout(place) | Job::Call(place, _) | Job::Tokens(place, _) => Some(place),
            Job::Known(_) | Job::Check | Job::Lines(_) | Job::Find(..) => None,
        }
    }

    fn is_of(&self, group_id: &GroupId) -> bool {
        self.place().is_some_and(|place| place.group_id == *group_id)
    }
}

/// What was read.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Who is in the part.
    Known(Vec<Known>),
    /// The parts hold what the manifest says.
    Checked,
    /// The lines of the part.
    Lines(Vec<RolloutLine>),
    /// Calls with their rollouts.
    Found(Vec<(RolloutId, CallId)>),
    /// The rollout.
    Rollout(Box<RolloutDocument>),
    /// The call; `None` when the rollout has no such call.
    Call(Option<Box<CallFate>>),
    /// Its tokens; `None` when its chain is not whole.
    Tokens(Option<Box<TokensDocument>>),
}

/// A job with what came of it: an answer, or why there is none, in words.
#[derive(Clone, Debug)]
pub struct Reply {
    /// What was asked.
    pub job: Job,
    /// What came of it.
    pub answer: Result<Answer, String>,
}

/// What is wanted, the most urgent first. Each list replaces the one before.
#[derive(Default)]
struct Desk {
    jobs: VecDeque<Job>,
    /// Replies that whoever made the list had seen.
    seen: u64,
    /// Jobs done since, with the number of their reply: a list made before the reply came asks again.
    done: VecDeque<(u64, Job)>,
    replies: u64,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    desk: Mutex<Desk>,
    changed: Condvar,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // No code panics while it holds the desk.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    /// The most urgent job that is not done.
    fn first(&mut self) -> Option<&Job> {
        while let Some(job) = self.jobs.front() {
            match self.done.iter().any(|(_, done)| done == job) {
                true => drop(self.jobs.pop_front()),
                false => break,
            }
        }
        self.jobs.front()
    }
}

/// The worker, as the screen sees it.
pub struct Worker {
    shared: Arc<Shared>,
    replies: Receiver<Reply>,
    seen: u64,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts to read from `source`.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn start(source: impl Source + 'static) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (sender, replies) = channel();
        let theirs = shared.clone();
        let thread = Builder::new()
            .name("reader".to_owned())
            .spawn(move || work(source, &theirs, &sender))
            .map_err(|e| Error::io("cannot start a thread for", "the reader", e))?;
        Ok(Self { shared, replies, seen: 0, thread: Some(thread) })
    }

    /// Replaces what is wanted.
    pub fn want(&self, jobs: Vec<Job>) {
        let mut desk = self.shared.desk();
        desk.jobs = jobs.into();
        desk.seen = self.seen;
        let seen = desk.seen;
        desk.done.retain(|(number, _)| *number > seen);
        self.shared.changed.notify_all();
    }

    /// What came since the last time.
    pub fn replies(&mut self) -> Vec<Reply> {
        let replies: Vec<Reply> = self.replies.try_iter().collect();
        self.seen += replies.len() as u64;
        replies
    }

    /// Waits for one reply; `None` when the reader has ended.
    pub fn wait(&mut self) -> Option<Reply> {
        let reply = self.replies.recv().ok()?;
        self.seen += 1;
        Some(reply)
    }

    /// Whether the reader has ended, which it does by a panic alone.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Worker {
    /// The reader ends after the job at hand; nobody waits for it.
    fn drop(&mut self) {
        self.shared.desk().closed = true;
        self.shared.changed.notify_all();
        drop(self.thread.take());
    }
}

fn work(mut source: impl Source, shared: &Shared, replies: &Sender<Reply>) {
    while let Some(job) = next(shared, |_| true) {
        let Some(place) = job.place().cloned() else {
            let answer = whole(|| plain(&mut source, &job));
            send(shared, replies, job, answer);
            continue;
        };
        // The view of a group stays for as long as jobs ask for it.
        let mut open = Some(job);
        let ended = whole(|| {
            source.view(&place, &mut |view, looked| {
                while let Some(job) = open.clone() {
                    let answer = of_view(view, &job, looked);
                    open = None;
                    send(shared, replies, job, answer);
                    open = next(shared, |job| job.is_of(&place.group_id));
                }
            })
        });
        if let (Err(error), Some(job)) = (ended, open) {
            send(shared, replies, job, Err(error));
        }
    }
}

/// Waits for a job and takes it if it is `wanted`; `None` if the first one is not, or at the end.
fn next(shared: &Shared, wanted: impl Fn(&Job) -> bool) -> Option<Job> {
    let mut desk = shared.desk();
    loop {
        if desk.closed {
            return None;
        }
        match desk.first() {
            Some(job) if wanted(job) => return desk.jobs.pop_front(),
            Some(_) => return None,
            None => {}
        }
        desk = shared.changed.wait(desk).unwrap_or_else(PoisonError::into_inner);
    }
}

fn send(shared: &Shared, replies: &Sender<Reply>, job: Job, answer: Result<Answer>) {
    let mut desk = shared.desk();
    desk.replies += 1;
    let number = desk.replies;
    desk.done.push_back((number, job.clone()));
    // Nobody listens any more once the screen is gone.
    let _ = replies.send(Reply { job, answer: answer.map_err(|error| in_words(&error)) });
}

/// What a panic says is what a reader is told: one bad part must not end the screen.
fn whole<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let what = text.unwrap_or_else(|| "it panicked".to_owned());
        Err(Error::format(format!("a defect of forestctl: {what}")))
    })
}

fn in_words(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(because) = cause {
        text += &format!(": {because}");
        cause = because.source();
    }
    text + &error.advice().map(|help| format!(". {help}")).unwrap_or_default()
}

fn plain(source: &mut impl Source, job: &Job) -> Result<Answer> {
    Ok(match job {
        Job::Known(part) => Answer::Known(source.known(*part)?),
        Job::Lines(part) => Answer::Lines(source.lines(*part)?),
        Job::Find(part, text) => {
            let mut found = source.call_ids(*part)?;
            found.retain(|(_, call)| call.as_str().to_lowercase().contains(text));
            Answer::Found(found)
        }
        _ => {
            source.check()?;
            Answer::Checked
        }
    })
}

fn of_view(view: &View<'_>, job: &Job, looked: &Looked<'_>) -> Result<Answer> {
    let of = |rollout_id: &RolloutId| {
        slot(view, rollout_id).ok_or_else(|| {
            Error::format(format!("rollout {rollout_id} is not in its group"))
                .help("The archive was changed while it was read; open it again")
        })
    };
    Ok(match job {
        Job::Rollout(at) => {
            Answer::Rollout(Box::new(rollout_document(of(&at.rollout_id)?, looked)))
        }
        Job::Call(at, call) => {
            Answer::Call(call_document(of(&at.rollout_id)?, call, looked).map(Box::new))
        }
        Job::Tokens(at, call) => {
            Answer::Tokens(tokens_document(of(&at.rollout_id)?, call, looked).map(Box::new))
        }
        Job::Known(_) | Job::Check | Job::Lines(_) | Job::Find(..) => {
            return Err(Error::format("asked of a group what it does not hold"));
        }
    })
}
