//! `forestctl step`

use std::path::PathBuf;

use clap::Args;

use super::Exit;
use super::ui::Ui;
use crate::error::{Error, Result};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl step rows --model Qwen3-0.6B -o ckpt --device cuda --dtype bfloat16
  forestctl step rows --model tiny --device cpu --dtype float64 -o ckpt

",
    exit_status!()
);

/// Run one GRPO optimizer step on rows
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StepArgs {
    /// The rows directory
    #[arg(value_name = "ROWS")]
    pub rows: PathBuf,
    /// Hugging Face model directory: config.json and safetensors
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// The checkpoint directory to write
    #[arg(short, long, value_name = "CKPT")]
    pub output: PathBuf,
    /// Replace an existing checkpoint
    #[arg(long)]
    pub force: bool,
}

impl StepArgs {
    /// Runs the command.
    pub fn run(self, _ui: &Ui) -> Result<Exit> {
        Err(Error::missing("not built yet"))
    }
}
