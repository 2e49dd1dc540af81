//! Captured, own and in the row, held against each other.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use super::contexts::{Generation, Unscored};
use super::placed::Placed;
use super::report::{AuditReport, Disagreement, OwnContext, SCHEMA_VERSION, Spread, VersionSpread};
use crate::error::{Error, Result};
use crate::finding::Code;
use crate::id::CallId;
use crate::step::loss::unclamped;
use crate::step::settings::Dtype;

/// Differences of log-probabilities that are still no disagreement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Tolerances {
    /// Own against in the row, for the worst token of a generation.
    pub context: f64,
    /// Captured against own, for the worst token of a generation.
    pub token: f64,
    /// Captured against own, for the mean over a generation.
    pub mean: f64,
}

impl Tolerances {
    /// What rounding explains. `computed` is the number format of own and in the row; `saved` is
    /// that of the model as its `config.json` spells it, which is taken for the engine's.
    pub fn of(computed: Dtype, saved: Option<&str>) -> Self {
        let context = match computed {
            Dtype::Float64 => 1e-9,
            Dtype::Float32 => 1e-4,
            Dtype::Bfloat16 => 0.25,
        };
        // Of two programs in 16 bits, rule 129 asks for a mean of exp |g - p| below 1.05.
        let short = matches!(saved, Some("bfloat16" | "float16")) || computed == Dtype::Bfloat16;
        let (token, mean) = if short { (1.0, 0.05) } else { (1e-3, 1e-4) };
        Self { context, token, mean }
    }

    /// Refuses bounds that bound nothing.
    pub fn check(&self) -> Result<()> {
        let bounds = [
            ("--context-tolerance", self.context),
            ("--tolerance", self.token),
            ("--mean-tolerance", self.mean),
        ];
        match bounds.iter().find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
            None => Ok(()),
            Some((flag, x)) => {
                Err(Error::usage(format!("{flag} is {x}; it must be finite and not negative")))
            }
        }
    }
}

/// Holds generations against each other, one after the other.
#[derive(Clone, Debug)]
pub struct Audit {
    tolerances: Tolerances,
    own_context: OwnContext,
    /// Only what these weights sampled is held against what was captured.
    weight_version: Option<u64>,
    generations: u64,
    spans: u64,
    left_out: u64,
    unscored: BTreeMap<Unscored, u64>,
    context: Spread,
    captured: BTreeMap<Option<u64>, VersionSpread>,
    found: Vec<Found>,
}

/// A disagreement with what its order among others needs.
#[derive(Clone, Debug)]
struct Found {
    what: Disagreement,
    /// First token of its span.
    start: u32,
}

impl Audit {
    /// An audit that saw nothing yet. With a `weight_version`, captured log-probabilities of
    /// other weights are measured, and disagree with nothing.
    pub fn new(
        tolerances: Tolerances,
        own_context: OwnContext,
        weight_version: Option<u64>,
    ) -> Self {
        Self {
            tolerances,
            own_context,
            weight_version,
            generations: 0,
            spans: 0,
            left_out: 0,
            unscored: BTreeMap::new(),
            context: Spread::default(),
            captured: BTreeMap::new(),
            found: Vec::new(),
        }
    }

    /// Counts a call that has no log-probabilities.
    pub fn skip(&mut self, why: Unscored) {
        *self.unscored.entry(why).or_default() += 1;
    }

    /// Holds a generation against its spans in rows and against what was captured. `own` has one
    /// entry per generated token, NaN where nothing predicts it.
    pub fn add(&mut self, generation: &Generation, own: &[f64], places: &[Placed]) {
        self.generations += 1;
        let ids = generation.ids();
        let subject = Subject { generation, ids: &ids, own };
        for placed in places {
            self.spans += 1;
            self.hold_in_row(subject, placed);
        }
        self.hold_captured(subject, places.first());
    }

    /// A span of a call that the archive does not hold.
    pub fn stranger(&mut self, placed: &Placed) {
        self.spans += 1;
        let Placed { row, span, .. } = placed;
        let Some(rollout_id) = row.rollout_id.clone() else { return };
        let message = format!(
            "row {} holds a span of call {}, which the archive does not have in this rollout",
            row.row_id, span.call
        );
        let disagreement = Disagreement {
            code: Code::RowSpanMismatch,
            severity: Code::RowSpanMismatch.severity(),
            group_id: row.group_id.clone(),
            rollout_id,
            call_id: span.call.clone(),
            weight_version: span.weight_version,
            row_id: Some(row.row_id.clone()),
            owned: span.owned,
            position: span.gen_start.into(),
            token: 0,
            token_id: row.input_ids.get(span.gen_start as usize).copied(),
            captured: None,
            own: None,
            in_row: placed.in_row.first().copied().filter(|x| x.is_finite()),
            difference: None,
            first_difference: Some(span.gen_start.into()),
            follows: None,
            message,
            help: Code::RowSpanMismatch.help().to_owned(),
        };
        self.found.push(Found { what: disagreement, start: span.start });
    }

