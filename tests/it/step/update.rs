//! The whole step: filters, update, checkpoint.

use std::path::Path;

use forestctl::config::loss::{KlGradient, LossConfig};
use forestctl::error::Kind;
use forestctl::id::Digest32;
use forestctl::rows::{Row, advantage};
use forestctl::step::batch::Batch;
use forestctl::step::loss::Loss;
use forestctl::step::metrics::Sums;
use forestctl::step::model::WeightFiles;
use forestctl::step::plan::pack::{Pack, packs};
use forestctl::step::sequence_error::sequence_errors;
use forestctl::step::settings::{Dtype, StepSettings};
use serde_json::Value;
use tch::Device;

use super::fixture::{
    close, expected, expected_tensors, loss_config, model, nobody, relative_distance, rows,
    separate, settings, tensors,
};
use super::learner::checkpoint;
use super::learner::decoder::Decoder;
use super::learner::optim::grad_norm;
use super::learner::run::{Models, Trained, run, score};
use super::learner::tensor::to_f64;
use super::learner::update::{OtherPolicies, accumulate};

const TOLERANCE: f64 = 1e-10;
const NO_ROWS: Digest32 = Digest32([0; 32]);

fn models(policy: &Path) -> Models<'_> {
    Models { policy, previous: None, reference: None }
}

fn train(policy: &Path, rows: &mut [Row], settings: &StepSettings) -> Trained {
    run(rows, models(policy), settings, nobody()).unwrap()
}

fn weights(decoder: &Decoder) -> impl Iterator<Item = (&str, Vec<f64>)> {
    decoder.parameters.iter().map(|p| (p.name.as_str(), to_f64(&p.leaf).unwrap()))
}

/// Compares norm, sum and the dot product that notices permutations, relative to the norm.
fn check_summaries(policy: &Decoder, expected: &Value, what: &str) {
    assert_eq!(expected.as_object().unwrap().len(), policy.parameters.len());
    for (name, values) in weights(policy) {
        let number = |key: &str| expected[name][key].as_f64().unwrap();
        let norm = values.iter().map(|w| w * w).sum::<f64>().sqrt();
        let sum = values.iter().sum::<f64>();
        let dot: f64 = values.iter().enumerate().map(|(i, w)| w * (0.1 * i as f64).cos()).sum();
        for (key, found) in [("norm", norm), ("sum", sum), ("dot_cos", dot)] {
            let off = (found - number(key)).abs() / number("norm");
            assert!(off <= TOLERANCE, "{what} {name} {key}: {off:e}");
        }
    }
}

#[test]
fn float64_weights_after_the_step_agree() {
    let trained = train(&model("tiny-qwen3"), &mut rows(), &settings(Dtype::Float64));
    let step = &expected()["step"]["f64"];
    close(trained.reports[0].loss, step["loss"].as_f64().unwrap(), TOLERANCE, "loss");
    close(trained.reports[0].grad_norm, step["grad_norm"].as_f64().unwrap(), TOLERANCE, "norm");
    assert_eq!(trained.reports[0].metrics.clip_coefficient, 1.0);
    assert_eq!((trained.reports[0].metrics.step, trained.reports[0].loss_tokens), (1, 1027));
    assert_eq!(trained.reports[0].metrics.tokens.num_valid_samples, 27);
    let stored = expected_tensors("weights_after_step_f64");
    assert_eq!(stored.len(), trained.policy.parameters.len());
    for (name, values) in weights(&trained.policy) {
        let off = relative_distance(&values, &stored[name]);
        assert!(off <= TOLERANCE, "{name}: {off:e}");
    }
    check_summaries(&trained.policy, &step["weights"], "base");
}

