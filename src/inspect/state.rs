//! Which screen is shown and what is chosen on it; what a key changes, and what has to be read.

use ratatui::crossterm::event::KeyCode;

use super::cursor::Cursor;
use super::keys::{self, Action, Key};
use super::listing::{Entry, Listing};
use super::source::{Place, RolloutDocument};
use super::tokens::TokensScreen;
use super::worker::{Answer, Job, Reply};
use crate::archive::Counts;
use crate::explain::words::{self, short};
use crate::explain::{CallFate, Drawing, TreeCall, Verdict, leaving};
use crate::id::{CallId, RolloutId};

/// Branches within branches that are drawn.
const DEEPEST: usize = 12;

/// One screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Screen {
    /// All rollouts.
    Rollouts,
    /// One rollout: its calls as a tree.
    Rollout,
    /// Reasons and findings of a rollout.
    Findings,
    /// Tokens of a call.
    Tokens,
    /// All keys and marks.
    Help,
}

impl Screen {
    /// All of them.
    pub const ALL: [Screen; 5] =
        [Screen::Rollouts, Screen::Rollout, Screen::Findings, Screen::Tokens, Screen::Help];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Screen::Rollouts => "rollouts",
            Screen::Rollout => "calls",
            Screen::Findings => "findings",
            Screen::Tokens => "tokens",
            Screen::Help => "help",
        }
    }
}

/// Something that is read while the screen is shown.
#[derive(Clone, Debug, Default)]
pub enum Loaded<T> {
    /// Not yet.
    #[default]
    Waiting,
    /// Here.
    Here(T),
    /// Why not, in words.
    Fault(String),
}

impl<T> Loaded<T> {
    fn from(answer: Result<T, String>) -> Self {
        answer.map_or_else(Loaded::Fault, Loaded::Here)
    }

    /// The value, if it is here.
    pub fn get(&self) -> Option<&T> {
        match self {
            Loaded::Here(value) => Some(value),
            _ => None,
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(self, Loaded::Waiting)
    }
}

/// The rollout that is open.
#[derive(Clone, Debug)]
pub struct RolloutScreen {
    /// Where it is.
    pub place: Place,
    /// What is told of it.
    pub document: Loaded<Box<RolloutDocument>>,
    /// The chosen call.
    pub cursor: Cursor,
    /// What is told of the chosen call, by its id; `None` inside when it is not the rollout's.
    pub call: Option<(CallId, Loaded<Option<Box<CallFate>>>)>,
    /// The first line of the details that is shown.
    pub details: usize,
    /// The chosen finding.
    pub finding: Cursor,
    /// How its tree is drawn.
    pub drawing: Drawing,
    /// How each root leaves what went before: its kind, and the rest in words.
    pub roots: Vec<Option<(String, String)>>,
    /// Its rows in words.
    pub rows: Vec<String>,
    /// A call to choose once the document is here.
    wanted: Option<CallId>,
}

impl RolloutScreen {
    fn new(place: Place, wanted: Option<CallId>) -> Self {
        Self {
            place,
            document: Loaded::Waiting,
            cursor: Cursor::default(),
            call: None,
            details: 0,
            finding: Cursor::default(),
            drawing: Drawing::default(),
            roots: Vec::new(),
            rows: Vec::new(),
            wanted,
        }
    }

    /// Calls of the tree; none before it is here.
    pub fn calls(&self) -> &[TreeCall] {
        self.document.get().map_or(&[], |document| &document.tree.calls)
    }

    /// The chosen call.
    pub fn chosen(&self) -> Option<&TreeCall> {
        self.calls().get(self.cursor.at)
    }

    /// Lines of the screen of findings: reasons, then findings.
    pub fn findings(&self) -> usize {
        self.document.get().map_or(0, |d| d.fate.masked.len() + d.findings_beyond().len())
    }

    /// The call that the chosen reason or finding speaks of.
    fn call_of_finding(&self) -> Option<CallId> {
        let document = self.document.get()?;
        let masked = &document.fate.masked;
        match self.finding.at.checked_sub(masked.len()) {
            None => masked.get(self.finding.at)?.call_ids.first().cloned(),
            Some(finding) => document.findings_beyond().get(finding)?.call_id.clone(),
        }
    }

    fn choose(&mut self, at: usize) {
        self.cursor.at = at;
        self.details = 0;
    }

