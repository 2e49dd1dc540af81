//! What distributions a report has.

use schemars::JsonSchema;
use serde::Serialize;

use super::distribution::Distribution;
use crate::explain::{Sample, Summary};

/// One measure over rollouts, prompt groups, or compactions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Measure {
    /// Stable word.
    pub name: &'static str,
    /// For people.
    #[serde(skip)]
    pub title: &'static str,
    /// What the values are, and what has one.
    pub unit: &'static str,
    /// How they spread.
    pub distribution: Distribution,
}

/// All measures of a summary, in the order of a report.
pub fn measures(summary: &Summary) -> Vec<Measure> {
    let samples = &summary.samples;
    let of_groups = summary.groups.iter().filter_map(|group| group.ratio()).collect();
    let ratios = Sample { trains: of_groups, others: Vec::new() };
    let before = summary.compactions.iter().map(|(before, _)| *before as f64).collect();
    let after = summary.compactions.iter().map(|(_, after)| *after as f64).collect();
    let [before, after] = [before, after].map(|trains| Sample { trains, others: Vec::new() });
    [
        ("rows", "Rows per rollout", "rows, by rollout that trains", &samples.rows),
        ("tokens", "Tokens per rollout", "captured tokens, by rollout", &samples.tokens),
        (
            "loss_tokens",
            "Loss tokens per rollout",
            "tokens with loss, by rollout that trains",
            &samples.loss_tokens,
        ),
        ("rewards", "Rewards", "reward, by rollout that has one", &samples.rewards),
        (
            "token_ratio",
            "R / U per prompt group",
            "row tokens / tokens with each prefix once",
            &ratios,
        ),
        (
            "mismatch",
            "Log-probability mismatch",
            "mean exp|captured - given|, by rollout",
            &samples.mismatch,
        ),
        (
            "before_compaction",
            "Context before a compaction",
            "tokens of the conversation, by compaction",
            &before,
        ),
        (
            "after_compaction",
            "Context after a compaction",
            "tokens of the new prompt, by compaction",
            &after,
        ),
    ]
    .into_iter()
    .map(|(name, title, unit, sample)| Measure {
        name,
        title,
        unit,
        distribution: Distribution::of(sample),
    })
    .collect()
}
