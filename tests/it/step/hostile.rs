//! Models that are broken, or no models at all: an error that names what is wrong, never a number.

use std::path::Path;

use forestctl::error::{Kind, Result};
use forestctl::id::Digest32;
use forestctl::step::settings::{Dtype, StepSettings};
use serde_json::{Value, json};
use tch::Device;

use super::fixture::{model, nobody, rows, settings};
use super::learner::checkpoint;
use super::learner::decoder::Decoder;
use super::learner::run::{Models, Trained, run};

const WEIGHTS: &str = "model.safetensors";

fn step(policy: &Path, settings: &StepSettings) -> Result<Trained> {
    let models = Models { policy, previous: None, reference: None };
    run(&mut rows(), models, settings, nobody())
}

fn load(dir: &Path) -> Result<Decoder> {
    Decoder::load(dir, Dtype::Float32, Device::Cpu, false)
}

/// A copy of a model whose files may be changed.
fn copy(name: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for file in ["config.json", WEIGHTS] {
        std::fs::copy(model(name).join(file), home.path().join(file)).unwrap();
    }
    home
}

/// Header and data of a safetensors file.
fn split(bytes: &[u8]) -> (Value, Vec<u8>) {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&bytes[8..8 + length]).unwrap(), bytes[8 + length..].to_vec())
}

fn join(header: &Value, data: &[u8]) -> Vec<u8> {
    let header = serde_json::to_vec(header).unwrap();
    [&(header.len() as u64).to_le_bytes()[..], &header, data].concat()
}

