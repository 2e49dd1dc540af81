//! Replay digests: what a request looked like, item by item (`spec/semantics.md` section 5).

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::canonical::{self, CanonicalError, Spelling};
use super::fingerprint::TOKEN_FIELDS;
use super::json::{Dialect, Json};
use super::receipt::ReplaySummary;
use crate::id::Digest32;

/// Version of the normalisation.
pub const NORMALIZATION_VERSION: u64 = 1;

/// Request keys that change how a history is rendered.
pub const RENDER_OPTIONS: [&str; 13] = [
    "model",
    "chat_template",
    "chat_template_kwargs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "mm_processor_kwargs",
    "reasoning_effort",
    "media_io_kwargs",
];

/// An item that has no replay digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// An item is not an object.
    #[error("a replay item is not an object")]
    Item,
    /// An item's role or type is none that a history can hold.
    #[error("a replay item has no supported role or type")]
    Role,
    /// A value without Python JSON text.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
}

/// The digest of one item, with its role and its alternate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemDigest {
    /// system, developer, user, assistant, tool, or envelope.
    pub role: &'static str,
    /// Digest of the normalised item.
    pub digest: Digest32,
    /// For an assistant message with tool calls and no content: the digest with content `""`,
    /// which some renderers do not tell from null.
    pub empty_tool_content: Option<Digest32>,
}

/// Normalises and digests one item of a request or served output.
///
/// # Errors
///
/// [`ReplayError`].
pub fn item_digest(item: &Json) -> Result<ItemDigest, ReplayError> {
    let members = item.as_dict().ok_or(ReplayError::Item)?;
    let role = role_of(members)?;
    let normal = normalise(members);
    let digest = digest_of(&Json::Dict(normal.clone()))?;
    let calls = members.get("tool_calls").is_some_and(Json::truthy);
    let silent = match members.get("content") {
        None | Some(Json::Null) => true,
        Some(Json::Str(text)) => text.is_empty(),
        Some(_) => false,
    };
    let empty_tool_content = if role == "assistant" && calls && silent {
        let mut alternate = normal;
        alternate.insert("content".to_owned(), Json::Str(String::new()));
        Some(digest_of(&Json::Dict(alternate))?)
    } else {
        None
    };
    Ok(ItemDigest { role, digest, empty_tool_content })
}

/// The ordered digest of a request's items and the output served for it. The render digest is
/// not among them ([`render_digest`]) and stays `None`.
///
/// # Errors
///
/// [`ReplayError`] for the first item that has no digest.
pub fn replay_summary<'a>(
    items: impl IntoIterator<Item = &'a Json>,
) -> Result<ReplaySummary, ReplayError> {
    let items: Vec<ItemDigest> = items.into_iter().map(item_digest).collect::<Result<_, _>>()?;
    let source = source_digest(items.iter().map(|item| (item.role, item.digest)))?;
    let alternates =
        items.iter().map(|item| (item.role, item.empty_tool_content.unwrap_or(item.digest)));
    let alternate = source_digest(alternates)?;
    Ok(ReplaySummary {
        normalization_version: NORMALIZATION_VERSION,
        item_count: items.len() as u64,
        source_digest: source,
        empty_tool_content_digest: (alternate != source).then_some(alternate),
        render_digest: None,
    })
}

fn source_digest(
    items: impl Iterator<Item = (&'static str, Digest32)>,
) -> Result<Digest32, ReplayError> {
    let pair = |(role, digest): (&str, Digest32)| {
        Json::List(vec![Json::Str(role.to_owned()), Json::Str(digest.to_string())])
    };
    digest_of(&Json::Dict(BTreeMap::from([
        ("items".to_owned(), Json::List(items.map(pair).collect())),
        ("normalization_version".to_owned(), Json::Int(NORMALIZATION_VERSION.into())),
    ])))
}

/// Digest of the effective render options: those of [`RENDER_OPTIONS`] that the request has.
///
/// # Errors
///
/// [`ReplayError::Canonical`] for a number without JSON text.
pub fn render_digest(request: &BTreeMap<String, Json>) -> Result<Digest32, ReplayError> {
    let present = request.iter().filter(|(key, _)| RENDER_OPTIONS.contains(&key.as_str()));
    digest_of(&Json::Dict(present.map(|(key, value)| (key.clone(), value.clone())).collect()))
}

fn digest_of(value: &Json) -> Result<Digest32, ReplayError> {
    let mut hash = Sha256::new_with_prefix(b"nemo-gym-replay-v1\0");
    hash.update(canonical::text(value, Spelling::Python)?);
    Ok(Digest32(hash.finalize().into()))
}

fn role_of(members: &BTreeMap<String, Json>) -> Result<&'static str, ReplayError> {
    let word = |key: &str| members.get(key).and_then(Json::as_str);
    Ok(match (word("type"), word("role")) {
        (Some("reasoning" | "function_call"), _) => "assistant",
        (Some("function_call_output"), _) => "tool",
        (None | Some("message"), Some(role)) => match role {
            "system" => "system",
            "developer" => "developer",
            "user" => "user",
            "assistant" => "assistant",
            "tool" => "tool",
            "_ng_request_envelope" => "envelope",
            _ => return Err(ReplayError::Role),
        },
        _ => return Err(ReplayError::Role),
    })
}

/// Drops what a server adds and what null says; parses tool arguments.
fn normalise(members: &BTreeMap<String, Json>) -> BTreeMap<String, Json> {
    let message = members.get("role").is_some_and(|role| !role.is_null());
    let call = members.get("type").and_then(Json::as_str) == Some("function_call");
    let mut normal = BTreeMap::new();
    for (key, value) in members {
        let dropped = TOKEN_FIELDS.contains(&key.as_str())
            || matches!(key.as_str(), "id" | "status")
            || (key == "type" && message);
        if dropped || value.is_null() {
            continue;
        }
        let value = match (key.as_str(), value) {
            ("arguments", Json::Str(text)) if call => parsed(text),
            ("tool_calls", Json::List(calls)) => Json::List(calls.iter().map(tool_call).collect()),
            (_, value) => without_nulls(value),
        };
        normal.insert(key.clone(), value);
    }
    normal
}

fn tool_call(call: &Json) -> Json {
    let Json::Dict(mut members) = without_nulls(call) else { return without_nulls(call) };
    if let Some(Json::Dict(function)) = members.get_mut("function")
        && let Some(Json::Str(text)) = function.get("arguments")
    {
        let arguments = parsed(text);
        function.insert("arguments".to_owned(), arguments);
    }
    Json::Dict(members)
}

/// The value of a JSON text, or the text itself, kept exactly.
fn parsed(text: &str) -> Json {
    Json::parse(text, Dialect::Python).unwrap_or_else(|_| Json::Str(text.to_owned()))
}

fn without_nulls(value: &Json) -> Json {
    match value {
        Json::Dict(members) => {
            let kept = members.iter().filter(|(_, value)| !value.is_null());
            Json::Dict(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Json::List(items) => Json::List(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}
