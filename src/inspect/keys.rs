//! The keys: one table that handling, the help screen and `docs/keys.md` are made from.

use std::fmt;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::screen::Screen;

/// A key as people press it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Hash)]
pub enum Key {
    /// A key without Ctrl; letters carry their own case.
    Plain(KeyCode),
    /// A letter with Ctrl.
    Ctrl(char),
}

impl Key {
    /// The key of a terminal's event; `None` where Alt or another modifier makes it a different one.
    pub fn of(event: &KeyEvent) -> Option<Self> {
        let held = event.modifiers.difference(KeyModifiers::SHIFT);
        match event.code {
            code if held.is_empty() => Some(Key::Plain(code)),
            KeyCode::Char(letter) if held == KeyModifiers::CONTROL => {
                Some(Key::Ctrl(letter.to_ascii_lowercase()))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match self {
            Key::Ctrl(letter) => return write!(f, "Ctrl-{}", letter.to_ascii_uppercase()),
            Key::Plain(code) => code,
        };
        f.write_str(match code {
            KeyCode::Char(' ') => "Space",
            KeyCode::Char(letter) => return write!(f, "{letter}"),
            KeyCode::Up => "↑",
            KeyCode::Down => "↓",
            KeyCode::Left => "←",
            KeyCode::Right => "→",
            KeyCode::PageUp => "PgUp",
            KeyCode::PageDown => "PgDn",
            KeyCode::BackTab => "Shift-Tab",
            other => return write!(f, "{other}"),
        })
    }
}

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// One line up.
    Up,
    /// One line down.
    Down,
    /// One token to the left.
    Left,
    /// One token to the right.
    Right,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// To the first.
    First,
    /// To the last.
    Last,
    /// To the next carry or generation.
    NextStretch,
    /// To the carry or generation before.
    PreviousStretch,
    /// Opens what is chosen.
    Open,
    /// Back to the screen before.
    Back,
    /// The findings of a rollout.
    Findings,
    /// To the next finding.
    NextFinding,
    /// To the finding before.
    PreviousFinding,
    /// Asks what to search for.
    Search,
    /// To the next hit.
    NextHit,
    /// To the hit before.
    PreviousHit,
    /// Lists rollouts of the next verdict only.
    Filter,
    /// Details one line up.
    DetailsUp,
    /// Details one line down.
    DetailsDown,
    /// Copies what is chosen.
    Copy,
    /// All keys.
    Help,
    /// Ends.
    Quit,
}

/// Keys of one action, where they hold, and what they do in words.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// What is done.
    pub action: Action,
    /// Any of these does it.
    pub keys: &'static [Key],
    /// On these screens.
    pub screens: &'static [Screen],
    /// A few words for the last line of a screen; empty where it is left out there.
    pub hint: &'static str,
    /// What it does.
    pub help: &'static str,
}

const ALL: &[Screen] = &Screen::ALL;
const LISTS: &[Screen] = &[Screen::Rollouts, Screen::Rollout, Screen::Findings];
const SHOWN: &[Screen] = &[Screen::Rollouts, Screen::Rollout, Screen::Findings, Screen::Tokens];
const TOKENS: &[Screen] = &[Screen::Tokens];

const fn letter(letter: char) -> Key {
    Key::Plain(KeyCode::Char(letter))
}

const fn plain(code: KeyCode) -> Key {
    Key::Plain(code)
}

