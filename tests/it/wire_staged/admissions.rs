//! `models/models.json`, the messages between gate, worker and sink.

use forestctl::wire::RecordError;
use forestctl::wire::admission::{
    CaptureAdmission, CaptureLedgerCommit, CommitCoords, StageResult,
};

use super::models::{agree, cases};

pub const COVERED: [&str; 4] =
    ["CaptureAdmission", "StageResult", "CommitCoords", "CaptureLedgerCommit"];

/// Messages are read in one go; what names no field is a rule.
fn split<T>(found: Result<T, RecordError>) -> (Result<(), RecordError>, Result<(), RecordError>) {
    match found {
        Ok(_) => (Ok(()), Ok(())),
        Err(e) if e.field.is_none() => (Ok(()), Err(e)),
        Err(e) => (Err(e), Ok(())),
    }
}

#[test]
fn admissions() {
    agree("CaptureAdmission", 25, |text| match CaptureAdmission::parse(text) {
        // Schema 3 is read here, under its own name for the scope.
        Ok(admission) if admission.schema_version == 3 => {
            let schema_2 = text.replace("capture_key", "rollout_id");
            split(CaptureAdmission::parse(&schema_2))
        }
        // A rule of the whole message in the package, found at its item.
        Err(mut e) if e.message.ends_with("must be non-negative") => {
            e.field = None;
            (Ok(()), Err(e))
        }
        found => split(found),
    });
}

#[test]
fn stage_results() {
    agree("StageResult", 8, |text| split(StageResult::parse(text)));
    for case in cases("StageResult", 8).iter().filter(|case| case.name.starts_with("ok_lax")) {
        assert!(StageResult::parse(case.input.get()).unwrap().ok, "{}", case.name);
    }
}

#[test]
fn commit_coordinates() {
    agree("CommitCoords", 12, |text| split(CommitCoords::parse(text)));
    for case in cases("CommitCoords", 12).iter().filter(|case| case.valid) {
        let coords = CommitCoords::parse(case.input.get()).unwrap();
        assert_eq!(coords.staged.is_some(), case.name == "staged", "{}", case.name);
    }
}

#[test]
fn ledger_commits() {
    agree("CaptureLedgerCommit", 4, |text| split(CaptureLedgerCommit::parse(text)));
}
