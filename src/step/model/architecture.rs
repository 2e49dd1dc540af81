//! `config.json` of a Hugging Face decoder, in the spelling of transformers 5 and the older one.

use std::path::Path;

use serde_json::{Map, Value};

use super::rope::{Llama3, Rope};
use crate::error::{Error, Result};

const SUPPORTED: &str = "Supported are dense Llama, Qwen2 and Qwen3 text decoders with full \
                         attention, in float32, bfloat16 or float16 safetensors";

/// Model families that differ in where biases and norms sit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `model_type: llama`.
    Llama,
    /// `model_type: qwen2`: biases on query, key and value.
    Qwen2,
    /// `model_type: qwen3`: a norm on every query and key head.
    Qwen3,
}

/// Everything that decides how weights become logits.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    /// Family.
    pub family: Family,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the gated MLP.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// Epsilon of every RMSNorm.
    pub rms_norm_eps: f64,
    /// Rotary embedding.
    pub rope: Rope,
    /// Biases on query, key and value projections.
    pub qkv_bias: bool,
    /// Bias on the output projection.
    pub output_bias: bool,
    /// Biases in the MLP.
    pub mlp_bias: bool,
    /// RMSNorm over each query and key head.
    pub qk_norm: bool,
    /// The head is the embedding.
    pub tied_embeddings: bool,
    /// Longest context that the model is meant for.
    pub max_position_embeddings: Option<usize>,
    /// Dtype that the weights were saved in, as spelled.
    pub dtype: Option<String>,
}

impl Architecture {
    /// Reads `config.json` of a model directory.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).map_err(|e| Error::io("cannot read", path, e))?;
        let value: Value = serde_json::from_slice(&text)
            .map_err(|e| Error::format(format!("{} is not JSON", path.display())).because(e))?;
        Self::parse(&value).map_err(|problem| {
            Error::format(format!("{}: {problem}", path.display())).help(SUPPORTED)
        })
    }

    /// Reads the content of `config.json`; the error names the key.
    pub fn parse(config: &Value) -> Result<Self, String> {
        let config = Keys { map: config.as_object().ok_or("the top level is not an object")? };
        let family = family(&config)?;
        refuse_what_changes_the_model(&config)?;
        let heads = config.count("num_attention_heads")?;
        let hidden_size = config.count("hidden_size")?;
        let bias = config.flag("attention_bias")?.unwrap_or(false);
        let architecture = Self {
            family,
            vocab_size: config.count("vocab_size")?,
            hidden_size,
            intermediate_size: config.count("intermediate_size")?,
            layers: config.count("num_hidden_layers")?,
            heads,
            kv_heads: config.count_or("num_key_value_heads", heads)?,
            head_dim: config.count_or("head_dim", hidden_size / heads)?,
            rms_norm_eps: config.positive("rms_norm_eps")?.unwrap_or(1e-6),
            rope: rope(&config)?,
            qkv_bias: bias || family == Family::Qwen2,
            output_bias: bias && family != Family::Qwen2,
            mlp_bias: family == Family::Llama && config.flag("mlp_bias")?.unwrap_or(false),
            qk_norm: family == Family::Qwen3,
            tied_embeddings: config.flag("tie_word_embeddings")?.unwrap_or(false),
            max_position_embeddings: match config.get("max_position_embeddings") {
                None => None,
                Some(_) => Some(config.count("max_position_embeddings")?),
            },
            dtype: config.text("dtype")?.or(config.text("torch_dtype")?).map(str::to_owned),
        };
        architecture.check()
    }

    fn check(self) -> Result<Self, String> {
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(format!(
                "num_attention_heads {} is no multiple of num_key_value_heads {}",
                self.heads, self.kv_heads
            ));
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) {
            return Err(format!("head_dim {} is not even", self.head_dim));
        }
        Ok(self)
    }
}

fn family(config: &Keys) -> Result<Family, String> {
    match config.text("model_type")? {
        Some("llama") => Ok(Family::Llama),
        Some("qwen2") => Ok(Family::Qwen2),
        Some("qwen3") => Ok(Family::Qwen3),
        Some(other) => Err(format!("model_type {other:?} is not supported")),
        None => Err("model_type is missing".to_owned()),
    }
}

