//! What a configuration must say before forest training runs (rules 1 to 14).

use serde_json::Value;

use super::{Recipe, Refusal};
use crate::config::document::Node;

/// Everything that keeps `recipe`, read from `document`, from training forests, beyond what makes
/// it wrong by itself. That a custom policy can be found is not looked at, nor the model (rule 14:
/// NeMo-RL checks the one that it loaded).
pub fn guards(recipe: &Recipe, document: &Node) -> Vec<Refusal> {
    let mut guards = Guards { document, refused: Vec::new() };
    let capture = &recipe.token_capture;
    let forest = capture.forest_training == Some(true);
    let off = "Forest training is off; the ordinary path reads nothing of what forestctl writes";
    guards.must(1, "token_capture.forest_training", forest, "true", off);
    let enabled = capture.enabled == Some(true);
    guards.must(1, "token_capture.enabled", enabled, "true", "Forests are made of captures");
    let policy = capture.selection_policy.as_deref().unwrap_or("returned_history");
    if policy != "returned_history" && !forest {
        let key = "token_capture.selection_policy";
        let message = format!("{key} is {policy}, which needs token_capture.forest_training");
        guards.refuse(4, key, message, "Set token_capture.forest_training to true");
    }
    let direct = capture.defer_routed_experts_to_policy != Some(true);
    let help = "Expert routes are assembled directly, from the captures";
    guards.must(6, "token_capture.defer_routed_experts_to_policy", direct, "false", help);

    let keys = &recipe.policy;
    let megatron = keys.megatron_enabled == Some(true);
    let help = "NeMo-RL trains forests on Megatron alone";
    guards.must(7, "policy.megatron_cfg.enabled", megatron, "true", help);
    let plain = keys.automodel_enabled != Some(true);
    guards.must(7, "policy.automodel_cfg.enabled", plain, "false", help);
    for key in ["virtual_pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage"] {
        let path = format!("policy.megatron_cfg.{key}");
        let unset = guards.value(&path).is_none();
        guards.must(7, &path, unset, "null", "Interleaved pipelines are not supported");
    }
    let fixed = keys.dynamic_batching != Some(true);
    let help = "Use fixed batches, or policy.sequence_packing";
    guards.must(8, "policy.dynamic_batching.enabled", fixed, "false", help);
    if keys.sequence_packing != Some(true) {
        for (key, size) in [
            ("policy.train_micro_batch_size", keys.train_micro_batch_size),
            ("policy.logprob_batch_size", keys.logprob_batch_size),
        ] {
            let help = "Fixed batches need it: rows are padded to a multiple of it";
            guards.must(11, key, size.is_some(), "a positive integer", help);
        }
    } else if keys.train_mb_tokens.is_none() {
        let help = "Packing needs the tokens that a microbatch holds";
        guards.must(11, "policy.sequence_packing.train_mb_tokens", false, "positive", help);
    }
    guards.experts();
    guards.batch(recipe);
    guards.drops(recipe);
    guards.refused
}

struct Guards<'a> {
    document: &'a Node,
    refused: Vec<Refusal>,
}

