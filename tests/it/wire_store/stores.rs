//! Directories of `store/`, `server/` and the closed loop, read as they lie.

use std::path::Path;

use forestctl::archive::Completeness;
use forestctl::finding::Code;
use forestctl::wire::attribute::{Candidate, resolve_terminal};
use forestctl::wire::builder::{consume, resolve_parents};
use forestctl::wire::json::Json;
use forestctl::wire::ledger::read_ledger;
use forestctl::wire::store::{IndexedAs, StoreFault, is_store_id};
use forestctl::wire::{
    CallRecord, RolloutManifest, StoreFiles, StoreSnapshot, TokenEntry, assistant_fingerprint,
    conversation_digest, output_items, read_store,
};
use proptest::prelude::*;
use serde_json::Value;

use super::{cases, exact, gym, to_json, value};

/// Cases whose outcome is that of writing: forestctl only reads stores.
const WRITERS: [(&str, &str); 5] = [
    ("append_conflict", "append decides; the directory before it is a clean store"),
    ("drop", "drop of a frozen snapshot"),
    ("frozen", "appends to a frozen store"),
    ("retired_then_delete", "delete, then append"),
    ("unterminated_complete_line_then_append", "append onto a line without its newline"),
];

fn read(dir: &Path, scope: &str) -> StoreSnapshot {
    let file = |kind: &str| std::fs::read(dir.join(format!("{scope}.tokens.{kind}"))).ok();
    let (tokens, intents) = (file("jsonl"), file("intents"));
    let (marker, state) = (file("incomplete"), file("state.json"));
    let files = StoreFiles {
        tokens: tokens.as_deref(),
        intents: intents.as_deref(),
        marker: marker.as_deref(),
        state: state.as_deref(),
    };
    read_store(scope, files)
}

fn calls(snapshot: &StoreSnapshot) -> Vec<String> {
    snapshot.entries.iter().map(|line| line.entry.model_call_id.clone()).collect()
}

fn step<'a>(expected: &'a Value, name: &str) -> Option<&'a Value> {
    expected["steps"].as_array()?.iter().find(|step| step["step"] == name)
}

#[test]
fn reading_outcomes() {
    let cases = cases("store");
    assert_eq!(cases.len(), 30);
    let mut read_outcomes = 0;
    for name in &cases {
        let case = gym(&format!("store/{name}"));
        let expected = value(&case.join("expected.json"));
        let writer = WRITERS.iter().any(|(writer, _)| writer == name);
        if writer || name == "rollout_id_rules" {
            continue;
        }
        read_outcomes += 1;
        let scope = expected["rollout_id"].as_str().unwrap();
        let snapshot = read(&case.join("before"), scope);
        let broken = |fault: &StoreFault| {
            matches!(fault, StoreFault::Line { .. } | StoreFault::TornTail { .. })
        };
        if let Some(step) = step(&expected, "read_entries") {
            let readable = !snapshot.faults.iter().any(broken);
            assert_eq!(readable, step["ok"].as_bool().unwrap(), "{name}");
            if readable {
                assert_eq!(Value::from(calls(&snapshot)), step["value"], "{name}");
            }
        }
        if let Some(step) = step(&expected, "is_incomplete") {
            let flag = (!snapshot.faults.contains(&StoreFault::State))
                .then(|| snapshot.state.as_ref().is_some_and(|state| state.incomplete));
            assert_eq!(flag.is_some(), step["ok"].as_bool().unwrap(), "{name}");
            assert_eq!(flag, step["value"].as_bool(), "{name}");
        }
        let step = step(&expected, "freeze").unwrap_or_else(|| panic!("{name} never freezes"));
        let refusal = snapshot.refusal();
        assert_eq!(refusal.is_none(), step["ok"].as_bool().unwrap(), "{name}: {refusal:?}");
        if refusal.is_none() {
            assert_eq!(Value::from(calls(&snapshot)), step["value"]["entries"], "{name}");
            assert_eq!(snapshot.incomplete(), step["value"]["incomplete"], "{name}");
        }
        // The index that the package leaves behind is the one that the lines give.
        let index = expected["state_after"]["entry_digests"].as_object();
        for line in &snapshot.entries {
            let digest = index.and_then(|index| index.get(&line.entry.model_call_id));
            let agrees = digest.is_some_and(|d| d == &Value::from(line.line_digest.to_string()));
            let conflicting = snapshot.faults.iter().any(|f| f.line() == Some(line.line));
            if refusal.is_none() && name != "corrupt_indexed_line" {
                assert!(agrees || conflicting, "{name} line {}", line.line);
            }
        }
    }
    assert_eq!(read_outcomes, cases.len() - WRITERS.len() - 1);
    for (writer, _) in WRITERS {
        assert!(cases.iter().any(|name| name == writer), "{writer}");
    }
}

