//! What `build-rows` tells of the rows that it wrote.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::ui::{Format, Tone, Ui, thousands};
use crate::error::Result;
use crate::rows::RowsManifest;
use crate::rows::shard::ShardRows;
use crate::rows::weights::EffectiveRollouts;

/// JSON Schema of `--format json`.
pub(in crate::cli) fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

/// `--format json`.
#[derive(Debug, Serialize, JsonSchema)]
struct Document {
    schema_version: u32,
    rows: u64,
    padding_rows: u64,
    masked_rows: u64,
    rollouts: u64,
    valid_rollouts: u64,
    groups: u64,
    dropped_groups: u64,
    loss_tokens: u64,
    row_tokens: u64,
    unique_tokens: u64,
    /// How many equally weighted rollouts the gradient amounts to.
    effective_rollouts: EffectiveRollouts,
    /// Metrics of the whole batch under the names of NeMo-RL.
    metrics: BTreeMap<String, f64>,
    /// The shard that was written, if not all; every other number is of the whole batch.
    shard: Option<ShardLine>,
}

/// A shard by itself.
#[derive(Debug, Serialize, JsonSchema)]
struct ShardLine {
    /// Counted from 1.
    index: u32,
    count: u32,
    groups: u64,
    rows: u64,
    loss_tokens: u64,
    row_tokens: u64,
}

pub(super) fn report(
    manifest: &RowsManifest,
    effective_rollouts: EffectiveRollouts,
    output: &Path,
    ui: &Ui,
) -> Result<()> {
    let counts = &manifest.counts;
    let document = Document {
        schema_version: 1,
        rows: counts.rows,
        padding_rows: counts.padding_rows,
        masked_rows: counts.masked_rows,
        rollouts: counts.rollouts,
        valid_rollouts: counts.valid_rollouts,
        groups: counts.groups,
        dropped_groups: counts.dropped_groups,
        loss_tokens: counts.loss_tokens,
        row_tokens: counts.row_tokens,
        unique_tokens: counts.unique_tokens,
        effective_rollouts,
        metrics: manifest.metrics.clone(),
        shard: manifest.shard.map(|ShardRows { shard, counts }| ShardLine {
            index: shard.index,
            count: shard.count,
            groups: counts.groups - counts.dropped_groups,
            rows: counts.rows,
            loss_tokens: counts.loss_tokens,
            row_tokens: counts.row_tokens,
        }),
    };
    match ui.format {
        Format::Json => ui.json(&document),
        Format::Jsonl => ui.jsonl(&document),
        Format::Csv => {
            let fields = document.fields();
            let header: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
            let cells = fields.iter().map(|(_, value)| value.clone()).collect();
            ui.csv(&header, [cells])
        }
        Format::Human => {
            let repeated = counts.row_tokens as f64 / counts.unique_tokens.max(1) as f64;
            let masked: Vec<String> =
                manifest.masked.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
            let bins = manifest.packed.as_ref().map_or_else(String::new, |packed| {
                let bins = thousands(packed.bins.len() as u64);
                format!(
                    "\n  {bins} bins of {} tokens, efficiency {:.2}",
                    thousands(packed.settings.bin_tokens),
                    packed.efficiency
                )
            });
            let shard = document.shard.as_ref().map_or_else(String::new, |shard| {
                format!(
                    "\n  shard {} of {}: {} prompt groups, {} rows, {} loss tokens",
                    shard.index,
                    shard.count,
                    thousands(shard.groups),
                    thousands(shard.rows),
                    thousands(shard.loss_tokens),
                )
            });
            let masked = if masked.is_empty() {
                String::new()
            } else {
                format!("; masked: {}", masked.join(", "))
            };
            ui.summary(format!(
                "{}  {}\n  \
                 {} rows: {} train, {} masked, {} padding\n  \
                 {} of {} rollouts valid{masked}\n  \
                 {} of {} prompt groups kept\n  \
                 {} loss tokens; {} row tokens from {} unique ones ({repeated:.2} x)\n  \
                 weighs like {:.1} equal rollouts by tokens, {:.1} by rows{bins}{shard}",
                ui.tone(Tone::Strong, output.display()),
                ui.tone(Tone::Good, "written"),
                thousands(counts.rows),
                thousands(counts.rows - counts.padding_rows - counts.masked_rows),
                thousands(counts.masked_rows),
                thousands(counts.padding_rows),
                thousands(counts.valid_rollouts),
                thousands(counts.rollouts),
                thousands(counts.groups - counts.dropped_groups),
                thousands(counts.groups),
                thousands(counts.loss_tokens),
                thousands(counts.row_tokens),
                thousands(counts.unique_tokens),
                effective_rollouts.token_mean,
                effective_rollouts.sequence_mean,
            ))
        }
    }
}

impl Document {
    fn fields(&self) -> Vec<(String, String)> {
        let EffectiveRollouts { token_mean, sequence_mean, rollout_mean } = self.effective_rollouts;
        let counts = [
            ("schema_version", u64::from(self.schema_version)),
            ("rows", self.rows),
            ("padding_rows", self.padding_rows),
            ("masked_rows", self.masked_rows),
            ("rollouts", self.rollouts),
            ("valid_rollouts", self.valid_rollouts),
            ("groups", self.groups),
            ("dropped_groups", self.dropped_groups),
            ("loss_tokens", self.loss_tokens),
            ("row_tokens", self.row_tokens),
            ("unique_tokens", self.unique_tokens),
        ];
        let effective = [
            ("effective_rollouts_token_mean", token_mean),
            ("effective_rollouts_sequence_mean", sequence_mean),
            ("effective_rollouts_rollout_mean", rollout_mean),
        ];
        let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count.to_string()));
        let effective = effective.map(|(name, size)| (name.to_owned(), size.to_string()));
        let metrics = self.metrics.iter().map(|(name, value)| (name.clone(), value.to_string()));
        counts.chain(effective).chain(metrics).collect()
    }
}
