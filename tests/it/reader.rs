//! Archives in the hands of `tests/reader/read_archive.py`, which knows nothing of forestctl but
//! `docs/format.md`: it recomputes every digest and compares every value with the sources.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use forestctl::archive::{self, Archive};
use forestctl::ingest;
use serde_json::{Value, json};

const SEED1: &str = "testdata/closed-loop/seed1";

/// The Python of `scripts/python.sh`; says so, past the capture of test output, where it is not
/// there.
pub fn python() -> Option<PathBuf> {
    let deps = std::env::var_os("FORESTCTL_DEPS").unwrap_or_else(|| ".deps".into());
    let python = Path::new(&deps).join("python/bin/python");
    if python.exists() {
        return Some(python);
    }
    let mut stderr = std::io::stderr();
    let _ = writeln!(stderr, "skipped: no Python reads archives here; run scripts/python.sh");
    None
}

/// Runs a script of `tests/reader`; `Err` is what it says is wrong.
pub fn run(script: &str, archive: &Path, rest: &[&str]) -> Result<Value, String> {
    let python = python().ok_or_else(|| "no Python".to_owned())?;
    let script = Path::new("tests/reader").join(script);
    let output =
        Command::new(python).arg("-B").arg(script).arg(archive).args(rest).output().unwrap();
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

struct Case {
    home: tempfile::TempDir,
    sources: Vec<PathBuf>,
}

impl Case {
    /// A folder of sources that is still empty.
    fn new(name: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let sources = vec![home.path().join(name)];
        fs::create_dir(&sources[0]).unwrap();
        Self { home, sources }
    }

    fn of(source: impl Into<PathBuf>) -> Self {
        Self { home: tempfile::tempdir().unwrap(), sources: vec![source.into()] }
    }

    fn write(&self, name: &str, lines: &[String]) {
        let mut text = lines.join("\n");
        text.push('\n');
        let bytes = match name.ends_with(".zst") {
            true => zstd::encode_all(text.as_bytes(), 1).unwrap(),
            false => text.into_bytes(),
        };
        fs::write(self.sources[0].join(name), bytes).unwrap();
    }

    /// Copies the files of a folder that begin with one of `starts`.
    fn copy(&self, to: usize, folder: &str, starts: &[&str]) {
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if starts.iter().any(|start| name.starts_with(start)) {
                fs::copy(Path::new(folder).join(&name), self.sources[to].join(&name)).unwrap();
            }
        }
    }

    fn archive(&self) -> PathBuf {
        self.home.path().join("run.forest")
    }

    /// Ingests one source after another.
    fn ingest(&self) {
        for source in &self.sources {
            let ingested = ingest::read(std::slice::from_ref(source)).unwrap();
            archive::write(&self.archive(), false, &ingested).unwrap();
        }
    }

    fn run(&self, script: &str, unproven: &[&str]) -> Result<Value, String> {
        let mut rest: Vec<&str> = self.sources.iter().map(|s| s.to_str().unwrap()).collect();
        if !unproven.is_empty() {
            rest.push("--unproven");
            rest.extend(unproven);
        }
        run(script, &self.archive(), &rest)
    }

    /// What the other reader found, once it agrees with this one on what there is.
    fn read(&self, unproven: &[&str]) -> Value {
        let read = self.run("read_archive.py", unproven).unwrap();
        let archive = Archive::open(&self.archive()).unwrap();
        assert_eq!(archive.check_files(), []);
        let counts = archive.counts();
        for (name, count) in [
            ("rollouts", counts.rollouts),
            ("calls", counts.calls),
            ("tokens", counts.tokens),
            ("quarantined", counts.quarantined),
            ("parts", archive.part_count() as u64),
        ] {
            assert_eq!(read[name], count, "{name}");
        }
        assert_eq!(read["content"], archive.digest().to_string());
        read
    }
}

fn compared(staged: u64, entries: u64, inline: u64, receipts: u64, rollouts: u64) -> Value {
    json!({
        "staged": staged, "entries": entries, "inline": inline,
        "receipts": receipts, "rollouts": rollouts,
    })
}

#[test]
fn staged_captures_and_stores_are_read_value_by_value() {
    if python().is_none() {
        return;
    }
    for (form, signed, stamped, routes, expected) in [
        ("staged-v2", 94, 0, 5, compared(94, 0, 0, 24, 24)),
        ("staged-v3", 94, 0, 5, compared(94, 0, 0, 24, 24)),
        ("gym-store", 0, 26, 3, compared(0, 26, 0, 0, 6)),
    ] {
        let case = Case::of(format!("{SEED1}/{form}"));
        case.ingest();
        let read = case.read(&[]);
        assert_eq!(read["compared"], expected, "{form}");
        let found = [&read["signed"], &read["stamped"], &read["routes"]];
        assert_eq!(found, [signed, stamped, routes], "{form}");
        assert_eq!(read["in_order"], true);
    }
}

