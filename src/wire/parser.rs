//! JSON text to borrowed values, one pass.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::json::{Dialect, Json, JsonError, MAX_DEPTH, OVERFLOW};

/// A JSON value that copies nothing that its text holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// Integer spelling, `-0` included (it is 0).
    Int(i128),
    /// Integer spelling beyond 128 bits.
    BigInt(Cow<'a, str>),
    /// Any other number.
    Float(f64),
    /// String.
    Str(Cow<'a, str>),
    /// Array.
    List(Vec<Value<'a>>),
    /// Members as written, repeated keys included.
    Dict(Vec<Member<'a>>),
}

/// A key and what it stands for.
pub(super) type Member<'a> = (Cow<'a, str>, Value<'a>);

impl<'a> Value<'a> {
    /// Parses a whole text; surrounding white space is allowed.
    pub(super) fn parse(text: &'a str, dialect: Dialect) -> Result<Self, JsonError> {
        let mut parser = Parser::new(text, dialect);
        let value = parser.value(0)?;
        parser.end().map(|()| value)
    }

    /// Whether it is an object with this key.
    pub(super) fn has(&self, key: &str) -> bool {
        matches!(self, Value::Dict(members) if members.iter().any(|(name, _)| name == key))
    }

    /// The string, if it is one.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }
}

impl From<Value<'_>> for Json {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(b),
            Value::Int(n) => Json::Int(n),
            Value::BigInt(digits) => Json::BigInt(digits.into_owned()),
            Value::Float(x) => Json::Float(x),
            Value::Str(text) => Json::Str(text.into_owned()),
            Value::List(items) => Json::List(items.into_iter().map(Json::from).collect()),
            Value::Dict(members) => {
                let owned = |(key, value): Member<'_>| (key.into_owned(), Json::from(value));
                Json::Dict(members.into_iter().map(owned).collect::<BTreeMap<_, _>>())
            }
        }
    }
}

impl From<Json> for Value<'_> {
    fn from(json: Json) -> Self {
        match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(b),
            Json::Int(n) => Value::Int(n),
            Json::BigInt(digits) => Value::BigInt(digits.into()),
            Json::Float(x) => Value::Float(x),
            Json::Str(text) => Value::Str(text.into()),
            Json::List(items) => Value::List(items.into_iter().map(Value::from).collect()),
            Json::Dict(members) => {
                Value::Dict(members.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
            }
        }
    }
}

/// Depths that have a hint of their own.
const HINTS: usize = 8;

