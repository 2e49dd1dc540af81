//! `forestctl-step`: the learner. `forestctl step` and `forestctl audit-logprobs` find and run it.

#[path = "../learner/mod.rs"]
mod learner;

use std::process::ExitCode;
use std::time::Instant;

use forestctl::cli::audit::{self, AUDIT};
use forestctl::cli::step::{StepArgs, main as converse, progress};
use forestctl::cli::ui::Ui;
use forestctl::error::{Error, Result};
use forestctl::output::{AtomicDir, write_file};
use forestctl::rows::{self, WholeBatch};
use forestctl::step::model::Architecture;
use forestctl::step::report::{RowReport, StepReport};
use forestctl::step::settings::{DeviceChoice, StepSettings};
use forestctl::step::state::{TRAINER_STATE, trained_before};
use learner::events::EventFile;
use learner::{Models, Observer, checkpoint};

fn main() -> ExitCode {
    let mut args: Vec<_> = std::env::args_os().collect();
    if args.get(1).is_some_and(|word| word == AUDIT) {
        args.remove(1);
        return ExitCode::from(audit::main(args, learner::audit::run));
    }
    ExitCode::from(converse(args, step))
}

fn step(args: &StepArgs, threads: usize, ui: &Ui) -> Result<Option<Vec<StepReport>>> {
    if let Some(output) = args.output.as_ref().filter(|_| args.measure.is_none()) {
        // Refused now rather than after the work; what is written later appears whole.
        drop(AtomicDir::create(output, args.force, TRAINER_STATE)?);
    }
    args.check()?;
    let policy = args.policy()?;
    let begun = Instant::now();
    let WholeBatch { provenance, mut rows, digest } = rows::read_batch(&args.rows)?;
    let read_seconds = begun.elapsed().as_secs_f64();
    let architecture = Architecture::read(&policy.join("config.json"))?;
    let resumed = args.resumed()?;
    let settings =
        args.settings(&provenance, architecture.dtype.as_deref(), resumed.as_ref(), ui)?;
    warn_of_long_rows(&rows, &architecture, ui);
    set_threads(threads, &settings);
    if let Some(steps) = args.measure {
        let profile = args.profile_time;
        learner::measure(&rows, policy, &settings, steps, profile, |times| ui.jsonl(times))?;
        return Ok(None);
    }
    for run in trained_before(policy).iter().filter(|run| run.rows_blake3 == digest) {
        ui.say(format!(
            "{} was trained on these rows before, in steps {} to {}",
            policy.display(),
            run.first_step,
            run.last_step
        ));
    }

    let models = Models {
        policy,
        previous: args.prev_model.as_deref(),
        reference: args.reference_model.as_deref(),
    };
    let progress = progress(ui);
    let mut events = args.tensorboard.as_deref().map(EventFile::create).transpose()?;
    let mut lines = Vec::new();
    let told = |report: &StepReport, trained_on: Vec<RowReport>| {
        if args.dump_rows.is_some() {
            write_lines(&mut lines, &trained_on)?;
        }
        events.as_mut().map_or(Ok(()), |events| events.write(report))
    };
    let observer = Observer {
        progress: &progress,
        told: Box::new(told),
        profile: args.profile_time,
        read_seconds,
    };
    let mut trained = learner::run(&mut rows, models, &settings, observer)?;
    let Some(output) = &args.output else { return Ok(Some(trained.reports)) };
    let draft = AtomicDir::create(output, args.force, TRAINER_STATE)?;
    let write_seconds = checkpoint::write(draft.path(), policy, &trained, &settings, digest)?;
    if let Some(file) = &args.dump_gradients {
        checkpoint::write_gradients(file, &trained.policy, args.force)?;
    }
    if let Some(file) = &args.dump_logprobs {
        checkpoint::write_logprobs(file, &rows, &trained, args.force)?;
    }
    if let Some(file) = &args.dump_rows {
        write_file(file, args.force, &lines)?;
    }
    draft.publish()?;
    if let Some(last) = trained.reports.last_mut().and_then(|report| report.performance.as_mut()) {
        last.io_seconds += write_seconds;
    }
    Ok(Some(trained.reports))
}

/// More threads than processors only wait for each other; and as sums are split by thread, a
/// deterministic step on the processor takes one.
fn set_threads(threads: usize, settings: &StepSettings) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = match settings.deterministic && settings.device == DeviceChoice::Cpu {
        true => 1,
        false => threads.min(processors),
    };
    if let Ok(threads @ 1..) = i32::try_from(threads) {
        tch::set_num_threads(threads);
    }
}

fn write_lines(lines: &mut Vec<u8>, reports: &[RowReport]) -> Result<()> {
    for report in reports {
        serde_json::to_writer(&mut *lines, report)
            .map_err(|e| Error::format("cannot write JSON").because(e))?;
        lines.push(b'\n');
    }
    Ok(())
}

fn warn_of_long_rows(rows: &[rows::Row], architecture: &Architecture, ui: &Ui) {
    let longest = rows.iter().map(|row| row.input_ids.len()).max().unwrap_or_default();
    if let Some(limit) = architecture.max_position_embeddings.filter(|limit| longest > *limit) {
        ui.say(format!(
            "warning: the longest row has {longest} tokens, and the model is meant for {limit}"
        ));
    }
}
