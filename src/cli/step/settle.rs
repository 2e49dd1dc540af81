//! Flags, YAML, checkpoint and defaults become the settings of a run.

use std::path::Path;

use super::StepArgs;
use crate::cli::ui::Ui;
use crate::config::loss::LossConfig;
use crate::config::recipe::Recipe;
use crate::error::{Error, Result};
use crate::rows::Provenance;
use crate::step::settings::{AdamW, Dtype, PACK_TOKENS, Schedule, StepSettings};
use crate::step::state::{TrainerState, differences};

impl StepArgs {
    /// The directory that the policy is loaded from.
    pub fn policy(&self) -> Result<&Path> {
        self.resume.as_deref().or(self.model.as_deref()).ok_or_else(|| {
            Error::usage("there is no model to train").help("Give --model DIR or --resume CKPT")
        })
    }

    /// The state of the checkpoint that is resumed, if one is.
    pub fn resumed(&self) -> Result<Option<TrainerState>> {
        self.resume.as_deref().map(TrainerState::read).transpose()
    }

    /// Settles flags, YAML, the checkpoint that is resumed, and defaults, in this order.
    /// `model_dtype` is what the model was saved in, `rows` what the rows were built with.
    ///
    /// # Errors
    ///
    /// Values that make no sense, and with a checkpoint a key of YAML or rows that differs from it:
    /// a flag alone can change what a run was begun with.
    pub fn settings(
        &self,
        rows: &Provenance,
        model_dtype: Option<&str>,
        resumed: Option<&TrainerState>,
        ui: &Ui,
    ) -> Result<StepSettings> {
        let recipe = match &self.config {
            Some(path) => Recipe::read(path)?,
            None => Recipe::default(),
        };
        let others = ["token_capture.", "policy.", "async_rl.", "grpo.num_"];
        let of_others = |key: &&String| others.iter().any(|section| key.starts_with(section));
        let unused = recipe.stated.keys().filter(of_others);
        let ignored: Vec<&str> = recipe.ignored.iter().chain(unused).map(String::as_str).collect();
        if !ignored.is_empty() {
            ui.say(format!("step does not read from --config: {}", ignored.join(", ")));
        }
        if let Some(contradiction) = recipe.grpo.contradiction(&rows.grpo) {
            return Err(Error::usage(contradiction)
                .help("Advantages belong to the rows: build them again, or drop the key"));
        }
        let before = resumed.map(|state| &state.settings);
        let loss = match before.filter(|_| self.config.is_none()) {
            Some(before) => before.loss.clone(),
            None => recipe.loss.clone(),
        };
        let threshold = match before.filter(|_| self.config.is_none()) {
            Some(before) => before.seq_logprob_error_threshold,
            None => recipe.grpo.seq_logprob_error_threshold,
        };
        let optimizer = before.map_or_else(AdamW::default, |before| before.optimizer);
        let pack_tokens = match (self.pack_tokens, before) {
            (Some(tokens), _) => Some(tokens).filter(|tokens| *tokens > 0),
            (None, Some(before)) => before.pack_tokens,
            (None, None) => Some(PACK_TOKENS),
        };
        let settings = StepSettings {
            dtype: self
                .dtype
                .or(before.map(|before| before.dtype))
                .unwrap_or_else(|| Dtype::of_model(model_dtype)),
            device: self.device,
            seed: self.seed,
            pack_tokens,
            share_prefixes: self
                .share_prefixes
                .or(before.map(|before| before.share_prefixes))
                .unwrap_or_default(),
            attention: self.attention.or(before.map(|before| before.attention)).unwrap_or_default(),
            schedule: Schedule { steps: self.steps, minibatches: self.minibatches },
            deterministic: self.deterministic,
            optimizer: AdamW {
                lr: self.lr.unwrap_or(optimizer.lr),
                betas: self.betas.unwrap_or(optimizer.betas),
                weight_decay: self.weight_decay.unwrap_or(optimizer.weight_decay),
                max_grad_norm: self.max_grad_norm.unwrap_or(optimizer.max_grad_norm),
                ..optimizer
            },
            loss: LossConfig {
                reference_policy_kl_penalty: self.kl_coefficient(&recipe, before)?,
                ..loss
            },
            seq_logprob_error_threshold: threshold,
            grpo: rows.grpo,
        };
        settings.check()?;
        if let (Some(state), Some(checkpoint)) = (resumed, &self.resume) {
            self.agree(state, &settings, checkpoint, ui)?;
        }
        Ok(settings)
    }

