//! Items of number arrays, a block of text at a time: what each byte is, is told for all of them
//! at once, so that where an item ends does not wait for the one before to be read.
//!
//! As in [`digits`], what is not spelled as the usual writers do is left to others.

use wide::u8x16;

use super::digits::{self, Number};

/// Bytes of a block.
const BLOCK: usize = 64;

/// What may lie behind a block and belong to its last item.
const BEHIND: usize = 32;

/// Digits of a fraction that are read here.
const FRACTION: usize = 24;

/// Takes integers of up to eight digits, each with the comma behind it, and returns their bytes.
pub(super) fn integers<T: From<u32>>(bytes: &[u8], values: &mut Vec<T>) -> usize {
    let mut at = take(bytes, values, integers_of_block);
    while let Some((value, taken)) = digits::short_item(&bytes[at..]) {
        values.push(value.into());
        at += taken;
    }
    at
}

/// Takes finite numbers with a decimal point, each with the comma behind it, and returns their
/// bytes.
pub(super) fn decimals(text: &str, values: &mut Vec<f64>) -> usize {
    let mut at = 0;
    loop {
        at += take(text.as_bytes().get(at..).unwrap_or_default(), values, decimals_of_block);
        match text.get(at..).and_then(digits::decimal_item) {
            Some((value, taken)) => {
                values.push(value);
                at += taken;
            }
            None => return at,
        }
    }
}

type Window = [u8; BLOCK + BEHIND];

/// Items of a block: every second byte at most ends one.
struct Items<T> {
    values: [T; BLOCK / 2],
    count: usize,
    /// Their bytes.
    taken: usize,
}

/// Gives blocks to `read` for as long as it takes anything of them, and returns the bytes taken.
fn take<N: Copy + Default, T: From<N>>(
    bytes: &[u8],
    values: &mut Vec<T>,
    read: impl Fn(&Window, &mut Items<N>),
) -> usize {
    let mut at = 0;
    let mut items = Items { values: [N::default(); BLOCK / 2], count: 0, taken: 0 };
    while let Some(window) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        (items.count, items.taken) = (0, 0);
        read(window, &mut items);
        values.extend(items.values.iter().take(items.count).map(|&value| T::from(value)));
        if items.taken == 0 {
            break;
        }
        at += items.taken;
    }
    at
}

impl<T> Items<T> {
    /// Takes an item whose comma is at `end`.
    fn push(&mut self, value: T, window: &Window, end: usize) {
        if let Some(place) = self.values.get_mut(self.count) {
            *place = value;
            self.count += 1;
            self.taken = end + 1 + usize::from(window.get(end + 1) == Some(&b' '));
        }
    }
}

fn integers_of_block(window: &Window, items: &mut Items<u32>) {
    let mut others = !digits_of(window);
    while others != 0 {
        let end = others.trailing_zeros() as usize;
        let count = end.wrapping_sub(items.taken);
        if count == 0 {
            // Not the space behind a comma, which is taken with it.
            return;
        }
        let Some(word) = word(window, items.taken) else { return };
        let plain =
            window.get(end) == Some(&b',') && count <= 8 && (count == 1 || word & 0xff != 0);
        if !plain {
            return;
        }
        items.push(digits::eight_digits(word << (64 - 8 * count)), window, end);
        others = from(others, items.taken);
    }
}

fn decimals_of_block(window: &Window, items: &mut Items<f64>) {
    let mut others = !digits_of(window);
    loop {
        let start = items.taken;
        let negative = window.get(start) == Some(&b'-');
        let whole_from = start + usize::from(negative);
        others = from(others, whole_from);
        let point = others.trailing_zeros() as usize;
        others = from(others, point + 1);
        let end = others.trailing_zeros() as usize;
        if end >= BLOCK || window[point] != b'.' || window[end] != b',' {
            return;
        }
        let (whole, fraction) = (point - whole_from, end - point - 1);
        let Some(value) = decimal(window, whole_from, whole, fraction) else { return };
        items.push(if negative { -value } else { value }, window, end);
    }
}

/// The number of `whole` digits from `from` on, a point and `fraction` digits.
fn decimal(window: &Window, from: usize, whole: usize, fraction: usize) -> Option<f64> {
    if !(1..=8).contains(&whole) || !(1..=FRACTION).contains(&fraction) {
        return None;
    }
    let first = word(window, from)?;
    if whole > 1 && first & 0xff == 0 {
        return None;
    }
    let integer = some_digits(first, whole);
    let start = from + whole + 1;
    let counts = [fraction.min(8), fraction.saturating_sub(8).min(8), fraction.saturating_sub(16)];
    let high = some_digits(word(window, start)?, counts[0]);
    let middle = some_digits(word(window, start + 8)?, counts[1]);
    let low = some_digits(word(window, start + 16)?, counts[2]);
    let upper = high * digits::TENS[counts[1]] + middle;
    // Ten digits of the upper part and eight of the lower one always fit; so do nineteen of both.
    let fits = match integer {
        0 => upper < digits::TENS[19 - counts[2]],
        _ => whole + fraction <= 19,
    };
    if !fits {
        return None;
    }
    let value = match integer {
        0 => 0,
        _ => integer * digits::TENS[fraction],
    };
    let value = value + upper * digits::TENS[counts[2]] + low;
    Number::new(value).over_ten_to(fraction as i32)
}

