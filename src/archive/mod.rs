//! The archive: every captured call as a delta, in Parquet that any tool can open.

mod calls;
mod check;
mod content;
mod existing;
mod ingested;
mod journal;
mod manifest;
pub mod media;
pub mod model;
mod part;
mod parts;
mod pieces;
mod read;
mod routes;
mod table;
mod write;

pub use content::Known;
pub use ingested::{Ingested, Quarantined, SourceFile, SourceForm};
pub use manifest::{Counts, FileEntry, FormatVersion, MANIFEST, Manifest, PartCounts, Tool};
pub use media::{Dtype, MediaTensor, Piece, PieceSource, PieceSources, TensorContent};
pub use model::*;
pub use pieces::PieceData;
pub(crate) use read::quietly;
pub use read::{Archive, Part, Results};
pub use write::{Done, Pushed, QUARANTINE, Summary, Writer, write};
