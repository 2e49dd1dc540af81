//! Token entries: one captured call of Gym's file store, one JSON line each.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::fields::{self, RecordError};
use super::json::{Dialect, Json};
use super::python;
use crate::finding::Code;
use crate::id::Digest32;

/// The one schema of token entries.
pub const ENTRY_SCHEMA_VERSION: i64 = 1;

/// What the capture decided about a call's parent when it wrote the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentResolution {
    /// The request continues nothing.
    Root,
    /// The request continues `parent_call_id`.
    Resolved,
    /// The request continues something, and nothing says what.
    Unresolved,
}

/// A captured call with its tokens (`TokenEntry`, `spec/gym-wire.md` a.9).
///
/// Two departures from the package, both because no digest exists for such an entry: a token id
/// outside 0..2^64 is refused as `token_id_out_of_range`, and a null log-probability is kept as
/// NaN (JSON writers turn NaN into null) so that the rollout is masked instead of lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenEntry {
    /// Capture scope.
    pub rollout_id: String,
    /// The call.
    pub model_call_id: String,
    /// Model that was asked.
    pub model: String,
    /// `[prompt]`: the whole prompt, or its suffix after the parent when `prompt_is_delta`.
    pub prompt_token_ids: Vec<u64>,
    /// `[generation]`
    pub generation_token_ids: Vec<u64>,
    /// `[generation]`; NaN where the line holds null.
    pub generation_log_probs: Vec<f64>,
    /// Expert routes as verbatim JSON text; `None` = null.
    pub routed_experts: Option<String>,
    /// Served items in order, token arrays removed.
    pub output_items: Vec<Json>,
    /// The item that carried the token arrays.
    pub token_item_index: Option<usize>,
    /// Id of the served response.
    pub response_id: Option<String>,
    /// Seconds since the epoch, after the response.
    pub created_at: f64,
    /// Recorded parent.
    pub parent_call_id: Option<String>,
    /// Tokens up to the end of this call, as stamped.
    pub cum_len: Option<i64>,
    /// Entry digest of prompt and generation as stamped, whole sequence even for a delta record.
    pub digest: Option<String>,
    /// The decision on the parent.
    pub parent_resolution: Option<ParentResolution>,
    /// Why no parent was found; empty when one was, or none was needed.
    pub parent_resolution_reason: String,
    /// Fingerprint of request and output; empty when there is none.
    pub continuation_fingerprint: String,
    /// Request items under `continuation_context_digest`.
    pub continuation_context_len: i64,
    /// Conversation digest of the request; empty when there is none.
    pub continuation_context_digest: String,
    /// Version of the fingerprints.
    pub fingerprint_version: Option<i64>,
    /// `prompt_token_ids` holds only what follows the parent.
    pub prompt_is_delta: bool,
    /// The engine was asked to reuse the parent's tokens.
    pub prefix_requested: bool,
    /// The engine proved that it did.
    pub prefix_supplied: bool,
    /// Unknown keys with their verbatim JSON text.
    pub extra: BTreeMap<String, String>,
}

impl TokenEntry {
    /// Reads one line. Numbers and booleans are taken as laxly as the package takes them;
    /// unknown keys are kept.
    ///
    /// # Errors
    ///
    /// `malformed_json`, `unsupported_schema`, `token_id_out_of_range`, or `malformed_record` with
    /// the field at fault.
    pub fn parse(line: &str) -> Result<Self, RecordError> {
        let context = Context::default();
        let mut reader = serde_json::Deserializer::from_str(line);
        let parsed = EntrySeed(&context).deserialize(&mut reader);
        match parsed.and_then(|draft| reader.end().map(|()| draft)) {
            Ok(draft) => draft.checked(),
            Err(error) => Err(context.explain(line, &error)),
        }
    }

    /// The stamped digest as bytes; `None` when absent or not 64 lowercase hex digits.
    pub fn stamped_digest(&self) -> Option<Digest32> {
        self.digest.as_deref().and_then(Digest32::parse)
    }
}

/// A parsed line before the rules that span fields.
struct Draft {
    schema_version: i64,
    token_item_index: Option<i64>,
    missing: Option<&'static str>,
    entry: TokenEntry,
}

