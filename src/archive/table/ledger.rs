//! `ledger/`: what a capture scope admitted, committed, lost and scored; a row per entry, entries
//! of one kind in ledger order, repeated ones kept.

use std::sync::Arc;

use arrow::array::{Array, AsArray, ListArray, StringArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, UInt32Type, UInt64Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use super::columns::{Columns, Draft, digests};
use super::{Fault, Owner, each};
use crate::archive::{CaptureFailure, CommittedCall, Completion, Ledger, OutputItem};
use crate::columnar::RowGroup;
use crate::id::{CallId, Digest32};

/// One entry of a ledger, borrowed from it.
#[derive(Clone, Copy, Debug)]
pub(in crate::archive) enum Entry<'a> {
    /// The account as a whole: receipt, scored call, poison. One per rollout.
    Scope(&'a Ledger),
    Attempted(&'a CallId),
    Committed(&'a CommittedCall),
    Pending(&'a CallId),
    Failed(&'a CaptureFailure),
}

/// An entry with its rollout and its place among those of its kind.
#[derive(Clone, Copy, Debug)]
pub(in crate::archive) struct LedgerRow<'a> {
    pub owner: Owner<'a>,
    pub ordinal: u32,
    pub entry: Entry<'a>,
}

/// All entries of a rollout's ledger.
pub(in crate::archive) fn rows(owner: Owner<'_>) -> impl Iterator<Item = LedgerRow<'_>> {
    let ledger = &owner.rollout.ledger;
    let row = move |(at, entry): (usize, _)| LedgerRow { owner, ordinal: at as u32, entry };
    std::iter::once(row((0, Entry::Scope(ledger))))
        .chain(ledger.attempted.iter().map(Entry::Attempted).enumerate().map(row))
        .chain(ledger.committed.iter().map(Entry::Committed).enumerate().map(row))
        .chain(ledger.pending.iter().map(Entry::Pending).enumerate().map(row))
        .chain(ledger.failures.iter().map(Entry::Failed).enumerate().map(row))
}

impl<'a> Entry<'a> {
    fn kind(self) -> &'static str {
        match self {
            Entry::Scope(_) => "scope",
            Entry::Attempted(_) => "attempted",
            Entry::Committed(_) => "committed",
            Entry::Pending(_) => "pending",
            Entry::Failed(_) => "failed",
        }
    }

    fn call_id(self) -> Option<&'a CallId> {
        match self {
            Entry::Scope(ledger) => ledger.terminal_call_id.as_ref(),
            Entry::Attempted(id) | Entry::Pending(id) => Some(id),
            Entry::Committed(row) => Some(&row.call_id),
            Entry::Failed(failure) => Some(&failure.call_id),
        }
    }

    fn reason(self) -> Option<&'a str> {
        match self {
            Entry::Scope(ledger) => ledger.failure_reason.as_deref(),
            Entry::Failed(failure) => Some(&failure.reason),
            _ => None,
        }
    }

    fn scope(self) -> Option<&'a Ledger> {
        match self {
            Entry::Scope(ledger) => Some(ledger),
            _ => None,
        }
    }

    fn committed(self) -> Option<&'a CommittedCall> {
        match self {
            Entry::Committed(row) => Some(row),
            _ => None,
        }
    }

    /// Status and finish reason, where they were recorded.
    fn completion(self) -> Option<(Option<&'a str>, Option<&'a str>)> {
        match &self.committed()?.completion {
            Completion::Unrecorded => None,
            Completion::Recorded { status, finish_reason } => {
                Some((status.as_deref(), finish_reason.as_deref()))
            }
        }
    }
}

/// Bytes of a row, about.
pub(in crate::archive) fn size(row: &LedgerRow<'_>) -> usize {
    let items = row.entry.committed().and_then(|row| row.output_items.as_ref());
    let receipt = row.entry.scope().and_then(|ledger| ledger.receipt.as_ref());
    256 + 128 * items.map_or(0, Vec::len) + receipt.map_or(0, String::len)
}

pub(in crate::archive) fn encode(rows: &[LedgerRow<'_>]) -> Result<RowGroup<'static>, ArrowError> {
    let entries = || rows.iter().map(|row| row.entry);
    let committed = || entries().map(Entry::committed);
    let items = output_items(committed().map(|row| row.and_then(|r| r.output_items.as_deref())))?;
    let draft = Draft::default()
        .text("group_id", rows.iter().map(|row| row.owner.group.group_id.as_str()))
        .text("rollout_id", rows.iter().map(|row| row.owner.rollout.rollout_id.as_str()))
        .text("kind", entries().map(Entry::kind))
        .number::<UInt32Type>("ordinal", rows.iter().map(|row| row.ordinal))
        .text_or_null("call_id", entries().map(|e| e.call_id().map(CallId::as_str)))
        .text_or_null("response_id", committed().map(|row| row?.response_id.as_deref()))
        .flag(
            "completion_recorded",
            entries().map(|e| e.committed().map(|_| e.completion().is_some())),
        )
        .text_or_null("status", entries().map(|e| e.completion()?.0))
        .text_or_null("finish_reason", entries().map(|e| e.completion()?.1))
        .column("output_items", true, items)
        .digest("output_fingerprint", committed().map(|row| row?.output_fingerprint))?
        .number_or_null::<UInt64Type>(
            "fingerprint_version",
            committed().map(|row| Some(row?.fingerprint_version)),
        )
        .text_or_null("reason", entries().map(Entry::reason))
        .flag("capture_poisoned", entries().map(|e| Some(e.scope()?.capture_poisoned)))
        .long_text("receipt", entries().map(|e| e.scope()?.receipt.as_deref()));
    Ok(draft.finish())
}

fn output_items<'a>(
    values: impl Iterator<Item = Option<&'a [OutputItem]>>,
) -> Result<ListArray, ArrowError> {
    let mut items: Vec<&OutputItem> = Vec::new();
    let mut offsets = vec![0i32];
    let mut valid = Vec::new();
    for value in values {
        items.extend(value.unwrap_or_default());
        let end = i32::try_from(items.len())
            .map_err(|_| ArrowError::InvalidArgumentError("too many output items".to_owned()))?;
        offsets.push(end);
        valid.push(value.is_some());
    }
    let ids: StringArray = items.iter().map(|item| item.id.as_deref()).collect();
    let kinds: StringArray = items.iter().map(|item| item.kind.as_deref()).collect();
    let fingerprints = digests(items.iter().map(|item| item.fingerprint))?;
    let fields = Fields::from(vec![
        Field::new("id", DataType::Utf8, true),
        Field::new("type", DataType::Utf8, true),
        Field::new("fingerprint", DataType::FixedSizeBinary(32), true),
    ]);
    let structs = StructArray::try_new(
        fields,
        vec![Arc::new(ids), Arc::new(kinds), Arc::new(fingerprints)],
        None,
    )?;
    ListArray::try_new(
        Arc::new(Field::new("item", structs.data_type().clone(), false)),
        OffsetBuffer::new(ScalarBuffer::from(offsets)),
        Arc::new(structs),
        Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0),
    )
}

