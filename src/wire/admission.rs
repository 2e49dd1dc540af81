//! Messages between gate, worker and sink (`spec/gym-wire.md` a.1, a.3, a.4, a.6): how a call is
//! admitted, staged and committed before any ledger or file speaks of it.
//!
//! Nothing of these is archived, so parsing applies the rules of the package's models at once.

use super::fields::{self, RecordError};
use super::json::Json;
use super::parser::Value;
use super::receipt::{CallRecord, object};
use crate::archive::Mode;
use crate::finding::Code;
use crate::id::Digest32;

type Result<T> = std::result::Result<T, RecordError>;

const CODE: Code = Code::MalformedRecord;

fn broken<T>(rule: &str) -> Result<T> {
    Err(RecordError::new(CODE, rule))
}

/// What the gate tells the worker of a call that it admits.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureAdmission {
    /// Capture schema.
    pub schema_version: u64,
    /// Capture scope.
    pub scope: String,
    /// The call.
    pub model_call_id: String,
    /// Its parent.
    pub parent_call_id: Option<String>,
    /// Tokens up to the end of the parent.
    pub prev_len: u64,
    /// Root or continuation.
    pub mode: Mode,
    /// Inline prefix, `[prev_len]`; not looked at beside a staging chain.
    pub required_prefix_token_ids: Vec<u64>,
    /// Staging keys from the root to the parent.
    pub staging_chain: Vec<String>,
    /// Chain hash of the parent.
    pub parent_chain_hash: Option<Digest32>,
}

impl CaptureAdmission {
    /// Reads an admission.
    ///
    /// # Errors
    ///
    /// A fault of form, or the first rule that it breaks in the package's words.
    pub fn parse(text: &str) -> Result<Self> {
        let mut fields = object(CODE, text)?;
        let (schema_version, scope) = fields.scope()?;
        let admission = Self {
            schema_version,
            scope,
            model_call_id: fields.identifier("model_call_id")?,
            parent_call_id: fields.optional_identifier("parent_call_id")?,
            prev_len: fields.length_or("prev_len", 0)?,
            mode: fields.mode(None)?,
            staging_chain: fields.list("staging_chain", fields::text)?,
            parent_chain_hash: fields.optional_digest("parent_chain_hash")?,
            required_prefix_token_ids: fields.list("required_prefix_token_ids", prefix_id)?,
        };
        fields.finish()?;
        admission.check().map(|()| admission)
    }

    fn check(&self) -> Result<()> {
        let inline = self.required_prefix_token_ids.len() as u64;
        match (self.mode, &self.parent_call_id, self.parent_chain_hash) {
            (Mode::TokenIn, parent, _) if parent.is_none() || self.prev_len == 0 => {
                broken("token_in admission requires a parent_call_id and prev_len > 0")
            }
            (Mode::TokenIn, _, None) => {
                broken("token_in admission requires the parent's chain hash")
            }
            (Mode::TokenIn, ..) if self.staging_chain.is_empty() && inline != self.prev_len => {
                broken("required_prefix_token_ids length must equal prev_len")
            }
            (Mode::Text, parent, hash)
                if parent.is_some()
                    || hash.is_some()
                    || self.prev_len != 0
                    || inline != 0
                    || !self.staging_chain.is_empty() =>
            {
                broken("text admission must be a parentless root with no required prefix")
            }
            _ => Ok(()),
        }
    }
}

/// A negative id breaks a rule of the model; anything else that is no id has the wrong form.
fn prefix_id(code: Code, value: Value<'_>) -> Result<u64> {
    match value {
        Value::Int(..0) => broken("required_prefix_token_ids must be non-negative"),
        other => fields::length(code, other),
    }
}

/// What the sink tells the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageResult {
    /// Whether the call is staged.
    pub ok: bool,
    /// Under which key.
    pub staging_key: Option<String>,
    /// Why not.
    pub error: Option<String>,
}

impl StageResult {
    /// Reads a result.
    ///
    /// # Errors
    ///
    /// A fault of form, or the rule that it breaks in the package's words.
    pub fn parse(text: &str) -> Result<Self> {
        let mut fields = object(CODE, text)?;
        fields.schema()?;
        let result = Self {
            ok: fields.lax_bool("ok", None)?,
            staging_key: fields.optional_identifier("staging_key")?,
            error: fields.optional_text("error")?,
        };
        fields.finish()?;
        match &result {
            Self { ok: true, staging_key: None, .. } => {
                broken("a successful stage result requires staging_key")
            }
            Self { ok: false, error, .. } if error.as_deref().unwrap_or_default().is_empty() => {
                broken("a failed stage result requires an error")
            }
            _ => Ok(result),
        }
    }
}