impl Guards<'_> {
    /// A key's value; `None` for null, and for what cannot be told.
    fn value(&self, path: &str) -> Option<Value> {
        let value = self.document.value(self.document.get(path)?).ok()?;
        (!value.is_null()).then_some(value)
    }

    fn refuse(&mut self, rule: impl Into<Option<u32>>, key: &str, message: String, help: &str) {
        let place = self.document.get(key).map(|node| node.place.clone());
        let rule = rule.into();
        self.refused.push(Refusal {
            key: key.to_owned(),
            place,
            rule,
            message,
            help: help.to_owned(),
        });
    }

    fn must(&mut self, rule: u32, key: &str, holds: bool, wanted: &str, help: &str) {
        if holds {
            return;
        }
        let message = match self.value(key) {
            Some(found) => format!("{key} is {found}; it must be {wanted}"),
            None => format!("{key} is not set; it must be {wanted}"),
        };
        self.refuse(rule, key, message, help);
    }

    /// Experts: dropless routing per token, without auxiliary losses or capacities (rule 14), as
    /// far as the file tells.
    fn experts(&mut self) {
        let balancing = "policy.megatron_cfg.moe_router_load_balancing_type";
        let none = self.value(balancing).is_none_or(|kind| kind == "none");
        self.must(14, balancing, none, "none", "An auxiliary loss would see borrowed tokens");
        for key in ["moe_aux_loss_coeff", "moe_z_loss_coeff"] {
            let path = format!("policy.megatron_cfg.{key}");
            let zero = self.value(&path).is_none_or(|value| value.as_f64() == Some(0.0));
            self.must(14, &path, zero, "0", "An auxiliary loss would see borrowed tokens");
        }
        let capacity = "policy.megatron_cfg.moe_expert_capacity_factor";
        let unset = self.value(capacity).is_none();
        self.must(14, capacity, unset, "null", "Experts must not drop tokens");
    }

    /// A step's rollouts are its global batch.
    fn batch(&mut self, recipe: &Recipe) {
        let grpo = &recipe.grpo;
        let (Some(prompts), Some(generations), Some(batch)) = (
            grpo.num_prompts_per_step,
            grpo.num_generations_per_prompt,
            recipe.policy.train_global_batch_size,
        ) else {
            return;
        };
        let rollouts = u64::from(prompts.get()) * u64::from(generations.get());
        if rollouts != batch {
            let key = "policy.train_global_batch_size";
            let message = format!(
                "{key} is {batch}, and grpo.num_prompts_per_step {prompts} times \
                 grpo.num_generations_per_prompt {generations} are {rollouts}"
            );
            self.refuse(None, key, message, "One optimizer step takes the rollouts of one batch");
        }
    }

    /// Drop budgets need a sampler that knows which prompt comes next, and deadlines fit.
    fn drops(&mut self, recipe: &Recipe) {
        let failure = &recipe.rollout_failure;
        let budgets = [
            ("max_skipped_prompts", failure.max_skipped_prompts),
            ("max_consecutive_dropped_prompts", failure.max_consecutive_dropped_prompts),
        ];
        let sampler = self.value("async_rl.sampler.name");
        for (key, budget) in budgets {
            let Some(budget @ 1..) = budget else { continue };
            if sampler.as_ref().is_none_or(|name| name == "in_order" || name == "custom") {
                continue;
            }
            let key = format!("async_rl.rollout_failure.{key}");
            let message = format!("{key} is {budget}, which async_rl.sampler.name does not allow");
            self.refuse(None, &key, message, "Drop budgets need the sampler in_order");
        }
        let seconds = |guards: &Self, path: &str| guards.value(path).and_then(|v| v.as_f64());
        let base = seconds(self, "async_rl.rollout_failure.backoff_base_s").unwrap_or(1.0);
        let key = "async_rl.rollout_failure.max_backoff_s";
        if let Some(most) = seconds(self, key).filter(|most| *most < base) {
            let message = format!("{key} is {most}, less than backoff_base_s {base}");
            self.refuse(None, key, message, "Waiting begins with backoff_base_s");
        }
        let stall = seconds(self, "async_rl.stall_timeout_s");
        let deadlines =
            ["native.generation_timeout_s", "native.env_timeout_s", "nemo_gym.rollout_timeout_s"];
        for deadline in deadlines {
            let path = format!("async_rl.rollout_failure.{deadline}");
            let (Some(stall), Some(deadline)) = (stall, seconds(self, &path)) else { continue };
            if stall <= deadline {
                let message = format!(
                    "{path} is {deadline}, and async_rl.stall_timeout_s {stall} must exceed it"
                );
                self.refuse(None, &path, message, "A deadline must pass before a stall is seen");
            }
        }
    }
}
