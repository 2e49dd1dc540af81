//! What a run tells: the report of every optimizer step, in all formats.

use std::cell::RefCell;

use indicatif::ProgressBar;

use super::StepArgs;
use crate::cli::Exit;
use crate::cli::ui::{Format, Tone, Ui, thousands};
use crate::error::Result;
use crate::step::report::{Performance, StepReport, TimeSplit};

/// A mean error of captured probabilities above this comes from no drift between two updates.
const FOREIGN_POLICY: f64 = 2.0;

/// Tells of all optimizer steps of a run: as a JSON document of the last one, otherwise of every one.
pub fn show(args: &StepArgs, reports: &[StepReport], ui: &Ui) -> Result<Exit> {
    let [.., last] = reports else { return Ok(Exit::Nothing) };
    let error = last.metrics.tokens.token_mult_prob_error;
    if error > FOREIGN_POLICY {
        ui.say(format!(
            "{} captured probabilities are {error:.3} times off those of the model; is it the one \
             that sampled these rows?",
            ui.tone_err(Tone::Warn, "warning:")
        ));
    }
    match ui.format {
        Format::Json => ui.json(last)?,
        Format::Jsonl => ui.jsonl_all(reports)?,
        Format::Csv => ui.csv(&["step", "name", "value"], reports.iter().flat_map(numbers))?,
        Format::Human => {
            if reports.len() > 1 {
                let header =
                    ["step", "epoch", "minibatch", "loss", "gradient norm", "clipped", "approx KL"];
                ui.table(&header, reports.iter().map(line))?;
            }
            ui.summary(human(args, reports, last, ui).trim_end())?;
        }
    }
    Ok(Exit::Fine)
}

/// A step of several, in a line.
fn line(report: &StepReport) -> Vec<String> {
    let metrics = &report.metrics;
    vec![
        metrics.step.to_string(),
        metrics.epoch.to_string(),
        metrics.minibatch.to_string(),
        format!("{:.6}", report.loss),
        format!("{:.6}", report.grad_norm),
        format!("{:.4}", metrics.tokens.clip_fraction),
        format!("{:.6}", metrics.tokens.approx_kl),
    ]
}

/// The last step in words, and what all of them took.
fn human(args: &StepArgs, reports: &[StepReport], report: &StepReport, ui: &Ui) -> String {
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
        "  policy: ratio {:.6} ({} to {}, {:.2}% clipped), entropy {:.6}",
        means.probs_ratio,
        bound(means.probs_ratio_min),
        bound(means.probs_ratio_max),
        100.0 * means.clip_fraction,
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
    if let Some(performance) = together(reports) {
        text += &speed(&performance);
    }
    match &args.output {
        Some(output) => {
            text + &format!("wrote model, optimizer state and metrics to {}\n", output.display())
        }
        None => text,
    }
}

/// What several steps took: seconds and tokens added up, rates over these.
fn together(reports: &[StepReport]) -> Option<Performance> {
    let mut each = reports.iter().filter_map(|report| report.performance.clone());
    let mut all = each.next()?;
    for next in each {
        let seconds = |p: &Performance| p.train_seconds + p.update_seconds;
        let tokens = |p: &Performance| p.tokens_per_second * seconds(p);
        all.tokens_per_second = (tokens(&all) + tokens(&next)) / (seconds(&all) + seconds(&next));
        let trained = all.train_seconds + next.train_seconds;
        all.mfu = all
            .mfu
            .zip(next.mfu)
            .map(|(a, b)| (a * all.train_seconds + b * next.train_seconds) / trained);
        all.train_seconds = trained;
        all.update_seconds += next.update_seconds;
        all.score_seconds += next.score_seconds;
        all.io_seconds += next.io_seconds;
        all.peak_bytes = all.peak_bytes.max(next.peak_bytes);
        all.split = all.split.zip(next.split).map(|(a, b)| TimeSplit {
            attention_seconds: a.attention_seconds + b.attention_seconds,
            linear_seconds: a.linear_seconds + b.linear_seconds,
            head_seconds: a.head_seconds + b.head_seconds,
            other_seconds: a.other_seconds + b.other_seconds,
        });
    }
    Some(all)
}

