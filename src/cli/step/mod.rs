//! `forestctl step`, and the command line of the learner that it runs.

mod settle;
mod tell;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Parser};

use super::ui::Ui;
use super::{Exit, Global, converse, parse};
use crate::error::{Error, Result};
use crate::step::plan::blocks::AttentionWay;
use crate::step::report::StepReport;
use crate::step::settings::{DeviceChoice, Dtype, Sharing};
pub use tell::progress;

pub(super) const LEARNER: &str = "forestctl-step";

/// What makes CUDA's linear algebra sum in the same order every time, as libtorch asks for it.
const CUBLAS_WORKSPACE: (&str, &str) = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8");

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl step rows --model Qwen3-0.6B -o ckpt --device cuda --dtype bfloat16
  forestctl step rows --model tiny -o ckpt --dtype float64 --lr 1e-3
  forestctl step rows --model tiny -o ckpt --steps 2 --minibatches 4 --tensorboard runs/a
  forestctl step rows2 --resume ckpt -o ckpt2
  forestctl step rows-1 rows-2 --model tiny -o ckpt --dtype float64

With --model, a checkpoint continues with its optimizer state under the settings of this command; with
--resume, settings come from the checkpoint too, and only flags change them.

The step itself is done by the program forestctl-step, which `make build` builds. It looks for
libtorch in LD_LIBRARY_PATH, then in $LIBTORCH/lib, then where it was built.

",
    exit_status!()
);

/// Run GRPO optimizer steps on rows
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StepArgs {
    /// The rows directory, or those of all shards of a batch
    #[arg(value_name = "ROWS", required = true)]
    pub rows: Vec<PathBuf>,
    /// Hugging Face model directory: config.json and safetensors
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    pub model: Option<PathBuf>,
    /// Checkpoint to go on from: model, optimizer state, step counter and settings
    #[arg(long, value_name = "CKPT", conflicts_with = "model")]
    pub resume: Option<PathBuf>,
    /// The checkpoint directory to write
    #[arg(short, long, value_name = "CKPT", required_unless_present = "measure")]
    pub output: Option<PathBuf>,
    /// Passes over the rows; log-probabilities of the previous policy are taken before the first
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub steps: u32,
    /// Optimizer steps of a pass, each on its share of the rollouts
    #[arg(long, value_name = "M", default_value_t = 1)]
    pub minibatches: u32,
    /// Model of the KL term
    #[arg(long, value_name = "DIR")]
    pub reference_model: Option<PathBuf>,
    /// Model that previous log-probabilities are taken from, instead of --model
    #[arg(long, value_name = "DIR")]
    pub prev_model: Option<PathBuf>,
    /// Coefficient of the KL term [default: 0.01 with --reference-model, else 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub kl_coef: Option<f64>,
    /// Learning rate [default: 5e-6]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub lr: Option<f64>,
    /// Decoupled weight decay of every parameter [default: 0.01]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub weight_decay: Option<f64>,
    /// Scale gradients down to this global norm [default: 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub max_grad_norm: Option<f64>,
    /// Decay of the first and second moment [default: 0.9,0.999]
    #[arg(long, value_name = "B1,B2", allow_hyphen_values = true, value_parser = betas)]
    pub betas: Option<(f64, f64)>,
    /// Number format of computation and checkpoint [default: the model's own]
    #[arg(long, value_enum, value_name = "DTYPE")]
    pub dtype: Option<Dtype>,
    /// cpu, cuda, or cuda:INDEX
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// Seed of libtorch's generator; a step draws nothing from it
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Tokens of rows that are computed at once; 0 computes row by row [default: 16384]
    #[arg(long, value_name = "TOKENS")]
    pub pack_tokens: Option<u64>,
    /// Compute tokens that rows share from their beginning on once [default: auto]
    #[arg(long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "always")]
    pub share_prefixes: Option<Sharing>,
    /// How attention over shared tokens is computed [default: auto]
    #[arg(long, value_enum, value_name = "WAY")]
    pub attention: Option<AttentionWay>,
    /// Give the same bytes every time: deterministic kernels on CUDA, one thread on the processor
    #[arg(long)]
    pub deterministic: bool,
    /// NeMo-RL YAML whose sections loss_fn and grpo are read; flags come first
    #[arg(long, value_name = "YAML")]
    pub config: Option<PathBuf>,
    /// Also write the gradients of the last optimizer step, as safetensors: before clipping, on CUDA
    /// after it
    #[arg(long, value_name = "FILE")]
    pub dump_gradients: Option<PathBuf>,
    /// Also write the rows' log-probabilities before the update, as safetensors
    #[arg(long, value_name = "FILE")]
    pub dump_logprobs: Option<PathBuf>,
    /// Also write metrics of every row in every optimizer step, a line of JSON each
    #[arg(long, value_name = "FILE")]
    pub dump_rows: Option<PathBuf>,
    /// Also write every metric of every optimizer step as a TensorBoard event file in this directory
    #[arg(long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,
    /// Tell where training time goes on CUDA too: two events around every product and attention, and
    /// a wait after every pack
    #[arg(long)]
    pub profile_time: bool,
    /// Replace existing outputs
    #[arg(long)]
    pub force: bool,
    /// Only measure: this many steps on drawn weights of the model's config.json, a line of JSON
    /// each; nothing is written
    #[arg(long, value_name = "STEPS", requires = "model")]
    pub measure: Option<u32>,
}

