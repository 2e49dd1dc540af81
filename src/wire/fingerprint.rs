//! Fingerprints of what a model authored, and digests of whole conversations, version 2
//! (`spec/gym-wire.md` c.3).

use sha2::{Digest as _, Sha256};

use super::canonical::{self, CanonicalError, ExponentSign, Spelling};
use super::fields::RecordError;
use super::json::{Dialect, Json};
use super::receipt::CallRecord;
use crate::finding::Code;
use crate::id::Digest32;

/// Version of the fingerprints computed here.
pub const FINGERPRINT_VERSION: u64 = 2;

/// Refuses fingerprints of another version; 0 says that none were recorded. The package takes
/// any version, and finds no content match under it.
///
/// # Errors
///
/// `unsupported_fingerprint`.
pub fn check_version(found: i64) -> Result<(), RecordError> {
    if found == 0 || found == FINGERPRINT_VERSION as i64 {
        return Ok(());
    }
    let message =
        format!("found version {found}; version {FINGERPRINT_VERSION}, and 0 for none, are read");
    Err(RecordError::of(Code::UnsupportedFingerprint, "fingerprint_version", message))
}

/// [`check_version`] of the rows of a manifest, which is named `key`.
///
/// # Errors
///
/// `unsupported_fingerprint` with the row.
pub fn check_row_versions(key: &str, rows: &[CallRecord]) -> Result<(), RecordError> {
    rows.iter().enumerate().try_for_each(|(at, row)| {
        let found = i64::try_from(row.fingerprint_version).unwrap_or(i64::MAX);
        check_version(found).map_err(|e| e.within(&format!("{key}[{at}]")))
    })
}

/// Keys that token-capturing servers add to an output item, and that no fingerprint sees.
pub const TOKEN_FIELDS: [&str; 4] =
    ["prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts"];

const ASSISTANT_DOMAIN: &[u8] = b"nemo-gym-lineage";
const CONVERSATION_DOMAIN: &[u8] = b"nemo-gym-lineage-context";

