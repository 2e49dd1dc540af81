//! Items of number arrays, a block of text at a time: what each byte is, is told for all of them
//! at once, so that where an item ends does not wait for the one before to be read.
//!
//! As in [`digits`], what is not spelled as the usual writers do is left to others.

use multiversion::multiversion;
use wide::u8x16;

use super::digits::{self, Number};

/// Bytes of a block.
const BLOCK: usize = 64;

/// What may lie behind a block and belong to its last item.
const BEHIND: usize = 32;

/// Digits of a fraction that are read here.
const FRACTION: usize = 23;

/// Takes integers of up to eight digits, each with the comma behind it, and returns their bytes.
pub(super) fn integers<T: From<u32>>(bytes: &[u8], values: &mut Vec<T>) -> usize {
    let mut at = integer_blocks(bytes, values);
    while let Some((value, taken)) = digits::short_item(&bytes[at..]) {
        values.push(value.into());
        at += taken;
    }
    at
}

/// Appends the integers of a list, each up to eighteen digits and with a comma between them, to
/// `values`; `None` if any of it is spelled differently.
pub(super) fn items(bytes: &[u8], values: &mut Vec<u64>) -> Option<()> {
    if bytes.is_empty() {
        return Some(());
    }
    let mut at = 0;
    loop {
        at += integers(&bytes[at..], values);
        // The last ones, longer ones, and whatever else there is.
        let rest = &bytes[at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 || count > 18 || (count > 1 && rest[0] == b'0') {
            return None;
        }
        values.push(
            rest[..count].iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')),
        );
        at += count;
        match bytes.get(at..)? {
            [] => return Some(()),
            [b',', b' ', ..] => at += 2,
            [b',', ..] => at += 1,
            _ => return None,
        }
    }
}

/// Takes finite numbers with a decimal point, each with the comma behind it, and returns their
/// bytes.
pub(super) fn decimals(text: &str, values: &mut Vec<f64>) -> usize {
    let mut at = 0;
    loop {
        at += decimal_blocks(text.as_bytes().get(at..).unwrap_or_default(), values);
        match text.get(at..).and_then(digits::decimal_item) {
            Some((value, taken)) => {
                values.push(value);
                at += taken;
            }
            None => return at,
        }
    }
}

/// Shifts by a number of digits are most of the work, and slow without BMI2.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt"))]
fn integer_blocks<T: From<u32>>(bytes: &[u8], values: &mut Vec<T>) -> usize {
    take::<u32, T>(bytes, values)
}

#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt"))]
fn decimal_blocks(bytes: &[u8], values: &mut Vec<f64>) -> usize {
    take::<f64, f64>(bytes, values)
}

type Window = [u8; BLOCK + BEHIND];

/// As many items as a block can end: every second byte is one's comma.
type Items<N> = [N; BLOCK / 2];

/// A number as it stands in a list.
trait Item: Copy + Default {
    /// Reads the items of a block, which have a space before each but the first if `SPACED`.
    /// Returns how many they are, and their bytes.
    fn read<const SPACED: bool>(window: &Window, items: &mut Items<Self>) -> (usize, usize);
}

/// Reads blocks for as long as there is an item in them, and returns the bytes taken.
#[inline(always)]
fn take<N: Item, T: From<N>>(bytes: &[u8], values: &mut Vec<T>) -> usize {
    let comma = bytes.iter().take(BLOCK).position(|&byte| byte == b',');
    let next = comma.and_then(|at| bytes.get(at + 1));
    match next {
        Some(b' ') => take_all::<N, T, true>(bytes, values),
        _ => take_all::<N, T, false>(bytes, values),
    }
}

#[inline(always)]
fn take_all<N: Item, T: From<N>, const SPACED: bool>(bytes: &[u8], values: &mut Vec<T>) -> usize {
    let mut at = 0;
    let mut items = [N::default(); BLOCK / 2];
    while let Some(window) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let (count, taken) = N::read::<SPACED>(window, &mut items);
        if count == 0 {
            break;
        }
        values.extend(items.iter().take(count).map(|&value| T::from(value)));
        at += taken;
    }
    at
}

/// Without the lowest mark.
#[inline(always)]
fn behind_first(marks: u64) -> u64 {
    marks & marks.wrapping_sub(1)
}

