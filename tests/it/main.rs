//! One integration binary; a module per area.

mod generated;
mod ingest;
mod wire_staged;
mod wire_store;
