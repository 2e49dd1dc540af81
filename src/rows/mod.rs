//! Rows: one per path of the selected forest, padded, weighted, and written for training.

pub mod advantage;
mod arrange;
mod assembly;
mod build;
mod check;
mod columns;
mod join;
pub mod manifest;
pub mod metrics;
pub mod model;
mod owner;
pub mod packing;
mod routes;
pub mod shard;
mod spill;
mod store;
pub mod weights;
mod writer;

pub use arrange::Arrangement;
pub use assembly::{Assembled, Assembly, BuiltGroup};
pub use build::{Batch, build, build_group};
pub use join::{WholeBatch, read_batch};
pub use manifest::{
    Counts, DroppedGroup, GroupRows, OwnerLengths, Packed, Part, Provenance, RowsManifest,
};
pub use model::{MediaRef, Row, RowRoutes, Span};
pub use store::{MANIFEST, RowsDir, read};
pub use writer::RowsWriter;
