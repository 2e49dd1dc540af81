//! A finished validation, as reports for other tools need it.

use super::Summary;
use crate::finding::{Family, Finding};
use crate::id::{GroupId, RolloutId};

/// What the reports of one validation are made from.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The archive, as the user named it.
    pub archive: &'a str,
    /// Every rollout that was looked at, in archive order.
    pub rollouts: &'a [(GroupId, RolloutId)],
    /// Every finding that is reported.
    pub findings: &'a [Finding],
    /// What they come to.
    pub summary: &'a Summary,
}

impl Outcome<'_> {
    /// The file that a finding points at, as one would open it from where the command ran; the
    /// archive's own files are found below the archive.
    pub(super) fn file(&self, finding: &Finding) -> Option<String> {
        let file = finding.location.file.as_ref()?;
        Some(match finding.code.family() {
            Family::Files => format!("{}/{file}", self.archive.trim_end_matches('/')),
            _ => file.clone(),
        })
    }
}

/// The line that a finding points at. Archives can be made to state numbers that are none.
pub(super) fn line(finding: &Finding) -> Option<u64> {
    finding.location.line.filter(|line| (1..=i32::MAX as u64).contains(line))
}
