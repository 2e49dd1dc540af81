//! Items of number arrays as the usual writers spell them, many bytes at a time.
//!
//! Each function takes what it surely understands and leaves the rest: whether a text that it
//! leaves is JSON, and what it says, is for the general parser to judge.

pub(super) const ONES: u64 = 0x0101_0101_0101_0101;

/// An integer of up to seven digits with the comma behind it, and their bytes.
pub(super) fn short_item(bytes: &[u8]) -> Option<(u32, usize)> {
    let word = bytes.first_chunk::<8>()?;
    let digits = u64::from_le_bytes(*word) ^ (ONES * u64::from(b'0'));
    let count = digit_count(digits);
    let plain = (1..8).contains(&count) && word[count] == b',' && (count == 1 || word[0] != b'0');
    plain.then(|| {
        let end = count + 1;
        (eight_digits(digits << (64 - 8 * count)), end + usize::from(bytes.get(end) == Some(&b' ')))
    })
}

/// Powers of ten, as far as 64 bits go.
pub(super) const TENS: [u64; 20] = powers(10);
/// Powers of five, as far as 64 bits go.
const FIVES: [u64; 28] = powers(5);

/// 2^127 over each of [`FIVES`] with its high bit set, rounded down; no use for the first, which
/// would not fit.
const RECIPROCALS: [u64; 28] = {
    let mut reciprocals = [0; 28];
    let mut at = 1;
    while at < reciprocals.len() {
        let power = FIVES[at] << FIVES[at].leading_zeros();
        reciprocals[at] = ((1 << 127) / power as u128) as u64;
        at += 1;
    }
    reciprocals
};

const fn powers<const N: usize>(base: u64) -> [u64; N] {
    let mut powers = [1; N];
    let mut at = 1;
    while at < N {
        powers[at] = powers[at - 1] * base;
        at += 1;
    }
    powers
}

/// How many of the lowest bytes are digits, after `'0'` was taken from each.
fn digit_count(digits: u64) -> usize {
    // Above nine, adding 0x76 reaches the high bit; a carry comes only out of what is no digit.
    let others = (digits.wrapping_add(ONES * 0x76) | digits) & (ONES * 0x80);
    others.trailing_zeros() as usize / 8
}

/// The number of eight digits, the first one lowest.
#[inline(always)]
pub(super) fn eight_digits(digits: u64) -> u32 {
    const PAIRS: u64 = 0x0000_00ff_0000_00ff;
    let tens = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let high = (tens & PAIRS).wrapping_mul(0x000f_4240_0000_0064);
    let low = (tens >> 16 & PAIRS).wrapping_mul(0x0000_2710_0000_0001);
    (high.wrapping_add(low) >> 32) as u32
}

/// How often `item` comes with a comma, or a comma and a space, behind it; and the bytes of that.
pub(super) fn repeated(bytes: &[u8], item: &[u8; 3]) -> (usize, usize) {
    let [a, b, c] = *item;
    match bytes.get(4) {
        Some(b' ') => run::<5, 80>(bytes, [a, b, c, b',', b' ']),
        _ => run::<4, 64>(bytes, [a, b, c, b',']),
    }
}

fn run<const ITEM: usize, const BLOCK: usize>(bytes: &[u8], item: [u8; ITEM]) -> (usize, usize) {
    let mut block = [0; BLOCK];
    block.as_chunks_mut::<ITEM>().0.fill(item);
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let whole = blocks.iter().take_while(|&other| *other == block).count();
    let (rest, _) = bytes[whole * BLOCK..].as_chunks::<ITEM>();
    let items = whole * (BLOCK / ITEM) + rest.iter().take_while(|&other| *other == item).count();
    (items, items * ITEM)
}

