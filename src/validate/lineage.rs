//! Parent links: present, of the right length, and leading to a root.

use std::collections::HashMap;

use crate::finding::Code;

/// One call's place in the forest, as a ledger or a source states it.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The call.
    pub id: &'a str,
    /// Its parent.
    pub parent: Option<&'a str>,
    /// Where its delta begins.
    pub prev_len: u64,
    /// Where its delta ends.
    pub cum_len: u64,
}

/// What is wrong with the links, by index: at most one thing each, in the verifier's precedence
/// (missing parent, then length, then cycle). Linear in the number of links.
pub fn check(links: &[Link<'_>]) -> Vec<(usize, Code, String)> {
    let mut index = HashMap::with_capacity(links.len());
    for (i, link) in links.iter().enumerate() {
        index.entry(link.id).or_insert(i);
    }
    let parents: Vec<Option<usize>> =
        links.iter().map(|l| l.parent.and_then(|p| index.get(p).copied())).collect();
    let on_cycle = cycles(&parents);
    let mut wrong = Vec::new();
    for (i, link) in links.iter().enumerate() {
        let Some(parent) = link.parent else { continue };
        match parents[i].map(|p| &links[p]) {
            None => {
                let message = format!("call {} names absent parent {parent}", link.id);
                wrong.push((i, Code::MissingParent, message));
            }
            Some(parent) if parent.cum_len != link.prev_len => {
                let message = format!(
                    "call {} starts at token {}, its parent {} ends at {}",
                    link.id, link.prev_len, parent.id, parent.cum_len
                );
                wrong.push((i, Code::ParentLengthMismatch, message));
            }
            Some(_) if on_cycle[i] => {
                let message = format!("following parents from call {} comes back to it", link.id);
                wrong.push((i, Code::LineageCycle, message));
            }
            Some(_) => {}
        }
    }
    wrong
}

/// Parents before children; members of cycles are left out.
pub fn roots_first(parents: &[Option<usize>]) -> Vec<usize> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); parents.len()];
    let mut order = Vec::with_capacity(parents.len());
    for (i, parent) in parents.iter().enumerate() {
        match parent {
            Some(p) => children[*p].push(i),
            None => order.push(i),
        }
    }
    let mut next = 0;
    while let Some(&i) = order.get(next) {
        order.append(&mut children[i]);
        next += 1;
    }
    order
}

fn cycles(parents: &[Option<usize>]) -> Vec<bool> {
    const UNSEEN: usize = usize::MAX;
    let mut seen_by = vec![UNSEEN; parents.len()];
    let mut on_cycle = vec![false; parents.len()];
    for start in 0..parents.len() {
        let mut at = Some(start);
        while let Some(i) = at.filter(|&i| seen_by[i] == UNSEEN) {
            seen_by[i] = start;
            at = parents[i];
        }
        // Stopped at a call of this very walk: everything from there on is a cycle.
        if let Some(first) = at.filter(|&i| seen_by[i] == start && !on_cycle[i]) {
            let mut i = first;
            loop {
                on_cycle[i] = true;
                match parents[i] {
                    Some(next) if next != first => i = next,
                    _ => break,
                }
            }
        }
    }
    on_cycle
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cycles_are_the_calls_that_reach_themselves(
            parents in prop::collection::vec(prop::option::of(0usize..12), 12)
        ) {
            for (i, found) in cycles(&parents).into_iter().enumerate() {
                let mut at = parents[i];
                let mut reached = false;
                for _ in 0..parents.len() {
                    reached |= at == Some(i);
                    at = at.and_then(|p| parents[p]);
                }
                prop_assert_eq!(found, reached);
            }
        }

        #[test]
        fn roots_first_puts_every_parent_before_its_children(
            parents in prop::collection::vec(prop::option::of(0usize..12), 12)
        ) {
            let order = roots_first(&parents);
            for (at, &i) in order.iter().enumerate() {
                if let Some(p) = parents[i] {
                    prop_assert!(order[..at].contains(&p));
                }
            }
        }
    }
}
