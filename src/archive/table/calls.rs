//! `calls/`: one row per captured call.

use arrow::datatypes::{Float32Type, Float64Type, UInt32Type, UInt64Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::data_type::{FloatType, Int32Type};

use super::columns::{Columns, Draft};
use super::lists::ListReader;
use super::{Fault, Owner, each, media};
use crate::archive::routes::{self, Extras};
use crate::archive::{
    Call, Commitment, MediaFlags, MediaTensor, Mode, Origin, RawColumns, TensorContent,
};
use crate::columnar::{NumberLists, RowGroup};
use crate::id::Digest32;

/// A call with its place in the capture order of its rollout.
#[derive(Clone, Copy, Debug)]
pub(in crate::archive) struct CallRow<'a> {
    pub owner: Owner<'a>,
    pub index: u32,
    pub call: &'a Call,
}

/// The column of tensors.
const TENSORS: &str = "media_tensors";

/// Bytes of a row, about.
pub(in crate::archive) fn size(row: &CallRow<'_>) -> usize {
    let call = row.call;
    let raw = call.raw_columns.as_ref().map_or(0, |raw| raw.token_mask.len() + raw.logprobs.len());
    512 + 4 * (call.token_ids.len() + call.generation_logprobs.len())
        + 8 * raw
        + call.extras.as_ref().map_or(0, String::len)
        + call.call_id.as_str().len()
        + call.capture_key.as_str().len()
        + call.tensors.iter().map(tensor_size).sum::<usize>()
}

fn tensor_size(tensor: &MediaTensor) -> usize {
    let data = match &tensor.content {
        TensorContent::Inline(data) => data.len(),
        TensorContent::Pieces(pieces) => 40 * pieces.len(),
    };
    64 + tensor.field.len() + 8 * tensor.shape.len() + data
}

pub(in crate::archive) fn encode<'a>(rows: &[CallRow<'a>]) -> Result<RowGroup<'a>, ArrowError> {
    let calls = || rows.iter().map(|row| row.call);
    let signed = || calls().map(|call| call.commitment);
    let version = |read: fn(Commitment) -> u64| signed().map(move |c| c.map(read));
    let digest = |read: fn(Commitment) -> Digest32| signed().map(move |c| c.map(read));
    let flags = || calls().map(|call| call.media);
    let raw = || calls().map(|call| call.raw_columns.as_ref());
    let extras: Vec<Option<Extras>> =
        calls().map(|call| call.extras.as_deref().map(routes::take)).collect();
    let extras = || extras.iter().map(Option::as_ref);
    let draft = Draft::default()
        .text("group_id", rows.iter().map(|row| row.owner.group.group_id.as_str()))
        .text("rollout_id", rows.iter().map(|row| row.owner.rollout.rollout_id.as_str()))
        .number::<UInt32Type>("call_index", rows.iter().map(|row| row.index))
        .text("call_id", calls().map(|c| c.call_id.as_str()))
        .text("capture_key", calls().map(|c| c.capture_key.as_str()))
        .text_or_null(
            "source_capture_key",
            calls().map(|c| c.source_capture_key.as_ref().map(|key| key.as_str())),
        )
        .text_or_null(
            "parent_call_id",
            calls().map(|c| c.parent_call_id.as_ref().map(|id| id.as_str())),
        )
        .text("mode", calls().map(|c| c.mode.as_str()))
        .number::<UInt64Type>("prev_len", calls().map(|c| c.prev_len))
        .number::<UInt64Type>("delta_len", calls().map(|c| c.delta_len))
        .number::<UInt64Type>("cum_len", calls().map(|c| c.cum_len))
        .number_or_null::<UInt64Type>("weight_version", calls().map(|c| c.weight_version))
        .lists("token_ids", NumberLists::U32(calls().map(|c| c.token_ids.as_slice()).collect()))
        .number::<UInt32Type>("carry_len", calls().map(|c| c.carry_len))
        .lists(
            "generation_logprobs",
            NumberLists::F32(calls().map(|c| c.generation_logprobs.as_slice()).collect()),
        )
        .lists_or_null::<Float64Type>(
            "raw_token_mask",
            raw().map(|raw| raw.map(|raw| &raw.token_mask[..])),
        )
        .lists_or_null::<Float64Type>(
            "raw_logprobs",
            raw().map(|raw| raw.map(|raw| &raw.logprobs[..])),
        )
        .number_or_null::<UInt64Type>("schema_version", version(|c| c.schema_version))
        .number_or_null::<UInt64Type>("digest_version", version(|c| c.digest_version))
        .number_or_null::<UInt64Type>("extras_digest_version", version(|c| c.extras_digest_version))
        .digest("digest", digest(|c| c.digest))?
        .digest("extras_digest", digest(|c| c.extras_digest))?
        .digest("chain_hash", digest(|c| c.chain_hash))?
        .digest("cumulative_hash", digest(|c| c.cumulative_hash))?
        .digest("entry_digest", calls().map(|c| c.entry_digest))?
        .long_text("extras", extras().map(|e| e.map(|e| e.text.as_str())))
        .bytes("routes", extras().map(|e| e.and_then(|e| e.routes.as_deref())))
        .number_or_null::<UInt64Type>("routes_at", extras().map(|e| e.and_then(|e| e.at)))
        .flag("media_present", flags().map(|m| m.map(|m| m.present)))
        .flag("media_has_frames", flags().map(|m| m.map(|m| m.has_frames)))
        .digest("media_metadata_digest", flags().map(|m| m.map(|m| m.metadata_digest)))?
        .column(TENSORS, true, media::column(calls().map(|c| c.tensors.as_slice()))?);
    Ok(draft.finish())
}

