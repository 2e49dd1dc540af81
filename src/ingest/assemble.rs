//! The second pass: everything that one prompt group holds is read, and becomes values.

use std::path::PathBuf;

use rayon::prelude::*;

use super::gym_store;
use super::index::{Place, ScopeIndex, read_trace};
use super::inline;
use super::lineage;
use super::media::{self, FlagsLine};
use super::plan::{PlannedGroup, PlannedRollout};
use super::quarantine::{Quarantine, Rejected};
use super::rollouts::RolloutLine;
use super::scope::Scope;
use super::staged::{self, ReceiptLine, Record};
use super::texts::{LineRef, Texts};
use crate::archive::{Group, Origin, Rollout, SourceForm};
use crate::error::Result;
use crate::finding::{Code, Finding};
use crate::id::{CaptureKey, Digest32};

/// A group, and what reading it brought to light.
#[derive(Debug)]
pub(super) struct Assembled {
    pub group: Group,
    pub findings: Vec<Finding>,
    pub quarantine: Quarantine,
    /// BLAKE3 of files that were read whole.
    pub hashes: Vec<(PathBuf, Digest32)>,
}

/// Reads one group.
pub(super) fn group(planned: PlannedGroup, texts: &Texts) -> Result<Assembled> {
    let PlannedGroup { group_id, rollouts } = planned;
    let read: Vec<_> = rollouts
        .into_par_iter()
        .map(|planned| {
            let mut reader = Reader::new(texts);
            let rollout = reader.rollout(planned)?;
            Ok((rollout, reader))
        })
        .collect::<Result<_>>()?;
    let mut assembled = Assembled {
        group: Group { group_id, rollouts: Vec::new() },
        findings: Vec::new(),
        quarantine: Quarantine::default(),
        hashes: Vec::new(),
    };
    for (rollout, reader) in read {
        assembled.quarantine.extend(reader.quarantine);
        assembled.hashes.extend(reader.hashes);
        if let Some((rollout, findings)) = rollout {
            assembled.group.rollouts.push(rollout);
            assembled.findings.extend(findings);
        }
    }
    Ok(assembled)
}

struct Reader<'a> {
    texts: &'a Texts,
    quarantine: Quarantine,
    hashes: Vec<(PathBuf, Digest32)>,
}

impl<'a> Reader<'a> {
    fn new(texts: &'a Texts) -> Self {
        Self { texts, quarantine: Quarantine::default(), hashes: Vec::new() }
    }

    /// `None` when nothing of it can be read.
    fn rollout(&mut self, planned: PlannedRollout) -> Result<Option<(Rollout, Vec<Finding>)>> {
        let PlannedRollout { rollout_id, slot, group_size, capture_key, .. } = planned;
        let mut line = match planned.line {
            None => None,
            Some(place) => match self.line(place)? {
                Some(line) => Some(line),
                None => return Ok(None),
            },
        };
        let captured = match planned.scope {
            Some(scope) => self.scope(&capture_key, scope)?,
            None => None,
        };
        let mut scope = match (captured, &line) {
            (Some(scope), _) => scope,
            (None, Some(line)) if line.inline => {
                match inline::scope(line, &rollout_id, &capture_key) {
                    Ok(scope) => scope,
                    Err(why) => {
                        let (origin, text) = (&line.origin, &line.text);
                        self.quarantine.line(origin, SourceForm::Rollouts, text, why);
                        return Ok(None);
                    }
                }
            }
            (None, Some(_)) => Scope::new(planned.uncaptured),
            (None, None) => return Ok(None),
        };
        let result = line.as_mut().and_then(|line| line.result.take());
        if let (Some(manifest), Some(result)) = (&scope.lineage, &result) {
            lineage::attribute(&mut scope.ledger, manifest, result);
        }
        let reward = match &line {
            Some(line) => line.reward.filter(|_| !planned.disputed),
            None => scope.reward.filter(|reward| reward.is_finite()),
        };
        let findings = scope.findings.into_iter().map(|f| f.rollout(&rollout_id)).collect();
        let rollout = Rollout {
            rollout_id,
            slot,
            group_size,
            capture_key,
            reward,
            mask_sample: line.as_ref().is_some_and(|line| line.mask_sample),
            result,
            source: scope.source,
            completeness: scope.completeness,
            ledger: scope.ledger,
            calls: scope.calls,
        };
        Ok(Some((rollout, findings)))
    }

    fn line(&mut self, place: Place) -> Result<Option<RolloutLine>> {
        match place {
            Place::Line(line) => self.parse(line, SourceForm::Rollouts, RolloutLine::parse),
            Place::Document(source) => {
                let file = self.texts.source(source).clone();
                read_trace(&file, &mut self.quarantine)
            }
        }
    }

