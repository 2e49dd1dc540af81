//! Step: rows become one optimizer update and a checkpoint.
//!
//! Everything that decides *what* is computed is plain Rust: the architecture behind a
//! `config.json`, the loss of a token and its derivative, filters, metrics, settings. What computes
//! it on tensors needs the feature `torch`, and `run` there is where to start reading.

pub mod batch;
pub mod loss;
pub mod metrics;
pub mod model;
pub mod sequence_error;
pub mod settings;
#[cfg(feature = "torch")]
pub mod tensor;