impl Draft {
    fn checked(self) -> Result<TokenEntry, RecordError> {
        let Draft { schema_version, token_item_index, missing, mut entry } = self;
        if let Some(field) = missing {
            return Err(malformed(field, "is missing"));
        }
        if schema_version != ENTRY_SCHEMA_VERSION {
            let message =
                format!("found schema {schema_version}; schema {ENTRY_SCHEMA_VERSION} is read");
            return Err(RecordError::of(Code::UnsupportedSchema, "schema_version", message));
        }
        let (tokens, logprobs) =
            (entry.generation_token_ids.len(), entry.generation_log_probs.len());
        if tokens != logprobs {
            return Err(malformed(
                "generation_log_probs",
                format!("{logprobs} log-probabilities for {tokens} generated tokens"),
            ));
        }
        if let Some(index) = token_item_index {
            let inside = usize::try_from(index).ok().filter(|&i| i < entry.output_items.len());
            entry.token_item_index = Some(inside.ok_or_else(|| {
                let items = entry.output_items.len();
                malformed("token_item_index", format!("item {index} of {items} output items"))
            })?);
        }
        let has_parent = entry.parent_call_id.as_deref().is_some_and(|id| !id.is_empty());
        match entry.parent_resolution {
            Some(ParentResolution::Resolved) if !has_parent => {
                return Err(malformed("parent_call_id", "a resolved parent needs its call id"));
            }
            Some(ParentResolution::Root | ParentResolution::Unresolved)
                if entry.parent_call_id.is_some() =>
            {
                return Err(malformed(
                    "parent_call_id",
                    "a root or unresolved call cannot name a parent",
                ));
            }
            _ => {}
        }
        let resolved = entry.parent_resolution == Some(ParentResolution::Resolved);
        if entry.prompt_is_delta && !(has_parent && resolved) {
            return Err(malformed("prompt_is_delta", "a delta prompt needs a resolved parent"));
        }
        Ok(entry)
    }
}

fn malformed(field: &str, message: impl Into<String>) -> RecordError {
    RecordError::of(Code::MalformedRecord, field, message)
}

/// What the visitors know when serde reports only a message.
#[derive(Default)]
struct Context {
    field: Cell<Option<&'static str>>,
    out_of_range: Cell<bool>,
}

impl Context {
    fn explain(&self, line: &str, error: &serde_json::Error) -> RecordError {
        // A wrong value may come before the place where the text stops being JSON.
        let json = serde_json::from_str::<serde::de::IgnoredAny>(line);
        if let Err(error) = json {
            return RecordError {
                code: Code::MalformedJson,
                field: None,
                message: format!("not a JSON line: {error}"),
            };
        }
        let code = match self.out_of_range.get() {
            true => Code::TokenIdOutOfRange,
            false => Code::MalformedRecord,
        };
        let field = self.field.get().map(str::to_owned);
        // "at line 1 column n" of a single line only repeats the location.
        let text = error.to_string();
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(head, _)| head);
        RecordError { code, field, message: text.to_owned() }
    }
}

struct EntrySeed<'c>(&'c Context);

