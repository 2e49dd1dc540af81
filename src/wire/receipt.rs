//! Receipts and manifest rows: what a ledger says of a capture scope, without tokens.

use std::collections::BTreeMap;

use super::fields::{self, Fields, RecordError};
use super::json::Dialect;
use super::parser::{Member, Value};
use crate::archive::{CaptureFailure, Completion, Mode, OutputItem};
use crate::finding::Code;
use crate::id::{CallId, Digest32};

/// One manifest row (`CallRecord`, `spec/gym-wire.md` a.5), with the seed's schema 3 additions.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// Capture schema.
    pub schema_version: u64,
    /// Digest version.
    pub digest_version: u64,
    /// Extras digest version.
    pub extras_digest_version: u64,
    /// The call.
    pub model_call_id: String,
    /// Its parent.
    pub parent_call_id: Option<String>,
    /// Tokens before the delta.
    pub prev_len: u64,
    /// Tokens of the delta.
    pub delta_len: u64,
    /// Tokens up to the end of the delta.
    pub cum_len: u64,
    /// Weights that sampled the generation.
    pub weight_version: u64,
    /// Call digest.
    pub digest: Digest32,
    /// Digest of the extras.
    pub extras_digest: Digest32,
    /// Opaque key of the staged tensors.
    pub staging_key: String,
    /// Root or continuation.
    pub mode: Mode,
    /// Chain hash.
    pub chain_hash: Digest32,
    /// Hash of all tokens from the root.
    pub cumulative_hash: Digest32,
    /// Id of the served response.
    pub response_id: String,
    /// Admission time in seconds since the epoch.
    pub admitted_at: Option<f64>,
    /// Fingerprint of the served output.
    pub output_fingerprint: Option<Digest32>,
    /// Fingerprint of request and output.
    pub continuation_fingerprint: Option<Digest32>,
    /// Version of the fingerprints, 0 when none were recorded.
    pub fingerprint_version: u64,
    /// Schema 3: earlier staging owner of a restored call.
    pub source_capture_key: Option<String>,
    /// Schema 3: how the call ended.
    pub completion: Completion,
    /// Schema 3: served items.
    pub output_items: Option<Vec<OutputItem>>,
    /// Schema 3: what the request looked like.
    pub replay: Option<ReplaySummary>,
}

/// `ReplaySummary` of schema 3 (`spec/semantics.md` section 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Version of the source normalisation.
    pub normalization_version: u64,
    /// Items of request and served output.
    pub item_count: u64,
    /// Ordered digest of the items.
    pub source_digest: Digest32,
    /// The same with empty tool content made equal, where it differs.
    pub empty_tool_content_digest: Option<Digest32>,
    /// Digest of the effective render options.
    pub render_digest: Option<Digest32>,
}

/// Completion metadata that a schema 2 receipt carries beside its manifest (key `calls`).
#[derive(Clone, Debug, PartialEq)]
pub struct CallCompletion {
    /// How the call ended.
    pub completion: Completion,
    /// Id of the served response.
    pub response_id: Option<String>,
    /// Served items.
    pub output_items: Vec<OutputItem>,
}

/// The receipt of one capture scope (`RolloutReceipt`, `spec/gym-wire.md` a.8), with the
/// admission ledger that files carry beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// Capture schema.
    pub schema_version: u64,
    /// Digest version.
    pub digest_version: u64,
    /// Extras digest version.
    pub extras_digest_version: u64,
    /// Capture scope.
    pub scope: String,
    /// Reward as the framework recorded it.
    pub reward: Option<f64>,
    /// Scored call.
    pub terminal_model_call_id: Option<String>,
    /// Rows in commit order.
    pub manifest: Vec<CallRecord>,
    /// The capture is not to be trusted.
    pub capture_poisoned: bool,
    /// Why; an empty string is a reason.
    pub failure_reason: Option<String>,
    /// How the scored call was found: declared, response_id, content, heuristic.
    pub terminal_selection: Option<String>,
    /// Trail of the attribution.
    pub terminal_attribution_reason: Option<String>,
    /// Calls in admission order; `None` when the file does not say.
    pub attempted_call_ids: Option<Vec<String>>,
    /// Calls neither acknowledged nor failed.
    pub pending_call_ids: Option<Vec<String>>,
    /// Failures in ledger order.
    pub failures: Option<Vec<CaptureFailure>>,
    /// Schema 2 completion metadata by call.
    pub calls: Option<BTreeMap<String, CallCompletion>>,
}

/// How the scored call can have been found.
const SELECTIONS: [&str; 4] = ["declared", "response_id", "content", "heuristic"];

