//! Keys of `config.json` that make the model another one than the decoder computes.
//!
//! A key that is not read is harmless only when it changes no number. Those that do, in any model
//! that `transformers` loads, are listed here with the values that leave the computation as it is;
//! every other value is refused by the key. `null` counts as absent.

use serde_json::{Map, Value};

use super::architecture::Family;

/// Values of a key that change nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Neutral {
    /// False, zero, or empty.
    Off,
    /// This number.
    Number(f64),
    /// True.
    On,
    /// One of these words.
    Word(&'static [&'static str]),
}

impl Neutral {
    fn holds(self, value: &Value) -> bool {
        match (self, value) {
            (Neutral::Off, Value::Bool(on)) => !on,
            (Neutral::Off, Value::Number(_)) => value.as_f64() == Some(0.0),
            (Neutral::Off, Value::String(text)) => text.is_empty(),
            (Neutral::Off, Value::Array(list)) => list.is_empty(),
            // An empty object of a structure still says that there is one.
            (Neutral::Off, _) => false,
            (Neutral::Number(x), _) => value.as_f64() == Some(x),
            (Neutral::On, _) => value.as_bool() == Some(true),
            (Neutral::Word(words), _) => value.as_str().is_some_and(|word| words.contains(&word)),
        }
    }
}

const EXPERTS: &str = "mixtures of experts are not computed";
const MODALITY: &str = "only text is computed";
const QUANTIZED: &str = "quantized weights are not computed; take the model in 16 or 32 bits";
const WINDOW: &str = "every layer attends to the whole context here";
const ATTENTION: &str =
    "attention is causal, over one set of heads, scaled by the root of head_dim";
const SCALES: &str = "embeddings, residuals and logits are not scaled or capped here";
const ROTARY: &str = "every layer turns the whole of each head, in halves";
const ACTIVATION: &str = "the MLP is gated by silu";
const DROPOUT: &str = "nothing is dropped out, so that policies can be compared";
const LAYERS: &str = "all layers are alike, and each has its own weights";

/// Every key that is refused, with what leaves it neutral and why the rest is not computed.
const GUARDS: &[(&str, Neutral, &str)] = &[
    ("num_experts", Neutral::Off, EXPERTS),
    ("num_local_experts", Neutral::Off, EXPERTS),
    ("n_routed_experts", Neutral::Off, EXPERTS),
    ("n_shared_experts", Neutral::Off, EXPERTS),
    ("moe_num_experts", Neutral::Off, EXPERTS),
    ("num_experts_per_tok", Neutral::Off, EXPERTS),
    ("moe_intermediate_size", Neutral::Off, EXPERTS),
    ("shared_expert_intermediate_size", Neutral::Off, EXPERTS),
    ("vision_config", Neutral::Off, MODALITY),
    ("audio_config", Neutral::Off, MODALITY),
    ("speech_config", Neutral::Off, MODALITY),
    ("text_config", Neutral::Off, MODALITY),
    ("thinker_config", Neutral::Off, MODALITY),
    ("mm_vision_tower", Neutral::Off, MODALITY),
    ("quantization_config", Neutral::Off, QUANTIZED),
    ("compression_config", Neutral::Off, QUANTIZED),
    ("use_sliding_window", Neutral::Off, WINDOW),
    ("attention_chunk_size", Neutral::Off, WINDOW),
    ("dual_chunk_attention_config", Neutral::Off, WINDOW),
    ("is_causal", Neutral::On, ATTENTION),
    ("use_bidirectional_attention", Neutral::Off, ATTENTION),
    ("is_encoder_decoder", Neutral::Off, ATTENTION),
    ("add_cross_attention", Neutral::Off, ATTENTION),
    ("cross_attention_layers", Neutral::Off, ATTENTION),
    ("query_pre_attn_scalar", Neutral::Off, ATTENTION),
    ("attention_multiplier", Neutral::Off, ATTENTION),
    ("attn_logit_softcapping", Neutral::Off, ATTENTION),
    ("attn_temperature_tuning", Neutral::Off, ATTENTION),
    ("clip_qkv", Neutral::Off, ATTENTION),
    ("kv_lora_rank", Neutral::Off, ATTENTION),
    ("q_lora_rank", Neutral::Off, ATTENTION),
    ("qk_layernorm", Neutral::Off, ATTENTION),
    ("use_qk_norm", Neutral::Off, ATTENTION),
    ("alibi", Neutral::Off, ATTENTION),
    ("final_logit_softcapping", Neutral::Off, SCALES),
    ("logit_scale", Neutral::Number(1.0), SCALES),
    ("logits_scaling", Neutral::Number(1.0), SCALES),
    ("embedding_multiplier", Neutral::Number(1.0), SCALES),
    ("residual_multiplier", Neutral::Number(1.0), SCALES),
    ("partial_rotary_factor", Neutral::Number(1.0), ROTARY),
    ("rotary_pct", Neutral::Number(1.0), ROTARY),
    ("rope_interleave", Neutral::Off, ROTARY),
    ("rope_interleaved", Neutral::Off, ROTARY),
    ("no_rope_layers", Neutral::Off, ROTARY),
    ("no_rope_layer_interval", Neutral::Off, ROTARY),
    ("rope_local_base_freq", Neutral::Off, ROTARY),
    ("hidden_act", Neutral::Word(&["silu", "swish"]), ACTIVATION),
    ("hidden_activation", Neutral::Word(&["silu", "swish"]), ACTIVATION),
    ("activation_function", Neutral::Word(&["silu", "swish"]), ACTIVATION),
    ("attention_dropout", Neutral::Number(0.0), DROPOUT),
    ("hidden_dropout", Neutral::Number(0.0), DROPOUT),
    ("resid_pdrop", Neutral::Number(0.0), DROPOUT),
    ("embd_pdrop", Neutral::Number(0.0), DROPOUT),
    ("parallel_attn", Neutral::Off, LAYERS),
    ("use_parallel_residual", Neutral::Off, LAYERS),
    ("num_kv_shared_layers", Neutral::Off, LAYERS),
    ("num_nextn_predict_layers", Neutral::Off, LAYERS),
    ("per_layer_config", Neutral::Off, LAYERS),
    ("block_configs", Neutral::Off, LAYERS),
    (
        "auto_map",
        Neutral::Off,
        "code that comes with a model is not run; remove the key if the \
                                model is a plain one",
    ),
];