    fn choose_call(&mut self, id: &CallId) -> bool {
        let at = self.calls().iter().position(|call| call.call_id == *id);
        at.into_iter().for_each(|at| self.choose(at));
        at.is_some()
    }
}

/// The tokens that are open.
#[derive(Clone, Debug)]
pub struct OpenTokens {
    /// Their call.
    pub call_id: CallId,
    /// The screen; `None` inside when the chain is not whole.
    pub screen: Loaded<Option<Box<TokensScreen>>>,
}

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
        rollout.document = Loaded::from(answer.and_then(|answer| match answer {
            Answer::Rollout(document) => Ok(document),
            _ => Err("another answer than was asked for".to_owned()),
        }));
        if let Some(document) = rollout.document.get() {
            let tree = &document.tree;
            let name = short(tree.calls.iter().map(|call| &call.call_id));
            let roots = 0..tree.roots.len();
            rollout.roots = roots.map(|root| leaving(tree, root, &name)).collect();
            rollout.rows = tree.rows.iter().map(|row| words::row(row, &name)).collect();
            rollout.drawing = Drawing::new(tree, name, DEEPEST);
        }
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

    /// What a key changes.
    pub fn press(&mut self, key: Key) -> Effect {
        self.message = None;
        if let Some(typed) = self.prompt.take() {
            if key != Key::Ctrl('c') {
                self.type_on(typed, key);
                self.follow();
            }
            return Effect::None;
        }
        let Some(action) = keys::action(self.screen(), key) else { return Effect::None };
        // A search that reads on ends with the next thing that is done.
        if self.hunt.take().is_some() && action == Action::Back {
            return Effect::None;
        }
        let effect = self.act(action);
        self.follow();
        effect
    }

    fn type_on(&mut self, mut typed: String, key: Key) {
        match key {
            Key::Plain(KeyCode::Enter) => {
                if !typed.is_empty() {
                    self.query = typed;
                }
                return self.search(true);
            }
            Key::Plain(KeyCode::Esc) => return,
            Key::Plain(KeyCode::Backspace) if typed.pop().is_none() => return,
            Key::Ctrl('u') => typed.clear(),
            Key::Plain(KeyCode::Char(letter)) => typed.push(letter),
            _ => {}
        }
        self.prompt = Some(typed);
    }

    fn act(&mut self, action: Action) -> Effect {
        match action {
            Action::Up => self.step(-1),
            Action::Down => self.step(1),
            Action::PageUp => self.turn(-1),
            Action::PageDown => self.turn(1),
            Action::First => self.jump(false),
            Action::Last => self.jump(true),
            Action::Left => self.on_tokens(|tokens| tokens.step(-1)),
            Action::Right => self.on_tokens(|tokens| tokens.step(1)),
            Action::NextStretch => self.on_tokens(|tokens| {
                tokens.next_stretch(true, |_| true);
            }),
            Action::PreviousStretch => {
                self.on_tokens(|tokens| {
                    tokens.next_stretch(false, |_| true);
                });
            }
            Action::Open => self.go_in(),
            Action::Back => self.go_back(),
            Action::Findings => self.stack.push(Screen::Findings),
            Action::NextFinding => self.seek(true),
            Action::PreviousFinding => self.seek(false),
            Action::Search => self.prompt = Some(String::new()),
            Action::NextHit => self.search(true),
            Action::PreviousHit => self.search(false),
            Action::Filter => {
                let next = match self.listing.filter() {
                    None => Some(Verdict::Masked),
                    Some(Verdict::Masked) => Some(Verdict::Dropped),
                    Some(Verdict::Dropped) => Some(Verdict::Valid),
                    Some(Verdict::Valid) => None,
                };
                self.listing.set_filter(next);
            }
            Action::DetailsUp | Action::DetailsDown => {
                let on = |line: usize| match action {
                    Action::DetailsUp => line.saturating_sub(1),
                    _ => line.saturating_add(1),
                };
                match (self.screen(), &mut self.rollout) {
                    (Screen::Rollout, Some(rollout)) => rollout.details = on(rollout.details),
                    (_, _) => self.on_tokens(|tokens| tokens.details = on(tokens.details)),
                }
            }
            Action::Copy => {
                if let Some(id) = self.chosen_id() {
                    self.message = Some(format!("copied {id}"));
                    return Effect::Copy(id);
                }
            }
            Action::Help => match self.screen() {
                Screen::Help => self.go_back(),
                _ => self.stack.push(Screen::Help),
            },
            Action::Quit => return Effect::Quit,
        }
        Effect::None
    }

