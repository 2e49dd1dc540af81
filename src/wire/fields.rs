//! Reading the members of a wire object: types as the package's models ask for them
//! (`spec/gym-wire.md` a.0), unknown keys refused, the field named in every error.

use std::borrow::Cow;

use super::digest::{DIGEST_VERSION, EXTRAS_DIGEST_VERSION};
use super::json::{JsonError, OVERFLOW};
use super::parser::{Member, Value};
use crate::archive::Mode;
use crate::finding::Code;
use crate::id::Digest32;

/// Why a line is not the record that it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", field.as_ref().map(|f| format!("{f}: ")).unwrap_or_default())]
pub struct RecordError {
    /// Stable code.
    pub code: Code,
    /// Field at fault, in wire words, with its path from the line (`manifest[2].prev_len`).
    pub field: Option<String>,
    /// What was found and what was expected, without the field's name.
    pub message: String,
}

impl RecordError {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, field: None, message: message.into() }
    }

    pub(super) fn of(code: Code, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, field: Some(field.into()), message: message.into() }
    }

    /// Too deep a nesting and too large a number are JSON, and so faults of the record (`code`).
    pub(super) fn json(code: Code, error: &JsonError) -> Self {
        if error.too_deep || error.reason == OVERFLOW {
            Self::new(code, error.to_string())
        } else {
            Self::new(Code::MalformedJson, format!("not JSON: {error}"))
        }
    }

    /// The same error seen from the object that holds `outer`.
    pub(super) fn within(mut self, outer: &str) -> Self {
        self.field = Some(match self.field {
            Some(inner) => format!("{outer}.{inner}"),
            None => outer.to_owned(),
        });
        self
    }
}

/// Schema versions that are read, and the name that each gives to the capture scope.
pub(super) const SCHEMAS: [(u64, &str); 2] = [(2, "rollout_id"), (3, "capture_key")];

/// Members of one object that have not been read yet.
pub(super) struct Fields<'a> {
    code: Code,
    /// Each key once; without its value when it was read.
    members: Vec<(Cow<'a, str>, Option<Value<'a>>)>,
    /// Where the next key is likely to be: records are mostly read in the order of their writers.
    next: usize,
}

type Result<T> = std::result::Result<T, RecordError>;

/// The versions and the scope that a line states.
pub(super) struct Head {
    pub(super) schema_version: u64,
    pub(super) digest_version: u64,
    pub(super) extras_digest_version: u64,
    pub(super) scope: String,
}

impl<'a> Fields<'a> {
    /// `code` is the word for whatever is wrong with a member. Of repeated keys the last wins.
    pub(super) fn new(code: Code, members: Vec<Member<'a>>) -> Self {
        let members = once(members).into_iter().map(|(key, value)| (key, Some(value))).collect();
        Self { code, members, next: 0 }
    }

    /// The members of a value that must be an object.
    pub(super) fn object(code: Code, value: impl Into<Value<'a>>) -> Result<Self> {
        match value.into() {
            Value::Dict(members) => Ok(Self::new(code, members)),
            other => Err(expected(code, "an object", &other)),
        }
    }

    /// Place of a key that has not been read.
    fn find(&self, key: &str) -> Option<usize> {
        let here =
            |(name, value): &(Cow<'a, str>, Option<Value<'a>>)| value.is_some() && *name == key;
        let (before, after) = self.members.split_at(self.next);
        let later = after.iter().position(here).map(|at| self.next + at);
        later.or_else(|| before.iter().position(here))
    }

