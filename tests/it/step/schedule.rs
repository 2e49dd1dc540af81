//! Several optimizer steps over one batch, against an oracle in JAX (`testdata/many-steps`).

use forestctl::config::loss::LossConfig;
use forestctl::id::Digest32;
use forestctl::step::report::TimeSplit;
use forestctl::step::settings::{Dtype, Schedule, StepSettings};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use super::fixture::{close, model, nobody, rows, settings};
use super::learner::clock::{Clock, Part};
use super::learner::run::{Models, Trained, run};
use super::learner::tensor::to_f64;
use super::learner::{checkpoint, decoder::Decoder};

const TOLERANCE: f64 = 1e-10;

fn oracle() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/many-steps/expected.json");
    let all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    all["runs"].as_array().unwrap().clone()
}

fn settings_of(run: &Value) -> StepSettings {
    let number = |key: &str| run[key].as_u64().unwrap() as u32;
    let mut settings = settings(Dtype::Float64);
    settings.schedule = Schedule { steps: number("steps"), minibatches: number("minibatches") };
    settings.optimizer.lr = run["lr"].as_f64().unwrap();
    settings.loss = LossConfig {
        reference_policy_kl_penalty: run["kl"].as_f64().unwrap(),
        ..LossConfig::default()
    };
    settings
}

fn train(settings: &StepSettings) -> Trained {
    let (policy, reference) = (model("tiny-qwen3"), model("tiny-qwen3-ref"));
    let models = Models { policy: &policy, previous: None, reference: Some(&reference) };
    run(&mut rows(), models, settings, nobody()).unwrap()
}

#[test]
fn every_number_of_every_step_is_the_oracles() {
    let runs = oracle();
    assert_eq!(runs.len(), 3);
    for spec in &runs {
        let name = spec["name"].as_str().unwrap();
        let trained = train(&settings_of(spec));
        let each = spec["each"].as_array().unwrap();
        assert_eq!((trained.reports.len(), each.len()), (10, 10), "{name}");
        for (report, expected) in trained.reports.iter().zip(each) {
            let (metrics, means) = (&report.metrics, &report.metrics.tokens);
            for (key, found) in [
                ("step", metrics.step),
                ("epoch", metrics.epoch.into()),
                ("minibatch", metrics.minibatch.into()),
                ("loss_tokens", report.loss_tokens),
            ] {
                assert_eq!(found, expected[key].as_u64().unwrap(), "{name} {key}");
            }
            let mut numbers = vec![
                ("loss", report.loss),
                ("grad_norm", report.grad_norm),
                ("clip_coefficient", metrics.clip_coefficient),
                ("actor_loss", means.actor_loss),
                ("probs_ratio", means.probs_ratio),
                ("probs_ratio_clamped", means.probs_ratio_clamped),
                ("probs_ratio_min", means.probs_ratio_min.unwrap()),
                ("probs_ratio_max", means.probs_ratio_max.unwrap()),
                ("clip_fraction", means.clip_fraction),
                ("approx_kl", means.approx_kl),
                ("token_mult_prob_error", means.token_mult_prob_error),
                ("approx_entropy", means.approx_entropy),
            ];
            if metrics.kl_coefficient != 0.0 {
                numbers.push(("kl_penalty", means.kl_penalty));
            }
            for (key, found) in numbers {
                let what = format!("{name}, step {}: {key}", metrics.step);
                let value = expected[key].as_f64().unwrap();
                // What is exactly 0 here is rounding there.
                match metrics.step == 1 && key == "approx_kl" {
                    true => assert!(found.abs() < 1e-12 && value.abs() < 1e-12, "{what}"),
                    false => close(found, value, TOLERANCE, &what),
                }
            }
        }
        for parameter in &trained.policy.parameters {
            let expected = &spec["weights"][&parameter.name];
            let values = to_f64(&parameter.leaf).unwrap();
            let norm = values.iter().map(|w| w * w).sum::<f64>().sqrt();
            let what = format!("{name} {}", parameter.name);
            close(norm, expected["norm"].as_f64().unwrap(), TOLERANCE, &what);
        }
    }
}

/// What the surrogate is for: each of ten steps over one batch lowers it, with ratios that leave the
/// clipping interval and a policy that drifts from the one that sampled.
#[test]
fn ten_steps_over_one_batch_lower_the_loss_every_time() {
    for spec in oracle().iter().filter(|spec| spec["minibatches"] == 1) {
        let trained = train(&settings_of(spec));
        let losses: Vec<f64> = trained.reports.iter().map(|report| report.loss).collect();
        assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
        let first = &trained.reports[0].metrics.tokens;
        assert_eq!((first.clip_fraction, first.approx_kl), (0.0, 0.0));
        assert_eq!((first.probs_ratio_min, first.probs_ratio_max), (Some(1.0), Some(1.0)));
        for report in &trained.reports[3..] {
            let means = &report.metrics.tokens;
            assert!(means.clip_fraction > 0.05 && means.approx_kl > 0.01, "{means:?}");
            assert!(means.probs_ratio_max.unwrap() > 1.2, "{means:?}");
            // Log-probabilities of the previous policy are those of the first step.
            assert_eq!(means.token_mult_prob_error, first.token_mult_prob_error);
        }
    }
}