    /// Tells what a flag changes, and refuses any other change.
    fn agree(
        &self,
        state: &TrainerState,
        settings: &StepSettings,
        checkpoint: &Path,
        ui: &Ui,
    ) -> Result<()> {
        let stated = [
            ("dtype", self.dtype.is_some()),
            ("pack_tokens", self.pack_tokens.is_some()),
            ("share_prefixes", self.share_prefixes.is_some()),
            ("attention", self.attention.is_some()),
            ("optimizer.lr", self.lr.is_some()),
            ("optimizer.betas", self.betas.is_some()),
            ("optimizer.weight_decay", self.weight_decay.is_some()),
            ("optimizer.max_grad_norm", self.max_grad_norm.is_some()),
            ("loss.reference_policy_kl_penalty", self.kl_coef.is_some()),
        ];
        let checkpoint = checkpoint.display();
        for difference in differences(&state.settings, settings) {
            let key = difference.key.as_str();
            let (old, here) = (&difference.checkpoint, &difference.here);
            if stated.contains(&(key, true)) {
                ui.say(format!(
                    "{key} is {here} from here on; {checkpoint} was trained with {old}"
                ));
                continue;
            }
            let help = match key.starts_with("grpo.") {
                true => "Build the rows as those before, or go on without this check: --model CKPT",
                false => "Drop the key from --config, or go on without this check: --model CKPT",
            };
            return Err(Error::usage(format!(
                "{key} is {here}, and {checkpoint} was trained with {old}"
            ))
            .help(help));
        }
        Ok(())
    }

