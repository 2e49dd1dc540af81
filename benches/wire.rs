//! Times the steps from captured lines to checked calls, on data made here.
//!
//! `cargo bench --bench wire -- [STEP]...` runs the steps named, or all; `ROLLOUTS` and `TURNS`
//! set the sizes, `RUNS` how often each step runs. The best run counts.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use forestctl::archive::{self, Archive, Mode};
use forestctl::id::Digest32;
use forestctl::wire::builder::resolve_parents;
use forestctl::wire::digest::{
    Claim, CumulativeHasher, EMPTY_EXTRAS_DIGEST, call_digest, chain_hash, entry_digest,
};
use forestctl::wire::{Receipt, StagedRecord, StoreFiles, TokenEntry, read_store};
use forestctl::{ingest, rows, select, validate};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

fn main() {
    let steps: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let wanted = |step: &str| steps.is_empty() || steps.iter().any(|s| step.starts_with(s));
    let dir = tempfile::tempdir().expect("a temporary folder");
    if steps.is_empty() || steps.iter().any(|s| s.starts_with("staged")) {
        staged(dir.path(), &wanted);
    }
    if steps.is_empty() || steps.iter().any(|s| s.starts_with("store")) {
        store(dir.path(), &wanted);
    }
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Best wall time and best processor time of several runs, in seconds.
fn time<T>(mut work: impl FnMut() -> T) -> (f64, f64) {
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..number("RUNS", 5) {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        black_box(work());
        best.0 = best.0.min(start.elapsed().as_secs_f64());
        best.1 = best.1.min(cpu_seconds() - cpu);
    }
    best
}

/// Processor time of all threads of this process so far.
fn cpu_seconds() -> f64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanoseconds = threads.map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0)
    });
    nanoseconds.sum::<f64>() / 1e9
}

fn report(step: &str, (wall, cpu): (f64, f64), amount: f64, unit: &str) {
    let (by_wall, by_cpu) = (amount / wall, amount / cpu);
    println!(
        "{step:<34} {by_wall:>8.1} {unit}/s by wall ({wall:.4} s), {by_cpu:>8.1} per core second ({cpu:.4} s)"
    );
}

/// xorshift64*; enough for data that does not compress by accident.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        ((self.next() >> 32) * n) >> 32
    }

    fn id(&mut self) -> u64 {
        self.below(151_643)
    }

    /// A binary32 log-probability, as engines compute them.
    fn logprob(&mut self) -> f64 {
        let x = self.below(1 << 24) as f64 / f64::from(1 << 24);
        f64::from((-6.0 * x * x * x) as f32)
    }
}

fn join<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Rollouts of eight calls on one chain, about 860 tokens a call, half of them generated.
fn staged(dir: &Path, wanted: &dyn Fn(&str) -> bool) {
    let (source, target) = (dir.join("staged"), dir.join("staged.forest"));
    let tokens = write_staged(&source, number("ROLLOUTS", 248));
    let text = fs::read_to_string(source.join("staged.jsonl")).expect("staged lines");
    let lines: Vec<&str> = text.lines().collect();
    let (mebibytes, million) = (text.len() as f64 / f64::from(1 << 20), tokens as f64 / 1e6);
    println!("staged: {mebibytes:.1} MiB, {} calls, {tokens} tokens", lines.len());
    if wanted("staged_parse") {
        let took = time(|| lines.iter().all(|line| StagedRecord::parse(line).is_ok()));
        report("staged_parse, one thread", took, mebibytes, "MiB");
    }
    if wanted("staged_receipts") {
        let text = fs::read_to_string(source.join("receipts.jsonl")).expect("receipts");
        let took = time(|| text.lines().all(|line| Receipt::parse(line).is_ok()));
        report("staged_receipts, one thread", took, text.len() as f64 / f64::from(1 << 20), "MiB");
    }
    let read = || ingest::read(std::slice::from_ref(&source)).expect("a capture");
    if wanted("staged_read") {
        report("staged_read", time(read), mebibytes, "MiB");
    }
    let ingested = read();
    let write = || archive::write(&target, true, &ingested).expect("an archive");
    if wanted("staged_write") {
        report("staged_write", time(write), mebibytes, "MiB");
    }
    write();
    drop(ingested);
    sizes(&target, text.len());
    let block = vec![1u8; 32 * 860];
    let hash = || (0..tokens / 860).into_par_iter().map(|_| Sha256::digest(&block)[0]).max();
    let floor = time(hash);
    report("SHA-256 of 32 bytes a token", floor, million, "M tokens");
    let archive = Archive::open(&target).expect("an archive");
    if wanted("staged_files") {
        let took = time(|| assert!(archive.check_files().is_empty()));
        report("staged_files", took, million, "M tokens");
    }
    if wanted("staged_groups") {
        let took = time(|| archive.groups().expect("groups"));
        report("staged_groups", took, million, "M tokens");
    }
    if wanted("staged_check") {
        let groups = archive.groups().expect("groups");
        let took = time(|| {
            let found = validate::validate(&groups, validate::Options::default()).findings;
            assert!(found.is_empty(), "{found:?}");
        });
        report("staged_check", took, million, "M tokens");
    }
    if wanted("staged_validate") {
        let took = time(|| {
            for part in 0..archive.part_count() {
                let groups = archive.read_part(part).expect("groups");
                validate::validate(&groups, validate::Options::default());
            }
        });
        report("staged_validate", took, million, "M tokens");
        let against = (took.0 / floor.0, took.1 / floor.1);
        println!("  against the hashes alone: {:.2} by wall, {:.2} by core", against.0, against.1);
    }
}