type Result<T> = std::result::Result<T, RecordError>;

impl Receipt {
    /// Reads one line: JSON types, names and versions are checked, what the receipt says is not
    /// ([`Receipt::check`]). Manifest rows keep the versions that they state.
    ///
    /// # Errors
    ///
    /// `unsupported_schema`, `unsupported_digest` or `unsupported_extras_digest` for another
    /// version, whatever else is wrong; `malformed_json`; `malformed_receipt` for every other
    /// fault of form.
    pub fn parse(line: &str) -> Result<Receipt> {
        let mut fields = object(Code::MalformedReceipt, line)?;
        let head = fields.head()?;
        let schema = head.schema_version;
        let receipt = Receipt {
            schema_version: schema,
            digest_version: head.digest_version,
            extras_digest_version: head.extras_digest_version,
            scope: head.scope,
            reward: fields.optional_lax_float("reward")?,
            terminal_model_call_id: fields.optional_identifier("terminal_model_call_id")?,
            manifest: fields.list("manifest", |code, row| {
                CallRecord::read(Fields::object(code, row)?, schema)
            })?,
            capture_poisoned: fields.lax_bool("capture_poisoned", Some(false))?,
            failure_reason: fields.optional_text("failure_reason")?,
            terminal_selection: fields.optional_word("terminal_selection", &SELECTIONS)?,
            terminal_attribution_reason: fields.optional_text("terminal_attribution_reason")?,
            attempted_call_ids: fields.optional_identifiers("attempted_call_ids")?,
            pending_call_ids: fields.optional_identifiers("pending_call_ids")?,
            failures: fields.items("failures", failure)?,
            calls: match schema {
                2 => completions(&mut fields)?,
                _ => None,
            },
        };
        fields.finish()?;
        Ok(receipt)
    }
}

/// What a gate serves of a capture scope before a framework judges it (`RolloutManifest`,
/// `spec/gym-wire.md` a.7). Duplicate calls are allowed, as is a call that both is a record and
/// failed.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutManifest {
    /// Capture schema.
    pub schema_version: u64,
    /// Capture scope.
    pub scope: String,
    /// Rows in commit order.
    pub records: Vec<CallRecord>,
    /// Failures in ledger order; one call may have several.
    pub failures: Vec<CaptureFailure>,
}

impl RolloutManifest {
    /// Reads a manifest: its form, not its truth ([`RolloutManifest::check`]).
    ///
    /// # Errors
    ///
    /// As [`Receipt::parse`].
    pub fn parse(text: &str) -> Result<RolloutManifest> {
        let mut fields = object(Code::MalformedReceipt, text)?;
        let (schema_version, scope) = fields.scope()?;
        let manifest = RolloutManifest {
            schema_version,
            scope,
            records: fields.list("records", |code, row| {
                CallRecord::read(Fields::object(code, row)?, schema_version)
            })?,
            failures: fields.list("failures", failure)?,
        };
        fields.finish()?;
        Ok(manifest)
    }
}

impl CallRecord {
    /// Reads one manifest row from its own text.
    ///
    /// # Errors
    ///
    /// `malformed_json` or `malformed_receipt`.
    pub fn parse(text: &str) -> Result<CallRecord> {
        Self::read(object(Code::MalformedReceipt, text)?, 2)
    }

    /// `schema` is the version of the receipt that holds the row, and the row's where the row
    /// states none.
    pub(super) fn read(mut fields: Fields<'_>, schema: u64) -> Result<CallRecord> {
        let schema_version = fields.version("schema_version", schema)?;
        let extended = schema == 3 || schema_version == 3;
        if extended {
            refuse_replay_items(|key| fields.peek(key).is_some_and(|v| v.has("items")))?;
        }
        let record = CallRecord {
            schema_version,
            digest_version: fields.version("digest_version", 2)?,
            extras_digest_version: fields.version("extras_digest_version", 1)?,
            model_call_id: fields.identifier("model_call_id")?,
            parent_call_id: fields.optional_identifier("parent_call_id")?,
            prev_len: fields.length("prev_len")?,
            delta_len: fields.length("delta_len")?,
            cum_len: fields.length("cum_len")?,
            weight_version: fields.length("weight_version")?,
            digest: fields.digest("digest")?,
            extras_digest: fields.digest("extras_digest")?,
            staging_key: fields.identifier("staging_key")?,
            mode: fields.mode(Some(Mode::TokenIn))?,
            chain_hash: fields.digest("chain_hash")?,
            cumulative_hash: fields.digest("cumulative_hash")?,
            response_id: fields.identifier("response_id")?,
            admitted_at: fields.optional_float("admitted_at")?,
            output_fingerprint: fields.optional_digest("output_fingerprint")?,
            continuation_fingerprint: fields.optional_digest("continuation_fingerprint")?,
            fingerprint_version: fields.length_or("fingerprint_version", 0)?,
            source_capture_key: match extended {
                true => fields.optional_identifier("source_capture_key")?,
                false => None,
            },
            completion: match extended {
                true => completion(&mut fields)?,
                false => Completion::Unrecorded,
            },
            output_items: match extended {
                true => fields.items("output_items", output_item)?,
                false => None,
            },
            replay: match extended {
                true => fields.optional("replay", ReplaySummary::from_json)?,
                false => None,
            },
        };
        fields.finish()?;
        Ok(record)
    }
}