/// Tensors against the sidecars that they came in, and what the calls signed of them.
#[test]
fn media_are_read_value_by_value() {
    if python().is_none() {
        return;
    }
    let case = Case::of("testdata/media/capture");
    case.ingest();
    let read = case.read(&["moved_span_unsigned.c1"]);
    assert_eq!(read["tensors"], json!([199, 17]));
}

/// What nemo-gym itself staged: ids beyond ASCII, log-probabilities at the ends of f32, nested
/// extras, and token ids that no archive holds.
#[test]
fn captures_that_the_package_made_are_read_value_by_value() {
    if python().is_none() {
        return;
    }
    let case = Case::new("captured");
    let (mut staged, mut receipts) = (Vec::new(), Vec::new());
    for entry in fs::read_dir("testdata/gym-0.7/staging").unwrap() {
        let path = entry.unwrap().path();
        // It has the scope of another capture.
        if path.ends_with("empty_generation_terminal.json") {
            continue;
        }
        let set: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        staged.extend(set["staged_records"].as_array().unwrap().iter().map(Value::to_string));
        receipts.push(set["receipt"].to_string());
    }
    assert_eq!(receipts.len(), 25);
    case.write("staged.jsonl.zst", &staged);
    case.write("receipts.jsonl", &receipts);
    case.ingest();
    // Token ids that no 32 bits hold are set aside: both calls of one capture.
    let records = staged.len() as u64;
    let read = case.read(&[]);
    assert_eq!(read["quarantined"], 2);
    assert_eq!(read["compared"], compared(records - 2, 0, 0, 25, 0));
}

fn lines(path: &str) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

fn call_id(line: &str) -> String {
    let record: Value = serde_json::from_str(line).unwrap();
    record["model_call_id"].as_str().unwrap().to_owned()
}

/// Columns that carry and generation cannot express, a log-probability between two of f32,
/// repeated records, a call of another scope, and lines that are none.
#[test]
fn odd_records_are_read_value_by_value() {
    if python().is_none() {
        return;
    }
    let case = Case::new("odd");
    let mut staged = lines(&format!("{SEED1}/staged-v2/staged.jsonl"));
    let change = |line: &mut String, from: &str, to: &str| {
        let changed = line.replacen(from, to, 1);
        assert_ne!(*line, changed);
        *line = changed;
    };
    change(&mut staged[0], "\"token_mask_delta\":[0.0,", "\"token_mask_delta\":[-0.0,");
    change(&mut staged[1], "\"token_mask_delta\":[0.0,0.0,", "\"token_mask_delta\":[0.0,");
    change(&mut staged[2], "\"token_mask_delta\":[0.0,0.0,", "\"token_mask_delta\":[0.0,1.0,");
    let logprobs = staged[3].find("\"generation_log_probs_delta\"").unwrap();
    let at = logprobs + staged[3][logprobs..].find("-").unwrap();
    let end = at + staged[3][at..].find([',', ']']).unwrap();
    let next = f64::from_bits(staged[3][at..end].parse::<f64>().unwrap().to_bits() + 1);
    staged[3].replace_range(at..end, &next.to_string());
    staged.push(staged[4].clone());
    let unproven: Vec<String> = staged[..3].iter().map(|line| call_id(line)).collect();
    staged.extend(["{\"rollout_id\":".to_owned(), "[]".to_owned()]);
    case.write("staged.jsonl.zst", &staged);
    case.write("receipts.jsonl", &lines(&format!("{SEED1}/staged-v2/receipts.jsonl")));
    case.write("rollouts.jsonl", &lines(&format!("{SEED1}/staged-v2/rollouts.jsonl"))[3..]);
    case.ingest();
    let unproven: Vec<&str> = unproven.iter().map(String::as_str).collect();
    let told = case.run("read_archive.py", &[]).unwrap_err();
    assert!(unproven.iter().all(|id| told.contains(id)), "{told}");
    let read = case.read(&unproven);
    assert_eq!((&read["raw"], &read["quarantined"]), (&json!(3), &json!(2)));
    assert_eq!(read["compared"], compared(95, 0, 0, 24, 21));
}