    fn hold_in_row(&mut self, subject: Subject, at: &Placed) {
        let Subject { generation, ids, own } = subject;
        let (start, end) = (at.span.gen_start as usize, at.span.end as usize);
        let (row, of_call) = (&at.row.input_ids, &ids[generation.start()..]);
        let first_difference = first_difference(&row[..end], ids);
        let captured_in_row = &at.row.generation_logprobs[start..end];
        let other = of_call
            .iter()
            .zip(&row[start..end])
            .zip(generation.captured.iter().zip(captured_in_row))
            .position(|((a, b), (x, y))| a != b || x.to_bits() != y.to_bits())
            .or((of_call.len() != end - start).then_some(of_call.len().min(end - start)));
        if let Some(token) = other {
            let why = match (of_call.get(token), row[start..end].get(token)) {
                (Some(a), Some(b)) if a != b => format!("token {token} is {b} there, not {a}"),
                (Some(_), Some(_)) => {
                    let (x, y) = (generation.captured[token], captured_in_row[token]);
                    format!("the row has {y} as captured for token {token}, not {x}")
                }
                _ => format!("the span has {} tokens, not {}", end - start, of_call.len()),
            };
            let message =
                format!("row {} has another generation in its span: {why}", at.row.row_id);
            let found =
                Worst { token, code: Code::RowSpanMismatch, difference: None, first_difference };
            self.push(subject, Some(at), found, message);
            return;
        }
        let (mut spread, mut worst) = (Spread::default(), 0);
        for (token, (own, in_row)) in own.iter().zip(at.in_row).enumerate() {
            // Nothing predicts the first token of all, in the row and alone.
            if own.is_nan() && in_row.is_nan() && start + token == 0 {
                continue;
            }
            let before = spread.max;
            spread.add((own - in_row).abs());
            if spread.max.to_bits() != before.to_bits() {
                worst = token;
            }
        }
        self.context.join(&spread);
        if spread.max <= self.tolerances.context {
            return;
        }
        let cause = match first_difference {
            Some(at) if at < start => match (row.get(at), ids.get(at)) {
                (Some(found), Some(given)) => {
                    format!("token {at} of the row is {found}, and the call was given {given}")
                }
                _ => format!("its context there has {start} tokens, not {}", generation.start()),
            },
            _ => "the tokens before it are the call's own, so that positions, attention, or the \
                  pack are to blame"
                .to_owned(),
        };
        let message = format!(
            "in row {} it has log-probabilities up to {:.3e} off those under its own context: \
             {cause}",
            at.row.row_id, spread.max
        );
        let code = Code::RowContextMismatch;
        let found = Worst { token: worst, code, difference: Some(spread), first_difference };
        self.push(subject, Some(at), found, message);
    }

    fn hold_captured(&mut self, subject: Subject, owner: Option<&Placed>) {
        let Subject { generation, own, .. } = subject;
        let (mut spread, mut worst) = (Spread::default(), 0);
        for (token, (captured, own)) in generation.captured.iter().zip(own).enumerate() {
            let captured = unclamped(f64::from(*captured));
            // A null, and the engine's word for minus infinity (rule 114), compare with nothing.
            if !captured.is_finite() {
                self.left_out += 1;
                continue;
            }
            if own.is_nan() && generation.start() + token == 0 {
                continue;
            }
            let before = spread.max;
            spread.add((captured - own).abs());
            if spread.max.to_bits() != before.to_bits() {
                worst = token;
            }
        }
        let version = generation.weight_version;
        let all = self.captured.entry(version).or_insert(VersionSpread {
            weight_version: version,
            generations: 0,
            spread: Spread::default(),
        });
        all.generations += 1;
        all.spread.join(&spread);
        let other_weights = self.weight_version.is_some_and(|of| version != Some(of));
        let agree = spread.max <= self.tolerances.token && spread.mean <= self.tolerances.mean;
        if other_weights || agree {
            return;
        }
        let message = format!(
            "its captured log-probabilities are {:.3e} off those of the model in the mean, and up \
             to {:.3e}",
            spread.mean, spread.max
        );
        let code = Code::CapturedLogprobMismatch;
        let found = Worst { token: worst, code, difference: Some(spread), first_difference: None };
        self.push(subject, owner, found, message);
    }

