//! Rollouts lines and capture scopes become prompt groups, before any of their calls is read.

use std::collections::{BTreeMap, BTreeSet};

use super::detect::Found;
use super::index::{CallHash, Index, Place, RolloutIndex, ScopeIndex};
use super::media::FlagsLine;
use super::quarantine::{Quarantine, Rejected};
use super::rollouts::Identity;
use super::scope::GymScope;
use super::staged::ReceiptLine;
use super::texts::{LineRef, Texts};
use crate::archive::{Origin, Quarantined, SourceForm, SourceKind};
use crate::error::Result;
use crate::finding::{Code, Finding, Location, Severity};
use crate::id::{CaptureKey, GroupId, RolloutId};

type Scopes = BTreeMap<CaptureKey, ScopeIndex>;

/// A prompt group and where everything that it holds is to be read.
#[derive(Debug)]
pub(super) struct PlannedGroup {
    pub group_id: GroupId,
    /// In order of slot.
    pub rollouts: Vec<PlannedRollout>,
}

/// One logical rollout.
#[derive(Debug)]
pub(super) struct PlannedRollout {
    pub rollout_id: RolloutId,
    pub slot: u32,
    pub group_size: u32,
    pub capture_key: CaptureKey,
    /// Its rollouts line.
    pub line: Option<Place>,
    /// Lines contradict each other: which reward is the true one, nothing tells.
    pub disputed: bool,
    /// What was captured of it.
    pub scope: Option<ScopeIndex>,
    /// What it is said to come from when nothing was captured.
    pub uncaptured: SourceKind,
}

impl PlannedGroup {
    /// The staged calls of it.
    pub fn calls(&self) -> impl Iterator<Item = CallHash> {
        let scopes = self.rollouts.iter().filter_map(|rollout| rollout.scope.as_ref());
        scopes.flat_map(|scope| &scope.records).map(|(call, _)| *call)
    }

    /// Bytes that have to be read for it, about.
    pub fn weight(&self) -> u64 {
        let weight = |rollout: &PlannedRollout| {
            let scope = rollout.scope.as_ref().map_or(0, ScopeIndex::weight);
            rollout.line.map_or(0, Place::weight) + scope
        };
        self.rollouts.iter().map(weight).sum()
    }
}

impl ScopeIndex {
    fn weight(&self) -> u64 {
        let files = self.stores.iter().flatten().flatten().map(|file: &Found| file.bytes);
        let lines = self.records.iter().chain(&self.media).map(|(_, line)| line);
        let lines = lines.chain(self.receipts.iter().map(|(_, line)| line)).chain(&self.entries);
        files.sum::<u64>() + lines.map(LineRef::weight).sum::<u64>()
    }

    fn kind(&self) -> SourceKind {
        if self.is_staged() { SourceKind::Staged } else { SourceKind::GymStore }
    }

    /// Lines or entries that stand for calls; `None` where only reading a store could tell.
    fn calls(&self) -> Option<usize> {
        match self.is_staged() || self.stores.is_empty() {
            true => Some(self.records.len() + self.entries.len()),
            false => None,
        }
    }
}

