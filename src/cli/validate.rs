//! `forestctl validate`

use std::path::PathBuf;

use clap::Args;

use super::Exit;
use super::ui::Ui;
use crate::error::{Error, Result};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl validate run.forest
  forestctl validate run.forest --fail-on warning
  forestctl validate run.forest --format json

",
    exit_status!()
);

/// Prove an archive: digests, lengths, lineage, completeness
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ValidateArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
}

impl ValidateArgs {
    /// Runs the command.
    pub fn run(self, _ui: &Ui) -> Result<Exit> {
        Err(Error::missing("not built yet"))
    }
}
