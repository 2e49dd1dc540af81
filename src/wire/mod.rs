//! The public wire: bytes to types and back, no I/O.

mod columns;
pub mod digest;
mod fields;
pub mod json;
pub mod receipt;
pub mod staged;

pub use fields::RecordError;
pub use receipt::{CallCompletion, CallRecord, Receipt, ReplaySummary};
pub use staged::StagedRecord;
