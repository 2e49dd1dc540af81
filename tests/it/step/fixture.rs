//! The closed-loop reference data as rows, models and expected numbers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use forestctl::config::GrpoSettings;
use forestctl::config::loss::LossConfig;
use forestctl::rows::Row;
use forestctl::step::settings::{
    AdamW, DeviceChoice, Dtype, Layout, Schedule, Sharing, StepSettings,
};
use safetensors::tensor::{Dtype as FileDtype, SafeTensors};
use serde_json::{Value, json};

use super::learner::Observer;

/// A path below `testdata/closed-loop`.
pub fn closed_loop(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/closed-loop").join(path)
}

/// A model directory. Tests run side by side already, so each keeps libtorch to its own thread.
pub fn model(name: &str) -> PathBuf {
    tch::set_num_threads(1);
    closed_loop("models").join(name)
}

/// What the oracle expects under `returned_history`.
pub fn expected() -> &'static Value {
    static EXPECTED: OnceLock<Value> = OnceLock::new();
    EXPECTED.get_or_init(|| {
        let text = std::fs::read(closed_loop("seed1/expected/expected.json")).unwrap();
        let mut all: Value = serde_json::from_slice(&text).unwrap();
        all["policies"]["returned_history"].take()
    })
}

/// All tensors of a safetensors file as float64, with their shapes.
pub fn tensors(path: &std::path::Path) -> BTreeMap<String, Vec<f64>> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let numbers = |name: &str| {
        let view = file.tensor(name).unwrap();
        let data = view.data();
        match view.dtype() {
            FileDtype::F64 => data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
            FileDtype::F32 => {
                data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect()
            }
            FileDtype::BF16 => data
                .as_chunks::<2>()
                .0
                .iter()
                .map(|b| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16).into())
                .collect(),
            FileDtype::I64 => {
                data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect()
            }
            FileDtype::I32 => {
                data.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect()
            }
            FileDtype::U8 => data.iter().map(|b| f64::from(*b)).collect(),
            other => panic!("{name}: {other:?}"),
        }
    };
    file.names().into_iter().map(|name| (name.to_owned(), numbers(name))).collect()
}

/// The tensors of `seed1/expected/{name}.safetensors`.
pub fn expected_tensors(name: &str) -> BTreeMap<String, Vec<f64>> {
    tensors(&closed_loop(&format!("seed1/expected/{name}.safetensors")))
}

/// Splits a concatenation over all rows.
pub fn by_row(values: &[f64], offsets: &[f64]) -> Vec<Vec<f64>> {
    offsets.windows(2).map(|w| values[w[0] as usize..w[1] as usize].to_vec()).collect()
}

/// The 27 real rows, with default advantages.
pub fn rows() -> Vec<Row> {
    let stored = expected_tensors("rows_returned_history");
    let of = |name: &str| by_row(&stored[name], &stored["row_offsets"]);
    let (ids, masks, logprobs) = (of("input_ids"), of("loss_mask"), of("generation_logprobs"));
    let owners = owners();
    let listed = expected()["rows"].as_array().unwrap();
    assert_eq!(listed.len(), ids.len());
    listed
        .iter()
        .enumerate()
        .map(|(i, row)| {
            let text = |key: &str| row[key].as_str().unwrap();
            let number = |key: &str| row[key].as_u64().unwrap() as u32;
            let owner = &owners[text("rollout_id")];
            Row {
                row_id: text("row_id").to_owned(),
                group_id: text("group_id").into(),
                rollout_id: Some(text("rollout_id").into()),
                slot: Some(number("slot")),
                group_size: 4,
                segment: number("segment"),
                segment_count: number("segment_count"),
                is_execution_padding: false,
                uses_borrowed_input: false,
                input_ids: ids[i].iter().map(|&id| id as u32).collect(),
                loss_mask: masks[i].iter().map(|&m| m as u8).collect(),
                generation_logprobs: logprobs[i].iter().map(|&x| x as f32).collect(),
                spans: serde_json::from_value(row["spans"].clone()).unwrap(),
                reward: Some(owner.reward),
                advantage: owner.advantage,
                sample_mask: 1.0,
                truncated: owner.truncated,
                mask_reason: None,
                routes: None,
                media: Vec::new(),
            }
        })
        .collect()
}

struct Owner {
    reward: f64,
    advantage: f64,
    truncated: bool,
}

fn owners() -> BTreeMap<String, Owner> {
    let advantages = &expected()["advantages"];
    let case =
        "filter=none;masked_reward_policy=exclude;leave_one_out=true;normalize=true;clip=none";
    let advantage = &advantages["cases"][case]["advantage"];
    let truncated: BTreeMap<_, _> = expected()["rollouts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["rollout_id"].as_str().unwrap(), r["truncated"].as_bool().unwrap()))
        .collect();
    let names = advantages["rollouts"].as_array().unwrap();
    names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let name = name.as_str().unwrap();
            let owner = Owner {
                reward: advantages["rewards"][i].as_f64().unwrap(),
                advantage: advantage[i].as_f64().unwrap(),
                truncated: truncated[name],
            };
            (name.to_owned(), owner)
        })
        .collect()
}

/// Nobody watches.
pub fn nobody<'a>() -> Observer<'a> {
    Observer {
        progress: &|_, _, _| {},
        told: Box::new(|_, _| Ok(())),
        profile: false,
        read_seconds: 0.0,
    }
}

/// Packs of so many tokens in which no row shares anything; row by row without a number.
pub fn separate(pack_tokens: Option<u64>) -> Layout {
    Layout { pack_tokens, share_prefixes: Sharing::Never }
}

/// The settings of the oracle's optimizer step, without a KL penalty.
pub fn settings(dtype: Dtype) -> StepSettings {
    StepSettings {
        dtype,
        device: DeviceChoice::Cpu,
        seed: 0,
        pack_tokens: Some(1000),
        share_prefixes: Default::default(),
        attention: Default::default(),
        schedule: Schedule::default(),
        deterministic: false,
        optimizer: AdamW {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
            max_grad_norm: 1.0,
        },
        loss: LossConfig { reference_policy_kl_penalty: 0.0, ..LossConfig::default() },
        seq_logprob_error_threshold: None,
        grpo: GrpoSettings::default(),
    }
}

/// The oracle's options: those of `loss_fn`, with no KL penalty unless stated. Its `kl_gradient`
/// is `plain` unless stated, and one of its values is an option of its own here, whose weight
/// takes part in the gradient.
pub fn loss_config(options: &Value) -> LossConfig {
    let mut merged = json!({ "reference_policy_kl_penalty": 0.0, "kl_gradient": "plain" });
    for (key, value) in options.as_object().unwrap() {
        merged[key] = value.clone();
    }
    if merged["kl_gradient"] == "on_policy_approximation" {
        merged["kl_gradient"] = "score_function".into();
        merged["use_on_policy_kl_approximation"] = true.into();
    }
    serde_json::from_value(merged).unwrap()
}

/// Asserts that two numbers agree within `tolerance`, relative to the expected one.
pub fn close(found: f64, expected: f64, tolerance: f64, what: &str) {
    let bound = tolerance * expected.abs().max(f64::MIN_POSITIVE);
    assert!((found - expected).abs() <= bound, "{what}: found {found}, expected {expected}");
}

/// `||a - b|| / ||b||`.
pub fn relative_distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
}
