//! The keys of each section: which are read, which belong to other stages, which no forest has.

use std::num::{NonZeroU32, NonZeroU64};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reader::Reader;
use crate::config::loss::LossConfig;
use crate::config::{
    Fraction, GrpoSettings, MaskedRewardPolicy, MicrobatchOrder, PackingAlgorithm,
};

/// `token_capture`; `None` where the file is silent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenCaptureKeys {
    /// Captures are kept.
    pub enabled: Option<bool>,
    /// Rows are those of forests.
    pub forest_training: Option<bool>,
    /// Which captured calls train.
    pub selection_policy: Option<String>,
    /// Routes wait for the policy; direct assembly needs them at once.
    pub defer_routed_experts_to_policy: Option<bool>,
    /// Share of a group's rollouts that must have a verified layout.
    pub min_valid_fraction_per_group: Option<Fraction>,
}

/// `policy`; `None` where the file is silent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyKeys {
    /// Rollouts of a step.
    pub train_global_batch_size: Option<u64>,
    /// Rows of a training microbatch.
    pub train_micro_batch_size: Option<NonZeroU32>,
    /// Rows of a log-probability microbatch.
    pub logprob_batch_size: Option<NonZeroU32>,
    /// The length of every packed row is a multiple of this.
    pub make_sequence_length_divisible_by: Option<NonZeroU64>,
    /// `megatron_cfg.enabled`.
    pub megatron_enabled: Option<bool>,
    /// `automodel_cfg.enabled`.
    pub automodel_enabled: Option<bool>,
    /// `dynamic_batching.enabled`.
    pub dynamic_batching: Option<bool>,
    /// `sequence_packing.enabled`.
    pub sequence_packing: Option<bool>,
    /// `sequence_packing.algorithm`.
    pub packing_algorithm: Option<PackingAlgorithm>,
    /// `sequence_packing.train_mb_tokens`: tokens of a bin.
    pub train_mb_tokens: Option<NonZeroU64>,
    /// `sequence_packing.microbatch_order`.
    pub microbatch_order: Option<MicrobatchOrder>,
}

/// Keys of `grpo` that bear on rows, advantages and filters; `None` where the file is silent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GrpoKeys {
    /// Prompt groups of a step.
    pub num_prompts_per_step: Option<NonZeroU32>,
    /// Rollouts of a prompt group.
    pub num_generations_per_prompt: Option<NonZeroU32>,
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

/// `async_rl.rollout_failure`; `None` where the file is silent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolloutFailureKeys {
    /// Groups that may be dropped over the whole run.
    pub max_skipped_prompts: Option<u32>,
    /// Groups that may be dropped one after the other.
    pub max_consecutive_dropped_prompts: Option<u32>,
    /// Share of the step's prompt groups that must be kept.
    pub min_step_batch_fraction: Option<Fraction>,
}

pub(super) fn token_capture(reader: &mut Reader) -> TokenCaptureKeys {
    const SECTION: &str = "token_capture";
    let known = [
        "enabled",
        "forest_training",
        "selection_policy",
        "defer_routed_experts_to_policy",
        "min_valid_fraction_per_group",
        // Refused below.
        "context_compaction",
    ];
    let foreign = ["staging_partition", "control_timeout_s", "num_reassembler_workers"];
    reader.sort(SECTION, &known, &foreign);
    if let Some(value) = reader.value("token_capture.context_compaction") {
        let message = "token_capture.context_compaction is now token_capture.forest_training";
        let help = format!("Rename the key and keep its value: forest_training: {value}");
        reader.refuse_by(2, "token_capture.context_compaction", message.to_owned(), help);
    }
    TokenCaptureKeys {
        enabled: reader.read("token_capture.enabled"),
        forest_training: reader.read("token_capture.forest_training"),
        selection_policy: reader.read("token_capture.selection_policy"),
        defer_routed_experts_to_policy: reader.read("token_capture.defer_routed_experts_to_policy"),
        min_valid_fraction_per_group: fraction(
            reader,
            "token_capture.min_valid_fraction_per_group",
        ),
    }
}

/// Keys of `policy` that other stages read.
const POLICY_FOREIGN: [&str; 34] = [
    "activation_checkpointing_enabled",
    "context_parallel_size",
    "custom_parallel_plan",
    "draft",
    "dtensor_cfg",
    "env_vars",
    "fsdp_offload_enabled",
    "generation",
    "generation_batch_size",
    "hf_config_overrides",
    "hf_overrides",
    "is_mdlm",
    "is_vlm",
    "learning_rate",
    "logprob_chunk_size",
    "lora_cfg",
    "max_grad_norm",
    "max_total_sequence_length",
    "megatron_lora_cfg",
    "model_name",
    "offload_optimizer_for_logprob",
    "optimizer",
    "pad_to_multiple_of",
    "peft",
    "precision",
    "quant_calib_size",
    "quant_cfg",
    "refit_buffer_size_gb",
    "reward_model_cfg",
    "router_replay",
    "scheduler",
    "sequence_parallel_enabled",
    "tokenizer",
    "worker_extension_cls_fqn",
];

