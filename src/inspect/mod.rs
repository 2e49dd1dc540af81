//! A browser of an archive, without the terminal: what is shown, what keys change, what is read.
//!
//! A [`State`] holds the screens. Keys change it by one table ([`keys`]); what it lacks it
//! [wants](State::wants) from a [`Worker`], which reads a [`Source`] on a thread of its own, so that
//! no screen waits for the archive. [`draw`] puts it on a frame. The terminal is `cli`'s.

mod cursor;
mod draw;
pub mod keys;
mod listing;
mod screen;
mod source;
mod state;
mod tokens;
mod worker;

pub use cursor::Cursor;
pub use draw::{SMALLEST, Theme, draw};
pub use listing::{Entry, Listing};
pub use screen::{Loaded, OpenTokens, RolloutScreen, Screen};
pub use source::{
    Looked, Place, RolloutDocument, Source, StretchDocument, TokensDocument, tokens_document,
};
pub use state::{Effect, State};
pub use tokens::{HEAT, Heat, Line, TokensScreen, heat};
pub use worker::{Answer, Job, Reply, Worker};