fn betas(text: &str) -> Result<(f64, f64), String> {
    let number = |x: &str| x.trim().parse::<f64>().ok();
    text.split_once(',')
        .and_then(|(first, second)| Some((number(first)?, number(second)?)))
        .ok_or_else(|| "expected two numbers with a comma between, such as 0.9,0.999".to_owned())
}

impl StepArgs {
    /// Hands over to the learner, which replaces this process.
    pub fn run(self, _ui: &Ui) -> Result<Exit> {
        let args = without_subcommand("step", std::env::args_os().skip(1));
        hand_over(&args, self.deterministic)
    }

    /// Refuses outputs that exist, that could not be written in the end, or that would replace an
    /// input, and an environment that cannot be deterministic; asked before the work.
    pub fn check(&self) -> Result<()> {
        let (name, value) = CUBLAS_WORKSPACE;
        let on_cuda = matches!(self.device, DeviceChoice::Cuda(_));
        if self.deterministic && on_cuda && std::env::var_os(name).is_none() {
            return Err(Error::usage(format!("--deterministic on CUDA needs {name} to be set"))
                .help(format!("Set {name}={value}, or start `forestctl step`, which does so")));
        }
        // Measuring writes nothing.
        let Some(output) = self.output.as_deref().filter(|_| self.measure.is_none()) else {
            return Ok(());
        };
        let (shown, output) = (output, resolved(output));
        let inputs = [self.reference_model.as_ref(), self.prev_model.as_ref()];
        let inputs = inputs.into_iter().chain([self.config.as_ref()]);
        let inputs = inputs.chain(self.rows.iter().map(Some));
        let replaced = |input: &&PathBuf| resolved(input).starts_with(&output);
        // Only the model itself may be continued in place.
        let policy = self.resume.as_ref().or(self.model.as_ref());
        let policy = policy.filter(|model| resolved(model) != output);
        if let Some(input) = inputs.chain([policy]).flatten().find(replaced) {
            return Err(Error::usage(format!(
                "{} would replace {}, which the step reads",
                shown.display(),
                input.display()
            ))
            .help("Choose another output"));
        }
        let dumps = [
            ("--dump-gradients", self.dump_gradients.as_ref()),
            ("--dump-logprobs", self.dump_logprobs.as_ref()),
            ("--dump-rows", self.dump_rows.as_ref()),
        ];
        let dumps: Vec<_> = dumps.into_iter().filter_map(|(flag, to)| Some((flag, to?))).collect();
        for (_, dump) in &dumps {
            let refuse = |what: &str, help: &str| {
                Err(Error::usage(format!("{} {what}", dump.display())).help(help))
            };
            let place = resolved(dump);
            if dump.is_dir() {
                return refuse("is a directory", "Choose a file");
            }
            if !self.force && dump.symlink_metadata().is_ok() {
                return refuse("already exists", "Choose another file, or replace it with --force");
            }
            if place.starts_with(&output) {
                return refuse("would lie in the checkpoint", "Choose a file outside of it");
            }
            if !place.parent().is_some_and(Path::is_dir) {
                return refuse("would lie in a directory that is not there", "Create it first");
            }
        }
        for (i, (flag, dump)) in dumps.iter().enumerate() {
            let same = |(_, other): &&(_, &PathBuf)| resolved(other) == resolved(dump);
            if let Some((other, _)) = dumps[..i].iter().find(same) {
                return Err(Error::usage(format!("{} would hold two dumps", dump.display()))
                    .help(format!("Give {other} and {flag} files of their own")));
            }
        }
        if let Some(folder) = &self.tensorboard
            && resolved(folder).starts_with(&output)
        {
            return Err(Error::usage(format!("{} would lie in the checkpoint", folder.display()))
                .help("Choose a directory outside of it"));
        }
        Ok(())
    }
}