/// Cursor over a text; what reads JSON of a known form without a tree starts here too.
pub(super) struct Parser<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) text: &'a str,
    pub(super) at: usize,
    dialect: Dialect,
    /// Members of the last object at every depth: the next mostly has as many.
    members: [u8; HINTS],
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, dialect: Dialect) -> Self {
        Parser { bytes: text.as_bytes(), text, at: 0, dialect, members: [0; HINTS] }
    }

    /// Nothing but white space is left.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        self.space();
        match self.at == self.bytes.len() {
            true => Ok(()),
            false => Err(self.error("trailing text")),
        }
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

    pub(super) fn value(&mut self, depth: usize) -> Result<Value<'a>, JsonError> {
        self.space();
        let python = self.dialect == Dialect::Python;
        match self.bytes.get(self.at) {
            None => Err(self.error("unexpected end")),
            Some(b'{' | b'[') if depth >= MAX_DEPTH => {
                Err(JsonError { reason: "nested too deeply", offset: self.at, too_deep: true })
            }
            Some(b'{') => self.dict(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Value::Str),
            Some(b'n') if self.word("null") => Ok(Value::Null),
            Some(b't') if self.word("true") => Ok(Value::Bool(true)),
            Some(b'f') if self.word("false") => Ok(Value::Bool(false)),
            Some(b'N') if python && self.word("NaN") => Ok(Value::Float(f64::NAN)),
            Some(b'I') if python && self.word("Infinity") => Ok(Value::Float(f64::INFINITY)),
            Some(b'-') if python && self.word("-Infinity") => Ok(Value::Float(f64::NEG_INFINITY)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.error("unexpected character")),
        }
    }

    /// Walks a whole text with the open brackets on a heap stack (true = object).
    pub(super) fn check(&mut self) -> Option<()> {
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

    fn dict(&mut self, depth: usize) -> Result<Value<'a>, JsonError> {
        self.at += 1;
        self.space();
        if self.word("}") {
            return Ok(Value::Dict(Vec::new()));
        }
        let mut members = Vec::with_capacity(self.members[depth.min(HINTS - 1)].into());
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
            members.push((key, self.value(depth + 1)?));
            self.space();
            if self.word("}") {
                self.members[depth.min(HINTS - 1)] = members.len().min(31) as u8;
                return Ok(Value::Dict(members));
            }
            if !self.word(",") {
                return Err(self.error("expected ',' or '}'"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value<'a>, JsonError> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.word("]") {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.word("]") {
                return Ok(Value::List(items));
            }
            if !self.word(",") {
                return Err(self.error("expected ',' or ']'"));
            }
        }
    }

    /// A string whose first quote is here.
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.at += 1;
        let mut out = Cow::Borrowed("");
        loop {
            let start = self.at;
            self.at += plain_length(&self.bytes[start..]);
            // Stops only at ASCII bytes, so both ends are character boundaries.
            let plain = &self.text[start..self.at];
            if out.is_empty() {
                out = Cow::Borrowed(plain);
            } else {
                out.to_mut().push_str(plain);
            }
            match self.bytes.get(self.at) {
                None => return Err(self.error("unterminated string")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => self.escape(out.to_mut())?,
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

    fn number(&mut self) -> Result<Value<'a>, JsonError> {
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
            return Ok(match text.len() {
                ..=18 => text.parse::<i64>().map(|n| Value::Int(n.into())),
                _ => text.parse().map(Value::Int),
            }
            .unwrap_or(Value::BigInt(Cow::Borrowed(text))));
        }
        match text.parse::<f64>() {
            Ok(x) if x.is_finite() || self.dialect == Dialect::Python => Ok(Value::Float(x)),
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

/// Bytes before the first quote, backslash or control character, or before the end.
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // The high bit of the lowest byte that is zero, respectively below a space; bytes above it
    // may be flagged wrongly.
    let zero = |x: u64| x.wrapping_sub(ONES) & !x;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let x = u64::from_le_bytes(*word);
        let quote = zero(x ^ (ONES * u64::from(b'"')));
        let backslash = zero(x ^ (ONES * u64::from(b'\\')));
        let control = x.wrapping_sub(ONES * 0x20) & !x;
        let stops = (quote | backslash | control) & (ONES << 7);
        if stops != 0 {
            return 8 * at + stops.trailing_zeros() as usize / 8;
        }
    }
    let stop = |&byte: &u8| byte == b'"' || byte == b'\\' || byte < 0x20;
    8 * words.len() + rest.iter().position(stop).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn strings_end_where_they_end(bytes in prop::collection::vec(
            prop_oneof![Just(b'a'), Just(0x1f), Just(0x20), Just(b'"'), Just(b'\\'), any::<u8>()],
            0..40,
        )) {
            let stop = |&byte: &u8| byte == b'"' || byte == b'\\' || byte < 0x20;
            let expected = bytes.iter().position(stop).unwrap_or(bytes.len());
            prop_assert_eq!(plain_length(&bytes), expected);
        }

        #[test]
        fn strings_are_those_of_serde_json(text in any::<String>(), escaped in any::<bool>()) {
            let mut json = serde_json::to_string(&text).unwrap();
            if escaped {
                let unit = |unit: u16| format!("\\u{unit:04x}");
                json = format!("\"{}\"", text.encode_utf16().map(unit).collect::<String>());
            }
            let value = Value::parse(&json, Dialect::Strict);
            prop_assert_eq!(value.as_ref().ok().and_then(Value::as_str), Some(text.as_str()));
        }
    }
}
