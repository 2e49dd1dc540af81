//! The public wire: bytes to types and back, no I/O.

pub mod json;