#[test]
fn restored_calls_are_read_value_by_value() {
    if python().is_none() {
        return;
    }
    let case = Case::new("restored");
    for name in ["staged", "receipts", "rollouts"] {
        let packed = fs::File::open(format!("{SEED1}/staged-v3/{name}.jsonl.gz")).unwrap();
        let text = std::io::read_to_string(flate2::read::GzDecoder::new(packed)).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if name == "staged" {
            let line = &lines[7];
            lines[7] = format!("{{\"source_capture_key\":\"an earlier one\",{}", &line[1..]);
        }
        case.write(&format!("{name}.jsonl"), &lines);
    }
    case.ingest();
    assert_eq!(case.read(&[])["compared"], compared(94, 0, 0, 24, 24));
    let groups = Archive::open(&case.archive()).unwrap().groups().unwrap();
    let calls = groups.iter().flat_map(|g| &g.rollouts).flat_map(|r| &r.calls);
    assert_eq!(calls.filter(|call| call.source_capture_key.is_some()).count(), 1);
}

/// Delta prompts, intents without entries, lines that are torn, broken or repeated; and ledgers
/// that stand for receipts.
#[test]
fn stores_in_any_state_are_read_value_by_value() {
    if python().is_none() {
        return;
    }
    for (store, entries, quarantined) in [
        ("store/complete_delta_records/before", 3, 0),
        ("store/dangling_intent/before", 3, 0),
        ("store/duplicate_identical_lines/before", 1, 0),
        ("store/incomplete_marker/before", 3, 0),
        ("store/malformed_middle_line/before", 2, 1),
        ("store/state_legacy/before", 1, 0),
        ("store/torn_final_line/before", 2, 1),
        ("server/local_compaction_masked/after_run", 4, 0),
        ("server/local_delta_and_prefix_supply/after_run", 3, 0),
        ("server/external_drop_coords/after_run", 0, 0),
        ("server/external_retry_resolved/after_run", 0, 0),
    ] {
        let case = Case::of(format!("testdata/gym-0.7/{store}"));
        case.ingest();
        let read = case.read(&[]);
        assert_eq!(read["compared"], compared(0, entries, 0, 0, 0), "{store}");
        assert_eq!(read["quarantined"], quarantined, "{store}");
    }
}

/// Of a store of deltas the root is lost, and so nothing completes the rest.
#[test]
fn deltas_that_nothing_completes_are_read_value_by_value() {
    if python().is_none() {
        return;
    }
    let case = Case::new("cut");
    let store = "testdata/gym-0.7/store/complete_delta_records/before";
    case.copy(0, store, &["0-1."]);
    let kept = lines(&format!("{store}/0-1.tokens.jsonl"))[1..].to_vec();
    assert!(kept.iter().all(|line| line.contains("\"prompt_is_delta\":true")));
    case.write("0-1.tokens.jsonl", &kept);
    case.ingest();
    assert_eq!(case.read(&[])["compared"], compared(0, 2, 0, 0, 0));
    let groups = Archive::open(&case.archive()).unwrap().groups().unwrap();
    assert_eq!(groups[0].rollouts[0].ledger.failures.len(), 2);
}

/// Rollouts lines of every identity whose items carry arrays, and a trace.
fn inline() -> Case {
    let item = |id: &str, prompt: &[u32], generation: &[u32]| {
        json!({
            "id": id, "type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": id}],
            "prompt_token_ids": prompt, "generation_token_ids": generation,
            "generation_log_probs": vec![-0.1; generation.len()],
        })
    };
    let line = |identity: Value, reward: f64, output: &[Value]| {
        let mut line = json!({
            "responses_create_params": {"input": "é"}, "reward": reward,
            "response": {"id": "resp", "output": output},
        });
        line.as_object_mut().unwrap().extend(identity.as_object().unwrap().clone());
        line.to_string()
    };
    let mut lost = item("m", &[1, 2, 3, 4], &[5, 6]);
    lost["generation_log_probs"] = json!([null, -0.25]);
    lost["routed_experts"] = json!("nrlre1:int8:6x1x1:AAECAwQF");
    lost["finish_reason"] = json!("length");
    let reasoning = json!({"type": "reasoning", "id": "r", "summary": []});
    let called = json!({
        "type": "function_call", "id": "f", "call_id": "t", "name": "look",
        "arguments": "{\"b\": [1, \"é\"], \"a\": null}",
    });
    let observed = json!({"type": "function_call_output", "call_id": "t", "output": "x"});
    let chain = [reasoning, item("a", &[1, 2], &[3]), called, observed, lost];
    let rewritten = [item("a", &[1, 2], &[3]), item("a", &[9], &[8]), item("", &[9, 8], &[])];
    let named = json!({
        "group_id": "g", "rollout_id": "g_g0", "slot": 0, "group_size": 2, "capture_key": "s",
        "mask_sample": true,
    });
    let case = Case::new("inline");
    case.write(
        "rollouts.jsonl",
        &[
            line(named, 1.0, &chain),
            line(json!({"_ng_task_index": 7, "_ng_rollout_index": 1}), 0.5, &chain),
            line(json!({"_ng_task_index": 7, "_ng_rollout_index": 3}), 0.0, &rewritten),
            line(json!({}), -0.5, &chain),
        ],
    );
    let trace = json!({
        "rollout_id": "t", "reward": 0.1,
        "model_calls": [
            {"completion_id": "x", "finish_reason": "stop", "prompt_token_ids": [1, 2],
             "sampled_token_ids": [3], "sampled_logprobs": [-1.5]},
            {"completion_id": "y", "prompt_token_ids": [1, 2, 3, 4],
             "sampled_token_ids": [5, 6], "sampled_logprobs": [-1.0, null]},
        ],
    });
    fs::write(case.sources[0].join("trace.json"), trace.to_string()).unwrap();
    case.ingest();
    case
}

