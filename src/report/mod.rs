//! Findings as text: one renderer per format.

mod human;
mod json;
mod visible;

pub use human::human;
pub use json::{Checked, FindingsDocument};
pub use visible::visible;
