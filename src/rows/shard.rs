//! Shards of a batch: whole prompt groups, so that any machine can compute the advantages of its
//! own, with about the same number of tokens each.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::manifest::Counts;

/// One of several shards, as `2/4`: counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Which one, from 1.
    pub index: u32,
    /// Of how many.
    pub count: u32,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no shard; the first of four is 1/4");
        let (index, count) = text.split_once('/').ok_or_else(wrong)?;
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u32>().map_err(|_| wrong()),
            false => Err(wrong()),
        };
        let (index, count) = (number(index)?, number(count)?);
        match index {
            1.. if index <= count => Ok(Self { index, count }),
            _ => Err(format!("{text}: shards of {count} are counted from 1 to {count}")),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// The shard that a rows directory holds, with the counts of its own rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardRows {
    /// Which one.
    #[serde(flatten)]
    pub shard: Shard,
    /// As the counts of the whole batch, of this shard alone.
    pub counts: Counts,
}

/// The shard of every item by its weight, as of a prompt group by its row tokens: the heaviest
/// first, each to the shard that has the least so far. Items without weight go where there are
/// fewest items. Shards count from 1. Depends on the items alone, not on their order, if no two
/// have one name.
pub fn balance<Name: Ord>(items: &[(Name, u64)], count: u32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|&a, &b| {
        let ((a, heavy), (b, heavier)) = (&items[a], &items[b]);
        heavier.cmp(heavy).then_with(|| a.cmp(b))
    });
    // Load and number of items of each shard; the least comes first.
    let mut loads: BTreeSet<(u64, u64, u32)> = (1..=count).map(|shard| (0, 0, shard)).collect();
    let mut shards = vec![1; items.len()];
    for at in order {
        let Some((weight, held, shard)) = loads.pop_first() else { break };
        shards[at] = shard;
        loads.insert((weight.saturating_add(items[at].1), held + 1, shard));
    }
    shards
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::GroupId;

    #[test]
    fn shards_are_counted_from_one() {
        assert_eq!("2/4".parse::<Shard>(), Ok(Shard { index: 2, count: 4 }));
        assert_eq!("1/1".parse::<Shard>().unwrap().to_string(), "1/1");
        for text in ["0/4", "5/4", "1/0", "1", "/", "a/b", "+1/2", "1/4294967296", "-1/2", "1/2/3"]
        {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn no_shard_has_more_than_its_share_and_one_group() {
        let ids: Vec<GroupId> = (0..40).map(|i| format!("p{i}").into()).collect();
        let tokens: Vec<u64> = (0..40).map(|i| (i * 7919 + 13) % 1000).collect();
        let groups: Vec<(&GroupId, u64)> = ids.iter().zip(tokens.iter().copied()).collect();
        for count in 1..=12 {
            let shards = balance(&groups, count);
            let load = |shard: u32| -> u64 {
                groups.iter().zip(&shards).filter(|(_, s)| **s == shard).map(|(g, _)| g.1).sum()
            };
            let share = tokens.iter().sum::<u64>() / u64::from(count);
            let largest = *tokens.iter().max().unwrap();
            assert!((1..=count).all(|shard| load(shard) <= share + largest), "{count}");
            // Whatever the order in which the groups come.
            let mut turned = groups.clone();
            turned.reverse();
            let mut again = balance(&turned, count);
            again.reverse();
            assert_eq!(again, shards);
        }
    }

    #[test]
    fn groups_without_rows_are_spread_too() {
        let ids: Vec<GroupId> = (0..6).map(|i| format!("p{i}").into()).collect();
        let groups: Vec<(&GroupId, u64)> = ids.iter().map(|id| (id, 0)).collect();
        assert_eq!(balance(&groups, 3), [1, 2, 3, 1, 2, 3]);
    }
}
