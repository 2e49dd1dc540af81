//! Captured model calls become verified training rows, and rows become one optimizer step.
//!
//! ```text
//! capture --> ingest --> ARCHIVE --> validate
//!                           |
//!                           +--> select --> forest --> rows --> batch --> ROWS --> step --> CHECKPOINT
//! ```
//!
//! Every stage is a pure library: typed values and [`finding::Finding`]s in and out. Only [`cli`]
//! prints, exits or reads the environment. Data flows one way, as drawn.
//!
//! [`explain`] looks on: it tells what the stages made of each rollout, call and token, and
//! [`pictures`] draws it.
//!
//! The library never calls libtorch: [`step`] decides what an optimizer step computes, and the
//! program `forestctl-step` (`src/learner`) computes it on tensors.

pub mod archive;
pub mod cleanup;
#[doc(hidden)]
pub mod cli;
pub mod columnar;
pub mod config;
pub mod error;
pub mod explain;
pub mod finding;
pub mod forest;
pub mod id;
pub mod ingest;
pub mod inspect;
pub mod ordered;
pub mod output;
pub mod pictures;
pub mod report;
pub mod rows;
pub mod select;
pub mod step;
pub mod validate;
pub mod wire;
