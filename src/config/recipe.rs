//! The YAML of a NeMo-RL run, as far as the learner reads it: the sections `loss_fn` and `grpo`.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::loss::LossConfig;
use super::{GrpoSettings, MaskedRewardPolicy};
use crate::error::{Error, Result};

/// Keys of `grpo` that upstream knows and a single step has no use for.
const FOREIGN: [&str; 32] = [
    "adv_estimator",
    "async_grpo",
    "batch_multiplier",
    "calculate_advantages_on_gpu",
    "dynamic_sampling_max_gen_batches",
    "invalid_tool_call_penalty",
    "malformed_thinking_penalty",
    "max_num_epochs",
    "max_num_steps",
    "max_rollout_turns",
    "max_val_samples",
    "num_generations_per_prompt",
    "num_prompts_per_step",
    "num_val_generations_per_prompt",
    "reward_scaling",
    "reward_shaping",
    "seed",
    "skip_reference_policy_logprobs_calculation",
    "use_dynamic_sampling",
    "val_at_end",
    "val_at_start",
    "val_batch_size",
    "val_period",
    "val_start_step",
    "collect_rollout_metrics",
    "deduplicate_prompts",
    "deduplicate_multimodal_data",
    "debug_payload_metrics",
    "invalid_tool_call_advantage",
    "malformed_thinking_advantage",
    "val_start_at",
    "val_num_generations_per_prompt",
];

/// Keys that people put under `grpo`, and where they belong.
const MISPLACED: [(&str, &str); 4] = [
    ("forest_training", "token_capture.forest_training"),
    ("selection_policy", "token_capture.selection_policy"),
    ("min_valid_fraction_per_group", "token_capture.min_valid_fraction_per_group"),
    ("rollout_failure", "async_rl.rollout_failure"),
];

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recipe {
    /// `loss_fn`, with defaults for what it leaves out.
    pub loss: LossConfig,
    /// Whether `loss_fn.reference_policy_kl_penalty` was written.
    pub states_kl_penalty: bool,
    /// The keys of `grpo` that matter here.
    pub grpo: GrpoKeys,
    /// Sections, and keys of `grpo`, that were passed over.
    pub ignored: Vec<String>,
}

/// Keys of `grpo` that bear on advantages and filters; `None` where the file is silent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpoKeys {
    /// Pooled errors above this mask a rollout (rule 115).
    pub seq_logprob_error_threshold: Option<f64>,
    /// Divide by the standard deviation of the rewards.
    pub normalize_rewards: Option<bool>,
    /// Leave the owner's own reward out of its baseline.
    pub use_leave_one_out_baseline: Option<bool>,
    /// Lower bound of advantages.
    pub advantage_clip_low: Option<f64>,
    /// Upper bound of advantages.
    pub advantage_clip_high: Option<f64>,
    /// Length stops carry no loss.
    pub overlong_filtering: Option<bool>,
    /// Who votes in the baseline.
    pub masked_reward_policy: Option<MaskedRewardPolicy>,
}

impl Recipe {
    /// Reads a YAML file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("cannot read", path, e))?;
        let named = |e: Error| {
            let help = e.advice().unwrap_or("Key names are those of NeMo-RL").to_owned();
            Error::usage(format!("{}: {e}", path.display())).help(help)
        };
        let value: Value = serde_saphyr::from_str(&text).map_err(|e| {
            Error::usage(format!("{} is not YAML", path.display())).because(e.to_string())
        })?;
        Self::parse(&value).map_err(named)
    }

    /// Reads the content of the file. An unknown key in a section that is read is an error.
    pub fn parse(document: &Value) -> Result<Self> {
        let empty = Map::new();
        let sections = match document {
            Value::Object(map) => map,
            Value::Null => &empty,
            _ => return Err(Error::usage("the top level is not a mapping")),
        };
        let mut recipe = Self::default();
        for (name, section) in sections {
            match (name.as_str(), section) {
                ("loss_fn", Value::Object(keys)) => {
                    recipe.loss = typed("loss_fn", keys)?;
                    recipe.states_kl_penalty = keys.contains_key("reference_policy_kl_penalty");
                }
                ("grpo", Value::Object(keys)) => {
                    refuse_unsupported(keys)?;
                    let (foreign, ours): (Map<_, _>, Map<_, _>) = keys
                        .clone()
                        .into_iter()
                        .partition(|(key, _)| FOREIGN.contains(&key.as_str()));
                    recipe.grpo = typed("grpo", &ours)?;
                    recipe.ignored.extend(foreign.keys().map(|key| format!("grpo.{key}")));
                }
                ("loss_fn" | "grpo", Value::Null) => {}
                ("loss_fn" | "grpo", _) => {
                    return Err(Error::usage(format!("{name} is not a mapping")));
                }
                ("token_capture", Value::Object(keys)) => {
                    refuse_renamed(keys)?;
                    recipe.ignored.push(name.clone());
                }
                _ => recipe.ignored.push(name.clone()),
            }
        }
        recipe.loss.check()?;
        Ok(recipe)
    }
}

