//! Token entries: one captured call of Gym's file store, one JSON line each.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::digits;
use super::fields::RecordError;
use super::json::Json;
use super::lax::{Flag, Float, Int, Items, Logprobs, Maybe, Raw, Resolution, Text, Tokens};
use super::scan;
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

    /// Reads the lines of a store, in order. Fast where a prompt begins with the prompt of the
    /// line before, as those of a growing conversation do: that text is compared, not read again.
    pub(super) fn parse_lines<'a>(
        lines: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Vec<Result<Self, RecordError>> {
        let mut entries: Vec<Result<Self, RecordError>> = Vec::with_capacity(lines.len());
        // Items of the last prompt that was read fast, and whose it is.
        let mut known: (&[u8], usize) = (&[], 0);
        for line in lines {
            let before = entries.get(known.1).and_then(|entry| entry.as_ref().ok());
            let before = before.map_or(&[][..], |entry| &entry.prompt_token_ids);
            let entry = match Self::parse_fast(line, known.0, before) {
                Some((entry, items)) => {
                    known = (items, entries.len());
                    Ok(entry)
                }
                None => text(line).and_then(Self::parse),
            };
            entries.push(entry);
        }
        entries
    }

    /// An entry and the text of its prompt's items; `None` for a line that is not spelled as the
    /// usual writers do, or is wrong: in what words, the line as a whole decides. `tokens` are
    /// what the text `known` spells.
    fn parse_fast<'a>(line: &'a [u8], known: &[u8], tokens: &[u64]) -> Option<(Self, &'a [u8])> {
        let (before, prompt, after) = prompt_of(line)?;
        let items = prompt.strip_prefix(b"[")?.strip_suffix(b"]")?;
        let more = items.strip_prefix(known).filter(|_| !known.is_empty());
        let (tokens, rest) = match more {
            Some([]) => (tokens, &[][..]),
            Some([b',', b' ', rest @ ..] | [b',', rest @ ..]) => (tokens, rest),
            _ => (&[][..], items),
        };
        let mut prompt = Vec::with_capacity(tokens.len() + rest.len() / 3 + 1);
        prompt.extend_from_slice(tokens);
        digits::items(rest, &mut prompt)?;
        let mut entry = Self::parse(text(&[before, b"[]", after].concat()).ok()?).ok()?;
        entry.prompt_token_ids = prompt;
        Some((entry, items))
    }

    /// The stamped digest as bytes; `None` when absent or not 64 lowercase hex digits.
    pub fn stamped_digest(&self) -> Option<Digest32> {
        self.digest.as_deref().and_then(Digest32::parse)
    }
}

fn text(line: &[u8]) -> Result<&str, RecordError> {
    std::str::from_utf8(line).map_err(|error| RecordError {
        code: Code::MalformedJson,
        field: None,
        message: format!("not UTF-8: {error}"),
    })
}

/// The prompt of a line, and the text before and behind it.
fn prompt_of(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut prompts = scan::members(line)?.into_iter().filter(|(key, _)| {
        // A key with an escape may be any key.
        *key == b"prompt_token_ids" || memchr::memchr(b'\\', key).is_some()
    });
    let (key, prompt) = prompts.next().filter(|_| prompts.next().is_none())?;
    let start = prompt.as_ptr() as usize - line.as_ptr() as usize;
    (key == b"prompt_token_ids").then(|| {
        let (before, rest) = line.split_at(start);
        let (prompt, after) = rest.split_at(prompt.len());
        (before, prompt, after)
    })
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
                        read!("prompt_token_ids", Tokens(&context.out_of_range));
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Spellings of one id, most of them plain.
    fn id() -> impl Strategy<Value = String> {
        prop_oneof![
            20 => (0u64..200_000).prop_map(|id| id.to_string()),
            1 => any::<u64>().prop_map(|id| id.to_string()),
            1 => prop_oneof![
                Just("-0"), Just("01"), Just("1.0"), Just("1e2"), Just("-1"), Just("null"),
                Just("\"7\""), Just("true"), Just(""), Just("]"), Just("[1]"), Just(" 5 "),
                Just("99999999999999999999999"),
            ].prop_map(str::to_owned),
        ]
    }

    fn line(prompt: &[String], separator: &str, twist: u8) -> String {
        let prompt = prompt.join(separator);
        let key = if twist == 1 { "prompt_token_id\\u0073" } else { "prompt_token_ids" };
        let again = if twist == 2 { ",\"prompt_token_ids\":[1]" } else { "" };
        let end = if twist == 3 { "" } else { "}" };
        let space = if twist == 4 { " " } else { "" };
        format!(
            "{{\"rollout_id\":\"r\",\"model_call_id\":\"c\",\"{key}\":{space}[{prompt}{space}],\
             \"generation_token_ids\":[1],\"generation_log_probs\":[-0.5]{again}{end}"
        )
    }

    proptest! {
        /// Prompts that grow, shrink, branch and repeat say what each line says by itself.
        #[test]
        fn lines_of_a_store_are_read_as_each_by_itself(
            ids in vec(id(), 1..12),
            cuts in vec((0usize..12, prop_oneof![4 => Just(0u8), 1 => 1u8..5], any::<bool>()), 1..8),
        ) {
            let lines: Vec<String> = cuts
                .iter()
                .map(|&(cut, twist, wide)| {
                    line(&ids[..cut.min(ids.len())], if wide { ", " } else { "," }, twist)
                })
                .collect();
            let read = TokenEntry::parse_lines(lines.iter().map(String::as_bytes));
            let alone: Vec<_> = lines.iter().map(|line| TokenEntry::parse(line)).collect();
            prop_assert_eq!(read, alone);
        }
    }
}
