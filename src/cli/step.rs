//! `forestctl step`, and the command line of the learner that it runs.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Parser};
use indicatif::ProgressBar;

use super::ui::{Format, Tone, Ui, thousands};
use super::{Exit, Global, converse, parse};
use crate::config::loss::LossConfig;
use crate::config::recipe::Recipe;
use crate::error::{Error, Result};
use crate::rows::Provenance;
use crate::step::report::StepReport;
use crate::step::settings::{AdamW, DeviceChoice, Dtype, StepSettings};

pub(super) const LEARNER: &str = "forestctl-step";

/// A mean error of captured probabilities above this comes from no drift between two updates.
const FOREIGN_POLICY: f64 = 2.0;

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl step rows --model Qwen3-0.6B -o ckpt --device cuda --dtype bfloat16
  forestctl step rows --model tiny -o ckpt --dtype float64 --lr 1e-3
  forestctl step rows --model ckpt -o ckpt2 --reference-model tiny --config grpo.yaml

The step itself is done by the program forestctl-step, which `make build` builds. It looks for
libtorch in LD_LIBRARY_PATH, then in $LIBTORCH/lib, then where it was built. A checkpoint that
--model names continues with its optimizer state.

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
    /// Model of the KL term
    #[arg(long, value_name = "DIR")]
    pub reference_model: Option<PathBuf>,
    /// Model that previous log-probabilities are taken from, instead of --model
    #[arg(long, value_name = "DIR")]
    pub prev_model: Option<PathBuf>,
    /// Coefficient of the KL term [default: 0.01 with --reference-model, else 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub kl_coef: Option<f64>,
    /// Learning rate
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value_t = AdamW::default().lr)]
    pub lr: f64,
    /// Decoupled weight decay of every parameter
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value_t = AdamW::default().weight_decay)]
    pub weight_decay: f64,
    /// Scale gradients down to this global norm
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value_t = AdamW::default().max_grad_norm)]
    pub max_grad_norm: f64,
    /// Decay of the first and second moment
    #[arg(long, value_name = "B1,B2", default_value = "0.9,0.999", allow_hyphen_values = true, value_parser = betas)]
    pub betas: (f64, f64),
    /// Number format of computation and checkpoint [default: the model's own]
    #[arg(long, value_enum, value_name = "DTYPE")]
    pub dtype: Option<Dtype>,
    /// cpu, cuda, or cuda:INDEX
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// Seed of libtorch's generator; a step draws nothing from it
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Tokens of rows that are computed at once; 0 computes row by row
    #[arg(long, value_name = "TOKENS", default_value_t = 16384)]
    pub pack_tokens: u64,
    /// NeMo-RL YAML whose sections loss_fn and grpo are read; flags come first
    #[arg(long, value_name = "YAML")]
    pub config: Option<PathBuf>,
    /// Also write the gradients before clipping, as safetensors
    #[arg(long, value_name = "FILE")]
    pub dump_gradients: Option<PathBuf>,
    /// Also write the rows' log-probabilities before the update, as safetensors
    #[arg(long, value_name = "FILE")]
    pub dump_logprobs: Option<PathBuf>,
    /// Replace existing outputs
    #[arg(long)]
    pub force: bool,
    /// Only measure: this many steps on drawn weights of the model's config.json, a line of JSON
    /// each; nothing is written
    #[arg(long, value_name = "STEPS")]
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
        hand_over(&without_subcommand("step", std::env::args_os().skip(1)))
    }

    /// Refuses outputs that exist, that could not be written in the end, or that would replace an
    /// input; asked before the work.
    pub fn check_outputs(&self) -> Result<()> {
        let output = resolved(&self.output);
        let inputs = [Some(&self.rows), self.reference_model.as_ref(), self.prev_model.as_ref()];
        let replaced = |input: &&PathBuf| resolved(input).starts_with(&output);
        // Only the model itself may be continued in place.
        let model = Some(&self.model).filter(|model| resolved(model) != output);
        if let Some(input) =
            inputs.into_iter().chain([self.config.as_ref(), model]).flatten().find(replaced)
        {
            return Err(Error::usage(format!(
                "{} would replace {}, which the step reads",
                self.output.display(),
                input.display()
            ))
            .help("Choose another output"));
        }
        let dumps = [&self.dump_gradients, &self.dump_logprobs].map(Option::as_ref);
        for dump in dumps.into_iter().flatten() {
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
        match dumps {
            [Some(a), Some(b)] if resolved(a) == resolved(b) => {
                Err(Error::usage(format!("{} would hold two dumps", a.display()))
                    .help("Give --dump-gradients and --dump-logprobs files of their own"))
            }
            _ => Ok(()),
        }
    }

    /// Settles flags, YAML and defaults. `model_dtype` is what the model was saved in, `rows` what
    /// the rows were built with.
    pub fn settings(
        &self,
        rows: &Provenance,
        model_dtype: Option<&str>,
        ui: &Ui,
    ) -> Result<StepSettings> {
        let recipe = match &self.config {
            Some(path) => Recipe::read(path)?,
            None => Recipe::default(),
        };
        let others = ["token_capture.", "policy.", "async_rl.", "grpo.num_"];
        let of_others = |key: &&String| others.iter().any(|section| key.starts_with(section));
        let unused = recipe.stated.keys().filter(of_others);
        let ignored: Vec<&str> = recipe.ignored.iter().chain(unused).map(String::as_str).collect();
        if !ignored.is_empty() {
            ui.say(format!("step does not read from --config: {}", ignored.join(", ")));
        }
        if let Some(contradiction) = recipe.grpo.contradiction(&rows.grpo) {
            return Err(Error::usage(contradiction)
                .help("Advantages belong to the rows: build them again, or drop the key"));
        }
        let loss = LossConfig {
            reference_policy_kl_penalty: self.kl_coefficient(&recipe)?,
            ..recipe.loss
        };
        let settings = StepSettings {
            dtype: self.dtype.unwrap_or_else(|| Dtype::of_model(model_dtype)),
            device: self.device,
            seed: self.seed,
            pack_tokens: Some(self.pack_tokens).filter(|tokens| *tokens > 0),
            optimizer: AdamW {
                lr: self.lr,
                betas: self.betas,
                weight_decay: self.weight_decay,
                max_grad_norm: self.max_grad_norm,
                ..AdamW::default()
            },
            loss,
            seq_logprob_error_threshold: recipe.grpo.seq_logprob_error_threshold,
            grpo: rows.grpo,
        };
        settings.check()?;
        Ok(settings)
    }

    fn kl_coefficient(&self, recipe: &Recipe) -> Result<f64> {
        let stated = recipe
            .states("loss_fn.reference_policy_kl_penalty")
            .then_some(recipe.loss.reference_policy_kl_penalty);
        let default = match self.reference_model {
            Some(_) => LossConfig::default().reference_policy_kl_penalty,
            None => 0.0,
        };
        if let Some(flag) = self.kl_coef.filter(|x| !(*x >= 0.0 && x.is_finite())) {
            return Err(Error::usage(format!(
                "--kl-coef is {flag}; it must be finite and not negative"
            )));
        }
        let coefficient = self.kl_coef.or(stated).unwrap_or(default);
        if coefficient != 0.0 && self.reference_model.is_none() {
            return Err(Error::usage(format!(
                "a KL coefficient of {coefficient} needs a reference model"
            ))
            .help("Give --reference-model DIR, or --kl-coef 0"));
        }
        Ok(coefficient)
    }
}

