//! Reading the members of a wire object: types as the package's models ask for them
//! (`spec/gym-wire.md` a.0), unknown keys refused, the field named in every error.

use std::collections::BTreeMap;

use super::digest::{DIGEST_VERSION, EXTRAS_DIGEST_VERSION};
use super::json::{Json, JsonError, OVERFLOW};
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
pub(super) struct Fields {
    code: Code,
    members: BTreeMap<String, Json>,
}

type Result<T> = std::result::Result<T, RecordError>;

/// The versions and the scope that a line states.
pub(super) struct Head {
    pub(super) schema_version: u64,
    pub(super) digest_version: u64,
    pub(super) extras_digest_version: u64,
    pub(super) scope: String,
}

impl Fields {
    /// `code` is the word for whatever is wrong with a member.
    pub(super) fn new(code: Code, members: BTreeMap<String, Json>) -> Self {
        Self { code, members }
    }

    /// The members of a value that must be an object.
    pub(super) fn object(code: Code, value: Json) -> Result<Self> {
        match value {
            Json::Dict(members) => Ok(Self { code, members }),
            other => Err(expected(code, "an object", &other)),
        }
    }

    /// True if the key is there and has not been read.
    pub(super) fn has(&self, key: &str) -> bool {
        self.members.contains_key(key)
    }

    /// What has not been read.
    pub(super) fn members(&self) -> &BTreeMap<String, Json> {
        &self.members
    }

    /// The member as it is; null counts as absent.
    pub(super) fn take(&mut self, key: &str) -> Option<Json> {
        self.members.remove(key).filter(|value| !value.is_null())
    }

