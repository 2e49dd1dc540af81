//! The few habits of Python that the wire inherits: `repr` in messages, `int()` in envelopes.

use std::fmt::Write;

use super::canonical::{self, Spelling};
use super::json::Json;

/// `repr(text)`.
pub(super) fn repr_str(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                // Writing to a string cannot fail.
                let _ = match code {
                    0..=0xFF => write!(out, "\\x{code:02x}"),
                    0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
    out
}

/// `repr(value)` of a string or None.
pub(super) fn repr_optional(text: Option<&str>) -> String {
    text.map_or_else(|| "None".to_owned(), repr_str)
}

/// Both languages take the same Unicode categories for printable. A combining mark is escaped by
/// Rust only at the start of a string, hence the letter before it.
fn printable(c: char) -> bool {
    c.is_ascii_graphic() || c == ' ' || {
        !c.is_ascii() && format!("a{c}").escape_debug().count() == 2
    }
}

/// `repr(x)`.
pub(super) fn repr_f64(x: f64) -> String {
    canonical::text(&Json::Float(x), Spelling::Python).unwrap_or_else(|_| {
        let infinite = if x > 0.0 { "inf" } else { "-inf" };
        if x.is_nan() { "nan" } else { infinite }.to_owned()
    })
}

/// `int(text)`: surrounding white space, a sign, decimal digits of any script, single underscores
/// between digits. `None` if Python refuses the text, or beyond 128 bits.
pub(super) fn parse_int(text: &str) -> Option<i128> {
    let text = canonical::strip(text);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut value: i128 = 0;
    let mut after_digit = false;
    for c in digits.chars() {
        if c == '_' && after_digit {
            after_digit = false;
            continue;
        }
        let digit = decimal_digit(c)?;
        value = value.checked_mul(10)?.checked_add(i128::from(digit))?;
        after_digit = true;
    }
    after_digit.then_some(if negative { -value } else { value })
}

/// `str.isspace` of one character: Rust's white space, and the four separators U+001C..U+001F.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&c)
}

fn decimal_digit(c: char) -> Option<u32> {
    let code = u32::from(c);
    let zero = ZEROS[..ZEROS.partition_point(|&zero| zero <= code)].last()?;
    Some(code - zero).filter(|&digit| digit < 10)
}

/// The digit zero of every script (general category Nd of Unicode 14, that of CPython 3.11); the
/// other nine follow it.
const ZEROS: &[u32] = &[
    0x0030, 0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6,
    0x0D66, 0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80,
    0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0,
    0xFF10, 0x104A0, 0x10D30, 0x11066, 0x110F0, 0x11136, 0x111D0, 0x112F0, 0x11450, 0x114D0,
    0x11650, 0x116C0, 0x11730, 0x118E0, 0x11950, 0x11C50, 0x11D50, 0x11DA0, 0x16A60, 0x16AC0,
    0x16B50, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6, 0x1E140, 0x1E2F0, 0x1E950, 0x1FBF0,
];

#[cfg(test)]
mod tests {
    use super::*;

    // Expected values are those of CPython 3.11.
    #[test]
    fn repr_as_python_writes_it() {
        for (text, repr) in [
            ("a b", "'a b'"),
            ("it's", "\"it's\""),
            ("it's \"x\"", "'it\\'s \"x\"'"),
            ("\0\n\\\u{7f}", "'\\x00\\n\\\\\\x7f'"),
            ("é日\u{301}", "'é日\u{301}'"),
            ("\u{301}", "'\u{301}'"),
            ("\u{a0}\u{202e}\u{e000}\u{10ffff}", "'\\xa0\\u202e\\ue000\\U0010ffff'"),
        ] {
            assert_eq!(repr_str(text), repr);
        }
        for (x, repr) in [
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (123456789012345.0, "123456789012345.0"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (-3.4028235677973366e38, "-3.4028235677973366e+38"),
            (5e-324, "5e-324"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(repr_f64(x), repr);
        }
    }

    #[test]
    fn int_as_python_reads_it() {
        for (text, value) in [
            ("+2", Some(2)),
            (" 2\u{1f}", Some(2)),
            ("0_2", Some(2)),
            ("-10", Some(-10)),
            ("\u{662}\u{966}", Some(20)),
            ("\u{1d7d8}", Some(0)),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
            ("", None),
            ("+", None),
            ("+ 1", None),
            ("1.0", None),
            ("\u{b2}", None),
        ] {
            assert_eq!(parse_int(text), value, "{text:?}");
        }
    }
}
