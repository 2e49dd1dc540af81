//! `forestctl ingest`

use std::path::PathBuf;

use clap::Args;

use super::Exit;
use super::ui::Ui;
use crate::error::{Error, Result};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl ingest captures/ -o run.forest
  forestctl ingest staged.jsonl.zst receipts.jsonl rollouts.jsonl -o run.forest
  forestctl ingest gym-store/ -o run.forest --force

",
    exit_status!()
);

/// Read captures into an archive
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct IngestArgs {
    /// Files or folders of captures: staged records with receipts, a Gym file store, Gym rollouts
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<PathBuf>,
    /// The archive to write
    #[arg(short, long, value_name = "ARCHIVE")]
    pub output: PathBuf,
    /// Replace an existing archive
    #[arg(long)]
    pub force: bool,
}

impl IngestArgs {
    /// Runs the command.
    pub fn run(self, _ui: &Ui) -> Result<Exit> {
        Err(Error::missing("not built yet"))
    }
}
