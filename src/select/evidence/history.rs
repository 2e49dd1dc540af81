//! The generated items of a result, each once, however many lists repeat it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::item::HistoryItem;
use crate::finding::Code;
use crate::select::Reason;
use crate::wire::json::Json;

/// Generated items in the order in which they first stand in the result.
#[derive(Debug, Default)]
pub struct History {
    /// The items.
    pub items: Vec<HistoryItem>,
    /// Stretches of items without an observation between, as ranges of `items`.
    pub runs: Vec<Range<usize>>,
    /// Items that cannot be read, or contradict one another.
    pub problems: Vec<Reason>,
    /// Items of the lists read before, by id.
    by_id: HashMap<String, usize>,
}

/// An item of a snapshot, as it is known already.
#[derive(Clone, Copy)]
enum Known {
    /// Item of the prompt.
    Prompt(usize),
    /// Item of the history.
    Item(usize),
}

impl History {
    /// Reads a list of which every item is new, but for those whose id stood in an earlier list.
    /// Returns its last stretch.
    pub fn list(&mut self, list: &[Json], path: String) -> Vec<usize> {
        let mut reading = Reading::of(self);
        for item in read(list, path) {
            match item {
                Ok(Some(item)) => {
                    let known = reading.history.by_id(&item);
                    reading.take(item, known);
                }
                Ok(None) => reading.observation(),
                Err(problem) => {
                    reading.history.problems.push(*problem);
                    reading.observation();
                }
            }
        }
        reading.finish()
    }

    /// Reads snapshots of a growing history, one per transition, each of which repeats what came
    /// before, the prompt included. Returns the last stretch of the last one.
    ///
    /// An item is known when the snapshot before begins alike, or by its id. Without an id, one
    /// of equal content somewhere else may be the same or another.
    pub fn snapshots(&mut self, snapshots: &[Json], prompt: &[Json], path: &str) -> Vec<usize> {
        let prompt: Vec<HistoryItem> = read(prompt, "responses_create_params.input".to_owned())
            .filter_map(|item| item.ok().flatten())
            .collect();
        let mut before: Vec<Known> = (0..prompt.len()).map(Known::Prompt).collect();
        let mut stretch = Vec::new();
        for (i, snapshot) in snapshots.iter().enumerate() {
            let path = format!("{path}[{i}]");
            let Some(list) = snapshot.as_list() else {
                let message = format!("{path} is no list of items");
                self.problems.push(Reason::new(Code::UnsupportedItem, Vec::new(), message));
                continue;
            };
            let mut now = Vec::with_capacity(before.len());
            let mut alike = true;
            let mut reading = Reading::of(self);
            for item in read(list, path) {
                let item = match item {
                    Ok(Some(item)) => item,
                    Ok(None) => {
                        reading.observation();
                        continue;
                    }
                    Err(problem) => {
                        reading.history.problems.push(*problem);
                        reading.observation();
                        continue;
                    }
                };
                let place = before.get(now.len()).copied().filter(|known| {
                    alike && {
                        let known = match *known {
                            Known::Prompt(at) => &prompt[at],
                            Known::Item(at) => &reading.history.items[at],
                        };
                        known.id == item.id && known.same_content(&item)
                    }
                });
                alike = place.is_some();
                match place {
                    Some(Known::Prompt(at)) => {
                        reading.observation();
                        now.push(Known::Prompt(at));
                    }
                    Some(Known::Item(at)) => {
                        reading.take(item, Some(at));
                        now.push(Known::Item(at));
                    }
                    None => {
                        let known = reading.history.by_id(&item);
                        if item.id.is_none() {
                            reading.history.report_repetition(&item, reading.start);
                        }
                        now.push(Known::Item(reading.take(item, known)));
                    }
                }
            }
            stretch = reading.finish();
            before = now;
        }
        stretch
    }

    /// An item of an earlier list with the id of `item`.
    fn by_id(&mut self, item: &HistoryItem) -> Option<usize> {
        let &at = self.by_id.get(item.id.as_deref()?)?;
        let earlier = &self.items[at];
        if !earlier.same_content(item) {
            let message = format!("{item} has other content than {earlier}, with one id for both");
            self.problems.push(Reason::new(Code::ContradictoryEvidence, Vec::new(), message));
        }
        Some(at)
    }

    /// An item without id whose content stood in an earlier list, which ends at `end`.
    fn report_repetition(&mut self, item: &HistoryItem, end: usize) {
        let mut earlier = self.items[..end].iter().filter(|known| known.id.is_none());
        if let Some(known) = earlier.find(|known| known.same_content(item)) {
            let message =
                format!("{item} has no id: it may be {known} again, or an equal answer after it");
            self.problems.push(Reason::new(Code::AmbiguousEvidence, Vec::new(), message));
        }
    }
}

/// The items of a list, `None` for observations, with what cannot be read as a problem.
fn read(
    list: &[Json],
    path: String,
) -> impl Iterator<Item = Result<Option<HistoryItem>, Box<Reason>>> + '_ {
    let path: Arc<str> = path.into();
    list.iter().enumerate().map(move |(place, item)| {
        HistoryItem::read(item, &path, place).map_err(|what| {
            let message = format!("{path}[{place}] is {what}");
            Box::new(Reason::new(Code::UnsupportedItem, Vec::new(), message))
        })
    })
}

/// One list on its way into the history.
struct Reading<'a> {
    history: &'a mut History,
    /// Items of earlier lists.
    start: usize,
    /// First item of the run that is open.
    open: usize,
    /// Items since the last observation, known ones included.
    stretch: Vec<usize>,
    /// The last stretch that was not empty.
    last: Vec<usize>,
}

impl<'a> Reading<'a> {
    fn of(history: &'a mut History) -> Self {
        let start = history.items.len();
        Self { history, start, open: start, stretch: Vec::new(), last: Vec::new() }
    }

    /// Takes an item, which may be known. A known one ends a run of new ones.
    fn take(&mut self, item: HistoryItem, known: Option<usize>) -> usize {
        let at = match known {
            Some(at) => {
                self.close();
                at
            }
            None => {
                self.history.items.push(item);
                self.history.items.len() - 1
            }
        };
        self.stretch.push(at);
        at
    }

    fn observation(&mut self) {
        self.close();
        if !self.stretch.is_empty() {
            self.last = std::mem::take(&mut self.stretch);
        }
    }

    fn close(&mut self) {
        let end = self.history.items.len();
        if self.open < end {
            self.history.runs.push(self.open..end);
        }
        self.open = end;
    }

    fn finish(mut self) -> Vec<usize> {
        self.observation();
        let History { items, by_id, .. } = self.history;
        let mut seen = HashSet::new();
        for (at, item) in items.iter().enumerate().skip(self.start) {
            if let Some(id) = &item.id
                && seen.insert(id)
            {
                by_id.insert(id.clone(), at);
            }
        }
        self.last
    }
}
