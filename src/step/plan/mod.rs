//! What a step computes at once, and at what cost.

pub mod blocks;
pub mod forest;
pub mod pack;
