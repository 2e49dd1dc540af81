//! What an archive says of itself against what it holds.

use super::content::Known;
use super::read::known_in;
use super::{Archive, Group, Rollout, SourceKind};
use crate::error::Result;
use crate::finding::{Code, Finding};

impl Archive {
    /// Computes the digests of a part's rollouts again, those of signed calls only if `signed`:
    /// their own digests cover the same. The archive's digest stands for what was captured only
    /// as far as they agree.
    ///
    /// # Errors
    ///
    /// As [`Archive::read_part`].
    pub fn check_digests(
        &self,
        part: usize,
        groups: &[Group],
        signed: bool,
    ) -> Result<Vec<Finding>> {
        let wanted = |rollout: &Rollout| signed || rollout.source != SourceKind::Staged;
        if !groups.iter().flat_map(|group| &group.rollouts).any(wanted) {
            return Ok(Vec::new());
        }
        let stated = known_in(self.dir(), &self.manifest().files, part as u64)?;
        let held = groups.iter().flat_map(|group| group.rollouts.iter().map(move |r| (group, r)));
        let held = held.zip(stated).filter(|((_, rollout), _)| wanted(rollout));
        let differ = held.filter_map(|((group, rollout), stated)| {
            let found = Known::of(group, rollout);
            (found != stated).then(|| {
                let message = format!(
                    "rollout {} gives the digest {}, and is listed with {}",
                    rollout.rollout_id, found.digest, stated.digest
                );
                Finding::new(Code::InconsistentArchive, message).rollout(&rollout.rollout_id)
            })
        });
        Ok(differ.collect())
    }
}
