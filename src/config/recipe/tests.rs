use super::*;
use crate::config::GrpoSettings;

fn document(yaml: &str) -> Node {
    Node::parse(yaml, "f.yaml").unwrap()
}

fn parse(yaml: &str) -> Result<Recipe> {
    let (recipe, refused) = Recipe::of(&document(yaml));
    match refused.into_iter().next() {
        None => Ok(recipe),
        Some(refusal) => Err(refusal.into_error()),
    }
}

#[test]
fn sections_of_forests_are_read_and_others_named() {
    let recipe = parse(
        "loss_fn: {ratio_clip_max: 0.28, ratio_clip_c: 3}\n\
         grpo: {seq_logprob_error_threshold: 2, num_prompts_per_step: 8, seed: 1}\n\
         cluster: {gpus_per_node: 8}\n\
         token_capture: {enabled: true, staging_partition: s}\n\
         policy:\n  model_name: m\n  train_micro_batch_size: ${policy.logprob_batch_size}\n  \
         logprob_batch_size: 4\n  sequence_packing: {enabled: true, train_mb_tokens: 4096}\n\
         async_rl: {sampler: {name: in_order}, rollout_failure: {min_step_batch_fraction: 0.9}}\n",
    )
    .unwrap();
    assert_eq!((recipe.loss.ratio_clip_max, recipe.loss.ratio_clip_c), (0.28, Some(3.0)));
    assert_eq!(recipe.grpo.seq_logprob_error_threshold, Some(2.0));
    assert_eq!(recipe.grpo.num_prompts_per_step.map(u32::from), Some(8));
    assert_eq!(recipe.policy.train_micro_batch_size.map(u32::from), Some(4));
    assert_eq!(recipe.policy.train_mb_tokens.map(u64::from), Some(4096));
    let fraction = recipe.rollout_failure.min_step_batch_fraction.unwrap();
    assert_eq!(fraction.to_string(), "0.9");
    assert!(!recipe.states("loss_fn.reference_policy_kl_penalty"));
    let ignored = [
        "cluster",
        "token_capture.staging_partition",
        "policy.model_name",
        "grpo.seed",
        "async_rl.sampler",
    ];
    assert_eq!(recipe.ignored, ignored);
    assert_eq!(recipe.stated["policy.logprob_batch_size"].to_string(), "f.yaml:8");
    assert!(
        parse("loss_fn: {reference_policy_kl_penalty: 0}")
            .unwrap()
            .states("loss_fn.reference_policy_kl_penalty")
    );
    assert_eq!(parse("").unwrap(), Recipe::default());
}