#[test]
fn what_a_writer_left_behind_is_read() {
    // Clean stores before the step, and what the step made of them.
    for (name, refused) in [("append_conflict", false), ("drop", false), ("frozen", false)] {
        let snapshot = read(&gym(&format!("store/{name}/before")), "r");
        assert_eq!(snapshot.refusal().is_some(), refused, "{name}");
        assert!(!snapshot.entries.is_empty(), "{name}");
    }
    let after = read(&gym("store/drop/after"), "r");
    assert_eq!(after.faults, [StoreFault::Retired]);
    let glued = read(&gym("store/unterminated_complete_line_then_append/after"), "r");
    assert!(
        matches!(glued.refusal(), Some(StoreFault::Line { line: 2, .. })),
        "{:?}",
        glued.faults
    );
    let reused = read(&gym("store/retired_then_delete/after"), "r");
    assert_eq!((reused.faults.len(), reused.entries.len()), (0, 1));
}

#[test]
fn one_directory_of_three_scopes() {
    let dir = gym("store/directory_three_rollouts/before");
    for scope in ["7-0", "7-1", "7-2"] {
        let snapshot = read(&dir, scope);
        assert_eq!(snapshot.faults, [], "{scope}");
        assert!(!snapshot.entries.is_empty(), "{scope}");
        assert!(snapshot.entries.iter().all(|line| line.index == IndexedAs::Same), "{scope}");
    }
}