/// Those of the marks that are at `start` or behind it.
fn from(marks: u64, start: usize) -> u64 {
    if start < BLOCK { marks & (u64::MAX << start) } else { 0 }
}

/// Eight bytes, `'0'` taken from each.
fn word(window: &Window, at: usize) -> Option<u64> {
    let word = window.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word) ^ (digits::ONES * u64::from(b'0')))
}

/// The number of the first `count` digits of a word.
fn some_digits(word: u64, count: usize) -> u64 {
    match count {
        0 => 0,
        _ => digits::eight_digits(word << (64 - 8 * count)).into(),
    }
}

/// Which bytes of the block are digits, the first one in the lowest bit.
fn digits_of(window: &Window) -> u64 {
    let nine = u8x16::splat(9);
    let (lanes, _) = window.as_chunks::<16>();
    let marks = lanes.iter().take(BLOCK / 16).map(|&lane| {
        let digits = u8x16::new(lane) - u8x16::splat(b'0');
        u64::from(digits.min(nine).simd_eq(digits).to_bitmask())
    });
    marks.enumerate().fold(0, |all, (at, marks)| all | marks << (16 * at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Items by the functions that take one at a time, and the bytes of those they take.
    fn one_by_one<T>(text: &str, item: impl Fn(&str) -> Option<(T, usize)>) -> (Vec<T>, usize) {
        let (mut values, mut at) = (Vec::new(), 0);
        while let Some((value, taken)) = item(&text[at..]) {
            values.push(value);
            at += taken;
        }
        (values, at)
    }

    fn list(item: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
        let separator = prop_oneof![Just(","), Just(", ")];
        let odd = prop_oneof![30 => Just(""), 1 => Just(" "), 1 => Just(","), 1 => Just("é")];
        let items = prop::collection::vec((item, odd), 0..60);
        (items, separator, prop_oneof![Just("]"), Just("")], "[0-9. ,]{0,99}").prop_map(
            |(items, separator, end, behind)| {
                let items: Vec<_> =
                    items.into_iter().map(|(item, odd)| format!("{item}{odd}")).collect();
                items.join(separator) + end + &behind
            },
        )
    }

    fn integer() -> impl Strategy<Value = String> {
        prop_oneof![
            30 => (0..200_000_u32).prop_map(|n| n.to_string()),
            5 => any::<u32>().prop_map(|n| (n >> (n % 32)).to_string()),
            1 => "-?[0-9]{0,12}[.e]?[0-9]{0,2}",
        ]
    }

    fn decimal() -> impl Strategy<Value = String> {
        prop_oneof![
            20 => (-30.0..0.0_f32).prop_map(|x| format!("{:?}", f64::from(x))),
            20 => any::<f64>().prop_map(|x| format!("{:?}", x % 10.0)),
            5 => "-?[0-9]{1,9}\\.[0-9]{1,26}",
            5 => "-?0\\.0{0,24}[0-9]{1,20}",
            5 => any::<f32>().prop_map(|x| format!("{x:?}")),
            1 => "-?[0-9]{0,20}[.eE+-]{0,2}[0-9]{0,4}",
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn integers_are_those_read_one_by_one(text in list(integer())) {
            let mut found: Vec<u64> = Vec::new();
            let taken = integers(text.as_bytes(), &mut found);
            let (expected, bytes) = one_by_one(&text[..taken], |text| {
                // One at a time takes no more than seven digits, and nothing without bytes behind.
                let (number, rest) = text.split_once(',')?;
                let plain = number.len() <= 8 && !number.starts_with('+');
                let value: u32 = number.parse().ok().filter(|n: &u32| plain && n.to_string() == number)?;
                Some((u64::from(value), number.len() + 1 + usize::from(rest.starts_with(' '))))
            });
            prop_assert_eq!((&found, taken), (&expected, bytes), "{}", text);
            let (least, _) = one_by_one(&text, |text| digits::short_item(text.as_bytes()));
            prop_assert!(found.len() >= least.len(), "{}", text);
        }

        #[test]
        fn decimals_are_those_read_one_by_one(text in list(decimal())) {
            let mut found = Vec::new();
            let taken = decimals(&text, &mut found);
            let (expected, bytes) = one_by_one(&text, digits::decimal_item);
            let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!((bits(&found), taken), (bits(&expected), bytes), "{}", text);
        }
    }

    #[test]
    fn every_length_of_an_item_ends_anywhere_in_a_block() {
        for lead in 0..BLOCK {
            for (whole, fraction) in (1..=9).flat_map(|w| (1..=26).map(move |f| (w, f))) {
                let number =
                    format!("-{}.{}", "1234567890".get(..whole).unwrap(), "9".repeat(fraction));
                let text = format!("{}{number},{}", "1.5,".repeat(lead), "0.25,".repeat(40));
                let mut found = Vec::new();
                assert_eq!(decimals(&text, &mut found), text.len(), "{text}");
                let expected: Vec<f64> =
                    text.trim_end_matches(',').split(',').map(|x| x.parse().unwrap()).collect();
                assert_eq!(found, expected, "{text}");
            }
        }
    }
}
