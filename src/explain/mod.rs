//! What became of captured calls and tokens, and why: values for `ls`, `show`, `why`,
//! `diff` and `report`.
//!
//! Nothing here decides anything. A [`View`] holds one prompt group as the stages leave it
//! (captured, selected, found wrong, laid out as rows), and everything else reads it.

mod chains;
mod compare;
mod divergence;
mod drawing;
mod fate;
mod listing;
mod summary;
mod text;
mod token;
mod tree;
mod view;
pub mod words;

pub use chains::{Chains, Part, Stretch};
pub use compare::{Changed, Comparison, Difference, Side, Sides, Totals, compare, sides};
pub use divergence::{Decode, Divergence, DivergenceKind, Window, divergence};
pub use drawing::{Drawing, DrawnCall, DrawnLine, leaving};
pub use fate::{CallFate, MaskReason, Place, RolloutFate, calls, mask_reasons, rollout};
pub use listing::{Filter, RolloutLine, SortKey, line, sort};
pub use summary::{
    Because, Beside, Endings, GroupLine, Picked, Portrait, Sample, Samples, SlotRows, Summary,
    Tokens,
};
pub use token::{PartFate, PartFates, TokenFate, token, token_of_row};
pub use tree::{Mark, RootLine, RowLine, Tree, TreeCall, segment, tree};
pub use view::{Slot, Verdict, View};
