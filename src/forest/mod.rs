//! The selected forest: from parent links to the paths that become rows.
//!
//! Calls are numbered by selection order. Every *endpoint* (a call without a selected child, rule
//! 92) gives one path back to its root (rule 93). Paths are ordered by their numbers read from the
//! root, and the first path that contains a call owns its generation (rules 94, 95).

/// Parent links of selected calls, known to be free of cycles.
#[derive(Clone, Debug)]
pub struct Forest {
    /// Children of call `i`, ascending: `children[starts[i]..starts[i + 1]]`.
    children: Vec<usize>,
    starts: Vec<usize>,
    roots: Vec<usize>,
}

/// One path from a root to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Calls from root to endpoint.
    pub calls: Vec<usize>,
    /// The leading calls whose generations an earlier path owns; all later ones are owned here.
    pub borrowed: usize,
}

/// Parent links that are no forest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForestError {
    /// A parent is not a call of the forest.
    #[error("call {call} names parent {parent}, which is not there")]
    NoSuchParent {
        /// The child.
        call: usize,
        /// What it names.
        parent: usize,
    },
    /// Following parents never reaches a root.
    #[error("call {call} descends from no root")]
    Cycle {
        /// The first such call.
        call: usize,
    },
}

impl Forest {
    /// Builds the forest in which call `i` continues `parents[i]`. A parent may come later than
    /// its child.
    pub fn new(parents: &[Option<usize>]) -> Result<Self, ForestError> {
        let mut starts = vec![0; parents.len() + 1];
        let mut roots = Vec::new();
        for (call, &parent) in parents.iter().enumerate() {
            match parent {
                None => roots.push(call),
                Some(parent) if parent < parents.len() => starts[parent + 1] += 1,
                Some(parent) => return Err(ForestError::NoSuchParent { call, parent }),
            }
        }
        for i in 0..parents.len() {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut children = vec![0; parents.len() - roots.len()];
        for (call, &parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                children[next[parent]] = call;
                next[parent] += 1;
            }
        }
        let forest = Self { children, starts, roots };
        let mut reached = vec![false; parents.len()];
        let mut open = forest.roots.clone();
        while let Some(call) = open.pop() {
            reached[call] = true;
            open.extend_from_slice(forest.children(call));
        }
        match reached.iter().position(|&r| !r) {
            Some(call) => Err(ForestError::Cycle { call }),
            None => Ok(forest),
        }
    }

    /// Selected children of a call, ascending.
    pub fn children(&self, call: usize) -> &[usize] {
        &self.children[self.starts[call]..self.starts[call + 1]]
    }

