//! Files made from the code: man pages, completions, JSON Schemas, the reference of codes.
//!
//! They are checked in; a test compares them with what these functions give, and
//! `forestctl generated DIR` (hidden) writes them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use super::Exit;
use super::ui::Ui;
use crate::error::{Error, Result};
use crate::finding::{Code, Family};

/// Write the generated files of the repository
#[derive(Debug, Args)]
pub struct GeneratedArgs {
    /// Repository root
    #[arg(default_value = ".")]
    root: PathBuf,
}

impl GeneratedArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        for (name, text) in files() {
            let path = self.root.join(&name);
            if let Some(dir) = path.parent() {
                std::fs::create_dir_all(dir).map_err(|e| Error::io("cannot create", dir, e))?;
            }
            std::fs::write(&path, text).map_err(|e| Error::io("cannot write", &path, e))?;
            ui.say(name);
        }
        Ok(Exit::Fine)
    }
}

/// Every generated file: path from the repository root, and content.
pub fn files() -> Vec<(String, String)> {
    let keys = ("docs/keys.md".to_owned(), crate::inspect::keys::document());
    let mut files = vec![("docs/codes.md".to_owned(), codes()), keys];
    files.extend(man_pages().into_iter().map(|(name, text)| (format!("man/{name}"), text)));
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let name = shell.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
        files.push((format!("completions/forestctl.{name}"), completions(shell)));
    }
    files.extend(schemas().into_iter().map(|(name, text)| (format!("schemas/{name}"), text)));
    files
}

/// JSON Schemas of what `--format json` prints, by file name; of a line of `jsonl` where it has a
/// shape of its own.
fn schemas() -> Vec<(String, String)> {
    [
        ("ingest", super::ingest::schema()),
        ("validate", schemars::schema_for!(crate::report::FindingsDocument<'_>)),
        ("validate-jsonl", schemars::schema_for!(crate::report::FindingsLine<'_>)),
        ("select", super::select::schema()),
        ("inspect", super::inspect::schema()),
        ("ls", super::ls::schema()),
        ("show", super::show::schema()),
        ("why", super::why::schema()),
        ("diff", super::diff::schema()),
        ("build-rows", super::build_rows::schema()),
        ("du", super::du::schema()),
        ("report", super::report::schema()),
        ("cleanup-plan", super::cleanup_plan::schema()),
        ("config-check", super::config::check_schema()),
        ("config-show", super::config::show_schema()),
        ("doctor", super::doctor::schema()),
        ("step", schemars::schema_for!(crate::step::report::StepReport)),
        ("audit-logprobs", schemars::schema_for!(crate::step::audit::AuditReport)),
        ("audit-logprobs-jsonl", schemars::schema_for!(crate::step::audit::AuditLine<'_>)),
        ("step-rows", schemars::schema_for!(crate::step::report::RowReport)),
    ]
    .into_iter()
    .map(|(command, schema)| {
        // A schema is a JSON value, and so has a text.
        let text = serde_json::to_string_pretty(&schema).unwrap_or_default();
        (format!("{command}.json"), text + "\n")
    })
    .collect()
}

/// Completions for one shell.
pub fn completions(shell: Shell) -> String {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "forestctl", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Man pages by file name, `forestctl.1` first.
pub fn man_pages() -> Vec<(String, String)> {
    let mut root = super::command();
    root.build();
    let mut pages = vec![page("forestctl".to_owned(), root.clone())];
    for sub in root.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        let name = format!("forestctl-{}", sub.get_name());
        pages.push(page(name, sub.clone()));
    }
    pages
}

fn page(name: String, command: clap::Command) -> (String, String) {
    let tail = command.get_after_help().map(|h| h.to_string()).unwrap_or_default();
    let command = command.name(name.clone()).display_name(name.clone()).after_help("");
    let man = clap_mangen::Man::new(command);
    let mut bytes = Vec::new();
    // Writing to memory cannot fail.
    let _ = man.render(&mut bytes);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    text = text.replace(".SH EXTRA\n", "");
    for block in tail.split("\n\n") {
        let (title, body) = block.split_once('\n').unwrap_or((block, ""));
        let title = title.trim_end_matches(':');
        if body.is_empty() {
            text.push_str(&format!(".PP\n{}\n", escape(title)));
        } else {
            text.push_str(&format!(".SH {}\n.nf\n{}\n.fi\n", title.to_uppercase(), escape(body)));
        }
    }
    (format!("{name}.1"), text)
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// The reference of codes, made from the code table.
pub fn codes() -> String {
    let mut text = String::from(
        "# Codes\n\n\
         Every finding and mask reason carries one of these words. They are stable: a word never\n\
         changes its meaning. An *error* makes `validate` exit 1; a *warning* masks at most. A rule\n\
         is that of [rules.md](rules.md) by which the code masks a rollout or drops a group.\n\
         This file is generated from `src/finding/code.rs`.\n",
    );
    for family in Family::ALL {
        text.push_str(&format!("\n## {}\n", family.title()));
        for code in Code::ALL.iter().filter(|c| c.family() == family) {
            let rule = code.rule().map(|rule| format!(", rule {rule}")).unwrap_or_default();
            text.push_str(&format!(
                "\n### `{code}` ({}{rule})\n\n{}\n\n{}\n",
                code.severity(),
                code.summary(),
                code.help()
            ));
        }
    }
    text
}