    fn kl_coefficient(&self, recipe: &Recipe, before: Option<&StepSettings>) -> Result<f64> {
        let stated = recipe
            .states("loss_fn.reference_policy_kl_penalty")
            .then_some(recipe.loss.reference_policy_kl_penalty);
        let default = match (before, &self.reference_model) {
            (Some(before), _) => before.loss.reference_policy_kl_penalty,
            (None, Some(_)) => LossConfig::default().reference_policy_kl_penalty,
            (None, None) => 0.0,
        };
        if let Some(flag) = self.kl_coef.filter(|x| !(*x >= 0.0 && x.is_finite())) {
            return Err(Error::usage(format!(
                "--kl-coef is {flag}; it must be finite and not negative"
            )));
        }
        let given = self.kl_coef.or(stated);
        let coefficient = given.unwrap_or(default);
        if coefficient != 0.0 && self.reference_model.is_none() {
            return Err(Error::usage(format!(
                "a KL coefficient of {coefficient} needs a reference model"
            ))
            .help("Give --reference-model DIR, or --kl-coef 0"));
        }
        if let (None, Some(reference), 0.0) = (given, &self.reference_model, coefficient) {
            return Err(Error::usage(format!(
                "--reference-model {} has no effect: the checkpoint was trained without a KL term",
                reference.display()
            ))
            .help("Give --kl-coef X to begin with one, or drop --reference-model"));
        }
        Ok(coefficient)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::Learner;
    use super::*;
    use crate::cli::ui::{ColorChoice, Format};
    use crate::config::{BatchSettings, GrpoSettings};
    use crate::id::Digest32;
    use crate::step::report::SCHEMA_VERSION;

    fn provenance(grpo: GrpoSettings) -> Provenance {
        Provenance {
            archive: None,
            policy: "returned_history".to_owned(),
            assume_complete: false,
            batch: BatchSettings::default(),
            grpo,
            seq_logprob_error_threshold: None,
        }
    }

    fn settle_from(
        model: &[&str],
        flags: &[&str],
        yaml: Option<&str>,
        resumed: Option<&TrainerState>,
        grpo: GrpoSettings,
    ) -> Result<StepSettings> {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("c.yaml");
        let mut args = vec!["forestctl-step", "rows", "-o", "out"];
        args.extend(model);
        args.extend(flags);
        if let Some(yaml) = yaml {
            std::fs::write(&file, yaml).unwrap();
            args.extend(["--config", file.to_str().unwrap()]);
        }
        let learner = Learner::try_parse_from(args).unwrap();
        let ui = Ui::new(Format::Human, ColorChoice::Never, true, 0);
        learner.step.settings(&provenance(grpo), Some("bfloat16"), resumed, &ui)
    }

    fn settle(flags: &[&str], yaml: Option<&str>) -> Result<StepSettings> {
        settle_from(&["--model", "m"], flags, yaml, None, GrpoSettings::default())
    }

    #[test]
    fn the_kl_coefficient_follows_flag_then_file_then_reference() {
        let coefficient =
            |flags: &[&str], yaml| settle(flags, yaml).map(|s| s.loss.reference_policy_kl_penalty);
        let file = Some("loss_fn: {reference_policy_kl_penalty: 0.5}");
        let silent = Some("loss_fn: {ratio_clip_max: 0.3}");
        let reference = ["--reference-model", "r"];
        assert_eq!(coefficient(&[], None).unwrap(), 0.0);
        assert_eq!(coefficient(&[], silent).unwrap(), 0.0);
        assert_eq!(coefficient(&reference, silent).unwrap(), 0.01);
        assert_eq!(coefficient(&reference, file).unwrap(), 0.5);
        let both = ["--reference-model", "r", "--kl-coef", "0.25"];
        assert_eq!(coefficient(&both, file).unwrap(), 0.25);
        assert!(coefficient(&[], file).unwrap_err().to_string().contains("reference model"));
    }

    #[test]
    fn flags_and_model_settle_the_rest() {
        let settings = settle(&["--betas", "0.8, 0.95", "--lr", "1e-3"], None).unwrap();
        assert_eq!((settings.optimizer.betas, settings.optimizer.lr), ((0.8, 0.95), 1e-3));
        assert_eq!(settings.optimizer.max_grad_norm, AdamW::default().max_grad_norm);
        assert_eq!((settings.dtype, settings.pack_tokens), (Dtype::Bfloat16, Some(PACK_TOKENS)));
        let settings = settle(&["--dtype", "float64", "--pack-tokens", "0"], None).unwrap();
        assert_eq!((settings.dtype, settings.pack_tokens), (Dtype::Float64, None));
        assert!(settle(&["--lr=-1"], None).is_err());
        assert!(settle(&["--steps", "0"], None).unwrap_err().to_string().contains("count from 1"));
        let contradiction = settle(&[], Some("grpo: {normalize_rewards: false}")).unwrap_err();
        assert!(contradiction.to_string().contains("grpo.normalize_rewards"));
    }

    fn state(settings: StepSettings) -> TrainerState {
        TrainerState {
            schema_version: SCHEMA_VERSION,
            tool: "forestctl".to_owned(),
            global_step: 3,
            rows_blake3: Digest32([0; 32]),
            settings,
            trained: Vec::new(),
        }
    }

    #[test]
    fn a_resumed_run_keeps_its_settings_and_only_flags_change_them() {
        let yaml = "loss_fn: {ratio_clip_max: 0.3}\ngrpo: {seq_logprob_error_threshold: 1.5}\n";
        let flags = ["--lr", "1e-3", "--pack-tokens", "500", "--dtype", "float64"];
        let first =
            settle(&[&flags[..], &["--max-grad-norm", "inf"]].concat(), Some(yaml)).unwrap();
        // As a checkpoint holds it.
        let text = serde_json::to_string(&state(first.clone())).unwrap();
        let before: TrainerState = serde_json::from_str(&text).unwrap();
        assert_eq!(before.settings, first);

        let resume = |flags: &[&str], yaml: Option<&str>, grpo| {
            settle_from(&["--resume", "c"], flags, yaml, Some(&before), grpo)
        };
        let grpo = GrpoSettings::default();
        assert_eq!(resume(&[], None, grpo).unwrap(), first);
        assert_eq!(resume(&[], Some(yaml), grpo).unwrap(), first);
        let changed = resume(&["--lr", "1e-4", "--steps", "4", "--seed", "9"], None, grpo).unwrap();
        assert_eq!((changed.optimizer.lr, changed.schedule.steps), (1e-4, 4));
        assert_eq!(changed.loss, first.loss);

        let refused = |yaml, grpo| resume(&[], yaml, grpo).unwrap_err().to_string();
        let error = refused(Some("loss_fn: {ratio_clip_max: 0.25}"), grpo);
        assert!(
            error.contains("loss.ratio_clip_max is 0.25, and c was trained with 0.3"),
            "{error}"
        );
        let other = GrpoSettings { normalize: false, ..grpo };
        let error = refused(None, other);
        assert!(error.contains("grpo.normalize is false, and c was trained with true"), "{error}");
        let error = resume(&["--reference-model", "r"], None, grpo).unwrap_err().to_string();
        assert!(error.contains("has no effect"), "{error}");
    }
}
