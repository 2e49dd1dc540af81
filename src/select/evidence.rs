//! What the harness returned: its result object, read for evidence of accepted calls.

use std::ops::Range;

use super::Problem;
use crate::finding::Code;
use crate::id::Digest32;
use crate::wire::assistant_fingerprint;
use crate::wire::json::{Dialect, Json};
use crate::wire::replay::item_digest;

/// A result object as evidence.
#[derive(Debug, Default)]
pub struct Evidence {
    /// `terminal_response_id`: the scored response, as the harness declares it.
    pub terminal_response_id: Option<String>,
    /// Id of the returned response.
    pub response_id: Option<String>,
    /// Generated items of `response.output`, observations left out.
    pub items: Vec<HistoryItem>,
    /// Stretches of generated items without an observation between, as ranges of `items`.
    pub runs: Vec<Range<usize>>,
    /// Items that cannot be read.
    pub problems: Vec<Problem>,
}

/// What kind of generated item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// Assistant message.
    Message,
    /// Reasoning.
    Reasoning,
    /// Function call.
    FunctionCall,
}

impl ItemKind {
    /// The wire's word.
    pub fn as_str(self) -> &'static str {
        match self {
            ItemKind::Message => "message",
            ItemKind::Reasoning => "reasoning",
            ItemKind::FunctionCall => "function_call",
        }
    }
}

/// One generated item of the returned history.
#[derive(Debug)]
pub struct HistoryItem {
    /// Its id, native or synthetic.
    pub id: Option<String>,
    /// Its kind.
    pub kind: ItemKind,
    /// Digest that a captured item of the same content carries; `None` where it has none.
    pub fingerprint: Option<Digest32>,
    /// The item itself.
    pub json: Json,
}

impl Evidence {
    /// Reads a result object. What is not there is left empty; what cannot be read is a problem.
    pub fn read(result: Option<&str>) -> Self {
        let mut evidence = Self::default();
        let Some(text) = result else { return evidence };
        let result = match Json::parse(text, Dialect::Python) {
            Ok(result) => result,
            Err(error) => {
                let message = format!("the result object is not JSON: {error}");
                evidence.problems.push(Problem::new(Code::MissingEvidence, Vec::new(), message));
                return evidence;
            }
        };
        evidence.terminal_response_id = identity(result.get("terminal_response_id"));
        let response = result.get("response");
        evidence.response_id = identity(response.and_then(|r| r.get("id")));
        let output = response.and_then(|r| r.get("output")).and_then(Json::as_list);
        // Observations separate the runs.
        let mut start = 0;
        for (place, item) in output.unwrap_or_default().iter().enumerate() {
            match generated(item) {
                Ok(Some(item)) => evidence.items.push(item),
                Ok(None) => start = evidence.close(start),
                Err(what) => {
                    let message = format!("item {place} of response.output is {what}");
                    let problem = Problem::new(Code::UnsupportedItem, Vec::new(), message);
                    evidence.problems.push(problem);
                    start = evidence.close(start);
                }
            }
        }
        evidence.close(start);
        evidence
    }

    fn close(&mut self, start: usize) -> usize {
        if start < self.items.len() {
            self.runs.push(start..self.items.len());
        }
        self.items.len()
    }
}

fn identity(value: Option<&Json>) -> Option<String> {
    value.and_then(Json::as_str).filter(|id| !id.is_empty()).map(str::to_owned)
}

/// A generated item, `None` for an observation, or what is wrong with it.
fn generated(item: &Json) -> Result<Option<HistoryItem>, String> {
    if item.as_dict().is_none() {
        return Err("no object".to_owned());
    }
    let role = item.get("role").and_then(Json::as_str);
    let kind = match (item.get("type").and_then(Json::as_str), role) {
        (Some("message") | None, Some("assistant")) => ItemKind::Message,
        (Some("message") | None, Some("system" | "developer" | "user" | "tool")) => {
            return Ok(None);
        }
        (Some("reasoning"), _) => ItemKind::Reasoning,
        (Some("function_call"), _) => ItemKind::FunctionCall,
        (Some(kind), _) if kind.ends_with("_output") => return Ok(None),
        (kind, role) => {
            return Err(format!(
                "of type {} and role {}; generated items are assistant messages, reasoning and \
                 function calls",
                kind.unwrap_or("none"),
                role.unwrap_or("none")
            ));
        }
    };
    let fingerprint = match kind {
        ItemKind::Reasoning => Some(item_digest(item).map_err(|e| e.to_string())?.digest),
        _ => assistant_fingerprint(std::slice::from_ref(item)).map_err(|e| e.to_string())?,
    };
    let id = identity(item.get("id"));
    Ok(Some(HistoryItem { id, kind, fingerprint, json: item.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_separate_runs_of_generated_items() {
        let evidence = Evidence::read(Some(
            r#"{"terminal_response_id":"r2","response":{"id":"","output":[
                {"type":"reasoning","id":"rs"},
                {"type":"message","role":"assistant","content":"a"},
                {"type":"function_call_output","call_id":"c","output":"o"},
                {"role":"user","content":"u"},
                {"role":"assistant","content":"b"},
                {"type":"function_call","name":"f","arguments":"{}"}]}}"#,
        ));
        assert_eq!(evidence.runs, [0..2, 2..4]);
        assert_eq!(evidence.terminal_response_id.as_deref(), Some("r2"));
        assert_eq!(evidence.response_id, None);
        let kinds: Vec<_> = evidence.items.iter().map(|i| i.kind.as_str()).collect();
        assert_eq!(kinds, ["reasoning", "message", "message", "function_call"]);
        assert!(evidence.problems.is_empty());
    }

    #[test]
    fn what_is_not_understood_is_a_problem_and_no_error() {
        let codes = |text: &str| -> Vec<Code> {
            Evidence::read(Some(text)).problems.iter().map(|p| p.reason.code).collect()
        };
        let item = |item: &str| codes(&format!(r#"{{"response":{{"output":[{item}]}}}}"#));
        assert_eq!(item(r#"{"type":"computer_call"}"#), [Code::UnsupportedItem]);
        assert_eq!(item("7"), [Code::UnsupportedItem]);
        assert_eq!(item(r#"{"role":"assistant","content":7}"#), [Code::UnsupportedItem]);
        assert_eq!(item(r#"{"type":"web_search_call_output"}"#), []);
        assert_eq!(codes("{"), [Code::MissingEvidence]);
        assert_eq!(codes("[]"), []);
    }
}
