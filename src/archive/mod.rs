//! The archive: every captured call as a delta, in Parquet that any tool can open.

mod calls;
mod ingested;
mod manifest;
pub mod model;
mod read;
mod routes;
mod table;
mod write;

pub use ingested::{Ingested, Quarantined, SourceFile, SourceForm};
pub use manifest::{Counts, FileEntry, FormatVersion, MANIFEST, Manifest, Tool};
pub use model::*;
pub use read::Archive;
pub(crate) use read::quietly;
pub use write::{Summary, write};