impl ReplaySummary {
    fn from_json(code: Code, value: Value<'_>) -> Result<ReplaySummary> {
        let mut fields = Fields::object(code, value)?;
        let summary = ReplaySummary {
            normalization_version: fields.length("normalization_version")?,
            item_count: fields.length("item_count")?,
            source_digest: fields.digest("source_digest")?,
            empty_tool_content_digest: fields.optional_digest("empty_tool_content_digest")?,
            render_digest: fields.optional_digest("render_digest")?,
        };
        fields.finish()?;
        Ok(summary)
    }
}

/// Where experimental ledgers of schema 3 kept a `ReplayContext`, whose items a `ReplaySummary`
/// counts instead.
const REPLAYS: [&str; 2] = ["replay", "replay_context"];

/// Refuses a row that persisted the items of a `ReplayContext` (rule 18).
/// `has_items` tells whether a member of the row is an object with a key `items`.
pub(super) fn refuse_replay_items(has_items: impl Fn(&str) -> bool) -> Result<()> {
    match REPLAYS.iter().find(|key| has_items(key)) {
        None => Ok(()),
        Some(key) => {
            let message = "found a ReplayContext with its items; a ReplaySummary is read";
            Err(RecordError::of(Code::UnsupportedReplay, format!("{key}.items"), message))
        }
    }
}

/// The members of a line that must be an object; `code` is the word for its faults.
pub(super) fn object(code: Code, line: &str) -> Result<Fields<'_>> {
    let value = Value::parse(line, Dialect::Strict).map_err(|e| RecordError::json(code, &e))?;
    Fields::object(code, value)
}

/// A source that writes neither key records no completion.
fn completion(fields: &mut Fields<'_>) -> Result<Completion> {
    if !fields.has("status") && !fields.has("finish_reason") {
        return Ok(Completion::Unrecorded);
    }
    Ok(Completion::Recorded {
        status: fields.optional_text("status")?,
        finish_reason: fields.optional_text("finish_reason")?,
    })
}

fn output_item(code: Code, value: Value<'_>) -> Result<OutputItem> {
    let mut fields = Fields::object(code, value)?;
    let item = OutputItem {
        id: fields.optional_text("id")?,
        kind: fields.optional_text("type")?,
        fingerprint: fields.optional_digest("fingerprint")?,
    };
    fields.finish()?;
    Ok(item)
}

fn failure(code: Code, value: Value<'_>) -> Result<CaptureFailure> {
    let mut fields = Fields::object(code, value)?;
    fields.version("schema_version", 2)?;
    let failure = CaptureFailure {
        call_id: CallId::new(fields.identifier("model_call_id")?),
        reason: fields.identifier("reason")?,
    };
    fields.finish()?;
    Ok(failure)
}

fn completions(fields: &mut Fields<'_>) -> Result<Option<BTreeMap<String, CallCompletion>>> {
    let Some(value) = fields.take("calls") else { return Ok(None) };
    let Value::Dict(calls) = value else {
        let error = fields::expected(Code::MalformedReceipt, "an object", &value);
        return Err(error.within("calls"));
    };
    let read = |(call, value): Member<'_>| {
        let entry = call_completion(value).map_err(|e| e.within(&format!("calls.{call}")))?;
        Ok((call.into_owned(), entry))
    };
    // Of repeated keys the last wins, and the first faulty key in order of keys is told.
    let calls: BTreeMap<_, _> = calls.into_iter().collect();
    calls.into_iter().map(read).collect::<Result<_>>().map(Some)
}

fn call_completion(value: Value<'_>) -> Result<CallCompletion> {
    let mut fields = Fields::object(Code::MalformedReceipt, value)?;
    let entry = CallCompletion {
        completion: completion(&mut fields)?,
        response_id: fields.optional_text("response_id")?,
        output_items: fields.items("output_items", output_item)?.unwrap_or_default(),
    };
    fields.finish()?;
    Ok(entry)
}
