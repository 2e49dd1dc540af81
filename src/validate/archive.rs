//! A whole archive, piece by piece: its files, its parts in order, its quarantine.

use std::collections::{BTreeMap, BTreeSet};

use super::read_data::{Amount, ReadData, Stored};
use super::{Options, invalid_rollouts, validate};
use crate::archive::{Archive, Group, MANIFEST, QUARANTINE, Quarantined, Results};
use crate::error::{Error, Kind, Result};
use crate::finding::{Code, Finding, Location};
use crate::id::{CaptureKey, GroupId, RolloutId};
use crate::report::{Checked, Selected};
use crate::select::{Policy, SelectSettings, select};

/// What to check in an archive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings<'a> {
    /// Checks of what was captured.
    pub options: Options,
    /// Select by this policy too, and tell why rollouts are masked (rules 85-88, 91).
    pub policy: Option<&'a dyn Policy>,
    /// Take sources of unknown completeness as complete.
    pub assume_complete: bool,
    /// How much of the tensor data to read.
    pub read_data: Option<ReadData>,
}

/// What was found in one piece of an archive.
#[derive(Debug, Default)]
pub struct Piece {
    /// Findings in the order of groups, rollouts, and checks; those of the selection last.
    pub findings: Vec<Finding>,
    /// How much was looked at.
    pub checked: Checked,
    /// What the policy makes of the rollouts.
    pub selected: Option<Selected>,
    /// The rollouts that were looked at, in order.
    pub rollouts: Vec<(GroupId, RolloutId)>,
    /// Size of the files that the piece was read from.
    pub bytes: u64,
    /// How much tensor data was read.
    pub data: Amount,
    /// Why the piece could not be read, with a finding that says so here or in the first piece.
    pub unread: Option<Error>,
    /// Rollouts whose scopes the quarantine names.
    owners: Vec<(CaptureKey, RolloutId)>,
}

/// Checks an archive and hands every piece to `take`, in order. Parts are read and checked in
/// parallel, and only a few are in memory at once. A part that cannot be read does not keep the
/// others from being checked.
///
/// # Errors
///
/// The first error of `take`, and failures that are not the archive's.
pub fn archive(
    archive: &Archive,
    settings: &Settings<'_>,
    mut take: impl FnMut(Piece) -> Result<()>,
) -> Result<()> {
    let files = archive.check_files_between_parts();
    let told = files.iter().any(|finding| finding.location.file.as_deref() == Some(QUARANTINE));
    take(Piece { findings: files, ..Piece::default() })?;
    let quarantine = match archive.quarantine() {
        Ok(quarantine) => quarantine,
        Err(error) => {
            // Its bytes may be those of the manifest, and still be no quarantine.
            let finding = (!told).then(|| corrupt(QUARANTINE, &error));
            take(unread(error, Vec::from_iter(finding))?)?;
            Vec::new()
        }
    };
    let lost: BTreeSet<&CaptureKey> =
        quarantine.iter().filter_map(|entry| entry.capture_key.as_ref()).collect();
    let (mut owners, mut known) = (BTreeMap::new(), Vec::new());
    let stored = Stored::new(archive);
    // The digests of rollouts, which cover the results, are made of unsigned ones at least.
    let results = match settings.policy.is_some() || settings.read_data.is_some() {
        true => Results::Read,
        false => Results::OfUnsigned,
    };
    archive.each_part(
        results,
        |read| {
            let read = read?;
            let mut piece = part(&read.groups, settings, &stored, &lost);
            let differ = read.check_digests(settings.read_data.is_some());
            piece.findings.splice(0..0, differ);
            Ok((piece, read.known))
        },
        |number, read: Result<_>| {
            let mut piece = match read {
                Ok((piece, rollouts)) => {
                    known.push(rollouts);
                    piece
                }
                Err(error) => {
                    let mut findings = archive.check_part(number);
                    if findings.is_empty() {
                        findings.push(Finding::new(Code::CorruptFile, error.to_string()));
                    }
                    unread(error, findings)?
                }
            };
            tracing::info!(findings = piece.findings.len(), "part {number} is checked");
            piece.bytes = archive.part_bytes(number);
            owners.extend(piece.owners.drain(..));
            take(piece)
        },
    )?;
    // Of parts that cannot be read, nothing more is to be said.
    if known.len() == archive.part_count()
        && let Err(error) = archive.check_content(&known)
    {
        take(Piece { findings: vec![corrupt(MANIFEST, &error)], ..Piece::default() })?;
    }
    if let Some(share) = settings.read_data {
        let mut piece = Piece::default();
        piece.data = stored.read(archive, share, |finding| piece.findings.push(finding))?;
        take(piece)?;
    }
    let findings = quarantine.iter().map(|entry| quarantined(entry, &owners)).collect();
    take(Piece { findings, ..Piece::default() })
}

fn part(
    groups: &[Group],
    settings: &Settings<'_>,
    stored: &Stored,
    lost: &BTreeSet<&CaptureKey>,
) -> Piece {
    let validation = validate(groups, settings.options);
    let mut piece =
        Piece { findings: validation.findings, checked: validation.checked, ..Piece::default() };
    piece.findings.extend(stored.check(groups));
    if let Some(policy) = settings.policy {
        let settings = SelectSettings {
            assume_complete: settings.assume_complete,
            invalid: invalid_rollouts(&piece.findings),
            ..SelectSettings::default()
        };
        let selection = select(groups, policy, &settings);
        piece.selected = Some(Selected::of(policy.name(), &selection));
        let masking = selection.findings_beyond(&piece.findings);
        piece.findings.extend(masking);
    }
    for group in groups {
        for rollout in &group.rollouts {
            piece.rollouts.push((group.group_id.clone(), rollout.rollout_id.clone()));
            if lost.contains(&rollout.capture_key) {
                piece.owners.push((rollout.capture_key.clone(), rollout.rollout_id.clone()));
            }
        }
    }
    piece
}

fn corrupt(file: &str, error: &Error) -> Finding {
    let at = Location { file: Some(file.to_owned()), ..Location::default() };
    Finding::new(Code::CorruptFile, error.to_string()).at(at)
}

/// What cannot be read is no failure of the check.
fn unread(error: Error, findings: Vec<Finding>) -> Result<Piece> {
    if error.kind() != Kind::Format {
        return Err(error);
    }
    Ok(Piece { findings, unread: Some(error), ..Piece::default() })
}

/// What ingest could not read is evidence that the archive lacks.
fn quarantined(entry: &Quarantined, owners: &BTreeMap<CaptureKey, RolloutId>) -> Finding {
    let location = Location {
        file: Some(entry.source.clone()),
        line: entry.line,
        capture_key: entry.capture_key.clone(),
        ..Location::default()
    };
    let mut finding = Finding::new(entry.code, &entry.message).at(location);
    let owner = || entry.capture_key.as_ref().and_then(|key| owners.get(key));
    finding.rollout_id = entry.rollout_id.as_ref().or_else(owner).cloned();
    finding.call_id = entry.call_id.clone();
    finding
}
