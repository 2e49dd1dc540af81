//! Shared prefixes that are computed once give what separate rows give: in float64, loss, every
//! gradient, and the weights after a step.

use forestctl::rows::Row;
use forestctl::step::batch::Batch;
use forestctl::step::loss::Loss;
use forestctl::step::metrics::Sums;
use forestctl::step::plan::blocks::AttentionWay;
use forestctl::step::plan::pack::{PackPlan, packs};
use forestctl::step::settings::{Dtype, Layout, Sharing};
use proptest::prelude::*;
use tch::Device;

use super::fixture::{loss_config, model, nobody, relative_distance, rows, settings};
use super::learner::decoder::Decoder;
use super::learner::run::{Models, Trained, run, score};
use super::learner::tensor::to_f64;
use super::learner::update::{OtherPolicies, accumulate};

const TOLERANCE: f64 = 1e-12;

const WAYS: [AttentionWay; 2] = [AttentionWay::Suffix, AttentionWay::Cascade];

#[test]
fn every_token_prefix_of_the_recorded_rows_is_computed_once() {
    let rows = rows();
    let computed = |rows: &[Row], share| -> usize {
        let batch = Batch::new(rows).unwrap();
        let made = packs(&batch, PackPlan { tokens: Some(1 << 20), share }).unwrap();
        assert_eq!(made.len(), 1);
        made.iter().map(|pack| pack.ids().len()).sum()
    };
    assert_eq!(computed(&rows, false), 3920);
    // Groups by themselves, and what they have in common, too.
    let groups = rows.chunk_by(|a, b| a.group_id == b.group_id);
    assert_eq!(groups.map(|group| computed(group, true)).sum::<usize>(), 2816);
    assert_eq!(computed(&rows, true), 2697);
}

#[test]
fn a_step_with_shared_prefixes_has_the_weights_of_separate_rows() {
    let policy = model("tiny-qwen3");
    let train = |share_prefixes, attention, pack_tokens| -> Trained {
        let mut settings = settings(Dtype::Float64);
        (settings.share_prefixes, settings.attention) = (share_prefixes, attention);
        settings.pack_tokens = pack_tokens;
        let models = Models { policy: &policy, previous: None, reference: None };
        run(&mut rows(), models, &settings, nobody()).unwrap()
    };
    let separate = train(Sharing::Never, AttentionWay::Auto, None);
    // Gradients of a step lie in the parameters until the next one.
    let numbers = |trained: &Trained| -> Vec<(String, Vec<f64>, Vec<f64>)> {
        let of = |p: &super::learner::parameters::Parameter| {
            let gradient = to_f64(p.grad.as_ref().unwrap()).unwrap();
            (p.name.clone(), to_f64(&p.leaf).unwrap(), gradient)
        };
        trained.policy.parameters.iter().map(of).collect()
    };
    let expected = numbers(&separate);
    for way in WAYS {
        for tokens in [300, 700, 1 << 20] {
            let shared = train(Sharing::Always, way, Some(tokens));
            let performance = shared.reports[0].performance.as_ref().unwrap();
            assert!(performance.computed_tokens < performance.row_tokens, "{way:?} {tokens}");
            let off = relative_distance(&[shared.reports[0].loss], &[separate.reports[0].loss]);
            assert!(off <= TOLERANCE, "{way:?} {tokens} loss: {off:e}");
            for ((name, weights, gradient), expected) in numbers(&shared).iter().zip(&expected) {
                let off = relative_distance(gradient, &expected.2);
                assert!(off <= TOLERANCE, "{way:?} {tokens} {name}: {off:e}");
                let off = relative_distance(weights, &expected.1);
                assert!(off <= TOLERANCE, "{way:?} {tokens} {name} after the step: {off:e}");
            }
        }
    }
}

/// What one row of a random forest is.
#[derive(Clone, Debug)]
enum Growth {
    /// Another text from the root on.
    Root,
    /// An earlier row again.
    Twin(prop::sample::Index),
    /// The beginning of an earlier row, and then another text.
    Branch(prop::sample::Index, prop::sample::Index),
    /// An end of an earlier row as a root, as after a compaction: the same text elsewhere.
    Compaction(prop::sample::Index, prop::sample::Index),
}

fn growth() -> impl Strategy<Value = Growth> {
    prop_oneof![
        1 => Just(Growth::Root),
        1 => any::<prop::sample::Index>().prop_map(Growth::Twin),
        6 => any::<(prop::sample::Index, prop::sample::Index)>()
            .prop_map(|(row, at)| Growth::Branch(row, at)),
        1 => any::<(prop::sample::Index, prop::sample::Index)>()
            .prop_map(|(row, at)| Growth::Compaction(row, at)),
    ]
}