impl<'de> DeserializeSeed<'de> for EntrySeed<'_> {
    type Value = Draft;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Draft, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EntrySeed<'_> {
    type Value = Draft;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token entry object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Draft, A::Error> {
        const REQUIRED: [&str; 5] = [
            "rollout_id",
            "model_call_id",
            "prompt_token_ids",
            "generation_token_ids",
            "generation_log_probs",
        ];
        let context = self.0;
        let mut seen = [false; REQUIRED.len()];
        let mut entry = TokenEntry::default();
        let (mut schema_version, mut token_item_index) = (ENTRY_SCHEMA_VERSION, None);
        macro_rules! read {
            ($field:literal, $seed:expr) => {{
                context.field.set(Some($field));
                let value = map.next_value_seed($seed)?;
                context.field.set(None);
                value
            }};
        }
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if let Some(at) = REQUIRED.iter().position(|&name| name == key) {
                seen[at] = true;
            }
            match key.as_ref() {
                "schema_version" => schema_version = read!("schema_version", Int),
                "rollout_id" => entry.rollout_id = read!("rollout_id", Text),
                "model_call_id" => entry.model_call_id = read!("model_call_id", Text),
                "model" => entry.model = read!("model", Text),
                "prompt_token_ids" => {
                    entry.prompt_token_ids = read!("prompt_token_ids", Tokens(context));
                }
                "generation_token_ids" => {
                    entry.generation_token_ids = read!("generation_token_ids", Tokens(context));
                }
                "generation_log_probs" => {
                    entry.generation_log_probs = read!("generation_log_probs", Logprobs);
                }
                "routed_experts" => {
                    let raw = read!("routed_experts", Raw);
                    entry.routed_experts = (raw.get() != "null").then(|| raw.get().to_owned());
                }
                "output_items" => entry.output_items = read!("output_items", Items),
                "token_item_index" => token_item_index = read!("token_item_index", Maybe(Int)),
                "response_id" => entry.response_id = read!("response_id", Maybe(Text)),
                "created_at" => entry.created_at = read!("created_at", Float),
                "parent_call_id" => entry.parent_call_id = read!("parent_call_id", Maybe(Text)),
                "cum_len" => entry.cum_len = read!("cum_len", Maybe(Int)),
                "digest" => entry.digest = read!("digest", Maybe(Text)),
                "parent_resolution" => {
                    entry.parent_resolution = read!("parent_resolution", Maybe(Resolution));
                }
                "parent_resolution_reason" => {
                    entry.parent_resolution_reason = read!("parent_resolution_reason", Text);
                }
                "continuation_fingerprint" => {
                    entry.continuation_fingerprint = read!("continuation_fingerprint", Text);
                }
                "continuation_context_len" => {
                    entry.continuation_context_len = read!("continuation_context_len", Int);
                }
                "continuation_context_digest" => {
                    entry.continuation_context_digest = read!("continuation_context_digest", Text);
                }
                "fingerprint_version" => {
                    entry.fingerprint_version = read!("fingerprint_version", Maybe(Int));
                }
                "prompt_is_delta" => entry.prompt_is_delta = read!("prompt_is_delta", Flag),
                "prefix_requested" => entry.prefix_requested = read!("prefix_requested", Flag),
                "prefix_supplied" => entry.prefix_supplied = read!("prefix_supplied", Flag),
                _ => {
                    let raw = map.next_value::<&RawValue>()?;
                    entry.extra.insert(key.into_owned(), raw.get().to_owned());
                }
            }
        }
        let missing = REQUIRED.iter().zip(seen).find(|(_, seen)| !seen).map(|(&name, _)| name);
        Ok(Draft { schema_version, token_item_index, missing, entry })
    }
}

/// Declares a seed for one lax scalar.
macro_rules! scalar {
    ($name:ident => $value:ty, $expecting:literal, { $($method:item)* }) => {
        #[derive(Clone, Copy)]
        struct $name;

        impl<'de> DeserializeSeed<'de> for $name {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.deserialize_any(self)
            }
        }

        impl<'de> Visitor<'de> for $name {
            type Value = $value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($expecting)
            }

            $($method)*
        }
    };
}

scalar!(Text => String, "a string", {
    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
});