/// Makes groups of all that is indexed, in order of `group_id`. A scope that no line names is
/// taken as the rollout that its name tells.
pub(super) fn groups(
    index: Index,
    texts: &Texts,
    quarantine: &mut Quarantine,
) -> Result<(Vec<PlannedGroup>, Vec<Finding>)> {
    let Index { mut scopes, rollouts: lines, .. } = index;
    for (key, scope) in &mut scopes {
        agree(key, scope, texts, quarantine)?;
    }
    let told: BTreeSet<&CaptureKey> =
        lines.iter().filter_map(|line| line.identity.scope()).collect();
    claim(&mut scopes, &told);
    let (captured, stray): (Scopes, Scopes) =
        scopes.into_iter().partition(|(_, scope)| scope.is_captured());
    for (key, scope) in stray {
        for (_, line) in scope.media {
            let Ok(text) = texts.read(line)? else { continue };
            if let Ok(flags) = FlagsLine::parse(&text, texts.origin(line)) {
                let (_, id) = flags.call();
                let message = format!("no record of call {id} of scope {key} is here");
                flags.refuse(Code::UnknownScope, message, quarantine);
            }
        }
    }
    let uncaptured = captured.values().map(ScopeIndex::kind).min().unwrap_or(SourceKind::Staged);
    let mut plan = Plan {
        rollouts: BTreeMap::new(),
        owners: BTreeMap::new(),
        scopes: captured,
        uncaptured,
        texts,
        quarantine,
        findings: Vec::new(),
    };
    let (lines, anonymous): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line.identity != Identity::Anonymous);
    let gym_sizes = gym_sizes(&lines);
    for lines in by_identity(lines) {
        plan.line(lines, &gym_sizes)?;
    }
    plan.anonymous(anonymous)?;
    plan.orphans();
    Ok(plan.finish())
}

/// Of receipts that contradict each other none is believed; of equal ones one is kept.
fn agree(
    key: &CaptureKey,
    scope: &mut ScopeIndex,
    texts: &Texts,
    quarantine: &mut Quarantine,
) -> Result<()> {
    scope.receipts.sort();
    scope.receipts.dedup_by_key(|(digest, _)| *digest);
    let own: BTreeSet<&CallHash> = scope.records.iter().map(|(call, _)| call).collect();
    // One receipt of known calls is read with them; where it decides anything, it is read now.
    let complete = !own.is_empty() && scope.named.iter().all(|call| own.contains(call));
    if scope.receipts.len() > 1 || !complete {
        read_receipts(scope, texts, quarantine)?;
    }
    if scope.receipts.len() > 1 {
        for (_, line) in scope.receipts.drain(..) {
            let text = texts.read(line)?.unwrap_or_default();
            let message = format!("receipts of scope {key} contradict each other");
            let why = Rejected::new(Code::ConflictingRecord, message);
            quarantine.line(&texts.origin(line), SourceForm::Receipts, &text, why);
        }
        scope.named.clear();
    } else if let (true, Some((_, named))) = (scope.receipts.is_empty(), &scope.lineage) {
        scope.named.clone_from(named);
    }
    Ok(())
}

/// Leaves only receipts that can be read, and the calls that they name.
fn read_receipts(scope: &mut ScopeIndex, texts: &Texts, quarantine: &mut Quarantine) -> Result<()> {
    scope.named.clear();
    for (digest, line) in std::mem::take(&mut scope.receipts) {
        let origin = texts.origin(line);
        let text = texts.read(line)?;
        let parse = |text: &String| ReceiptLine::parse(text, origin.clone());
        match text.as_ref().map_err(|why| why.clone().into()).and_then(parse) {
            Ok(receipt) => {
                scope.named = receipt.named();
                scope.receipts.push((digest, line));
            }
            Err(why) => {
                let text = text.unwrap_or_default();
                quarantine.line(&origin, SourceForm::Receipts, &text, why);
            }
        }
    }
    Ok(())
}

