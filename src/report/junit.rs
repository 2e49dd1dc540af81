//! JUnit XML: a suite per prompt group, a case per rollout.
//!
//! A rollout with errors is a failed case, one with warnings alone a skipped one: viewers show
//! both with their text, and hide the output of cases that pass. They show one failure of a case,
//! so all errors of a rollout are told in one.

use std::collections::{BTreeMap, BTreeSet};

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::outcome::Outcome;
use super::{human, visible};
use crate::error::{Error, Result};
use crate::finding::{Finding, Severity};

/// Renders a JUnit document. Findings that belong to no rollout of the archive are cases of a
/// last suite named `archive`, by rollout or file.
///
/// # Errors
///
/// None is known; the serializer can fail by its type.
pub fn junit(outcome: &Outcome) -> Result<String> {
    let known: BTreeSet<&str> = outcome.rollouts.iter().map(|(_, id)| id.as_str()).collect();
    let mut of_rollouts: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    let mut others: Vec<(String, Vec<&Finding>)> = Vec::new();
    for finding in outcome.findings {
        let rollout = finding.rollout_id.as_ref().map(|id| id.as_str());
        if let Some(id) = rollout.filter(|id| known.contains(id)) {
            of_rollouts.entry(id).or_default().push(finding);
            continue;
        }
        let name = rollout.map(|id| format!("rollout {id}")).or_else(|| outcome.file(finding));
        let name = name.unwrap_or_else(|| outcome.archive.to_owned());
        match others.iter_mut().find(|(known, _)| *known == name) {
            Some((_, findings)) => findings.push(finding),
            None => others.push((name, vec![finding])),
        }
    }
    let mut report = Report::new(format!("forestctl validate {}", visible(outcome.archive)));
    for group in outcome.rollouts.chunk_by(|(a, _), (b, _)| a == b) {
        let cases = group.iter().map(|(_, id)| {
            let findings = of_rollouts.get(id.as_str());
            (id.as_str(), findings.map_or(&[][..], |findings| findings))
        });
        let name = group.first().map_or("", |(name, _)| name.as_str());
        report.add_test_suite(suite(name, cases));
    }
    if !others.is_empty() {
        let cases = others.iter().map(|(name, findings)| (name.as_str(), &findings[..]));
        report.add_test_suite(suite("archive", cases));
    }
    report.to_string().map_err(|e| Error::format("cannot write JUnit XML").because(e))
}

fn suite<'a>(name: &str, cases: impl Iterator<Item = (&'a str, &'a [&'a Finding])>) -> TestSuite {
    let name = visible(name);
    let mut suite = TestSuite::new(name.as_ref());
    for (case, findings) in cases {
        suite.add_test_case(self::case(&name, case, findings));
    }
    suite
}

fn case(suite: &str, name: &str, findings: &[&Finding]) -> TestCase {
    let (errors, warnings): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|finding| finding.severity == Severity::Error);
    let mut status = match (&errors[..], &warnings[..]) {
        ([], []) => TestCaseStatus::success(),
        ([], _) => TestCaseStatus::skipped(),
        _ => TestCaseStatus::non_success(NonSuccessKind::Failure),
    };
    let told = if errors.is_empty() { &warnings } else { &errors };
    if let [first, rest @ ..] = &told[..] {
        let message = visible(&first.message);
        status.set_message(match rest.len() {
            0 => message.into_owned(),
            more => format!("{message} (and {more} more)"),
        });
        status.set_type(first.code.as_str());
        status.set_description(text(told));
    }
    let mut case = TestCase::new(visible(name).as_ref(), status);
    case.set_classname(suite);
    if !errors.is_empty() && !warnings.is_empty() {
        case.set_system_out(text(&warnings));
    }
    case
}

fn text(findings: &[&Finding]) -> String {
    human(findings.iter().copied(), |_, label| label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{hostile, outcome};
    use super::*;

    fn document(findings: &[Finding]) -> String {
        junit(&outcome(findings)).unwrap()
    }

    #[test]
    fn a_junit_reader_finds_every_rollout_and_every_finding() {
        let findings = hostile();
        let text = document(&findings);
        let read = junit_parser::from_reader(text.as_bytes()).unwrap();
        let names: Vec<_> = read.suites.iter().map(|s| (s.name.as_str(), s.cases.len())).collect();
        // Of eight findings four name rollouts of the archive; two of the others share a place.
        assert_eq!(names, [("p00", 2), ("p01", 1), ("archive", 3)]);
        assert_eq!((read.tests, read.failures, read.skipped, read.errors), (6, 4, 1, 0));
        let case = |suite: usize, at: usize| &read.suites[suite].cases[at];
        let skipped = case(0, 0).status.skipped_as_ref();
        assert_eq!(
            (case(0, 0).original_name.as_str(), skipped.skipped_type.as_str()),
            ("p00_g0", "capture_pending")
        );
        assert_eq!(skipped.message, "plain");
        let failure = case(0, 1).status.failure_as_ref();
        assert_eq!(
            (case(0, 1).original_name.as_str(), failure.failure_type.as_str()),
            ("p00_g1", "corrupt_digest")
        );
        assert_eq!(failure.message, "once more (and 1 more)");
        assert!(failure.text.contains("once more") && failure.text.contains("and more"));
        assert!(case(0, 1).system_out.as_ref().unwrap().contains("positive_logprob"));
        assert!(case(1, 0).status.is_success());
        assert_eq!(case(2, 1).original_name, "run.forest/calls/part-00000.parquet");
        assert_eq!(case(2, 2).status.failure_as_ref().message.matches("(and 1 more)").count(), 1);
        let nasty = visible(&findings[0].message).into_owned();
        assert_eq!(case(2, 0).status.failure_as_ref().message, nasty);
        assert_eq!(case(2, 0).original_name, format!("rollout {nasty}"));
    }

    #[test]
    fn hostile_text_is_well_formed_xml() {
        let text = document(&hostile());
        // A parser that refuses characters that XML cannot hold, as CI servers do.
        let document = roxmltree::Document::parse(&text).unwrap();
        let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
        assert_eq!(cases.count(), 6);
        assert!(roxmltree::Document::parse("<a>\u{1}</a>").is_err());
    }

    #[test]
    fn nothing_found_is_every_case_passed() {
        let text = document(&[]);
        let read = junit_parser::from_reader(text.as_bytes()).unwrap();
        assert_eq!((read.tests, read.failures, read.skipped), (3, 0, 0));
    }
}