#[test]
fn clipping_and_the_kl_term_enter_the_update() {
    let mut clipped = settings(Dtype::Float64);
    clipped.optimizer.max_grad_norm = 0.05;
    let trained = train(&model("tiny-qwen3"), &mut rows(), &clipped);
    let step = &expected()["step"]["base;prev=self;max_grad_norm=0.05"];
    let coefficient = step["clip_coefficient"].as_f64().unwrap();
    close(trained.reports[0].metrics.clip_coefficient, coefficient, TOLERANCE, "coefficient");
    check_summaries(&trained.policy, &step["weights_f64"], "clipped");

    let mut kl = settings(Dtype::Float64);
    kl.loss = LossConfig { kl_gradient: KlGradient::Plain, ..LossConfig::default() };
    let (policy, reference) = (model("tiny-qwen3"), model("tiny-qwen3-ref"));
    let models = Models { reference: Some(&reference), ..models(&policy) };
    let trained = run(&mut rows(), models, &kl, nobody()).unwrap();
    check_summaries(&trained.policy, &expected()["step"]["kl_k3;prev=self"]["weights_f64"], "kl");
}

#[test]
fn float32_weights_differ_in_a_handful_of_tiny_gradients_only() {
    let trained = train(&model("tiny-qwen3"), &mut rows(), &settings(Dtype::Float32));
    let step = &expected()["step"]["hf_f32"];
    close(trained.reports[0].loss, step["loss"].as_f64().unwrap(), 2e-6, "loss");
    close(trained.reports[0].grad_norm, step["grad_norm"].as_f64().unwrap(), 2e-6, "norm");
    let stored = expected_tensors("weights_after_step_hf_f32");
    let off: Vec<f64> = weights(&trained.policy)
        .flat_map(|(name, values)| {
            values.into_iter().zip(stored[name].clone()).map(|(a, b)| (a - b).abs())
        })
        .collect();
    assert_eq!(off.len(), 94592);
    assert!(off.iter().all(|d| *d <= 2.4e-5), "{:e}", off.iter().fold(0.0, |a, b| b.max(a)));
    let visible = off.iter().filter(|d| **d > 1e-6).count();
    assert!(visible <= 20, "{visible} elements");
}

#[test]
fn sequence_errors_and_thresholds_agree() {
    let stored = &expected()["sequence_error"];
    let rows = rows();
    let policy = Decoder::load(&model("tiny-qwen3"), Dtype::Float64, Device::Cpu, false).unwrap();
    let previous = score(&policy, &rows, separate(None), "", &|_, _, _| {}).unwrap();
    let batch = Batch::new(&rows).unwrap();
    let errors = sequence_errors(&batch, &previous);
    let pooled = stored["pooled"].as_object().unwrap();
    assert_eq!(pooled.len(), errors.pooled.len());
    for (rollout, error) in &errors.pooled {
        close(*error, pooled[rollout.as_str()].as_f64().unwrap(), TOLERANCE, rollout.as_str());
    }
    let per_row = stored["per_row"].as_object().unwrap();
    assert_eq!(per_row.len(), errors.per_row.len());
    for (i, error) in &errors.per_row {
        let id = &rows[*i].row_id;
        close(*error, per_row[id].as_f64().unwrap(), TOLERANCE, id);
    }
    for (threshold, outcome) in stored["thresholds"].as_object().unwrap() {
        let found = errors.filter(&batch, Some(threshold.parse().unwrap()));
        let names: Vec<_> = found.masked_rollouts.iter().map(|id| id.as_str()).collect();
        assert_eq!(serde_json::json!(names), outcome["masked_rollouts"]);
        assert_eq!(found.num_masked_seqs, outcome["num_masked_seqs"].as_u64().unwrap());
        close(
            found.masked_correct_pct,
            outcome["masked_correct_pct"].as_f64().unwrap(),
            0.0,
            "pct",
        );
        for (name, spread) in [("before", found.before), ("after", found.after)] {
            let spread = spread.unwrap();
            for (key, value) in [("max", spread.max), ("mean", spread.mean), ("min", spread.min)] {
                let expected = outcome[name][key].as_f64().unwrap();
                close(value, expected, TOLERANCE, &format!("{threshold} {name} {key}"));
            }
        }
    }
    assert!(errors.filter(&batch, None).masked_rollouts.is_empty());
}

