//! All rollouts of an archive, as far as they are read: a list whose length is known from the
//! start, and whose lines come part by part.

use std::collections::BTreeSet;

use super::cursor::Cursor;
use super::source::Place;
use super::worker::Job;
use crate::archive::Known;
use crate::explain::{RolloutLine, Verdict};
use crate::id::RolloutId;

/// One part of the archive.
#[derive(Clone, Debug, Default)]
struct PartLines {
    known: Option<Vec<Known>>,
    lines: Option<Vec<RolloutLine>>,
    fault: Option<String>,
}

/// One line of the list.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Part of the archive.
    pub part: usize,
    /// Who it is, once the part was looked at.
    pub known: Option<&'a Known>,
    /// What became of it, once the part is judged.
    pub line: Option<&'a RolloutLine>,
    /// Why the part cannot be read.
    pub fault: Option<&'a str>,
}

/// The list.
#[derive(Clone, Debug)]
pub struct Listing {
    parts: Vec<PartLines>,
    /// Number of the first rollout of each part, and of all rollouts.
    starts: Vec<usize>,
    /// Rollouts of this verdict only.
    filter: Option<Verdict>,
    /// What the filter leaves, of the parts that are judged.
    shown: Vec<usize>,
    /// The chosen line among those that are shown.
    pub cursor: Cursor,
}

impl Listing {
    /// A list of parts with so many rollouts each.
    pub fn new(parts: impl IntoIterator<Item = u64>) -> Self {
        let mut starts = vec![0_usize];
        let mut end = 0_usize;
        for rollouts in parts {
            // The manifest is not to be trusted before the part is read.
            end = end.saturating_add(usize::try_from(rollouts).unwrap_or(usize::MAX));
            starts.push(end);
        }
        Self {
            parts: vec![PartLines::default(); starts.len() - 1],
            starts,
            filter: None,
            shown: Vec::new(),
            cursor: Cursor::default(),
        }
    }

    /// All rollouts.
    pub fn total(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Rollouts that the filter leaves.
    pub fn count(&self) -> usize {
        if self.filter.is_some() { self.shown.len() } else { self.total() }
    }

    /// The verdict that is listed.
    pub fn filter(&self) -> Option<Verdict> {
        self.filter
    }

    /// Parts that are judged or cannot be, and all of them.
    pub fn judged(&self) -> (usize, usize) {
        let judged = self.parts.iter().filter(|p| p.lines.is_some() || p.fault.is_some()).count();
        (judged, self.parts.len())
    }

    /// Number among all rollouts of a shown line.
    fn number(&self, at: usize) -> Option<usize> {
        match self.filter {
            Some(_) => self.shown.get(at).copied(),
            None => (at < self.total()).then_some(at),
        }
    }

    fn part_of(&self, number: usize) -> usize {
        self.starts.partition_point(|&start| start <= number).saturating_sub(1)
    }

    fn of_number(&self, number: usize) -> Entry<'_> {
        let part = self.part_of(number);
        let (lines, place) = (&self.parts[part], number - self.starts[part]);
        Entry {
            part,
            known: lines.known.as_ref().and_then(|known| known.get(place)),
            line: lines.lines.as_ref().and_then(|lines| lines.get(place)),
            fault: lines.fault.as_deref(),
        }
    }

