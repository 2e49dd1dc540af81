//! Group-relative advantages, one per logical rollout (rules 110, 112, 116; `spec/semantics.md`
//! section 2).

use std::collections::BTreeMap;

use super::model::Row;
use crate::config::{GrpoSettings, MaskedRewardPolicy};
use crate::finding::Code;
use crate::id::{GroupId, RolloutId};

/// How a logical rollout takes part in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its rows carry loss.
    Trains,
    /// A learner-side filter masks it: overlong, or the sequence error.
    Filtered,
    /// It has no verified layout, or the environment masked it.
    Masked,
}

/// One slot of a prompt group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Owner {
    /// Its reward; an owner without a finite one never votes.
    pub reward: Option<f64>,
    /// How it takes part.
    pub standing: Standing,
}

/// What a group's rewards say of one owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advantage {
    /// Reward that was to be expected.
    pub baseline: f64,
    /// Standard deviation of the rewards that count, 0 where it is not defined.
    pub std: f64,
    /// Clipped, normalised difference; 0 for owners that do not train.
    pub advantage: f64,
}

const STD_EPSILON: f64 = 1e-6;

/// Computes the advantages of one group's owners, in their order.
///
/// An owner that does not vote gets, under leave-one-out, the sum of all votes over one less than
/// their number as its baseline; it has no use, as its advantage is 0, but is upstream's value.
pub fn advantages(owners: &[Owner], settings: &GrpoSettings) -> Vec<Advantage> {
    let rewards: Vec<Option<f64>> =
        owners.iter().map(|o| o.reward.filter(|r| r.is_finite())).collect();
    let votes: Vec<Option<f64>> = owners
        .iter()
        .zip(&rewards)
        .map(|(owner, reward)| reward.filter(|_| has_vote(owner.standing, settings)))
        .collect();
    let voters = votes.iter().flatten().count();
    owners
        .iter()
        .enumerate()
        .map(|(i, owner)| {
            let reward = rewards[i].unwrap_or_default();
            let (baseline, std) = match voters {
                0 | 1 => (reward, 0.0),
                _ => {
                    let left_out = settings.leave_one_out.then_some(i);
                    let counted = votes.iter().enumerate().filter(|(j, _)| Some(*j) != left_out);
                    let n = voters - usize::from(settings.leave_one_out);
                    moments(counted.filter_map(|(_, vote)| *vote), n as f64)
                }
            };
            let mut advantage = reward - baseline;
            if settings.normalize && std > 0.0 {
                advantage /= std + STD_EPSILON;
            }
            if let Some(low) = settings.advantage_clip_low {
                advantage = advantage.max(low);
            }
            if let Some(high) = settings.advantage_clip_high {
                advantage = advantage.min(high);
            }
            if owner.standing != Standing::Trains {
                advantage = 0.0;
            }
            Advantage { baseline, std, advantage }
        })
        .collect()
}

fn has_vote(standing: Standing, settings: &GrpoSettings) -> bool {
    match settings.masked_reward_policy {
        MaskedRewardPolicy::Exclude => standing == Standing::Trains,
        MaskedRewardPolicy::Include => standing != Standing::Masked,
        MaskedRewardPolicy::IncludeAll => true,
    }
}

/// Mean and unbiased standard deviation with divisor `n`.
///
/// The difference of two means of squares does not vanish when all rewards are equal, and a
/// standard deviation of 1e-9 would blow the advantage up; so equality is tested on the rewards.
fn moments(rewards: impl Iterator<Item = f64> + Clone, n: f64) -> (f64, f64) {
    let mean = rewards.clone().sum::<f64>() / n;
    let mut pairs = rewards.clone().zip(rewards.clone().skip(1));
    if pairs.all(|(a, b)| a == b) {
        return (mean, 0.0);
    }
    let square = rewards.map(|r| r * r).sum::<f64>() / n;
    let std = ((square - mean * mean) * n / (n - 1.0)).sqrt();
    (mean, if std.is_finite() { std } else { 0.0 })
}

