//! The command line: the only place that prints, exits, or reads the environment.

/// The exit codes as every help and man page tells them; literal, so that `concat!` takes it.
macro_rules! exit_status {
    () => {
        "\
Exit status:
  0    fine
  1    findings: evidence is wrong, or input was quarantined
  2    usage, I/O, a corrupt file, or a missing component
  4    nothing to do
  130  interrupted"
    };
}

mod advantages;
pub mod audit;
pub mod build_rows;
pub mod cleanup_plan;
pub mod completions;
pub mod config;
pub mod diff;
pub mod doctor;
pub mod du;
pub mod generated;
pub mod ingest;
pub mod inspect;
mod levels;
mod looking;
pub mod ls;
pub mod man;
pub mod report;
mod reports;
mod resolve;
pub mod select;
mod selecting;
pub mod show;
pub mod step;
pub mod ui;
pub mod validate;
pub mod why;

use std::ffi::OsString;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::error::{Error, Kind};
use crate::report::visible;
use ui::{ColorChoice, Format, Tone, Ui};

/// How an invocation ends; the numbers are public interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, nothing to complain of (also when the reader of our output goes away).
    Fine = 0,
    /// Findings at or above the threshold, input that had to be quarantined, or, of `diff`,
    /// rollouts that differ.
    Findings = 1,
    /// Usage, I/O, a corrupt file, or a missing component.
    Failed = 2,
    /// Nothing to do.
    Nothing = 4,
    /// Interrupted.
    Interrupted = 130,
}

/// From captured model calls to verified training rows, and one GRPO step.
#[derive(Debug, Parser)]
#[command(name = "forestctl", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = TOUR)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

const TOUR: &str = concat!(
    "\
Examples:
  forestctl ingest captures/ -o run.forest
  forestctl validate run.forest
  forestctl select run.forest --policy returned_history
  forestctl build-rows run.forest -o rows
  forestctl step rows --model Qwen3-0.6B -o ckpt

Every command has its own examples: forestctl COMMAND --help

",
    exit_status!()
);

/// More threads than this help nobody; starting them takes longer than the work.
const MAX_JOBS: i64 = 512;

#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
struct Global {
    /// How results are printed on stdout: human, json, jsonl, or csv
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    #[arg(hide_possible_values = true)]
    format: Format,
    /// When to colour: auto, always, or never; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    #[arg(hide_possible_values = true)]
    color: ColorChoice,
    /// Worker threads; 0 means one per core. Results are the same bytes for any number
    #[arg(short, long, global = true, default_value_t = 0, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(..=MAX_JOBS))]
    jobs: u16,
    /// Say only what is asked for; exit codes stay
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Log what is being done; twice for details
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    Ingest(ingest::IngestArgs),
    Validate(validate::ValidateArgs),
    Select(select::SelectArgs),
    Inspect(inspect::InspectArgs),
    Ls(ls::LsArgs),
    Show(show::ShowArgs),
    Why(why::WhyArgs),
    Diff(diff::DiffArgs),
    BuildRows(build_rows::BuildRowsArgs),
    Du(du::DuArgs),
    Report(report::ReportArgs),
    CleanupPlan(cleanup_plan::CleanupPlanArgs),
    Config(config::ConfigArgs),
    Doctor(doctor::DoctorArgs),
    Step(step::StepArgs),
    AuditLogprobs(audit::AuditArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    #[command(hide = true)]
    Generated(generated::GeneratedArgs),
}

/// The whole clap tree, for completions, man pages, and tests.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses, runs, and returns the exit code; errors are shown on stderr.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    match parse::<Cli>(args) {
        Ok(cli) => converse(&cli.global, |ui| {
            if !cli.command.reads_an_archive() {
                ui.start_threads(u64::MAX);
            }
            cli.command.run(ui)
        }),
        Err(exit) => exit,
    }
}

/// Parses, or shows help or the mistake and returns the exit code.
fn parse<C: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<C, u8> {
    C::try_parse_from(args).map_err(|error| {
        let _ = error.print();
        if error.use_stderr() { Exit::Failed as u8 } else { Exit::Fine as u8 }
    })
}