    /// A shown line.
    pub fn entry(&self, at: usize) -> Option<Entry<'_>> {
        self.number(at).map(|number| self.of_number(number))
    }

    /// The rollout of the chosen line, once it is known.
    pub fn chosen(&self) -> Option<Place> {
        let entry = self.entry(self.cursor.at)?;
        let known = entry.known?;
        let (group_id, rollout_id) = (known.group_id.clone(), known.rollout_id.clone());
        Some(Place { part: entry.part, group_id, rollout_id })
    }

    /// Who is in a part.
    pub fn take_known(&mut self, part: usize, known: Vec<Known>) {
        let (found, stated) = (known.len(), self.starts[part + 1] - self.starts[part]);
        if found != stated {
            let what =
                format!("part {part} has {found} rollouts, where the manifest says {stated}");
            return self.take_fault(part, what);
        }
        self.parts[part].known = Some(known);
    }

    /// What became of the rollouts of a part.
    pub fn take_lines(&mut self, part: usize, lines: Vec<RolloutLine>) {
        let chosen = self.number(self.cursor.at);
        self.parts[part].lines = Some(lines);
        if self.filter.is_some() {
            self.sift();
            self.choose(chosen);
        }
    }

    /// Why a part cannot be read.
    pub fn take_fault(&mut self, part: usize, fault: String) {
        self.parts[part].fault = Some(fault);
    }

    /// Lists the rollouts of one verdict, or all; the chosen one stays chosen if it is listed.
    pub fn set_filter(&mut self, filter: Option<Verdict>) {
        let chosen = self.number(self.cursor.at);
        self.filter = filter;
        self.sift();
        self.choose(chosen);
    }

    fn sift(&mut self) {
        let Some(verdict) = self.filter else { return self.shown.clear() };
        let lines = self.parts.iter().zip(&self.starts);
        self.shown = lines
            .flat_map(|(part, start)| {
                let lines = part.lines.iter().flatten().enumerate();
                let taken = lines.filter(|(_, line)| line.verdict == verdict);
                taken.map(move |(place, _)| start + place)
            })
            .collect();
    }

    /// Puts the cursor on a rollout, or on the next one that is listed.
    fn choose(&mut self, number: Option<usize>) {
        let Some(number) = number else { return };
        self.cursor.at = match self.filter {
            None => number,
            Some(_) => self.shown.partition_point(|&shown| shown < number),
        };
        self.cursor.at = self.cursor.at.min(self.count().saturating_sub(1));
    }

    /// Puts the cursor on a rollout; false if the filter hides it or nobody knows it.
    pub fn go_to(&mut self, part: usize, rollout_id: &RolloutId) -> bool {
        let known = self.parts.get(part).and_then(|part| part.known.as_ref());
        let place = known.and_then(|k| k.iter().position(|k| k.rollout_id == *rollout_id));
        let Some(number) = place.map(|place| self.starts[part] + place) else { return false };
        self.choose(Some(number));
        self.number(self.cursor.at) == Some(number)
    }

    /// The next shown line that `wanted` holds for, from the cursor on and round the end; backwards
    /// if not `forward`.
    pub fn next(&self, forward: bool, wanted: impl Fn(&Entry<'_>) -> bool) -> Option<usize> {
        let read = |(part, start): (&PartLines, &usize)| {
            *start..start + part.known.as_ref().map_or(0, Vec::len)
        };
        let shown = self.shown.len();
        let lines: Box<dyn DoubleEndedIterator<Item = usize>> = match self.filter {
            Some(_) => Box::new(0..shown),
            None => Box::new(self.parts.iter().zip(&self.starts).flat_map(read)),
        };
        let lines = if forward { lines } else { Box::new(lines.rev()) };
        let beyond =
            |line: usize| if forward { line > self.cursor.at } else { line < self.cursor.at };
        let mut round = None;
        for line in lines {
            // What lies before the cursor counts where nothing beyond it does.
            if !beyond(line) && round.is_some() || !self.entry(line).is_some_and(|e| wanted(&e)) {
                continue;
            }
            if beyond(line) {
                return Some(line);
            }
            round = Some(line);
        }
        round
    }

    /// Parts of which something is not read yet, in the order of a walk from the cursor.
    pub fn unread(&self, forward: bool) -> Vec<usize> {
        let from = self.number(self.cursor.at).map_or(0, |number| self.part_of(number));
        let count = self.parts.len();
        let step =
            |by: usize| if forward { (from + by) % count } else { (from + count - by) % count };
        (0..count).map(step).filter(|part| !self.jobs_of(*part).is_empty()).collect()
    }

    /// What a part waits for: who is in it comes before what became of them.
    pub fn jobs_of(&self, part: usize) -> Vec<Job> {
        let PartLines { known, lines, fault } = &self.parts[part];
        if fault.is_some() {
            return Vec::new();
        }
        let known = known.is_none().then_some(Job::Known(part));
        known.into_iter().chain(lines.is_none().then_some(Job::Lines(part))).collect()
    }

    /// What the lines on screen wait for.
    pub fn jobs_on_screen(&self) -> Vec<Job> {
        let shown = self.cursor.shown().map_while(|at| self.number(at));
        let parts: BTreeSet<usize> = shown.map(|number| self.part_of(number)).collect();
        parts.into_iter().flat_map(|part| self.jobs_of(part)).collect()
    }

    /// Parts nobody has looked at.
    pub fn unknown(&self) -> impl Iterator<Item = usize> {
        let parts = self.parts.iter().enumerate();
        parts.filter(|(_, p)| p.known.is_none() && p.fault.is_none()).map(|(part, _)| part)
    }
}