#[test]
fn filters_change_advantages_normaliser_and_gradient() {
    for (name, outcome) in expected()["filtered_losses_base_prev_self"].as_object().unwrap() {
        let mut settings = settings(Dtype::Float64);
        let mut rows = rows();
        for filter in name.split('+') {
            match filter.split_once("seq_error_") {
                Some((_, threshold)) => {
                    settings.seq_logprob_error_threshold = Some(threshold.parse().unwrap());
                }
                None => settings.grpo.overlong_filtering = filter == "overlong",
            }
        }
        // What `build-rows` does before the learner sees the rows.
        advantage::assign(&mut rows, &settings.grpo, &Default::default());
        let trained = train(&model("tiny-qwen3"), &mut rows, &settings);
        let number = |key: &str| outcome[key].as_f64().unwrap();
        assert_eq!(trained.reports[0].loss_tokens as f64, number("global_valid_toks"), "{name}");
        let samples = trained.reports[0].metrics.tokens.num_valid_samples as f64;
        assert_eq!(samples, number("global_valid_seqs"), "{name}");
        close(trained.reports[0].loss, number("loss"), TOLERANCE, name);
        close(trained.reports[0].grad_norm, number("grad_norm"), TOLERANCE, name);
    }
}

/// Training each call on its own prompt is the same as training rows of many calls.
#[test]
fn rows_and_single_calls_give_the_same_gradient() {
    let whole = rows();
    let single: Vec<Row> = whole
        .iter()
        .flat_map(|row| {
            row.spans.iter().filter(|span| span.owned).map(|span| {
                let (start, end) = (span.gen_start as usize, span.end as usize);
                let mut mask = vec![0; end];
                mask[start..].fill(1);
                Row {
                    row_id: format!("{}/{}", row.row_id, span.call),
                    input_ids: row.input_ids[..end].to_vec(),
                    generation_logprobs: row.generation_logprobs[..end].to_vec(),
                    loss_mask: mask,
                    ..row.clone()
                }
            })
        })
        .collect();
    assert!(single.len() > 2 * whole.len());
    let load =
        |name, trains| Decoder::load(&model(name), Dtype::Float64, Device::Cpu, trains).unwrap();
    let mut policy = load("tiny-qwen3", true);
    let (old, reference) = (load("tiny-qwen3-prev", false), load("tiny-qwen3-ref", false));
    for name in ["base;prev=self", "kitchen_sink;prev=old", "kl_k3;prev=old"] {
        let loss = Loss::new(loss_config(&expected()["losses"][name]["config"])).unwrap();
        let mut outcome = |rows: &[Row], packing: Option<u64>| {
            for parameter in &mut policy.parameters {
                parameter.grad = None;
            }
            let scored =
                |model: &Decoder| score(model, rows, separate(packing), "", &|_, _, _| {}).unwrap();
            let previous = scored(if name.ends_with("prev=self") { &policy } else { &old });
            let reference = loss.needs_reference().then(|| scored(&reference));
            let others = OtherPolicies { previous: &previous, reference: reference.as_deref() };
            let batch = Batch::new(rows).unwrap();
            let (sums, _) = accumulate(
                &mut policy,
                &batch,
                &loss,
                others,
                &packs(&batch, separate(packing).plan(&batch)).unwrap(),
                &|_, _, _| {},
            )
            .unwrap();
            let sums = Sums::pooled(&sums);
            let gradient = policy.parameters.iter().map(|p| to_f64(p.grad.as_ref().unwrap()));
            let gradient: Vec<_> = gradient.map(Result::unwrap).collect();
            (sums.loss(&loss, batch.valid_tokens()), gradient)
        };
        // Rows by themselves, and packed calls of one rollout after another.
        let (rows_loss, rows_gradient) = outcome(&whole, None);
        let (calls_loss, calls_gradient) = outcome(&single, Some(700));
        let stored = &expected()["per_call_checks"][name];
        let what = |of: &str| format!("{name} {of}");
        let number = |key: &str| stored[key].as_f64().unwrap();
        close(calls_loss, number("per_call_loss"), TOLERANCE, &what("calls"));
        close(rows_loss, number("rows_loss"), TOLERANCE, &what("rows"));
        close(calls_loss, rows_loss, 1e-12, &what("calls against rows"));
        for (parameter, (calls, rows)) in
            policy.parameters.iter().zip(calls_gradient.iter().zip(&rows_gradient))
        {
            let off = relative_distance(calls, rows);
            assert!(off <= 1e-12, "{name} {}: {off:e}", parameter.name);
        }
    }
}