fn speed(performance: &Performance) -> String {
    let mut text = format!("  speed: {:.0} tokens per second", performance.tokens_per_second);
    if let Some(mfu) = performance.mfu {
        text += &format!(", {:.1}% of the device's peak", 100.0 * mfu);
    }
    if let Some(bytes) = performance.peak_bytes {
        text += &format!(", at most {:.2} GiB", bytes as f64 / f64::from(1 << 30));
    }
    text += &format!(
        "\n  seconds: scoring {:.2}, training {:.2}",
        performance.score_seconds, performance.train_seconds
    );
    if let Some(split) = &performance.split {
        text += &format!(
            " (attention {:.2}, linear {:.2}, head {:.2}, other {:.2})",
            split.attention_seconds, split.linear_seconds, split.head_seconds, split.other_seconds
        );
    }
    text + &format!(
        ", optimizer {:.2}, I/O {:.2}\n",
        performance.update_seconds, performance.io_seconds
    )
}

/// Every number of a report, by step and name; numbers that are not there are empty.
fn numbers(report: &StepReport) -> Vec<Vec<String>> {
    let step = report.metrics.step.to_string();
    let number = |x: Option<f64>| x.map(|x| x.to_string()).unwrap_or_default();
    report.scalars().into_iter().map(|(name, x)| vec![step.clone(), name, number(x)]).collect()
}

/// A progress bar per label, on stderr.
pub fn progress(ui: &Ui) -> impl Fn(&'static str, u64, u64) + '_ {
    let current: RefCell<Option<(&'static str, ProgressBar)>> = RefCell::new(None);
    move |label, done, total| {
        let mut current = current.borrow_mut();
        // Later steps train again under the same label.
        let over =
            |(shown, bar): &(&'static str, ProgressBar)| *shown != label || bar.is_finished();
        if current.as_ref().is_none_or(over) {
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
    use crate::step::metrics::Sums;
    use crate::step::report::{SCHEMA_VERSION, StepMetrics};
    use crate::step::sequence_error::Filtered;

    /// 300 tokens in 4 seconds and 900 in 8, at half and a quarter of the peak.
    #[test]
    fn steps_together_have_the_rates_of_their_sums() {
        let report = |tokens: f64, train: f64, update: f64, mfu: f64, score: f64| {
            let performance = Performance {
                train_seconds: train,
                update_seconds: update,
                score_seconds: score,
                tokens_per_second: tokens / (train + update),
                mfu: Some(mfu),
                split: Some(TimeSplit { linear_seconds: train / 2.0, ..TimeSplit::default() }),
                ..Performance::default()
            };
            let sequence_error = Filtered {
                masked_rollouts: Vec::new(),
                num_masked_seqs: 0,
                masked_correct_pct: 0.0,
                before: None,
                after: None,
            };
            StepReport {
                schema_version: SCHEMA_VERSION,
                loss: 0.0,
                grad_norm: 0.0,
                loss_tokens: 0,
                metrics: StepMetrics {
                    step: 1,
                    epoch: 1,
                    minibatch: 1,
                    tokens: Sums::default().finish(0, 0),
                    clip_coefficient: 1.0,
                    lr: 0.0,
                    kl_coefficient: 0.0,
                    kl_loss: 0.0,
                    sequence_error,
                },
                performance: Some(performance),
            }
        };
        let all = [report(300.0, 3.0, 1.0, 0.5, 2.0), report(900.0, 6.0, 2.0, 0.25, 0.0)];
        let sum = together(&all).unwrap();
        assert_eq!((sum.tokens_per_second, sum.train_seconds), (100.0, 9.0));
        assert_eq!((sum.mfu, sum.score_seconds), (Some(3.0 / 9.0), 2.0));
        assert_eq!(sum.split.unwrap().linear_seconds, 4.5);
        assert!(together(&[]).is_none());
    }
}
