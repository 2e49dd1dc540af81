//! Retries, chains and their account (`spec/gym-wire.md` e.3, e.4, e.6 to e.8).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::parents::{Kept, Link, LinkNote};
use crate::wire::entry::TokenEntry;

/// What became of the scored call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TerminalChain {
    /// No call was named.
    #[default]
    None,
    /// The main chain ends at it.
    Delivered,
    /// Its path crosses a quarantined call or an unresolved boundary.
    Broken,
    /// It is not among the calls with generated tokens.
    NotCaptured,
}

impl TerminalChain {
    /// The package's word, empty for none.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Delivered => "delivered",
            Self::Broken => "broken",
            Self::NotCaptured => "not_captured",
        }
    }
}

/// One call of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainLink {
    /// Position of the entry.
    pub entry: usize,
    /// Prompt tokens after the parent's sequence; empty for the first call of a chain.
    pub interstitial: Vec<u64>,
}

/// Calls from a parentless one to a leaf, or to the scored call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// `main`, or `branch-N`.
    pub chain_id: String,
    /// Prompt of the first call.
    pub root_prompt: Vec<u64>,
    /// The calls.
    pub links: Vec<ChainLink>,
}

/// Chains of one store, with the package's account of what it left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Build {
    /// Chains in the package's order.
    pub chains: Vec<Chain>,
    /// Retried calls that were left out, in processing order.
    pub quarantined: Vec<String>,
    /// Retries that nothing decides between.
    pub unresolved_retries: Vec<String>,
    /// Calls without a proved place.
    pub unresolved_parent_calls: BTreeSet<String>,
    /// Notes on parent links, by the package's word.
    pub parent_link_failures: BTreeMap<&'static str, u64>,
    /// Calls without generated tokens.
    pub empty_generation_calls: Vec<String>,
    /// Parentless calls, quarantined ones included.
    pub roots: u64,
    /// What became of the scored call.
    pub terminal_chain: TerminalChain,
    /// Generated tokens of all calls.
    pub generated_tokens_captured: u64,
    /// Generated tokens of the main chain.
    pub generated_tokens_delivered: u64,
}

impl Build {
    /// The chain that is delivered.
    pub fn main(&self) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.chain_id == "main")
    }

    /// Delivered share of the captured generated tokens, to four decimals.
    pub fn delivered_fraction(&self) -> f64 {
        fraction(self.generated_tokens_delivered, self.generated_tokens_captured)
    }
}

/// `part / whole` to four decimals, 0 of nothing.
pub(super) fn fraction(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    (part as f64 / whole as f64 * 1e4).round() / 1e4
}

/// Builds the chains of one store, the main one ending at `terminal` when that call is captured
/// and its path is proved.
pub fn prefix_merging(entries: &[TokenEntry], terminal: Option<&str>) -> Build {
    let kept = Kept::of(entries);
    let links = kept.links();
    let mut build = Build::default();
    let id = |call: usize| kept.entry(call).model_call_id.clone();
    for &call in &kept.conflicts {
        build.note(LinkNote::DuplicateConflict, id(call));
    }
    for call in 0..kept.calls.len() {
        if kept.sequences[call].is_none() {
            build.note(LinkNote::BrokenDelta, id(call));
        } else if kept.generated(call) == 0 {
            build.empty_generation_calls.push(id(call));
        }
    }
    let mut order = kept.order();
    order.retain(|&call| kept.generated(call) > 0);
    for &call in &order {
        build.generated_tokens_captured += kept.generated(call) as u64;
        build.roots += u64::from(links[call].parent.is_none());
        if let Some(note) = links[call].note {
            build.note(note, id(call));
        }
    }
    let terminal_call = terminal.and_then(|terminal| {
        order.iter().copied().find(|&c| kept.entry(c).model_call_id == terminal)
    });
    let forest = Forest { kept: &kept, links: &links, order: &order };
    let quarantined = forest.quarantine(terminal_call, &mut build);
    build.quarantined = order.iter().filter(|&c| quarantined.contains(c)).map(|&c| id(c)).collect();
    build.terminal_chain = match (terminal, terminal_call) {
        (None, _) => TerminalChain::None,
        (Some(_), None) => TerminalChain::NotCaptured,
        (Some(_), Some(call)) if forest.is_clean(call, &quarantined) => TerminalChain::Delivered,
        (Some(_), Some(_)) => TerminalChain::Broken,
    };
    let delivered = terminal_call.filter(|_| build.terminal_chain == TerminalChain::Delivered);
    let paths = forest.paths(delivered, &quarantined);
    let main = delivered.map(|_| 0).or_else(|| forest.earliest(&paths));
    let mut branches = 0;
    for (at, path) in paths.iter().enumerate() {
        let chain_id = if Some(at) == main {
            build.generated_tokens_delivered = path.iter().map(|&c| kept.generated(c) as u64).sum();
            "main".to_owned()
        } else {
            branches += 1;
            format!("branch-{}", branches - 1)
        };
        build.chains.push(forest.chain(chain_id, path));
    }
    build
}

