//! Hugging Face decoders: what `config.json` says, rotary tables, and where the weights lie.

pub mod architecture;
mod refusals;
pub mod rope;
pub mod weights;

pub use architecture::{Architecture, Family};
pub use weights::{WeightFiles, Weights};
