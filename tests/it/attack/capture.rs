//! Staged captures, line by line, with digests computed from their description (sections a and
//! b of the wire's) and nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// What a folder of a staged capture holds. Tests change lines before they are written.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    schema: u64,
    pub staged: Vec<Value>,
    pub receipts: Vec<Value>,
    pub rollouts: Vec<Value>,
    pub media: Vec<Value>,
    /// Further files by name.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Tokens up to the end of each call.
    sequences: BTreeMap<String, Vec<u64>>,
}

/// Fields that a record shares with its manifest row.
const SHARED: [&str; 13] = [
    "schema_version",
    "digest_version",
    "extras_digest_version",
    "parent_call_id",
    "mode",
    "prev_len",
    "delta_len",
    "cum_len",
    "weight_version",
    "digest",
    "extras_digest",
    "chain_hash",
    "cumulative_hash",
];

impl Capture {
    /// One group of one rollout `g_g0`, which scope `0-0` fills: root `a` and its child `b`, both
    /// committed, complete and returned, `b` scored.
    pub fn pair(schema: u64) -> Self {
        let mut capture = Self::of(schema, 1);
        capture.call("a", None, &[1, 2], &[3, 4]);
        capture.call("b", Some("a"), &[5], &[6, 7]);
        capture
    }

    /// One group of `size` rollouts, of which none has a call yet; further calls go to the last
    /// scope that [`Capture::scope`] began.
    pub fn of(schema: u64, size: u32) -> Self {
        let mut capture = Self::empty(schema);
        capture.scope(0, size);
        capture
    }

    /// Nothing, to be begun with [`Capture::rollout`].
    pub fn empty(schema: u64) -> Self {
        Self { schema, ..Self::default() }
    }

    /// Begins the scope `0-{slot}`, which fills rollout `g_g{slot}` of `size`.
    pub fn scope(&mut self, slot: u32, size: u32) {
        self.rollout("g", &format!("0-{slot}"), slot, size);
    }

    /// Begins a scope, which fills a slot of a group.
    pub fn rollout(&mut self, group: &str, key: &str, slot: u32, size: u32) {
        let mut receipt = json!({
            "schema_version": self.schema, "digest_version": 2, "extras_digest_version": 1,
            "reward": 1.0, "terminal_model_call_id": null, "manifest": [],
            "capture_poisoned": false, "failure_reason": null,
            "terminal_selection": "declared", "terminal_attribution_reason": null,
            "attempted_call_ids": [], "pending_call_ids": [], "failures": [],
        });
        receipt[self.key()] = json!(key);
        if self.schema == 2 {
            receipt["calls"] = json!({});
        }
        self.receipts.push(receipt);
        self.rollouts.push(json!({
            "group_id": group, "rollout_id": format!("{group}_g{slot}"), "slot": slot,
            "group_size": size,
            "capture_key": key, "reward": 1.0,
            "result": { "response": { "id": null, "object": "response", "output": [] } },
        }));
    }

