//! Gym's `prefix_merging` builder: the entries of one store become chains of calls, and a chain
//! becomes a training sample or is masked (`spec/gym-wire.md` e).
//!
//! forestctl's own rows come from the forest, not from here; [`resolve_parents`] and
//! [`infer_parents`] are what ingest needs, the rest is the package's answer to compare with.

mod chains;
mod consumer;
mod parents;
mod prefix;

pub use chains::{Build, Chain, ChainLink, TerminalChain, prefix_merging};
pub use consumer::{Consumed, Metrics, consume};
pub use parents::{
    InferredParent, LinkNote, MAX_DELTA_DEPTH, MAX_REBUILT_TOKENS, ResolvedCall, Sequence,
    infer_parents, resolve_parents,
};