/// Reads the entries of a batch; `give` gets group, rollout, and what puts an entry into its ledger.
pub(in crate::archive) fn decode(
    batch: &RecordBatch,
    mut give: impl FnMut(
        &str,
        &str,
        &mut dyn FnMut(&mut Ledger) -> Result<(), Fault>,
    ) -> Result<(), Fault>,
) -> Result<(), Fault> {
    each(batch, |row, at| {
        let (group_id, rollout_id) = (row.text("group_id", at)?, row.text("rollout_id", at)?);
        give(group_id, rollout_id, &mut |ledger| put(row, at, ledger))
    })
}

fn put(row: &Columns<'_>, at: usize, ledger: &mut Ledger) -> Result<(), Fault> {
    let ordinal = row.number::<UInt32Type>("ordinal", at)? as usize;
    let call_id = row.text_or_null("call_id", at)?.map(CallId::from);
    let call = || call_id.clone().ok_or_else(|| "column call_id is null".to_owned());
    let before = match row.text("kind", at)? {
        "scope" => {
            ledger.terminal_call_id = call_id;
            ledger.failure_reason = row.text_or_null("reason", at)?.map(str::to_owned);
            ledger.capture_poisoned = row.flag("capture_poisoned", at)?.unwrap_or(false);
            ledger.receipt = row.text_or_null("receipt", at)?.map(str::to_owned);
            0
        }
        "attempted" => push(&mut ledger.attempted, call()?),
        "pending" => push(&mut ledger.pending, call()?),
        "failed" => {
            let reason = row.text("reason", at)?.to_owned();
            push(&mut ledger.failures, CaptureFailure { call_id: call()?, reason })
        }
        "committed" => push(&mut ledger.committed, committed(row, at, call()?)?),
        other => return Err(format!("{other:?} is no word of column kind")),
    };
    match before == ordinal {
        true => Ok(()),
        false => Err(format!("entry {ordinal} comes as number {before}")),
    }
}

/// Returns how many there were before.
fn push<T>(entries: &mut Vec<T>, entry: T) -> usize {
    entries.push(entry);
    entries.len() - 1
}

fn committed(row: &Columns<'_>, at: usize, call_id: CallId) -> Result<CommittedCall, Fault> {
    let word = |name: &str| Ok::<_, Fault>(row.text_or_null(name, at)?.map(str::to_owned));
    let completion = match row.flag("completion_recorded", at)? {
        Some(true) => {
            Completion::Recorded { status: word("status")?, finish_reason: word("finish_reason")? }
        }
        _ => Completion::Unrecorded,
    };
    Ok(CommittedCall {
        call_id,
        response_id: word("response_id")?,
        completion,
        output_items: items(row, at)?,
        output_fingerprint: row.digest("output_fingerprint", at)?,
        fingerprint_version: row.number::<UInt64Type>("fingerprint_version", at)?,
    })
}

fn items(row: &Columns<'_>, at: usize) -> Result<Option<Vec<OutputItem>>, Fault> {
    let Some(column) = row.get("output_items", at)? else { return Ok(None) };
    let read = || {
        let items = column.as_list_opt::<i32>()?.value(at);
        let items = items.as_struct_opt()?;
        let (ids, kinds) = (
            items.column_by_name("id")?.as_string_opt::<i32>()?,
            items.column_by_name("type")?.as_string_opt::<i32>()?,
        );
        let fingerprints = items.column_by_name("fingerprint")?.as_fixed_size_binary_opt()?;
        let text =
            |column: &StringArray, at| (!column.is_null(at)).then(|| column.value(at).to_owned());
        let item = |at| {
            let digest = (!fingerprints.is_null(at)).then(|| fingerprints.value(at));
            OutputItem {
                id: text(ids, at),
                kind: text(kinds, at),
                fingerprint: digest.and_then(Digest32::from_slice),
            }
        };
        Some((0..items.len()).map(item).collect())
    };
    let wrong = || format!("column output_items has the type {}", column.data_type());
    read().map(Some).ok_or_else(wrong)
}