/// Items that have no fingerprint. The messages are the package's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FingerprintError {
    /// An item is not an object.
    #[error("request item is not an object: {0}")]
    Item(&'static str),
    /// Message content is neither null, string nor list.
    #[error("unsupported message content: {0}")]
    Content(&'static str),
    /// A content block is neither string nor object.
    #[error("unsupported content block: {0}")]
    Block(&'static str),
    /// A content block without type and text.
    #[error("content block has no supported type")]
    BlockType,
    /// A value that canonical JSON cannot hold.
    #[error("unsupported prompt content: {0}")]
    Canonical(&'static str),
    /// An identifier that is a list or an object; Python's spelling of those is not reproduced.
    #[error("{0} is not a string")]
    Identifier(&'static str),
}

/// Fingerprint of the model-authored items among `items`: those with role `assistant` and
/// function calls. `None` when there is none (the package's empty string). Item boundaries are
/// not part of it, and reasoning items contribute nothing.
///
/// # Errors
///
/// [`FingerprintError`] when an item cannot be read.
pub fn assistant_fingerprint(items: &[Json]) -> Result<Option<Digest32>, FingerprintError> {
    assistant_fingerprint_with(items, ExponentSign::default())
}

/// [`assistant_fingerprint`] under a chosen spelling of exponents.
///
/// # Errors
///
/// As [`assistant_fingerprint`].
pub fn assistant_fingerprint_with(
    items: &[Json],
    exponent: ExponentSign,
) -> Result<Option<Digest32>, FingerprintError> {
    let mut hash = FieldHash::new(ASSISTANT_DOMAIN);
    let mut authored = false;
    for item in items {
        if is_model_authored(item)? {
            authored = true;
            for (kind, payload) in content_parts(item.get("content"), exponent)? {
                hash.field(0, &kind);
                hash.field(1, &payload);
            }
            for tool in tool_calls(item, exponent)? {
                hash.field(2, &tool.id);
                hash.field(3, &tool.name);
                hash.field(4, &tool.arguments);
            }
        }
    }
    Ok(authored.then(|| hash.finish()))
}

/// Digest of every item of a conversation, whoever authored it.
///
/// # Errors
///
/// [`FingerprintError`] when an item cannot be read.
pub fn conversation_digest(items: &[Json]) -> Result<Digest32, FingerprintError> {
    conversation_digest_with(items, ExponentSign::default())
}

/// [`conversation_digest`] under a chosen spelling of exponents.
///
/// # Errors
///
/// As [`conversation_digest`].
pub fn conversation_digest_with(
    items: &[Json],
    exponent: ExponentSign,
) -> Result<Digest32, FingerprintError> {
    let mut hash = FieldHash::new(CONVERSATION_DOMAIN);
    for item in items {
        let members = item.as_dict().ok_or(FingerprintError::Item(python_type(item)))?;
        let role = first_truthy(&[members.get("role"), members.get("type")]);
        hash.field(0, &role.map_or(Ok(String::new()), |role| python_str(role, "role"))?);
        for (kind, payload) in content_parts(item.get("content"), exponent)? {
            hash.field(1, &kind);
            hash.field(2, &payload);
        }
        for tool in tool_calls(item, exponent)? {
            hash.field(3, &tool.id);
            hash.field(4, &tool.name);
            hash.field(5, &tool.arguments);
        }
        for (id, payload) in tool_results(item, exponent)? {
            hash.field(6, &id);
            hash.field(7, &payload);
        }
    }
    Ok(hash.finish())
}

/// Whether an item counts for [`assistant_fingerprint`].
///
/// # Errors
///
/// [`FingerprintError::Item`] when it is not an object.
pub fn is_model_authored(item: &Json) -> Result<bool, FingerprintError> {
    let members = item.as_dict().ok_or(FingerprintError::Item(python_type(item)))?;
    let is = |key: &str, word: &str| members.get(key).and_then(Json::as_str) == Some(word);
    Ok(is("role", "assistant") || is("type", "function_call"))
}

/// Canonical text of tool arguments: a string that Python's JSON reads is parsed and written
/// canonically, one that it does not is stripped, null is empty, anything else is written.
///
/// # Errors
///
/// [`FingerprintError::Canonical`] for what orjson refuses: integers beyond 64 bits, lone
/// surrogates, nesting beyond 254.
pub fn canonical_tool_arguments(
    arguments: Option<&Json>,
    exponent: ExponentSign,
) -> Result<String, FingerprintError> {
    match arguments {
        None | Some(Json::Null) => Ok(String::new()),
        Some(Json::Str(text)) => match Json::parse(text, Dialect::Python) {
            Ok(value) => canonical_json(&value, exponent),
            Err(_) if !Json::is_well_formed(text) => Ok(canonical::strip(text).to_owned()),
            Err(error) if error.too_deep => Err(FingerprintError::Canonical("nesting")),
            Err(_) => Err(FingerprintError::Canonical("str")),
        },
        Some(value) => canonical_json(value, exponent),
    }
}

/// The output items of a served payload: Responses `output` objects, an Anthropic message as
/// reasoning items and one assistant message, or the messages of Chat choices. Token fields are
/// removed. Empty when the payload is none of these.
pub fn output_items(payload: &Json) -> Vec<Json> {
    let items = if let Some(output) = payload.get("output").and_then(Json::as_list) {
        output.iter().filter(|item| item.as_dict().is_some()).cloned().collect()
    } else if let Some(choices) = payload.get("choices").and_then(Json::as_list) {
        choices.iter().filter_map(|choice| chat_item(choice.get("message")?)).collect()
    } else if payload.get("type").and_then(Json::as_str) == Some("message") {
        anthropic_items(payload)
    } else {
        Vec::new()
    };
    items.into_iter().map(without_token_fields).collect()
}

fn chat_item(message: &Json) -> Option<Json> {
    let mut members = message.as_dict()?.clone();
    members.entry("type".to_owned()).or_insert_with(|| Json::Str("message".to_owned()));
    members.entry("role".to_owned()).or_insert_with(|| Json::Str("assistant".to_owned()));
    Some(Json::Dict(members))
}

fn anthropic_items(payload: &Json) -> Vec<Json> {
    let object = |members: &[(&str, Json)]| {
        Json::Dict(members.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect())
    };
    let text = |t: &str| Json::Str(t.to_owned());
    let blocks = match payload.get("content") {
        Some(Json::List(blocks)) => blocks.clone(),
        Some(Json::Str(words)) => vec![object(&[("type", text("text")), ("text", text(words))])],
        _ => Vec::new(),
    };
    let thinking = |block: &Json| block.get("type").and_then(Json::as_str) == Some("thinking");
    let (thoughts, rest): (Vec<_>, Vec<_>) = blocks.into_iter().partition(thinking);
    let mut items: Vec<Json> = thoughts
        .iter()
        .map(|block| {
            let thought = block.get("thinking").cloned().unwrap_or_else(|| text(""));
            let summary = object(&[("type", text("summary_text")), ("text", thought)]);
            object(&[("type", text("reasoning")), ("summary", Json::List(vec![summary]))])
        })
        .collect();
    items.push(object(&[
        ("type", text("message")),
        ("role", text("assistant")),
        ("content", Json::List(rest)),
    ]));
    items
}

fn without_token_fields(item: Json) -> Json {
    match item {
        Json::Dict(mut members) => {
            members.retain(|key, _| !TOKEN_FIELDS.contains(&key.as_str()));
            Json::Dict(members)
        }
        other => other,
    }
}

/// Tagged, length-prefixed fields streamed into one SHA-256.
struct FieldHash(Sha256);

impl FieldHash {
    fn new(domain: &[u8]) -> Self {
        Self(Sha256::new_with_prefix(domain))
    }

    fn field(&mut self, tag: u8, text: &str) {
        self.0.update([tag]);
        self.0.update((text.len() as u64).to_be_bytes());
        self.0.update(text.as_bytes());
    }

    fn finish(self) -> Digest32 {
        Digest32(self.0.finalize().into())
    }
}

struct Tool {
    id: String,
    name: String,
    arguments: String,
}

/// (type, payload) of each content part.
fn content_parts(
    content: Option<&Json>,
    exponent: ExponentSign,
) -> Result<Vec<(String, String)>, FingerprintError> {
    let text = |text: &str| (!text.is_empty()).then(|| ("text".to_owned(), text.to_owned()));
    let blocks = match content {
        None | Some(Json::Null) => return Ok(Vec::new()),
        Some(Json::Str(words)) => return Ok(text(words).into_iter().collect()),
        Some(Json::List(blocks)) => blocks,
        Some(other) => return Err(FingerprintError::Content(python_type(other))),
    };
    let mut parts = Vec::new();
    for block in blocks {
        let members = match block {
            Json::Str(words) => {
                parts.extend(text(words));
                continue;
            }
            Json::Dict(members) => members,
            other => return Err(FingerprintError::Block(python_type(other))),
        };
        let kind = match members.get("type").filter(|kind| kind.truthy()) {
            Some(kind) => python_str(kind, "type")?,
            None => String::new(),
        };
        match (kind.as_str(), members.get("text")) {
            ("tool_use" | "tool_result", _) => {}
            ("" | "text" | "input_text" | "output_text", Some(Json::Str(words))) => {
                parts.extend(text(words));
            }
            ("", _) => return Err(FingerprintError::BlockType),
            _ => parts.push((kind, canonical_json(block, exponent)?)),
        }
    }
    Ok(parts)
}

/// Tool calls in hashing order: the Responses item itself, `tool_use` blocks, Chat `tool_calls`.
fn tool_calls(item: &Json, exponent: ExponentSign) -> Result<Vec<Tool>, FingerprintError> {
    let mut tools = Vec::new();
    if item.get("type").and_then(Json::as_str) == Some("function_call") {
        let id = first_truthy(&[item.get("call_id"), item.get("id")]);
        let name = item.get("name").map_or(Ok(String::new()), |name| python_str(name, "name"))?;
        let namespace = item.get("namespace").filter(|namespace| namespace.truthy());
        let name = match namespace {
            Some(namespace) => format!("{}__{name}", python_str(namespace, "namespace")?),
            None => name,
        };
        tools.push(Tool {
            id: id.map_or(Ok(String::new()), |id| python_str(id, "call_id"))?,
            name,
            arguments: canonical_tool_arguments(item.get("arguments"), exponent)?,
        });
    }
    for block in blocks_of_type(item, "tool_use") {
        tools.push(Tool {
            id: python_member(Some(block), "id")?,
            name: python_member(Some(block), "name")?,
            arguments: canonical_tool_arguments(block.get("input"), exponent)?,
        });
    }
    for call in item.get("tool_calls").and_then(Json::as_list).unwrap_or_default() {
        let function = call.get("function");
        tools.push(Tool {
            id: python_member(Some(call), "id")?,
            name: python_member(function, "name")?,
            arguments: canonical_tool_arguments(
                function.and_then(|function| function.get("arguments")),
                exponent,
            )?,
        });
    }
    Ok(tools)
}

/// (id, payload) of each tool result of an item.
fn tool_results(
    item: &Json,
    exponent: ExponentSign,
) -> Result<Vec<(String, String)>, FingerprintError> {
    let payload = |value: Option<&Json>| match value {
        Some(Json::Str(words)) => Ok(words.clone()),
        other => canonical_json(other.unwrap_or(&Json::Null), exponent),
    };
    let identifier = |keys: [&str; 2]| match first_truthy(&keys.map(|key| item.get(key))) {
        Some(id) => python_str(id, "call_id"),
        None => Ok(String::new()),
    };
    let mut results = Vec::new();
    if item.get("type").and_then(Json::as_str) == Some("function_call_output") {
        results.push((identifier(["call_id", "id"])?, payload(item.get("output"))?));
    } else if item.get("role").and_then(Json::as_str) == Some("tool") {
        results.push((python_member(Some(item), "tool_call_id")?, payload(item.get("content"))?));
    }
    for block in blocks_of_type(item, "tool_result") {
        let id = first_truthy(&[block.get("tool_use_id"), block.get("id")]);
        let id = id.map_or(Ok(String::new()), |id| python_str(id, "tool_use_id"))?;
        results.push((id, payload(block.get("content"))?));
    }
    Ok(results)
}

fn blocks_of_type<'a>(item: &'a Json, kind: &'a str) -> impl Iterator<Item = &'a Json> {
    let blocks = item.get("content").and_then(Json::as_list).unwrap_or_default();
    blocks.iter().filter(move |block| block.get("type").and_then(Json::as_str) == Some(kind))
}

fn canonical_json(value: &Json, exponent: ExponentSign) -> Result<String, FingerprintError> {
    canonical::text(value, Spelling::Orjson(exponent)).map_err(|error| match error {
        CanonicalError::Integer => FingerprintError::Canonical("int"),
        CanonicalError::NotFinite => FingerprintError::Canonical("float"),
    })
}

/// Python's `a or b`, without its falsy last operand.
fn first_truthy<'a>(values: &[Option<&'a Json>]) -> Option<&'a Json> {
    values.iter().flatten().copied().find(|value| value.truthy())
}

/// `str(value.get(key, ""))`
fn python_member(value: Option<&Json>, key: &'static str) -> Result<String, FingerprintError> {
    match value.and_then(|value| value.get(key)) {
        Some(member) => python_str(member, key),
        None => Ok(String::new()),
    }
}

/// `str(value)`
pub(super) fn python_str(value: &Json, key: &'static str) -> Result<String, FingerprintError> {
    match value {
        Json::Null => Ok("None".to_owned()),
        Json::Bool(true) => Ok("True".to_owned()),
        Json::Bool(false) => Ok("False".to_owned()),
        Json::Str(text) => Ok(text.clone()),
        Json::Int(_) | Json::BigInt(_) | Json::Float(_) => {
            canonical::text(value, Spelling::Python).map_err(|_| FingerprintError::Identifier(key))
        }
        Json::List(_) | Json::Dict(_) => Err(FingerprintError::Identifier(key)),
    }
}

fn python_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "NoneType",
        Json::Bool(_) => "bool",
        Json::Int(_) | Json::BigInt(_) => "int",
        Json::Float(_) => "float",
        Json::Str(_) => "str",
        Json::List(_) => "list",
        Json::Dict(_) => "dict",
    }
}
