//! Part by part: every stage that needs no more than whole prompt groups.

use super::manifest::{TABLES, part_path};
use super::{Archive, FileEntry, Part, Results};
use crate::error::Result;
use crate::ordered::in_order;

/// Most parts that are in memory at once, however many threads there are.
const AHEAD: usize = 8;

impl Archive {
    /// Files of one part.
    pub fn part_files(&self, part: usize) -> impl Iterator<Item = &FileEntry> {
        let path = move |table: &&str| part_path(table, part as u64);
        TABLES.iter().filter_map(move |table| self.manifest().file(&path(table)))
    }

    /// Size of the files of one part.
    pub fn part_bytes(&self, part: usize) -> u64 {
        self.part_files(part).map(|file| file.bytes).sum()
    }

    /// Reads every part and does `work` on it, in parallel; hands the results to `take` in order
    /// of parts, on this thread. No more than eight parts are held at once.
    ///
    /// # Errors
    ///
    /// The first error of `take`, which ends the walk.
    pub fn each_part<T: Send>(
        &self,
        results: Results,
        work: impl Fn(Result<Part>) -> T + Sync,
        take: impl FnMut(usize, T) -> Result<()>,
    ) -> Result<()> {
        let ahead = AHEAD.min(rayon::current_num_threads());
        in_order(self.part_count(), ahead, |part| work(self.part(part, results)), take)
    }
}