/// A finite number with a decimal point and the comma behind it, and their bytes.
pub(super) fn decimal_item(text: &str) -> Option<(f64, usize)> {
    let bytes = text.as_bytes();
    let start = usize::from(bytes.first() == Some(&b'-'));
    let mut number = Number::default();
    let whole = number.take(&bytes[start..]);
    let point = start + whole;
    let zero_first = whole > 1 && bytes[start] == b'0';
    if whole == 0 || zero_first || bytes.get(point) != Some(&b'.') {
        return None;
    }
    let fraction = number.take(&bytes[point + 1..]);
    let mut at = point + 1 + fraction;
    let mut exponent = Some(0);
    if let Some(b'e' | b'E') = bytes.get(at) {
        let from = at + 1;
        at = from + usize::from(matches!(bytes.get(from), Some(b'+' | b'-')));
        let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        at += digits;
        if digits == 0 {
            return None;
        }
        exponent = text[from..at].parse::<i32>().ok();
    }
    if fraction == 0 || bytes.get(at) != Some(&b',') {
        return None;
    }
    let places = exponent.and_then(|exponent| (fraction as i32).checked_sub(exponent));
    let value = match places.and_then(|places| number.over_ten_to(places)) {
        Some(value) if start == 1 => -value,
        Some(value) => value,
        None => text[..at].parse().ok().filter(|x: &f64| x.is_finite())?,
    };
    let end = at + 1;
    Some((value, end + usize::from(bytes.get(end) == Some(&b' '))))
}

/// A number of decimal digits.
#[derive(Default)]
pub(super) struct Number {
    value: u64,
    /// It has more digits than fit.
    beyond: bool,
}

impl Number {
    pub fn new(value: u64) -> Self {
        Self { value, beyond: false }
    }

    /// Appends the digits that `bytes` begin with, and returns how many they are.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let digits = u64::from_le_bytes(*word) ^ (ONES * u64::from(b'0'));
            let count = digit_count(digits);
            if count > 0 {
                self.push(eight_digits(digits << (64 - 8 * count)), count);
            }
            at += count;
            if count < 8 {
                return at;
            }
        }
        while let Some(digit) = bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
            self.push(u32::from(digit - b'0'), 1);
            at += 1;
        }
        at
    }

    /// Appends up to eight digits.
    fn push(&mut self, digits: u32, count: usize) {
        const DIGITS: usize = 19;
        self.beyond |= self.value >= TENS[DIGITS - count];
        self.value = self.value.wrapping_mul(TENS[count]).wrapping_add(u64::from(digits));
    }

    /// This number over `10^places`, rounded as IEEE 754 asks; `None` where 64 bits do not hold
    /// the operands.
    #[inline(always)]
    pub fn over_ten_to(&self, places: i32) -> Option<f64> {
        let at = usize::try_from(places).ok().filter(|&places| places < FIVES.len())?;
        let power = FIVES[at];
        if self.beyond {
            return None;
        }
        if self.value == 0 {
            return Some(0.0);
        }
        // Both with their high bit set, so the quotient has 63 or 64 bits.
        let (up, down) = (self.value.leading_zeros(), power.leading_zeros());
        let (over, under) = (self.value << up, power << down);
        let exponent = down as i32 - up as i32 - places - 63;
        let scaled = |quotient: f64| quotient * f64::from_bits(((1023 + exponent) as u64) << 52);
        // Less than two below the quotient: the reciprocal lacks less than one of its last place.
        // Rounding gives up the lowest ten or eleven of 63 or 64 bits, and is the same for all
        // that it can be unless half of these lie between.
        let least = ((u128::from(over) * u128::from(RECIPROCALS[at])) >> 64) as u64;
        if least.wrapping_add(2) & 0x1ff > 2 && at > 0 {
            return Some(scaled(rounded(least)));
        }
        // What is left over only has to keep the quotient from looking like a tie, which the
        // lowest bit does.
        let (over, under) = (u128::from(over) << 63, u128::from(under));
        let quotient = (over / under) as u64 | u64::from(over % under != 0);
        Some(scaled(rounded(quotient)))
    }
}

