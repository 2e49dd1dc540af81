//! One integration binary; a module per area.

mod archive;
mod generated;
mod ingest;
mod validate;
mod wire_staged;
mod wire_store;
