//! Token sequences as a forest: a token that several of them share from position 0 on is there once.
//!
//! The forest is laid out path by path. A path goes from the token where it parts from an older
//! path to the end of a sequence; at every fork it follows the branch that goes deepest, and the
//! others are paths of their own behind it. So the context of a token is always a few stretches of
//! memory: its path up to itself, and the beginnings of the paths that this one parted from.

use std::cmp::Reverse;
use std::ops::Range;

/// Sequences with shared beginnings, each token once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forest {
    /// Token ids, path after path.
    pub ids: Vec<u32>,
    /// The paths in order; a path comes after the one that it parts from.
    pub paths: Vec<Path>,
    /// Who attends to older paths, in order of the queries' ends.
    pub forks: Vec<Fork>,
    /// Where each sequence ends: its path and how many tokens of the path are its own or before.
    ends: Vec<(usize, usize)>,
}

/// Tokens that stand one after the other and attend to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where its tokens are.
    pub tokens: Range<usize>,
    /// Position of its first token in the sequences.
    pub position: usize,
    /// The path that it parts from, and the end of what it has of that path.
    pub parent: Option<(usize, usize)>,
    /// Paths between it and the root.
    pub level: usize,
}

/// Branches that part from one path at one place, with all that grows on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// Their tokens.
    pub queries: Range<usize>,
    /// What all of them attend to of the path.
    pub keys: Range<usize>,
    /// Level of the branches, 1 or more; queries of one level do not overlap.
    pub level: usize,
}

/// A place where sequences part or one ends.
#[derive(Debug)]
struct Node {
    /// Tokens from the root to here.
    depth: usize,
    /// A sequence that comes through here.
    through: usize,
    children: Vec<usize>,
    /// The deepest end that can be reached.
    reach: usize,
}

impl Forest {
    /// The forest of `sequences`, none empty. Sequences with a common beginning must stand next to
    /// each other, as [`order`] puts them. Unless they `share`, each is a path of its own.
    pub fn new(sequences: &[&[u32]], share: bool) -> Self {
        let (nodes, ends) = tree(sequences, share);
        let mut forest = Self::default();
        let mut placed = vec![(0, 0); nodes.len()];
        let mut left = vec![Step::Branches { of: 0, parent: None, level: 0 }];
        while let Some(step) = left.pop() {
            match step {
                Step::Branches { of, parent, level } => {
                    let branches = &nodes[of].children;
                    let taken = usize::from(of != 0 && !branches.is_empty());
                    if branches.len() == taken {
                        continue;
                    }
                    if let Some((path, at)) = parent {
                        let keys = forest.paths[path].tokens.start..at;
                        let from = forest.ids.len();
                        left.push(Step::Close { from, keys, level });
                    }
                    let depth = nodes[of].depth;
                    let enter = |&node| Step::Enter { node, depth, parent, level };
                    left.extend(branches[taken..].iter().rev().map(enter));
                }
                Step::Enter { node, depth, parent, level } => {
                    let start = forest.ids.len();
                    let path = forest.paths.len();
                    let (mut node, mut from) = (node, depth);
                    loop {
                        let Node { depth, through, ref children, .. } = nodes[node];
                        forest.ids.extend_from_slice(&sequences[through][from..depth]);
                        let at = forest.ids.len();
                        placed[node] = (path, at);
                        let parent = Some((path, at));
                        left.push(Step::Branches { of: node, parent, level: level + 1 });
                        let Some(&deepest) = children.first() else { break };
                        (node, from) = (deepest, depth);
                    }
                    let tokens = start..forest.ids.len();
                    forest.paths.push(Path { tokens, position: depth, parent, level });
                }
                Step::Close { from, keys, level } => {
                    forest.forks.push(Fork { queries: from..forest.ids.len(), keys, level });
                }
            }
        }
        forest.ends = ends.into_iter().map(|node| placed[node]).collect();
        forest
    }

    /// The stretches of tokens that sequence `at` consists of, in order.
    pub fn stretches(&self, at: usize) -> Vec<Range<usize>> {
        let mut stretches = Vec::new();
        let mut next = self.ends.get(at).copied();
        while let Some((path, end)) = next {
            let path = &self.paths[path];
            stretches.push(path.tokens.start..end);
            next = path.parent;
        }
        stretches.reverse();
        stretches
    }

    /// The stretches of older paths that a path attends to, in order.
    pub fn context(&self, path: usize) -> Vec<Range<usize>> {
        let mut stretches = Vec::new();
        let mut next = self.paths[path].parent;
        while let Some((path, end)) = next {
            let path = &self.paths[path];
            stretches.push(path.tokens.start..end);
            next = path.parent;
        }
        stretches.reverse();
        stretches
    }

    /// Pairs of a token and one that it attends to, itself included.
    pub fn scores(&self) -> u64 {
        let squares = self.paths.iter().map(|path| triangle(path.tokens.len()));
        let area = |fork: &Fork| (fork.queries.len() * fork.keys.len()) as u64;
        squares.sum::<u64>() + self.forks.iter().map(area).sum::<u64>()
    }
}

/// Pairs of tokens of one sequence of which the second does not come before the first.
pub fn triangle(tokens: usize) -> u64 {
    let tokens = tokens as u64;
    tokens * (tokens + 1) / 2
}

/// The order of sequences in which those with a common beginning stand together.
pub fn order(sequences: &[&[u32]]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sequences.len()).collect();
    order.sort_by_key(|&at| sequences[at]);
    order
}

