//! Which rule of `docs/rules.md` makes a code mask.

use super::{Code, Family};

impl Code {
    /// Number of the rule that masks a rollout, or drops a group, with this code; `None` where no
    /// numbered rule asks for it.
    pub fn rule(self) -> Option<u16> {
        use Code::*;
        Some(match self {
            PartialGeneration => 60,
            UnsupportedItem => 61,
            MissingEvidence
            | AmbiguousEvidence
            | ContradictoryEvidence
            | DuplicatedEvidence
            | UnmatchedEvidence => 63,
            TerminalNotSelected => 67,
            SeveralSessions => 68,
            SelectionNotClosed => 71,
            MissingCompletion => 77,
            TerminalMismatch | UnattributedTerminal => 79,
            SelectorFailed | SelectorTimeout => 81,
            InvalidSelection => 82,
            FailedSelectedCall => 85,
            RolloutFailed | CapturePoisoned | CapturePending | CaptureIncomplete
            | CompletenessUnknown | UnaccountedCall | RowCountMismatch => 86,
            CaptureFailed | CaptureCancelled => 87,
            NoVerifiedLayout => 106,
            Overlong => 109,
            InconsistentGroup => 111,
            SeqLogprobError => 115,
            TooFewValidRollouts => 118,
            EnvironmentMasked => 119,
            IncompleteGroup => 125,
            MissingReward | MissingLogprob | RouteShapeMismatch | InvalidRoute => return None,
            _ => match self.family() {
                Family::Validate => 89,
                Family::Media => 91,
                Family::Ingest | Family::Select | Family::Files | Family::Audit => return None,
            },
        })
    }
}
