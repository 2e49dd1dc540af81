//! Sources to groups: finds capture files, reads them line by line, joins them by scope.

mod detect;
mod gym_store;
mod inline;
mod join;
mod lineage;
mod lines;
mod media;
mod quarantine;
mod rollouts;
mod scope;
mod served;
mod staged;
mod tensors;
mod trace;

use std::fs::File;
use std::path::PathBuf;

use detect::Found;
use media::FlagsLine;
use quarantine::Quarantine;
use rollouts::RolloutLine;
use staged::{ReceiptLine, Record};
use tensors::Sidecars;

pub use lines::MAX_LINE;

pub use crate::archive::{Ingested, Quarantined, SourceFile, SourceForm};
use crate::archive::{Origin, PieceSources};
use crate::error::{Error, Result};
use crate::id::Digest32;
use crate::wire::RolloutManifest;

/// Reads every capture below `sources`.
///
/// What comes out depends on the lines alone, not on their order or on how they are spread over
/// files; only origins and the list of sources tell those apart.
///
/// # Errors
///
/// A source that is not there or cannot be opened; [`crate::error::Kind::Nothing`] when there is
/// no capture at all. Broken lines and files are quarantined, not errors.
pub fn read(sources: &[PathBuf]) -> Result<Ingested> {
    let found = detect::find(sources)?;
    let mut quarantine = Quarantine::default();
    let mut findings = Vec::new();
    let mut records: Vec<Record> = Vec::new();
    let mut receipts: Vec<ReceiptLine> = Vec::new();
    let mut ledgers: Vec<RolloutManifest> = Vec::new();
    let mut rollouts: Vec<RolloutLine> = Vec::new();
    let mut media: Vec<FlagsLine> = Vec::new();
    for file in &found {
        match file.form {
            SourceForm::Staged => records.extend(quarantine.parse(file, Record::parse)?),
            SourceForm::Receipts => receipts.extend(quarantine.parse(file, ReceiptLine::parse)?),
            SourceForm::Rollouts => rollouts.extend(quarantine.parse(file, RolloutLine::parse)?),
            SourceForm::Trace => rollouts.extend(read_trace(file, &mut quarantine)?),
            SourceForm::Media => media.extend(quarantine.parse(file, FlagsLine::parse)?),
            SourceForm::Lineage => ledgers.extend(lineage::read(file, &mut quarantine)?),
            // A store is read with its siblings, sidecars when their calls are known.
            SourceForm::Store
            | SourceForm::StoreSibling
            | SourceForm::MediaTensors
            | SourceForm::Ignored => {}
        }
    }
    let mut scopes = staged::scopes(records, receipts, ledgers, &mut quarantine);
    gym_store::scopes(&found, &mut scopes, &mut quarantine)?;
    let (mut groups, more) = join::groups(rollouts, scopes, &mut quarantine);
    findings.extend(more);
    media::attach(media, &mut groups, &mut quarantine);
    let sidecars = found.iter().filter(|file| file.form == SourceForm::MediaTensors);
    let sidecars = Sidecars::read(sidecars, &mut quarantine)?;
    let mut pieces = PieceSources::default();
    for group in &mut groups {
        pieces.extend(sidecars.attach(group)?);
    }
    sidecars.orphans(&mut quarantine);
    let quarantine = quarantine.into_sorted();
    let captured = groups.iter().flat_map(|group| &group.rollouts).any(|rollout| {
        !rollout.calls.is_empty()
            || !rollout.ledger.attempted.is_empty()
            || rollout.ledger.receipt.is_some()
    });
    if !captured && quarantine.is_empty() {
        return Err(nothing(&found));
    }
    let sources = found.into_iter().map(source).collect::<Result<_>>()?;
    Ok(Ingested { groups, findings, quarantine, sources, pieces })
}

fn read_trace(file: &Found, quarantine: &mut Quarantine) -> Result<Option<RolloutLine>> {
    let origin = Origin { file: file.name.clone(), line: 1 };
    let read = lines::document(&file.path)?;
    Ok(match read.map_err(Into::into).and_then(|text| trace::line(&text, origin)) {
        Ok(line) => Some(line),
        Err(why) => {
            quarantine.file(&file.name, why);
            None
        }
    })
}

fn nothing(found: &[Found]) -> Error {
    let message = match found {
        [] => "the sources hold no file".to_owned(),
        [only] => format!("{} is not a capture", only.name),
        more => format!("none of the {} files among the sources is a capture", more.len()),
    };
    Error::nothing(message).help(
        "Give a folder with staged*.jsonl, receipts*.jsonl and rollouts*.jsonl, a Gym store \
         (*.tokens.jsonl), or rollouts whose output items carry token arrays",
    )
}

fn source(found: Found) -> Result<SourceFile> {
    let read = found.form != SourceForm::Ignored;
    let blake3 = read.then(|| hash(&found)).transpose()?;
    Ok(SourceFile { path: found.name, form: found.form, bytes: found.bytes, blake3 })
}

fn hash(found: &Found) -> Result<Digest32> {
    let mut hasher = blake3::Hasher::new();
    File::open(&found.path)
        .and_then(|file| hasher.update_reader(file).map(|_| ()))
        .map_err(|e| Error::io("cannot read", &found.path, e))?;
    Ok(Digest32(*hasher.finalize().as_bytes()))
}