    /// One path per endpoint, in row order.
    ///
    /// Visiting children in ascending order yields paths in ascending order, for no path is the
    /// beginning of another; and what the previous path shares is exactly what it owns already.
    /// The work is linear in the total length of the paths.
    pub fn paths(&self) -> impl Iterator<Item = Path> + '_ {
        let mut open: Vec<(usize, usize)> = self.roots.iter().rev().map(|&r| (r, 0)).collect();
        let mut walk: Vec<usize> = Vec::new();
        let mut borrowed = 0;
        std::iter::from_fn(move || {
            while let Some((call, depth)) = open.pop() {
                borrowed = borrowed.min(depth);
                walk.truncate(depth);
                walk.push(call);
                let children = self.children(call);
                if children.is_empty() {
                    let path = Path { calls: walk.clone(), borrowed };
                    borrowed = walk.len();
                    return Some(path);
                }
                open.extend(children.iter().rev().map(|&c| (c, depth + 1)));
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paths(parents: &[Option<usize>]) -> Vec<Path> {
        Forest::new(parents).unwrap().paths().collect()
    }

    /// `-` for a root, else the parent's number.
    fn parse(table: &str) -> Vec<Option<usize>> {
        table.split(',').map(|p| p.trim().parse().ok()).collect()
    }

    #[test]
    fn known_forests_give_known_numbers_of_rows() {
        for (table, rows) in [
            ("-,-,0,1", 2),
            ("-,0,0", 2),
            ("-,-,0,-,1,3", 3),
            ("-,-,-,1,2,0", 3),
            ("-,-,0,-,1,3,2", 3),
            ("-,-,0,-,3,-,4,5", 4),
            ("-,0,0,1,1,2", 3),
        ] {
            assert_eq!(paths(&parse(table)).len(), rows, "{table}");
        }
    }

    #[test]
    fn a_fork_owns_its_trunk_once() {
        let forked = paths(&parse("-,0,0"));
        assert_eq!(forked[0], Path { calls: vec![0, 1], borrowed: 0 });
        assert_eq!(forked[1], Path { calls: vec![0, 2], borrowed: 1 });
        // Each call brings two carry tokens and one generated one.
        let mask = |p: &Path| -> Vec<u8> {
            (0..p.calls.len()).flat_map(|i| [0, 0, u8::from(i >= p.borrowed)]).collect()
        };
        assert_eq!(mask(&forked[0]), [0, 0, 1, 0, 0, 1]);
        assert_eq!(mask(&forked[1]), [0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn twenty_calls_make_one_row_and_a_rewrite_after_ten_makes_two() {
        let chain: Vec<_> = (0..20).map(|i: usize| i.checked_sub(1)).collect();
        let whole = |calls: std::ops::Range<usize>| Path { calls: calls.collect(), borrowed: 0 };
        assert_eq!(paths(&chain), [whole(0..20)]);
        let mut rewritten = chain;
        rewritten[10] = None;
        assert_eq!(paths(&rewritten), [whole(0..10), whole(10..20)]);
    }

    #[test]
    fn links_that_are_no_forest_are_refused() {
        assert_eq!(Forest::new(&parse("-,2,1")).unwrap_err(), ForestError::Cycle { call: 1 });
        assert_eq!(Forest::new(&[Some(0)]).unwrap_err(), ForestError::Cycle { call: 0 });
        let foreign = ForestError::NoSuchParent { call: 0, parent: 7 };
        assert_eq!(Forest::new(&[Some(7)]).unwrap_err(), foreign);
        assert!(paths(&[]).is_empty());
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_calls_is_one_path() {
        let chain: Vec<_> = (0..100_000).map(|i: usize| i.checked_sub(1)).collect();
        let path = &paths(&chain)[0];
        assert_eq!((path.calls.len(), path.borrowed), (100_000, 0));
        // The same chain selected last call first.
        let backwards: Vec<_> =
            (0..100_000).map(|i| Some(i + 1).filter(|&p| p < 100_000)).collect();
        assert_eq!(paths(&backwards)[0].calls[0], 99_999);
    }

    /// Random forests in random selection order.
    fn forests() -> impl Strategy<Value = Vec<Option<usize>>> {
        prop::collection::vec(any::<u16>(), 0..40)
            .prop_flat_map(|links| {
                let order = Just((0..links.len()).collect::<Vec<_>>()).prop_shuffle();
                (Just(links), order)
            })
            .prop_map(|(links, order)| {
                let mut parents = vec![None; links.len()];
                for (age, &link) in links.iter().enumerate() {
                    // An older call as parent, or none once in a while.
                    let parent = link as usize % (age + 1 + age / 4);
                    parents[order[age]] = (parent < age).then(|| order[parent]);
                }
                parents
            })
    }

    proptest! {
        #[test]
        fn paths_are_the_sorted_backward_walks_and_own_every_call_once(parents in forests()) {
            let mut walks: Vec<Vec<usize>> = (0..parents.len())
                .filter(|call| !parents.contains(&Some(*call)))
                .map(|endpoint| {
                    let mut walk = vec![endpoint];
                    while let Some(parent) = parents[walk[walk.len() - 1]] {
                        walk.push(parent);
                    }
                    walk.reverse();
                    walk
                })
                .collect();
            walks.sort();
            let paths = paths(&parents);
            prop_assert_eq!(&walks, &paths.iter().map(|p| p.calls.clone()).collect::<Vec<_>>());
            let mut seen = std::collections::BTreeSet::new();
            for path in &paths {
                for (i, &call) in path.calls.iter().enumerate() {
                    prop_assert_eq!(seen.insert(call), i >= path.borrowed);
                }
            }
            prop_assert_eq!(seen.len(), parents.len());
        }
    }
}