#[test]
fn a_checkpoint_holds_the_model_and_opens_again() {
    for (name, dtype) in [
        ("tiny-qwen3", Dtype::Float64),
        ("tiny-qwen3-bf16", Dtype::Bfloat16),
        ("tiny-qwen2", Dtype::Float32),
        ("tiny-llama", Dtype::Float32),
    ] {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(dtype);
        let trained = train(&model(name), &mut rows(), &settings);
        checkpoint::write(home.path(), &model(name), &trained, &settings, NO_ROWS).unwrap();

        let reopened = Decoder::load(home.path(), dtype, Device::Cpu, false).unwrap();
        assert!(weights(&reopened).eq(weights(&trained.policy)), "{name}");
        let ids = &rows()[0].input_ids;
        let score = |decoder: &Decoder| decoder.score(&Pack::of_one(ids, &[1, 5, 20])).unwrap();
        assert_eq!(score(&reopened), score(&trained.policy), "{name}");

        let stored = tensors(&home.path().join("model.safetensors"));
        assert_eq!(stored.contains_key("lm_head.weight"), !name.contains("qwen3"), "{name}");
        let json = |file: &str| -> Value {
            serde_json::from_slice(&std::fs::read(home.path().join(file)).unwrap()).unwrap()
        };
        assert_eq!(json("config.json")["dtype"], dtype.as_str());
        assert_eq!(json("trainer_state.json")["global_step"], 1);
        for file in ["tokenizer.json", "generation_config.json", "optimizer.safetensors"] {
            assert!(home.path().join(file).is_file(), "{file}");
        }
        let lines = std::fs::read_to_string(home.path().join("metrics.jsonl")).unwrap();
        let line: Value = serde_json::from_str(lines.trim()).unwrap();
        assert_eq!(line["loss"], trained.reports[0].loss);
    }
}

#[test]
fn what_exceeds_a_shard_opens_again_as_one_model() {
    let home = tempfile::tempdir().unwrap();
    let tensor = |n: usize| tch::Tensor::f_from_slice(&vec![n as f32; n]).unwrap();
    let named: Vec<_> = (1..6).map(|n| (format!("t{n}"), tensor(n))).collect();
    // t1 to t3 fill one shard exactly, and no shard holds two of the rest.
    checkpoint::write_tensors(home.path(), "model", &named, 24).unwrap();
    assert!(home.path().join("model-00003-of-00003.safetensors").is_file());
    let files = WeightFiles::open(home.path(), "model").unwrap();
    let weights = files.read().unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["t1", "t2", "t3", "t4", "t5"]);
    assert_eq!(weights.get("t4", &[4]).unwrap().data(), 4.0f32.to_le_bytes().repeat(4));
}

/// The reference numbers of the update, read back from disk.
#[test]
fn the_written_weights_are_the_references() {
    let home = tempfile::tempdir().unwrap();
    let settings = settings(Dtype::Float64);
    let trained = train(&model("tiny-qwen3"), &mut rows(), &settings);
    checkpoint::write(home.path(), &model("tiny-qwen3"), &trained, &settings, NO_ROWS).unwrap();
    let written = tensors(&home.path().join("model.safetensors"));
    let stored = expected_tensors("weights_after_step_f64");
    assert!(written.keys().eq(stored.keys()));
    for (name, values) in &written {
        let off = relative_distance(values, &stored[name]);
        assert!(off <= TOLERANCE, "{name}: {off:e}");
    }
}

