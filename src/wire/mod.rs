//! The public wire: bytes to types and back, no I/O.

pub mod attribute;
pub mod builder;
pub mod canonical;
mod columns;
pub mod digest;
pub mod entry;
mod fields;
pub mod fingerprint;
pub mod json;
pub mod ledger;
pub mod lineage;
pub mod replay;
pub mod receipt;
pub mod staged;
pub mod store;

pub use entry::{ParentResolution, TokenEntry};
pub use fields::RecordError;
pub use fingerprint::{FingerprintError, assistant_fingerprint, conversation_digest, output_items};
pub use receipt::{CallCompletion, CallRecord, Receipt, ReplaySummary};
pub use staged::StagedRecord;
pub use store::{StoreFault, StoreFiles, StoreSnapshot, read_store};
