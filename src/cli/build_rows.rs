//! `forestctl build-rows`

use std::path::PathBuf;

use clap::Args;

use super::Exit;
use super::ui::Ui;
use crate::error::{Error, Result};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl build-rows run.forest -o rows
  forestctl build-rows run.forest -o rows --policy all_captured --data-parallel 4

",
    exit_status!()
);

/// Turn selected calls into training rows, with masks, padding, and advantages
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BuildRowsArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// The rows directory to write
    #[arg(short, long, value_name = "ROWS")]
    pub output: PathBuf,
    /// Replace existing rows
    #[arg(long)]
    pub force: bool,
}

impl BuildRowsArgs {
    /// Runs the command.
    pub fn run(self, _ui: &Ui) -> Result<Exit> {
        Err(Error::missing("not built yet"))
    }
}
