//! What ingest hands to the archive: groups, what could not be read, and where all of it came from.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Group, PieceSources};
use crate::finding::{Code, Finding};
use crate::id::{CallId, CaptureKey, Digest32, RolloutId};

/// Everything that one run of ingest read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ingested {
    /// Prompt groups in order of `group_id`, their rollouts in order of slot.
    pub groups: Vec<Group>,
    /// What was read, but is doubtful: calls without a verified parent, derived identities,
    /// kinds of file that are not read.
    pub findings: Vec<Finding>,
    /// What could not be read, in order of source and line.
    pub quarantine: Vec<Quarantined>,
    /// Every file found, read or not, in order of path.
    pub sources: Vec<SourceFile>,
    /// Where the tensor data that the groups refer to can be read.
    pub pieces: PieceSources,
}

/// A line, or a whole file, that could not be read. One line of `quarantine.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quarantined {
    /// Source file, as in [`SourceFile::path`].
    pub source: String,
    /// One-based line; `None` when the whole file, or the rest of it, is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Stable code; `unknown_code` for one of a newer minor version of the format.
    #[serde(deserialize_with = "code")]
    pub code: Code,
    /// What was found and what was expected.
    pub message: String,
    /// Logical rollout, where the line names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_id: Option<RolloutId>,
    /// Capture scope, where the line names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture_key: Option<CaptureKey>,
    /// Call, where the line names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// Beginning of the line, at most [`Quarantined::TEXT_LIMIT`] bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl Quarantined {
    /// Bytes of a line that are kept for looking at.
    pub const TEXT_LIMIT: usize = 1024;

    /// A line of `source` that `code` and `message` explain.
    pub fn new(
        source: impl Into<String>,
        line: Option<u64>,
        code: Code,
        message: impl Into<String>,
    ) -> Self {
        Self {
            source: source.into(),
            line,
            code,
            message: message.into(),
            rollout_id: None,
            capture_key: None,
            call_id: None,
            text: String::new(),
        }
    }

    /// Keeps the beginning of the line.
    pub fn text(mut self, text: &str) -> Self {
        let end = (0..=Self::TEXT_LIMIT.min(text.len())).rfind(|&end| text.is_char_boundary(end));
        self.text = text[..end.unwrap_or(0)].to_owned();
        self
    }
}

fn code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    Ok(Code::parse(&String::deserialize(deserializer)?).unwrap_or(Code::UnknownCode))
}

/// What a file turned out to hold.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SourceForm {
    /// Staged records.
    Staged,
    /// Receipts.
    Receipts,
    /// Logical rollouts, with or without inline token arrays.
    Rollouts,
    /// Entries of a Gym file store.
    Store,
    /// Intents, state or marker of a Gym file store.
    StoreSibling,
    /// Gym's token-free ledger of a staged capture.
    Lineage,
    /// A context-compaction trace: one JSON document, one rollout.
    Trace,
    /// Media flags of calls.
    Media,
    /// Media tensors of calls.
    MediaTensors,
    /// Lines of several kinds, each with its `kind`.
    Stream,
    /// A recovery checkpoint, which is refused.
    Recovery,
    /// Not a capture; or a form that came with a newer minor version of the format.
    #[serde(other)]
    Ignored,
}

impl SourceForm {
    /// Whether the file is read line by line, in any order.
    pub fn is_lines(self) -> bool {
        matches!(self, Self::Staged | Self::Receipts | Self::Rollouts | Self::Media | Self::Stream)
    }
}

/// One file among the sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceFile {
    /// The name for a file given by name; for a file in a given folder, the folder's name and
    /// the path within.
    pub path: String,
    /// What it holds.
    pub form: SourceForm,
    /// Size as stored, compressed or not.
    pub bytes: u64,
    /// BLAKE3 of the bytes as stored; `None` for a file that was not read.
    pub blake3: Option<Digest32>,
}
