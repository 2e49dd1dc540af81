//! Longest known sequence that is a prefix of a prompt.

use std::collections::{BTreeSet, HashMap};

use super::parents::Sequence;

/// Token sequences by length and hash: one lookup costs one pass over the prompt, however many
/// sequences there are.
#[derive(Default)]
pub(super) struct PrefixIndex<'a> {
    sequences: Vec<(usize, &'a Sequence<'a>)>,
    by_hash: HashMap<(usize, u64), Vec<usize>>,
    lengths: BTreeSet<usize>,
}

impl<'a> PrefixIndex<'a> {
    /// Adds a sequence under a name of the caller's.
    pub(super) fn insert(&mut self, name: usize, sequence: &'a Sequence<'a>) {
        let tokens = sequence.prompt.iter().chain(sequence.generation);
        let hash = tokens.fold(0, |hash, &id| step(hash, id));
        self.by_hash.entry((sequence.len(), hash)).or_default().push(self.sequences.len());
        self.lengths.insert(sequence.len());
        self.sequences.push((name, sequence));
    }

    /// Names of the longest sequences that `prompt` begins with, in insertion order: several
    /// when several are the same tokens, none when there is no such sequence.
    pub(super) fn longest(&self, prompt: &[u64]) -> Vec<usize> {
        let (mut hash, mut hashed, mut best) = (0, 0, Vec::new());
        for &length in self.lengths.range(..=prompt.len()) {
            let prefix = &prompt[..length];
            hash = prefix[hashed..].iter().fold(hash, |hash, &id| step(hash, id));
            hashed = length;
            let candidates = self.by_hash.get(&(length, hash)).into_iter().flatten();
            let equal: Vec<usize> = candidates
                .map(|&at| self.sequences[at])
                .filter(|(_, sequence)| sequence.begins(prefix))
                .map(|(name, _)| name)
                .collect();
            if !equal.is_empty() {
                best = equal;
            }
        }
        best
    }
}

/// Collisions only cost a comparison, so mixing need not be strong.
fn step(hash: u64, id: u64) -> u64 {
    (hash.rotate_left(5) ^ id ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0x517c_c1b7_2722_0a95)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_comparing_everything(
            sequences in prop::collection::vec(prop::collection::vec(0_u64..3, 0..6), 0..12),
            prompt in prop::collection::vec(0_u64..3, 0..8),
        ) {
            let split = |tokens: &'_ Vec<u64>| tokens.len() / 2;
            let parts: Vec<Sequence<'_>> = sequences
                .iter()
                .map(|tokens| Sequence::new(&tokens[..split(tokens)], &tokens[split(tokens)..]))
                .collect();
            let mut index = PrefixIndex::default();
            for (name, sequence) in parts.iter().enumerate() {
                index.insert(name, sequence);
            }
            let matching = |tokens: &&Vec<u64>| prompt.starts_with(tokens);
            let longest = sequences.iter().filter(matching).map(Vec::len).max();
            let expected: Vec<usize> = sequences
                .iter()
                .enumerate()
                .filter(|(_, tokens)| matching(tokens) && Some(tokens.len()) == longest)
                .map(|(name, _)| name)
                .collect();
            prop_assert_eq!(index.longest(&prompt), expected);
        }
    }
}
