//! Rollouts lines and capture scopes become prompt groups.

use std::collections::{BTreeMap, BTreeSet};

use super::inline;
use super::lineage;
use super::quarantine::{Quarantine, Rejected};
use super::rollouts::{Identity, RolloutLine};
use super::scope::{GymScope, Scope};
use crate::archive::{Group, Quarantined, Rollout, SourceForm, SourceKind};
use crate::finding::{Code, Finding, Location, Severity};
use crate::id::{CaptureKey, GroupId, RolloutId};

type Scopes = BTreeMap<CaptureKey, Scope>;

/// Rollouts under construction, each identity and each scope once.
struct Join<'a> {
    rollouts: BTreeMap<RolloutId, (GroupId, Rollout)>,
    /// Which rollout a scope fills.
    owners: BTreeMap<CaptureKey, RolloutId>,
    /// What a rollout without any capture is said to come from.
    uncaptured: SourceKind,
    quarantine: &'a mut Quarantine,
    findings: Vec<Finding>,
}

/// Joins `lines` with `scopes`. A line whose scope nothing captured is read for its own token
/// arrays; a scope that no line names is read as the rollout that its name tells.
pub(super) fn groups(
    lines: Vec<RolloutLine>,
    mut scopes: Scopes,
    quarantine: &mut Quarantine,
) -> (Vec<Group>, Vec<Finding>) {
    let mut join = Join {
        rollouts: BTreeMap::new(),
        owners: BTreeMap::new(),
        uncaptured: scopes.values().map(|s| s.source).min().unwrap_or(SourceKind::Staged),
        quarantine,
        findings: Vec::new(),
    };
    let (lines, anonymous): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line.identity != Identity::Anonymous);
    let gym_sizes = gym_sizes(&lines);
    for identity in by_identity(lines) {
        join.line(identity, &gym_sizes, &mut scopes);
    }
    for (group_id, slot, group_size, line) in inline::by_prompt(anonymous, join.quarantine) {
        let rollout_id = RolloutId::from(format!("{group_id}_g{slot}"));
        let capture_key = CaptureKey::from(format!("{group_id}-{slot}"));
        let named = Named { group_id, rollout_id, slot, group_size, capture_key };
        join.put(named, line, &mut Scopes::new());
    }
    join.orphans(scopes);
    join.finish()
}

/// Rollouts seen of each Gym task.
fn gym_sizes(lines: &[RolloutLine]) -> BTreeMap<String, u32> {
    let mut seen: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for line in lines {
        if let Identity::Gym { task, index, .. } = &line.identity {
            seen.entry(task).or_default().insert(*index);
        }
    }
    seen.into_iter().map(|(task, indices)| (task.to_owned(), indices.len() as u32)).collect()
}

/// Lines of one rollout together, in an order that only their content decides.
fn by_identity(mut lines: Vec<RolloutLine>) -> Vec<Vec<RolloutLine>> {
    let key = |line: &RolloutLine| match &line.identity {
        Identity::Named { rollout_id, .. } => rollout_id.as_str().to_owned(),
        Identity::Gym { task, index, .. } => format!("{task}_g{index}"),
        Identity::Anonymous => String::new(),
    };
    lines.sort_by_cached_key(|line| (key(line), line.text.clone(), line.origin.clone()));
    lines.chunk_by(|a, b| key(a) == key(b)).map(<[_]>::to_vec).collect()
}

struct Named {
    group_id: GroupId,
    rollout_id: RolloutId,
    slot: u32,
    group_size: u32,
    capture_key: CaptureKey,
}

