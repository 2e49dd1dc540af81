//! Groups of a batch, built in any order: what is known of all of them beside their rows.

use std::collections::BTreeSet;

use super::build::Batch;
use super::manifest::{Provenance, RowsManifest};
use super::metrics;
use super::model::Row;
use super::shard::{Shard, ShardRows, balance};
use super::weights::{Share, loads, weigh};
use crate::id::GroupId;

/// A group, apart from its rows.
#[derive(Clone, Debug)]
pub struct BuiltGroup {
    group_id: GroupId,
    /// Without rows.
    summary: Batch,
    /// Tokens of each row.
    lengths: Vec<u64>,
    loads: Vec<Share>,
}

impl BuiltGroup {
    /// Parts a group from its rows.
    pub fn of(group_id: GroupId, mut batch: Batch) -> (Self, Vec<Row>) {
        let rows = std::mem::take(&mut batch.rows);
        let lengths = rows.iter().map(|row| row.input_ids.len() as u64).collect();
        (Self { group_id, summary: batch, lengths, loads: loads(&rows) }, rows)
    }

    /// Its id.
    pub fn group_id(&self) -> &GroupId {
        &self.group_id
    }
}

/// All groups of a batch.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    groups: Vec<BuiltGroup>,
}

/// A batch without its rows, and what of it one directory holds.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// The manifest, before parts and bins.
    pub manifest: RowsManifest,
    /// Groups of the directory; those that were dropped have no rows.
    pub own: BTreeSet<GroupId>,
    /// Tokens of each row of the directory, in row order.
    pub lengths: Vec<u64>,
    /// Shares of the gradient over the whole batch, in row order.
    pub shares: Vec<Share>,
}

impl Assembly {
    /// Adds a group.
    pub fn add(&mut self, group: BuiltGroup) {
        self.groups.push(group);
    }

    /// Whether each group was dropped, in order of their ids.
    pub fn drops(&mut self) -> impl Iterator<Item = bool> + '_ {
        self.sort();
        self.groups.iter().map(|group| group.summary.counts.dropped_groups > 0)
    }

    fn sort(&mut self) {
        self.groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    }

    /// Puts the groups in order of their ids, and those of `shard` into the directory, if there is
    /// one. Counts, masks, metrics and shares are of the whole batch in any case.
    pub fn finish(
        mut self,
        provenance: Provenance,
        row_multiple: u32,
        shard: Option<Shard>,
    ) -> Assembled {
        self.sort();
        let shards = shard.map(|shard| {
            let tokens = |group: &BuiltGroup| group.lengths.iter().sum();
            let loads: Vec<_> = self.groups.iter().map(|g| (&g.group_id, tokens(g))).collect();
            balance(&loads, shard.count)
        });
        let is_own = |at: usize| match (&shards, shard) {
            (Some(shards), Some(shard)) => shards[at] == shard.index,
            _ => true,
        };
        let (mut whole, mut own) = (Batch::default(), Batch::default());
        let mut ids = BTreeSet::new();
        let (mut lengths, mut shares) = (Vec::new(), Vec::new());
        for (at, group) in self.groups.into_iter().enumerate() {
            shares.extend(group.loads);
            if is_own(at) {
                own.add(group.summary.clone());
                lengths.extend(group.lengths);
                ids.insert(group.group_id);
            }
            whole.add(group.summary);
        }
        weigh(&mut shares);
        let mut manifest = RowsManifest::new(provenance, row_multiple, &own);
        manifest.metrics = metrics::of(&whole);
        manifest.shard = shard.map(|shard| ShardRows { shard, counts: own.counts });
        manifest.counts = whole.counts;
        manifest.masked = whole.masked;
        Assembled { manifest, own: ids, lengths, shares }
    }
}
