//! One integration binary; a module per area.

mod generated;
mod ingest;
#[cfg(feature = "torch")]
mod step;
mod wire_staged;
mod wire_store;