/// Gives each manifest the records it names: its own first; then, where it lacks one, a record
/// that another scope holds without naming it. Scopes that rollouts tell of (`told`) give none to
/// those that none tells of, which may be left out.
fn claim(scopes: &mut Scopes, told: &BTreeSet<&CaptureKey>) {
    let mut lacking: Vec<(CaptureKey, CallHash)> = Vec::new();
    for (key, scope) in scopes.iter() {
        let own: BTreeSet<CallHash> = scope.records.iter().map(|(call, _)| *call).collect();
        let mut seen = BTreeSet::new();
        let named = scope.named.iter().filter(|call| seen.insert(**call) && !own.contains(call));
        lacking.extend(named.map(|call| (key.clone(), *call)));
    }
    if lacking.is_empty() {
        return;
    }
    let wanted: BTreeSet<CallHash> = lacking.iter().map(|(_, call)| *call).collect();
    let mut holders: BTreeMap<CallHash, BTreeSet<CaptureKey>> = BTreeMap::new();
    for (key, scope) in scopes.iter() {
        let held: BTreeSet<CallHash> =
            scope.records.iter().map(|(call, _)| *call).filter(|c| wanted.contains(c)).collect();
        if held.is_empty() {
            continue;
        }
        let named: BTreeSet<&CallHash> = scope.named.iter().collect();
        for call in held.into_iter().filter(|call| !named.contains(call)) {
            holders.entry(call).or_default().insert(key.clone());
        }
    }
    for (key, call) in lacking {
        let Some(held_by) = holders.get_mut(&call) else { continue };
        let may = |holder: &&CaptureKey| told.contains(&key) || !told.contains(holder);
        let Some(holder) = held_by.iter().find(may).cloned() else { continue };
        held_by.remove(&holder);
        let Some(from) = scopes.get_mut(&holder) else { continue };
        let taken = |lines: &mut Vec<(CallHash, LineRef)>| -> Vec<(CallHash, LineRef)> {
            lines.extract_if(.., |(held, _)| *held == call).collect()
        };
        let (records, media) = (taken(&mut from.records), taken(&mut from.media));
        if let Some(to) = scopes.get_mut(&key) {
            to.records.extend(records);
            to.media.extend(media);
        }
    }
}

/// Rollouts seen of each Gym task.
fn gym_sizes(lines: &[RolloutIndex]) -> BTreeMap<String, u32> {
    let mut seen: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for line in lines {
        if let Identity::Gym { task, index, .. } = &line.identity {
            seen.entry(task).or_default().insert(*index);
        }
    }
    seen.into_iter().map(|(task, indices)| (task.to_owned(), indices.len() as u32)).collect()
}

/// Lines of one rollout together.
fn by_identity(lines: Vec<RolloutIndex>) -> impl Iterator<Item = Vec<RolloutIndex>> {
    let mut by_identity: BTreeMap<String, Vec<RolloutIndex>> = BTreeMap::new();
    for line in lines {
        let key = match &line.identity {
            Identity::Named { rollout_id, .. } => rollout_id.as_str().to_owned(),
            Identity::Gym { task, index, .. } => format!("{task}_g{index}"),
            Identity::Anonymous => String::new(),
        };
        by_identity.entry(key).or_default().push(line);
    }
    by_identity.into_values()
}

/// Rollouts under construction, each identity and each scope once.
struct Plan<'a> {
    rollouts: BTreeMap<RolloutId, (GroupId, PlannedRollout)>,
    /// Which rollout a scope fills.
    owners: BTreeMap<CaptureKey, RolloutId>,
    scopes: Scopes,
    uncaptured: SourceKind,
    texts: &'a Texts,
    quarantine: &'a mut Quarantine,
    findings: Vec<Finding>,
}

struct Named {
    group_id: GroupId,
    rollout_id: RolloutId,
    slot: u32,
    group_size: u32,
    capture_key: CaptureKey,
}

impl Named {
    fn gym(task: &str, slot: u32, group_size: u32, capture_key: CaptureKey) -> Self {
        let rollout_id = format!("{task}_g{slot}").into();
        Self { group_id: task.into(), rollout_id, slot, group_size, capture_key }
    }
}

