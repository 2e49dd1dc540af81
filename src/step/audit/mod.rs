//! Whether rows give a model the context that captured calls had.
//!
//! Every generation has three log-probabilities: the *captured* one, which the inference engine
//! gave; the *own* one, under the tokens that the engine was given, alone; and the one *in the
//! row*, at its place among other calls, in a pack of rows. Own and in the row are the same
//! computation on the same tokens and may differ by rounding alone: more is an error of rows,
//! packs, positions or attention. Captured and own may differ by what engine and learner do
//! differently, and by the weights.

mod compare;
mod contexts;
mod placed;
mod report;

pub use compare::{Audit, Tolerances};
pub use contexts::{Captured, Generation, Unscored, calls_of_rows, captured_calls};
pub use placed::{Placed, ScoredRows, generated, is_scorable};
pub use report::{AuditLine, AuditReport, Disagreement, OwnContext, Spread, VersionSpread};