/// Replaces this process by the learner with these arguments; `deterministic` is for cuBLAS, which
/// reads its word from the environment.
pub(super) fn hand_over(args: &[OsString], deterministic: bool) -> Result<Exit> {
    let learner = find_learner()?;
    let libraries = std::env::join_paths(library_path()).ok().filter(|path| !path.is_empty());
    let command = || {
        let mut command = Command::new(&learner);
        if let Some(path) = &libraries {
            command.env("LD_LIBRARY_PATH", path);
        }
        // Threads that spin while they wait take the cores from whatever else runs, and a
        // step on busy cores then takes many times as long.
        if std::env::var_os("OMP_WAIT_POLICY").is_none() {
            command.env("OMP_WAIT_POLICY", "passive");
        }
        let (name, value) = CUBLAS_WORKSPACE;
        if deterministic && std::env::var_os(name).is_none() {
            command.env(name, value);
        }
        command
    };
    // The loader's own complaint of a missing or foreign libtorch helps nobody.
    probe(command(), &learner)?;
    let error = std::os::unix::process::CommandExt::exec(command().args(args));
    Err(Error::io("cannot run", learner, error))
}

/// The program that knows libtorch: beside this one, or on PATH.
pub(super) fn find_learner() -> Result<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(LEARNER)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join(LEARNER));
    beside.into_iter().chain(on_path).find(|file| file.is_file()).ok_or_else(|| {
        Error::missing(format!("{LEARNER}, which makes the step, is not installed"))
            .help("Build it with `make build`; that fetches libtorch (0.6 GB) first")
    })
}

/// Where libtorch may lie, the user's own word first.
pub(super) fn library_path() -> Vec<PathBuf> {
    let stated = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut dirs: Vec<_> =
        std::env::split_paths(&stated).filter(|dir| !dir.as_os_str().is_empty()).collect();
    dirs.extend(std::env::var_os("LIBTORCH").map(|dir| Path::new(&dir).join("lib")));
    // Built in a checkout, programs lie in target/PROFILE.
    let checkout = std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.ancestors().nth(3)?.join(".deps/libtorch/lib")));
    dirs.extend(checkout.filter(|dir| dir.is_dir()));
    dirs
}

/// Where a path leads, links resolved as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let beside = || {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Some(resolved(parent.unwrap_or(Path::new("."))).join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(beside).unwrap_or_else(|| path.to_owned())
}

/// Whether the learner starts, and if not, what to do.
pub(super) fn probe(mut command: Command, learner: &Path) -> Result<()> {
    let output =
        command.arg("--version").output().map_err(|e| Error::io("cannot run", learner, e))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(Error::missing(format!("{LEARNER} does not start"))
        .because(words.lines().next().unwrap_or("it says nothing").to_owned())
        .help(
            "Run scripts/libtorch.sh, or point LD_LIBRARY_PATH at the torch/lib folder of a \
             torch 2.11.0",
        ))
}

/// The arguments without the word of the subcommand, which comes before anything else of that
/// spelling: no option before it takes such a value.
pub(super) fn without_subcommand(
    word: &str,
    args: impl Iterator<Item = OsString>,
) -> Vec<OsString> {
    let mut args: Vec<_> = args.collect();
    if let Some(at) = args.iter().position(|arg| arg == OsStr::new(word)) {
        args.remove(at);
    }
    args
}

/// The learner behind `forestctl step`: GRPO optimizer steps on libtorch
#[derive(Debug, Parser)]
#[command(name = LEARNER, version, max_term_width = 100)]
struct Learner {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    step: StepArgs,
}

/// The whole of `forestctl-step` but the step: parses, runs, and returns the exit code. `step` gets
/// the number of threads that were asked for, 0 for all; it tells nothing more when it only
/// measured.
pub fn main(
    args: impl IntoIterator<Item = OsString>,
    step: impl FnOnce(&StepArgs, usize, &Ui) -> Result<Option<Vec<StepReport>>>,
) -> u8 {
    match parse::<Learner>(args) {
        Ok(learner) => converse(&learner.global, |ui| {
            ui.start_threads(u64::MAX);
            match step(&learner.step, learner.global.jobs.into(), ui)? {
                Some(reports) => tell::show(&learner.step, &reports, ui),
                None => Ok(Exit::Fine),
            }
        }),
        Err(exit) => exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subcommand_alone_is_dropped() {
        let args = ["--color", "never", "step", "step", "--model", "m"];
        let left = without_subcommand("step", args.iter().map(OsString::from));
        assert_eq!(left, ["--color", "never", "step", "--model", "m"]);
    }
}