    fn remove(&mut self, key: &str) -> Option<Value<'a>> {
        let at = self.find(key)?;
        self.next = at + 1;
        self.members.get_mut(at)?.1.take()
    }

    /// True if the key is there and has not been read.
    pub(super) fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// A member that has not been read, left where it is.
    pub(super) fn peek(&self, key: &str) -> Option<&Value<'a>> {
        self.members.get(self.find(key)?)?.1.as_ref()
    }

    /// The member as it is; null counts as absent.
    pub(super) fn take(&mut self, key: &str) -> Option<Value<'a>> {
        self.remove(key).filter(|value| *value != Value::Null)
    }

    fn required(&mut self, key: &str) -> Result<Value<'a>> {
        self.remove(key).ok_or_else(|| self.fault(key, "is missing"))
    }

    /// Reads versions and scope, and refuses the versions that cannot be read. This comes before
    /// every other member, so that a record of another version is called by that name.
    pub(super) fn head(&mut self) -> Result<Head> {
        let (schema_version, scope) = self.scope()?;
        let digest_version = self.version("digest_version", DIGEST_VERSION)?;
        let extras_digest_version = self.version("extras_digest_version", EXTRAS_DIGEST_VERSION)?;
        for (code, field, found, read) in [
            (Code::UnsupportedDigest, "digest_version", digest_version, DIGEST_VERSION),
            (
                Code::UnsupportedExtrasDigest,
                "extras_digest_version",
                extras_digest_version,
                EXTRAS_DIGEST_VERSION,
            ),
        ] {
            if found != read {
                let message = format!("found version {found}; version {read} is read");
                return Err(RecordError::of(code, field, message));
            }
        }
        Ok(Head { schema_version, digest_version, extras_digest_version, scope })
    }

    /// Reads the schema version, and the scope by the name that this version gives it.
    pub(super) fn scope(&mut self) -> Result<(u64, String)> {
        let renamed = self.has("rollout_id") && !self.has("capture_key");
        let schema_version = self.version("schema_version", 2)?;
        match SCHEMAS.iter().find(|&&(read, _)| read == schema_version) {
            Some(_) if schema_version == 3 && renamed => {
                Err(unsupported_schema(&format!("{schema_version} under the name rollout_id")))
            }
            Some((_, name)) => Ok((schema_version, self.identifier(name)?)),
            None => Err(unsupported_schema(&schema_version)),
        }
    }

    /// Reads the schema version of a message without a scope.
    pub(super) fn schema(&mut self) -> Result<u64> {
        let version = self.version("schema_version", 2)?;
        let read = SCHEMAS.iter().any(|&(read, _)| read == version);
        if read { Ok(version) } else { Err(unsupported_schema(&version)) }
    }

    /// An error at one member.
    pub(super) fn fault(&self, key: &str, message: impl Into<String>) -> RecordError {
        RecordError::of(self.code, key, message)
    }

    /// A member that must be an object.
    pub(super) fn required_object(&mut self, key: &str) -> Result<Fields<'a>> {
        let value = self.required(key)?;
        Fields::object(self.code, value).map_err(|e| e.within(key))
    }

    fn convert<T>(
        &self,
        key: &str,
        value: Value<'a>,
        read: fn(Code, Value<'a>) -> Result<T>,
    ) -> Result<T> {
        read(self.code, value).map_err(|e| e.within(key))
    }

    /// What `read` makes of the member, or null or absent.
    pub(super) fn optional<T>(
        &mut self,
        key: &str,
        read: fn(Code, Value<'a>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.take(key).map(|value| self.convert(key, value, read)).transpose()
    }

    /// A non-empty string.
    pub(super) fn identifier(&mut self, key: &str) -> Result<String> {
        let value = self.required(key)?;
        self.convert(key, value, identifier)
    }

    /// A non-empty string, or null or absent.
    pub(super) fn optional_identifier(&mut self, key: &str) -> Result<Option<String>> {
        self.optional(key, identifier)
    }

    /// Any string, or null or absent.
    pub(super) fn optional_text(&mut self, key: &str) -> Result<Option<String>> {
        self.optional(key, text)
    }

    /// A list of non-empty strings, or null or absent.
    pub(super) fn optional_identifiers(&mut self, key: &str) -> Result<Option<Vec<String>>> {
        self.items(key, identifier)
    }

    /// An integer of 0..2^64-1, written as one.
    pub(super) fn length(&mut self, key: &str) -> Result<u64> {
        let value = self.required(key)?;
        self.convert(key, value, length)
    }

    /// The same with a default for an absent key; null is refused.
    pub(super) fn length_or(&mut self, key: &str, default: u64) -> Result<u64> {
        if self.has(key) { self.length(key) } else { Ok(default) }
    }

    /// A version number: an integer, spelled `2` or `2.0`, with a default for an absent key.
    pub(super) fn version(&mut self, key: &str, default: u64) -> Result<u64> {
        match self.remove(key) {
            None => Ok(default),
            Some(value) => self.convert(key, value, version),
        }
    }

    /// 64 lowercase hex digits.
    pub(super) fn digest(&mut self, key: &str) -> Result<Digest32> {
        let value = self.required(key)?;
        self.convert(key, value, digest)
    }

    /// 64 lowercase hex digits with a default for an absent key; null is refused.
    pub(super) fn digest_or(&mut self, key: &str, default: Digest32) -> Result<Digest32> {
        if self.has(key) { self.digest(key) } else { Ok(default) }
    }

    /// 64 lowercase hex digits, or null or absent.
    pub(super) fn optional_digest(&mut self, key: &str) -> Result<Option<Digest32>> {
        self.optional(key, digest)
    }

    /// A finite number, integer spelling allowed, or null or absent.
    pub(super) fn optional_float(&mut self, key: &str) -> Result<Option<f64>> {
        self.optional(key, float)
    }

    /// The reward: a finite number, or what pydantic makes one of (a bool, a numeric string).
    pub(super) fn optional_lax_float(&mut self, key: &str) -> Result<Option<f64>> {
        self.optional(key, lax_float)
    }

    /// A bool, or what pydantic makes one of, with a default for an absent key.
    pub(super) fn lax_bool(&mut self, key: &str, default: Option<bool>) -> Result<bool> {
        match (self.remove(key), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => Err(self.fault(key, "is missing")),
            (Some(value), _) => self.convert(key, value, lax_bool),
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &str) -> Result<bool> {
        match self.required(key)? {
            Value::Bool(flag) => Ok(flag),
            other => Err(expected(self.code, "true or false", &other).within(key)),
        }
    }

    /// `text` or `token_in`, with a default for an absent key if there is one.
    pub(super) fn mode(&mut self, default: Option<Mode>) -> Result<Mode> {
        match (self.remove("mode"), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => Err(self.fault("mode", "is missing")),
            (Some(value), _) => self.convert("mode", value, mode),
        }
    }

    /// One of a few words, or null or absent.
    pub(super) fn optional_word(&mut self, key: &str, words: &[&str]) -> Result<Option<String>> {
        let found = self.optional(key, text)?;
        match &found {
            Some(word) if !words.contains(&word.as_str()) => Err(self.fault(
                key,
                format!("found {:?}, expected one of {}", shorten(word), words.join(", ")),
            )),
            _ => Ok(found),
        }
    }

    /// The items of a list, empty for an absent key; null is refused.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        read: impl Fn(Code, Value<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        match self.find(key).map(|at| &self.members[at].1) {
            Some(Some(Value::Null)) => Err(expected(self.code, "a list", &Value::Null).within(key)),
            _ => Ok(self.items(key, read)?.unwrap_or_default()),
        }
    }

    /// The items of a list that must be there.
    pub(super) fn required_list<T>(
        &mut self,
        key: &str,
        read: impl Fn(Code, Value<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        if self.has(key) { self.list(key, read) } else { Err(self.fault(key, "is missing")) }
    }

    /// The items of a list, or null or absent.
    pub(super) fn items<T>(
        &mut self,
        key: &str,
        read: impl Fn(Code, Value<'a>) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let Value::List(items) = value else {
            return Err(expected(self.code, "a list", &value).within(key));
        };
        let read = |(i, item)| read(self.code, item).map_err(|e| e.within(&format!("{key}[{i}]")));
        items.into_iter().enumerate().map(read).collect::<Result<Vec<T>>>().map(Some)
    }

    /// All members are read; what is left has no place here.
    pub(super) fn finish(self) -> Result<()> {
        let left = self.members.into_iter().filter(|(_, value)| value.is_some());
        match left.map(|(key, _)| key).min() {
            Some(key) => Err(RecordError::of(
                self.code,
                shorten(&key),
                "is not a key of this schema; unknown keys are refused",
            )),
            None => Ok(()),
        }
    }
}

/// The members with the last value of every key.
fn once(mut members: Vec<Member<'_>>) -> Vec<Member<'_>> {
    /// Up to this many, comparing all keys costs less than sorting them.
    const FEW: usize = 64;
    let repeated = |(at, (key, _)): (usize, &Member<'_>)| {
        members.iter().skip(at + 1).any(|(other, _)| other == key)
    };
    if members.len() > FEW || members.iter().enumerate().any(repeated) {
        members.sort_by(|a, b| a.0.cmp(&b.0));
        members.reverse();
        members.dedup_by(|a, b| a.0 == b.0);
    }
    members
}

fn unsupported_schema(found: &dyn std::fmt::Display) -> RecordError {
    let message = format!(
        "found schema {found}; schema 2 with rollout_id and schema 3 with capture_key are read"
    );
    RecordError::of(Code::UnsupportedSchema, "schema_version", message)
}

/// "expected X, found Y" at the value itself.
pub(super) fn expected(code: Code, what: &str, found: &Value<'_>) -> RecordError {
    RecordError::new(code, format!("expected {what}, found {}", describe(found)))
}

/// A value in a few words, never long.
fn describe(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Int(n) => n.to_string(),
        Value::BigInt(digits) => format!("an integer of {} digits", digits.len()),
        Value::Float(x) => format!("{x:?}"),
        Value::Str(s) => format!("the string {:?}", shorten(s)),
        Value::List(_) => "a list".into(),
        Value::Dict(_) => "an object".into(),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

pub(super) fn identifier(code: Code, value: Value<'_>) -> Result<String> {
    match value {
        Value::Str(s) if !s.is_empty() => Ok(s.into_owned()),
        other => Err(expected(code, "a non-empty string", &other)),
    }
}

pub(super) fn text(code: Code, value: Value<'_>) -> Result<String> {
    match value {
        Value::Str(s) => Ok(s.into_owned()),
        other => Err(expected(code, "a string", &other)),
    }
}

pub(super) fn length(code: Code, value: Value<'_>) -> Result<u64> {
    let found = match &value {
        Value::Int(n) => u64::try_from(*n).ok(),
        _ => None,
    };
    found.ok_or_else(|| expected(code, "an integer of 0 to 18446744073709551615", &value))
}

fn version(code: Code, value: Value<'_>) -> Result<u64> {
    match value {
        Value::Float(x) if x.fract() == 0.0 && x.abs() < 1e18 => {
            length(code, Value::Int(x as i128))
        }
        other => length(code, other),
    }
}

fn digest(code: Code, value: Value<'_>) -> Result<Digest32> {
    let found = value.as_str().and_then(Digest32::parse);
    found.ok_or_else(|| expected(code, "64 lowercase hex digits", &value))
}

/// A JSON number as a finite double.
pub(super) fn float(code: Code, value: Value<'_>) -> Result<f64> {
    let found = match &value {
        Value::Int(n) => Some(*n as f64),
        Value::BigInt(digits) => digits.parse().ok(),
        Value::Float(x) => Some(*x),
        _ => None,
    };
    found.filter(|x| x.is_finite()).ok_or_else(|| expected(code, "a finite number", &value))
}

fn lax_float(code: Code, value: Value<'_>) -> Result<f64> {
    match &value {
        Value::Bool(b) => Ok(f64::from(u8::from(*b))),
        Value::Str(s) => python_float(s)
            .filter(|x| x.is_finite())
            .ok_or_else(|| expected(code, "a finite number", &value)),
        _ => float(code, value),
    }
}

/// Python's `float(text)` for the decimal forms: surrounding space, and single underscores
/// between digits.
pub(super) fn python_float(text: &str) -> Option<f64> {
    let text = text.trim();
    let digit = |i: usize| text.as_bytes().get(i).is_some_and(u8::is_ascii_digit);
    let lone = text.match_indices('_').all(|(i, _)| i > 0 && digit(i - 1) && digit(i + 1));
    if lone { text.replace('_', "").parse().ok() } else { None }
}

fn lax_bool(code: Code, value: Value<'_>) -> Result<bool> {
    let found = match &value {
        Value::Bool(b) => Some(*b),
        Value::Int(0) => Some(false),
        Value::Int(1) => Some(true),
        Value::Float(x) if *x == 0.0 => Some(false),
        Value::Float(x) if *x == 1.0 => Some(true),
        Value::Str(s) => bool_word(s),
        _ => None,
    };
    found.ok_or_else(|| expected(code, "true or false", &value))
}

/// A bool that pydantic reads from a string.
pub(super) fn bool_word(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "0" | "off" | "f" | "false" | "n" | "no" => Some(false),
        "1" | "on" | "t" | "true" | "y" | "yes" => Some(true),
        _ => None,
    }
}

fn mode(code: Code, value: Value<'_>) -> Result<Mode> {
    match value.as_str() {
        Some("text") => Ok(Mode::Text),
        Some("token_in") => Ok(Mode::TokenIn),
        _ => Err(expected(code, "\"text\" or \"token_in\"", &value)),
    }
}
