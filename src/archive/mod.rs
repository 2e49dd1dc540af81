//! The archive: every captured call as a delta, in Parquet that any tool can open.

mod ingested;
pub mod model;

pub use ingested::{Ingested, Quarantined, SourceFile, SourceForm};
pub use model::*;
