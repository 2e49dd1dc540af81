//! Findings as text: one renderer per format.

mod human;
mod json;

pub use human::human;
pub use json::{Checked, FindingsDocument};