/// Keys that are not read, but would make the model another one.
fn refuse_what_changes_the_model(config: &Keys) -> Result<(), String> {
    let structures = [
        "quantization_config",
        "vision_config",
        "text_config",
        "audio_config",
        "num_experts",
        "num_local_experts",
        "n_routed_experts",
    ];
    for key in structures {
        if config.get(key).is_some_and(|v| v.as_u64() != Some(0)) {
            return Err(format!("{key} is set, and such models are not supported"));
        }
    }
    if let Some(act) = config.text("hidden_act")?
        && act != "silu"
    {
        return Err(format!("hidden_act {act:?} is not supported; silu is"));
    }
    if config.flag("use_sliding_window")? == Some(true) {
        return Err("use_sliding_window is true; only full attention is supported".to_owned());
    }
    if let Some(types) = config.get("layer_types") {
        let types = types.as_array().ok_or("layer_types is not a list")?;
        if let Some(other) = types.iter().find(|t| t.as_str() != Some("full_attention")) {
            return Err(format!("layer_types holds {other}; only full_attention is supported"));
        }
    }
    for (key, neutral) in [("attention_dropout", 0.0), ("partial_rotary_factor", 1.0)] {
        if let Some(x) = config.number(key)?
            && x != neutral
        {
            return Err(format!("{key} is {x}; only {neutral} is supported"));
        }
    }
    Ok(())
}

/// `rope_parameters` of transformers 5; before, `rope_theta` and `rope_scaling`.
fn rope(config: &Keys) -> Result<Rope, String> {
    let (key, scaling) = match (config.get("rope_parameters"), config.get("rope_scaling")) {
        (Some(new), Some(old)) if new != old => {
            return Err("rope_parameters and rope_scaling contradict each other".to_owned());
        }
        (Some(v), _) => ("rope_parameters", Some(v)),
        (None, Some(v)) => ("rope_scaling", Some(v)),
        (None, None) => ("rope_scaling", None),
    };
    let Some(scaling) = scaling else {
        return Ok(Rope { theta: config.positive("rope_theta")?.unwrap_or(10000.0), llama3: None });
    };
    let scaling = Keys { map: scaling.as_object().ok_or(format!("{key} is not an object"))? };
    let in_key = |problem: String| format!("{key}.{problem}");
    if let Some((name, _)) = scaling.map.iter().find(|(_, v)| v.is_object()) {
        return Err(format!(
            "{key}.{name} is an object; only one embedding for all layers is supported"
        ));
    }
    let theta = match scaling.positive("rope_theta").map_err(in_key)? {
        Some(theta) => theta,
        None => config.positive("rope_theta")?.unwrap_or(10000.0),
    };
    if let Some(factor) = scaling.number("partial_rotary_factor").map_err(in_key)?
        && factor != 1.0
    {
        return Err(format!("{key}.partial_rotary_factor is {factor}; only 1 is supported"));
    }
    let kind = match scaling.text("rope_type").map_err(in_key)? {
        Some(kind) => Some(kind),
        None => scaling.text("type").map_err(in_key)?,
    };
    let llama3 = match kind {
        None | Some("default") => None,
        Some("llama3") => {
            let need = |name| {
                scaling
                    .positive(name)
                    .and_then(|v| v.ok_or(format!("{name} is missing")))
                    .map_err(in_key)
            };
            let llama3 = Llama3 {
                factor: need("factor")?,
                low_freq_factor: need("low_freq_factor")?,
                high_freq_factor: need("high_freq_factor")?,
                original_context: need("original_max_position_embeddings")?,
            };
            if llama3.high_freq_factor <= llama3.low_freq_factor {
                return Err(format!("{key}.high_freq_factor must exceed low_freq_factor"));
            }
            Some(llama3)
        }
        Some(other) => {
            return Err(format!(
                "{key}.rope_type {other:?} is not supported; default and llama3 are"
            ));
        }
    };
    Ok(Rope { theta, llama3 })
}

/// An object whose keys are read with a type; null counts as absent.
struct Keys<'a> {
    map: &'a Map<String, Value>,
}