/// Rows of random forests: texts of a few ids, so that siblings are often alike.
fn forests() -> impl Strategy<Value = Vec<Row>> {
    let text = prop::collection::vec((0..3_u32, prop::bool::weighted(0.4)), 0..7);
    let row = (growth(), text, -1.0..1.0_f64);
    prop::collection::vec(row, 1..9).prop_map(|plans| {
        let model: Row = rows().swap_remove(0);
        let mut made: Vec<Row> = Vec::new();
        for (number, (growth, text, advantage)) in plans.into_iter().enumerate() {
            let mut ids: Vec<u32> = match growth {
                _ if made.is_empty() => vec![7],
                Growth::Root => vec![8],
                Growth::Twin(row) => row.get(&made).input_ids.clone(),
                Growth::Branch(row, at) => {
                    let ids = &row.get(&made).input_ids;
                    ids[..=at.index(ids.len())].to_vec()
                }
                Growth::Compaction(row, at) => {
                    let ids = &row.get(&made).input_ids;
                    ids[at.index(ids.len())..].to_vec()
                }
            };
            let mut loss_mask = vec![0; ids.len()];
            // Twins and cut rows train on their old tokens now and then.
            loss_mask.iter_mut().skip(1).step_by(3).for_each(|mask| *mask = 1);
            ids.extend(text.iter().map(|(id, _)| id));
            loss_mask.extend(text.iter().map(|(_, trains)| u8::from(*trains)));
            made.push(Row {
                row_id: format!("r{number}_s0"),
                generation_logprobs: vec![-1.5; ids.len()],
                spans: Vec::new(),
                input_ids: ids,
                loss_mask,
                advantage,
                ..model.clone()
            });
        }
        made
    })
}

fn gradients(rows: &[Row], layout: Layout, way: AttentionWay) -> (Sums, Vec<(String, Vec<f64>)>) {
    let mut policy =
        Decoder::load(&model("tiny-qwen3"), Dtype::Float64, Device::Cpu, true).unwrap();
    policy.attention.way = way;
    let loss = Loss::new(loss_config(&serde_json::json!({}))).unwrap();
    let batch = Batch::new(rows).unwrap();
    let previous = score(&policy, rows, layout, "", &|_, _, _| {}).unwrap();
    let others = OtherPolicies { previous: &previous, reference: None };
    let (sums, _) = accumulate(
        &mut policy,
        &batch,
        &loss,
        others,
        &packs(&batch, layout.plan(&batch)).unwrap(),
        &|_, _, _| {},
    )
    .unwrap();
    let gradient = |p: &super::learner::parameters::Parameter| {
        let size = p.leaf.size().iter().product::<i64>() as usize;
        let none = || vec![0.0; size];
        (p.name.clone(), p.grad.as_ref().map_or_else(none, |grad| to_f64(grad).unwrap()))
    };
    (Sums::pooled(&sums), policy.parameters.iter().map(gradient).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_forests_have_the_gradients_of_separate_rows(
        rows in forests(),
        tokens in prop_oneof![Just(1_u64), 1..30_u64, Just(1 << 20)],
    ) {
        let alone = Layout { pack_tokens: None, share_prefixes: Sharing::Never };
        let (sums, expected) = gradients(&rows, alone, AttentionWay::Auto);
        let batch = Batch::new(&rows).unwrap();
        let loss = Loss::new(loss_config(&serde_json::json!({}))).unwrap();
        let value = |sums: &Sums| sums.loss(&loss, batch.valid_tokens().max(1));
        // Keys of a few tokens have gradients that nearly cancel; what is left of one is then held
        // against a thousandth of all gradients.
        let squares = expected.iter().flat_map(|(_, gradient)| gradient).map(|x| x * x);
        let whole = squares.sum::<f64>().sqrt();
        for way in WAYS {
            let layout = Layout { pack_tokens: Some(tokens), share_prefixes: Sharing::Always };
            let (found_sums, found) = gradients(&rows, layout, way);
            prop_assert!((value(&found_sums) - value(&sums)).abs() <= TOLERANCE);
            for ((name, found), (_, expected)) in found.iter().zip(&expected) {
                let norm = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
                let off = found.iter().zip(expected).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
                prop_assert!(
                    off.sqrt() <= TOLERANCE * norm.max(1e-3 * whole),
                    "{way:?} {name}: {:e} of {norm:e}, all gradients {whole:e}",
                    off.sqrt()
                );
            }
        }
    }
}
