//! Shares of a whole as people write them, compared without rounding.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A share above 0 and up to 1, as a decimal. A binary fraction would not do: 0.9 of 10 in binary64
/// is 9.000000000000002, of which the next whole number is 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fraction {
    digits: u32,
    /// Decimal places.
    places: u32,
}

/// More decimal places than this say nothing.
const PLACES: usize = 9;

impl Fraction {
    /// The least whole number that is no less than this share of `whole`.
    pub fn ceil_of(&self, whole: u64) -> u64 {
        let scale = 10_u128.pow(self.places);
        let least = (u128::from(self.digits) * u128::from(whole)).div_ceil(scale);
        // A share of at most 1 is no more than the whole.
        u64::try_from(least).unwrap_or(whole)
    }

    /// Whether `part` of `whole` is this share or more.
    pub fn is_reached(&self, part: u64, whole: u64) -> bool {
        part >= self.ceil_of(whole)
    }
}

impl FromStr for Fraction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no decimal above 0 and up to 1, as 0.9");
        let (whole, places) = text.split_once('.').unwrap_or((text, ""));
        let places = places.trim_end_matches('0');
        let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !plain(whole) || !plain(places) || places.len() > PLACES {
            return Err(wrong());
        }
        let digits: u32 = format!("{whole}{places}").parse().map_err(|_| wrong())?;
        let places = places.len() as u32;
        match digits {
            0 => Err(wrong()),
            digits if u64::from(digits) > 10_u64.pow(places) => Err(wrong()),
            digits => Ok(Self { digits, places }),
        }
    }
}

impl TryFrom<String> for Fraction {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Fraction> for String {
    fn from(fraction: Fraction) -> String {
        fraction.to_string()
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.places as usize {
            0 => write!(f, "{}", self.digits),
            places => write!(f, "0.{:0places$}", self.digits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_taken_without_rounding() {
        let of = |text: &str, whole| text.parse::<Fraction>().unwrap().ceil_of(whole);
        assert_eq!([of("0.9", 10), of("0.9", 8), of("0.90", 9), of("1", 7)], [9, 8, 9, 7]);
        assert_eq!([of("0.1", 1), of("0.5", 0), of("0.333333333", 3)], [1, 0, 1]);
        assert_eq!(of("1.000", u64::MAX), u64::MAX);
        let half: Fraction = "0.5".parse().unwrap();
        assert!(half.is_reached(2, 4) && !half.is_reached(1, 3));
    }

    #[test]
    fn only_decimals_above_zero_and_up_to_one_are_shares() {
        for text in ["", "0", "0.0", "1.1", "2", "-0.5", ".5", "1e-1", "0.1234567891", "nan", "0,5"]
        {
            assert!(text.parse::<Fraction>().is_err(), "{text}");
        }
        for text in ["1", "0.9", "0.05", "0.123456789"] {
            assert_eq!(text.parse::<Fraction>().unwrap().to_string(), text);
        }
    }
}
