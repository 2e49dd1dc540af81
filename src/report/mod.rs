//! Findings as text: one renderer per format, and what the user makes of their severities.

mod github;
mod human;
mod json;
mod junit;
mod levels;
mod outcome;
mod sarif;
#[cfg(test)]
mod testing;
mod thousands;
mod visible;

pub use github::github;
pub use human::human;
pub use json::{Checked, FindingsDocument, FindingsLine, Selected, Summary};
pub use junit::junit;
pub use levels::{Level, Levels, Subject, Tally};
pub use outcome::Outcome;
pub use sarif::sarif;
pub use thousands::thousands;
pub use visible::visible;
