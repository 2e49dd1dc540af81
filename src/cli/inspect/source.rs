//! An archive as the browser reads it: by parts, the last few of them kept.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::archive::{Archive, Group, Known};
use crate::cli::looking::{Looking, LookingArgs, view};
use crate::error::{Error, Result};
use crate::explain::{Decode, RolloutLine, View, line};
use crate::id::{CallId, RolloutId};
use crate::inspect::{Looked, Place, Source};

/// Parts that are kept once they are read: the one on screen, and the one before.
const KEPT: usize = 2;

/// See the module.
pub struct Reader {
    archive: Archive,
    args: LookingArgs,
    looking: Looking,
    decoder: Option<Box<dyn Decode + Send + Sync>>,
    known: Vec<Vec<Known>>,
    /// The latest last.
    parts: VecDeque<(usize, Arc<Vec<Group>>)>,
}

impl Reader {
    /// Reads `archive` as `args` say.
    pub fn new(
        archive: Archive,
        args: LookingArgs,
        looking: Looking,
        decoder: Option<Box<dyn Decode + Send + Sync>>,
    ) -> Self {
        let known = vec![Vec::new(); archive.part_count()];
        Self { archive, args, looking, decoder, known, parts: VecDeque::new() }
    }

    fn part(&mut self, part: usize) -> Result<Arc<Vec<Group>>> {
        if let Some(at) = self.parts.iter().position(|(kept, _)| *kept == part)
            && let Some(kept) = self.parts.remove(at)
        {
            self.parts.push_back(kept);
        } else {
            // Room is made before there is more.
            while self.parts.len() >= KEPT {
                self.parts.pop_front();
            }
            let groups = Arc::new(self.archive.read_part(part)?);
            self.parts.push_back((part, groups));
        }
        self.parts
            .back()
            .map(|(_, groups)| groups.clone())
            .ok_or_else(|| Error::format(format!("part {part} was not kept")))
    }
}

impl Source for Reader {
    fn known(&mut self, part: usize) -> Result<Vec<Known>> {
        let known = self.archive.known_of(part)?;
        if let Some(kept) = self.known.get_mut(part) {
            kept.clone_from(&known);
        }
        Ok(known)
    }

    fn check(&mut self) -> Result<()> {
        self.archive.check_content(&self.known)
    }

    fn call_ids(&mut self, part: usize) -> Result<Vec<(RolloutId, CallId)>> {
        self.archive.call_ids(part)
    }

    fn lines(&mut self, part: usize) -> Result<Vec<RolloutLine>> {
        let groups = self.part(part)?;
        let grpo = &self.looking.grpo;
        let work = |group: &Group, judged| -> Vec<RolloutLine> {
            view(group, judged, grpo).slots().map(line).collect()
        };
        let lines = self.args.judging().judge(&self.looking.selecting, &groups, work)?;
        Ok(lines.into_iter().flatten().collect())
    }

    fn view(&mut self, at: &Place, work: &mut dyn FnMut(&View<'_>, &Looked<'_>)) -> Result<()> {
        let groups = self.part(at.part)?;
        let group = groups.iter().find(|group| group.group_id == at.group_id).ok_or_else(|| {
            Error::format(format!("part {} lost group {}", at.part, at.group_id))
                .help("The archive was changed while it was read; open it again")
        })?;
        let one = std::slice::from_ref(group);
        let judging = self.args.judging();
        let judged = judging.judge(&self.looking.selecting, one, |_, judged| judged)?;
        let policy = &self.looking.selecting.policy;
        let decoder = self.decoder.as_deref().map(|decoder| decoder as &dyn Decode);
        let looked = Looked { policy, decoder };
        for judged in judged {
            work(&view(group, judged, &self.looking.grpo), &looked);
        }
        Ok(())
    }
}