fn sizes(archive: &Path, source: usize) {
    let manifest = Archive::open(archive).expect("an archive").manifest().clone();
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    println!("archive {bytes} bytes, 1/{:.1} of its source", source as f64 / bytes as f64);
    for table in ["calls/", "ledger/", "origins/", "rollouts/"] {
        let files = manifest.files.iter().filter(|file| file.path.starts_with(table));
        println!("  {table:<10} {}", files.map(|file| file.bytes).sum::<u64>());
    }
}

/// Returns the number of tokens.
fn write_staged(dir: &Path, rollouts: usize) -> usize {
    fs::create_dir_all(dir).expect("a folder");
    let mut random = Random(0x1234_5678_9abc_def1);
    let (mut staged, mut receipts, mut lines) = (String::new(), String::new(), String::new());
    let mut total = 0;
    for rollout in 0..rollouts {
        let scope = format!("{}-{}", rollout / 8, rollout % 8);
        let (mut rows, mut parent, mut tokens) =
            (Vec::new(), None::<(String, Digest32)>, Vec::<u64>::new());
        for _ in 0..8 {
            let call = format!("{:016x}{:016x}", random.next(), random.next());
            let (carry, generated) = (200 + random.below(460), 200 + random.below(460));
            let delta: Vec<u64> = (0..carry + generated).map(|_| random.id()).collect();
            let logprobs: Vec<f64> = (0..generated).map(|_| random.logprob()).collect();
            let prev_len = tokens.len() as u64;
            tokens.extend(&delta);
            total += delta.len();
            let chain = chain_hash(parent.as_ref().map(|p| p.1), &delta);
            let mut cumulative = CumulativeHasher::new(tokens.len() as u64);
            cumulative.update(&tokens);
            let zeros = vec![0.0; carry as usize];
            let record = StagedRecord {
                schema_version: 2,
                digest_version: 2,
                extras_digest_version: 1,
                scope: scope.clone(),
                source_capture_key: None,
                model_call_id: call.clone(),
                parent_call_id: parent.as_ref().map(|p| p.0.clone()),
                mode: if prev_len == 0 { Mode::Text } else { Mode::TokenIn },
                prev_len,
                delta_len: carry + generated,
                cum_len: tokens.len() as u64,
                weight_version: 7,
                digest: Digest32([0; 32]),
                token_mask_delta: [zeros.clone(), vec![1.0; generated as usize]].concat(),
                generation_log_probs_delta: [zeros, logprobs].concat(),
                token_ids_delta: delta,
                extras_digest: EMPTY_EXTRAS_DIGEST,
                chain_hash: chain,
                cumulative_hash: cumulative.finish().expect("all tokens"),
                extras: None,
            };
            let digest = call_digest(&record.view()).expect("a valid record");
            let parent_id =
                record.parent_call_id.as_ref().map_or("null".into(), |p| format!("\"{p}\""));
            let common = format!(
                "\"model_call_id\":\"{call}\",\"parent_call_id\":{parent_id},\"mode\":\"{}\",\"prev_len\":{prev_len},\
                 \"delta_len\":{},\"cum_len\":{},\"weight_version\":7,\"digest\":\"{digest}\",\"extras_digest\":\"{}\",\
                 \"chain_hash\":\"{chain}\",\"cumulative_hash\":\"{}\"",
                record.mode.as_str(),
                record.delta_len,
                record.cum_len,
                record.extras_digest,
                record.cumulative_hash,
            );
            staged += &format!(
                "{{\"schema_version\":2,\"digest_version\":2,\"extras_digest_version\":1,\"rollout_id\":\"{scope}\",{common},\
                 \"token_ids_delta\":[{}],\"token_mask_delta\":[{}],\"generation_log_probs_delta\":[{}],\"extras\":null}}\n",
                join(&record.token_ids_delta, u64::to_string),
                join(&record.token_mask_delta, |x| format!("{x:?}")),
                join(&record.generation_log_probs_delta, |x| format!("{x:?}")),
            );
            rows.push(format!(
                "{{\"schema_version\":2,\"digest_version\":2,\"extras_digest_version\":1,{common},\
                 \"staging_key\":\"{scope}/{call}\",\"response_id\":\"resp_{call}\",\"admitted_at\":1700000000.25,\
                 \"output_fingerprint\":\"{digest}\",\"continuation_fingerprint\":\"{digest}\",\"fingerprint_version\":2}}",
            ));
            parent = Some((call, chain));
        }
        let terminal = parent.map(|p| p.0).unwrap_or_default();
        receipts += &format!(
            "{{\"schema_version\":2,\"digest_version\":2,\"extras_digest_version\":1,\"rollout_id\":\"{scope}\",\"reward\":1.0,\
             \"terminal_model_call_id\":\"{terminal}\",\"manifest\":[{}],\"capture_poisoned\":false,\"failure_reason\":null,\
             \"terminal_selection\":\"declared\",\"terminal_attribution_reason\":null}}\n",
            rows.join(",")
        );
        lines += &format!(
            "{{\"group_id\":\"{}\",\"rollout_id\":\"{}_g{}\",\"slot\":{},\"group_size\":8,\"capture_key\":\"{scope}\",\"reward\":1.0,\
             \"result\":{{\"reward\":1.0,\"terminal_call_id\":\"{terminal}\"}}}}\n",
            rollout / 8,
            rollout / 8,
            rollout % 8,
            rollout % 8
        );
    }
    for (name, text) in [("staged", &staged), ("receipts", &receipts), ("rollouts", &lines)] {
        fs::write(dir.join(format!("{name}.jsonl")), text).expect("a file");
    }
    total
}