    /// What this schema calls the capture scope.
    fn key(&self) -> &'static str {
        if self.schema == 2 { "rollout_id" } else { "capture_key" }
    }

    /// Adds a call: staged, committed, complete, returned, and scored until the next one is.
    pub fn call(&mut self, id: &str, parent: Option<&str>, carry: &[u64], generation: &[u64]) {
        let key = self.key();
        let scope = self.receipts.last().unwrap()[key].clone();
        let before = parent.map_or_else(Vec::new, |parent| self.sequences[parent].clone());
        let chain = parent.map(|parent| self.record(parent)["chain_hash"].clone());
        let delta = [carry, generation].concat();
        let whole = [before.clone(), delta.clone()].concat();
        let columns = |carry: f64, generated: f64| {
            let mut column = vec![carry; delta.len() - generation.len()];
            column.resize(delta.len(), generated);
            column
        };
        let mut record = json!({
            "schema_version": self.schema, "digest_version": 2, "extras_digest_version": 1,
            "model_call_id": id, "parent_call_id": parent,
            "mode": if parent.is_some() { "token_in" } else { "text" },
            "prev_len": before.len(), "delta_len": delta.len(), "cum_len": whole.len(),
            "weight_version": 7, "token_ids_delta": delta,
            "token_mask_delta": columns(0.0, 1.0),
            "generation_log_probs_delta": columns(0.0, -0.5),
            "extras": null, "extras_digest": extras_digest(&Value::Null),
            "chain_hash": chain_hash(chain.as_ref().and_then(Value::as_str), &delta),
            "cumulative_hash": cumulative_hash(&whole),
        });
        record[key] = scope.clone();
        sign(&mut record);
        self.sequences.insert(id.to_owned(), whole);

        let item = json!({
            "id": format!("msg_{id}"), "type": "message", "role": "assistant",
            "content": [{ "type": "output_text", "text": format!("answer {id}") }],
        });
        let fingerprint = text_fingerprint(&format!("answer {id}"));
        let mut row = json!({
            "model_call_id": id, "response_id": format!("resp_{id}"), "admitted_at": null,
            "staging_key": format!("{}/{id}", scope.as_str().unwrap()),
            "output_fingerprint": fingerprint, "continuation_fingerprint": null,
            "fingerprint_version": 2,
        });
        for field in SHARED {
            row[field] = record[field].clone();
        }
        let served = json!([{ "id": item["id"], "type": "message", "fingerprint": fingerprint }]);
        let receipt = self.receipts.last_mut().unwrap();
        if self.schema == 2 {
            receipt["calls"][id] = json!({
                "status": "completed", "finish_reason": "stop",
                "response_id": row["response_id"], "output_items": served,
            });
        } else {
            row["status"] = json!("completed");
            row["finish_reason"] = json!("stop");
            row["output_items"] = json!([{ "id": item["id"], "fingerprint": fingerprint }]);
            row["replay"] = Value::Null;
        }
        receipt["terminal_model_call_id"] = json!(id);
        array(&mut receipt["attempted_call_ids"]).push(json!(id));
        let response = &mut self.rollouts.last_mut().unwrap()["result"]["response"];
        response["id"] = row["response_id"].clone();
        array(&mut response["output"]).push(item);
        array(&mut self.receipts.last_mut().unwrap()["manifest"]).push(row);
        self.staged.push(record);
    }

    /// The staged record of a call.
    pub fn record(&mut self, id: &str) -> &mut Value {
        self.staged.iter_mut().rev().find(|record| record["model_call_id"] == id).unwrap()
    }

    /// The manifest row of a call.
    pub fn row(&mut self, id: &str) -> &mut Value {
        let rows = self.receipts.iter_mut().flat_map(|receipt| array(&mut receipt["manifest"]));
        rows.into_iter().find(|row| row["model_call_id"] == id).unwrap()
    }

    /// The first receipt.
    pub fn receipt(&mut self) -> &mut Value {
        &mut self.receipts[0]
    }

    /// How a call ended.
    pub fn ended(&mut self, id: &str, status: Option<&str>, reason: Option<&str>) {
        let entry = match self.schema {
            2 => {
                let calls = self.receipts.iter_mut().map(|receipt| &mut receipt["calls"]);
                &mut calls.into_iter().find(|calls| !calls[id].is_null()).unwrap()[id]
            }
            _ => self.row(id),
        };
        entry["status"] = json!(status);
        entry["finish_reason"] = json!(reason);
    }

    /// Adds a failure of a call to the receipt of the first scope.
    pub fn fail(&mut self, id: &str, reason: &str) {
        let failure = json!({ "model_call_id": id, "reason": reason });
        array(&mut self.receipt()["failures"]).push(failure);
    }

    /// The call was admitted and nothing came back: no row, no completion, no failure.
    pub fn lose(&mut self, id: &str) {
        for receipt in &mut self.receipts {
            array(&mut receipt["manifest"]).retain(|row| row["model_call_id"] != id);
            if let Some(calls) = receipt["calls"].as_object_mut() {
                calls.remove(id);
            }
        }
    }

    /// Takes a call out of what the harness returned.
    pub fn reject(&mut self, id: &str) {
        for rollout in &mut self.rollouts {
            let output = array(&mut rollout["result"]["response"]["output"]);
            output.retain(|item| item["id"] != format!("msg_{id}"));
        }
    }

    /// Makes a call the scored one.
    pub fn score(&mut self, id: &str) {
        let holds = |receipt: &Value| {
            receipt["manifest"].as_array().unwrap().iter().any(|row| row["model_call_id"] == id)
        };
        let at = self.receipts.iter().position(holds).unwrap();
        self.receipts[at]["terminal_model_call_id"] = json!(id);
        self.rollouts[at]["result"]["response"]["id"] = json!(format!("resp_{id}"));
    }

    /// Signs the record of a call again after a change, and lets its row commit to it: a forgery
    /// that only the remaining hashes can tell.
    pub fn forge(&mut self, id: &str) {
        let record = self.record(id);
        sign(record);
        let record = record.clone();
        let row = self.row(id);
        for field in SHARED {
            row[field] = record[field].clone();
        }
    }

    /// The folder that a run would have left behind.
    pub fn write(&self, home: &Path) {
        fs::create_dir_all(home).unwrap();
        for (name, lines) in [
            ("staged.jsonl", &self.staged),
            ("receipts.jsonl", &self.receipts),
            ("rollouts.jsonl", &self.rollouts),
            ("media.jsonl", &self.media),
        ] {
            if !lines.is_empty() {
                let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
                fs::write(home.join(name), text).unwrap();
            }
        }
        for (name, bytes) in &self.files {
            let path = home.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
}

/// The items of a list.
pub fn array(value: &mut Value) -> &mut Vec<Value> {
    value.as_array_mut().unwrap()
}

/// Gives a record the call digest of what it says.
pub fn sign(record: &mut Value) {
    record["digest"] = json!(call_digest(record));
}

fn hex_digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn unhex(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

fn number(out: &mut Vec<u8>, n: u64) {
    out.extend(n.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend(text.as_bytes());
}

/// `E(ids)`
fn ids(ids: &[u64]) -> Vec<u8> {
    let mut out = (ids.len() as u64).to_be_bytes().to_vec();
    ids.iter().for_each(|&id| number(&mut out, id));
    out
}

/// `F(values)`
fn floats(values: &Value) -> Vec<u8> {
    let values: Vec<f32> =
        values.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
    let mut out = (values.len() as u64).to_be_bytes().to_vec();
    values.iter().for_each(|x| out.extend(x.to_be_bytes()));
    out
}

/// Cumulative hash (b.2).
pub fn cumulative_hash(tokens: &[u64]) -> String {
    hex_digest(&[b"nemo-gym-staging-prefix-v2".to_vec(), ids(tokens)].concat())
}

/// Chain hash (b.3).
pub fn chain_hash(parent: Option<&str>, delta: &[u64]) -> String {
    let parent = match parent {
        None => vec![0],
        Some(parent) => [vec![1], hex::decode(parent).unwrap()].concat(),
    };
    hex_digest(&[b"nemo-gym-staging-chain-v1".to_vec(), parent, ids(delta)].concat())
}

/// Extras digest (b.4).
pub fn extras_digest(extras: &Value) -> String {
    fn value(out: &mut Vec<u8>, x: &Value) {
        match x {
            Value::Null => out.push(b'N'),
            Value::Bool(flag) => out.extend([b'B', u8::from(*flag)]),
            Value::Number(n) => match n.as_i64() {
                Some(n) => {
                    out.push(b'I');
                    out.extend(n.to_be_bytes());
                }
                None => {
                    out.push(b'F');
                    out.extend(n.as_f64().unwrap().to_be_bytes());
                }
            },
            Value::String(word) => {
                out.push(b'S');
                text(out, word);
            }
            Value::Array(items) => {
                out.push(b'L');
                number(out, items.len() as u64);
                items.iter().for_each(|item| value(out, item));
            }
            Value::Object(members) => {
                out.push(b'D');
                number(out, members.len() as u64);
                let members: BTreeMap<_, _> = members.iter().collect();
                for (key, member) in members {
                    text(out, key);
                    value(out, member);
                }
            }
        }
    }
    let mut out = b"nemo-gym-staging-extras-v1\x01".to_vec();
    value(&mut out, extras);
    hex_digest(&out)
}

/// Staging call digest (b.5) of what a record says.
pub fn call_digest(record: &Value) -> String {
    let word = |field: &str| record[field].as_str().unwrap();
    let size = |field: &str| record[field].as_u64().unwrap();
    let mut out = b"nemo-gym-staging-call-v2".to_vec();
    for field in ["schema_version", "digest_version", "extras_digest_version"] {
        out.push(size(field) as u8);
    }
    let scope = if record["rollout_id"].is_null() { "capture_key" } else { "rollout_id" };
    text(&mut out, word(scope));
    text(&mut out, word("model_call_id"));
    match record["parent_call_id"].as_str() {
        None => out.push(0),
        Some(parent) => {
            out.push(1);
            text(&mut out, parent);
        }
    }
    text(&mut out, word("mode"));
    for field in ["prev_len", "delta_len", "cum_len", "weight_version"] {
        number(&mut out, size(field));
    }
    let tokens: Vec<u64> = serde_json::from_value(record["token_ids_delta"].clone()).unwrap();
    let masks = floats(&record["token_mask_delta"]);
    let logprobs = floats(&record["generation_log_probs_delta"]);
    for bytes in [ids(&tokens), masks, logprobs] {
        number(&mut out, bytes.len() as u64);
        out.extend(bytes);
    }
    out.extend(unhex(&record["extras_digest"]));
    for field in ["chain_hash", "cumulative_hash"] {
        out.push(1);
        out.extend(unhex(&record[field]));
    }
    hex_digest(&out)
}

/// `assistant_fingerprint` of one message of one text part (c.3).
pub fn text_fingerprint(part: &str) -> String {
    let mut out = b"nemo-gym-lineage".to_vec();
    for (tag, word) in [(0, "text"), (1, part)] {
        out.push(tag);
        text(&mut out, word);
    }
    hex_digest(&out)
}

/// A JSON object as the package writes ledger rows and store lines: sorted keys, compact.
pub fn sorted(value: &Value) -> String {
    let members: &Map<String, Value> = value.as_object().unwrap();
    let members: BTreeMap<_, _> = members.iter().collect();
    serde_json::to_string(&members).unwrap()
}

/// The goldens that the package publishes with its tests.
#[test]
fn digests_are_the_packages_own() {
    let extras = json!({ "routed_experts": [[[1, 2]], [[3, 4]]] });
    let record = json!({
        "schema_version": 2, "digest_version": 2, "extras_digest_version": 1,
        "rollout_id": "rollout-1", "model_call_id": "call-1", "parent_call_id": "parent-1",
        "mode": "token_in", "prev_len": 3, "delta_len": 2, "cum_len": 5, "weight_version": 7,
        "token_ids_delta": [10, 11], "token_mask_delta": [0.0, 1.0],
        "generation_log_probs_delta": [0.0, -0.25],
        "extras_digest": extras_digest(&extras),
        "chain_hash": "11".repeat(32), "cumulative_hash": "22".repeat(32),
    });
    assert_eq!(
        (extras_digest(&extras).as_str(), call_digest(&record).as_str()),
        (
            "032024e899456be6e9a78c6d0399c5112d2ca7fa18d4ea9cf0d8cb7d0094f3a3",
            "1122c7fe7e914c809eb9b1c09b26d94a50c1eb2790e7430fbcd8363b846ccf27",
        )
    );
    let root = chain_hash(None, &[10, 11, 1001]);
    assert_eq!(root, "576ae2e4b04dcfc3bf0c5c9cd5b98b324bd115ecb0e1cea20d5640509c14d5e1");
    assert_eq!(
        chain_hash(Some(&root), &[20, 21, 1002]),
        "fcdf49592563345d88de0e65278ad4aa9e9caa5df54d17ae9397feb4be889b5b"
    );
    assert_eq!(
        cumulative_hash(&[10, 11, 1001, 20, 21, 1002]),
        "197840b1d203a5c66b315b1bd28efac3a99589da4f0950ab1d6e4a7c63e39ee2"
    );
}
