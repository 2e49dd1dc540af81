//! The archive: every captured call as a delta, in Parquet that any tool can open.

pub mod model;

pub use model::*;
