//! JSON values as the wire sees them.
//!
//! Digests and fingerprints tell `1` from `1.0` and 0 from -0.0, refuse integers that serde_json
//! would turn into floats, and follow Python where Python parsed the text. So this is a value
//! type and parser of its own (`spec/gym-wire.md`, "Rust pitfalls" 1); everything else in
//! forestctl uses serde_json.

use std::collections::BTreeMap;

use super::parser::{Parser, Value};

/// A JSON value. Object keys are in UTF-8 byte order (= code point order); of duplicate keys the
/// last wins.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// Integer spelling, `-0` included (it is 0).
    Int(i128),
    /// Integer spelling beyond 128 bits, kept as text.
    BigInt(String),
    /// Any other number.
    Float(f64),
    /// String.
    Str(String),
    /// Array.
    List(Vec<Json>),
    /// Object.
    Dict(BTreeMap<String, Json>),
}

/// Which texts are JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// RFC 8259; numbers that overflow a double are refused.
    Strict,
    /// `json.loads` of Python: also NaN, Infinity, -Infinity, and 1e999 as infinity.
    Python,
}

/// Nesting that is followed before a text is refused; orjson's own limit.
pub const MAX_DEPTH: usize = 254;

/// [`JsonError::reason`] of a number that is JSON, but no finite double.
pub const OVERFLOW: &str = "number overflows a double";

/// Why a text is not JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at byte {offset}")]
pub struct JsonError {
    /// What was wrong.
    pub reason: &'static str,
    /// Byte offset in the text.
    pub offset: usize,
    /// Nested deeper than [`MAX_DEPTH`], rather than malformed.
    pub too_deep: bool,
}

impl Json {
    /// Parses a whole text; surrounding white space is allowed.
    pub fn parse(text: &str, dialect: Dialect) -> Result<Json, JsonError> {
        Value::parse(text, dialect).map(Json::from)
    }

    /// Whether [`Dialect::Python`] can read a text that [`Json::parse`] refused only for its
    /// nesting or a lone surrogate, both of which Python itself takes. Does not recurse.
    pub fn is_well_formed(text: &str) -> bool {
        Parser::new(text, Dialect::Python).check().is_some()
    }

    /// Member of an object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Dict(map) => map.get(key),
            _ => None,
        }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Json::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The items, if it is an array.
    pub fn as_list(&self) -> Option<&[Json]> {
        match self {
            Json::List(items) => Some(items),
            _ => None,
        }
    }

    /// The members, if it is an object.
    pub fn as_dict(&self) -> Option<&BTreeMap<String, Json>> {
        match self {
            Json::Dict(map) => Some(map),
            _ => None,
        }
    }

    /// True for null.
    pub fn is_null(&self) -> bool {
        matches!(self, Json::Null)
    }

    /// Python's truth: false for null, false, zero, and empty strings, arrays, objects.
    pub fn truthy(&self) -> bool {
        match self {
            Json::Null => false,
            Json::Bool(b) => *b,
            Json::Int(n) => *n != 0,
            Json::BigInt(_) => true,
            Json::Float(x) => *x != 0.0,
            Json::Str(s) => !s.is_empty(),
            Json::List(l) => !l.is_empty(),
            Json::Dict(d) => !d.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strict(text: &str) -> Result<Json, JsonError> {
        Json::parse(text, Dialect::Strict)
    }

    #[test]
    fn integers_and_floats_stay_apart() {
        assert_eq!(strict("1"), Ok(Json::Int(1)));
        assert_eq!(strict("1.0"), Ok(Json::Float(1.0)));
        assert_eq!(strict("-0"), Ok(Json::Int(0)));
        assert!(matches!(strict("-0.0"), Ok(Json::Float(x)) if x.to_bits() == (-0.0f64).to_bits()));
        assert_eq!(strict("18446744073709551616"), Ok(Json::Int(1 << 64)));
        assert!(matches!(strict(&"9".repeat(60)), Ok(Json::BigInt(_))));
    }

    #[test]
    fn agrees_with_serde_json_on_what_is_json() {
        for text in [
            "[]",
            "{}",
            " [1, 2.5e-3, \"a\\u00e9\\ud83d\\ude00\\n\"] ",
            "{\"a\":{\"b\":null}}",
            "",
            "[1,]",
            "{\"a\"}",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "\"\t\"",
            "\"\\x\"",
            "nul",
            "[1]x",
            "\"\\ud800\"",
            "1e999",
            "NaN",
            "-",
            "\"abc",
            "{\"a\":1,\"a\":2}",
            "\u{feff}1",
        ] {
            let ours = strict(text);
            let theirs = serde_json::from_str::<serde_json::Value>(text);
            assert_eq!(ours.is_ok(), theirs.is_ok(), "{text:?}: {ours:?} against {theirs:?}");
        }
        assert_eq!(strict("{\"a\":1,\"a\":2}").unwrap().get("a"), Some(&Json::Int(2)));
    }

    #[test]
    fn what_python_reads_is_told_without_recursion() {
        let nest = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(Json::is_well_formed(&nest(100_000)));
        assert!(!Json::is_well_formed(&nest(100_000)[1..]));
        for (text, expected) in [
            ("\"\\ud800\"", true),
            ("{\"a\\ud800\": [1, {\"b\": NaN}, {}, []]}", true),
            ("\"\\ud800", false),
            ("[1,]", false),
            ("{\"a\":1,}", false),
            ("{\"a\"}", false),
            ("[1 2]", false),
            ("1 2", false),
            ("\"\t\"", false),
            ("\"\\x\"", false),
            ("", false),
        ] {
            assert_eq!(Json::is_well_formed(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_nesting_bomb_is_refused_without_recursing_to_its_depth() {
        let bomb = "[".repeat(1_000_000);
        assert!(strict(&bomb).unwrap_err().too_deep);
    }
}
