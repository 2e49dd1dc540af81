//! `forestctl-step`: the learner. `forestctl step` and `forestctl audit-logprobs` find and run it.

#[path = "../learner/mod.rs"]
mod learner;

use std::path::Path;
use std::process::ExitCode;

use forestctl::cli::audit::{self, AUDIT};
use forestctl::cli::step::{StepArgs, main as converse, progress};
use forestctl::cli::ui::Ui;
use forestctl::error::{Error, Result};
use forestctl::id::Digest32;
use forestctl::output::AtomicDir;
use forestctl::rows::{self, MANIFEST};
use forestctl::step::model::Architecture;
use forestctl::step::report::StepReport;
use learner::{Models, checkpoint};

fn main() -> ExitCode {
    let mut args: Vec<_> = std::env::args_os().collect();
    if args.get(1).is_some_and(|word| word == AUDIT) {
        args.remove(1);
        return ExitCode::from(audit::main(args, learner::audit::run));
    }
    ExitCode::from(converse(args, step))
}

fn step(args: &StepArgs, threads: usize, ui: &Ui) -> Result<Option<StepReport>> {
    if args.measure.is_none() {
        // Refused now rather than after the work; what is written later appears whole.
        drop(AtomicDir::create(&args.output, args.force, checkpoint::TRAINER_STATE)?);
        args.check_outputs()?;
    }
    let mut rows = rows::read(&args.rows)?;
    if let Some(part) = rows.manifest.shard {
        return Err(Error::usage(format!(
            "{} holds shard {}, and a step takes a whole batch",
            args.rows.display(),
            part.shard
        ))
        .help("Build the rows without --shard"));
    }
    let digest = digest(&args.rows)?;
    let architecture = Architecture::read(&args.model.join("config.json"))?;
    let settings = args.settings(&rows.manifest.provenance, architecture.dtype.as_deref(), ui)?;
    warn_of_long_rows(&rows.rows, &architecture, ui);
    // More threads than processors only wait for each other.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if let Ok(threads @ 1..) = i32::try_from(threads.min(processors)) {
        tch::set_num_threads(threads);
    }
    if let Some(steps) = args.measure {
        learner::measure(&rows.rows, &args.model, &settings, steps, |times| ui.jsonl(times))?;
        return Ok(None);
    }

    let models = Models {
        policy: &args.model,
        previous: args.prev_model.as_deref(),
        reference: args.reference_model.as_deref(),
    };
    let progress = progress(ui);
    let trained = learner::run(&mut rows.rows, models, &settings, &progress)?;
    let draft = AtomicDir::create(&args.output, args.force, checkpoint::TRAINER_STATE)?;
    checkpoint::write(draft.path(), &args.model, &trained, &settings, digest)?;
    if let Some(file) = &args.dump_gradients {
        checkpoint::write_gradients(file, &trained.policy, args.force)?;
    }
    if let Some(file) = &args.dump_logprobs {
        checkpoint::write_logprobs(file, &rows.rows, &trained, args.force)?;
    }
    draft.publish()?;
    Ok(Some(trained.report))
}

/// BLAKE3 of `rows.json`, which itself holds that of every part.
fn digest(rows: &Path) -> Result<Digest32> {
    let path = rows.join(MANIFEST);
    let text = std::fs::read(&path).map_err(|e| Error::io("cannot read", path, e))?;
    Ok(Digest32(*blake3::hash(&text).as_bytes()))
}

fn warn_of_long_rows(rows: &[rows::Row], architecture: &Architecture, ui: &Ui) {
    let longest = rows.iter().map(|row| row.input_ids.len()).max().unwrap_or_default();
    if let Some(limit) = architecture.max_position_embeddings.filter(|limit| longest > *limit) {
        ui.say(format!(
            "warning: the longest row has {longest} tokens, and the model is meant for {limit}"
        ));
    }
}
