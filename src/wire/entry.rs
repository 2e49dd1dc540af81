//! Token entries: one captured call of Gym's file store, one JSON line each.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::fields::RecordError;
use super::json::Json;
use super::lax::{Flag, Float, Int, Items, Logprobs, Maybe, Raw, Resolution, Text, Tokens};
use super::prompt::Prompt;
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
    pub prompt_token_ids: Prompt,
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
                    entry.prompt_token_ids =
                        read!("prompt_token_ids", Tokens(&context.out_of_range)).into();
                }
                "generation_token_ids" => {
                    entry.generation_token_ids =
                        read!("generation_token_ids", Tokens(&context.out_of_range));
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
