//! Findings for reading: each with its place, and the help of each code once.

use std::collections::BTreeMap;

use super::visible;
use crate::finding::{Finding, Severity};

/// Renders findings; `tone` paints a severity's label.
///
/// The help of a code is printed after its last finding only, so that a hundred findings of one
/// kind do not repeat it a hundred times.
pub fn human(findings: &[Finding], tone: impl Fn(Severity, &str) -> String) -> String {
    let mut last: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (i, finding) in findings.iter().enumerate() {
        last.insert((finding.code.as_str(), finding.help.as_str()), i);
    }
    let mut text = String::new();
    for (i, finding) in findings.iter().enumerate() {
        let label = format!("{}[{}]", finding.severity, finding.code);
        text.push_str(&format!(
            "{} {}\n",
            tone(finding.severity, &label),
            visible(&finding.message)
        ));
        let mut place = Vec::new();
        if let Some(id) = &finding.rollout_id {
            place.push(format!("rollout {id}"));
        }
        if let Some(id) = &finding.call_id {
            place.push(format!("call {id}"));
        }
        let location = finding.location.to_string();
        if !location.is_empty() {
            place.push(location);
        }
        if !place.is_empty() {
            text.push_str(&format!("  at {}\n", visible(&place.join(", "))));
        }
        if last[&(finding.code.as_str(), finding.help.as_str())] == i {
            text.push_str(&format!("  help: {}\n", finding.help));
        }
    }
    text
}