    fn push(&mut self, subject: Subject, at: Option<&Placed>, worst: Worst, message: String) {
        let Subject { generation, ids, own } = subject;
        let Worst { token, code, difference, first_difference } = worst;
        let finite = |x: Option<f64>| x.filter(|x| x.is_finite());
        let start = at.map_or(generation.start(), |at| at.span.gen_start as usize);
        let what = Disagreement {
            code,
            severity: code.severity(),
            group_id: generation.group_id.clone(),
            rollout_id: generation.rollout_id.clone(),
            call_id: generation.call_id.clone(),
            weight_version: generation.weight_version,
            row_id: at.map(|at| at.row.row_id.clone()),
            owned: at.is_some_and(|at| at.span.owned),
            position: (start + token) as u64,
            token: token as u64,
            token_id: ids.get(generation.start() + token).copied(),
            captured: finite(generation.captured.get(token).map(|&x| x.into())),
            own: finite(own.get(token).copied()),
            in_row: finite(at.and_then(|at| at.in_row.get(token).copied())),
            difference,
            first_difference: first_difference.map(|at| at as u64),
            follows: None,
            message,
            help: code.help().to_owned(),
        };
        self.found.push(Found { what, start: at.map_or(0, |at| at.span.start) });
    }

    /// The report, with no more than `top` disagreements, worst first.
    pub fn finish(mut self, top: usize) -> AuditReport {
        mark_what_follows(&mut self.found);
        self.found.sort_by(|a, b| worse(&a.what, &b.what));
        let mut found = BTreeMap::new();
        for Found { what, .. } in &self.found {
            *found.entry(what.code.as_str().to_owned()).or_default() += 1;
        }
        AuditReport {
            schema_version: SCHEMA_VERSION,
            own_context: self.own_context,
            generations: self.generations,
            unscored: self.unscored,
            spans: self.spans,
            context: self.context,
            captured: self.captured.into_values().collect(),
            left_out: self.left_out,
            tolerances: self.tolerances,
            found,
            disagreements: self.found.into_iter().take(top).map(|found| found.what).collect(),
        }
    }
}

/// What is held against something.
#[derive(Clone, Copy)]
struct Subject<'a> {
    generation: &'a Generation,
    /// All its tokens.
    ids: &'a [u32],
    own: &'a [f64],
}

/// The worst token of a generation, and what is wrong.
struct Worst {
    token: usize,
    code: Code,
    difference: Option<Spread>,
    first_difference: Option<usize>,
}

/// First place at which the beginning of a row is not a call's context and generation.
fn first_difference(row: &[u32], ids: &[u32]) -> Option<usize> {
    let common = row.iter().zip(ids).position(|(a, b)| a != b);
    common.or((row.len() != ids.len()).then_some(row.len().min(ids.len())))
}

/// One wrong token spoils every later generation of its row: all but the first follow from it.
fn mark_what_follows(found: &mut [Found]) {
    let cause = |found: &Found| {
        let in_row = found.what.code != Code::CapturedLogprobMismatch;
        Some((found.what.row_id.clone()?, found.what.first_difference?)).filter(|_| in_row)
    };
    let mut first: HashMap<(String, u64), (u32, CallId)> = HashMap::new();
    for one in found.iter() {
        let Some(cause) = cause(one) else { continue };
        let this = (one.start, one.what.call_id.clone());
        let first = first.entry(cause).or_insert_with(|| this.clone());
        if this.0 < first.0 {
            *first = this;
        }
    }
    for one in found {
        if let Some((_, call)) = cause(one).and_then(|cause| first.get(&cause))
            && *call != one.what.call_id
        {
            one.what.follows = Some(call.clone());
        }
    }
}

/// The order of the report.
fn worse(a: &Disagreement, b: &Disagreement) -> Ordering {
    let largest = |what: &Disagreement| what.difference.map_or(f64::INFINITY, |d| d.max);
    let place = |what: &Disagreement| (what.rollout_id.clone(), what.row_id.clone());
    (a.follows.is_some().cmp(&b.follows.is_some()))
        .then(a.code.cmp(&b.code))
        // NaN is the largest of all.
        .then(largest(b).total_cmp(&largest(a)))
        .then_with(|| place(a).cmp(&place(b)))
        .then(a.position.cmp(&b.position))
}

#[cfg(test)]
mod tests {
    use super::super::placed::{ScoredRows, generated};
    use super::*;
    use crate::rows::{Row, Span};
    use crate::step::batch::tests::row;

    const BOUNDS: Tolerances = Tolerances { context: 1e-9, token: 0.1, mean: 0.05 };

    /// Three tokens of context, and as many generated ones as there are captured values.
    fn generation(captured: &[f32]) -> Generation {
        let ids: Vec<u32> = (10..13 + captured.len() as u32).collect();
        Generation {
            group_id: "p".into(),
            rollout_id: "a".into(),
            call_id: "c".into(),
            weight_version: Some(3),
            pieces: vec![ids[..2].into(), ids[2..].into()],
            captured: captured.to_vec(),
        }
    }