    /// What was captured of a scope; `None` when that is nothing after all.
    fn scope(&mut self, key: &CaptureKey, index: ScopeIndex) -> Result<Option<Scope>> {
        let mut scope = match index.is_staged() {
            true => Some(self.staged(&index)?),
            false => None,
        };
        if let Some(first) = index.entries.first() {
            let mut quarantine = Quarantine::default();
            let mut entries = Vec::new();
            for line in &index.entries {
                let mut buffer = Vec::new();
                let text = self.text(&mut buffer, *line, SourceForm::Store)?;
                entries.extend(text.map(|text| (self.texts.origin(*line), text.to_owned())));
            }
            let store = gym_store::scope_of_entries(key, entries, &mut quarantine);
            let name = self.texts.source(first.source).name.clone();
            self.offer(key, &mut scope, store, quarantine, &name);
        }
        for files in &index.stores {
            let mut quarantine = Quarantine::default();
            let store = gym_store::scope(key, files, &mut quarantine, &mut self.hashes)?;
            let name = files.iter().flatten().next().map_or("", |file| file.name.as_str());
            self.offer(key, &mut scope, store, quarantine, name);
        }
        if let Some(scope) = &mut scope {
            let media: Vec<_> = index.media.iter().map(|(_, line)| *line).collect();
            let media = self.parse_all(&media, SourceForm::Media, FlagsLine::parse)?;
            media::attach(media, &mut scope.calls, &mut self.quarantine);
        }
        Ok(scope.filter(|scope| !scope.is_silent()))
    }

    /// Takes a store as the capture of a scope, unless there is one.
    fn offer(
        &mut self,
        key: &CaptureKey,
        scope: &mut Option<Scope>,
        store: Scope,
        quarantine: Quarantine,
        name: &str,
    ) {
        match scope {
            None => {
                self.quarantine.extend(quarantine);
                *scope = Some(store).filter(|store| !store.is_silent());
            }
            // Staged captures leave intents beside their ledgers, and no entries.
            Some(_) if store.calls.is_empty() => {}
            Some(_) => {
                let message = format!("scope {key} was captured twice; this store is left out");
                self.quarantine.file(name, Rejected::new(Code::ConflictingRecord, message));
            }
        }
    }

    fn staged(&mut self, index: &ScopeIndex) -> Result<Scope> {
        let lines: Vec<_> = index.records.iter().map(|(_, line)| *line).collect();
        let records = self.parse_all(&lines, SourceForm::Staged, Record::parse)?;
        let receipt = match index.receipts.first() {
            Some((_, line)) => self.parse(*line, SourceForm::Receipts, ReceiptLine::parse)?,
            None => None,
        };
        let manifest = match (&index.lineage, &receipt) {
            (Some((source, _)), None) => {
                lineage::read(self.texts.source(*source), &mut self.quarantine)?
            }
            _ => None,
        };
        Ok(staged::scope(records, receipt, manifest))
    }

    fn parse_all<T: Send>(
        &mut self,
        lines: &[LineRef],
        form: SourceForm,
        parse: impl Fn(&str, Origin) -> Result<T, Rejected> + Sync,
    ) -> Result<Vec<T>> {
        let texts = self.texts;
        let read: Vec<_> = lines
            .par_iter()
            .map_init(Vec::new, |buffer, line| {
                let mut reader = Reader::new(texts);
                let parsed = reader.parse_in(buffer, *line, form, &parse)?;
                Ok((parsed, reader.quarantine))
            })
            .collect::<Result<_>>()?;
        let mut parsed = Vec::with_capacity(read.len());
        for (value, quarantine) in read {
            parsed.extend(value);
            self.quarantine.extend(quarantine);
        }
        Ok(parsed)
    }

    fn text<'b>(
        &mut self,
        buffer: &'b mut Vec<u8>,
        line: LineRef,
        form: SourceForm,
    ) -> Result<Option<&'b str>> {
        Ok(match self.texts.read_into(line, buffer)? {
            Ok(text) => Some(text),
            Err(why) => {
                self.quarantine.line(&self.texts.origin(line), form, "", why.into());
                None
            }
        })
    }

    fn parse<T>(
        &mut self,
        line: LineRef,
        form: SourceForm,
        parse: impl Fn(&str, Origin) -> Result<T, Rejected>,
    ) -> Result<Option<T>> {
        self.parse_in(&mut Vec::new(), line, form, parse)
    }

    /// The same with memory for the text.
    fn parse_in<T>(
        &mut self,
        buffer: &mut Vec<u8>,
        line: LineRef,
        form: SourceForm,
        parse: impl Fn(&str, Origin) -> Result<T, Rejected>,
    ) -> Result<Option<T>> {
        let Some(text) = self.text(buffer, line, form)? else { return Ok(None) };
        let origin = self.texts.origin(line);
        Ok(match parse(text, origin.clone()) {
            Ok(parsed) => Some(parsed),
            Err(why) => {
                self.quarantine.line(&origin, form, text, why);
                None
            }
        })
    }
}
