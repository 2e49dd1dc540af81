//! What an archive says of itself against what it holds.

use super::content::Known;
use super::read::Part;
use super::{Rollout, SourceKind};
use crate::finding::{Code, Finding};

impl Part {
    /// Computes the digests of the rollouts again, those of signed calls only if `signed`:
    /// their own digests cover the same. The archive's digest stands for what was captured only
    /// as far as they agree.
    pub fn check_digests(&self, signed: bool) -> Vec<Finding> {
        let wanted = |rollout: &Rollout| signed || rollout.source != SourceKind::Staged;
        let groups = self.groups.iter();
        let held = groups.flat_map(|group| group.rollouts.iter().map(move |r| (group, r)));
        let held = held.zip(&self.known).filter(|((_, rollout), _)| wanted(rollout));
        let differ = held.filter_map(|((group, rollout), stated)| {
            let found = Known::of(group, rollout);
            (found != *stated).then(|| {
                let message = format!(
                    "rollout {} gives the digest {}, and is listed with {}",
                    rollout.rollout_id, found.digest, stated.digest
                );
                Finding::new(Code::InconsistentArchive, message).rollout(&rollout.rollout_id)
            })
        });
        differ.collect()
    }
}
