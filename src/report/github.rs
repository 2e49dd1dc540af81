//! GitHub Actions workflow commands: one annotation per finding.

use std::fmt::Write;

use super::outcome::{Outcome, line};
use super::visible;
use crate::finding::{Finding, Severity};

/// Renders `::error file=..,line=..,title=..::message` and `::warning ..` lines.
///
/// The runner reads them from the log of a step; see "Workflow commands for GitHub Actions".
pub fn github(outcome: &Outcome) -> String {
    let mut text = String::new();
    for finding in outcome.findings {
        let command = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let mut properties = Vec::new();
        if let Some(file) = outcome.file(finding) {
            properties.push(format!("file={}", property(&visible(&file))));
            properties.extend(line(finding).map(|line| format!("line={line}")));
        }
        properties.push(format!("title={}", property(finding.code.as_str())));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "::{command} {}::{}", properties.join(","), data(&message(finding)));
    }
    text
}

fn message(finding: &Finding) -> String {
    let mut lines = vec![visible(&finding.message).into_owned()];
    let place = finding.place();
    if !place.is_empty() {
        lines.push(format!("at {}", visible(&place)));
    }
    lines.push(format!("help: {}", visible(&finding.help)));
    lines.join("\n")
}

/// Escapes the part after the last `::`.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes the value of a property, where `:` and `,` have a meaning too.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{hostile, outcome};
    use super::*;

    /// The documented grammar, read the way the runner reads it: command and properties end at the
    /// next `::`, properties are cut at `,` and `=`, and escapes are undone with `%25` last.
    fn parse(line: &str) -> (String, Vec<(String, String)>, String) {
        let (head, message) = line.strip_prefix("::").unwrap().split_once("::").unwrap();
        let (command, properties) = head.split_once(' ').unwrap();
        let properties = properties.split(',').map(|pair| {
            let (key, value) = pair.split_once('=').unwrap();
            let value = value.replace("%0D", "\r").replace("%0A", "\n");
            let value = value.replace("%3A", ":").replace("%2C", ",").replace("%25", "%");
            (key.to_owned(), value)
        });
        let message = message.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%");
        (command.to_owned(), properties.collect(), message)
    }

    #[test]
    fn commands_read_back_as_the_findings_they_came_from() {
        let findings = hostile();
        let text = github(&outcome(&findings));
        let lines: Vec<_> = text.split_terminator('\n').map(parse).collect();
        assert_eq!(lines.len(), findings.len());
        for ((command, properties, message), finding) in lines.iter().zip(&findings) {
            assert_eq!(*command, finding.severity.to_string());
            let of = |key: &str| {
                properties.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
            };
            assert_eq!(of("title"), Some(finding.code.as_str()));
            let file = finding.location.file.as_deref().map(|file| visible(file).into_owned());
            match finding.code.family() {
                crate::finding::Family::Files => {
                    assert_eq!(of("file"), Some(format!("run.forest/{}", file.unwrap()).as_str()));
                }
                _ => assert_eq!(of("file"), file.as_deref()),
            }
            let line = finding.location.line.filter(|&line| line == 18);
            assert_eq!(of("line"), line.map(|line| line.to_string()).as_deref());
            let mut told = message.split('\n');
            assert_eq!(told.next().unwrap(), visible(&finding.message));
            assert_eq!(told.next_back().unwrap(), format!("help: {}", visible(&finding.help)));
        }
    }

    #[test]
    fn nothing_of_an_input_starts_a_command_of_its_own() {
        let findings = hostile();
        let text = github(&outcome(&findings));
        assert!(text.lines().all(|l| l.starts_with("::error ") || l.starts_with("::warning ")));
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
    }
}
