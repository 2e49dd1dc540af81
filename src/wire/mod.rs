//! The public wire: bytes to types and back, no I/O.

mod account;
pub mod admission;
pub mod attribute;
pub mod builder;
pub mod canonical;
mod columns;
pub mod digest;
pub mod entry;
mod fields;
pub mod fingerprint;
pub mod json;
mod lax;
pub mod ledger;
pub mod lineage;
mod manifest;
pub mod media;
mod python;
pub mod receipt;
pub mod replay;
pub mod route;
mod rules;
pub mod staged;
pub mod store;
pub mod terminal;
pub mod verify;
mod view;

pub use entry::{ParentResolution, TokenEntry};
pub use fields::RecordError;
pub use fingerprint::{FingerprintError, assistant_fingerprint, conversation_digest, output_items};
pub use ledger::read_ledger;
pub use manifest::Manifest;
pub use receipt::{CallCompletion, CallRecord, Receipt, ReplaySummary, RolloutManifest};
pub use staged::StagedRecord;
pub use store::{StoreFault, StoreFiles, StoreSnapshot, read_store};
pub use verify::{LinearizedRow, VerifyError, linearize, verify_and_linearize};
pub use view::{Boundary, Columns, StagedView, TokenIds};