/// The lists of a row group's calls.
pub(in crate::archive) struct Lists {
    token_ids: ListReader<Int32Type>,
    generation_logprobs: ListReader<FloatType>,
}

impl Lists {
    /// Their columns, which a batch for [`decode`] need not have.
    pub const COLUMNS: [&str; 2] = ["token_ids", "generation_logprobs"];

    /// Opens them for row group `group`.
    pub fn open(
        bytes: &Bytes,
        metadata: &ArrowReaderMetadata,
        group: usize,
    ) -> Result<Self, Fault> {
        let [ids, logprobs] = Self::COLUMNS;
        Ok(Self {
            token_ids: ListReader::open::<UInt32Type>(bytes, metadata, group, ids)?,
            generation_logprobs: ListReader::open::<Float32Type>(bytes, metadata, group, logprobs)?,
        })
    }

    /// Reads those of the next `rows` calls.
    pub fn read(&mut self, rows: usize) -> Result<(), Fault> {
        self.token_ids.read(rows)?;
        self.generation_logprobs.read(rows)
    }
}

/// A call without its origin, with its rollout and place.
pub(in crate::archive) struct Numbered<'a> {
    pub group_id: &'a str,
    pub rollout_id: &'a str,
    pub index: u32,
    pub call: Call,
}

