//! Metrics of a batch under the names of NeMo-RL (rules 72, 119, 124, 128).

use std::collections::BTreeMap;

use super::build::Batch;
use super::manifest::OwnerLengths;
use crate::finding::Code;

/// Metrics by name.
pub type Metrics = BTreeMap<String, f64>;

/// Those of a batch: one observation per rollout, those of dropped groups included, before any
/// learner-side filter. Rollouts without a verified layout are observed as 0.
pub fn of(batch: &Batch) -> Metrics {
    let mut metrics = Metrics::new();
    let mut of = |name: &str, length: fn(&OwnerLengths) -> u64| {
        spread(&mut metrics, name, batch.lengths.iter().map(length).collect());
    };
    of("gen_tokens_per_sample", |lengths| lengths.gen_tokens_per_sample);
    of("max_gen_tokens_per_turn", |lengths| lengths.max_gen_tokens_per_turn);
    of("total_tokens_per_sample", |lengths| lengths.total_tokens_per_sample);
    let rollouts = |code: Code| batch.reasons.get(code.as_str()).copied().unwrap_or_default();
    let counts = [
        ("finalize/selection_not_closed_rollouts", rollouts(Code::SelectionNotClosed)),
        ("finalize/environment_masked_rollouts", rollouts(Code::EnvironmentMasked)),
        ("dropped_prompt_groups", batch.counts.dropped_groups),
    ];
    metrics.extend(counts.map(|(name, count)| (name.to_owned(), count as f64)));
    metrics
}

/// Mean, extremes, median, and standard deviation (with divisor n - 1).
fn spread(metrics: &mut Metrics, name: &str, mut values: Vec<u64>) {
    values.sort_unstable();
    let (Some(&min), Some(&max)) = (values.first(), values.last()) else { return };
    let n = values.len();
    let mean = values.iter().map(|&v| v as f64).sum::<f64>() / n as f64;
    let median = (values[(n - 1) / 2] as f64 + values[n / 2] as f64) / 2.0;
    let squares: f64 = values.iter().map(|&v| (v as f64 - mean).powi(2)).sum();
    let stddev = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
    let of = [
        ("mean", mean),
        ("max", max as f64),
        ("min", min as f64),
        ("median", median),
        ("stddev", stddev),
    ];
    metrics.extend(of.map(|(kind, value)| (format!("{name}/{kind}"), value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_those_of_a_handheld_calculator() {
        let mut metrics = Metrics::new();
        spread(&mut metrics, "n", vec![4, 0, 9, 3]);
        let of = |kind: &str| metrics[&format!("n/{kind}")];
        assert_eq!([of("mean"), of("max"), of("min"), of("median")], [4.0, 9.0, 0.0, 3.5]);
        // 16 + 0 + 25 + 1 over 3.
        assert_eq!(of("stddev"), 14_f64.sqrt());
        let mut one = Metrics::new();
        spread(&mut one, "n", vec![7]);
        assert_eq!((one["n/stddev"], one["n/median"]), (0.0, 7.0));
        spread(&mut one, "none", Vec::new());
        assert_eq!(one.len(), 5);
    }
}
