//! How rows come into bins.

use serde::{Deserialize, Serialize};

/// How rows are assigned to bins (`policy.sequence_packing.algorithm`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum PackingAlgorithm {
    /// In row order; a row that does not fit begins the next bin
    Concatenative,
    /// Longest first, each into the first bin with room
    FirstFitDecreasing,
    /// In an order shuffled by the seed, each into the first bin with room
    FirstFitShuffle,
    /// Long rows one by one, completed by shorter ones; what is left over longest first
    #[default]
    ModifiedFirstFitDecreasing,
}

/// Order of the bins that one rank works on (`policy.sequence_packing.microbatch_order`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum MicrobatchOrder {
    /// As the packer made them
    #[default]
    Packer,
    /// Most tokens first
    LargestFirst,
}
