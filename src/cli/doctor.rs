//! `forestctl doctor`

use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::step::{find_learner, library_path, probe};
use super::ui::{Format, Tone, Ui, thousands};
use crate::error::Result;

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl doctor
  forestctl doctor --format json

Only step needs libtorch, and only a Python policy needs Python; everything else runs without.

",
    exit_status!()
);

/// The release of libtorch that the learner is built for.
const LIBTORCH: &str = "2.11.0";

/// Tell what is installed, what is missing, and the command that mends it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Python interpreter of module:function policies
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    selector_python: PathBuf,
}

/// JSON Schema of `--format json`.
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

/// `--format json`.
#[derive(Debug, Serialize, JsonSchema)]
struct Document {
    schema_version: u32,
    checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize, JsonSchema)]
struct Check {
    name: &'static str,
    state: State,
    /// What was found.
    found: String,
    /// What to do, where something is missing.
    help: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    /// There.
    Fine,
    /// Not there, and something cannot be done without.
    Missing,
    /// Not there, and only makes a difference in speed.
    Absent,
}

impl Check {
    fn fine(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Fine, found: found.into(), help: None }
    }

    fn missing(name: &'static str, found: impl Into<String>, help: impl Into<String>) -> Self {
        Self { name, state: State::Missing, found: found.into(), help: Some(help.into()) }
    }

    fn absent(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Absent, found: found.into(), help: None }
    }
}

impl DoctorArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let mut checks = vec![
            Check::fine("forestctl", env!("CARGO_PKG_VERSION")),
            processors(),
            memory(),
            python(&self.selector_python),
        ];
        checks.extend(learner());
        checks.extend(cuda());
        let document = Document { schema_version: 1, checks };
        let row = |check: &Check| {
            vec![
                check.name.to_owned(),
                serde_json::to_value(check.state)
                    .ok()
                    .and_then(|word| word.as_str().map(str::to_owned))
                    .unwrap_or_default(),
                check.found.clone(),
                check.help.clone().unwrap_or_default(),
            ]
        };
        match ui.format {
            Format::Json => ui.json(&document)?,
            Format::Jsonl => document.checks.iter().try_for_each(|check| ui.jsonl(check))?,
            Format::Csv => {
                let header = ["name", "state", "found", "help"];
                ui.csv(&header, document.checks.iter().map(row))?;
            }
            Format::Human => {
                for Check { name, state, found, help } in &document.checks {
                    let tone = match state {
                        State::Fine => Tone::Good,
                        State::Missing => Tone::Bad,
                        State::Absent => Tone::Warn,
                    };
                    let word = match state {
                        State::Fine => "fine",
                        State::Missing => "missing",
                        State::Absent => "absent",
                    };
                    ui.line(format!("{} {name}: {found}", ui.tone(tone, format!("{word:<8}"))))?;
                    if let Some(help) = help {
                        ui.line(format!("         help: {help}"))?;
                    }
                }
            }
        }
        Ok(match document.checks.iter().any(|check| check.state == State::Missing) {
            true => Exit::Findings,
            false => Exit::Fine,
        })
    }
}

fn processors() -> Check {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let digests = match crate::wire::hashes_in_lanes() {
        true => "digests many at a time",
        false => "digests one by one: no AVX-512",
    };
    Check::fine("processors", format!("{count}; {digests}"))
}

fn memory() -> Check {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mib = |key: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? >> 10)
    };
    match (mib("MemTotal:"), mib("MemAvailable:")) {
        (Some(total), Some(free)) => Check::fine(
            "memory",
            format!("{} MiB, {} of them free", thousands(total), thousands(free)),
        ),
        _ => Check::absent("memory", "the system does not say"),
    }
}

/// The first line that a program prints when it starts and ends well.
fn says(program: &std::path::Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn python(interpreter: &std::path::Path) -> Check {
    match says(interpreter, &["--version"]) {
        Some(version) => {
            Check::fine("selectors", format!("{} at {}", version, interpreter.display()))
        }
        None => Check::missing(
            "selectors",
            format!("{} does not start", interpreter.display()),
            "Policies as module:function need Python 3.9 or newer; --selector-python names another",
        ),
    }
}

/// The learner, and the libtorch that it runs on.
fn learner() -> Vec<Check> {
    let program = match find_learner() {
        Ok(program) => program,
        Err(error) => {
            let help = error.advice().unwrap_or_default().to_owned();
            return vec![Check::missing("learner", error.to_string(), help)];
        }
    };
    let found = Check::fine("learner", program.display().to_string());
    let dirs = library_path();
    let mut command = Command::new(&program);
    if let Ok(path) = std::env::join_paths(&dirs) {
        command.env("LD_LIBRARY_PATH", path);
    }
    let libtorch = match probe(command, &program) {
        Ok(()) => {
            let place = dirs.iter().find(|dir| dir.join("libtorch_cpu.so").exists());
            let place =
                place.map_or("where it was built".to_owned(), |dir| dir.display().to_string());
            Check::fine("libtorch", format!("built for {LIBTORCH}, starts with {place}"))
        }
        Err(error) => {
            let help = error.advice().unwrap_or_default().to_owned();
            Check::missing("libtorch", format!("{error}; it is built for {LIBTORCH}"), help)
        }
    };
    vec![found, libtorch]
}

/// NVIDIA devices, and whether libtorch's parts for them are where the learner looks.
fn cuda() -> Vec<Check> {
    let query = ["--query-gpu=name,memory.total", "--format=csv,noheader"];
    let Some(devices) = says("nvidia-smi".as_ref(), &query) else {
        return vec![Check::absent("cuda", "no NVIDIA device; step runs on the processor")];
    };
    let devices = devices.lines().collect::<Vec<_>>().join("; ");
    let dirs = library_path();
    let Some(dir) = dirs.iter().find(|dir| dir.join("libtorch_cuda.so").exists()) else {
        let help = format!(
            "Point LD_LIBRARY_PATH at the torch/lib folder of a CUDA build of torch {LIBTORCH}"
        );
        let found = format!("{devices}; libtorch_cuda.so is not found");
        return vec![Check::missing("cuda", found, help)];
    };
    let found = format!("{devices}; libtorch_cuda.so in {}", dir.display());
    let compiler = match dir.join("libcaffe2_nvrtc.so").exists() {
        true => Check::fine("cuda compiler", "libcaffe2_nvrtc.so beside libtorch_cuda.so"),
        false => Check::missing(
            "cuda compiler",
            "libcaffe2_nvrtc.so is not beside libtorch_cuda.so",
            "It comes with a CUDA build of torch; without it, give step --attention suffix",
        ),
    };
    vec![Check::fine("cuda", found), compiler]
}
