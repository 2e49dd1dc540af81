//! Findings for reading: each with its place, and the help of each code once.

use std::collections::BTreeMap;

use super::visible;
use crate::finding::{Finding, Severity};

/// Renders findings; `tone` paints a severity's label.
///
/// The help of a code is printed after its last finding only, so that a hundred findings of one
/// kind do not repeat it a hundred times.
pub fn human<'a>(
    findings: impl IntoIterator<Item = &'a Finding> + Clone,
    tone: impl Fn(Severity, &str) -> String,
) -> String {
    let mut last: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (i, finding) in findings.clone().into_iter().enumerate() {
        last.insert((finding.code.as_str(), finding.help.as_str()), i);
    }
    let mut text = String::new();
    for (i, finding) in findings.into_iter().enumerate() {
        let label = format!("{}[{}]", finding.severity, finding.code);
        text.push_str(&format!(
            "{} {}\n",
            tone(finding.severity, &label),
            visible(&finding.message)
        ));
        let place = finding.place();
        if !place.is_empty() {
            text.push_str(&format!("  at {}\n", visible(&place)));
        }
        if last[&(finding.code.as_str(), finding.help.as_str())] == i {
            text.push_str(&format!("  help: {}\n", visible(&finding.help)));
        }
    }
    text
}
