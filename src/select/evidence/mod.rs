//! What the harness returned: its result object, read for evidence of accepted calls (rule 59).

mod history;
mod item;
pub mod reference;

pub use item::{HistoryItem, ItemKind};

use std::ops::Range;

use self::history::History;
use self::reference::Reference;
use super::Reason;
use crate::finding::Code;
use crate::wire::json::{Dialect, Json};

/// A result object as evidence.
#[derive(Debug, Default)]
pub struct Evidence {
    /// `terminal_response_id`: the scored response, as the harness declares it.
    pub terminal_response_id: Option<String>,
    /// Id of the returned response.
    pub response_id: Option<String>,
    /// Generated items of `responses` and of `response.output`, observations left out.
    pub items: Vec<HistoryItem>,
    /// Stretches of generated items without an observation between, as ranges of `items`.
    pub runs: Vec<Range<usize>>,
    /// Items of the last stretch of the returned response: its answer.
    pub answer: Vec<usize>,
    /// Runs that end a response of `responses`, with its id.
    pub envelopes: Vec<(usize, String)>,
    /// `ng_trajectory.turns[].model_calls[]` and `action_ids`, in order.
    pub references: Vec<Reference>,
    /// What cannot be read.
    pub problems: Vec<Reason>,
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
                evidence.problems.push(Reason::new(Code::MissingEvidence, Vec::new(), message));
                return evidence;
            }
        };
        evidence.terminal_response_id = identity(result.get("terminal_response_id"));
        let mut history = History::default();
        let responses = result.get("responses").and_then(Json::as_list).unwrap_or_default();
        for (i, response) in responses.iter().enumerate() {
            let runs = history.runs.len();
            let path = format!("responses[{i}].output");
            let answer = output(&mut history, response, &result, path);
            let ends = history.runs.last().map(|run| run.end);
            if let Some(id) = identity(response.get("id"))
                && history.runs.len() > runs
                && answer.last().map(|last| last + 1) == ends
            {
                evidence.envelopes.push((history.runs.len() - 1, id));
            }
            if let ([_], None) = (responses, result.get("response")) {
                evidence.response_id = identity(response.get("id"));
                evidence.answer = answer;
            }
        }
        if let Some(response) = result.get("response") {
            evidence.response_id = identity(response.get("id"));
            evidence.answer = output(&mut history, response, &result, "response.output".to_owned());
        }
        if let Some(trajectory) = result.get("ng_trajectory") {
            evidence.references = reference::read(trajectory, &mut evidence.problems);
        }
        if let Some(ids) = result.get("action_ids") {
            evidence.references.extend(reference::actions(ids));
        }
        evidence.problems.append(&mut history.problems);
        (evidence.items, evidence.runs) = (history.items, history.runs);
        evidence
    }
}

/// Reads a response's output, a list of items or of snapshots, and returns its last stretch.
fn output(history: &mut History, response: &Json, result: &Json, path: String) -> Vec<usize> {
    let output = response.get("output").and_then(Json::as_list).unwrap_or_default();
    match output.first().and_then(Json::as_list) {
        Some(_) => {
            let prompt = result.get("responses_create_params").and_then(|p| p.get("input"));
            let prompt = prompt.and_then(Json::as_list).unwrap_or_default();
            history.snapshots(output, prompt, &path)
        }
        None => history.list(output, path),
    }
}

fn identity(value: Option<&Json>) -> Option<String> {
    value.and_then(Json::as_str).filter(|id| !id.is_empty()).map(str::to_owned)
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
            Evidence::read(Some(text)).problems.iter().map(|p| p.code).collect()
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
