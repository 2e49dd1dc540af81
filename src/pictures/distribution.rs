//! How numbers spread: quantiles, and bins that people can read.

use schemars::JsonSchema;
use serde::Serialize;

use crate::explain::Sample;

/// Quantiles: the value that stands at this share of the sorted values, or between two of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// Values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Least.
    pub min: f64,
    /// A twentieth lies below.
    pub p05: f64,
    /// A quarter lies below.
    pub p25: f64,
    /// Half lies below.
    pub median: f64,
    /// A quarter lies above.
    pub p75: f64,
    /// A twentieth lies above.
    pub p95: f64,
    /// Greatest.
    pub max: f64,
}

/// Values from `low` up to, and not with, `high`; the last bin has its end too.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Bin {
    /// Lower end.
    pub low: f64,
    /// Upper end; equal to `low` where a bin is one value.
    pub high: f64,
    /// Rollouts that train, or groups.
    pub trains: u64,
    /// Other rollouts.
    pub others: u64,
}

/// How the finite ones of some numbers spread.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Distribution {
    /// Over both kinds; null without any.
    pub spread: Option<Spread>,
    /// From the least on, without gaps, unless each is one value.
    pub bins: Vec<Bin>,
}

/// So many different values may have a bin each.
const SINGLES: usize = 12;

/// Bins at most, about.
const BINS: f64 = 16.0;

/// Where the greatest value is so many times the median, bins grow.
const LONG_TAIL: f64 = 12.0;

/// What is so many times less than the greatest value shares a bin.
const DECADES: f64 = 1e6;

