//! Screens, and what each holds.

use super::cursor::Cursor;
use super::source::{Place, RolloutDocument};
use super::tokens::TokensScreen;
use crate::explain::words::{self, short};
use crate::explain::{CallFate, Drawing, TreeCall, leaving};
use crate::id::CallId;

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
    pub(super) fn from(answer: Result<T, String>) -> Self {
        answer.map_or_else(Loaded::Fault, Loaded::Here)
    }

    /// The value, if it is here.
    pub fn get(&self) -> Option<&T> {
        match self {
            Loaded::Here(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
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
    pub(super) wanted: Option<CallId>,
}

impl RolloutScreen {
    pub(super) fn new(place: Place, wanted: Option<CallId>) -> Self {
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

    /// Shows what was read.
    pub(super) fn show(&mut self, document: Loaded<Box<RolloutDocument>>) {
        self.document = document;
        let Some(document) = self.document.get() else { return };
        let tree = &document.tree;
        let name = short(tree.calls.iter().map(|call| &call.call_id));
        self.roots = (0..tree.roots.len()).map(|root| leaving(tree, root, &name)).collect();
        self.rows = tree.rows.iter().map(|row| words::row(row, &name)).collect();
        self.drawing = Drawing::new(tree, name, DEEPEST);
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
    pub(super) fn call_of_finding(&self) -> Option<CallId> {
        let document = self.document.get()?;
        let masked = &document.fate.masked;
        match self.finding.at.checked_sub(masked.len()) {
            None => masked.get(self.finding.at)?.call_ids.first().cloned(),
            Some(finding) => document.findings_beyond().get(finding)?.call_id.clone(),
        }
    }

    pub(super) fn choose(&mut self, at: usize) {
        self.cursor.at = at;
        self.details = 0;
    }

    pub(super) fn choose_call(&mut self, id: &CallId) -> bool {
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