/// Gives every row its owner's advantage, sample mask and mask reason.
///
/// `filtered` names rollouts that the learner masks beyond what the rows already say, with the
/// reason. An owner is read off its rows: no reason = it trains, a reason that a learner-side
/// filter gives = filtered, any other = masked. Execution padding stays at 0. Idempotent, so the
/// learner calls it again after filtering.
pub fn assign(rows: &mut [Row], settings: &GrpoSettings, filtered: &BTreeMap<RolloutId, Code>) {
    let mut groups: BTreeMap<GroupId, BTreeMap<RolloutId, Owner>> = BTreeMap::new();
    for row in rows.iter_mut() {
        let Some(rollout) = &row.rollout_id else { continue };
        let reason = filtered
            .get(rollout)
            .copied()
            .or_else(|| (settings.overlong_filtering && row.truncated).then_some(Code::Overlong));
        if let (None, Some(reason)) = (&row.mask_reason, reason) {
            row.mask_reason = Some(reason.as_str().to_owned());
        }
        row.sample_mask = if row.mask_reason.is_none() { 1.0 } else { 0.0 };
        let standing = match row.mask_reason.as_deref().map(Code::parse) {
            None => Standing::Trains,
            Some(Some(Code::Overlong | Code::SeqLogprobError)) => Standing::Filtered,
            Some(_) => Standing::Masked,
        };
        let owners = groups.entry(row.group_id.clone()).or_default();
        owners.insert(rollout.clone(), Owner { reward: row.reward, standing });
    }
    let mut found: BTreeMap<RolloutId, f64> = BTreeMap::new();
    for owners in groups.into_values() {
        let standings: Vec<Owner> = owners.values().copied().collect();
        let values = advantages(&standings, settings);
        found.extend(owners.into_keys().zip(values.iter().map(|a| a.advantage)));
    }
    for row in rows {
        let advantage = row.rollout_id.as_ref().and_then(|id| found.get(id));
        row.advantage = advantage.copied().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(rewards: &[f64]) -> Vec<Owner> {
        let owner = |&r: &f64| Owner { reward: Some(r), standing: Standing::Trains };
        rewards.iter().map(owner).collect()
    }

    fn values(owners: &[Owner], settings: &GrpoSettings) -> Vec<f64> {
        advantages(owners, settings).iter().map(|a| a.advantage).collect()
    }

    fn close(found: &[f64], expected: &[f64], tolerance: f64) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() <= tolerance, "{found:?} is not {expected:?}");
        }
    }

    #[test]
    fn a_masked_owner_neither_votes_nor_gets() {
        let mut group = owners(&[1.0, 1.0, 0.0, 0.0]);
        group[1].standing = Standing::Filtered;
        let plain = GrpoSettings { leave_one_out: false, normalize: false, ..Default::default() };
        let third = 1.0 / 3.0;
        close(&values(&group, &plain), &[2.0 * third, 0.0, -third, -third], 1e-15);
        let scaled = GrpoSettings { normalize: true, ..plain };
        close(&values(&group, &scaled), &[1.155, 0.0, -0.577, -0.577], 5e-4);
        let rest = GrpoSettings { leave_one_out: true, ..plain };
        close(&values(&group, &rest), &[1.0, 0.0, -0.5, -0.5], 1e-15);
        let include = GrpoSettings { masked_reward_policy: MaskedRewardPolicy::Include, ..rest };
        close(&values(&group, &include), &[2.0 * third, 0.0, -2.0 * third, -2.0 * third], 1e-15);
    }

    #[test]
    fn equal_rewards_leave_the_difference_as_it_is() {
        for others in [0.3, 0.9, 0.1, 1.0 / 3.0] {
            let found = values(&owners(&[1.0, others, others, others]), &GrpoSettings::default());
            close(&found[..1], &[1.0 - others], 1e-15);
        }
    }

    #[test]
    fn clipping_moves_neither_masked_owners_nor_those_without_reward() {
        let mut group = owners(&[1.0, 0.0, 0.5, 0.25]);
        group[2].standing = Standing::Masked;
        group[3] = Owner { reward: None, standing: Standing::Masked };
        let settings = GrpoSettings {
            advantage_clip_low: Some(0.1),
            advantage_clip_high: Some(0.5),
            masked_reward_policy: MaskedRewardPolicy::IncludeAll,
            ..Default::default()
        };
        assert_eq!(values(&group, &settings), [0.5, 0.1, 0.0, 0.0]);
    }

    #[test]
    fn a_lone_voter_has_nothing_to_compare_with() {
        assert_eq!(values(&owners(&[0.7]), &GrpoSettings::default()), [0.0]);
        assert!(advantages(&[], &GrpoSettings::default()).is_empty());
    }
}