/// What a worker staged, as it travels back to the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedCoords {
    /// Call digest.
    pub digest: Digest32,
    /// Digest of the extras.
    pub extras_digest: Digest32,
    /// Key of the staged tensors.
    pub staging_key: String,
    /// Chain hash.
    pub chain_hash: Digest32,
    /// Hash of all tokens from the root.
    pub cumulative_hash: Digest32,
}

/// What the worker tells the gate of a call that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitCoords {
    /// Capture scope.
    pub scope: String,
    /// The call.
    pub model_call_id: String,
    /// Its parent.
    pub parent_call_id: Option<String>,
    /// Tokens before the delta.
    pub prev_len: u64,
    /// Tokens of the delta, 0 where the capture failed.
    pub delta_len: u64,
    /// Tokens up to the end of the delta.
    pub cum_len: u64,
    /// Weights that sampled the generation.
    pub weight_version: u64,
    /// What was staged; `None` = `capture_failed`.
    pub staged: Option<StagedCoords>,
}

impl CommitCoords {
    /// Reads coordinates.
    ///
    /// # Errors
    ///
    /// A version that is not read, a fault of form, or the first rule that they break in the
    /// package's words.
    pub fn parse(text: &str) -> Result<Self> {
        let mut fields = object(CODE, text)?;
        let scope = fields.head()?.scope;
        let disposition = fields.optional_word("disposition", &["staged", "capture_failed"])?;
        let mut coords = Self {
            scope,
            model_call_id: fields.identifier("model_call_id")?,
            parent_call_id: fields.optional_identifier("parent_call_id")?,
            prev_len: fields.length("prev_len")?,
            delta_len: fields.length("delta_len")?,
            cum_len: fields.length("cum_len")?,
            weight_version: fields.length("weight_version")?,
            staged: None,
        };
        let payload = (
            fields.optional_digest("digest")?,
            fields.optional_digest("extras_digest")?,
            fields.optional_identifier("staging_key")?,
            fields.optional_digest("chain_hash")?,
            fields.optional_digest("cumulative_hash")?,
        );
        fields.finish()?;
        coords.check_lengths()?;
        let failed = disposition.as_deref() == Some("capture_failed");
        coords.staged = match payload {
            (None, None, None, None, None) if failed => None,
            _ if failed => {
                return broken("capture_failed coordinates cannot carry staged payload metadata");
            }
            (
                Some(digest),
                Some(extras_digest),
                Some(staging_key),
                Some(chain_hash),
                Some(cumulative_hash),
            ) => Some(StagedCoords {
                digest,
                extras_digest,
                staging_key,
                chain_hash,
                cumulative_hash,
            }),
            _ => {
                return broken(
                    "staged coordinates require digest, extras_digest, staging_key, chain_hash, \
                     and cumulative_hash",
                );
            }
        };
        match (failed, coords.delta_len) {
            (true, 1..) => broken("capture_failed coordinates cannot carry token deltas"),
            (false, 0) => broken("staged coordinates require a non-empty delta"),
            _ => Ok(coords),
        }
    }

    fn check_lengths(&self) -> Result<()> {
        let end = u128::from(self.prev_len) + u128::from(self.delta_len);
        match (&self.parent_call_id, self.prev_len) {
            (None, 1..) => broken("parentless coordinates must have prev_len == 0"),
            (Some(_), 0) => broken("child coordinates must have prev_len > 0"),
            _ if u128::from(self.cum_len) != end => {
                broken("cum_len must equal prev_len + delta_len")
            }
            _ => Ok(()),
        }
    }
}

/// What the gate hands to its ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureLedgerCommit {
    /// Capture scope.
    pub scope: String,
    /// The row to be written.
    pub record: CallRecord,
    /// Staging keys from the root to this call.
    pub staging_chain: Vec<String>,
    /// Items of the request, objects all.
    pub request_items: Vec<Json>,
    /// Items of the response, objects all.
    pub response_items: Vec<Json>,
}

impl CaptureLedgerCommit {
    /// Reads a commit.
    ///
    /// # Errors
    ///
    /// A fault of form, or the first rule that its row breaks in the package's words.
    pub fn parse(text: &str) -> Result<Self> {
        let mut fields = object(CODE, text)?;
        let (schema, scope) = fields.scope()?;
        let record = fields.required_object("record")?;
        let commit = Self {
            scope,
            record: CallRecord::read(record, schema).map_err(|e| e.within("record"))?,
            staging_chain: fields.list("staging_chain", fields::identifier)?,
            request_items: fields.required_list("request_items", item)?,
            response_items: fields.required_list("response_items", item)?,
        };
        fields.finish()?;
        commit.record.check().map_err(|e| e.within("record"))?;
        Ok(commit)
    }
}

fn item(code: Code, value: Value<'_>) -> Result<Json> {
    match value {
        Value::Dict(_) => Ok(value.into()),
        other => Err(fields::expected(code, "an object", &other)),
    }
}