impl GrpoKeys {
    /// The first key that contradicts how rows were built, as a sentence.
    pub fn contradiction(&self, built: &GrpoSettings) -> Option<String> {
        fn differ<T: PartialEq + Serialize>(
            key: &str,
            wanted: Option<T>,
            built: Option<T>,
        ) -> Option<String> {
            let text = |x: &Option<T>| serde_json::to_string(x).unwrap_or_default();
            (wanted.is_some() && wanted != built).then(|| {
                format!(
                    "grpo.{key} is {}, and the rows were built with {}",
                    text(&wanted),
                    text(&built)
                )
            })
        }
        differ("normalize_rewards", self.normalize_rewards, Some(built.normalize))
            .or_else(|| {
                let built = Some(built.leave_one_out);
                differ("use_leave_one_out_baseline", self.use_leave_one_out_baseline, built)
            })
            .or_else(|| {
                differ("advantage_clip_low", self.advantage_clip_low, built.advantage_clip_low)
            })
            .or_else(|| {
                differ("advantage_clip_high", self.advantage_clip_high, built.advantage_clip_high)
            })
            .or_else(|| {
                let built = Some(built.overlong_filtering);
                differ("overlong_filtering", self.overlong_filtering, built)
            })
            .or_else(|| {
                let built = Some(built.masked_reward_policy);
                differ("masked_reward_policy", self.masked_reward_policy, built)
            })
    }
}

/// What a forest cannot have (rule 12).
fn refuse_unsupported(grpo: &Map<String, Value>) -> Result<()> {
    for section in ["reward_shaping", "reward_scaling"] {
        if grpo.get(section).and_then(|s| s.get("enabled")) == Some(&Value::Bool(true)) {
            return Err(Error::usage(format!(
                "grpo.{section}.enabled must be false: rewards are the environment's"
            )));
        }
    }
    for key in ["use_dynamic_sampling", "calculate_advantages_on_gpu"] {
        if grpo.get(key) == Some(&Value::Bool(true)) {
            return Err(Error::usage(format!("grpo.{key} must be false")));
        }
    }
    for key in ["invalid_tool_call_advantage", "malformed_thinking_advantage"] {
        if grpo.get(key).is_some_and(|value| !value.is_null()) {
            return Err(Error::usage(format!(
                "grpo.{key} must be null: a rollout has one advantage, whatever its messages"
            )));
        }
    }
    for (key, place) in MISPLACED {
        if grpo.contains_key(key) {
            return Err(Error::usage(format!("grpo has no key {key}"))
                .help(format!("It is written {place}")));
        }
    }
    match grpo.get("adv_estimator").and_then(|e| e.get("name")).and_then(Value::as_str) {
        None | Some("grpo") => Ok(()),
        Some(other) => Err(Error::usage(format!(
            "grpo.adv_estimator.name is {other:?}; forests have grpo advantages"
        ))),
    }
}

/// Refuses what an earlier release called forest training (rule 2).
fn refuse_renamed(token_capture: &Map<String, Value>) -> Result<()> {
    match token_capture.get("context_compaction") {
        None => Ok(()),
        Some(value) => Err(Error::usage(
            "token_capture.context_compaction is now token_capture.forest_training",
        )
        .help(format!("Rename the key and keep its value: forest_training: {value}"))),
    }
}

