//! The learner against the closed-loop reference data.

#![allow(clippy::unwrap_used)]

mod audit;
mod command;
mod fixture;
mod hostile;
#[path = "../../../src/learner/mod.rs"]
#[allow(dead_code, unused_imports)]
mod learner;
mod logprobs;
mod losses;
mod outputs;
mod schedule;
mod sharing;
mod update;