fn bits(decoder: &Decoder) -> Vec<(String, Vec<u64>)> {
    let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect();
    let parameters = decoder.parameters.iter();
    parameters.map(|p| (p.name.clone(), bits(to_f64(&p.main).unwrap()))).collect()
}

/// A run that is cut after two passes and gone on with is the run that was not cut, bit by bit, as
/// long as the previous log-probabilities come from where it began.
#[test]
fn a_resumed_run_is_an_uninterrupted_one_bit_for_bit() {
    let (start, reference) = (model("tiny-qwen3"), model("tiny-qwen3-ref"));
    let mut whole = settings_of(&oracle()[2]);
    whole.schedule = Schedule { steps: 4, minibatches: 3 };
    let uninterrupted = train(&whole);

    let half = StepSettings { schedule: Schedule { steps: 2, ..whole.schedule }, ..whole.clone() };
    let home = tempfile::tempdir().unwrap();
    let first = train(&half);
    let digest = Digest32([7; 32]);
    checkpoint::write(home.path(), &start, &first, &half, digest).unwrap();
    let models =
        Models { policy: home.path(), previous: Some(&start), reference: Some(&reference) };
    let second = run(&mut rows(), models, &half, nobody()).unwrap();
    assert_eq!((second.reports[0].metrics.step, second.optimizer.step), (7, 12));
    assert_eq!(bits(&second.policy), bits(&uninterrupted.policy));
    let moments = |trained: &Trained| -> Vec<Vec<u64>> {
        let tensors = trained.optimizer.tensors(&trained.policy.parameters);
        let bits = |t: &tch::Tensor| to_f64(t).unwrap().into_iter().map(f64::to_bits).collect();
        tensors.iter().map(|(_, tensor)| bits(tensor)).collect()
    };
    assert_eq!(moments(&second), moments(&uninterrupted));
    let losses = |trained: &Trained| -> Vec<u64> {
        trained.reports.iter().map(|report| report.loss.to_bits()).collect()
    };
    assert_eq!([losses(&first), losses(&second)].concat(), losses(&uninterrupted));
    // And it is told apart from one that takes the previous log-probabilities anew.
    let anew = Models { previous: None, ..models };
    let anew = run(&mut rows(), anew, &half, nobody()).unwrap();
    assert_ne!(bits(&anew.policy), bits(&uninterrupted.policy));
}

/// A product takes time when it is made, and again on the way back, when nobody calls it.
#[test]
fn the_way_back_is_timed_by_its_part() {
    let clock = Clock::new(Device::Cpu, false).unwrap();
    let weight = Tensor::randn([400, 400], (Kind::Double, Device::Cpu)).set_requires_grad(true);
    let mut forward = None;
    let product = clock.operation(Part::Linear, || weight.f_matmul(&weight)).unwrap();
    clock.add_to(&mut forward).unwrap();
    let mut nothing = None;
    clock.add_to(&mut nothing).unwrap();
    let mut backward = None;
    product.sum(Kind::Double).backward();
    clock.add_to(&mut backward).unwrap();
    let zero = TimeSplit::default();
    assert_eq!(nothing, Some(zero));
    for split in [forward.unwrap(), backward.unwrap()] {
        assert!(split.linear_seconds > 0.0, "{split:?}");
        assert_eq!(TimeSplit { linear_seconds: 0.0, ..split }, zero);
    }
    let mut off = None;
    Clock::default().add_to(&mut off).unwrap();
    assert_eq!(off, None);
}

/// Times are told of every step, and the parts make up the whole.
#[test]
fn times_of_a_step_add_up() {
    let mut settings = settings(Dtype::Float64);
    settings.schedule.steps = 2;
    let trained = train(&settings);
    for (i, report) in trained.reports.iter().enumerate() {
        let took = report.performance.as_ref().unwrap();
        let split = took.split.unwrap();
        let parts = [
            split.attention_seconds,
            split.linear_seconds,
            split.head_seconds,
            split.other_seconds,
        ];
        assert!(parts.iter().all(|seconds| *seconds > 0.0), "{split:?}");
        let sum: f64 = parts.iter().sum();
        assert!((sum - took.train_seconds).abs() < 1e-6 * took.train_seconds, "{took:?}");
        assert_eq!(took.row_tokens, rows().iter().map(|r| r.input_ids.len() as u64).sum::<u64>());
        let seconds = took.train_seconds + took.update_seconds;
        close(took.tokens_per_second * seconds, took.row_tokens as f64, 1e-12, "tokens");
        assert_eq!((took.score_seconds > 0.0, took.io_seconds > 0.0), (i == 0, i == 0));
        assert!(took.mfu.is_none() && took.peak_bytes.unwrap() > 1 << 20);
    }
}
