//! `forestctl`: parse, run, error to exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(forestctl::cli::main(std::env::args_os()))
}
