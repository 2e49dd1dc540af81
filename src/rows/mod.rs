//! Rows: one per path of the selected forest, padded, weighted, and written for training.

pub mod model;

pub use model::{Row, RowRoutes, Span};