/// Tokens that both begin with.
pub fn shared(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

enum Step {
    /// All branches at a node but the one that its path follows.
    Branches { of: usize, parent: Option<(usize, usize)>, level: usize },
    /// A new path, from `depth` through `node`.
    Enter { node: usize, depth: usize, parent: Option<(usize, usize)>, level: usize },
    /// The end of the branches of a node.
    Close { from: usize, keys: Range<usize>, level: usize },
}

/// The places where sequences part, root first, and the place where each ends. Of children, the
/// one that goes deepest is the first.
fn tree(sequences: &[&[u32]], share: bool) -> (Vec<Node>, Vec<usize>) {
    let node = |depth, through| Node { depth, through, children: Vec::new(), reach: depth };
    let mut nodes = vec![node(0, 0)];
    let mut ends = Vec::with_capacity(sequences.len());
    // From the root to the end of the last sequence.
    let mut open = vec![0];
    let close = |nodes: &mut Vec<Node>, open: &mut Vec<usize>, depth: usize| {
        while let [.., above, last] = open[..]
            && nodes[last].depth > depth
        {
            open.pop();
            let above = match nodes[above].depth < depth {
                true => {
                    nodes.push(node(depth, nodes[last].through));
                    open.push(nodes.len() - 1);
                    nodes.len() - 1
                }
                false => above,
            };
            nodes[above].reach = nodes[above].reach.max(nodes[last].reach);
            nodes[above].children.push(last);
        }
    };
    for (at, sequence) in sequences.iter().enumerate() {
        let common = match at {
            0 => 0,
            _ if !share => 0,
            _ => shared(sequences[at - 1], sequence),
        };
        close(&mut nodes, &mut open, common);
        if sequence.len() > common {
            nodes.push(node(sequence.len(), at));
            open.push(nodes.len() - 1);
        }
        ends.extend(open.last());
    }
    close(&mut nodes, &mut open, 0);
    for at in 0..nodes.len() {
        let mut children = std::mem::take(&mut nodes[at].children);
        children.sort_by_key(|&child| Reverse(nodes[child].reach));
        nodes[at].children = children;
    }
    (nodes, ends)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn forests() -> impl Strategy<Value = Vec<Vec<u32>>> {
        prop::collection::vec(prop::collection::vec(0..3_u32, 1..12), 1..12)
    }

    proptest! {
        #[test]
        fn every_token_attends_once_to_each_of_its_prefix(rows in forests(), share: bool) {
            let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
            let rows: Vec<&[u32]> = order(&rows).into_iter().map(|at| rows[at]).collect();
            let forest = Forest::new(&rows, share);

            let prefixes: Vec<&[u32]> =
                rows.iter().flat_map(|row| (1..=row.len()).map(|end| &row[..end])).collect();
            let unique: BTreeSet<&[u32]> = prefixes.iter().copied().collect();
            let expected = if share { unique.len() } else { prefixes.len() };
            prop_assert_eq!(forest.ids.len(), expected);

            let mut seen: Vec<Vec<usize>> = vec![Vec::new(); forest.ids.len()];
            for path in &forest.paths {
                for query in path.tokens.clone() {
                    seen[query].extend(path.tokens.start..=query);
                }
            }
            for fork in &forest.forks {
                for query in fork.queries.clone() {
                    seen[query].extend(fork.keys.clone());
                }
            }
            prop_assert_eq!(forest.scores(), seen.iter().map(|keys| keys.len() as u64).sum::<u64>());
            for (at, row) in rows.iter().enumerate() {
                let places: Vec<usize> = forest.stretches(at).into_iter().flatten().collect();
                let ids: Vec<u32> = places.iter().map(|&place| forest.ids[place]).collect();
                prop_assert_eq!(&ids, row);
                for (position, &place) in places.iter().enumerate() {
                    let mut expected = places[..=position].to_vec();
                    expected.sort_unstable();
                    let mut found = seen[place].clone();
                    found.sort_unstable();
                    prop_assert_eq!(found, expected);
                }
            }
            let mut next = 0;
            for (at, path) in forest.paths.iter().enumerate() {
                prop_assert_eq!(path.tokens.start, next);
                next = path.tokens.end;
                let before: usize = forest.context(at).iter().map(Range::len).sum();
                prop_assert_eq!(before, path.position);
                prop_assert_eq!(forest.context(at).len(), path.level);
            }
            for level in 1..=forest.forks.iter().map(|fork| fork.level).max().unwrap_or(0) {
                let mut queries: Vec<_> = forest.forks.iter().filter(|fork| fork.level == level)
                    .map(|fork| fork.queries.clone()).collect();
                queries.sort_by_key(|range| range.start);
                prop_assert!(queries.windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
        }
    }

    #[test]
    fn a_chain_with_side_branches_is_one_path_and_its_branches() {
        let chain: Vec<u32> = (0..40).collect();
        let branch = |at: u32| [&chain[..at as usize], &[100 + at, 1, 2]].concat();
        let rows = [branch(10), branch(20), branch(30), chain.clone(), chain.clone()];
        let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
        let rows: Vec<&[u32]> = order(&rows).into_iter().map(|at| rows[at]).collect();
        let forest = Forest::new(&rows, true);
        assert_eq!(forest.ids.len(), 40 + 3 * 3);
        assert_eq!(forest.paths.len(), 4);
        assert_eq!(forest.paths[0].tokens, 0..40);
        let keys: Vec<_> = forest.forks.iter().map(|fork| fork.keys.clone()).collect();
        assert_eq!(keys, [0..30, 0..20, 0..10]);
    }

    #[test]
    fn deep_forests_take_no_stack() {
        let chain: Vec<u32> = (0..20_000).collect();
        let rows: Vec<&[u32]> = (1..=chain.len()).step_by(2).map(|end| &chain[..end]).collect();
        let forest = Forest::new(&rows, true);
        assert_eq!((forest.ids.len(), forest.paths.len()), (19_999, 1));
    }
}
