//! `config.json` of a Hugging Face decoder, in the spelling of transformers 5 and the older one.

use std::path::Path;

use serde_json::{Map, Value};

use super::refusals;
use super::rope::{Llama3, Rope};
use crate::error::{Error, Result};

const SUPPORTED: &str = "Take a dense text decoder of the families Llama (up to 3.3), Qwen2 and \
                         Qwen2.5, or Qwen3: full attention, rotary embedding of type default or \
                         llama3, and float32, bfloat16 or float16 safetensors";

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

impl Family {
    /// The class of `transformers` that is computed.
    pub fn class(self) -> &'static str {
        match self {
            Family::Llama => "LlamaForCausalLM",
            Family::Qwen2 => "Qwen2ForCausalLM",
            Family::Qwen3 => "Qwen3ForCausalLM",
        }
    }
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
        refusals::check(config.map, family)?;
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
            kv_heads: match config.map.get("num_key_value_heads") {
                // What transformers takes when the key itself is missing.
                None if family != Family::Llama => 32,
                _ => config.count_or("num_key_value_heads", heads)?,
            },
            head_dim: head_dim(&config, family, hidden_size, heads)?,
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
        Some(other) => Err(format!(
            "model_type {other:?} is not supported; \"llama\", \"qwen2\" and \"qwen3\" are"
        )),
        None => Err("model_type is missing".to_owned()),
    }
}

/// Width of a head: stated, or what transformers takes without.
fn head_dim(config: &Keys, family: Family, hidden: usize, heads: usize) -> Result<usize, String> {
    match (config.get("head_dim"), family) {
        (Some(_), _) => config.count("head_dim"),
        (None, Family::Qwen3) => Ok(128),
        (None, _) if hidden.is_multiple_of(heads) => Ok(hidden / heads),
        (None, _) => Err(format!(
            "head_dim is missing, and hidden_size {hidden} is no multiple of \
             num_attention_heads {heads}"
        )),
    }
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
    if scaling.get("mrope_section").is_some() {
        return Err(format!("{key}.mrope_section is set; positions of images are not computed"));
    }
    let kind = match scaling.text("rope_type").map_err(in_key)? {
        Some(kind) => Some(kind),
        None => scaling.text("type").map_err(in_key)?,
    };
    let llama3 = match kind {
        None | Some("default") => {
            if let Some(factor) = scaling.number("factor").map_err(in_key)?.filter(|f| *f != 1.0) {
                return Err(format!(
                    "{key}.factor is {factor}, and without a rope_type it stretches nothing"
                ));
            }
            None
        }
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
            ("model_type", json!("qwen2_vl"), "model_type \"qwen2_vl\""),
            ("model_type", json!("llama4"), "\"llama\", \"qwen2\" and \"qwen3\" are"),
            ("model_type", Value::Null, "model_type is missing"),
            ("rope_parameters", json!({"rope_type": "yarn"}), "rope_parameters.rope_type \"yarn\""),
            (
                "rope_parameters",
                json!({"type": "dynamic"}),
                "rope_parameters.rope_type \"dynamic\"",
            ),
            ("rope_parameters", json!({"type": "linear", "factor": 2}), "rope_type \"linear\""),
            ("rope_parameters", json!({"rope_type": "longrope"}), "rope_type \"longrope\""),
            (
                "rope_parameters",
                json!({"mrope_section": [2, 3, 3]}),
                "rope_parameters.mrope_section",
            ),
            ("rope_parameters", json!({"factor": 4.0}), "rope_parameters.factor is 4"),
            (
                "rope_parameters",
                json!({"rope_type": "llama3", "factor": 8}),
                "low_freq_factor is missing",
            ),
            (
                "rope_parameters",
                json!({"partial_rotary_factor": 0.5}),
                "partial_rotary_factor is 0.5",
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

    #[test]
    fn what_is_missing_is_what_transformers_takes() {
        let without = |model: &str, keys: &[&str]| {
            let text = std::fs::read_to_string(models().join(model).join("config.json")).unwrap();
            let mut config: Value = serde_json::from_str(&text).unwrap();
            keys.iter().for_each(|key| drop(config.as_object_mut().unwrap().remove(*key)));
            config["num_attention_heads"] = json!(32);
            Architecture::parse(&config)
        };
        let keys = ["head_dim", "num_key_value_heads", "rms_norm_eps", "tie_word_embeddings"];
        for (model, head_dim) in [("tiny-qwen3", 128), ("tiny-qwen2", 2), ("tiny-llama", 2)] {
            let found = without(model, &keys).unwrap();
            assert_eq!((found.head_dim, found.kv_heads), (head_dim, 32), "{model}");
            assert_eq!((found.rms_norm_eps, found.tied_embeddings), (1e-6, false), "{model}");
        }
        let mut uneven = json!({"model_type": "llama", "hidden_size": 65});
        for key in ["vocab_size", "intermediate_size", "num_hidden_layers"] {
            uneven[key] = json!(4);
        }
        uneven["num_attention_heads"] = json!(4);
        let problem = Architecture::parse(&uneven).unwrap_err();
        assert!(problem.contains("hidden_size 65 is no multiple"), "{problem}");
    }

    #[test]
    fn an_error_names_the_file_and_what_is_supported() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config.json");
        std::fs::write(&path, r#"{"model_type": "qwen3", "num_experts": 128}"#).unwrap();
        let error = Architecture::read(&path).unwrap_err();
        let told = format!("{}: num_experts is 128", path.display());
        assert!(error.to_string().starts_with(&told), "{error}");
        assert!(error.advice().unwrap().contains("Qwen2.5"), "{error:?}");
    }
}
