//! Properties of whole rollouts over random forests, each against an oracle that knows nothing but
//! the raw calls.

mod captured;
mod files;
pub mod forests;
mod large;
mod oracle;
mod order;
mod ownership;
mod packing;
mod recurrent;
mod rejected;

use forestctl::archive::Group;
use forestctl::config::GrpoSettings;
use forestctl::rows::{Batch, Row, build};
use forestctl::select::PolicyName;

use crate::closed_loop::selected;

/// Rows of groups in which nothing is wrong.
fn batch(groups: &[Group], policy: PolicyName, row_multiple: u32) -> Batch {
    let selection = selected(groups, policy);
    assert_eq!(selection.findings, [], "{policy:?}");
    build(groups, &selection, row_multiple, &GrpoSettings::default())
}

/// Rows of captures under each policy.
pub fn rows_of(captures: &forests::Captures) -> [Vec<Row>; 2] {
    [PolicyName::ReturnedHistory, PolicyName::AllCaptured]
        .map(|policy| batch(&captures.groups, policy, 1).rows)
}