impl Distribution {
    /// Of the numbers of a sample.
    pub fn of(sample: &Sample) -> Self {
        let sorted = |values: &[f64]| {
            let mut values: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        let (trains, others) = (sorted(&sample.trains), sorted(&sample.others));
        let all = sorted(&[&trains[..], &others[..]].concat());
        let (Some(&min), Some(&max)) = (all.first(), all.last()) else {
            return Self { spread: None, bins: Vec::new() };
        };
        let spread = Spread {
            count: all.len() as u64,
            mean: all.iter().sum::<f64>() / all.len() as f64,
            min,
            p05: quantile(&all, 0.05),
            p25: quantile(&all, 0.25),
            median: quantile(&all, 0.5),
            p75: quantile(&all, 0.75),
            p95: quantile(&all, 0.95),
            max,
        };
        let bins = match singles(&all) {
            Some(singles) => singles.into_iter().map(|x| (x, x)).collect::<Vec<_>>(),
            None => ends(&spread).windows(2).map(|w| (w[0], w[1])).collect(),
        };
        let bin = |(low, high)| Bin { low, high, trains: 0, others: 0 };
        let mut bins: Vec<Bin> = bins.into_iter().map(bin).collect();
        // The bin of a value is the last one that begins no later.
        let place = |bins: &[Bin], x: f64| bins.partition_point(|bin| bin.low <= x).max(1) - 1;
        for x in trains {
            let at = place(&bins, x);
            bins[at].trains += 1;
        }
        for x in others {
            let at = place(&bins, x);
            bins[at].others += 1;
        }
        Self { spread: Some(spread), bins }
    }
}

/// The different values, where a bar each tells more than bins: a few that come again and again,
/// or whole numbers close together.
fn singles(sorted: &[f64]) -> Option<Vec<f64>> {
    let mut singles = sorted.to_vec();
    singles.dedup();
    let (first, last) = (*singles.first()?, *singles.last()?);
    let repeat = 2 * singles.len() <= sorted.len();
    let whole = singles.iter().all(|x| x.fract() == 0.0) && last - first < SINGLES as f64;
    (first == last || singles.len() <= SINGLES && (repeat || whole)).then_some(singles)
}

/// Between the values around a share of them.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// Ends of bins, from the least value to the greatest: round numbers, equally far apart, or in
/// steps of 1, 2, 5, 10 with a long tail.
fn ends(spread: &Spread) -> Vec<f64> {
    let long = spread.min > 0.0 && spread.max > LONG_TAIL * spread.median;
    let ends = if long { growing(spread) } else { even(spread) };
    let covers = ends.first().is_some_and(|&first| first <= spread.min)
        && ends.last().is_some_and(|&last| last >= spread.max)
        && ends.iter().all(|end| end.is_finite())
        && ends.windows(2).all(|w| w[0] < w[1]);
    // Beside values near the limits of floats, steps vanish or end too early.
    if covers { ends } else { vec![spread.min, spread.max] }
}

fn growing(spread: &Spread) -> Vec<f64> {
    let least = round_below(spread.min);
    let mut end = round_below(spread.max / DECADES).max(least);
    let mut ends = if end > least { vec![least, end] } else { vec![end] };
    // Six decades have far fewer steps; where floats end, a step may stand still.
    while end <= spread.max && ends.len() < 100 {
        end = next_round(end);
        ends.push(end);
    }
    ends
}

fn even(spread: &Spread) -> Vec<f64> {
    let step = round_above((spread.max - spread.min) / BINS);
    let first = (spread.min / step).floor();
    let count = ((spread.max / step).floor() - first) as usize + 1;
    // Multiples of the step, not sums of it, so that ends are round.
    (0..=count.min(100)).map(|at| (first + at as f64) * step).collect()
}

/// The greatest of 1, 2, 5 times a power of ten that is not above `x`.
fn round_below(x: f64) -> f64 {
    let power = 10_f64.powf(x.log10().floor());
    [5.0, 2.0].into_iter().map(|m| m * power).find(|&r| r <= x).unwrap_or(power)
}

/// The least of 1, 2, 5 times a power of ten that is not below `x`.
fn round_above(x: f64) -> f64 {
    let below = round_below(x);
    if below >= x { below } else { next_round(below) }
}

/// The next one of 1, 2, 5, 10 times a power of ten.
fn next_round(x: f64) -> f64 {
    let power = 10_f64.powf((x * 1.0001).log10().floor());
    match x / power {
        m if m < 1.5 => 2.0 * power,
        m if m < 3.0 => 5.0 * power,
        _ => 10.0 * power,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(trains: &[f64], others: &[f64]) -> Distribution {
        Distribution::of(&Sample { trains: trains.to_vec(), others: others.to_vec() })
    }

    #[test]
    fn values_that_repeat_and_whole_numbers_have_a_bin_each() {
        let found = of(&[1.0, 0.0, 1.0, 0.0], &[0.5, 0.5]);
        let bins: Vec<_> = found.bins.iter().map(|b| (b.low, b.trains, b.others)).collect();
        assert_eq!(bins, [(0.0, 2, 0), (0.5, 0, 2), (1.0, 2, 0)]);
        let spread = found.spread.unwrap();
        assert_eq!((spread.mean, spread.median, spread.p25), (0.5, 0.5, 0.125));
        assert!(of(&[3.0, 1.0], &[]).bins.iter().all(|bin| bin.low == bin.high));
        assert!(of(&[0.3, 0.1], &[]).bins.iter().all(|bin| bin.low < bin.high));
        assert_eq!(of(&[0.3], &[]).bins.len(), 1);
    }

    #[test]
    fn bins_end_at_round_numbers_and_grow_with_a_long_tail() {
        let even: Vec<f64> = (3..=323).map(f64::from).collect();
        let ends: Vec<f64> = of(&even, &[]).bins.iter().map(|bin| bin.low).collect();
        let wanted: Vec<f64> = (0..=16).map(|at| 20.0 * f64::from(at)).collect();
        assert_eq!(ends, wanted);
        let mut tail: Vec<f64> = (1..=20).map(f64::from).collect();
        tail.push(3000.0);
        let ends: Vec<f64> = of(&tail, &[]).bins.iter().map(|bin| bin.low).collect();
        assert_eq!(ends, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0]);
    }

    #[test]
    fn nothing_finite_has_no_spread() {
        let found = of(&[f64::NAN], &[f64::INFINITY]);
        assert_eq!(found, Distribution { spread: None, bins: Vec::new() });
    }

    #[test]
    fn values_at_the_limits_of_floats_share_a_bin() {
        let found = of(&[-4.92809490650146e-309, 2.306566266986056e302], &[]);
        assert_eq!(found.bins.iter().map(|bin| bin.trains).collect::<Vec<_>>(), [2]);
        let least = f64::from_bits(1);
        let found = of(&[least, least, 2.0 * least, 100.0 * least], &[]);
        assert_eq!(found.bins.iter().map(|bin| bin.trains).sum::<u64>(), 4);
    }

    proptest! {
        #[test]
        fn every_value_is_in_one_bin_that_holds_it(
            values in prop::collection::vec(
                prop_oneof![-1e3..1e3_f64, 0.0..1e-6_f64, 1.0..1e9_f64, any::<f64>()], 1..80)
        ) {
            let found = of(&values, &[]);
            let finite: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
            prop_assert_eq!(found.bins.iter().map(|b| b.trains).sum::<u64>(), finite.len() as u64);
            prop_assert!(found.bins.len() <= 100);
            for (at, bin) in found.bins.iter().enumerate() {
                let last = at + 1 == found.bins.len();
                let inside = |x: &&f64| {
                    **x >= bin.low && (**x < bin.high || bin.low == bin.high && **x == bin.low
                        || last && **x <= bin.high)
                };
                prop_assert_eq!(finite.iter().filter(inside).count() as u64, bin.trains);
            }
        }
    }
}
