//! One integration binary; a module per area.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adapter;
mod archive;
mod attack;
mod audit;
mod builders;
mod cleanup;
mod cli;
mod closed_loop;
mod config;
mod docs;
mod du;
mod evidence;
mod generated;
mod ingest;
mod masks;
mod media;
mod membership;
mod people;
mod pictures;
mod properties;
mod reader;
mod reports;
mod rows;
mod rules;
mod select;
mod select_cli;
mod selectors;
mod sequence_error;
mod shards;
#[cfg(feature = "torch")]
mod step;
mod symptoms;
mod validate;
mod versions;
mod wire_staged;
mod wire_store;
