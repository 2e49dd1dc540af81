//! Pictures of an archive, and the page that holds them: values in, SVG and HTML out.
//!
//! Every picture follows light and dark, says in words what it shows, and tells things apart by
//! more than colour. Text of an input is escaped by the templates, and made visible before.

mod batch;
mod compaction;
mod distribution;
mod flow;
mod forest;
mod histogram;
mod measures;
mod page;
mod sections;
mod style;
mod svg;

pub use batch::{BatchFacts, Bins, batch};
pub use compaction::compaction;
pub use distribution::{Bin, Distribution, Spread};
pub use flow::flow;
pub use forest::{forest, rollout_svg};
pub use histogram::histogram;
pub use measures::{Measure, measures};
pub use page::{Guard, Report, page};
pub use svg::Picture;
