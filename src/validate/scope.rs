//! A receipt with the records that it commits to, and the digests that prove them.
//!
//! What is compared needs digests that do not depend on each other, so those of all scopes of a
//! group are taken at once, before anything is told.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::{Cumulative, Options};
use crate::archive::{Call, Rollout};
use crate::id::Digest32;
use crate::wire::digest::{Checked, Claim};
use crate::wire::verify::{VerifyError, check_claims};
use crate::wire::{Manifest, Receipt, StagedView};

/// One capture scope that has a receipt.
pub struct Scope<'a> {
    pub receipt: &'a Receipt,
    pub manifest: Manifest<'a>,
    /// The record of every manifest row.
    pub records: Vec<Option<&'a Call>>,
    /// Records of a row that has one already, each after that one.
    pub repeated: Vec<(&'a Call, &'a Call)>,
    /// Records that no row names.
    pub uncommitted: Vec<&'a Call>,
    /// The records that are what their rows commit to, their digests left open.
    pub pairs: Vec<Option<Result<Checked<'a>, VerifyError>>>,
    /// Rows whose links are broken.
    pub broken_links: Vec<(usize, VerifyError)>,
    /// The row of each row's parent.
    parents: Vec<Option<usize>>,
    /// Rows whose cumulative hash is wanted, in order.
    pub ends: Vec<usize>,
    /// Of every row the digests that were found, where they can be compared.
    pub found: Vec<Found>,
}

/// Digests of one record.
#[derive(Clone, Copy, Default)]
pub struct Found {
    pub call: Option<Digest32>,
    pub chain: Option<Digest32>,
    pub cumulative: Option<Digest32>,
}

/// One digest of one row.
#[derive(Clone, Copy)]
enum Wanted {
    Call,
    Chain,
    Cumulative,
}

impl<'a> Scope<'a> {
    /// Finds the record of every row, and compares the two but for what takes a digest.
    pub fn new(rollout: &'a Rollout, receipt: &'a Receipt, options: Options) -> Self {
        let rows = &receipt.manifest;
        let manifest = Manifest::new(rows);
        let mut records: Vec<Option<&Call>> = vec![None; rows.len()];
        let (mut repeated, mut uncommitted) = (Vec::new(), Vec::new());
        for call in &rollout.calls {
            match manifest.position(call.call_id.as_str()) {
                None => uncommitted.push(call),
                Some(row) => match records[row] {
                    None => records[row] = Some(call),
                    Some(first) => repeated.push((call, first)),
                },
            }
        }
        let versions = receipt.versions();
        let pair = |(row, record): (_, &Option<&'a Call>)| {
            let view = StagedView::of((*record)?)?;
            Some(check_claims(versions, &receipt.scope, row, &view))
        };
        let pairs = rows.iter().zip(&records).map(pair).collect();
        let parents: Vec<Option<usize>> = rows
            .iter()
            .map(|row| row.parent_call_id.as_deref().and_then(|id| manifest.position(id)))
            .collect();
        let terminal = receipt.terminal_model_call_id.as_deref();
        let has_child: HashSet<usize> = parents.iter().copied().flatten().collect();
        let end = |&at: &usize| {
            options.cumulative == Cumulative::All
                || !has_child.contains(&at)
                || terminal == Some(rows[at].model_call_id.as_str())
        };
        Self {
            ends: (0..rows.len()).filter(end).collect(),
            broken_links: manifest.link_errors().collect(),
            found: vec![Found::default(); rows.len()],
            receipt,
            manifest,
            records,
            repeated,
            uncommitted,
            pairs,
            parents,
        }
    }

    /// The chain hash that the parent of a row recorded.
    fn parent_chain(&self, row: usize) -> Option<Digest32> {
        self.parents[row].map(|parent| self.receipt.manifest[parent].chain_hash)
    }

    /// Rows from the root to `row`, if all of them are sound.
    pub fn path(&self, row: usize, sound: &[bool]) -> Option<Vec<usize>> {
        let mut path = Vec::new();
        let mut next = Some(row);
        while let Some(at) = next.filter(|&at| sound[at] && path.len() < sound.len()) {
            path.push(at);
            next = self.parents[at];
        }
        if next.is_some() || path.is_empty() {
            return None;
        }
        path.reverse();
        Some(path)
    }

    /// Rows that nothing is said against before digests are compared.
    fn hopeful(&self) -> Vec<bool> {
        let mut hopeful: Vec<bool> =
            self.pairs.iter().map(|pair| matches!(pair, Some(Ok(_)))).collect();
        for (row, _) in &self.broken_links {
            hopeful[*row] = false;
        }
        hopeful
    }

    fn wanted(&self) -> impl Iterator<Item = (usize, Wanted, u64)> {
        let sound = |row: &usize| matches!(self.pairs[*row], Some(Ok(_)));
        let rows = &self.receipt.manifest;
        let own = (0..rows.len()).filter(sound).flat_map(|row| {
            let tokens = self.records[row].map_or(0, |call| call.token_ids.len() as u64);
            [(row, Wanted::Call, 16 * tokens), (row, Wanted::Chain, 8 * tokens)]
        });
        let ends = self.ends.iter().copied().filter(sound);
        let whole = |row: usize| (row, Wanted::Cumulative, rows[row].cum_len.saturating_mul(8));
        own.chain(ends.map(whole))
    }

    fn claim(&self, row: usize, wanted: Wanted, hopeful: &[bool]) -> Claim<'_> {
        let ids = |row: &usize| Some(StagedView::of(self.records[*row]?)?.token_ids);
        match (wanted, &self.pairs[row]) {
            (Wanted::Call, Some(Ok(call))) => Claim::Call(call),
            (Wanted::Chain, Some(Ok(call))) => {
                Claim::Chain { parent: self.parent_chain(row), delta: call.token_ids() }
            }
            _ => {
                let path = self.path(row, hopeful).unwrap_or_default();
                Claim::Cumulative(path.iter().filter_map(ids).collect())
            }
        }
    }
}

/// Takes the digests of all `scopes`.
pub fn take_digests<'s, 'a: 's>(scopes: impl Iterator<Item = &'s mut Scope<'a>>) {
    let mut scopes: Vec<&mut Scope<'a>> = scopes.collect();
    let hopeful: Vec<Vec<bool>> = scopes.iter().map(|scope| scope.hopeful()).collect();
    let mut jobs: Vec<(usize, usize, Wanted, u64)> = Vec::new();
    for (at, scope) in scopes.iter().enumerate() {
        jobs.extend(scope.wanted().map(|(row, wanted, bytes)| (at, row, wanted, bytes)));
    }
    jobs.sort_by_key(|&(.., bytes)| Reverse(bytes));
    let digests =
        Claim::digests(&jobs, |&(at, row, wanted, _)| scopes[at].claim(row, wanted, &hopeful[at]));
    for ((at, row, wanted, _), digest) in jobs.into_iter().zip(digests) {
        let found = &mut scopes[at].found[row];
        *match wanted {
            Wanted::Call => &mut found.call,
            Wanted::Chain => &mut found.chain,
            Wanted::Cumulative => &mut found.cumulative,
        } = Some(digest);
    }
}