#[test]
fn slips_and_what_no_forest_has_are_refused_by_name() {
    let cases = [
        ("loss_fn: {ratio_clip_maximum: 1}", "no key ratio_clip_maximum", "ratio_clip_max?"),
        ("grpo: {seq_logprob_eror_threshold: 1}", "no key seq_logprob_eror", "_error_thresh"),
        ("token_capture: {forest_trainng: true}", "no key forest_trainng", "forest_training?"),
        ("policy: {train_micro_batchsize: 1}", "no key train_micro_batchsize", "batch_size?"),
        ("policy: {sequence_packing: {algoritm: x}}", "no key algoritm", "algorithm?"),
        ("async_rl: {rollout_failures: {}}", "no key rollout_failures", "rollout_failure?"),
        ("policy: {logprob_batch_size: 0}", "policy.logprob_batch_size is 0", ""),
        ("policy: {train_micro_batch_size: 1.5}", "train_micro_batch_size is 1.5", ""),
        ("policy: {train_micro_batch_size: \"${a}\"}", "${a} leads nowhere", "Write the value"),
        ("loss_fn: {ratio_clip_max: wide}", "loss_fn.ratio_clip_max", ""),
        ("loss_fn: {reference_policy_kl_type: k4}", "loss_fn.reference_policy_kl_type", ""),
        ("loss_fn: {token_level_loss: false}", "loss_fn.token_level_loss must be true", ""),
        ("grpo: {reward_shaping: {enabled: true}}", "grpo.reward_shaping.enabled", ""),
        ("grpo: {reward_scaling: {enabled: true}}", "grpo.reward_scaling.enabled", ""),
        ("grpo: {use_dynamic_sampling: true}", "grpo.use_dynamic_sampling must be false", ""),
        ("grpo: {invalid_tool_call_penalty: 0.5}", "invalid_tool_call_penalty must", ""),
        ("grpo: {malformed_thinking_advantage: 0}", "malformed_thinking_advantage must", ""),
        ("grpo: {adv_estimator: {name: gdpo}}", "grpo.adv_estimator.name must be grpo", ""),
        ("grpo: {calculate_advantages_on_gpu: true}", "calculate_advantages_on_gpu must", ""),
        ("grpo: {invalid_tool_call_advantage: -1}", "invalid_tool_call_advantage must", ""),
        ("grpo: {malformed_thinking_penalty: 0.5}", "malformed_thinking_penalty must", ""),
        ("grpo: {forest_training: true}", "no key forest_training", "token_capture.forest"),
        ("data: {train: {loss_multiplier: 0.5}}", "data.train.loss_multiplier must be 1", ""),
        ("token_capture: {min_valid_fraction_per_group: 2}", "no decimal above 0", "0.9"),
        (
            "token_capture: {context_compaction: true}",
            "is now token_capture.forest_training",
            "forest_training: true",
        ),
        (
            "async_rl: {rollout_failure: {max_attempts_per_prompt: 3}}",
            "is now async_rl.rollout_failure.max_infra_attempts_per_prompt",
            "Rename",
        ),
        ("async_rl: {watchdog: {}}", "is now async_rl.stall_watchdog", "Rename"),
        ("loss_fn: [1]", "loss_fn is not a mapping", ""),
        ("loss_fn: {use_cispo: true, ratio_clip_c: 3}", "ratio_clip_c", ""),
    ];
    for (yaml, message, help) in cases {
        let error = parse(yaml).expect_err(yaml);
        assert!(error.to_string().contains(message), "{yaml}: {error}");
        assert!(error.to_string().starts_with("f.yaml:1: "), "{yaml}: {error}");
        assert!(error.advice().unwrap_or_default().contains(help), "{yaml}: {error:?}");
    }
}

#[test]
fn values_that_change_nothing_are_passed_over_and_told() {
    let recipe = parse(
        "grpo: {invalid_tool_call_advantage: null, calculate_advantages_on_gpu: false}\n\
         data: {train: {loss_multiplier: 1.0}}",
    );
    let expected = ["data", "grpo.invalid_tool_call_advantage", "grpo.calculate_advantages_on_gpu"];
    assert_eq!(recipe.unwrap().ignored, expected);
}

#[test]
fn contradictions_with_the_rows_are_told() {
    let built = GrpoSettings::default();
    let keys = |yaml| parse(yaml).unwrap().grpo.contradiction(&built);
    assert_eq!(keys("grpo: {normalize_rewards: true}"), None);
    assert!(keys("grpo: {normalize_rewards: false}").unwrap().contains("is false"));
    assert!(keys("grpo: {advantage_clip_low: -5}").unwrap().contains("built with null"));
}

/// A file that passes every guard, as the guide of forest training has it.
const GOOD: &str = "\
token_capture:
  enabled: true
  forest_training: true
  selection_policy: returned_history
  defer_routed_experts_to_policy: false
policy:
  train_global_batch_size: 16
  train_micro_batch_size: 1
  logprob_batch_size: 2
  megatron_cfg: {enabled: true, moe_router_load_balancing_type: none}
  automodel_cfg: {enabled: false}
  sequence_packing: {enabled: false}
  dynamic_batching: {enabled: false}
grpo: {calculate_advantages_on_gpu: false, num_prompts_per_step: 2, num_generations_per_prompt: 8}
loss_fn: {token_level_loss: true, sequence_level_importance_ratios: false}
async_rl:
  sampler: {name: in_order}
  stall_timeout_s: 600
  rollout_failure: {min_step_batch_fraction: 1, max_skipped_prompts: 2}
";

fn guarded(yaml: &str) -> Vec<(Option<u32>, String)> {
    let document = document(yaml);
    let (recipe, refused) = Recipe::of(&document);
    assert_eq!(refused, [], "{yaml}");
    guards(&recipe, &document).into_iter().map(|r| (r.rule, r.key)).collect()
}

