//! Expert routes along a row.

use super::model::RowRoutes;
use crate::archive::Call;

/// Assembles the routes of a row from those captured with its calls.
pub fn along(_calls: &[&Call]) -> Option<RowRoutes> {
    None
}
