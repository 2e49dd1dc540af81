//! Rows: one per path of the selected forest, padded, weighted, and written for training.

pub mod advantage;
mod build;
mod check;
mod columns;
pub mod manifest;
pub mod model;
mod owner;
pub mod packing;
mod routes;
mod store;
pub mod weights;

pub use build::{Batch, build, build_group};
pub use manifest::{
    Counts, DroppedGroup, GroupRows, OwnerLengths, Packed, Part, Provenance, RowsManifest,
};
pub use model::{MediaRef, Row, RowRoutes, Span};
pub use store::{MANIFEST, RowsDir, read, write};
