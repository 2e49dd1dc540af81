//! Integration tests: one binary, one module per area.

mod wire_staged;
mod wire_store;
