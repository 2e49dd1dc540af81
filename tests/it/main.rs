//! One integration binary; a module per area.

mod archive;
mod closed_loop;
mod generated;
mod ingest;
mod rows;
mod select;
#[cfg(feature = "torch")]
mod step;
mod validate;
mod wire_staged;
mod wire_store;