    fn required(&mut self, key: &str) -> Result<Json> {
        self.members.remove(key).ok_or_else(|| self.fault(key, "is missing"))
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
    pub(super) fn required_object(&mut self, key: &str) -> Result<Fields> {
        let value = self.required(key)?;
        Fields::object(self.code, value).map_err(|e| e.within(key))
    }

    fn convert<T>(&self, key: &str, value: Json, read: fn(Code, Json) -> Result<T>) -> Result<T> {
        read(self.code, value).map_err(|e| e.within(key))
    }

    /// What `read` makes of the member, or null or absent.
    pub(super) fn optional<T>(
        &mut self,
        key: &str,
        read: fn(Code, Json) -> Result<T>,
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
        match self.members.remove(key) {
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
        match (self.members.remove(key), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => Err(self.fault(key, "is missing")),
            (Some(value), _) => self.convert(key, value, lax_bool),
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &str) -> Result<bool> {
        match self.required(key)? {
            Json::Bool(flag) => Ok(flag),
            other => Err(expected(self.code, "true or false", &other).within(key)),
        }
    }

    /// `text` or `token_in`, with a default for an absent key if there is one.
    pub(super) fn mode(&mut self, default: Option<Mode>) -> Result<Mode> {
        match (self.members.remove("mode"), default) {
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
        read: impl Fn(Code, Json) -> Result<T>,
    ) -> Result<Vec<T>> {
        if self.members.get(key).is_some_and(Json::is_null) {
            return Err(expected(self.code, "a list", &Json::Null).within(key));
        }
        Ok(self.items(key, read)?.unwrap_or_default())
    }

    /// The items of a list that must be there.
    pub(super) fn required_list<T>(
        &mut self,
        key: &str,
        read: impl Fn(Code, Json) -> Result<T>,
    ) -> Result<Vec<T>> {
        if self.has(key) { self.list(key, read) } else { Err(self.fault(key, "is missing")) }
    }

    /// The items of a list, or null or absent.
    pub(super) fn items<T>(
        &mut self,
        key: &str,
        read: impl Fn(Code, Json) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let Json::List(items) = value else {
            return Err(expected(self.code, "a list", &value).within(key));
        };
        let read = |(i, item)| read(self.code, item).map_err(|e| e.within(&format!("{key}[{i}]")));
        items.into_iter().enumerate().map(read).collect::<Result<Vec<T>>>().map(Some)
    }

    /// All members are read; what is left has no place here.
    pub(super) fn finish(self) -> Result<()> {
        match self.members.into_keys().next() {
            Some(key) => Err(RecordError::of(
                self.code,
                shorten(&key),
                "is not a key of this schema; unknown keys are refused",
            )),
            None => Ok(()),
        }
    }
}

fn unsupported_schema(found: &dyn std::fmt::Display) -> RecordError {
    let message = format!(
        "found schema {found}; schema 2 with rollout_id and schema 3 with capture_key are read"
    );
    RecordError::of(Code::UnsupportedSchema, "schema_version", message)
}

/// "expected X, found Y" at the value itself.
pub(super) fn expected(code: Code, what: &str, found: &Json) -> RecordError {
    RecordError::new(code, format!("expected {what}, found {}", describe(found)))
}

/// A value in a few words, never long.
fn describe(value: &Json) -> String {
    match value {
        Json::Null => "null".into(),
        Json::Bool(b) => b.to_string(),
        Json::Int(n) => n.to_string(),
        Json::BigInt(digits) => format!("an integer of {} digits", digits.len()),
        Json::Float(x) => format!("{x:?}"),
        Json::Str(s) => format!("the string {:?}", shorten(s)),
        Json::List(_) => "a list".into(),
        Json::Dict(_) => "an object".into(),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

pub(super) fn identifier(code: Code, value: Json) -> Result<String> {
    match value {
        Json::Str(s) if !s.is_empty() => Ok(s),
        other => Err(expected(code, "a non-empty string", &other)),
    }
}

pub(super) fn text(code: Code, value: Json) -> Result<String> {
    match value {
        Json::Str(s) => Ok(s),
        other => Err(expected(code, "a string", &other)),
    }
}

pub(super) fn length(code: Code, value: Json) -> Result<u64> {
    let found = match &value {
        Json::Int(n) => u64::try_from(*n).ok(),
        _ => None,
    };
    found.ok_or_else(|| expected(code, "an integer of 0 to 18446744073709551615", &value))
}

fn version(code: Code, value: Json) -> Result<u64> {
    match value {
        Json::Float(x) if x.fract() == 0.0 && x.abs() < 1e18 => length(code, Json::Int(x as i128)),
        other => length(code, other),
    }
}

fn digest(code: Code, value: Json) -> Result<Digest32> {
    let found = value.as_str().and_then(Digest32::parse);
    found.ok_or_else(|| expected(code, "64 lowercase hex digits", &value))
}

/// A JSON number as a finite double.
pub(super) fn float(code: Code, value: Json) -> Result<f64> {
    let found = match &value {
        Json::Int(n) => Some(*n as f64),
        Json::BigInt(digits) => digits.parse().ok(),
        Json::Float(x) => Some(*x),
        _ => None,
    };
    found.filter(|x| x.is_finite()).ok_or_else(|| expected(code, "a finite number", &value))
}

fn lax_float(code: Code, value: Json) -> Result<f64> {
    match &value {
        Json::Bool(b) => Ok(f64::from(u8::from(*b))),
        Json::Str(s) => python_float(s)
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

fn lax_bool(code: Code, value: Json) -> Result<bool> {
    let found = match &value {
        Json::Bool(b) => Some(*b),
        Json::Int(0) => Some(false),
        Json::Int(1) => Some(true),
        Json::Float(x) if *x == 0.0 => Some(false),
        Json::Float(x) if *x == 1.0 => Some(true),
        Json::Str(s) => bool_word(s),
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

fn mode(code: Code, value: Json) -> Result<Mode> {
    match value.as_str() {
        Some("text") => Ok(Mode::Text),
        Some("token_in") => Ok(Mode::TokenIn),
        _ => Err(expected(code, "\"text\" or \"token_in\"", &value)),
    }
}
