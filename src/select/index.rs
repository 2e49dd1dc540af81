//! Committed calls, arranged for finding the one that a piece of evidence means.

use std::collections::{BTreeMap, HashMap};

use super::evidence::{HistoryItem, ItemKind};
use crate::archive::{Call, CommittedCall, OutputItem, Rollout};
use crate::id::{CallId, Digest32};
use crate::wire::fingerprint::FINGERPRINT_VERSION;

/// The committed calls of one rollout in commit order, each once. Numbers name calls here.
pub struct Index<'a> {
    /// Ledger rows; of several rows for one call, the first.
    pub committed: Vec<&'a CommittedCall>,
    /// Records of those calls, where they exist.
    pub records: Vec<Option<&'a Call>>,
    /// Parent of each call among the committed ones.
    pub parents: Vec<Option<usize>>,
    numbers: HashMap<&'a CallId, usize>,
    by_response: HashMap<&'a str, Vec<usize>>,
    by_item: HashMap<&'a str, Vec<(usize, usize)>>,
    /// Calls by the first item that has a fingerprint, and its place among the items.
    by_anchor: HashMap<(usize, Digest32), Vec<usize>>,
    /// Places in use in `by_anchor`.
    anchors: Vec<usize>,
    /// Calls of which only the fingerprint of the whole output is known.
    by_output: HashMap<Digest32, Vec<usize>>,
}

impl<'a> Index<'a> {
    /// Arranges the calls of `rollout`.
    pub fn new(rollout: &'a Rollout) -> Self {
        let mut numbers = HashMap::new();
        let mut committed = Vec::new();
        for row in &rollout.ledger.committed {
            numbers.entry(&row.call_id).or_insert_with(|| {
                committed.push(row);
                committed.len() - 1
            });
        }
        let mut records = vec![None; committed.len()];
        for call in &rollout.calls {
            if let Some(&number) = numbers.get(&call.call_id) {
                records[number].get_or_insert(call);
            }
        }
        let parent = |record: &Option<&Call>| {
            record.and_then(|call| numbers.get(call.parent_call_id.as_ref()?).copied())
        };
        let parents = records.iter().map(parent).collect();
        let mut index = Self {
            committed,
            records,
            parents,
            numbers,
            by_response: HashMap::new(),
            by_item: HashMap::new(),
            by_anchor: HashMap::new(),
            anchors: Vec::new(),
            by_output: HashMap::new(),
        };
        for number in 0..index.committed.len() {
            index.arrange(number);
        }
        index.anchors.sort_unstable();
        index.anchors.dedup();
        index
    }

    fn arrange(&mut self, number: usize) {
        let row = self.committed[number];
        if let Some(id) = &row.response_id {
            self.by_response.entry(id).or_default().push(number);
        }
        let Some(items) = &row.output_items else {
            if let (Some(digest), FINGERPRINT_VERSION) =
                (row.output_fingerprint, row.fingerprint_version)
            {
                self.by_output.entry(digest).or_default().push(number);
            }
            return;
        };
        for (place, item) in items.iter().enumerate() {
            if let Some(id) = &item.id {
                self.by_item.entry(id).or_default().push((number, place));
            }
        }
        let anchor = items.iter().enumerate().find_map(|(i, x)| Some((i, x.fingerprint?)));
        if let Some((place, digest)) = anchor {
            self.by_anchor.entry((place, digest)).or_default().push(number);
            self.anchors.push(place);
        }
    }

    /// Identity of a call.
    pub fn id(&self, number: usize) -> CallId {
        self.committed[number].call_id.clone()
    }

    /// Number of a call.
    pub fn number(&self, id: &CallId) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    /// Calls that served a response of this id.
    pub fn served(&self, response_id: &str) -> &[usize] {
        self.by_response.get(response_id).map_or(&[], Vec::as_slice)
    }

    /// Calls, with the place of the item, whose output holds an item of this id. Empty for
    /// synthetic ids, which constrain nothing (rule 60).
    pub fn owners(&self, item: &HistoryItem) -> &[(usize, usize)] {
        item.id.as_deref().and_then(|id| self.by_item.get(id)).map_or(&[], Vec::as_slice)
    }