#[test]
fn a_weight_that_is_not_a_number_is_named_even_when_no_row_reads_it() {
    // Token 319 is in no row, and the head has weights of its own.
    assert!(rows().iter().all(|row| !row.input_ids.contains(&319)));
    let home = copy("tiny-qwen2");
    let path = home.path().join(WEIGHTS);
    let (header, data) = split(&std::fs::read(&path).unwrap());
    let name = "model.embed_tokens.weight";
    let end = header[name]["data_offsets"][1].as_u64().unwrap() as usize;
    for bad in [f32::NAN, f32::NEG_INFINITY] {
        let mut data = data.clone();
        data[end - 4..end].copy_from_slice(&bad.to_le_bytes());
        std::fs::write(&path, join(&header, &data)).unwrap();
        let error = step(home.path(), &settings(Dtype::Float32)).unwrap_err();
        assert_eq!(error.kind(), Kind::Format);
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn an_update_that_overflows_is_an_error() {
    for dtype in [Dtype::Float32, Dtype::Bfloat16] {
        let mut fast = settings(dtype);
        fast.optimizer.lr = 1e300;
        let mut decayed = settings(dtype);
        decayed.optimizer.weight_decay = 1e308;
        for settings in [fast, decayed] {
            let error = step(&model("tiny-qwen3"), &settings).unwrap_err().to_string();
            assert!(error.contains("not finite; nothing was written"), "{dtype:?}: {error}");
        }
    }
}

#[test]
fn weight_files_made_to_mislead_are_refused() {
    let home = copy("tiny-qwen3");
    let path = home.path().join(WEIGHTS);
    let (header, data) = split(&std::fs::read(&path).unwrap());
    let norm = "model.norm.weight";
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut header = header.clone();
        change(&mut header);
        join(&header, &data)
    };
    let huge = |length: u64| [&length.to_le_bytes()[..], b"{}"].concat();
    let cases = [
        ("overlap", changed(&|h| h[norm]["data_offsets"] = json!([0, 256])), "no safetensors"),
        (
            "past end",
            changed(&|h| h[norm]["data_offsets"][1] = json!(1u64 << 60)),
            "no safetensors",
        ),
        ("reversed", changed(&|h| h[norm]["data_offsets"] = json!([256, 0])), "no safetensors"),
        ("shape", changed(&|h| h[norm]["shape"] = json!([1u64 << 63, 2])), "no safetensors"),
        ("dtype", changed(&|h| h[norm]["dtype"] = json!("I32")), "stored as I32"),
        ("unknown dtype", changed(&|h| h[norm]["dtype"] = json!("F7")), "no safetensors"),
        ("long header", huge(1 << 40), "no safetensors"),
        ("endless header", huge(u64::MAX), "no safetensors"),
        ("empty header", huge(2), "hold no model.embed_tokens.weight"),
    ];
    for (what, bytes, word) in cases {
        std::fs::write(&path, bytes).unwrap();
        let error = load(home.path()).unwrap_err();
        assert_eq!(error.kind(), Kind::Format, "{what}");
        assert!(error.to_string().contains(word), "{what}: {error}");
    }
}

#[test]
fn links_that_lead_nowhere_are_an_error() {
    for file in ["config.json", WEIGHTS] {
        let home = copy("tiny-qwen3");
        std::fs::remove_file(home.path().join(file)).unwrap();
        std::os::unix::fs::symlink(file, home.path().join(file)).unwrap();
        assert!(matches!(load(home.path()).unwrap_err().kind(), Kind::Io | Kind::Format), "{file}");
    }
}

#[test]
fn the_state_of_another_trainer_is_left_alone_and_a_broken_one_is_told() {
    let home = copy("tiny-qwen3");
    let state = |text: &str| {
        std::fs::write(home.path().join("trainer_state.json"), text).unwrap();
        checkpoint::steps_behind(home.path())
    };
    assert_eq!(state(r#"{"epoch": 1.0, "log_history": []}"#).unwrap(), None);
    assert_eq!(state(r#"{"global_step": 7}"#).unwrap(), None);
    assert_eq!(state(r#"{"schema_version": 1, "global_step": 7}"#).unwrap(), Some(7));
    for (text, word) in [
        (r#"{"schema_version": 2, "global_step": 7}"#, "schema_version 2"),
        (r#"{"schema_version": 1}"#, "needs a global_step"),
        (r#"{"schema_version": 1, "global_step": 18446744073709551615}"#, "needs a global_step"),
        (r#"{"schema_version": 1, "global_step": -1}"#, "no trainer state"),
        (r#"{"log_history": [{"loss": NaN}]}"#, "no trainer state"),
    ] {
        let error = state(text).unwrap_err();
        assert!(error.to_string().contains(word), "{text}: {error}");
        assert!(error.advice().is_some_and(|help| help.contains("Remove the file")), "{text}");
    }
    // An optimizer state that this one claims to have, and has not.
    state(r#"{"schema_version": 1, "global_step": 7}"#).unwrap();
    let error = step(home.path(), &settings(Dtype::Float32)).unwrap_err();
    assert!(error.to_string().contains("optimizer.safetensors"), "{error}");
}

#[test]
fn a_checkpoint_says_its_number_format_under_every_key_that_the_model_has() {
    for (keys, left) in [
        (vec!["dtype", "torch_dtype"], vec!["dtype", "torch_dtype"]),
        (vec!["torch_dtype"], vec!["torch_dtype"]),
        (vec![], vec!["dtype"]),
    ] {
        let home = copy("tiny-qwen3");
        let path = home.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config.as_object_mut().unwrap().remove("dtype");
        keys.iter().for_each(|key| config[*key] = "bfloat16".into());
        std::fs::write(&path, config.to_string()).unwrap();
        let settings = settings(Dtype::Float64);
        let trained = step(home.path(), &settings).unwrap();
        let out = tempfile::tempdir().unwrap();
        checkpoint::write(out.path(), home.path(), &trained, &settings, Digest32([0; 32])).unwrap();
        let text = std::fs::read(out.path().join("config.json")).unwrap();
        let config: Value = serde_json::from_slice(&text).unwrap();
        for key in ["dtype", "torch_dtype"] {
            let expected = left.contains(&key).then_some("float64");
            assert_eq!(config.get(key).and_then(Value::as_str), expected, "{keys:?} {key}");
        }
    }
}