impl<'a> Keys<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn count(&self, key: &str) -> Result<usize, String> {
        let value = self.get(key).ok_or_else(|| format!("{key} is missing"))?;
        // Anything larger is no model, and products of two such numbers still fit.
        value
            .as_u64()
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| (1..=1 << 30).contains(n))
            .map(|n| n as usize)
            .ok_or_else(|| format!("{key} is {value}; a positive whole number was expected"))
    }

    fn count_or(&self, key: &str, default: usize) -> Result<usize, String> {
        if self.get(key).is_some() { self.count(key) } else { Ok(default) }
    }

    fn number(&self, key: &str) -> Result<Option<f64>, String> {
        let number =
            |v: &Value| v.as_f64().ok_or_else(|| format!("{key} is {v}; a number was expected"));
        self.get(key).map(number).transpose()
    }

    fn positive(&self, key: &str) -> Result<Option<f64>, String> {
        match self.number(key)? {
            Some(x) if x <= 0.0 => Err(format!("{key} is {x}; it must be positive")),
            x => Ok(x),
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        let flag = |v: &Value| {
            v.as_bool().ok_or_else(|| format!("{key} is {v}; true or false was expected"))
        };
        self.get(key).map(flag).transpose()
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        let text =
            |v: &'a Value| v.as_str().ok_or_else(|| format!("{key} is {v}; a text was expected"));
        self.get(key).map(text).transpose()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn models() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/closed-loop/models")
    }

    #[test]
    fn both_spellings_say_the_same() {
        for model in ["tiny-qwen3", "tiny-qwen3-bf16", "tiny-qwen2", "tiny-llama"] {
            let read = |name| Architecture::read(&models().join(model).join(name)).unwrap();
            assert_eq!(read("config.json"), read("config.legacy.json"), "{model}");
        }
    }

    #[test]
    fn families_differ_where_they_should() {
        let read = |model| Architecture::read(&models().join(model).join("config.json")).unwrap();
        let (qwen3, qwen2, llama) = (read("tiny-qwen3"), read("tiny-qwen2"), read("tiny-llama"));
        assert!(qwen3.qk_norm && !qwen3.qkv_bias && qwen3.tied_embeddings);
        assert!(!qwen2.qk_norm && qwen2.qkv_bias && !qwen2.output_bias && !qwen2.tied_embeddings);
        assert!(!llama.qk_norm && !llama.qkv_bias && llama.rope.llama3.is_some());
        assert_eq!((qwen2.head_dim, qwen3.kv_heads, llama.rms_norm_eps), (16, 2, 1e-5));
    }

    #[test]
    fn unsupported_models_are_refused_by_the_exact_key() {
        let text = std::fs::read_to_string(models().join("tiny-qwen3/config.json")).unwrap();
        let base: Value = serde_json::from_str(&text).unwrap();
        let cases = [
            ("model_type", json!("qwen3_moe"), "model_type \"qwen3_moe\""),
            ("num_experts", json!(128), "num_experts"),
            ("quantization_config", json!({"quant_method": "fp8"}), "quantization_config"),
            ("vision_config", json!({}), "vision_config"),
            ("use_sliding_window", json!(true), "use_sliding_window"),
            ("layer_types", json!(["full_attention", "sliding_attention"]), "layer_types"),
            ("rope_parameters", json!({"rope_type": "yarn"}), "rope_parameters.rope_type \"yarn\""),
            (
                "rope_parameters",
                json!({"type": "dynamic"}),
                "rope_parameters.rope_type \"dynamic\"",
            ),
            (
                "rope_parameters",
                json!({"full_attention": {"rope_type": "default"}}),
                "rope_parameters.full_attention",
            ),
            ("rope_scaling", json!({"rope_type": "yarn"}), "rope_scaling contradict"),
            ("rms_norm_eps", json!(-1e-6), "rms_norm_eps is -0.000001"),
            ("model_type", json!("mixtral"), "model_type \"mixtral\""),
            ("model_type", json!("gemma3_text"), "model_type \"gemma3_text\""),
            ("num_attention_heads", json!(0), "num_attention_heads is 0"),
            ("num_attention_heads", json!(5), "num_key_value_heads 2"),
            ("hidden_size", json!(1e300), "hidden_size is 1e+300"),
            ("hidden_act", json!("gelu"), "hidden_act"),
            ("attention_dropout", json!(0.1), "attention_dropout"),
            ("head_dim", json!(15), "head_dim 15"),
            ("num_key_value_heads", json!(3), "num_key_value_heads 3"),
            ("hidden_size", json!(-1), "hidden_size is -1"),
            ("num_hidden_layers", json!(u64::MAX), "num_hidden_layers"),
            ("vocab_size", Value::Null, "vocab_size is missing"),
        ];
        for (key, value, word) in cases {
            let mut config = base.clone();
            config[key] = value;
            let problem = Architecture::parse(&config).unwrap_err();
            assert!(problem.contains(word), "{key}: {problem}");
        }
    }
}