/// All keys, in the order of the help screen. Of two bindings with a key on one screen there is
/// none; a test holds that.
pub const BINDINGS: &[Binding] = &[
    Binding {
        action: Action::Open,
        keys: &[plain(KeyCode::Enter), letter('l'), plain(KeyCode::Right)],
        screens: LISTS,
        hint: "open",
        help: "Open: a rollout's calls, a call's tokens, the call of a finding",
    },
    Binding {
        action: Action::Back,
        keys: &[plain(KeyCode::Esc), plain(KeyCode::Backspace), letter('h'), plain(KeyCode::Left)],
        screens: &[Screen::Rollout, Screen::Findings, Screen::Help],
        hint: "back",
        help: "Back to the screen before",
    },
    Binding {
        action: Action::Back,
        keys: &[plain(KeyCode::Esc), plain(KeyCode::Backspace)],
        screens: &[Screen::Rollouts],
        hint: "",
        help: "List all verdicts again",
    },
    Binding {
        action: Action::Back,
        keys: &[plain(KeyCode::Esc), plain(KeyCode::Backspace)],
        screens: TOKENS,
        hint: "back",
        help: "Back to the calls",
    },
    Binding {
        action: Action::Up,
        keys: &[plain(KeyCode::Up), letter('k')],
        screens: ALL,
        hint: "",
        help: "One line up",
    },
    Binding {
        action: Action::Down,
        keys: &[plain(KeyCode::Down), letter('j')],
        screens: ALL,
        hint: "",
        help: "One line down",
    },
    Binding {
        action: Action::Left,
        keys: &[plain(KeyCode::Left), letter('h')],
        screens: TOKENS,
        hint: "",
        help: "One token to the left",
    },
    Binding {
        action: Action::Right,
        keys: &[plain(KeyCode::Right), letter('l')],
        screens: TOKENS,
        hint: "",
        help: "One token to the right",
    },
    Binding {
        action: Action::NextStretch,
        keys: &[plain(KeyCode::Tab)],
        screens: TOKENS,
        hint: "next part",
        help: "To the next carry or generation",
    },
    Binding {
        action: Action::PreviousStretch,
        keys: &[plain(KeyCode::BackTab)],
        screens: TOKENS,
        hint: "",
        help: "To the carry or generation before",
    },
    Binding {
        action: Action::PageUp,
        keys: &[plain(KeyCode::PageUp), Key::Ctrl('b')],
        screens: ALL,
        hint: "",
        help: "A screen up",
    },
    Binding {
        action: Action::PageDown,
        keys: &[plain(KeyCode::PageDown), Key::Ctrl('f'), letter(' ')],
        screens: ALL,
        hint: "",
        help: "A screen down",
    },
    Binding {
        action: Action::First,
        keys: &[plain(KeyCode::Home), letter('g')],
        screens: ALL,
        hint: "",
        help: "To the first",
    },
    Binding {
        action: Action::Last,
        keys: &[plain(KeyCode::End), letter('G')],
        screens: ALL,
        hint: "",
        help: "To the last",
    },
    Binding {
        action: Action::NextFinding,
        keys: &[letter(']')],
        screens: &[Screen::Rollouts, Screen::Rollout, Screen::Tokens],
        hint: "next finding",
        help: "To the next rollout, call or part of the tokens with a finding, or without loss for a reason",
    },
    Binding {
        action: Action::PreviousFinding,
        keys: &[letter('[')],
        screens: &[Screen::Rollouts, Screen::Rollout, Screen::Tokens],
        hint: "",
        help: "The same backwards",
    },
    Binding {
        action: Action::Findings,
        keys: &[letter('w')],
        screens: &[Screen::Rollout, Screen::Tokens],
        hint: "findings",
        help: "What is wrong: reasons and findings of the rollout, with what to do",
    },
    Binding {
        action: Action::Filter,
        keys: &[letter('f')],
        screens: &[Screen::Rollouts],
        hint: "filter",
        help: "List masked rollouts only, then dropped, valid, all",
    },
    Binding {
        action: Action::Search,
        keys: &[letter('/')],
        screens: SHOWN,
        hint: "search",
        help: "Search: ids of groups, rollouts and calls, text of findings, text or id of tokens",
    },
    Binding {
        action: Action::NextHit,
        keys: &[letter('n')],
        screens: SHOWN,
        hint: "",
        help: "To the next hit",
    },
    Binding {
        action: Action::PreviousHit,
        keys: &[letter('N')],
        screens: SHOWN,
        hint: "",
        help: "To the hit before",
    },
    Binding {
        action: Action::DetailsDown,
        keys: &[letter('J')],
        screens: &[Screen::Rollout, Screen::Tokens],
        hint: "",
        help: "Details one line down",
    },
    Binding {
        action: Action::DetailsUp,
        keys: &[letter('K')],
        screens: &[Screen::Rollout, Screen::Tokens],
        hint: "",
        help: "Details one line up",
    },
    Binding {
        action: Action::Copy,
        keys: &[letter('y')],
        screens: SHOWN,
        hint: "copy id",
        help: "Copy the id of the rollout or call, or CALL:TOKEN, as `why` takes it",
    },
    Binding {
        action: Action::Help,
        keys: &[letter('?')],
        screens: ALL,
        hint: "help",
        help: "All keys and marks",
    },
    Binding {
        action: Action::Quit,
        keys: &[letter('q'), Key::Ctrl('c')],
        screens: ALL,
        hint: "quit",
        help: "Quit",
    },
];

/// What `key` does on `screen`.
pub fn action(screen: Screen, key: Key) -> Option<Action> {
    let bound =
        |binding: &&Binding| binding.screens.contains(&screen) && binding.keys.contains(&key);
    BINDINGS.iter().find(bound).map(|binding| binding.action)
}

/// Keys that hold on `screen`.
pub fn of(screen: Screen) -> impl Iterator<Item = &'static Binding> {
    BINDINGS.iter().filter(move |binding| binding.screens.contains(&screen))
}

impl Binding {
    /// Its keys in words.
    pub fn told(&self) -> String {
        self.keys.iter().map(Key::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// `docs/keys.md`.
pub fn document() -> String {
    let mut text = String::from(
        "# Keys of inspect\n\n\
         The help screen (`?`) shows the same. This file is generated from `src/inspect/keys.rs`.\n\n\
         | keys | on | what they do |\n|---|---|---|\n",
    );
    for binding in BINDINGS {
        let keys: Vec<String> = binding.keys.iter().map(|key| format!("`{key}`")).collect();
        let screens = match binding.screens.len() == Screen::ALL.len() {
            true => "every screen".to_owned(),
            false => {
                let names: Vec<&str> = binding.screens.iter().map(|s| s.as_str()).collect();
                names.join(", ")
            }
        };
        text += &format!("| {} | {screens} | {} |\n", keys.join(" "), binding.help);
    }
    text
}