/// Settles what all commands share, runs one, and returns the exit code.
fn converse(global: &Global, run: impl FnOnce(&Ui) -> Result<Exit, Error>) -> u8 {
    let ui = Ui::new(global.format, global.color, global.quiet, global.jobs);
    log_to_stderr(global.verbose);
    end_cleanly_when_interrupted();
    match run(&ui) {
        Ok(exit) => exit as u8,
        Err(error) => {
            let exit = exit_of(&error);
            if exit != Exit::Fine {
                show(&ui, &error, exit);
            }
            exit as u8
        }
    }
}

impl Command {
    /// Whether the command starts its threads itself, once it knows how large the archive is.
    fn reads_an_archive(&self) -> bool {
        matches!(
            self,
            Command::Validate(_)
                | Command::Select(_)
                | Command::Inspect(_)
                | Command::Ls(_)
                | Command::Diff(_)
                | Command::BuildRows(_)
                | Command::Du(_)
                | Command::Report(_)
                | Command::CleanupPlan(_)
        )
    }

    fn run(self, ui: &Ui) -> Result<Exit, Error> {
        match self {
            Command::Ingest(args) => args.run(ui),
            Command::Validate(args) => args.run(ui),
            Command::Select(args) => args.run(ui),
            Command::Inspect(args) => args.run(ui),
            Command::Ls(args) => args.run(ui),
            Command::Show(args) => args.run(ui),
            Command::Why(args) => args.run(ui),
            Command::Diff(args) => args.run(ui),
            Command::BuildRows(args) => args.run(ui),
            Command::Du(args) => args.run(ui),
            Command::Report(args) => args.run(ui),
            Command::CleanupPlan(args) => args.run(ui),
            Command::Config(args) => args.run(ui),
            Command::Doctor(args) => args.run(ui),
            Command::Step(args) => args.run(ui),
            Command::AuditLogprobs(args) => args.run(ui),
            Command::Completions(args) => args.run(ui),
            Command::Man(args) => args.run(ui),
            Command::Generated(args) => args.run(ui),
        }
    }
}

fn exit_of(error: &Error) -> Exit {
    match error.kind() {
        Kind::Usage | Kind::Io | Kind::Format | Kind::Missing | Kind::Memory => Exit::Failed,
        Kind::Nothing => Exit::Nothing,
        Kind::BrokenPipe => Exit::Fine,
    }
}

/// Shows an error on stderr; with a JSON format, as a JSON object on stdout too, so that a
/// program that asked for JSON always gets some.
pub fn show(ui: &Ui, error: &Error, exit: Exit) {
    ui.complain(&told(ui, error));
    if matches!(ui.format, Format::Json | Format::Jsonl) {
        let because: Vec<String> = causes(error).map(ToString::to_string).collect();
        let _ = ui.jsonl(&serde_json::json!({
            "schema_version": 1,
            "error": {
                "message": error.to_string(),
                "because": because,
                "help": error.advice(),
                "exit_code": exit as u8,
            },
        }));
    }
}

/// An error in words, for stderr.
fn told(ui: &Ui, error: &Error) -> String {
    let mut text = format!("{} {}", ui.tone_err(Tone::Bad, "error:"), visible(&error.to_string()));
    for cause in causes(error) {
        let because = ui.tone_err(Tone::Dim, "because");
        text.push_str(&format!("\n  {because} {}", visible(&cause.to_string())));
    }
    if let Some(help) = error.advice() {
        let help = visible(help);
        text.push_str(&format!("\n  {} {help}", ui.tone_err(Tone::Strong, "help:")));
    }
    text
}

fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(error), |cause| cause.source())
}

/// On SIGINT, SIGTERM or SIGHUP: unpublished outputs go, and the exit code says why.
fn end_cleanly_when_interrupted() {
    // A handler that is there already is a test's.
    let _ = ctrlc::set_handler(|| {
        use std::io::Write;
        inspect::terminal::give_back_if_taken();
        let what = match crate::output::abandon_drafts() {
            true => "interrupted; the same command goes on from here",
            false => "interrupted; nothing was written",
        };
        let _ = writeln!(std::io::stderr().lock(), "{what}");
        std::process::exit(i32::from(Exit::Interrupted as u8));
    });
}

fn log_to_stderr(verbose: u8) {
    use tracing_subscriber::EnvFilter;
    let default = match verbose {
        0 => "warn",
        1 => "forestctl=info",
        _ => "forestctl=debug",
    };
    let filter = std::env::var("FORESTCTL_LOG").unwrap_or_else(|_| default.to_owned());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .try_init();
}