#[test]
fn each_guard_is_broken_by_one_key() {
    assert_eq!(guarded(GOOD), []);
    let packing = "sequence_packing: {enabled: true, train_mb_tokens: 4096}";
    assert_eq!(guarded(&GOOD.replace("sequence_packing: {enabled: false}", packing)), []);
    let cases = [
        ("  enabled: true\n  forest", "  enabled: false\n  forest", 1, "token_capture.enabled"),
        ("forest_training: true", "forest_training: false", 1, "token_capture.forest_training"),
        (
            "defer_routed_experts_to_policy: false",
            "defer_routed_experts_to_policy: true",
            6,
            "token_capture.defer_routed_experts_to_policy",
        ),
        (
            "megatron_cfg: {enabled: true",
            "megatron_cfg: {enabled: false",
            7,
            "policy.megatron_cfg.enabled",
        ),
        (
            "automodel_cfg: {enabled: false}",
            "automodel_cfg: {enabled: true}",
            7,
            "policy.automodel_cfg.enabled",
        ),
        (
            "megatron_cfg: {enabled: true",
            "megatron_cfg: {enabled: true, virtual_pipeline_model_parallel_size: 2",
            7,
            "policy.megatron_cfg.virtual_pipeline_model_parallel_size",
        ),
        (
            "megatron_cfg: {enabled: true",
            "megatron_cfg: {enabled: true, num_layers_per_virtual_pipeline_stage: 2",
            7,
            "policy.megatron_cfg.num_layers_per_virtual_pipeline_stage",
        ),
        (
            "dynamic_batching: {enabled: false}",
            "dynamic_batching: {enabled: true}",
            8,
            "policy.dynamic_batching.enabled",
        ),
        ("  logprob_batch_size: 2\n", "", 11, "policy.logprob_batch_size"),
        ("  train_micro_batch_size: 1\n", "", 11, "policy.train_micro_batch_size"),
        (
            "sequence_packing: {enabled: false}",
            "sequence_packing: {enabled: true}",
            11,
            "policy.sequence_packing.train_mb_tokens",
        ),
        (
            "moe_router_load_balancing_type: none",
            "moe_router_load_balancing_type: aux_loss",
            14,
            "policy.megatron_cfg.moe_router_load_balancing_type",
        ),
        (
            "megatron_cfg: {enabled: true",
            "megatron_cfg: {enabled: true, moe_aux_loss_coeff: 0.01",
            14,
            "policy.megatron_cfg.moe_aux_loss_coeff",
        ),
        (
            "megatron_cfg: {enabled: true",
            "megatron_cfg: {enabled: true, moe_z_loss_coeff: 0.001",
            14,
            "policy.megatron_cfg.moe_z_loss_coeff",
        ),
        (
            "megatron_cfg: {enabled: true",
            "megatron_cfg: {enabled: true, moe_expert_capacity_factor: 1.0",
            14,
            "policy.megatron_cfg.moe_expert_capacity_factor",
        ),
    ];
    for (good, bad, rule, key) in cases {
        assert!(GOOD.contains(good), "{good}");
        assert_eq!(guarded(&GOOD.replace(good, bad)), [(Some(rule), key.to_owned())], "{bad}");
    }
    let others = [
        (
            "train_global_batch_size: 16",
            "train_global_batch_size: 15",
            "policy.train_global_batch_size",
        ),
        ("name: in_order", "name: freshest", "async_rl.rollout_failure.max_skipped_prompts"),
        (
            "max_skipped_prompts: 2",
            "nemo_gym: {rollout_timeout_s: 900}",
            "async_rl.rollout_failure.nemo_gym.rollout_timeout_s",
        ),
        (
            "max_skipped_prompts: 2",
            "backoff_base_s: 60, max_backoff_s: 30",
            "async_rl.rollout_failure.max_backoff_s",
        ),
    ];
    for (good, bad, key) in others {
        assert_eq!(guarded(&GOOD.replace(good, bad)), [(None, key.to_owned())], "{bad}");
    }
    let policy = GOOD
        .replace("forest_training: true", "forest_training: false")
        .replace("returned_history", "all_captured");
    let rules: Vec<_> = guarded(&policy).into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(rules, [Some(1), Some(4)]);
}
