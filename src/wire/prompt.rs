//! Prompts of a growing conversation in the memory of the longest.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Token ids of a prompt, `[prompt]`. Prompts of which one begins with the other can share them.
#[derive(Clone, Default)]
pub struct Prompt {
    tokens: Arc<Vec<u64>>,
    len: usize,
}

impl Prompt {
    /// The first `len` of `tokens`, or all if there are fewer.
    pub fn beginning(tokens: &Arc<Vec<u64>>, len: usize) -> Self {
        Self { tokens: Arc::clone(tokens), len: len.min(tokens.len()) }
    }
}

impl Deref for Prompt {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.tokens[..self.len]
    }
}

impl From<Vec<u64>> for Prompt {
    fn from(tokens: Vec<u64>) -> Self {
        Self { len: tokens.len(), tokens: Arc::new(tokens) }
    }
}

impl PartialEq for Prompt {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
