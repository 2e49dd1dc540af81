//! Messages between gate, worker and sink. They are in no file that forestctl reads, so it has
//! no types for them; the models that carry the same facts in files are tested beside this.

pub const COVERED: [&str; 4] =
    ["CaptureAdmission", "StageResult", "CommitCoords", "CaptureLedgerCommit"];