/// Reads the calls of a batch, whose lists were read last.
pub(in crate::archive) fn decode(
    batch: &RecordBatch,
    lists: &Lists,
    mut give: impl FnMut(Numbered<'_>),
) -> Result<(), Fault> {
    each(batch, |row, at| {
        give(Numbered {
            group_id: row.text("group_id", at)?,
            rollout_id: row.text("rollout_id", at)?,
            index: row.number::<UInt32Type>("call_index", at)?,
            call: call(row, lists, at)?,
        });
        Ok(())
    })
}

/// Columns that [`ids`] reads.
pub(in crate::archive) const IDS: [&str; 2] = ["rollout_id", "call_id"];

/// Rollout and identity of the calls of a batch.
pub(in crate::archive) fn ids(
    batch: &RecordBatch,
    mut give: impl FnMut(&str, &str),
) -> Result<(), Fault> {
    each(batch, |row, at| {
        give(row.text("rollout_id", at)?, row.text("call_id", at)?);
        Ok(())
    })
}

fn call(row: &Columns<'_>, lists: &Lists, at: usize) -> Result<Call, Fault> {
    let missing = || "a list is missing".to_owned();
    let token_ids = lists.token_ids.row(at).ok_or_else(missing)?;
    // Parquet keeps unsigned numbers under the signed type of their width.
    let token_ids: Vec<u32> = token_ids.iter().map(|&id| id as u32).collect();
    let generation_logprobs = lists.generation_logprobs.row(at).ok_or_else(missing)?.to_vec();
    let raw_columns = match (
        row.list::<Float64Type>("raw_token_mask", at)?,
        row.list::<Float64Type>("raw_logprobs", at)?,
    ) {
        (Some(token_mask), Some(logprobs)) => Some(RawColumns { token_mask, logprobs }),
        (None, None) => None,
        _ => return Err("only one of raw_token_mask and raw_logprobs is there".to_owned()),
    };
    let carry_len = row.number::<UInt32Type>("carry_len", at)?;
    if raw_columns.is_none() && carry_len as usize > token_ids.len() {
        return Err(format!("carry_len {carry_len} is more than {} tokens", token_ids.len()));
    }
    let extras = match row.text_or_null("extras", at)? {
        None => None,
        Some(text) => {
            let parts = Extras {
                text: text.to_owned(),
                routes: row.bytes("routes", at)?.map(<[u8]>::to_vec),
                at: row.number_or_null::<UInt64Type>("routes_at", at)?,
            };
            Some(routes::put_back(parts).ok_or("routes_at is no place in extras")?)
        }
    };
    Ok(Call {
        call_id: row.text("call_id", at)?.into(),
        capture_key: row.text("capture_key", at)?.into(),
        source_capture_key: row.text_or_null("source_capture_key", at)?.map(Into::into),
        parent_call_id: row.text_or_null("parent_call_id", at)?.map(Into::into),
        mode: match row.text("mode", at)? {
            "text" => Mode::Text,
            "token_in" => Mode::TokenIn,
            other => return Err(format!("{other:?} is no word of column mode")),
        },
        prev_len: row.number::<UInt64Type>("prev_len", at)?,
        delta_len: row.number::<UInt64Type>("delta_len", at)?,
        cum_len: row.number::<UInt64Type>("cum_len", at)?,
        weight_version: row.number_or_null::<UInt64Type>("weight_version", at)?,
        token_ids,
        carry_len,
        generation_logprobs,
        raw_columns,
        commitment: commitment(row, at)?,
        entry_digest: row.digest("entry_digest", at)?,
        extras,
        media: flags(row, at)?,
        tensors: media::tensors(row, TENSORS, at)?,
        origin: Origin::default(),
    })
}

/// All of it or nothing.
fn flags(row: &Columns<'_>, at: usize) -> Result<Option<MediaFlags>, Fault> {
    match (
        row.flag("media_present", at)?,
        row.flag("media_has_frames", at)?,
        row.digest("media_metadata_digest", at)?,
    ) {
        (Some(present), Some(has_frames), Some(metadata_digest)) => {
            Ok(Some(MediaFlags { present, has_frames, metadata_digest }))
        }
        (None, None, None) => Ok(None),
        _ => Err("only some of the media columns are there".to_owned()),
    }
}

/// All of it or nothing.
fn commitment(row: &Columns<'_>, at: usize) -> Result<Option<Commitment>, Fault> {
    let Some(schema_version) = row.number_or_null::<UInt64Type>("schema_version", at)? else {
        return Ok(None);
    };
    let digest = |name: &str| {
        row.digest(name, at)?.ok_or_else(|| format!("column {name} is null in a signed record"))
    };
    Ok(Some(Commitment {
        schema_version,
        digest_version: row.number::<UInt64Type>("digest_version", at)?,
        extras_digest_version: row.number::<UInt64Type>("extras_digest_version", at)?,
        digest: digest("digest")?,
        extras_digest: digest("extras_digest")?,
        chain_hash: digest("chain_hash")?,
        cumulative_hash: digest("cumulative_hash")?,
    }))
}