    /// The row of that generation alone.
    fn row_of(generation: &Generation) -> Row {
        let (ids, start) = (generation.ids(), generation.start());
        let mut row = Row { input_ids: ids.clone(), ..row("a_s0", &vec![0; ids.len()]) };
        row.generation_logprobs[start..].copy_from_slice(&generation.captured);
        let (gen_start, end) = (start as u32, ids.len() as u32);
        let call = generation.call_id.clone();
        row.spans =
            vec![Span { call, start: 0, gen_start, end, owned: true, weight_version: Some(3) }];
        row
    }

    fn audit(
        generation: &Generation,
        own: &[f64],
        in_row: &[f64],
        weights: Option<u64>,
    ) -> AuditReport {
        let scored = ScoredRows::new(vec![row_of(generation)], &[in_row.to_vec()]);
        let mut audit = Audit::new(BOUNDS, OwnContext::Archive, weights);
        audit.add(generation, own, &scored.places(generation));
        audit.finish(9)
    }

    #[test]
    fn each_bound_is_held_by_itself() {
        let two = generation(&[-1.0, -2.0]);
        let codes = |own: &[f64], in_row: &[f64]| {
            let report = audit(&two, own, in_row, None);
            report.disagreements.iter().map(|found| found.code).collect::<Vec<_>>()
        };
        let (context, captured) = (Code::RowContextMismatch, Code::CapturedLogprobMismatch);
        assert_eq!(codes(&[-1.0, -2.0], &[-1.0, -2.0]), []);
        assert_eq!(codes(&[-1.0, -2.0], &[-1.0, -2.0 + 1e-8]), [context]);
        assert_eq!(codes(&[-1.0, -2.09], &[-1.0, -2.09]), []);
        assert_eq!(codes(&[-1.0, -2.11], &[-1.0, -2.11]), [captured]);
        assert_eq!(codes(&[-1.06, -2.06], &[-1.06, -2.06]), [captured], "the mean alone");
        assert_eq!(codes(&[-1.0, -2.5], &[-1.0, -2.0]), [context, captured]);
        assert_eq!(codes(&[-1.0, f64::NAN], &[-1.0, -2.0]), [context, captured]);
        assert_eq!(codes(&[-1.0, -2.0], &[f64::NAN, -2.0]), [context]);
    }

    #[test]
    fn the_worst_token_is_told_with_its_values() {
        let three = generation(&[-1.0, -2.0, -3.0]);
        let report = audit(&three, &[-1.0, -2.5, -3.2], &[-1.0, -2.5, -3.2], None);
        let found = &report.disagreements[0];
        assert_eq!((found.token, found.position, found.token_id), (1, 4, Some(14)));
        assert_eq!((found.captured, found.own), (Some(-2.0), Some(-2.5)));
        let spread = found.difference.unwrap();
        assert_eq!((spread.tokens, spread.max), (3, 0.5));
        assert!((spread.mean - 0.7 / 3.0).abs() < 1e-7, "{spread:?}");
        assert_eq!(report.captured[0].spread, spread);
    }

    #[test]
    fn other_weights_and_values_that_are_none_disagree_with_nothing() {
        let off = [-5.0, -5.0];
        let two = generation(&[-1.0, -2.0]);
        assert_eq!(audit(&two, &off, &off, Some(4)).disagreements, []);
        assert_eq!(audit(&two, &off, &off, Some(3)).disagreements.len(), 1);
        // A null, and the engine's clamp of minus infinity.
        let none = generation(&[f32::NAN, -9999.0]);
        let report = audit(&none, &off, &off, None);
        assert_eq!((report.disagreements.len(), report.left_out), (0, 2));
        assert_eq!(report.captured[0].spread, Spread::default());
    }

    #[test]
    fn the_first_token_of_a_row_has_no_log_probability() {
        let mut bare = generation(&[-1.0, -2.0]);
        bare.pieces = vec![[7, 8][..].into()];
        let row = row_of(&bare);
        assert_eq!(generated(&row).loss_mask, [0, 1]);
        let report = audit(&bare, &[f64::NAN, -2.0], &[-2.0], None);
        assert_eq!(report.disagreements, []);
        assert_eq!((report.context.tokens, report.captured[0].spread.tokens), (1, 1));
    }

    #[test]
    fn bounds_that_bound_nothing_are_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Tolerances { mean: bad, ..BOUNDS }.check().is_err());
        }
        let short = Tolerances::of(Dtype::Float32, Some("float16"));
        assert!(short.token > Tolerances::of(Dtype::Float32, None).token);
    }
}