#[test]
fn inline_arrays_are_read_value_by_value() {
    if python().is_none() {
        return;
    }
    let read = inline().read(&[]);
    assert_eq!(read["compared"], compared(0, 0, 11, 0, 5));
    assert_eq!(read["routes"], 3);
}

#[test]
fn an_archive_that_was_added_to_is_read_value_by_value() {
    if python().is_none() {
        return;
    }
    let mut case = Case::new("first");
    case.sources.push(case.home.path().join("second"));
    fs::create_dir(&case.sources[1]).unwrap();
    let store = format!("{SEED1}/gym-store");
    // Group 0 gains a rollout, group 3 is there already, groups 1 and 5 are new.
    let rollouts = lines(&format!("{store}/rollouts.jsonl"));
    for (at, scopes) in [&["0-1.", "3-3."][..], &["0-0.", "1-", "3-3.", "5-2."]].iter().enumerate()
    {
        case.copy(at, &store, scopes);
        let of = |line: &&String| {
            let line: Value = serde_json::from_str(line).unwrap();
            let scope = format!("{}-{}.", line["_ng_task_index"], line["_ng_rollout_index"]);
            scopes.iter().any(|start| scope.starts_with(start))
        };
        let lines: Vec<String> = rollouts.iter().filter(of).cloned().collect();
        fs::write(case.sources[at].join("rollouts.jsonl"), lines.join("\n")).unwrap();
    }
    case.sources.push(format!("{SEED1}/staged-v2").into());
    case.ingest();
    let read = case.read(&[]);
    assert_eq!((&read["parts"], &read["in_order"]), (&json!(3), &json!(false)));
    assert_eq!(read["compared"], compared(94, 26, 0, 24, 30));
}

/// One value of every column of every table, under a manifest and digests that agree with it.
fn changes(case: &Case) {
    let made = case.run("changes.py", &[]).unwrap();
    assert!(made["tables"].as_u64().unwrap() > 60, "{made}");
    assert!(made["digests"].as_u64().unwrap() > 30, "{made}");
}

#[test]
fn a_changed_value_of_a_staged_capture_is_refused() {
    if python().is_some() {
        let case = Case::of(format!("{SEED1}/staged-v3"));
        case.ingest();
        changes(&case);
    }
}

#[test]
fn a_changed_value_of_a_store_is_refused() {
    if python().is_some() {
        let case = Case::of(format!("{SEED1}/gym-store"));
        case.ingest();
        changes(&case);
    }
}

#[test]
fn a_changed_value_of_inline_arrays_is_refused() {
    if python().is_some() {
        changes(&inline());
    }
}

#[test]
fn a_flipped_byte_of_any_file_is_refused() {
    if python().is_none() {
        return;
    }
    let case = Case::of(format!("{SEED1}/staged-v2"));
    case.ingest();
    for name in ["archive.json", "calls", "ledger", "origins", "rollouts"] {
        let path = match name.ends_with(".json") {
            true => case.archive().join(name),
            false => case.archive().join(name).join("part-00000.parquet"),
        };
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 3] ^= 1;
        fs::write(&path, bad).unwrap();
        assert!(case.run("read_archive.py", &[]).is_err(), "{name}");
        fs::write(&path, good).unwrap();
    }
    case.read(&[]);
}
