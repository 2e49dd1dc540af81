//! Canonical JSON text: the bytes under fingerprints (orjson) and replay digests (Python).
//!
//! Both are compact, with keys in code point order and non-ASCII text unescaped; they differ in
//! how they spell floats and in what they refuse.

use super::json::Json;
use super::python;

/// Whose spelling is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// orjson, as under fingerprints: NaN and infinities become null, integers must fit 64 bits.
    Orjson(ExponentSign),
    /// `json.dumps(allow_nan=False)`, as under replay digests: NaN and infinities are errors.
    Python,
}

/// How orjson spells a large exponent. Two correct installs of nemo-gym 0.7 may disagree, under
/// one fingerprint version (`spec/gym-wire.md` c.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExponentSign {
    /// `1e+16`: orjson 3.11.7 and newer.
    #[default]
    Plus,
    /// `1e16`: orjson up to 3.11.6.
    Bare,
}

/// A value that has no canonical text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// orjson writes 64-bit integers only.
    #[error("an integer beyond 64 bits")]
    Integer,
    /// Python refuses NaN and infinities.
    #[error("a number that is not finite")]
    NotFinite,
}

/// Canonical text of `value`. The value's own nesting is bounded by the parser, so the recursion
/// is too.
///
/// # Errors
///
/// [`CanonicalError`] for a number that the spelling refuses.
pub fn text(value: &Json, spelling: Spelling) -> Result<String, CanonicalError> {
    let mut out = String::new();
    write(&mut out, value, spelling)?;
    Ok(out)
}

fn write(out: &mut String, value: &Json, spelling: Spelling) -> Result<(), CanonicalError> {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(true) => out.push_str("true"),
        Json::Bool(false) => out.push_str("false"),
        Json::Int(n) => {
            let fits = (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(n);
            if !fits && spelling != Spelling::Python {
                return Err(CanonicalError::Integer);
            }
            out.push_str(&n.to_string());
        }
        Json::BigInt(digits) if spelling == Spelling::Python => out.push_str(digits),
        Json::BigInt(_) => return Err(CanonicalError::Integer),
        Json::Float(x) if x.is_finite() => out.push_str(&float(*x, spelling)),
        Json::Float(_) if spelling == Spelling::Python => return Err(CanonicalError::NotFinite),
        Json::Float(_) => out.push_str("null"),
        Json::Str(text) => string(out, text),
        Json::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(out, item, spelling)?;
            }
            out.push(']');
        }
        Json::Dict(members) => {
            out.push('{');
            for (i, (key, item)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                string(out, key);
                out.push(':');
                write(out, item, spelling)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn float(x: f64, spelling: Spelling) -> String {
    match spelling {
        Spelling::Python => python::repr_f64(x),
        Spelling::Orjson(sign) => orjson_float(x, sign),
    }
}

/// Shortest digits that read back, an exponent below 1e-5 and from 1e16.
fn orjson_float(x: f64, sign: ExponentSign) -> String {
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if x == 0.0 || (-5..16).contains(&exponent) {
        // Without an exponent, unlike the `{:?}` of small numbers.
        let fixed = format!("{x}");
        return if fixed.contains('.') { fixed } else { fixed + ".0" };
    }
    let plus = if exponent > 0 && sign == ExponentSign::Plus { "+" } else { "" };
    format!("{digits}e{plus}{exponent}")
}

/// `str.strip()` of Python, which also takes U+001C..U+001F for white space.
pub fn strip(text: &str) -> &str {
    text.trim_matches(python::is_space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_follow_the_three_spellings() {
        let plus = Spelling::Orjson(ExponentSign::Plus);
        let bare = Spelling::Orjson(ExponentSign::Bare);
        for (x, new, old, python) in [
            (1.0, "1.0", "1.0", "1.0"),
            (-0.0, "-0.0", "-0.0", "-0.0"),
            (0.1, "0.1", "0.1", "0.1"),
            (1e15, "1000000000000000.0", "1000000000000000.0", "1000000000000000.0"),
            (1e16, "1e+16", "1e16", "1e+16"),
            (1.5e300, "1.5e+300", "1.5e300", "1.5e+300"),
            (1e-4, "0.0001", "0.0001", "0.0001"),
            (1.25e-5, "0.0000125", "0.0000125", "1.25e-05"),
            (1e-6, "1e-6", "1e-6", "1e-06"),
            (1e-7, "1e-7", "1e-7", "1e-07"),
            (5e-324, "5e-324", "5e-324", "5e-324"),
            (
                123_456_789.123_456_79,
                "123456789.12345679",
                "123456789.12345679",
                "123456789.12345679",
            ),
        ] {
            assert_eq!(float(x, plus), new);
            assert_eq!(float(x, bare), old);
            assert_eq!(float(x, Spelling::Python), python);
        }
    }

    #[test]
    fn python_strips_more_than_unicode_white_space() {
        assert_eq!(strip("\u{1c}\u{a0} x\u{1f}\u{2003}"), "x");
        assert_eq!(strip("\u{200b}x"), "\u{200b}x");
    }
}
