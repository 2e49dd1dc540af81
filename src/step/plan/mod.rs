//! What a step computes at once, and at what cost.

pub mod blocks;
pub mod cost;
pub mod forest;
pub mod pack;
pub mod repetition;
pub mod shape;
