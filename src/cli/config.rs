//! `forestctl config`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::build_rows::batch::BatchArgs;
use super::resolve::Resolver;
use super::selecting::SelectorArgs;
use super::ui::{Format, Tone, Ui};
use crate::config::document::Node;
use crate::config::recipe::{Recipe, Refusal, guards};
use crate::error::{Error, Result};
use crate::select::PolicyChoice;

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl config check grpo.yaml
  forestctl config show grpo.yaml
  forestctl config show grpo.yaml --policy all_captured --format json

",
    exit_status!()
);

/// Check a NeMo-RL configuration for forest training, or show what it settles
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Report everything that keeps a file from forest training
    ///
    /// Slips, renamed keys, what forests cannot have, and every guard that NeMo-RL checks before a
    /// run. A custom policy is looked for. `defaults` and `${...}` are followed.
    Check(CheckArgs),
    /// Print every setting of build-rows, and where its value comes from
    Show(Box<ShowArgs>),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The file
    #[arg(value_name = "YAML")]
    file: PathBuf,
    #[command(flatten)]
    selector: SelectorArgs,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The file
    #[arg(value_name = "YAML")]
    file: PathBuf,
    #[command(flatten)]
    settings: BatchArgs,
}

/// JSON Schema of `config check --format json`.
pub(super) fn check_schema() -> schemars::Schema {
    schemars::schema_for!(CheckDocument)
}

/// JSON Schema of `config show --format json`.
pub(super) fn show_schema() -> schemars::Schema {
    schemars::schema_for!(ShowDocument)
}

/// `config check --format json`.
#[derive(Debug, Serialize, JsonSchema)]
struct CheckDocument {
    schema_version: u32,
    /// Whether the file is fit for forest training.
    fit: bool,
    problems: Vec<Problem>,
    /// Sections and keys that were passed over.
    ignored: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Problem {
    /// The key, as a path.
    key: String,
    file: Option<String>,
    line: Option<u64>,
    /// The rule of forest training that it breaks, if it is one.
    rule: Option<u32>,
    message: String,
    help: String,
}

/// `config show --format json`.
#[derive(Debug, Serialize, JsonSchema)]
struct ShowDocument {
    schema_version: u32,
    settings: Vec<SettingLine>,
    /// Sections and keys that were passed over.
    ignored: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SettingLine {
    key: &'static str,
    /// Empty for none.
    value: String,
    /// A flag, a line of a file as `FILE:LINE`, or `default`.
    origin: String,
}

impl ConfigArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        match self.command {
            ConfigCommand::Check(args) => args.run(ui),
            ConfigCommand::Show(args) => args.run(ui),
        }
    }
}

impl CheckArgs {
    fn run(self, ui: &Ui) -> Result<Exit> {
        let document = Node::read(&self.file)?;
        let (recipe, mut refused) = Recipe::of(&document);
        refused.extend(guards(&recipe, &document));
        refused.extend(self.policy(&recipe));
        let problems: Vec<Problem> = refused.into_iter().map(Problem::of).collect();
        let found = CheckDocument {
            schema_version: 1,
            fit: problems.is_empty(),
            problems,
            ignored: recipe.ignored,
        };
        match ui.format {
            Format::Json => ui.json(&found)?,
            Format::Jsonl => found.problems.iter().try_for_each(|problem| ui.jsonl(problem))?,
            Format::Csv => found.print_csv(ui)?,
            Format::Human => found.print(&self.file, ui)?,
        }
        Ok(if found.fit { Exit::Fine } else { Exit::Findings })
    }

    /// Whether the policy is there: custom ones are looked for (rule 5).
    fn policy(&self, recipe: &Recipe) -> Option<Refusal> {
        const KEY: &str = "token_capture.selection_policy";
        let text = recipe.token_capture.selection_policy.as_deref()?;
        let found = text
            .parse::<PolicyChoice>()
            .map_err(Error::usage)
            .and_then(|choice| self.selector.policy(&choice).map(drop));
        let error = found.err()?;
        let help = error.advice().unwrap_or("docs/selectors.md tells what a policy can be");
        Some(Refusal {
            key: KEY.to_owned(),
            place: recipe.stated.get(KEY).cloned(),
            rule: Some(5),
            message: format!("{KEY}: {error}"),
            help: help.to_owned(),
        })
    }
}

impl Problem {
    fn of(refusal: Refusal) -> Self {
        let Refusal { key, place, rule, message, help } = refusal;
        let (file, line) = place.map(|place| (place.file.to_string(), place.line)).unzip();
        Self { key, file, line, rule, message, help }
    }
}

impl CheckDocument {
    fn print(&self, file: &std::path::Path, ui: &Ui) -> Result<()> {
        for Problem { file, line, rule, message, help, .. } in &self.problems {
            let rule = rule.map_or_else(String::new, |rule| format!(" (rule {rule})"));
            ui.line(format!("{} {message}{rule}", ui.tone(Tone::Bad, "error")))?;
            if let (Some(file), Some(line)) = (file, line) {
                ui.line(format!("  at {file}:{line}"))?;
            }
            ui.line(format!("  help: {help}"))?;
        }
        if !self.ignored.is_empty() {
            ui.say(format!("not read: {}", self.ignored.join(", ")));
        }
        let verdict = match self.problems.len() {
            0 => ui.tone(Tone::Good, "fit for forest training").to_string(),
            1 => "1 problem".to_owned(),
            n => format!("{n} problems"),
        };
        ui.line(format!("{}  {verdict}", ui.tone(Tone::Strong, file.display())))
    }

    fn print_csv(&self, ui: &Ui) -> Result<()> {
        let rows = self.problems.iter().map(|problem| {
            vec![
                problem.key.clone(),
                problem.file.clone().unwrap_or_default(),
                problem.line.map(|line| line.to_string()).unwrap_or_default(),
                problem.rule.map(|rule| rule.to_string()).unwrap_or_default(),
                problem.message.clone(),
                problem.help.clone(),
            ]
        });
        ui.csv(&["key", "file", "line", "rule", "message", "help"], rows)
    }
}

impl ShowArgs {
    fn run(self, ui: &Ui) -> Result<Exit> {
        let mut resolver = Resolver::new(Recipe::read(&self.file)?);
        self.settings.settle(&mut resolver)?;
        let settings = resolver.settings.into_iter().map(|setting| SettingLine {
            key: setting.key,
            value: setting.value,
            origin: setting.origin.to_string(),
        });
        let found = ShowDocument {
            schema_version: 1,
            settings: settings.collect(),
            ignored: resolver.recipe.ignored,
        };
        let cells =
            |line: &SettingLine| vec![line.key.to_owned(), line.value.clone(), line.origin.clone()];
        let header = ["key", "value", "origin"];
        match ui.format {
            Format::Json => ui.json(&found)?,
            Format::Jsonl => found.settings.iter().try_for_each(|line| ui.jsonl(line))?,
            Format::Csv => ui.csv(&header, found.settings.iter().map(cells))?,
            Format::Human => {
                ui.table(&header, found.settings.iter().map(cells))?;
                if !found.ignored.is_empty() {
                    ui.say(format!("not read: {}", found.ignored.join(", ")));
                }
            }
        }
        Ok(Exit::Fine)
    }
}
