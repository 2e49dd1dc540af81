//! Pictures, and the page that `report` makes of them.

mod browser;
mod page;
mod rollouts;

use forestctl::archive::Group;
use forestctl::config::GrpoSettings;
use forestctl::explain::{Beside, Summary, View};
use forestctl::select::{PolicyName, Selection};

use crate::builders;
use crate::closed_loop::selected;

/// Views of groups as one policy has them.
fn views(groups: &[Group], policy: PolicyName) -> Vec<View<'_>> {
    let Selection { groups: selections, .. } = selected(groups, policy);
    let grpo = GrpoSettings::default();
    let view = |(group, selection)| View::new(group, selection, Vec::new(), Vec::new(), &grpo);
    groups.iter().zip(selections).map(view).collect()
}

fn summary(views: &[View<'_>]) -> Summary {
    let mut summary = Summary::default();
    views.iter().for_each(|view| summary.add(Summary::of(view, Beside::default()).unwrap()));
    summary.finish()
}

/// What would leave its place in SVG or HTML, or mislead a reader.
const HOSTILE: &str = "\"'><script>alert(1)</script></svg></style>&amp;<!--\u{202e}\u{1b}[31m";

/// A group whose every id is hostile: two roots, a retry, a call that failed, a loose one.
fn hostile() -> Vec<Group> {
    let id = |name: &str| format!("{name}{HOSTILE}");
    let root = builders::call(id("root"), None, &[1, 2], &[(3, -0.5)]);
    let retry = builders::call(id("retry"), Some(&root), &[4], &[(5, -0.5)]);
    let next = builders::call(id("next"), Some(&root), &[4], &[(6, -0.5)]);
    let compacted = builders::call(id("compacted"), None, &[1], &[(9, -0.5)]);
    let mut loose = builders::call(id("loose"), Some(&next), &[7], &[(8, -0.5)]);
    (loose.prev_len, loose.cum_len) = (u64::MAX, u64::MAX);
    let calls = vec![root, retry, next, compacted, loose];
    let mut rollout = builders::rollout(HOSTILE, 0, 1, calls);
    rollout.ledger.failures.push(forestctl::archive::CaptureFailure {
        call_id: id("retry").into(),
        reason: HOSTILE.to_owned(),
    });
    rollout.ledger.pending.push(id("pending").into());
    vec![builders::group(HOSTILE, vec![crate::people::stored(rollout)])]
}
