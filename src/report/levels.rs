//! What the user makes of findings: `--deny`, `--warn` and `--allow`, and what they come to.

use std::collections::BTreeMap;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;

use crate::finding::{Code, Finding, Severity};

/// What a flag makes of the findings that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Errors.
    Deny,
    /// Warnings.
    Warn,
    /// Nothing: they are counted, and left out of every output.
    Allow,
}

/// Which findings a flag names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Those of one code.
    Code(Code),
    /// All that are warnings when the flag's turn comes.
    Warnings,
}

impl Subject {
    /// The word for [`Subject::Warnings`].
    pub const WARNINGS: &'static str = "warnings";
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        if word == Self::WARNINGS {
            return Ok(Subject::Warnings);
        }
        if let Some(code) = Code::parse(word) {
            return Ok(Subject::Code(code));
        }
        let words = Code::ALL.iter().map(|code| code.as_str()).chain([Self::WARNINGS]);
        let nearest = words
            .map(|known| (strsim::jaro_winkler(word, known), known))
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
            .filter(|(likeness, _)| *likeness > 0.8);
        Err(match nearest {
            Some((_, known)) => format!("no such code; did you mean {known}?"),
            None => "no such code; docs/codes.md lists them".to_owned(),
        })
    }
}

/// Flags in the order in which they were given. Each has its turn on every finding, so the last
/// that concerns a finding decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels(pub Vec<(Level, Subject)>);

/// How much was found, after the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tally {
    /// Errors that are reported.
    pub errors: u64,
    /// Warnings that are reported.
    pub warnings: u64,
    /// Findings that `--allow` left out, by code.
    pub allowed: BTreeMap<Code, u64>,
    /// Findings left out that are errors by themselves: evidence that is wrong all the same.
    pub allowed_errors: u64,
    /// Warnings reported that are errors by themselves.
    pub lowered_errors: u64,
}

impl Tally {
    /// Whether a finding of this severity or above is reported.
    pub fn reaches(&self, threshold: Severity) -> bool {
        self.errors > 0 || (threshold == Severity::Warning && self.warnings > 0)
    }

    /// Whether flags hide that the evidence is wrong.
    pub fn waives_errors(&self) -> bool {
        self.allowed_errors > 0 || self.lowered_errors > 0
    }
}

impl Levels {
    /// A finding as it is to be reported, or `None` when it is allowed; counted in `tally` either
    /// way.
    pub fn apply(&self, mut finding: Finding, tally: &mut Tally) -> Option<Finding> {
        let own = finding.severity;
        let mut severity = Some(own);
        for (level, subject) in &self.0 {
            let concerned = match subject {
                Subject::Code(code) => *code == finding.code,
                Subject::Warnings => severity == Some(Severity::Warning),
            };
            if concerned {
                severity = match level {
                    Level::Deny => Some(Severity::Error),
                    Level::Warn => Some(Severity::Warning),
                    Level::Allow => None,
                };
            }
        }
        match severity {
            None => {
                *tally.allowed.entry(finding.code).or_default() += 1;
                tally.allowed_errors += u64::from(own == Severity::Error);
                return None;
            }
            Some(Severity::Error) => tally.errors += 1,
            Some(Severity::Warning) => {
                tally.warnings += 1;
                tally.lowered_errors += u64::from(own == Severity::Error);
            }
        }
        finding.severity = severity?;
        Some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(flags: &[(Level, &str)]) -> Levels {
        Levels(flags.iter().map(|(level, word)| (*level, word.parse().unwrap())).collect())
    }

    fn severity(flags: &[(Level, &str)], code: Code) -> Option<Severity> {
        let applied = levels(flags).apply(Finding::new(code, "x"), &mut Tally::default());
        applied.map(|finding| finding.severity)
    }

    #[test]
    fn the_last_flag_that_concerns_a_finding_decides() {
        use Level::*;
        use Severity::{Error, Warning};
        let (pending, digest) = (Code::CapturePending, Code::CorruptDigest);
        assert_eq!(severity(&[], pending), Some(Warning));
        assert_eq!(severity(&[(Deny, "capture_pending")], pending), Some(Error));
        assert_eq!(severity(&[(Deny, "capture_pending")], digest), Some(Error));
        let (deny, allow) = ((Deny, "capture_pending"), (Allow, "capture_pending"));
        assert_eq!(severity(&[deny, allow], pending), None);
        assert_eq!(severity(&[allow, deny], pending), Some(Error));
        let all = (Deny, "warnings");
        assert_eq!(severity(&[all], pending), Some(Error));
        assert_eq!(severity(&[all, (Warn, "capture_pending")], pending), Some(Warning));
        assert_eq!(severity(&[(Warn, "capture_pending"), all], pending), Some(Error));
        assert_eq!(severity(&[(Warn, "corrupt_digest"), all], digest), Some(Error));
        assert_eq!(severity(&[(Allow, "corrupt_digest"), all], digest), None);
        assert_eq!(severity(&[(Allow, "warnings")], pending), None);
        assert_eq!(severity(&[(Allow, "warnings")], digest), Some(Error));
    }

    #[test]
    fn what_flags_hide_is_counted() {
        use Level::*;
        let flags = levels(&[(Allow, "corrupt_digest"), (Warn, "missing_parent")]);
        let mut tally = Tally::default();
        for code in [
            Code::CorruptDigest,
            Code::CorruptDigest,
            Code::MissingParent,
            Code::CapturePending,
            Code::WrongMode,
        ] {
            flags.apply(Finding::new(code, "x"), &mut tally);
        }
        let expected = Tally {
            errors: 1,
            warnings: 2,
            allowed: BTreeMap::from([(Code::CorruptDigest, 2)]),
            allowed_errors: 2,
            lowered_errors: 1,
        };
        assert_eq!(tally, expected);
        assert!(tally.waives_errors() && tally.reaches(Severity::Error));
    }

    #[test]
    fn an_unknown_code_names_the_nearest() {
        let wrong = "corupt_digest".parse::<Subject>().unwrap_err();
        assert!(wrong.ends_with("did you mean corrupt_digest?"), "{wrong}");
        let wrong = "warning".parse::<Subject>().unwrap_err();
        assert!(wrong.ends_with("did you mean warnings?"), "{wrong}");
        assert!("zzz".parse::<Subject>().unwrap_err().contains("docs/codes.md"));
    }
}