/// Refuses whatever would need another computation; the message begins with the key and its value.
pub fn check(config: &Map<String, Value>, family: Family) -> Result<(), String> {
    let get = |key: &str| config.get(key).filter(|value| !value.is_null());
    let refuse =
        |key: &str, value: &Value, why: &str| Err(format!("{key} is {}: {why}", shown(value)));
    for (key, neutral, why) in GUARDS {
        if let Some(value) = get(key).filter(|value| !neutral.holds(value)) {
            return refuse(key, value, why);
        }
    }
    if let Some(types) = get("layer_types")
        && !types.as_array().is_some_and(|types| types.iter().all(|t| t == "full_attention"))
    {
        return refuse("layer_types", types, WINDOW);
    }
    // Qwen models state a window that only use_sliding_window turns on; to engines, that of a
    // Llama is on.
    if family == Family::Llama
        && get("use_sliding_window").is_none()
        && let Some(window) = get("sliding_window").filter(|value| !Neutral::Off.holds(value))
    {
        return refuse("sliding_window", window, WINDOW);
    }
    // Of these families, Llama alone has biases in its MLP.
    if family != Family::Llama
        && let Some(bias) = get("mlp_bias").filter(|value| !Neutral::Off.holds(value))
    {
        return refuse("mlp_bias", bias, "a Qwen model has no biases in its MLP");
    }
    if let Some(names) = get("architectures")
        && !names.as_array().is_some_and(|names| names.iter().all(|name| name == family.class()))
    {
        return refuse("architectures", names, &format!("only {} is computed", family.class()));
    }
    Ok(())
}

