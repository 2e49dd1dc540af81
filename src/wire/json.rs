//! JSON values as the wire sees them.
//!
//! Digests and fingerprints tell `1` from `1.0` and 0 from -0.0, refuse integers that serde_json
//! would turn into floats, and follow Python where Python parsed the text. So this is a value
//! type and parser of its own (`spec/gym-wire.md`, "Rust pitfalls" 1); everything else in
//! forestctl uses serde_json.

use std::collections::BTreeMap;

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
        let mut parser = Parser::new(text, dialect);
        let value = parser.value(0)?;
        parser.space();
        if parser.at != parser.bytes.len() {
            return Err(parser.error("trailing text"));
        }
        Ok(value)
    }

    /// Whether [`Dialect::Python`] can read a text that [`Json::parse`] refused only for its
    /// nesting or a lone surrogate, both of which Python itself takes. Does not recurse.
    pub fn is_well_formed(text: &str) -> bool {
        Parser { bytes: text.as_bytes(), text, at: 0, dialect: Dialect::Python }.check().is_some()
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

/// Cursor over a text; what reads JSON of a known form without a tree starts here too.
pub(super) struct Parser<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) text: &'a str,
    pub(super) at: usize,
    dialect: Dialect,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, dialect: Dialect) -> Self {
        Parser { bytes: text.as_bytes(), text, at: 0, dialect }
    }

    pub(super) fn error(&self, reason: &'static str) -> JsonError {
        JsonError { reason, offset: self.at, too_deep: false }
    }

    pub(super) fn space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    pub(super) fn word(&mut self, word: &str) -> bool {
        let found = self.bytes[self.at..].starts_with(word.as_bytes());
        if found {
            self.at += word.len();
        }
        found
    }

    pub(super) fn value(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.space();
        let python = self.dialect == Dialect::Python;
        match self.bytes.get(self.at) {
            None => Err(self.error("unexpected end")),
            Some(b'{' | b'[') if depth >= MAX_DEPTH => {
                Err(JsonError { reason: "nested too deeply", offset: self.at, too_deep: true })
            }
            Some(b'{') => self.dict(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Json::Str),
            Some(b'n') if self.word("null") => Ok(Json::Null),
            Some(b't') if self.word("true") => Ok(Json::Bool(true)),
            Some(b'f') if self.word("false") => Ok(Json::Bool(false)),
            Some(b'N') if python && self.word("NaN") => Ok(Json::Float(f64::NAN)),
            Some(b'I') if python && self.word("Infinity") => Ok(Json::Float(f64::INFINITY)),
            Some(b'-') if python && self.word("-Infinity") => Ok(Json::Float(f64::NEG_INFINITY)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.error("unexpected character")),
        }
    }

    /// Walks a whole text with the open brackets on a heap stack (true = object).
    fn check(&mut self) -> Option<()> {
        let mut open = Vec::new();
        loop {
            self.space();
            let container = match self.bytes.get(self.at) {
                Some(b'{') => Some(true),
                Some(b'[') => Some(false),
                _ => None,
            };
            match container {
                Some(object) => {
                    self.at += 1;
                    self.space();
                    if !self.word(if object { "}" } else { "]" }) {
                        open.push(object);
                        if object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                None if self.bytes.get(self.at) == Some(&b'"') => self.skip_string()?,
                None => drop(self.value(0).ok()?),
            }
            loop {
                self.space();
                match open.last() {
                    None => return (self.at == self.bytes.len()).then_some(()),
                    Some(&object) if self.word(if object { "}" } else { "]" }) => {
                        open.pop();
                    }
                    Some(&object) => {
                        if !self.word(",") {
                            return None;
                        }
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                }
            }
        }
    }

    fn key(&mut self) -> Option<()> {
        self.space();
        self.skip_string()?;
        self.space();
        self.word(":").then_some(())
    }

    fn skip_string(&mut self) -> Option<()> {
        if !self.word("\"") {
            return None;
        }
        loop {
            match *self.bytes.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' if self.bytes.get(self.at + 1) == Some(&b'u') => {
                    self.at += 2;
                    self.hex4().ok()?;
                }
                b'\\' => {
                    let escape = *self.bytes.get(self.at + 1)?;
                    if !b"\"\\/bfnrt".contains(&escape) {
                        return None;
                    }
                    self.at += 2;
                }
                byte if byte < 0x20 => return None,
                _ => self.at += 1,
            }
        }
    }

    fn dict(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.at += 1;
        let mut map = BTreeMap::new();
        self.space();
        if self.word("}") {
            return Ok(Json::Dict(map));
        }
        loop {
            self.space();
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err(self.error("expected a string key"));
            }
            let key = self.string()?;
            self.space();
            if !self.word(":") {
                return Err(self.error("expected ':'"));
            }
            let value = self.value(depth + 1)?;
            map.insert(key, value);
            self.space();
            if self.word("}") {
                return Ok(Json::Dict(map));
            }
            if !self.word(",") {
                return Err(self.error("expected ',' or '}'"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.word("]") {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.word("]") {
                return Ok(Json::List(items));
            }
            if !self.word(",") {
                return Err(self.error("expected ',' or ']'"));
            }
        }
    }

    pub(super) fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while let Some(&b) = self.bytes.get(self.at) {
                if b == b'"' || b == b'\\' || b < 0x20 {
                    break;
                }
                self.at += 1;
            }
            // Stops only at ASCII bytes, so both ends are character boundaries.
            out.push_str(&self.text[start..self.at]);
            match self.bytes.get(self.at) {
                None => return Err(self.error("unterminated string")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => self.escape(&mut out)?,
                Some(_) => return Err(self.error("control character in string")),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), JsonError> {
        self.at += 1;
        let plain = match self.bytes.get(self.at) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                let unit = self.hex4()?;
                let point = if (0xD800..0xDC00).contains(&unit) && self.word("\\u") {
                    let low = self.hex4()?;
                    if !(0xDC00..0xE000).contains(&low) {
                        return Err(self.error("lone surrogate"));
                    }
                    0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
                } else {
                    unit
                };
                out.push(char::from_u32(point).ok_or_else(|| self.error("lone surrogate"))?);
                return Ok(());
            }
            _ => return Err(self.error("unknown escape")),
        };
        out.push(plain);
        self.at += 1;
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self.bytes.get(self.at..self.at + 4);
        let digits = digits.filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let Some(digits) = digits else { return Err(self.error("expected four hex digits")) };
        let value = digits.iter().fold(0, |n, &d| n * 16 + (d as char).to_digit(16).unwrap_or(0));
        self.at += 4;
        Ok(value)
    }

    fn number(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        self.word("-");
        let whole = self.digits();
        if whole == 0 || (whole > 1 && self.bytes[self.at - whole] == b'0') {
            return Err(self.error("malformed number"));
        }
        let mut integer = true;
        if self.bytes.get(self.at) == Some(&b'.') {
            integer = false;
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.error("malformed number"));
            }
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            integer = false;
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.error("malformed number"));
            }
        }
        let text = &self.text[start..self.at];
        if integer {
            return Ok(text.parse().map_or_else(|_| Json::BigInt(text.to_owned()), Json::Int));
        }
        match text.parse::<f64>() {
            Ok(x) if x.is_finite() || self.dialect == Dialect::Python => Ok(Json::Float(x)),
            _ => Err(self.error(OVERFLOW)),
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        self.at - start
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