pub(super) fn policy(reader: &mut Reader) -> PolicyKeys {
    let known = [
        "train_global_batch_size",
        "train_micro_batch_size",
        "logprob_batch_size",
        "make_sequence_length_divisible_by",
        "megatron_cfg",
        "automodel_cfg",
        "dynamic_batching",
        "sequence_packing",
    ];
    reader.sort("policy", &known, &POLICY_FOREIGN);
    let packing = ["enabled", "algorithm", "train_mb_tokens", "microbatch_order"];
    let foreign = ["logprob_mb_tokens", "sequence_length_round", "fuse_loss"];
    reader.sort("policy.sequence_packing", &packing, &foreign);
    PolicyKeys {
        train_global_batch_size: reader.read("policy.train_global_batch_size"),
        train_micro_batch_size: reader.read("policy.train_micro_batch_size"),
        logprob_batch_size: reader.read("policy.logprob_batch_size"),
        make_sequence_length_divisible_by: reader.read("policy.make_sequence_length_divisible_by"),
        megatron_enabled: reader.read("policy.megatron_cfg.enabled"),
        automodel_enabled: reader.read("policy.automodel_cfg.enabled"),
        dynamic_batching: reader.read("policy.dynamic_batching.enabled"),
        sequence_packing: reader.read("policy.sequence_packing.enabled"),
        packing_algorithm: reader.read("policy.sequence_packing.algorithm"),
        train_mb_tokens: reader.read("policy.sequence_packing.train_mb_tokens"),
        microbatch_order: reader.read("policy.sequence_packing.microbatch_order"),
    }
}

/// Keys of `grpo` that other stages read, or that are refused with other values than these stages
/// have.
const GRPO_FOREIGN: [&str; 30] = [
    "adv_estimator",
    "async_grpo",
    "batch_multiplier",
    "calculate_advantages_on_gpu",
    "collect_rollout_metrics",
    "debug_payload_metrics",
    "deduplicate_multimodal_data",
    "deduplicate_prompts",
    "dynamic_sampling_max_gen_batches",
    "invalid_tool_call_advantage",
    "invalid_tool_call_penalty",
    "malformed_thinking_advantage",
    "malformed_thinking_penalty",
    "max_num_epochs",
    "max_num_steps",
    "max_rollout_turns",
    "max_val_samples",
    "num_val_generations_per_prompt",
    "reward_scaling",
    "reward_shaping",
    "seed",
    "skip_reference_policy_logprobs_calculation",
    "use_dynamic_sampling",
    "val_at_end",
    "val_at_start",
    "val_batch_size",
    "val_num_generations_per_prompt",
    "val_period",
    "val_start_at",
    "val_start_step",
];

/// Keys that people put under `grpo`, and where they belong.
const MISPLACED: [(&str, &str); 4] = [
    ("forest_training", "token_capture.forest_training"),
    ("selection_policy", "token_capture.selection_policy"),
    ("min_valid_fraction_per_group", "token_capture.min_valid_fraction_per_group"),
    ("rollout_failure", "async_rl.rollout_failure"),
];

pub(super) fn grpo(reader: &mut Reader) -> GrpoKeys {
    for (key, place) in MISPLACED {
        let path = format!("grpo.{key}");
        if reader.value(&path).is_some() {
            reader.stated.remove(&path);
            reader.refuse(
                &path,
                format!("grpo has no key {key}"),
                format!("It is written {place}"),
            );
        }
    }
    let misplaced = MISPLACED.map(|(key, _)| key);
    let foreign = [&GRPO_FOREIGN[..], &misplaced].concat();
    let keys = reader.section("grpo", &foreign);
    reader.ignored.retain(|key| !misplaced.iter().any(|name| *key == format!("grpo.{name}")));
    refuse_shaping(reader);
    keys
}

/// What a forest cannot have (rules 9 and 12).
fn refuse_shaping(reader: &mut Reader) {
    let is_true = |value: &Value| *value == Value::Bool(true);
    let is_set = |value: &Value| !value.is_null() && value.as_f64() != Some(0.0);
    let rewards = "rewards are the environment's";
    let whole = "a rollout has one advantage, whatever its messages";
    type Broken = fn(&Value) -> bool;
    let refused: [(u32, &str, Broken, &str, &str); 9] = [
        (12, "grpo.reward_shaping.enabled", is_true, "false", rewards),
        (12, "grpo.reward_scaling.enabled", is_true, "false", rewards),
        (12, "grpo.use_dynamic_sampling", is_true, "false", "the groups of a step are those kept"),
        (9, "grpo.calculate_advantages_on_gpu", is_true, "false", "owners are whole on the host"),
        (12, "grpo.invalid_tool_call_penalty", is_set, "null", rewards),
        (12, "grpo.malformed_thinking_penalty", is_set, "null", rewards),
        (12, "grpo.invalid_tool_call_advantage", |v| !v.is_null(), "null", whole),
        (12, "grpo.malformed_thinking_advantage", |v| !v.is_null(), "null", whole),
        (12, "grpo.adv_estimator.name", |v| v != "grpo", "grpo", "forests have its advantages"),
    ];
    for (rule, key, broken, wanted, why) in refused {
        if reader.value(key).is_some_and(|value| broken(&value)) {
            let message = format!("{key} must be {wanted}: {why}");
            reader.refuse_by(rule, key, message, format!("Set it to {wanted}, or remove it"));
        }
        reader.stated.remove(key);
    }
}