/// Replaces this process by the learner with these arguments.
pub(super) fn hand_over(args: &[OsString]) -> Result<Exit> {
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

/// The learner behind `forestctl step`: one GRPO optimizer step on libtorch
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
    step: impl FnOnce(&StepArgs, usize, &Ui) -> Result<Option<StepReport>>,
) -> u8 {
    match parse::<Learner>(args) {
        Ok(learner) => converse(&learner.global, |ui| {
            ui.start_threads(u64::MAX);
            match step(&learner.step, learner.global.jobs.into(), ui)? {
                Some(report) => show(&learner.step, &report, ui),
                None => Ok(Exit::Fine),
            }
        }),
        Err(exit) => exit,
    }
}

fn show(args: &StepArgs, report: &StepReport, ui: &Ui) -> Result<Exit> {
    let error = report.metrics.tokens.token_mult_prob_error;
    if error > FOREIGN_POLICY {
        ui.say(format!(
            "{} captured probabilities are {error:.3} times off those of the model; is it the one \
             that sampled these rows?",
            ui.tone_err(Tone::Warn, "warning:")
        ));
    }
    match ui.format {
        Format::Json => ui.json(report)?,
        Format::Jsonl => ui.jsonl(report)?,
        Format::Csv => ui.csv(&["name", "value"], table(report))?,
        Format::Human => ui.summary(human(args, report, ui).trim_end())?,
    }
    Ok(Exit::Fine)
}

fn human(args: &StepArgs, report: &StepReport, ui: &Ui) -> String {
    let (metrics, means) = (&report.metrics, &report.metrics.tokens);
    let clipped = match metrics.clip_coefficient < 1.0 {
        true => format!("clipped by {:.4}", metrics.clip_coefficient),
        false => "not clipped".to_owned(),
    };
    let mut text = format!(
        "{}  loss {:.6}, gradient norm {:.6} ({clipped}), {} loss tokens in {} rows\n",
        ui.tone(Tone::Strong, format!("step {}", metrics.step)),
        report.loss,
        report.grad_norm,
        thousands(report.loss_tokens),
        thousands(means.num_valid_samples),
    );
    text += &format!(
        "  captured against recomputed: exp|g-p| {:.6}, KL {:.6}, JS {:.6}, importance weight {:.6}\n",
        means.token_mult_prob_error,
        means.gen_kl_error,
        means.js_divergence_error,
        means.sampling_importance_ratio,
    );
    let bound = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.6}"));
    text += &format!(
        "  policy: ratio {:.6} ({} to {}), entropy {:.6}",
        means.probs_ratio,
        bound(means.probs_ratio_min),
        bound(means.probs_ratio_max),
        means.approx_entropy,
    );
    if metrics.kl_coefficient != 0.0 {
        text +=
            &format!(", KL to the reference {:.6} x {}", means.kl_penalty, metrics.kl_coefficient);
    }
    text.push('\n');
    if means.minus_infinity_tokens > 0 {
        text += &format!(
            "  {} tokens have a log-probability of minus infinity; the diagnostics leave them out\n",
            thousands(means.minus_infinity_tokens)
        );
    }
    let masked = &metrics.sequence_error;
    if masked.num_masked_seqs > 0 {
        text += &format!(
            "  masked {} rollouts ({} rows) above the sequence error threshold\n",
            masked.masked_rollouts.len(),
            masked.num_masked_seqs
        );
    }
    text + &format!("wrote model, optimizer state and metrics to {}\n", args.output.display())
}

