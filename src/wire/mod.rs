//! The public wire: bytes to types and back, no I/O.

pub mod canonical;
mod columns;
pub mod digest;
pub mod entry;
mod fields;
pub mod fingerprint;
pub mod json;
pub mod receipt;
pub mod staged;

pub use entry::{ParentResolution, TokenEntry};
pub use fields::RecordError;
pub use fingerprint::{FingerprintError, assistant_fingerprint, conversation_digest, output_items};
pub use receipt::{CallCompletion, CallRecord, Receipt, ReplaySummary};
pub use staged::StagedRecord;
