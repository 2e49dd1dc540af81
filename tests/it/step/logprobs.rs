//! Next-token log-probabilities of every model, dtype and configuration spelling.

use std::path::Path;

use forestctl::step::plan::pack::Pack;
use forestctl::step::settings::Dtype;
use safetensors::SafeTensors;
use serde_json::Value;
use tch::Device;

use super::fixture::{by_row, closed_loop, expected_tensors, model, rows, tensors};
use super::learner::decoder::Decoder;
use super::learner::tensor::to_f64;

const SEQUENCES: [&str; 4] = ["len1", "len7", "len64", "len300"];

fn reference() -> Value {
    let text = std::fs::read(closed_loop("models/reference.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn load(dir: &Path, dtype: Dtype) -> Decoder {
    Decoder::load(dir, dtype, Device::Cpu, false).unwrap()
}

/// Log-softmax over the vocabulary after every token, row-major.
fn distributions(decoder: &Decoder, ids: &[u32]) -> Vec<f64> {
    let _guard = tch::no_grad_guard();
    to_f64(&decoder.log_softmax(&decoder.hidden(&Pack::of_one(ids, &[])).unwrap()).unwrap())
        .unwrap()
}

fn greatest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn every_model_gives_the_reference() {
    let reference = reference();
    let lasts = tensors(&closed_loop("models/reference.safetensors"));
    let models = reference["models"].as_object().unwrap();
    assert_eq!(models.len(), 7);
    for (name, numbers_of) in models {
        for (dtype, suffix, tolerance) in
            [(Dtype::Float64, "f64", 1e-10), (Dtype::Float32, "hf_f32", 1e-5)]
        {
            let decoder = load(&model(name), dtype);
            let vocab = decoder.architecture.vocab_size;
            for sequence in SEQUENCES {
                let ids: Vec<u32> =
                    serde_json::from_value(reference["sequences"][sequence].clone()).unwrap();
                let targets: Vec<_> = (1..ids.len()).collect();
                let found = decoder.score(&Pack::of_one(&ids, &targets)).unwrap();
                let expected = numbers(&numbers_of[sequence][&format!("token_logprobs_{suffix}")]);
                let off = greatest_difference(&found, &expected[1..]);
                assert!(off <= tolerance, "{name} {sequence} {suffix}: {off:e}");

                let all = distributions(&decoder, &ids);
                let last = &lasts[&format!("{name}.{sequence}.last_distribution_{suffix}")];
                let off = greatest_difference(&all[all.len() - vocab..], last);
                assert!(off <= tolerance, "{name} {sequence} {suffix} last: {off:e}");
                if (sequence, suffix) == ("len7", "f64") {
                    let full = &lasts[&format!("{name}.len7.full_f64")];
                    assert!(greatest_difference(&all, full) <= tolerance, "{name} full");
                }
            }
        }
    }
}

/// Biases of attention and MLP, a Llama with a tied head, plain rotary embedding, as many key heads
/// as query heads, a Qwen3 in four shards with a head of its own: what the closed-loop models lack.
#[test]
fn the_other_forms_of_the_families_give_the_reference() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/models");
    let text = std::fs::read(home.join("reference.json")).unwrap();
    let reference: Value = serde_json::from_slice(&text).unwrap();
    let ids: Vec<u32> = serde_json::from_value(reference["ids"].clone()).unwrap();
    let targets: Vec<_> = (1..ids.len()).collect();
    let models = reference["models"].as_object().unwrap();
    assert_eq!(models.len(), 4);
    for (name, expected) in models {
        for (dtype, suffix, tolerance) in
            [(Dtype::Float64, "f64", 1e-10), (Dtype::Float32, "hf_f32", 1e-5)]
        {
            let decoder = load(&home.join(name), dtype);
            let found = decoder.score(&Pack::of_one(&ids, &targets)).unwrap();
            let expected = numbers(&expected[&format!("token_logprobs_{suffix}")]);
            let off = greatest_difference(&found, &expected[1..]);
            assert!(off <= tolerance, "{name} {suffix}: {off:e}");
        }
    }
}

/// A head that is said to be the embedding and is another, and one that is not there.
#[test]
fn heads_that_contradict_the_configuration_are_an_error() {
    let edit = |name: &str, config: &[(&str, &str)], head: Option<&str>| {
        let home = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(model(name).join("config.json")).unwrap();
        let edited = config.iter().fold(text, |text, (from, to)| {
            assert!(text.contains(from));
            text.replace(from, to)
        });
        std::fs::write(home.path().join("config.json"), edited).unwrap();
        let bytes = std::fs::read(model(name).join("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let mut tensors: Vec<_> =
            file.tensors().into_iter().filter(|(name, _)| name != "lm_head.weight").collect();
        if let Some(of) = head {
            tensors.push(("lm_head.weight".to_owned(), file.tensor(of).unwrap()));
        }
        let path = home.path().join("model.safetensors");
        safetensors::serialize_to_file(tensors, None, &path).unwrap();
        Decoder::load(home.path(), Dtype::Float32, Device::Cpu, true)
    };
    let tie = ("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    let untie = ("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    let (embedding, head) = ("model.embed_tokens.weight", "lm_head.weight");
    assert!(edit("tiny-qwen3", &[], Some(embedding)).is_ok(), "a copy of the embedding");
    let error = edit("tiny-qwen2", &[tie], Some(head)).unwrap_err();
    assert!(error.to_string().contains("tie_word_embeddings is true"), "{error}");
    assert!(error.advice().unwrap().contains("false"), "{error:?}");
    let error = edit("tiny-qwen3", &[untie], None).unwrap_err();
    assert!(error.to_string().contains("tie_word_embeddings is false"), "{error}");
    assert!(error.advice().unwrap().contains("true"), "{error:?}");
}

#[test]
fn the_older_spelling_of_config_json_gives_the_same_numbers() {
    let ids: Vec<u32> = serde_json::from_value(reference()["sequences"]["len64"].clone()).unwrap();
    for name in ["tiny-qwen3", "tiny-qwen2", "tiny-llama", "tiny-qwen3-bf16"] {
        let legacy = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(model(name)).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, legacy.path().join(path.file_name().unwrap())).unwrap();
        }
        std::fs::copy(model(name).join("config.legacy.json"), legacy.path().join("config.json"))
            .unwrap();
        let numbers = |dir: &Path| distributions(&load(dir, Dtype::Float64), &ids);
        assert_eq!(numbers(&model(name)), numbers(legacy.path()), "{name}");
    }
}

#[test]
fn rows_score_as_the_oracle_says() {
    let stored = expected_tensors("rows_returned_history");
    let cases = [
        ("tiny-qwen3", Dtype::Float64, "prev_logprobs_f64", 1e-10),
        ("tiny-qwen3", Dtype::Float32, "prev_logprobs_hf_f32", 1e-5),
        ("tiny-qwen3-prev", Dtype::Float64, "old_prev_logprobs_f64", 1e-10),
        ("tiny-qwen3-ref", Dtype::Float64, "reference_logprobs_f64", 1e-10),
    ];
    let rows = rows();
    for (name, dtype, tensor, tolerance) in cases {
        let decoder = load(&model(name), dtype);
        let expected = by_row(&stored[tensor], &stored["row_offsets"]);
        for (row, expected) in rows.iter().zip(expected) {
            let targets: Vec<_> = (1..row.input_ids.len()).collect();
            let found = decoder.score(&Pack::of_one(&row.input_ids, &targets)).unwrap();
            let off = greatest_difference(&found, &expected[1..]);
            assert!(off <= tolerance, "{tensor} {}: {off:e}", row.row_id);
        }
    }
}

#[test]
fn bfloat16_stays_near_float64() {
    let ids: Vec<u32> = serde_json::from_value(reference()["sequences"]["len64"].clone()).unwrap();
    let numbers = |dtype| distributions(&load(&model("tiny-qwen3-bf16"), dtype), &ids);
    let off = greatest_difference(&numbers(Dtype::Bfloat16), &numbers(Dtype::Float64));
    assert!(off > 1e-4 && off < 0.5, "{off:e}");
}

#[test]
fn ids_beyond_the_vocabulary_are_an_error() {
    let decoder = load(&model("tiny-qwen3"), Dtype::Float32);
    let error = decoder.score(&Pack::of_one(&[1, 320], &[1])).unwrap_err();
    assert!(error.to_string().contains("token 1 is 320"), "{error}");
}

#[test]
fn weights_that_do_not_fit_the_configuration_are_an_error() {
    let broken = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(model("tiny-qwen3").join("config.json")).unwrap();
    // Another family is refused by its class, too; here, its weights are to be.
    let text = text.replace("\"architectures\"", "\"was\"");
    let weights = model("tiny-qwen3").join("model.safetensors");
    std::fs::copy(weights, broken.path().join("model.safetensors")).unwrap();
    let cases = [
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "hold no model.layers.2."),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "model.layers.1.input_layernorm"),
        ("\"intermediate_size\": 128", "\"intermediate_size\": 256", "has shape [128, 64]"),
        ("\"model_type\": \"qwen3\"", "\"model_type\": \"llama\"", "k_norm.weight and 3 more"),
        ("\"model_type\": \"qwen3\"", "\"model_type\": \"mamba\"", "\"mamba\" is not supported"),
    ];
    for (from, to, word) in cases {
        assert!(text.contains(from));
        std::fs::write(broken.path().join("config.json"), text.replace(from, to)).unwrap();
        let error = Decoder::load(broken.path(), Dtype::Float32, Device::Cpu, true)
            .unwrap_err()
            .to_string();
        assert!(error.contains(word), "{to}: {error}");
    }
}
