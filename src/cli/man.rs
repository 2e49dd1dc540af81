//! `forestctl man`

use clap::Args;

use super::Exit;
use super::ui::Ui;
use crate::error::{Error, Result};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl man | man -l -
  forestctl man build-rows > forestctl-build-rows.1

",
    exit_status!()
);

/// Print a man page
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// Command to print the page of; without it, the page of forestctl itself
    #[arg(value_name = "COMMAND")]
    page: Option<String>,
}

impl ManArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let wanted = self.page.map_or("forestctl".to_owned(), |c| format!("forestctl-{c}"));
        let pages = super::generated::man_pages();
        let page = pages.iter().find(|(name, _)| *name == format!("{wanted}.1"));
        let Some((_, text)) = page else {
            return Err(Error::usage(format!("there is no page {wanted}"))
                .help("forestctl --help lists the commands"));
        };
        ui.print(text)?;
        Ok(Exit::Fine)
    }
}
