//! Gym file stores and ledgers, as the package writes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::capture::sorted;

/// The files of one scope.
#[derive(Clone, Debug)]
pub struct Store {
    key: String,
    /// Entries in file order.
    pub entries: Vec<Value>,
    /// What follows the last line.
    pub tail: Vec<u8>,
    /// `.tokens.intents`; `None` leaves the file out.
    pub intents: Option<Vec<String>>,
    /// `.tokens.state.json`; `None` leaves the file out.
    pub state: Option<Value>,
    sequences: BTreeMap<String, Vec<u64>>,
}

impl Store {
    /// Root `a` and its child `b` in scope `0-0`, with intents and state.
    pub fn pair() -> Self {
        let mut store = Self::of("0-0");
        store.call("a", None, &[1, 2], &[3, 4]);
        store.call("b", Some("a"), &[5], &[6, 7]);
        store
    }

    /// A scope without a call.
    pub fn of(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            entries: Vec::new(),
            tail: Vec::new(),
            intents: Some(Vec::new()),
            state: Some(json!({
                "entry_digests": {}, "frozen": false, "incomplete": false, "indexed_size": 0,
                "retired": false, "snapshot_id": "", "version": 0,
            })),
            sequences: BTreeMap::new(),
        }
    }

    /// Appends the entry of a call, and indexes it.
    pub fn call(&mut self, id: &str, parent: Option<&str>, carry: &[u64], generation: &[u64]) {
        let before = parent.map_or_else(Vec::new, |parent| self.sequences[parent].clone());
        let prompt = [before, carry.to_vec()].concat();
        let whole = [prompt.clone(), generation.to_vec()].concat();
        self.entries.push(json!({
            "schema_version": 1, "rollout_id": self.key, "model_call_id": id, "model": "m",
            "prompt_token_ids": prompt, "generation_token_ids": generation,
            "generation_log_probs": vec![-0.5; generation.len()], "routed_experts": null,
            "output_items": [{
                "id": format!("msg_{id}"), "type": "message", "role": "assistant",
                "content": [{ "type": "output_text", "text": format!("answer {id}") }],
            }],
            "token_item_index": 0, "response_id": format!("resp_{id}"), "created_at": 1.0,
            "parent_call_id": parent, "cum_len": whole.len(), "digest": entry_digest(&whole),
            "parent_resolution": if parent.is_some() { "resolved" } else { "root" },
            "parent_resolution_reason": "", "continuation_fingerprint": "",
            "continuation_context_len": 0, "continuation_context_digest": "",
            "fingerprint_version": 2, "prompt_is_delta": false,
            "prefix_requested": false, "prefix_supplied": false,
        }));
        self.sequences.insert(id.to_owned(), whole);
        self.intents.as_mut().unwrap().push(id.to_owned());
        self.index();
    }

    /// The entry of a call.
    pub fn entry(&mut self, id: &str) -> &mut Value {
        self.entries.iter_mut().find(|entry| entry["model_call_id"] == id).unwrap()
    }

    /// Lets the state index the entries as they are now.
    pub fn index(&mut self) {
        let lines: Vec<String> = self.entries.iter().map(sorted).collect();
        let digests: BTreeMap<&str, String> = self
            .entries
            .iter()
            .zip(&lines)
            .map(|(entry, line)| {
                (entry["model_call_id"].as_str().unwrap(), hex::encode(Sha256::digest(line)))
            })
            .collect();
        let size: usize = lines.iter().map(|line| line.len() + 1).sum();
        let state = self.state.as_mut().unwrap();
        state["entry_digests"] = json!(digests);
        state["indexed_size"] = json!(size);
        state["version"] = json!(lines.len());
    }

    /// Writes the files of the scope into `home`.
    pub fn write(&self, home: &Path) {
        fs::create_dir_all(home).unwrap();
        let path = |suffix: &str| home.join(format!("{}.tokens.{suffix}", self.key));
        let mut tokens: Vec<u8> = self
            .entries
            .iter()
            .flat_map(|entry| format!("{}\n", sorted(entry)).into_bytes())
            .collect();
        tokens.extend(&self.tail);
        fs::write(path("jsonl"), tokens).unwrap();
        fs::write(path("lock"), "").unwrap();
        if let Some(intents) = &self.intents {
            let text: String = intents.iter().map(|id| format!("{id}\n")).collect();
            fs::write(path("intents"), text).unwrap();
        }
        if let Some(state) = &self.state {
            fs::write(path("state.json"), format!("{state}\n")).unwrap();
        }
    }
}

/// Entry digest v1 (b.6).
pub fn entry_digest(tokens: &[u64]) -> String {
    let mut out = b"nemo-gym-tokens".to_vec();
    if !tokens.is_empty() {
        out.push(1);
        out.extend((tokens.len() as u64).to_be_bytes());
        tokens.iter().for_each(|id| out.extend(id.to_be_bytes()));
    }
    hex::encode(Sha256::digest(out))
}

impl Store {
    /// The rollouts line of the scope, in Gym's names.
    pub fn write_rollouts(&self, home: &Path) {
        let output: Vec<Value> = self
            .entries
            .iter()
            .flat_map(|e| e["output_items"].as_array().unwrap().clone())
            .collect();
        let scored = self.entries.last().map(|entry| &entry["response_id"]);
        let line = json!({
            "_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0,
            "response": { "id": scored, "object": "response", "output": output },
        });
        fs::write(home.join("rollouts.jsonl"), format!("{line}\n")).unwrap();
    }
}

/// Gym's token-free ledger of a staged scope, a row per manifest row of its receipt (d.3).
pub fn ledger(receipt: &Value) -> Vec<Value> {
    let row = |row: &Value| {
        let mut ledger = json!({
            "fingerprint": "", "context_len": 0, "context_digest": "", "staging_chain": [],
            "digest": row["cumulative_hash"], "staging_digest": row["digest"],
        });
        for key in [
            "model_call_id",
            "parent_call_id",
            "staging_key",
            "weight_version",
            "prev_len",
            "delta_len",
            "cum_len",
            "extras_digest",
            "mode",
            "admitted_at",
            "chain_hash",
            "cumulative_hash",
            "response_id",
            "output_fingerprint",
            "continuation_fingerprint",
            "fingerprint_version",
        ] {
            ledger[key] = row[key].clone();
        }
        ledger
    };
    receipt["manifest"].as_array().unwrap().iter().map(row).collect()
}
