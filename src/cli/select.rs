//! `forestctl select`

use std::path::PathBuf;

use clap::Args;

use super::Exit;
use super::ui::Ui;
use crate::error::{Error, Result};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl select run.forest
  forestctl select run.forest --policy all_captured --format json

",
    exit_status!()
);

/// Choose the calls that train, with a verdict and reason for every rollout
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SelectArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
}

impl SelectArgs {
    /// Runs the command.
    pub fn run(self, _ui: &Ui) -> Result<Exit> {
        Err(Error::missing("not built yet"))
    }
}