/// One chain of full prompts that grow to about 144,000 tokens in 200 turns.
fn store(dir: &Path, wanted: &dyn Fn(&str) -> bool) {
    let folder = dir.join("store");
    let bytes = write_store(&folder, number("TURNS", 200));
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    println!("store: {mebibytes:.1} MiB");
    let file = |name: &str| fs::read(folder.join(format!("0-0.tokens.{name}"))).expect("a file");
    if wanted("store_file") {
        report("store_file, one thread", time(|| file("jsonl")), mebibytes, "MiB");
    }
    let text = String::from_utf8(file("jsonl")).expect("text");
    if wanted("store_lines") {
        let lines: Vec<&str> = text.lines().collect();
        let took = time(|| lines.par_iter().map(|l| Claim::Line(l.as_bytes()).digest().0[0]).max());
        report("store_lines", took, mebibytes, "MiB");
    }
    if wanted("store_parse") {
        let took = time(|| text.lines().all(|line| TokenEntry::parse(line).is_ok()));
        report("store_parse, one thread", took, mebibytes, "MiB");
    }
    let (state, intents) = (file("state.json"), file("intents"));
    let files = StoreFiles {
        tokens: Some(text.as_bytes()),
        intents: Some(&intents),
        state: Some(&state),
        marker: None,
    };
    if wanted("store_snapshot") {
        report("store_snapshot", time(|| read_store("0-0", files)), mebibytes, "MiB");
    }
    if wanted("store_resolve") {
        let snapshot = read_store("0-0", files);
        assert!(snapshot.faults.is_empty(), "{:?}", snapshot.faults);
        let entries: Vec<TokenEntry> = snapshot.entries.into_iter().map(|e| e.entry).collect();
        let took = time(|| resolve_parents(&entries).len());
        report("store_resolve", took, mebibytes, "MiB");
    }
    let read = || ingest::read(std::slice::from_ref(&folder)).expect("a capture");
    if wanted("store_read") {
        report("store_read", time(read), mebibytes, "MiB");
    }
    if wanted("store_rows") {
        let took = time(|| {
            let groups = read().groups;
            let validation = validate::validate(&groups, validate::Options::default());
            let settings = select::SelectSettings {
                invalid: validate::invalid_rollouts(&validation.findings),
                ..Default::default()
            };
            let policy = select::PolicyName::ReturnedHistory.policy();
            let selection = select::select(&groups, policy, &settings);
            let batch = rows::build(&groups, &selection, 1, &Default::default());
            let counts = (batch.counts.rows, batch.counts.valid_rollouts);
            assert_eq!(counts, (1, 1), "{:?}", selection.findings);
        });
        report("store_rows, from disk", took, mebibytes, "MiB");
    }
    let target: PathBuf = dir.join("store.forest");
    let ingested = read();
    let took = time(|| archive::write(&target, true, &ingested).expect("an archive"));
    report("store_write", took, mebibytes, "MiB");
    sizes(&target, bytes);
}

