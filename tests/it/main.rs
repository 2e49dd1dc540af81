//! All integration tests, one module per area.

mod wire_staged;
