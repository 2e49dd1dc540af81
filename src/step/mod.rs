//! Step: rows become one optimizer update and a checkpoint.
//!
//! This is the part that decides *what* is computed: the architecture behind a `config.json`, the
//! loss of a token and its derivative, filters, metrics, settings. The program `forestctl-step`,
//! built with the feature `torch`, computes it on tensors.

pub mod audit;
pub mod batch;
pub mod device;
pub mod failure;
pub mod loss;
pub mod metrics;
pub mod model;
pub mod plan;
pub mod report;
pub mod sequence_error;
pub mod settings;
pub mod state;