/// The marks behind the comma that is the lowest one, and where the next item starts; `None` where
/// there is no comma or not the space that should be behind it.
#[inline(always)]
fn behind_comma<const SPACED: bool>(window: &Window, others: u64) -> Option<(u64, usize)> {
    let end = others.trailing_zeros() as usize;
    let spaced = window.get(end + 1) == Some(&b' ');
    if end >= BLOCK || window[end] != b',' || spaced != SPACED {
        return None;
    }
    let others = behind_first(others);
    Some(match SPACED {
        true => (behind_first(others), end + 2),
        false => (others, end + 1),
    })
}

impl Item for u32 {
    #[inline(always)]
    fn read<const SPACED: bool>(window: &Window, items: &mut Items<Self>) -> (usize, usize) {
        let mut others = !digits_of(window);
        let (mut count, mut start) = (0, 0);
        for item in items {
            let end = others.trailing_zeros() as usize;
            let Some((behind, next)) = behind_comma::<SPACED>(window, others) else { break };
            let length = end.wrapping_sub(start);
            let Some(word) = word(window, start) else { break };
            if !(1..=8).contains(&length) || (length > 1 && word & 0xff == 0) {
                break;
            }
            *item = digits::eight_digits(word << (64 - 8 * length));
            (others, start) = (behind, next);
            count += 1;
        }
        (count, start)
    }
}

impl Item for f64 {
    #[inline(always)]
    fn read<const SPACED: bool>(window: &Window, items: &mut Items<Self>) -> (usize, usize) {
        let mut others = !digits_of(window);
        let (mut count, mut start) = (0, 0);
        for item in items {
            let negative = others.trailing_zeros() as usize == start;
            // Without the sign, if there is one.
            let unsigned = others & others.wrapping_sub(u64::from(negative));
            let from = start + usize::from(negative);
            let point = unsigned.trailing_zeros() as usize;
            let fractional = behind_first(unsigned);
            let end = fractional.trailing_zeros() as usize;
            let Some((behind, next)) = behind_comma::<SPACED>(window, fractional) else { break };
            if window[point] != b'.' || (negative && window[start] != b'-') {
                break;
            }
            let (whole, fraction) = (point.wrapping_sub(from), end - point - 1);
            let Some(value) = decimal(window, from, whole, fraction) else { break };
            *item = if negative { -value } else { value };
            (others, start) = (behind, next);
            count += 1;
        }
        (count, start)
    }
}

/// The number of `whole` digits from `from` on, a point and `fraction` digits.
#[inline(always)]
fn decimal(window: &Window, from: usize, whole: usize, fraction: usize) -> Option<f64> {
    if !(1..=8).contains(&whole) || !(1..=FRACTION).contains(&fraction) {
        return None;
    }
    let first = word(window, from)?;
    let start = from + whole + 1;
    // Nearly always there is one digit, which then goes before the others.
    let (integer, words, count) = match whole {
        1 => {
            let head = word(window, start)? << 8 | first & 0xff;
            (0, [head, word(window, start + 7)?, word(window, start + 15)?], fraction + 1)
        }
        _ if first & 0xff == 0 => return None,
        _ => {
            let words = [start, start + 8, start + 16].map(|at| word(window, at));
            (some_digits(first, whole), [words[0]?, words[1]?, words[2]?], fraction)
        }
    };
    let counts = [count.min(8), count.saturating_sub(8).min(8), count.saturating_sub(16)];
    let upper = some_digits(words[0], counts[0]) * digits::TENS[counts[1]]
        + some_digits(words[1], counts[1]);
    // Nineteen digits always fit, and so do as many behind zeros.
    if whole + fraction > 19 && (integer > 0 || upper >= digits::TENS[19 - counts[2]]) {
        return None;
    }
    let integer = integer * digits::TENS[fraction.min(19)];
    let value = integer + upper * digits::TENS[counts[2]] + some_digits(words[2], counts[2]);
    Number::new(value).over_ten_to(fraction as i32)
}

/// Eight bytes, `'0'` taken from each.
#[inline(always)]
fn word(window: &Window, at: usize) -> Option<u64> {
    let word = window.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word) ^ (digits::ONES * u64::from(b'0')))
}

/// The number of the first `count` digits of a word, eight at most.
#[inline(always)]
fn some_digits(word: u64, count: usize) -> u64 {
    digits::eight_digits(word.unbounded_shl(64 - 8 * count as u32)).into()
}

/// Which bytes of the block are digits, the first one in the lowest bit.
#[inline(always)]
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
