//! `terminal/terminal.json`, the half about shape alone.

use forestctl::wire::terminal::{TerminalCandidate, select_terminal_call};
use serde_json::json;

use super::{fixture, list, text};

pub fn case_names() -> Vec<String> {
    let cases = fixture("terminal/terminal.json");
    list(&cases, "select").iter().map(|case| text(case, "name").to_owned()).collect()
}

#[test]
fn select_terminal_call_agrees() {
    let cases = fixture("terminal/terminal.json");
    for case in list(&cases, "select") {
        let rows: Vec<_> = list(case, "records")
            .iter()
            .map(|row| TerminalCandidate {
                model_call_id: text(row, "model_call_id"),
                parent_call_id: row["parent_call_id"].as_str(),
                admitted_at: row["admitted_at"].as_f64(),
            })
            .collect();
        let found = match select_terminal_call(&rows) {
            Ok(call) => json!({"terminal_model_call_id": call, "reason": "selected"}),
            Err(why) => json!({"terminal_model_call_id": null, "reason": why.as_str()}),
        };
        assert_eq!(found, case["result"], "{}", text(case, "name"));
    }
}

#[test]
fn a_long_chain_is_walked_in_one_pass() {
    let ids: Vec<_> = (0..200_000).map(|i| i.to_string()).collect();
    let rows: Vec<_> = (0..ids.len())
        .rev()
        .map(|i| TerminalCandidate {
            model_call_id: &ids[i],
            parent_call_id: i.checked_sub(1).map(|p| ids[p].as_str()),
            admitted_at: None,
        })
        .collect();
    assert_eq!(select_terminal_call(&rows), Ok("199999"));
}