/// A second step from a checkpoint continues with moments, step count and main weights.
#[test]
fn a_step_from_a_checkpoint_continues_the_run() {
    for dtype in [Dtype::Float64, Dtype::Bfloat16] {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(dtype);
        let first = train(&model("tiny-qwen3"), &mut rows(), &settings);
        checkpoint::write(home.path(), &model("tiny-qwen3"), &first, &settings, NO_ROWS).unwrap();
        let second = train(home.path(), &mut rows(), &settings);
        assert_eq!(second.reports[0].metrics.step, 2);
        // The oracle of AdamW's second step, element by element from the first step's moments.
        let state = tensors(&home.path().join("optimizer.safetensors"));
        let scale = second.reports[0].metrics.clip_coefficient;
        let mains = first.policy.parameters.iter().map(|p| to_f64(&p.main).unwrap());
        for (parameter, start) in second.policy.parameters.iter().zip(mains) {
            let name = &parameter.name;
            let grad = to_f64(parameter.grad.as_ref().unwrap()).unwrap();
            let (m, v) =
                (&state[&format!("exp_avg.{name}")], &state[&format!("exp_avg_sq.{name}")]);
            let by_hand: Vec<f64> = (0..start.len())
                .map(|i| {
                    let g = grad[i] * scale;
                    let m = (0.9 * m[i] + 0.1 * g) / (1.0 - 0.9f64.powi(2));
                    let v = (0.999 * v[i] + 0.001 * g * g) / (1.0 - 0.999f64.powi(2));
                    start[i] * (1.0 - 1e-3 * 0.01) - 1e-3 * m / (v.sqrt() + 1e-8)
                })
                .collect();
            let off = relative_distance(&to_f64(&parameter.main).unwrap(), &by_hand);
            let bound = if dtype == Dtype::Float64 { 1e-14 } else { 1e-6 };
            assert!(off <= bound, "{dtype:?} {name}: {off:e}");
        }
    }
}

#[test]
fn a_step_that_cannot_be_made_is_an_error() {
    let policy = model("tiny-qwen3");
    let outcome = |rows: &mut [Row], settings: &StepSettings| {
        run(rows, models(&policy), settings, nobody()).unwrap_err()
    };
    let base = settings(Dtype::Float32);

    let mut masked = rows();
    masked.iter_mut().for_each(|row| row.sample_mask = 0.0);
    assert_eq!(outcome(&mut masked, &base).kind(), Kind::Nothing);

    let mut kl = base.clone();
    kl.loss = LossConfig::default();
    assert_eq!(outcome(&mut rows(), &kl).kind(), Kind::Usage);

    let mut foreign = rows();
    foreign[3].input_ids[0] = 320;
    let error = outcome(&mut foreign, &base);
    assert!(error.to_string().contains(&foreign[3].row_id), "{error}");

    let mut wild = rows();
    wild[0].advantage = 1e300;
    let error = outcome(&mut wild, &base);
    assert!(error.to_string().contains("nothing was written"), "{error}");
}

/// Masked positions may hold anything: they are left out before anything could become infinite.
#[test]
fn captured_infinities_outside_the_loss_change_nothing() {
    let base = settings(Dtype::Float64);
    let mut correction = base.clone();
    correction.loss.use_importance_sampling_correction = true;
    for settings in [base, correction] {
        let clean = train(&model("tiny-qwen3"), &mut rows(), &settings);
        let mut rows = rows();
        for row in &mut rows {
            for (logprob, mask) in row.generation_logprobs.iter_mut().zip(&row.loss_mask) {
                if *mask == 0 {
                    *logprob = f32::NEG_INFINITY;
                }
            }
        }
        let found = train(&model("tiny-qwen3"), &mut rows, &settings);
        let numbers = |trained: &Trained| {
            let report = trained.reports[0].clone();
            (report.loss, report.grad_norm, report.metrics)
        };
        assert_eq!(numbers(&found), numbers(&clean));
        assert_eq!(
            grad_norm(&found.policy.parameters).unwrap(),
            grad_norm(&clean.policy.parameters).unwrap()
        );
    }
}