/// A number of 63 or 64 bits, rounded as `as` does. Processors convert signed ones at once; the bit
/// that is given up only has to keep the rest from looking like a tie.
#[inline(always)]
fn rounded(number: u64) -> f64 {
    2.0 * ((number >> 1 | number & 1) as i64) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::json::{Dialect, Json};

    /// The first item of a list as the general parser reads it, and the bytes up to the next.
    fn general(text: &str) -> Option<(Json, usize)> {
        let end = text.find(',')?;
        let value = Json::parse(&text[..end], Dialect::Strict).ok()?;
        Some((value, end + 1 + usize::from(text[end + 1..].starts_with(' '))))
    }

    fn spelled() -> impl Strategy<Value = String> {
        prop_oneof![
            "-?[0-9]{1,3}\\.[0-9]{1,22}",
            "-?[0-9]\\.[0-9]{1,22}[eE][+-]?[0-9]{1,3}",
            "-?[0-9]{0,20}[.eE+-]{0,2}[0-9]{0,4}",
            any::<f64>().prop_map(|x| format!("{x:?}")),
            any::<f32>().prop_map(|x| format!("{:?}", f64::from(x))),
            (-50.0..0.0_f32).prop_map(|x| format!("{:?}", f64::from(x))),
            (0_u64.., 0_i32..30).prop_map(|(n, places)| {
                let whole = n.to_string();
                let (head, tail) = whole.split_at(whole.len().saturating_sub(places as usize));
                format!("{}.{tail:0>1}", if head.is_empty() { "0" } else { head })
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn decimals_are_those_of_the_general_parser(
            number in spelled(),
            end in prop_oneof![Just(","), Just(", "), Just("]"), Just(" ,"), Just("x"), Just("")],
            more in "[0-9. ,]{0,9}",
        ) {
            let text = format!("{number}{end}{more}");
            if let Some((value, bytes)) = decimal_item(&text) {
                let (expected, length) = general(&text).unwrap();
                let Json::Float(expected) = expected else { panic!("{text} is no float") };
                prop_assert_eq!((value.to_bits(), bytes), (expected.to_bits(), length), "{}", text);
            } else if let (Some((Json::Float(_), _)), Some((item, _))) =
                (general(&text), text.split_once(','))
            {
                let usual = item.contains('.') && !item.contains(' ');
                prop_assert!(!usual, "{} has the usual spelling", text);
            }
        }

        #[test]
        fn integers_are_those_of_the_general_parser(
            number in prop_oneof!["[0-9]{1,12}", "-?[0-9]{0,3}[.e]?[0-9]{0,3}"],
            end in prop_oneof![Just(","), Just(", "), Just("]"), Just(" "), Just("x")],
            more in "[0-9 ,]{0,9}",
        ) {
            let text = format!("{number}{end}{more}");
            if let Some((value, bytes)) = short_item(text.as_bytes()) {
                let expected = general(&text).unwrap();
                prop_assert_eq!((Json::Int(value.into()), bytes), expected);
            } else if text.len() >= 8 && number.len() < 8 && end.starts_with(',') {
                prop_assert!(!matches!(general(&text), Some((Json::Int(0..), _)))
                    || number.starts_with('-'), "{} has the usual spelling", text);
            }
        }

        #[test]
        fn runs_are_as_long_as_one_by_one(
            items in prop::collection::vec(prop_oneof![40 => Just("0.0"), 1 => Just("1.0")], 0..80),
            separator in prop_oneof![Just(","), Just(", "), Just(" ,")],
            end in prop_oneof![Just(""), Just(","), Just("]")],
        ) {
            let text = items.join(separator) + end;
            let item = if text.as_bytes().get(4) == Some(&b' ') { "0.0, " } else { "0.0," };
            let mut expected = 0;
            while text[expected * item.len()..].starts_with(item) {
                expected += 1;
            }
            let found = repeated(text.as_bytes(), b"0.0");
            prop_assert_eq!(found, (expected, expected * item.len()));
        }
    }

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        let mut seed = 1_u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for _ in 0..200_000 {
            // Shortest spellings of either width, and digits cut where they may.
            let value = f64::from_bits(random() >> 2 | 0x3C00_0000_0000_0000);
            let cut = (random() % 20) as usize;
            for text in
                [format!("{value:?},"), format!("{:?},", value as f32), format!("{value:.cut$},")]
            {
                if let Some((found, _)) = decimal_item(&text) {
                    let expected: f64 = text.trim_end_matches(',').parse().unwrap();
                    assert_eq!(found.to_bits(), expected.to_bits(), "{text}");
                }
            }
        }
    }

    #[test]
    fn rounding_is_exact_at_ties() {
        for text in [
            "9007199254740993.0,",
            "0.5000000000000000277555756156289135105907917022705078125,",
            "0.1,",
            "0.3,",
            "1.00000000000000011102230246251565,",
            "1.000000000000000111,",
            "4503599627370496.5,",
            "-0.0,",
            "0.000000000000000000000000001,",
        ] {
            let (value, _) = decimal_item(text).unwrap();
            let expected: f64 = text.trim_end_matches(',').parse().unwrap();
            assert_eq!(value.to_bits(), expected.to_bits(), "{text}");
        }
    }
}