/// Every number of the report, by name; numbers that are not there are empty.
fn table(report: &StepReport) -> Vec<Vec<String>> {
    let value = serde_json::to_value(report).unwrap_or_default();
    let number = |v: &serde_json::Value| if v.is_null() { String::new() } else { v.to_string() };
    let top = ["loss", "grad_norm", "loss_tokens"];
    let top = top.iter().map(|name| vec![(*name).to_owned(), number(&value[*name])]);
    let metrics = value["metrics"].as_object().into_iter().flatten();
    let metrics = metrics
        .filter(|(_, v)| v.is_number() || v.is_null())
        .map(|(name, v)| vec![name.clone(), number(v)]);
    top.chain(metrics).collect()
}

/// A progress bar per label, on stderr.
pub fn progress(ui: &Ui) -> impl Fn(&'static str, u64, u64) + '_ {
    let current: RefCell<Option<(&'static str, ProgressBar)>> = RefCell::new(None);
    move |label, done, total| {
        let mut current = current.borrow_mut();
        if current.as_ref().is_none_or(|(shown, _)| *shown != label) {
            *current = Some((label, ui.progress(label, total)));
        }
        if let Some((_, bar)) = &*current {
            bar.set_position(done);
            if done == total {
                bar.finish_and_clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ui::ColorChoice;
    use crate::config::{BatchSettings, GrpoSettings};

    fn settle(flags: &[&str], yaml: Option<&str>) -> Result<StepSettings> {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("c.yaml");
        let mut args = vec!["forestctl-step", "rows", "--model", "m", "-o", "out"];
        args.extend(flags);
        if let Some(yaml) = yaml {
            std::fs::write(&file, yaml).unwrap();
            args.extend(["--config", file.to_str().unwrap()]);
        }
        let learner = Learner::try_parse_from(args).unwrap();
        let provenance = Provenance {
            archive: None,
            policy: "returned_history".to_owned(),
            assume_complete: false,
            batch: BatchSettings::default(),
            grpo: GrpoSettings::default(),
            seq_logprob_error_threshold: None,
        };
        let ui = Ui::new(Format::Human, ColorChoice::Never, true, 0);
        learner.step.settings(&provenance, Some("bfloat16"), &ui)
    }

    #[test]
    fn the_kl_coefficient_follows_flag_then_file_then_reference() {
        let coefficient =
            |flags: &[&str], yaml| settle(flags, yaml).map(|s| s.loss.reference_policy_kl_penalty);
        let file = Some("loss_fn: {reference_policy_kl_penalty: 0.5}");
        let silent = Some("loss_fn: {ratio_clip_max: 0.3}");
        let reference = ["--reference-model", "r"];
        assert_eq!(coefficient(&[], None).unwrap(), 0.0);
        assert_eq!(coefficient(&[], silent).unwrap(), 0.0);
        assert_eq!(coefficient(&reference, silent).unwrap(), 0.01);
        assert_eq!(coefficient(&reference, file).unwrap(), 0.5);
        let both = ["--reference-model", "r", "--kl-coef", "0.25"];
        assert_eq!(coefficient(&both, file).unwrap(), 0.25);
        assert!(coefficient(&[], file).unwrap_err().to_string().contains("reference model"));
    }

    #[test]
    fn flags_and_model_settle_the_rest() {
        let settings = settle(&["--betas", "0.8, 0.95", "--lr", "1e-3"], None).unwrap();
        assert_eq!((settings.optimizer.betas, settings.optimizer.lr), ((0.8, 0.95), 1e-3));
        assert_eq!(settings.dtype, Dtype::Bfloat16);
        let settings = settle(&["--dtype", "float64"], None).unwrap();
        assert_eq!(settings.dtype, Dtype::Float64);
        assert!(settle(&["--lr=-1"], None).is_err());
        let contradiction = settle(&[], Some("grpo: {normalize_rewards: false}")).unwrap_err();
        assert!(contradiction.to_string().contains("grpo.normalize_rewards"));
    }

    #[test]
    fn the_subcommand_alone_is_dropped() {
        let args = ["--color", "never", "step", "step", "--model", "m"];
        let left = without_subcommand("step", args.iter().map(OsString::from));
        assert_eq!(left, ["--color", "never", "step", "--model", "m"]);
    }
}