/// Keys of `loss_fn` that change nothing here.
const LOSS_FOREIGN: [&str; 1] = ["use_fused_loss"];

pub(super) fn loss(reader: &mut Reader) -> LossConfig {
    let loss: LossConfig = reader.section("loss_fn", &LOSS_FOREIGN);
    if let Err(error) = loss.check() {
        let message = error.to_string();
        let key = message.split(' ').next().unwrap_or_default().trim_end_matches(':').to_owned();
        let by_rule_10 = ["token_level_loss", "sequence_level_importance_ratios"];
        let rule = by_rule_10.iter().any(|name| key.ends_with(name)).then_some(10);
        let help = error.advice().unwrap_or("Key names are those of NeMo-RL").to_owned();
        reader.refuse_by(rule, &key, message, help);
    }
    loss
}

/// Keys of `async_rl` that other stages read.
const ASYNC_FOREIGN: [&str; 14] = [
    "batch_selection_strategy",
    "force_in_order",
    "generation_fleet_health",
    "generation_router",
    "max_buffered_rollouts",
    "max_inflight_prompts",
    "max_weight_staleness_versions",
    "min_groups_for_streaming_train",
    "min_prompt_groups_per_batch",
    "over_sampling",
    "recompute_kv_cache_after_weight_updates",
    "sampler",
    "stall_timeout_s",
    "stall_watchdog",
];

/// Keys that have another name now.
const RENAMED: [(&str, &str); 6] = [
    ("async_rl.watchdog", "stall_watchdog"),
    ("async_rl.fleet_health", "generation_fleet_health"),
    ("async_rl.policy_router", "generation_router"),
    ("async_rl.rollout_failure.max_attempts_per_prompt", "max_infra_attempts_per_prompt"),
    ("async_rl.rollout_failure.on_data_exhausted", "max_skipped_prompts"),
    ("async_rl.rollout_failure.max_gym_row_attempts", "nemo_gym.max_row_attempts"),
];

/// Keys of `async_rl.rollout_failure` that other stages read.
const FAILURE_FOREIGN: [&str; 9] = [
    "backoff_base_s",
    "max_backoff_s",
    "max_data_attempts_per_prompt",
    "max_infra_attempts_per_prompt",
    "max_replacement_attempts",
    "native",
    "nemo_gym",
    "on_dropped_prompt",
    "replacement_reserve_prompts",
];

pub(super) fn rollout_failure(reader: &mut Reader) -> RolloutFailureKeys {
    let mut renamed = Vec::new();
    for (key, now) in RENAMED {
        if reader.value(key).is_some() {
            reader.stated.remove(key);
            let (section, name) = key.rsplit_once('.').unwrap_or_default();
            renamed.push(name);
            let message = format!("{key} is now {section}.{now}");
            reader.refuse(key, message, format!("Rename it to {now}"));
        }
    }
    let known: Vec<&str> = ["rollout_failure"].into_iter().chain(renamed.clone()).collect();
    reader.sort("async_rl", &known, &ASYNC_FOREIGN);
    let known =
        ["max_skipped_prompts", "max_consecutive_dropped_prompts", "min_step_batch_fraction"];
    let known: Vec<&str> = known.into_iter().chain(renamed).collect();
    reader.sort("async_rl.rollout_failure", &known, &FAILURE_FOREIGN);
    RolloutFailureKeys {
        max_skipped_prompts: reader.read("async_rl.rollout_failure.max_skipped_prompts"),
        max_consecutive_dropped_prompts: reader
            .read("async_rl.rollout_failure.max_consecutive_dropped_prompts"),
        min_step_batch_fraction: fraction(
            reader,
            "async_rl.rollout_failure.min_step_batch_fraction",
        ),
    }
}

/// A share, which YAML holds as a number.
fn fraction(reader: &mut Reader, path: &str) -> Option<Fraction> {
    let value = reader.value(path).filter(|value| !value.is_null())?;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.parse() {
        Ok(fraction) => Some(fraction),
        Err(why) => {
            reader.refuse(path, format!("{path}: {why}"), "Write a decimal, as 0.9");
            None
        }
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