impl Join<'_> {
    fn line(
        &mut self,
        lines: Vec<RolloutLine>,
        gym_sizes: &BTreeMap<String, u32>,
        scopes: &mut Scopes,
    ) {
        let mut lines = lines.into_iter();
        let Some(mut first) = lines.next() else { return };
        let named = match first.identity.clone() {
            Identity::Named { group_id, rollout_id, slot, group_size, capture_key } => {
                Named { group_id, rollout_id, slot, group_size, capture_key }
            }
            Identity::Gym { task, index, capture_key } => Named {
                rollout_id: format!("{task}_g{index}").into(),
                slot: index,
                group_size: gym_sizes.get(&task).copied().unwrap_or(1),
                group_id: task.into(),
                capture_key,
            },
            Identity::Anonymous => return,
        };
        for other in lines.filter(|other| other.text != first.text) {
            // Which reward is the true one, nothing tells; without one the rollout is masked.
            first.reward = None;
            let message = format!("another line states rollout {} differently", named.rollout_id);
            self.conflict(&other, message);
        }
        self.put(named, first, scopes);
    }

    fn put(&mut self, named: Named, line: RolloutLine, scopes: &mut Scopes) {
        let Named { group_id, rollout_id, slot, group_size, capture_key } = named;
        if let Some(owner) = self.owners.get(&capture_key) {
            let message = format!("scope {capture_key} already fills rollout {owner}");
            return self.conflict(&line, message);
        }
        let mut scope = match scopes.remove(&capture_key) {
            Some(scope) => scope,
            None if line.inline => match inline::scope(&line, &rollout_id, &capture_key) {
                Ok(scope) => scope,
                Err(why) => {
                    let (origin, text) = (&line.origin, &line.text);
                    return self.quarantine.line(origin, SourceForm::Rollouts, text, why);
                }
            },
            None => Scope::new(self.uncaptured),
        };
        if let (Some(manifest), Some(result)) = (&scope.lineage, &line.result) {
            lineage::attribute(&mut scope.ledger, manifest, result);
        }
        self.findings.extend(scope.findings.into_iter().map(|f| f.rollout(&rollout_id)));
        let rollout = Rollout {
            rollout_id: rollout_id.clone(),
            slot,
            group_size,
            capture_key: capture_key.clone(),
            reward: line.reward,
            mask_sample: line.mask_sample,
            result: line.result,
            source: scope.source,
            completeness: scope.completeness,
            ledger: scope.ledger,
            calls: scope.calls,
        };
        self.owners.insert(capture_key, rollout_id.clone());
        self.rollouts.insert(rollout_id, (group_id, rollout));
    }

    fn conflict(&mut self, line: &RolloutLine, message: String) {
        let why = Rejected::new(Code::ConflictingRecord, message);
        self.quarantine.line(&line.origin, SourceForm::Rollouts, &line.text, why);
    }

    /// Scopes that no line names. Of several attempts at one rollout the last one counts, and
    /// any attempt that a line names counts for more.
    fn orphans(&mut self, scopes: Scopes) {
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
                let message = format!(
                    "scope {capture_key} with {} calls is an earlier attempt than {other}, and is \
                     left out",
                    scope.calls.len()
                );
                self.find(Code::SupersededAttempt, message, &capture_key);
                continue;
            }
            let named = match gym {
                Some(GymScope { task, slot, .. }) => Named {
                    rollout_id: format!("{task}_g{slot}").into(),
                    slot,
                    group_size: sizes.get(&task).copied().unwrap_or(1),
                    group_id: task.into(),
                    capture_key,
                },
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

    fn orphan(&mut self, named: Named, scope: Scope) {
        let Named { group_id, rollout_id, slot, group_size, capture_key } = named;
        if self.rollouts.contains_key(&rollout_id) {
            let message = format!(
                "no rollouts line names scope {capture_key}, and rollout {rollout_id}, which its \
                 name tells, is filled by another scope; its calls are left out"
            );
            let source = scope.calls.first().map_or("", |call| &call.origin.file);
            let mut entry = Quarantined::new(source, None, Code::ConflictingRecord, message);
            entry.capture_key = Some(capture_key);
            return self.quarantine.entry(entry);
        }
        let message = format!(
            "no rollouts line names scope {capture_key}; it is read as slot {slot} of group \
             {group_id}"
        );
        self.find(Code::UnknownScope, message, &capture_key);
        self.findings.extend(scope.findings.into_iter().map(|f| f.rollout(&rollout_id)));
        let rollout = Rollout {
            rollout_id: rollout_id.clone(),
            slot,
            group_size,
            capture_key,
            reward: scope.reward.filter(|r| r.is_finite()),
            mask_sample: false,
            result: None,
            source: scope.source,
            completeness: scope.completeness,
            ledger: scope.ledger,
            calls: scope.calls,
        };
        self.rollouts.insert(rollout_id, (group_id, rollout));
    }

    fn find(&mut self, code: Code, message: String, capture_key: &CaptureKey) {
        let mut finding =
            Finding::new(code, message).at(Location::default().scope(capture_key.clone()));
        finding.severity = Severity::Warning;
        self.findings.push(finding);
    }

    fn finish(self) -> (Vec<Group>, Vec<Finding>) {
        let mut groups: BTreeMap<GroupId, Vec<Rollout>> = BTreeMap::new();
        for (group_id, rollout) in self.rollouts.into_values() {
            groups.entry(group_id).or_default().push(rollout);
        }
        let groups = groups
            .into_iter()
            .map(|(group_id, mut rollouts)| {
                rollouts.sort_by(|a, b| (a.slot, &a.rollout_id).cmp(&(b.slot, &b.rollout_id)));
                Group { group_id, rollouts }
            })
            .collect();
        (groups, self.findings)
    }
}