/// A value in few letters.
fn shown(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::super::Architecture;
    use super::*;

    fn config(model: &str) -> Value {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/closed-loop/models");
        let text = std::fs::read(models.join(model).join("config.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    fn outcome(model: &str, key: &str, value: Value) -> Result<Architecture, String> {
        let mut config = config(model);
        config[key] = value;
        Architecture::parse(&config)
    }

    /// What a model that has the key says there.
    fn foreign(key: &str) -> Value {
        match key {
            "hidden_act" | "hidden_activation" | "activation_function" => {
                json!("gelu_pytorch_tanh")
            }
            "is_causal" => json!(false),
            "quantization_config" => json!({"quant_method": "fp8"}),
            "compression_config" => json!({"format": "pack-quantized"}),
            "vision_config" | "audio_config" | "speech_config" | "text_config"
            | "thinker_config" => json!({}),
            "mm_vision_tower" => json!("openai/clip-vit-large-patch14"),
            "dual_chunk_attention_config" => json!({"chunk_size": 262_144}),
            "auto_map" => json!({"AutoModelForCausalLM": "modeling.Mine"}),
            "per_layer_config" | "block_configs" => json!([{"attention": {"no_op": true}}]),
            "no_rope_layers" | "cross_attention_layers" => json!([1, 0]),
            "use_sliding_window"
            | "use_bidirectional_attention"
            | "is_encoder_decoder"
            | "add_cross_attention"
            | "attn_temperature_tuning"
            | "qk_layernorm"
            | "use_qk_norm"
            | "alibi"
            | "rope_interleave"
            | "rope_interleaved"
            | "parallel_attn"
            | "use_parallel_residual" => json!(true),
            "attention_dropout" | "hidden_dropout" | "resid_pdrop" | "embd_pdrop" => json!(0.1),
            "partial_rotary_factor" | "rotary_pct" => json!(0.5),
            "attention_multiplier" | "logit_scale" | "logits_scaling" => json!(0.0625),
            _ => json!(8),
        }
    }

    #[test]
    fn every_listed_key_is_refused_by_name_and_value_and_passes_when_neutral() {
        for (key, neutral, why) in GUARDS {
            for model in ["tiny-qwen3", "tiny-qwen2", "tiny-llama"] {
                let value = foreign(key);
                let problem = outcome(model, key, value.clone()).unwrap_err();
                let told = format!("{key} is {}: {why}", shown(&value));
                assert_eq!(problem, told, "{model}");
                let harmless = match neutral {
                    Neutral::Off => vec![json!(false), json!(0), json!([]), json!("")],
                    Neutral::Number(x) => vec![json!(x), json!(*x as i64)],
                    Neutral::On => vec![json!(true)],
                    Neutral::Word(words) => words.iter().map(|word| json!(word)).collect(),
                };
                for value in harmless.into_iter().chain([Value::Null]) {
                    let outcome = outcome(model, key, value.clone());
                    assert!(outcome.is_ok(), "{model} {key} {value}: {outcome:?}");
                }
            }
        }
    }

    #[test]
    fn what_depends_on_the_family_is_refused_where_it_counts() {
        let refused = |model, key, value: Value| {
            let problem = outcome(model, key, value.clone()).unwrap_err();
            assert!(problem.starts_with(&format!("{key} is {value}: ")), "{problem}");
        };
        refused("tiny-llama", "sliding_window", json!(4096));
        refused("tiny-qwen2", "mlp_bias", json!(true));
        refused("tiny-qwen3", "mlp_bias", json!(true));
        for model in ["tiny-llama", "tiny-qwen2", "tiny-qwen3"] {
            refused(model, "layer_types", json!(["full_attention", "sliding_attention"]));
            refused(model, "layer_types", json!("full_attention"));
            refused(model, "architectures", json!(["Qwen3ForSequenceClassification"]));
            refused(model, "architectures", json!(["MistralForCausalLM"]));
        }
        // Qwen2.5 states a window and leaves it off.
        for model in ["tiny-qwen2", "tiny-qwen3"] {
            assert!(outcome(model, "sliding_window", json!(131072)).is_ok());
        }
        assert!(outcome("tiny-llama", "mlp_bias", json!(true)).unwrap().mlp_bias);
        assert!(outcome("tiny-llama", "attention_bias", json!(true)).unwrap().output_bias);
        assert!(outcome("tiny-qwen3", "attention_bias", json!(true)).unwrap().qkv_bias);
    }

    #[test]
    fn long_values_are_cut() {
        let problem = outcome("tiny-qwen3", "layer_types", json!(vec!["é"; 99])).unwrap_err();
        assert!(problem.contains("...: ") && problem.len() < 200, "{problem}");
    }
}
