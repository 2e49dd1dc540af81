//! Scores generations for `audit-logprobs`: alone under their own context, and in packs of rows.

use std::collections::BTreeSet;

use forestctl::cli::audit::{AuditArgs, AuditGroup, Source};
use forestctl::cli::step::progress;
use forestctl::cli::ui::Ui;
use forestctl::error::Result;
use forestctl::rows::Row;
use forestctl::step::audit::{
    Audit, AuditReport, Captured, Generation, OwnContext, ScoredRows, calls_of_rows, generated,
    is_scorable,
};
use forestctl::step::model::Architecture;
use forestctl::step::plan::pack::Pack;
use forestctl::step::settings::{Layout, Sharing};

use super::decoder::Decoder;
use super::run::{Progress, score};
use super::tensor::open_device;

/// Audits what the arguments name.
///
/// # Errors
///
/// Sources or models that cannot be read; token ids beyond the model's vocabulary.
pub fn run(args: &AuditArgs, threads: usize, ui: &Ui) -> Result<AuditReport> {
    let saved = Architecture::read(&args.model.join("config.json"))?.dtype;
    let tolerances = args.tolerances(saved.as_deref())?;
    let source = args.open()?;
    // More threads than processors only wait for each other.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if let Ok(threads @ 1..) = i32::try_from(threads.min(processors)) {
        tch::set_num_threads(threads);
    }
    let device = open_device(args.device, 0)?;
    let model = Decoder::load(&args.model, args.dtype(saved.as_deref()), device, false)?;
    let packing = args.packing();
    let own_context = match source {
        Source::Rows(_, None) => OwnContext::Row,
        _ => OwnContext::Archive,
    };
    let mut audit = Audit::new(tolerances, own_context, args.weight_version);
    match source {
        Source::Archive(archive) => args.each_group(&archive, true, ui, |group| {
            let AuditGroup { calls, rows } = group;
            let scored = in_rows(&model, &rows, packing, &|_, _, _| {})?;
            hold(&mut audit, &model, &calls, &scored)
        })?,
        Source::Rows(rows, archive) => {
            let bar = progress(ui);
            let scored = in_rows(&model, &rows.rows, packing, &bar)?;
            let Some(archive) = archive else {
                hold(&mut audit, &model, &calls_of_rows(&rows.rows), &scored)?;
                return Ok(audit.finish(args.top));
            };
            let mut known = BTreeSet::new();
            args.each_group(&archive, false, ui, |mut group| {
                group.calls.retain(|call| scored.hold(&call.rollout_id, &call.call_id));
                let ids = group.calls.iter();
                known.extend(ids.map(|call| (call.rollout_id.clone(), call.call_id.clone())));
                hold(&mut audit, &model, &group.calls, &scored)
            })?;
            scored.strangers(&known).for_each(|placed| audit.stranger(&placed));
        }
    }
    Ok(audit.finish(args.top))
}

/// Scores every generated token of the rows that can be scored, in packs as a step makes them unless
/// told otherwise.
///
/// # Errors
///
/// Rows that contradict themselves or the vocabulary.
pub fn in_rows(
    model: &Decoder,
    rows: &[Row],
    pack_tokens: Option<u64>,
    progress: Progress,
) -> Result<ScoredRows> {
    let rows: Vec<Row> = rows.iter().filter(|row| is_scorable(row)).cloned().collect();
    let marked: Vec<Row> = rows.iter().map(generated).collect();
    let layout = Layout { pack_tokens, share_prefixes: Sharing::default() };
    let scores = score(model, &marked, layout, "rows", progress)?;
    Ok(ScoredRows::new(rows, &scores))
}

/// Scores calls under their own contexts and holds them against their places in rows.
///
/// # Errors
///
/// Token ids beyond the vocabulary.
pub fn hold(
    audit: &mut Audit,
    model: &Decoder,
    calls: &[Captured],
    scored: &ScoredRows,
) -> Result<()> {
    for Captured { generation, .. } in calls {
        match generation {
            Ok(generation) => {
                audit.add(generation, &own(model, generation)?, &scored.places(generation));
            }
            Err(why) => audit.skip(*why),
        }
    }
    Ok(())
}

/// Log-probabilities of a generation under its own context, alone; NaN at a first token, which
/// nothing predicts.
fn own(model: &Decoder, generation: &Generation) -> Result<Vec<f64>> {
    let (ids, start) = (generation.ids(), generation.start());
    let targets: Vec<usize> = (start.max(1)..ids.len()).collect();
    let scores = model.score(&Pack::of_one(&ids, &targets)).map_err(|e| {
        let Generation { rollout_id, call_id, .. } = generation;
        e.within(format!("call {call_id} of rollout {rollout_id} ({} tokens)", ids.len()))
    })?;
    let mut own = vec![f64::NAN; ids.len() - start - scores.len()];
    own.extend(scores);
    Ok(own)
}
