//! The public wire: bytes to types and back, no I/O.

pub mod json;
pub mod receipt;
pub mod staged;

pub use receipt::{CallCompletion, CallRecord, Receipt, ReplaySummary};
pub use staged::{RecordError, StagedRecord};