scalar!(Int => i64, "an integer", {
    fn visit_i64<E>(self, n: i64) -> Result<i64, E> {
        Ok(n)
    }

    fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<i64, E> {
        i64::try_from(n).map_err(|_| E::custom(format!("{n} is beyond 64 bits")))
    }

    fn visit_bool<E>(self, b: bool) -> Result<i64, E> {
        Ok(b.into())
    }

    fn visit_f64<E: serde::de::Error>(self, x: f64) -> Result<i64, E> {
        whole(x).and_then(|n| i64::try_from(n).ok()).ok_or_else(|| not_whole(x))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<i64, E> {
        let n = lax_int(text).and_then(|n| i64::try_from(n).ok());
        n.ok_or_else(|| E::custom(format!("{text:?} is not an integer")))
    }
});

scalar!(Float => f64, "a number", {
    fn visit_f64<E>(self, x: f64) -> Result<f64, E> {
        Ok(x)
    }

    fn visit_i64<E>(self, n: i64) -> Result<f64, E> {
        Ok(n as f64)
    }

    fn visit_u64<E>(self, n: u64) -> Result<f64, E> {
        Ok(n as f64)
    }

    fn visit_bool<E>(self, b: bool) -> Result<f64, E> {
        Ok(f64::from(u8::from(b)))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<f64, E> {
        fields::python_float(text).ok_or_else(|| E::custom(format!("{text:?} is not a number")))
    }
});

scalar!(Flag => bool, "a boolean", {
    fn visit_bool<E>(self, b: bool) -> Result<bool, E> {
        Ok(b)
    }

    fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<bool, E> {
        flag(n as f64).ok_or_else(|| E::custom(format!("{n} is not a boolean")))
    }

    fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<bool, E> {
        flag(n as f64).ok_or_else(|| E::custom(format!("{n} is not a boolean")))
    }

    fn visit_f64<E: serde::de::Error>(self, x: f64) -> Result<bool, E> {
        flag(x).ok_or_else(|| E::custom(format!("{x} is not a boolean")))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<bool, E> {
        fields::bool_word(text).ok_or_else(|| E::custom(format!("{text:?} is not a boolean")))
    }
});

scalar!(Resolution => ParentResolution, "root, resolved or unresolved", {
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ParentResolution, E> {
        match text {
            "root" => Ok(ParentResolution::Root),
            "resolved" => Ok(ParentResolution::Resolved),
            "unresolved" => Ok(ParentResolution::Unresolved),
            _ => Err(E::custom(format!("{text:?} is none of root, resolved, unresolved"))),
        }
    }
});

fn flag(x: f64) -> Option<bool> {
    (x == 0.0 || x == 1.0).then_some(x == 1.0)
}

fn whole(x: f64) -> Option<i128> {
    (x.fract() == 0.0 && x.abs() < 1e38).then_some(x as i128)
}

fn not_whole<E: serde::de::Error>(x: f64) -> E {
    E::custom(format!("{x} is not an integer"))
}

/// An integer as text, perhaps with a fraction of zeros.
fn lax_int(text: &str) -> Option<i128> {
    let text = text.trim();
    let whole = match text.split_once('.') {
        Some((head, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => head,
        Some(_) => return None,
        None => text,
    };
    python::parse_int(whole)
}

/// null, or what the inner seed reads.
struct Maybe<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Maybe<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Maybe<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null or a value")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

struct Raw;

impl<'de> DeserializeSeed<'de> for Raw {
    type Value = &'de RawValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        serde::Deserialize::deserialize(deserializer)
    }
}

struct Items;

impl<'de> DeserializeSeed<'de> for Items {
    type Value = Vec<Json>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let raw: &RawValue = serde::Deserialize::deserialize(deserializer)?;
        match Json::parse(raw.get(), Dialect::Strict).map_err(D::Error::custom)? {
            Json::List(items) if items.iter().all(|item| item.as_dict().is_some()) => Ok(items),
            _ => Err(D::Error::custom("output_items is not a list of objects")),
        }
    }
}

/// Token ids in one pass, without a value per token.
struct Tokens<'c>(&'c Context);

impl<'de> DeserializeSeed<'de> for Tokens<'_> {
    type Value = Vec<u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Tokens<'_> {
    type Value = Vec<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of token ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut ids = Vec::new();
        while let Some(id) = list.next_element_seed(Token(self.0))? {
            ids.push(id);
        }
        Ok(ids)
    }
}

#[derive(Clone, Copy)]
struct Token<'c>(&'c Context);

impl Token<'_> {
    fn narrow<E: serde::de::Error>(
        self,
        id: Option<i128>,
        shown: &dyn fmt::Display,
    ) -> Result<u64, E> {
        let id = id.ok_or_else(|| E::custom(format!("token id {shown} is not an integer")))?;
        u64::try_from(id).map_err(|_| {
            self.0.out_of_range.set(true);
            E::custom(format!("token id {shown} is outside 0..2^64"))
        })
    }
}

impl<'de> DeserializeSeed<'de> for Token<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Token<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token id")
    }

    fn visit_u64<E>(self, id: u64) -> Result<u64, E> {
        Ok(id)
    }

    fn visit_i64<E: serde::de::Error>(self, id: i64) -> Result<u64, E> {
        self.narrow(Some(id.into()), &id)
    }

    fn visit_bool<E>(self, b: bool) -> Result<u64, E> {
        Ok(b.into())
    }

    fn visit_f64<E: serde::de::Error>(self, x: f64) -> Result<u64, E> {
        self.narrow(whole(x), &x)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        self.narrow(lax_int(text), &format_args!("{text:?}"))
    }
}

struct Logprobs;

impl<'de> DeserializeSeed<'de> for Logprobs {
    type Value = Vec<f64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Logprobs {
    type Value = Vec<f64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of log-probabilities")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(Maybe(Float))? {
            values.push(value.unwrap_or(f64::NAN));
        }
        Ok(values)
    }
}