    /// Served items of a call.
    pub fn output(&self, number: usize) -> &'a [OutputItem] {
        self.committed[number].output_items.as_deref().unwrap_or_default()
    }

    /// Calls of which one served item has the content of `item`.
    pub fn holding(&self, item: &HistoryItem) -> Vec<usize> {
        (0..self.committed.len())
            .filter(|&call| self.output(call).iter().any(|s| agrees(item, s) == Some(true)))
            .collect()
    }

    /// Calls whose whole output lies at the beginning of `items`, with its number of items, in
    /// commit order.
    pub fn whole_at(&self, items: &[HistoryItem]) -> Vec<(usize, usize)> {
        let Some(first) = items.first() else { return Vec::new() };
        let owners = self.owners(first);
        let mut found: Vec<(usize, usize)> = if owners.is_empty() {
            let anchored = self
                .anchors
                .iter()
                .filter_map(|&place| self.by_anchor.get(&(place, items.get(place)?.fingerprint?)));
            anchored.flatten().copied().collect::<Vec<_>>()
        } else {
            owners.iter().filter(|(_, place)| *place == 0).map(|(number, _)| *number).collect()
        }
        .into_iter()
        .filter_map(|number| Some((number, self.whole(number, items)?)))
        .collect();
        found.extend(self.whole_by_digest(items));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Number of items of call `number`, if they all lie at the beginning of `items`. Where the
    /// ledger has no fingerprint for an item, place and kind must do, but not for all of them.
    fn whole(&self, number: usize, items: &[HistoryItem]) -> Option<usize> {
        let output = self.output(number);
        let items = items.get(..output.len())?;
        let mut witnessed = false;
        for (place, (item, served)) in items.iter().zip(output).enumerate() {
            let owners = self.owners(item);
            if !owners.is_empty() {
                if !owners.contains(&(number, place)) {
                    return None;
                }
                witnessed = true;
            }
            match agrees(item, served) {
                Some(false) => return None,
                Some(true) => witnessed = true,
                None => {}
            }
        }
        witnessed.then_some(output.len())
    }

    /// As [`Index::whole_at`], for calls of which only the digest of the whole output is known.
    /// Reasoning leaves no trace in that digest; it precedes the answer that it leads to.
    fn whole_by_digest(&self, items: &[HistoryItem]) -> Vec<(usize, usize)> {
        /// Items that one such generation may have; each further one costs a hash.
        const LIMIT: usize = 32;
        let mut found = Vec::new();
        if self.by_output.is_empty() {
            return found;
        }
        let mut json = Vec::new();
        for (i, item) in items.iter().take(LIMIT).enumerate() {
            json.push(item.json.clone());
            if item.kind == ItemKind::Reasoning {
                continue;
            }
            let digest = crate::wire::assistant_fingerprint(&json).ok().flatten();
            let calls = digest.and_then(|digest| self.by_output.get(&digest));
            found.extend(calls.into_iter().flatten().map(|&number| (number, i + 1)));
        }
        found
    }
}

/// Whether a returned item has the kind and content of a served one; `None` when the ledger
/// does not tell.
pub fn agrees(item: &HistoryItem, served: &OutputItem) -> Option<bool> {
    if served.kind.as_deref().is_some_and(|kind| kind != item.kind.as_str()) {
        return Some(false);
    }
    served.fingerprint.and_then(|digest| Some(item.fingerprint? == digest))
}

/// Calls and all their ancestors, marked.
pub fn ancestry(parents: &[Option<usize>], from: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let mut marked = vec![false; parents.len()];
    for start in from {
        let mut next = Some(start);
        while let Some(call) = next.filter(|&call| !marked[call]) {
            marked[call] = true;
            next = parents[call];
        }
    }
    marked
}

/// Numbers by call, for problems that name several.
pub fn names(index: &Index, numbers: impl IntoIterator<Item = usize>) -> Vec<CallId> {
    let mut unique: BTreeMap<usize, CallId> = BTreeMap::new();
    for number in numbers {
        unique.entry(number).or_insert_with(|| index.id(number));
    }
    unique.into_values().collect()
}
