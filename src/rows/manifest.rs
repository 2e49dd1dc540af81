//! `rows.json`: what a rows directory holds and where it came from, fixed before publication.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::build::Batch;
use super::metrics::{self, Metrics};
use super::packing::{Packing, PackingError};
use super::shard::ShardRows;
use crate::config::{BatchSettings, GrpoSettings};
use crate::error::{Error, Result};
use crate::id::{Digest32, GroupId, RolloutId};

/// Format of rows directories that this version writes. A new minor only adds; a new major changes.
pub const FORMAT: Format = Format { major: 1, minor: 2 };

/// Version of the format of a rows directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// Readers of another major refuse.
    pub major: u32,
    /// Readers of an older minor ignore what they do not know.
    pub minor: u32,
}

/// What rows were built from, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// BLAKE3 of the archive's manifest; `None` when the rows come from no archive.
    pub archive: Option<Digest32>,
    /// Selection policy.
    pub policy: String,
    /// Sources of unknown completeness were accepted.
    pub assume_complete: bool,
    /// Ranks and microbatches that the padding is for.
    pub batch: BatchSettings,
    /// How the advantages were computed.
    pub grpo: GrpoSettings,
    /// Pooled errors of captured log-probabilities above this masked a rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq_logprob_error_threshold: Option<f64>,
}

/// Counts over rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Physical rows, stand-ins and padding included.
    pub rows: u64,
    /// Execution padding among them.
    pub padding_rows: u64,
    /// Rows of owners among them that do not train.
    pub masked_rows: u64,
    /// Logical rollouts seen, those of dropped groups included.
    pub rollouts: u64,
    /// Rollouts with a valid selection; learner-side filters do not lower it.
    pub valid_rollouts: u64,
    /// Prompt groups seen.
    pub groups: u64,
    /// Groups left out whole.
    pub dropped_groups: u64,
    /// Owned generated tokens of rows that train: the normaliser N.
    pub loss_tokens: u64,
    /// Tokens of the rows of valid rollouts: R.
    pub row_tokens: u64,
    /// Tokens of the selected calls of valid rollouts, each call once: U.
    pub unique_tokens: u64,
}

impl Counts {
    /// Adds the counts of other groups.
    pub fn add(&mut self, other: &Counts) {
        self.rows += other.rows;
        self.padding_rows += other.padding_rows;
        self.masked_rows += other.masked_rows;
        self.rollouts += other.rollouts;
        self.valid_rollouts += other.valid_rollouts;
        self.groups += other.groups;
        self.dropped_groups += other.dropped_groups;
        self.loss_tokens += other.loss_tokens;
        self.row_tokens += other.row_tokens;
        self.unique_tokens += other.unique_tokens;
    }
}

/// One kept prompt group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRows {
    /// The group.
    pub group_id: GroupId,
    /// Its logical rollouts.
    pub rollouts: u32,
    /// Those with a valid selection.
    pub valid_rollouts: u32,
    /// Oldest weights among the spans of valid rows; `None` when one is unknown.
    pub weight_version: Option<u64>,
    /// Ids of its rows in row order, padding last.
    pub row_ids: Vec<String>,
}

/// One group that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedGroup {
    /// The group.
    pub group_id: GroupId,
    /// Why: a code.
    pub reason: String,
}

/// Lengths of one logical rollout before any learner-side filter (rule 128); all 0 when its
/// layout could not be verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerLengths {
    /// The rollout.
    pub rollout_id: RolloutId,
    /// Uniquely owned generated tokens.
    pub gen_tokens_per_sample: u64,
    /// Largest single generation.
    pub max_gen_tokens_per_turn: u64,
    /// Longest row.
    pub total_tokens_per_sample: u64,
}

/// One Parquet file, holding whole prompt groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Path below the rows directory.
    pub path: String,
    /// Rows in it.
    pub rows: u64,
    /// Tokens in it.
    pub tokens: u64,
    /// Size of the file.
    pub bytes: u64,
    /// BLAKE3 of the file.
    pub blake3: Digest32,
}

/// Rows in bins, each a packed sequence of a microbatch (rule 127).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Packed {
    /// How they were packed.
    pub settings: Packing,
    /// Indices of rows in row order, each in one bin. Bin `k` belongs to rank `k mod bin_multiple`.
    pub bins: Vec<Vec<u32>>,
    /// Bins that the tokens need at least, over those that there are.
    pub efficiency: f64,
}

