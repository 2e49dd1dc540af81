//! Hugging Face decoders: what `config.json` says, where the weights lie, and the forward pass.

pub mod architecture;
#[cfg(feature = "torch")]
pub mod decoder;
#[cfg(feature = "torch")]
pub mod parameters;
pub mod rope;
pub mod weights;

pub use architecture::{Architecture, Family};
#[cfg(feature = "torch")]
pub use decoder::Decoder;
pub use weights::{WeightFiles, Weights};
