//! `forestctl completions`

use clap::Args;
use clap_complete::Shell;

use super::Exit;
use super::ui::Ui;
use crate::error::Result;

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl completions bash > ~/.local/share/bash-completion/completions/forestctl
  forestctl completions zsh > ~/.zfunc/_forestctl
  forestctl completions fish > ~/.config/fish/completions/forestctl.fish

",
    exit_status!()
);

/// Print shell completions
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// Shell to complete for
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        ui.print(super::generated::completions(self.shell))?;
        Ok(Exit::Fine)
    }
}