impl Packed {
    /// Packs rows of these lengths.
    ///
    /// # Errors
    ///
    /// As [`Packing::pack`].
    pub fn of(lengths: &[u64], settings: Packing) -> std::result::Result<Self, PackingError> {
        let bins = settings.pack(lengths)?;
        let efficiency = settings.efficiency(lengths, bins.len());
        // A batch has far fewer than 2^32 rows.
        let bins = bins.into_iter().map(|bin| bin.into_iter().map(|row| row as u32).collect());
        Ok(Self { settings, bins: bins.collect(), efficiency })
    }
}

/// Content of `rows.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowsManifest {
    /// Version of the directory format.
    pub format: Format,
    /// Program and version that wrote it.
    pub tool: String,
    /// What the rows were built from, and how.
    pub provenance: Provenance,
    /// The number that divides the rows of every group.
    pub row_multiple: u32,
    /// Counts over the whole batch, all shards of it.
    pub counts: Counts,
    /// Masked rollouts of the whole batch by the first reason, those of dropped groups included (rules 72, 124).
    pub masked: BTreeMap<String, u64>,
    /// Metrics of the whole batch.
    #[serde(default)]
    pub metrics: Metrics,
    /// Which shard of the batch this directory holds; what follows is of this shard alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardRows>,
    /// Kept groups in row order.
    pub groups: Vec<GroupRows>,
    /// Groups left out.
    pub dropped_groups: Vec<DroppedGroup>,
    /// One observation per rollout, dropped groups included.
    pub lengths: Vec<OwnerLengths>,
    /// Rows in bins, with sequence packing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<Packed>,
    /// The files.
    pub parts: Vec<Part>,
}

/// Key under which `rows.json` carries the BLAKE3 of its own content: that of its compact JSON
/// with sorted keys and without this key.
const SEAL: &str = "blake3";

impl RowsManifest {
    /// The manifest of a batch, before its parts are written.
    pub fn new(provenance: Provenance, row_multiple: u32, batch: &Batch) -> Self {
        Self {
            format: FORMAT,
            tool: concat!("forestctl ", env!("CARGO_PKG_VERSION")).to_owned(),
            provenance,
            row_multiple,
            counts: batch.counts,
            metrics: metrics::of(batch),
            shard: None,
            groups: batch.groups.clone(),
            dropped_groups: batch.dropped_groups.clone(),
            masked: batch.masked.clone(),
            lengths: batch.lengths.clone(),
            packed: None,
            parts: Vec::new(),
        }
    }

    /// Counts over the rows of this directory.
    pub fn own_counts(&self) -> &Counts {
        self.shard.as_ref().map_or(&self.counts, |shard| &shard.counts)
    }

    /// The text of `rows.json`, sealed.
    pub fn to_json(&self) -> Result<String> {
        let failed = |e| Error::format("cannot write rows.json").because(e);
        let mut value = serde_json::to_value(self).map_err(failed)?;
        let seal = seal(&value).map_err(failed)?;
        if let Some(map) = value.as_object_mut() {
            map.insert(SEAL.to_owned(), seal.to_string().into());
        }
        let mut text = serde_json::to_string_pretty(&value).map_err(failed)?;
        text.push('\n');
        Ok(text)
    }

    /// Reads the text of `rows.json`, checking version and seal.
    pub fn from_json(text: &str) -> Result<Self> {
        let corrupt = |e| Error::format("rows.json is not a rows manifest").because(e);
        let mut value: serde_json::Value = serde_json::from_str(text).map_err(corrupt)?;
        let major = value.get("format").and_then(|f| f.get("major"));
        let major = major.and_then(serde_json::Value::as_u64);
        if major.is_some_and(|m| m != u64::from(FORMAT.major)) {
            return Err(Error::format(format!(
                "these rows have format {}, and this forestctl reads format {}",
                major.unwrap_or_default(),
                FORMAT.major
            ))
            .help("Build the rows again from their archive with this version"));
        }
        let found = value.as_object_mut().and_then(|map| map.remove(SEAL));
        let expected = seal(&value).map_err(corrupt)?.to_string();
        if found.as_ref().and_then(serde_json::Value::as_str) != Some(&expected) {
            return Err(Error::format("rows.json differs from the BLAKE3 that it carries")
                .help("It was changed after it was written; build the rows again"));
        }
        serde_json::from_value(value).map_err(corrupt)
    }
}

fn seal(value: &serde_json::Value) -> serde_json::Result<Digest32> {
    Ok(Digest32(*blake3::hash(&serde_json::to_vec(value)?).as_bytes()))
}
