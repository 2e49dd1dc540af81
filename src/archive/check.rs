//! What an archive says of itself against what it holds.

use super::content::Known;
use super::read::known_in;
use super::{Archive, Group};
use crate::error::Result;
use crate::finding::{Code, Finding};

impl Archive {
    /// Computes the digests of a part's rollouts again. The archive's digest stands for what was
    /// captured only as far as they agree.
    ///
    /// # Errors
    ///
    /// As [`Archive::read_part`].
    pub fn check_digests(&self, part: usize, groups: &[Group]) -> Result<Vec<Finding>> {
        let stated = known_in(self.dir(), &self.manifest().files, part as u64)?;
        let held = groups.iter().flat_map(|group| group.rollouts.iter().map(move |r| (group, r)));
        let differ = held.zip(stated).filter_map(|((group, rollout), stated)| {
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
