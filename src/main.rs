//! `forestctl`: parse, run, error to exit code.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A tenth of `validate` and `ingest` was the system's allocator and the pages that it gave back.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(forestctl::cli::main(std::env::args_os()))
}