impl Build {
    fn note(&mut self, note: LinkNote, call_id: String) {
        *self.parent_link_failures.entry(note.as_str()).or_default() += 1;
        if note != LinkNote::Recovered {
            self.unresolved_parent_calls.insert(call_id);
        }
    }
}

struct Forest<'a> {
    kept: &'a Kept<'a>,
    links: &'a [Link],
    /// Calls with generated tokens in processing order; a parent comes before its children.
    order: &'a [usize],
}

impl Forest<'_> {
    /// Calls from a parentless one to `call`.
    fn path(&self, call: usize) -> Vec<usize> {
        let mut path = vec![call];
        let mut at = call;
        // A parent precedes its child in `order`, so this ends.
        while let Some(parent) = self.links[at].parent {
            path.push(parent);
            at = parent;
        }
        path.reverse();
        path
    }

    fn is_clean(&self, call: usize, quarantined: &BTreeSet<usize>) -> bool {
        let boundary = |c: usize| self.links[c].note.is_some_and(|n| n != LinkNote::Recovered);
        self.path(call).into_iter().all(|c| !quarantined.contains(&c) && !boundary(c))
    }

    /// Retries are calls with one parent and one prompt. Those on the way to the scored call
    /// stay, else those that were continued, else the one with the smallest id; with no scored
    /// call nothing decides that last choice, and all are reported.
    fn quarantine(&self, terminal: Option<usize>, build: &mut Build) -> BTreeSet<usize> {
        let ancestry: BTreeSet<usize> = terminal.into_iter().flat_map(|c| self.path(c)).collect();
        let continued: BTreeSet<usize> =
            self.order.iter().filter_map(|&call| self.links[call].parent).collect();
        let mut position = HashMap::new();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for &call in self.order {
            let key = (self.links[call].parent, self.kept.prompt(call));
            let group = *position.entry(key).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push(call);
        }
        let mut quarantined = BTreeSet::new();
        for group in groups.iter().filter(|group| group.len() > 1) {
            let among = |set: &BTreeSet<usize>| {
                group.iter().copied().filter(|call| set.contains(call)).collect::<Vec<_>>()
            };
            let mut keep = among(&ancestry);
            if keep.is_empty() {
                keep = among(&continued);
            }
            if keep.is_empty() {
                // Within a group all prompts are equal, so processing order is order by call id.
                keep = group[..1].to_vec();
                if terminal.is_none() {
                    let ids = group.iter().map(|&c| self.kept.entry(c).model_call_id.clone());
                    build.unresolved_retries.extend(ids);
                }
            }
            let keep: BTreeSet<usize> = keep.into_iter().collect();
            quarantined.extend(group.iter().filter(|call| !keep.contains(call)));
        }
        quarantined
    }

    /// The delivered path first, then one path per leaf that it does not serve.
    fn paths(&self, delivered: Option<usize>, quarantined: &BTreeSet<usize>) -> Vec<Vec<usize>> {
        let continued: BTreeSet<usize> =
            self.order.iter().filter_map(|&call| self.links[call].parent).collect();
        let mut paths: Vec<Vec<usize>> = delivered.map(|c| self.path(c)).into_iter().collect();
        for &leaf in self.order.iter().filter(|call| !continued.contains(call)) {
            let path = self.path(leaf);
            let served = delivered.is_some_and(|terminal| path.contains(&terminal));
            if !served && !path.iter().any(|call| quarantined.contains(call)) {
                paths.push(path);
            }
        }
        paths
    }

    /// The path whose first call was served first, by call id among equals.
    fn earliest(&self, paths: &[Vec<usize>]) -> Option<usize> {
        let root = |at: &usize| paths[*at].first().map(|&call| self.kept.entry(call));
        (0..paths.len()).min_by(|a, b| match (root(a), root(b)) {
            (Some(a), Some(b)) => a
                .created_at
                .total_cmp(&b.created_at)
                .then_with(|| a.model_call_id.cmp(&b.model_call_id)),
            _ => std::cmp::Ordering::Equal,
        })
    }

    fn chain(&self, chain_id: String, path: &[usize]) -> Chain {
        let links = path.iter().map(|&call| {
            let parent = self.links[call].parent;
            let skip = parent.map_or(usize::MAX, |parent| self.kept.len(parent));
            let interstitial = self.kept.prompt(call).get(skip..).unwrap_or_default().to_vec();
            ChainLink { entry: self.kept.calls[call], interstitial }
        });
        Chain {
            chain_id,
            root_prompt: path.first().map_or(&[][..], |&call| self.kept.prompt(call)).to_vec(),
            links: links.collect(),
        }
    }
}