/// Reads the keys of a section one by one, so that an error can name the key.
fn typed<T: DeserializeOwned + Default + Serialize>(
    section: &str,
    keys: &Map<String, Value>,
) -> Result<T> {
    let defaults = serde_json::to_value(T::default()).unwrap_or_default();
    let known = || defaults.as_object().into_iter().flat_map(Map::keys);
    for (key, value) in keys {
        if !known().any(|k| k == key) {
            let error = Error::usage(format!("{section} has no key {key}"));
            return Err(match nearest(key, known().map(String::as_str)) {
                Some(name) => error.help(format!("Did you mean {name}?")),
                None => error,
            });
        }
        let alone = Map::from_iter([(key.clone(), value.clone())]);
        serde_json::from_value::<T>(Value::Object(alone))
            .map_err(|e| Error::usage(format!("{section}.{key}: {e}")))?;
    }
    serde_json::from_value(Value::Object(keys.clone()))
        .map_err(|e| Error::usage(format!("{section}: {e}")))
}

/// The known name that a mistyped one most likely means.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|k| (strsim::jaro_winkler(name, k), k))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Result<Recipe> {
        Recipe::parse(&serde_saphyr::from_str(yaml).unwrap())
    }

    #[test]
    fn sections_of_the_learner_are_read_and_others_named() {
        let recipe = parse(
            "loss_fn: {ratio_clip_max: 0.28, ratio_clip_c: 3}\n\
             grpo: {seq_logprob_error_threshold: 2, num_prompts_per_step: 8}\n\
             cluster: {gpus_per_node: 8}\n",
        )
        .unwrap();
        assert_eq!((recipe.loss.ratio_clip_max, recipe.loss.ratio_clip_c), (0.28, Some(3.0)));
        assert!(!recipe.states_kl_penalty);
        assert_eq!(recipe.grpo.seq_logprob_error_threshold, Some(2.0));
        assert_eq!(recipe.ignored, ["cluster", "grpo.num_prompts_per_step"]);
        assert!(parse("loss_fn: {reference_policy_kl_penalty: 0}").unwrap().states_kl_penalty);
        assert_eq!(parse("").unwrap(), Recipe::default());
    }

    #[test]
    fn mistyped_keys_and_values_are_errors_that_name_them() {
        let cases = [
            ("loss_fn: {ratio_clip_maximum: 1}", "no key ratio_clip_maximum", "ratio_clip_max?"),
            ("grpo: {seq_logprob_eror_threshold: 1}", "no key seq_logprob_eror", "_error_thresh"),
            ("loss_fn: {ratio_clip_max: wide}", "loss_fn.ratio_clip_max", ""),
            ("loss_fn: {reference_policy_kl_type: k4}", "loss_fn.reference_policy_kl_type", ""),
            ("grpo: {reward_shaping: {enabled: true}}", "grpo.reward_shaping.enabled", ""),
            ("grpo: {adv_estimator: {name: gdpo}}", "gdpo", ""),
            ("grpo: {calculate_advantages_on_gpu: true}", "calculate_advantages_on_gpu must", ""),
            ("grpo: {invalid_tool_call_advantage: -1}", "invalid_tool_call_advantage must", ""),
            ("grpo: {forest_training: true}", "no key forest_training", "token_capture.forest"),
            (
                "token_capture: {context_compaction: true}",
                "is now token_capture.forest_training",
                "forest_training: true",
            ),
            ("loss_fn: [1]", "loss_fn is not a mapping", ""),
            ("[1]", "not a mapping", ""),
            ("loss_fn: {use_cispo: true, ratio_clip_c: 3}", "ratio_clip_c", ""),
        ];
        for (yaml, message, help) in cases {
            let error = parse(yaml).unwrap_err();
            assert!(error.to_string().contains(message), "{yaml}: {error}");
            assert!(error.advice().unwrap_or_default().contains(help), "{yaml}");
        }
    }

    #[test]
    fn keys_of_other_stages_are_passed_over_and_told() {
        let recipe = parse(
            "grpo: {invalid_tool_call_advantage: null, calculate_advantages_on_gpu: false}\n\
             token_capture: {enabled: true, forest_training: true}",
        );
        let ignored = recipe.unwrap().ignored;
        let expected = [
            "grpo.calculate_advantages_on_gpu",
            "grpo.invalid_tool_call_advantage",
            "token_capture",
        ];
        assert_eq!(ignored, expected);
    }

    #[test]
    fn contradictions_with_the_rows_are_told() {
        let built = GrpoSettings::default();
        let keys = |yaml| parse(yaml).unwrap().grpo.contradiction(&built);
        assert_eq!(keys("grpo: {normalize_rewards: true}"), None);
        assert!(keys("grpo: {normalize_rewards: false}").unwrap().contains("is false"));
        assert!(keys("grpo: {advantage_clip_low: -5}").unwrap().contains("built with null"));
    }
}