/// Returns the size of the entries.
fn write_store(dir: &Path, turns: usize) -> usize {
    fs::create_dir_all(dir).expect("a folder");
    let mut random = Random(0x0123_4567_89ab_cdef);
    let (mut text, mut intents, mut digests) = (String::new(), String::new(), Vec::new());
    let mut items = Vec::new();
    let mut prompt: Vec<u64> = Vec::new();
    let mut parent: Option<String> = None;
    for turn in 0..turns {
        let call = format!("{:016x}{:016x}", random.next(), random.next());
        prompt.extend((0..520).map(|_| random.id()));
        let generation: Vec<u64> = (0..200).map(|_| random.id()).collect();
        let logprobs: Vec<f64> = generation.iter().map(|_| random.logprob()).collect();
        let whole = [&prompt[..], &generation].concat();
        let digest = entry_digest(&whole);
        let (parent_id, resolution) = match &parent {
            Some(parent) => (format!("\"{parent}\""), "resolved"),
            None => ("null".to_owned(), "root"),
        };
        let item = format!(
            "{{\"content\":[{{\"annotations\":[],\"logprobs\":null,\"text\":\"answer {turn}\",\"type\":\"output_text\"}}],\
             \"id\":\"msg_{call}\",\"role\":\"assistant\",\"status\":\"completed\",\"type\":\"message\"}}"
        );
        let line = format!(
            "{{\"continuation_context_digest\":\"{digest}\",\"continuation_context_len\":{},\"continuation_fingerprint\":\"{digest}\",\
             \"created_at\":{:?},\"cum_len\":{},\"digest\":\"{digest}\",\"fingerprint_version\":2,\"generation_log_probs\":[{}],\
             \"generation_token_ids\":[{}],\"model\":\"policy\",\"model_call_id\":\"{call}\",\"output_items\":[{item}],\"parent_call_id\":{parent_id},\"parent_resolution\":\"{resolution}\",\
             \"parent_resolution_reason\":\"\",\"prefix_requested\":false,\"prefix_supplied\":false,\"prompt_is_delta\":false,\
             \"prompt_token_ids\":[{}],\"response_id\":\"resp_{call}\",\"rollout_id\":\"0-0\",\"routed_experts\":null,\"schema_version\":1,\
             \"token_item_index\":0}}",
            2 * turn + 1,
            1_700_000_000.5 + turn as f64,
            whole.len(),
            join(&logprobs, |x| format!("{x:?}")),
            join(&generation, u64::to_string),
            join(&prompt, u64::to_string),
        );
        digests.push(format!("\"{call}\":\"{}\"", Claim::Line(line.as_bytes()).digest()));
        text += &line;
        text.push('\n');
        intents += &format!("{call}\n");
        items.push(item);
        prompt = whole;
        parent = Some(call);
    }
    let state = format!(
        "{{\"entry_digests\":{{{}}},\"frozen\":false,\"incomplete\":false,\"indexed_size\":{},\"retired\":false,\"snapshot_id\":\"\",\"version\":{turns}}}",
        digests.join(","),
        text.len()
    );
    let write = |name: &str, text: &str| {
        fs::write(dir.join(format!("0-0.tokens.{name}")), text).expect("a file")
    };
    write("jsonl", &text);
    write("intents", &intents);
    write("state.json", &state);
    let rollouts = format!(
        "{{\"_ng_task_index\":0,\"_ng_rollout_index\":0,\"reward\":1.0,\"response\":{{\"id\":\"resp_{}\",\"output\":[{}]}}}}\n",
        parent.unwrap_or_default(),
        items.join(","),
    );
    fs::write(dir.join("rollouts.jsonl"), rollouts).expect("a file");
    text.len()
}
