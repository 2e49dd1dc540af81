//! A distribution as bars, with its quartiles below.

use maud::html;

use super::distribution::{Bin, Distribution, Spread};
use super::svg::{Picture, block, line, number, px, short, text, text_at, text_to};
use crate::report::thousands;

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 200.0;
/// The frame of the bars.
const LEFT: f64 = 40.0;
const RIGHT: f64 = 312.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 140.0;

/// The bars of `distribution`: solid what trains, hatched what does not. `unit` names the values.
pub fn histogram(title: &str, unit: &str, distribution: &Distribution) -> Picture {
    let Distribution { spread, bins } = distribution;
    let most = bins.iter().map(|bin| bin.trains + bin.others).max().unwrap_or(0).max(1);
    let step = (RIGHT - LEFT) / bins.len().max(1) as f64;
    let up = |count: u64| (BOTTOM - TOP) * count as f64 / most as f64;
    // Bars of a few values are no wider than bars of many.
    let wide = (step * 0.86).min(44.0);
    let bar = |at: usize, bin: &Bin| {
        let x = LEFT + step * at as f64 + (step - wide) / 2.0;
        let (solid, hatched) = (up(bin.trains), up(bin.others));
        let tells = format!("{}: {} train, {} do not", range(bin), bin.trains, bin.others);
        html! {
            @if bin.trains > 0 { (block(x, BOTTOM - solid, wide, solid, "loss", &tells)) }
            @if bin.others > 0 {
                (block(x, BOTTOM - solid - hatched, wide, hatched, "off", &tells))
            }
        }
    };
    let single = bins.iter().all(|bin| bin.low == bin.high);
    let every = (bins.len() as f64 * if single { 42.0 } else { 52.0 } / (RIGHT - LEFT)).ceil();
    let label = |at: usize, bin: &Bin| {
        let x = if single { LEFT + step * (at as f64 + 0.5) } else { LEFT + step * at as f64 };
        html! {
            @if at.is_multiple_of(every.max(1.0) as usize) {
                (line("line", (x, BOTTOM), (x, BOTTOM + 4.0)))
                (text_at(x, BOTTOM + 16.0, "note small", short(bin.low)))
            }
        }
    };
    let body = html! {
        @for share in [0.0, 0.5, 1.0] {
            @let y = BOTTOM - (BOTTOM - TOP) * share;
            (line("grid", (LEFT, y), (RIGHT, y)))
        }
        (text_to(LEFT - 6.0, TOP + 4.0, "note small", thousands(most)))
        (text_to(LEFT - 6.0, BOTTOM + 4.0, "note small", "0"))
        @for (at, bin) in bins.iter().enumerate() { (bar(at, bin)) (label(at, bin)) }
        (line("line", (LEFT, BOTTOM), (RIGHT, BOTTOM)))
        (text(LEFT, 14.0, "note small", unit))
        @match spread {
            Some(spread) => (quartiles(spread, bins, single)),
            None => (text_at((LEFT + RIGHT) / 2.0, 90.0, "note", "no values")),
        }
    };
    let words = spread.map_or("No values.".to_owned(), |s| told(&s, unit));
    Picture { width: WIDTH, height: HEIGHT, title: title.to_owned(), words, body }
}

/// The middle half as a bar, the median as a tick, the middle nine tenths as a line.
fn quartiles(spread: &Spread, bins: &[Bin], single: bool) -> maud::Markup {
    let y = BOTTOM + 30.0;
    let at = |value: f64| LEFT + (RIGHT - LEFT) * place(value, bins, single);
    let (low, high) = (at(spread.p25), at(spread.p75));
    let median = at(spread.median);
    html! {
        (line("line", (at(spread.p05), y), (at(spread.p95), y)))
        rect.quartiles x=(px(low)) y=(px(y - 3.0)) width=(px((high - low).max(1.0))) height="6" rx="2" {}
        (line("cut", (median, y - 8.0), (median, y + 8.0)))
        (text_at(median.clamp(LEFT + 50.0, RIGHT - 50.0), y + 21.0, "note small",
            format!("median {}, mean {}", number(spread.median), number(spread.mean))))
    }
}

/// Where a value stands between the first bin (0) and the last one's end (1).
fn place(value: f64, bins: &[Bin], single: bool) -> f64 {
    let at = bins.partition_point(|bin| bin.low <= value).max(1) - 1;
    let Some(bin) = bins.get(at) else { return 0.0 };
    let n = bins.len() as f64;
    if single {
        // Between two values, as far as it is between them.
        let on = bins.get(at + 1).map_or(0.0, |next| (value - bin.low) / (next.low - bin.low));
        return (at as f64 + 0.5 + on) / n;
    }
    let inside = (value - bin.low) / (bin.high - bin.low);
    (at as f64 + inside.clamp(0.0, 1.0)) / n
}

/// The values of a bin.
pub fn range(bin: &Bin) -> String {
    match bin.low == bin.high {
        true => number(bin.low),
        false => format!("{} to {}", number(bin.low), number(bin.high)),
    }
}

fn told(spread: &Spread, unit: &str) -> String {
    let Spread { count, mean, min, p05, p25, median, p75, p95, max } = *spread;
    let [mean, min, p05, p25, median, p75, p95, max] =
        [mean, min, p05, p25, median, p75, p95, max].map(number);
    format!(
        "{count} values of {unit}: least {min}, 5% {p05}, 25% {p25}, median {median}, mean {mean}, \
         75% {p75}, 95% {p95}, greatest {max}."
    )
}
