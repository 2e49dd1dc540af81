//! What share of the gradient each rollout gets, by how rows are averaged.
//!
//! A rollout that is cut into many rows must not weigh more for it. Averaged over tokens, as the
//! forest's loss is, it never does; averaged over rows, it weighs as often as it was cut. This
//! shows both, beside equal weights for all rollouts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::model::Row;
use crate::id::RolloutId;

/// One rollout's shares; each column sums to 1 over the rollouts that train.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Share {
    /// The rollout.
    #[schemars(with = "String")]
    pub rollout_id: RolloutId,
    /// Its rows.
    pub rows: u64,
    /// Its owned generated tokens.
    pub loss_tokens: u64,
    /// Mean over loss tokens: what `forestctl step` computes.
    pub token_mean: f64,
    /// Mean over rows of the mean over their tokens.
    pub sequence_mean: f64,
    /// Mean over rollouts of the mean over their tokens.
    pub rollout_mean: f64,
}

/// How many equally weighted rollouts the weights amount to: 1 over the sum of their squares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct EffectiveRollouts {
    /// By [`Share::token_mean`].
    pub token_mean: f64,
    /// By [`Share::sequence_mean`].
    pub sequence_mean: f64,
    /// By [`Share::rollout_mean`]: their number.
    pub rollout_mean: f64,
}

/// Shares of the rollouts whose rows carry loss, in row order.
pub fn shares(rows: &[Row]) -> Vec<Share> {
    let mut shares = loads(rows);
    weigh(&mut shares);
    shares
}

/// Rows and tokens of the rollouts whose rows carry loss, in row order, without any mean: of some
/// groups of a batch. [`weigh`] does the rest for all of them.
pub fn loads(rows: &[Row]) -> Vec<Share> {
    let mut places: BTreeMap<&RolloutId, usize> = BTreeMap::new();
    let mut shares: Vec<Share> = Vec::new();
    for row in rows.iter().filter(|row| row.sample_mask != 0.0) {
        let (tokens, Some(rollout_id)) = (row.loss_tokens() as u64, &row.rollout_id) else {
            continue;
        };
        if tokens == 0 {
            continue;
        }
        let place = *places.entry(rollout_id).or_insert_with(|| {
            shares.push(Share {
                rollout_id: rollout_id.clone(),
                rows: 0,
                loss_tokens: 0,
                token_mean: 0.0,
                sequence_mean: 0.0,
                rollout_mean: 0.0,
            });
            shares.len() - 1
        });
        shares[place].rows += 1;
        shares[place].loss_tokens += tokens;
    }
    shares
}

/// Fills in the means of counted loads.
pub fn weigh(shares: &mut [Share]) {
    let tokens: u64 = shares.iter().map(|share| share.loss_tokens).sum();
    let rows: u64 = shares.iter().map(|share| share.rows).sum();
    let rollouts = shares.len() as f64;
    for share in shares {
        share.token_mean = share.loss_tokens as f64 / tokens as f64;
        share.sequence_mean = share.rows as f64 / rows as f64;
        share.rollout_mean = 1.0 / rollouts;
    }
}

/// What the shares amount to; 0 where nothing trains.
pub fn effective(shares: &[Share]) -> EffectiveRollouts {
    let size = |weight: fn(&Share) -> f64| match shares {
        [] => 0.0,
        shares => 1.0 / shares.iter().map(|share| weight(share).powi(2)).sum::<f64>(),
    };
    EffectiveRollouts {
        token_mean: size(|share| share.token_mean),
        sequence_mean: size(|share| share.sequence_mean),
        rollout_mean: size(|share| share.rollout_mean),
    }
}