impl Plan<'_> {
    fn line(&mut self, lines: Vec<RolloutIndex>, gym_sizes: &BTreeMap<String, u32>) -> Result<()> {
        let alike = lines.iter().all(|line| line.digest == lines[0].digest);
        let mut lines = match alike {
            true => lines,
            false => self.by_text(lines)?,
        }
        .into_iter();
        let Some(first) = lines.next() else { return Ok(()) };
        let named = match &first.identity {
            Identity::Named { group_id, rollout_id, slot, group_size, capture_key } => Named {
                group_id: group_id.clone(),
                rollout_id: rollout_id.clone(),
                slot: *slot,
                group_size: *group_size,
                capture_key: capture_key.clone(),
            },
            Identity::Gym { task, index, capture_key } => {
                let size = gym_sizes.get(task).copied().unwrap_or(1);
                Named::gym(task, *index, size, capture_key.clone())
            }
            Identity::Anonymous => return Ok(()),
        };
        for other in lines.filter(|other| other.digest != first.digest) {
            let message = format!("another line states rollout {} differently", named.rollout_id);
            self.refuse(&other, Code::ConflictingRecord, message)?;
        }
        self.put(named, &first, !alike)
    }

    /// Lines in an order that only their content decides.
    fn by_text(&self, lines: Vec<RolloutIndex>) -> Result<Vec<RolloutIndex>> {
        let keyed: Vec<_> = lines
            .into_iter()
            .map(|line| Ok((self.text(&line)?.1, line.place, line)))
            .collect::<Result<_>>()?;
        let mut keyed = keyed;
        keyed.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        Ok(keyed.into_iter().map(|(_, _, line)| line).collect())
    }

    fn text(&self, line: &RolloutIndex) -> Result<(Origin, String)> {
        Ok(match line.place {
            Place::Line(place) => {
                (self.texts.origin(place), self.texts.read(place)?.unwrap_or_default())
            }
            Place::Document(source) => {
                let file = self.texts.source(source).name.clone();
                (Origin { file, line: 1 }, String::new())
            }
        })
    }

    fn refuse(&mut self, line: &RolloutIndex, code: Code, message: String) -> Result<()> {
        let (origin, text) = self.text(line)?;
        let why = Rejected::new(code, message);
        self.quarantine.line(&origin, SourceForm::Rollouts, &text, why);
        Ok(())
    }

    fn put(&mut self, named: Named, line: &RolloutIndex, disputed: bool) -> Result<()> {
        let Named { group_id, rollout_id, slot, group_size, capture_key } = named;
        if let Some(owner) = self.owners.get(&capture_key) {
            let message = format!("scope {capture_key} already fills rollout {owner}");
            return self.refuse(line, Code::ConflictingRecord, message);
        }
        let scope = self.scopes.remove(&capture_key);
        self.owners.insert(capture_key.clone(), rollout_id.clone());
        let rollout = PlannedRollout {
            rollout_id: rollout_id.clone(),
            slot,
            group_size,
            capture_key,
            line: Some(line.place),
            disputed,
            scope,
            uncaptured: self.uncaptured,
        };
        self.rollouts.insert(rollout_id, (group_id, rollout));
        Ok(())
    }

    /// Lines that say nothing of group and slot: those with one prompt are a group, its slots in
    /// an order that only the content of the lines decides.
    fn anonymous(&mut self, lines: Vec<RolloutIndex>) -> Result<()> {
        let mut groups: BTreeMap<String, Vec<RolloutIndex>> = BTreeMap::new();
        for line in lines {
            if line.inline {
                groups.entry(format!("prompt-{}", line.prompt)).or_default().push(line);
            } else {
                let message = "neither the identity of a rollout nor token arrays".to_owned();
                self.refuse(&line, Code::MalformedRollout, message)?;
            }
        }
        for (group, lines) in groups {
            let size = lines.len() as u32;
            for (slot, line) in self.by_text(lines)?.into_iter().enumerate() {
                let capture_key = CaptureKey::from(format!("{group}-{slot}"));
                // Scopes have names of their own, so none is captured under this one.
                self.put(Named::gym(&group, slot as u32, size, capture_key), &line, false)?;
            }
        }
        Ok(())
    }

    /// Scopes that no line names. Of several attempts at one rollout the last one counts, and
    /// any attempt that a line names counts for more.
    fn orphans(&mut self) {
        let scopes = std::mem::take(&mut self.scopes);
        let mut filled: BTreeMap<(String, u32), CaptureKey> = BTreeMap::new();
        let attempts = |key: &CaptureKey| GymScope::parse(key).map(|gym| gym.attempt);
        let mut keys: Vec<_> = self.owners.keys().cloned().collect();
        let mut orphans: Vec<_> = scopes.keys().cloned().collect();
        orphans.sort_by_key(|key| std::cmp::Reverse(attempts(key)));
        keys.extend(orphans);
        for key in keys {
            if let Some(gym) = GymScope::parse(&key) {
                filled.entry((gym.task, gym.slot)).or_insert(key);
            }
        }
        let mut sizes: BTreeMap<String, u32> = BTreeMap::new();
        for ((task, _), key) in &filled {
            if scopes.contains_key(key) {
                *sizes.entry(task.clone()).or_default() += 1;
            }
        }
        for (capture_key, scope) in scopes {
            let gym = GymScope::parse(&capture_key);
            let slot = gym.as_ref().map(|gym| (gym.task.clone(), gym.slot));
            if let Some(other) = slot.and_then(|slot| filled.get(&slot))
                && *other != capture_key
            {
                let calls = scope.calls().map(|n| format!(" with {n} calls")).unwrap_or_default();
                let message = format!(
                    "scope {capture_key}{calls} is an earlier attempt than {other}, and is left out"
                );
                self.find(Code::SupersededAttempt, message, &capture_key);
                continue;
            }
            let named = match gym {
                Some(GymScope { task, slot, .. }) => {
                    let size = sizes.get(&task).copied().unwrap_or(1);
                    Named::gym(&task, slot, size, capture_key)
                }
                None => Named {
                    rollout_id: format!("{capture_key}_g0").into(),
                    slot: 0,
                    group_size: 1,
                    group_id: capture_key.as_str().into(),
                    capture_key,
                },
            };
            self.orphan(named, scope);
        }
    }

    fn orphan(&mut self, named: Named, scope: ScopeIndex) {
        let Named { group_id, rollout_id, slot, group_size, capture_key } = named;
        if self.rollouts.contains_key(&rollout_id) {
            let message = format!(
                "no rollouts line names scope {capture_key}, and rollout {rollout_id}, which its \
                 name tells, is filled by another scope; its calls are left out"
            );
            let mut entry =
                Quarantined::new(self.source(&scope), None, Code::ConflictingRecord, message);
            entry.capture_key = Some(capture_key);
            return self.quarantine.entry(entry);
        }
        let message = format!(
            "no rollouts line names scope {capture_key}; it is read as slot {slot} of group \
             {group_id}"
        );
        self.find(Code::UnknownScope, message, &capture_key);
        let rollout = PlannedRollout {
            rollout_id: rollout_id.clone(),
            slot,
            group_size,
            capture_key,
            line: None,
            disputed: false,
            scope: Some(scope),
            uncaptured: self.uncaptured,
        };
        self.rollouts.insert(rollout_id, (group_id, rollout));
    }

    /// The first source of a scope.
    fn source(&self, scope: &ScopeIndex) -> String {
        let files = scope.stores.iter().flatten().flatten().map(|file| file.name.clone());
        let lines = scope.records.iter().map(|(_, line)| *line).chain(scope.entries.clone());
        let lines = lines.map(|line| self.texts.source(line.source).name.clone());
        lines.chain(files).min().unwrap_or_default()
    }

    fn find(&mut self, code: Code, message: String, capture_key: &CaptureKey) {
        let mut finding =
            Finding::new(code, message).at(Location::default().scope(capture_key.clone()));
        finding.severity = Severity::Warning;
        self.findings.push(finding);
    }

    fn finish(self) -> (Vec<PlannedGroup>, Vec<Finding>) {
        let mut groups: BTreeMap<GroupId, Vec<PlannedRollout>> = BTreeMap::new();
        for (group_id, rollout) in self.rollouts.into_values() {
            groups.entry(group_id).or_default().push(rollout);
        }
        let groups = groups
            .into_iter()
            .map(|(group_id, mut rollouts)| {
                rollouts.sort_by(|a, b| (a.slot, &a.rollout_id).cmp(&(b.slot, &b.rollout_id)));
                PlannedGroup { group_id, rollouts }
            })
            .collect();
        (groups, self.findings)
    }
}