#[test]
fn rollout_id_rules() {
    let expected = value(&gym("store/rollout_id_rules/expected.json"));
    let steps = expected["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 12);
    for step in steps {
        let name = step["step"].as_str().unwrap();
        let quoted = name.strip_prefix("path_for '").unwrap().strip_suffix('\'').unwrap();
        let id = quoted.replace("\\x00", "\0");
        assert_eq!(is_store_id(&id), step["ok"].as_bool().unwrap(), "{name}");
    }
}

#[test]
fn faults_by_case() {
    use StoreFault::{
        ConflictingLines, ForeignScope, IndexBeyondFile, Line, Retired, State, TornTail,
    };
    let faults = |name: &str| read(&gym(&format!("store/{name}/before")), "r").faults;
    assert!(matches!(faults("torn_final_line")[..], [TornTail { line: 3, bytes: 77 }]));
    assert!(matches!(
        faults("torn_final_line_with_newline")[..],
        [TornTail { line: 2, bytes: 80 }]
    ));
    assert!(matches!(faults("malformed_middle_line")[..], [Line { line: 2, .. }]));
    assert!(matches!(faults("corrupt_indexed_line")[..], [Line { line: 1, .. }]));
    assert!(matches!(
        faults("duplicate_conflicting_lines")[..],
        [ConflictingLines { line: 2, .. }]
    ));
    assert!(matches!(faults("file_shorter_than_index")[..], [IndexBeyondFile { .. }, Line { .. }]));
    assert!(matches!(faults("foreign_rollout_in_file")[..], [ForeignScope { line: 2, .. }]));
    assert!(matches!(faults("state_not_object")[..], [State]));
    assert!(matches!(faults("retired")[..], [Retired]));
    match &faults("valid_json_invalid_entry")[..] {
        [Line { line: 2, error }] => assert_eq!(error.code, Code::MalformedRecord),
        other => panic!("{other:?}"),
    }
    assert_eq!(faults("torn_final_line")[0].code(), Code::TornStoreTail);
    assert_eq!(faults("duplicate_conflicting_lines")[0].code(), Code::ConflictingStoreEntry);
    assert_eq!(faults("retired")[0].code(), Code::StoreUnreadable);
}

#[test]
fn completeness_needs_every_sibling() {
    let dir = gym("store/complete/before");
    let file = |kind: &str| std::fs::read(dir.join(format!("0-0.tokens.{kind}"))).unwrap();
    let (tokens, intents, state) = (file("jsonl"), file("intents"), file("state.json"));
    let full = StoreFiles {
        tokens: Some(&tokens),
        intents: Some(&intents),
        marker: None,
        state: Some(&state),
    };
    let of = |files| read_store("0-0", files).completeness();
    assert_eq!(of(full), Completeness::Complete);
    assert_eq!(of(StoreFiles { intents: None, ..full }), Completeness::Unknown);
    assert_eq!(of(StoreFiles { state: None, ..full }), Completeness::Unknown);
    let lost = StoreFiles { state: None, marker: Some(b"\n"), ..full };
    assert_eq!(of(lost), Completeness::Incomplete);
    assert_eq!(of(StoreFiles { marker: Some(b"\n"), ..full }), Completeness::Complete);
    let more = [intents.as_slice(), b"call-9"].concat();
    let dangling = read_store("0-0", StoreFiles { intents: Some(&more), ..full });
    assert_eq!(dangling.dangling_intents, ["call-9"]);
    assert_eq!(dangling.completeness(), Completeness::Incomplete);
}

#[test]
fn a_renamed_call_is_a_changed_line_and_a_lost_call() {
    let dir = gym("store/complete/before");
    let file = |kind: &str| std::fs::read(dir.join(format!("0-0.tokens.{kind}"))).unwrap();
    let tokens = String::from_utf8(file("jsonl")).unwrap();
    let (intents, state) = (file("intents"), file("state.json"));
    let renamed = tokens.replace("\"model_call_id\":\"call-3\"", "\"model_call_id\":\"call-9\"");
    assert_ne!(renamed, tokens);
    let files = StoreFiles {
        tokens: Some(renamed.as_bytes()),
        intents: Some(&intents),
        marker: None,
        state: Some(&state),
    };
    let snapshot = read_store("0-0", files);
    assert!(matches!(snapshot.faults[..], [StoreFault::ChangedLine { line: 3, .. }]));
    assert_eq!(snapshot.lost_calls, ["call-3"]);
    assert_eq!(snapshot.completeness(), Completeness::Incomplete);
}

#[test]
fn a_changed_indexed_line_is_named() {
    let dir = gym("store/complete/before");
    let tokens = std::fs::read_to_string(dir.join("0-0.tokens.jsonl")).unwrap();
    let state = std::fs::read(dir.join("0-0.tokens.state.json")).unwrap();
    let changed = tokens.replacen("\"model\":\"policy\"", "\"model\":\"poIicy\"", 1);
    assert_ne!(changed, tokens);
    let files =
        StoreFiles { tokens: Some(changed.as_bytes()), state: Some(&state), ..Default::default() };
    let snapshot = read_store("0-0", files);
    assert!(matches!(snapshot.faults[..], [StoreFault::ChangedLine { line: 1, .. }]));
    assert_eq!(snapshot.entries[0].index, IndexedAs::Different);
    assert_eq!(snapshot.entries[1].index, IndexedAs::Same);
}

/// What the package built from a frozen store, wherever a case records it.
#[test]
fn built_trajectories() {
    let mut built = 0;
    for name in cases("store") {
        let case = gym(&format!("store/{name}"));
        let expected = value(&case.join("expected.json"));
        let Some(step) = step(&expected, "trajectories_for_rollout") else { continue };
        let exact_file = exact(&case.join("expected.json"));
        let exact_step = super::list(&exact_file, "steps")
            .iter()
            .find(|step| {
                step.get("step").and_then(|s| s.as_str()) == Some("trajectories_for_rollout")
            })
            .unwrap();
        let scope = expected["rollout_id"].as_str().unwrap();
        let dir = if name == "freeze_nothing" { "after" } else { "before" };
        let snapshot = read(&case.join(dir), scope);
        if snapshot.refusal().is_some() {
            assert!(step["value"]["mask_sample"].as_bool().unwrap(), "{name}");
            continue;
        }
        let entries: Vec<TokenEntry> = snapshot.entries.iter().map(|l| l.entry.clone()).collect();
        let attribution = &step["value"]["metrics"]["terminal_attribution"];
        // The case asks with the response of the call that it names.
        let named = attribution["call_id"].as_str();
        let response = named.map(|call| {
            let entry = entries.iter().find(|entry| entry.model_call_id == call).unwrap();
            let id = Json::Str(entry.response_id.clone().unwrap());
            let output = Json::List(entry.output_items.clone());
            Json::Dict([("id".to_owned(), id), ("output".to_owned(), output)].into())
        });
        let consumed =
            consume(scope, &entries, snapshot.incomplete(), response.as_ref(), None, None);
        let rebuilt = exact_step.get("value").and_then(|v| v.get("rebuilt_response")).unwrap();
        let none = Json::Null;
        assert_eq!(consumed.rebuilt_response.as_ref().unwrap_or(&none), rebuilt, "{name}");
        assert_eq!(consumed.mask_sample, step["value"]["mask_sample"], "{name}");
        assert_eq!(consumed.error.as_deref(), step["value"]["error"].as_str(), "{name}");
        assert_eq!(to_json(&consumed.metrics), step["value"]["metrics"], "{name}");
        built += 1;
    }
    assert!(built >= 5, "{built}");
}

#[test]
fn server_directories() {
    let (mut local, mut external) = (0, 0);
    for name in cases("server") {
        let case = gym(&format!("server/{name}"));
        let expected = value(&case.join("expected.json"));
        let exact_file = exact(&case.join("expected.json"));
        let scope = expected["rollout_id"].as_str().unwrap();
        if expected.get("manifest_route").is_some() {
            external += 1;
            let ledger =
                std::fs::read(case.join(format!("after_run/{scope}.lineage.jsonl"))).unwrap();
            let found = read_ledger(scope, &ledger).unwrap();
            let routes = expected["manifest_route"].as_array().unwrap();
            let mut served = routes.iter().filter(|route| {
                route["status"] == 200 && route["url"].as_str().unwrap().contains(scope)
            });
            let body = &served.next().unwrap_or_else(|| panic!("{name}"))["body"];
            assert_eq!(found, RolloutManifest::parse(&body.to_string()).unwrap(), "{name}");
            assert!(served.all(|route| &route["body"] == body), "{name}");
            // The scored response is the last one that was served, as an output.
            let http = super::list(&exact_file, "http");
            let last = http.last().unwrap().get("response").unwrap();
            let output = Json::List(output_items(last));
            let id = last.get("id").cloned().unwrap_or(Json::Null);
            let response =
                Json::Dict([("id".to_owned(), id), ("output".to_owned(), output)].into());
            let rows: Vec<Candidate<'_>> = found.records.iter().map(Candidate::Row).collect();
            let found = resolve_terminal(&rows, Some(&response), None, None);
            let expected = &expected["resolve_terminal"];
            assert_eq!(
                found.model_call_id.as_deref(),
                expected["model_call_id"].as_str(),
                "{name}"
            );
            assert_eq!(found.method, expected["method"], "{name}");
            assert_eq!(found.reason, expected["reason"], "{name}");
        } else {
            local += 1;
            let run = read(&case.join("after_run"), scope);
            assert_eq!(run.faults, [], "{name}");
            assert_eq!(run.completeness(), Completeness::Complete, "{name}");
            assert!(run.entries.iter().all(|line| line.index == IndexedAs::Same), "{name}");
            assert!(!run.state.as_ref().unwrap().frozen, "{name}");
            let entries: Vec<TokenEntry> = run.entries.iter().map(|l| l.entry.clone()).collect();
            for entry in &entries {
                let print = assistant_fingerprint(&entry.output_items).unwrap();
                if entry.parent_call_id.is_none() && entry.continuation_context_len == 1 {
                    let found = print.map(|p| p.to_string()).unwrap_or_default();
                    assert_eq!(found, entry.continuation_fingerprint, "{name}");
                }
            }
            for call in resolve_parents(&entries) {
                let recorded = entries[call.entry].parent_call_id.as_deref();
                let parent = call.parent.map(|at| entries[at].model_call_id.as_str());
                assert_eq!(parent, recorded, "{name}");
            }
            let built = &expected["built"];
            if built["rebuilt_response"].is_object() {
                // The response as it was scored is gone; its attribution is recorded.
                let result = &expected["result_after_finalize"];
                let attribution = &built["metrics"]["terminal_attribution"];
                let consumed = consume(
                    scope,
                    &entries,
                    run.incomplete(),
                    None,
                    attribution["call_id"].as_str(),
                    result["terminal_response_id"].as_str(),
                );
                assert_eq!(consumed.metrics.terminal_chain, attribution["chain"], "{name}");
                let rebuilt = exact_file.get("built").and_then(|b| b.get("rebuilt_response"));
                assert_eq!(consumed.rebuilt_response.as_ref(), rebuilt, "{name}");
                assert_eq!(consumed.mask_sample, built["mask_sample"], "{name}");
            }
        }
    }
    assert_eq!((local, external), (10, 9));
}

/// The closed loop's stores: clean, complete, every link and digest proved.
#[test]
fn closed_loop_stores() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/closed-loop/seed1/gym-store");
    let mut scopes: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .filter_map(|file| file.unwrap().file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".tokens.jsonl").map(str::to_owned))
        .collect();
    scopes.sort();
    assert_eq!(scopes, ["0-0", "0-1", "1-0", "1-3", "3-3", "5-2"]);
    let mut seen = 0;
    for scope in &scopes {
        let snapshot = read(&dir, scope);
        assert_eq!(snapshot.faults, [], "{scope}");
        assert_eq!(snapshot.completeness(), Completeness::Complete, "{scope}");
        assert!(snapshot.entries.iter().all(|line| line.index == IndexedAs::Same), "{scope}");
        let entries: Vec<TokenEntry> = snapshot.entries.iter().map(|l| l.entry.clone()).collect();
        for call in resolve_parents(&entries) {
            let entry = &entries[call.entry];
            let sequence = call.sequence.unwrap();
            let tokens = [&*sequence.prompt, sequence.generation].concat();
            let digest = forestctl::wire::digest::entry_digest(&tokens);
            assert_eq!(entry.stamped_digest(), Some(digest), "{scope}");
            assert_eq!(call.note, None, "{scope}");
            let parent = call.parent.map(|at| entries[at].model_call_id.as_str());
            assert_eq!(parent, entry.parent_call_id.as_deref(), "{scope}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

/// Manifest rows of real ledgers keep their exact form through the types.
#[test]
fn a_row_is_read_alike_from_ledger_and_manifest() {
    let ledger = std::fs::read(
        gym("lineage/ledger/chain_3/dir").join(
            value(&gym("lineage/ledger/chain_3/expected.json"))["rollout_id"]
                .as_str()
                .unwrap()
                .to_owned()
                + ".lineage.jsonl",
        ),
    )
    .unwrap();
    let expected = value(&gym("lineage/ledger/chain_3/expected.json"));
    let rows = read_ledger("x", &ledger).unwrap().records;
    let manifest = expected["manifest"]["value"]["records"].as_array().unwrap();
    let parsed: Vec<CallRecord> =
        manifest.iter().map(|row| CallRecord::parse(&row.to_string()).unwrap()).collect();
    assert_eq!(rows, parsed);
}

/// The items that an entry keeps are those that the server answered with, in all three dialects,
/// and its context is the request's.
#[test]
fn entries_hold_what_was_served() {
    let (mut answers, mut contexts) = (0, 0);
    for name in cases("server").iter().filter(|name| name.starts_with("local_")) {
        let case = gym(&format!("server/{name}"));
        let file = exact(&case.join("expected.json"));
        let scope = super::text(&file, "rollout_id");
        for line in read(&case.join("after_run"), scope).entries {
            let entry = line.entry;
            let id = entry.response_id.as_deref();
            let exchange = super::list(&file, "http").iter().find(|exchange| {
                exchange.get("response").and_then(|r| r.get("id")).and_then(Json::as_str) == id
            });
            let Some(exchange) = exchange else { continue };
            let served = output_items(exchange.get("response").unwrap());
            if name == "local_messages" {
                // The entry holds the items from before the answer became an Anthropic message.
                let print = |items: &[Json]| assistant_fingerprint(items).unwrap();
                assert_eq!(print(&served), print(&entry.output_items), "{name}");
            } else {
                assert_eq!(served, entry.output_items, "{name} {}", entry.model_call_id);
            }
            answers += 1;
            let body = exchange.get("request").and_then(|r| r.get("body")).unwrap();
            let items = body.get("input").or_else(|| body.get("messages")).and_then(Json::as_list);
            let envelope = ["instructions", "tools"].iter().any(|key| body.get(key).is_some());
            let Some(items) = items.filter(|_| !envelope) else { continue };
            if items.len() as i64 == entry.continuation_context_len {
                let digest = conversation_digest(items).unwrap().to_string();
                assert_eq!(digest, entry.continuation_context_digest, "{name}");
                let turns = [items, &served].concat();
                let print = assistant_fingerprint(&turns).unwrap().unwrap().to_string();
                assert_eq!(print, entry.continuation_fingerprint, "{name}");
                contexts += 1;
            }
        }
    }
    assert!(answers > 20 && contexts > 12, "{answers} answers, {contexts} contexts");
}

proptest! {
    /// Every byte under the index is covered by a line digest, or breaks its line.
    #[test]
    fn one_changed_byte_is_always_reported(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let dir = gym("store/complete/before");
        let mut tokens = std::fs::read(dir.join("0-0.tokens.jsonl")).unwrap();
        let state = std::fs::read(dir.join("0-0.tokens.state.json")).unwrap();
        let at = at.index(tokens.len());
        prop_assume!(tokens[at] != byte);
        tokens[at] = byte;
        let files =
            StoreFiles { tokens: Some(&tokens), state: Some(&state), ..StoreFiles::default() };
        let snapshot = read_store("0-0", files);
        prop_assert!(!snapshot.faults.is_empty(), "byte {at}");
        let entries: Vec<TokenEntry> = snapshot.entries.into_iter().map(|l| l.entry).collect();
        prop_assert!(resolve_parents(&entries).len() <= entries.len());
    }

    #[test]
    fn a_cut_store_reads_as_a_torn_tail_or_a_fault(cut in any::<prop::sample::Index>()) {
        let dir = gym("store/complete/before");
        let tokens = std::fs::read(dir.join("0-0.tokens.jsonl")).unwrap();
        let cut = cut.index(tokens.len());
        let ends: Vec<usize> = tokens
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| at)
            .collect();
        let whole = ends.iter().filter(|&&end| end <= cut).count();
        let at_line_end = cut == 0 || ends.iter().any(|&end| cut == end || cut == end + 1);
        let files = StoreFiles { tokens: Some(&tokens[..cut]), ..StoreFiles::default() };
        let snapshot = read_store("0-0", files);
        prop_assert_eq!(snapshot.entries.len(), whole);
        let torn = matches!(snapshot.faults[..], [StoreFault::TornTail { .. }]);
        prop_assert_eq!(torn, !at_line_end);
        prop_assert_eq!(snapshot.faults.len(), usize::from(torn));
    }
}
