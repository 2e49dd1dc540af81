//! What a key changes.

use ratatui::crossterm::event::KeyCode;

use super::{Effect, State};
use crate::explain::Verdict;
use crate::inspect::cursor::Cursor;
use crate::inspect::keys::{self, Action, Key};
use crate::inspect::screen::{Loaded, OpenTokens, RolloutScreen, Screen};
use crate::inspect::tokens::TokensScreen;

/// How far a cursor goes: down, or up where negative.
#[derive(Clone, Copy)]
enum By {
    Lines(isize),
    Screens(isize),
}

impl State {
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
            Action::Up => self.step(By::Lines(-1)),
            Action::Down => self.step(By::Lines(1)),
            Action::PageUp => self.step(By::Screens(-1)),
            Action::PageDown => self.step(By::Screens(1)),
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

    pub(super) fn on_tokens(&mut self, change: impl FnOnce(&mut TokensScreen)) {
        if let Some(OpenTokens { screen: Loaded::Here(Some(tokens)), .. }) = &mut self.tokens {
            change(tokens);
        }
    }

    fn step(&mut self, by: By) {
        let on = |cursor: &mut Cursor, count| match by {
            By::Lines(lines) => cursor.step(lines, count),
            By::Screens(screens) => cursor.turn(screens, count),
        };
        match (self.screen(), &mut self.rollout) {
            (Screen::Rollouts, _) => {
                let count = self.listing.count();
                on(&mut self.listing.cursor, count);
            }
            (Screen::Rollout, Some(rollout)) => {
                let count = rollout.calls().len();
                on(&mut rollout.cursor, count);
                rollout.details = 0;
            }
            (Screen::Findings, Some(rollout)) => {
                let count = rollout.findings();
                on(&mut rollout.finding, count);
            }
            (Screen::Tokens, _) => self.on_tokens(|tokens| match by {
                By::Lines(lines) => tokens.move_lines(lines),
                By::Screens(screens) => tokens.turn(screens),
            }),
            (Screen::Help, _) => on(&mut self.help, usize::MAX),
            _ => {}
        }
    }

    fn jump(&mut self, last: bool) {
        match self.screen() {
            Screen::Tokens => {
                self.on_tokens(|tokens| tokens.go_to(if last { usize::MAX } else { 0 }));
            }
            _ => self.step(By::Lines(if last { isize::MAX } else { isize::MIN })),
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
}