    /// The id of what is chosen; of a token `CALL:TOKEN`, as `why` takes it.
    fn chosen_id(&self) -> Option<String> {
        match self.screen() {
            Screen::Rollouts => Some(self.listing.chosen()?.rollout_id.to_string()),
            Screen::Rollout => Some(self.rollout.as_ref()?.chosen()?.call_id.to_string()),
            Screen::Findings => {
                let rollout = self.rollout.as_ref()?;
                let call = rollout.call_of_finding().map(|call| call.to_string());
                Some(call.unwrap_or_else(|| rollout.place.rollout_id.to_string()))
            }
            Screen::Tokens => {
                let tokens = self.tokens.as_ref()?;
                let at = tokens.screen.get()?.as_ref()?.at;
                Some(format!("{}:{at}", tokens.call_id))
            }
            Screen::Help => None,
        }
    }

    fn on_tokens(&mut self, change: impl FnOnce(&mut TokensScreen)) {
        if let Some(OpenTokens { screen: Loaded::Here(Some(tokens)), .. }) = &mut self.tokens {
            change(tokens);
        }
    }

    fn step(&mut self, lines: isize) {
        match (self.screen(), &mut self.rollout) {
            (Screen::Rollouts, _) => {
                let count = self.listing.count();
                self.listing.cursor.step(lines, count);
            }
            (Screen::Rollout, Some(rollout)) => {
                let count = rollout.calls().len();
                rollout.cursor.step(lines, count);
                rollout.details = 0;
            }
            (Screen::Findings, Some(rollout)) => {
                let count = rollout.findings();
                rollout.finding.step(lines, count);
            }
            (Screen::Tokens, _) => self.on_tokens(|tokens| tokens.move_lines(lines)),
            (Screen::Help, _) => self.help.step(lines, usize::MAX),
            _ => {}
        }
    }

    fn turn(&mut self, pages: isize) {
        match (self.screen(), &mut self.rollout) {
            (Screen::Rollouts, _) => {
                let count = self.listing.count();
                self.listing.cursor.turn(pages, count);
            }
            (Screen::Rollout, Some(rollout)) => {
                let count = rollout.calls().len();
                rollout.cursor.turn(pages, count);
                rollout.details = 0;
            }
            (Screen::Findings, Some(rollout)) => {
                let count = rollout.findings();
                rollout.finding.turn(pages, count);
            }
            (Screen::Tokens, _) => self.on_tokens(|tokens| tokens.turn(pages)),
            (Screen::Help, _) => self.help.turn(pages, usize::MAX),
            _ => {}
        }
    }

    fn jump(&mut self, last: bool) {
        match self.screen() {
            Screen::Tokens => {
                self.on_tokens(|tokens| tokens.go_to(if last { usize::MAX } else { 0 }));
            }
            _ => self.step(if last { isize::MAX } else { isize::MIN }),
        }
    }

    fn go_in(&mut self) {
        match self.screen() {
            Screen::Rollouts => {
                let Some(place) = self.listing.chosen() else { return };
                // The same rollout is as it was left.
                if self.rollout.as_ref().is_none_or(|rollout| rollout.place != place) {
                    self.rollout = Some(RolloutScreen::new(place, None));
                    self.tokens = None;
                }
                self.stack.push(Screen::Rollout);
            }
            Screen::Rollout => {
                let call = self.rollout.as_ref().and_then(RolloutScreen::chosen);
                let Some(call_id) = call.map(|call| call.call_id.clone()) else { return };
                if self.tokens.as_ref().is_none_or(|tokens| tokens.call_id != call_id) {
                    self.tokens = Some(OpenTokens { call_id, screen: Loaded::Waiting });
                }
                self.stack.push(Screen::Tokens);
            }
            Screen::Findings => {
                let Some(rollout) = &mut self.rollout else { return };
                match rollout.call_of_finding() {
                    Some(call) if rollout.choose_call(&call) => {
                        self.stack.retain(|screen| *screen == Screen::Rollout);
                    }
                    Some(call) => self.message = Some(format!("call {call} is not in the tree")),
                    None => self.message = Some("it speaks of no single call".to_owned()),
                }
            }
            Screen::Tokens | Screen::Help => {}
        }
    }

    fn go_back(&mut self) {
        if self.stack.pop().is_none() {
            self.listing.set_filter(None);
        }
        // A rollout that was named from the start is chosen in the list too.
        if let (Screen::Rollouts, Some(rollout)) = (self.screen(), &self.rollout) {
            self.listing.go_to(rollout.place.part, &rollout.place.rollout_id);
        }
    }

    fn seek(&mut self, forward: bool) {
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
                        let untrained = stretch.part == crate::explain::Part::Generation
                            && stretch.fate.loss_in.is_none();
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

    fn search(&mut self, forward: bool) {
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
