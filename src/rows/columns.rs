//! Rows as Arrow columns and back; floats keep every bit.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, FixedSizeBinaryArray,
    LargeListArray, ListArray, PrimitiveArray, RecordBatch, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Field, Fields, Float32Type, Float64Type, Int32Type, Schema, SchemaRef, UInt8Type,
    UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;

use super::model::{MediaRef, Row, RowRoutes, Span};
use crate::columnar::{Column, NumberLists, RowGroup};
use crate::id::{CallId, Digest32, GroupId, RolloutId};

/// Columns of a rows file, in order.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        field("row_id", DataType::Utf8),
        field("group_id", DataType::Utf8),
        nullable("rollout_id", DataType::Utf8),
        nullable("slot", DataType::UInt32),
        field("group_size", DataType::UInt32),
        field("segment", DataType::UInt32),
        field("segment_count", DataType::UInt32),
        field("is_execution_padding", DataType::Boolean),
        field("uses_borrowed_input", DataType::Boolean),
        field("input_ids", list_of(DataType::UInt32)),
        field("loss_mask", list_of(DataType::UInt8)),
        field("generation_logprobs", list_of(DataType::Float32)),
        field("spans", list_of(DataType::Struct(span_fields()))),
        nullable("reward", DataType::Float64),
        field("advantage", DataType::Float64),
        field("sample_mask", DataType::Float32),
        field("truncated", DataType::Boolean),
        nullable("mask_reason", DataType::Utf8),
        nullable("routes", DataType::Struct(route_fields())),
        field("media", list_of(DataType::Struct(media_fields()))),
    ]))
}

fn field(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, false)
}

fn nullable(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

fn item(kind: DataType) -> Arc<Field> {
    Arc::new(field("item", kind))
}

fn list_of(kind: DataType) -> DataType {
    DataType::List(item(kind))
}

fn span_fields() -> Fields {
    Fields::from(vec![
        field("call", DataType::Utf8),
        field("start", DataType::UInt32),
        field("gen_start", DataType::UInt32),
        field("end", DataType::UInt32),
        field("owned", DataType::Boolean),
        nullable("weight_version", DataType::UInt64),
    ])
}

fn route_fields() -> Fields {
    Fields::from(vec![
        field("layers", DataType::UInt32),
        field("topk", DataType::UInt32),
        // One entry per token, layer and expert: more than 32-bit offsets hold.
        field("experts", DataType::LargeList(item(DataType::Int32))),
    ])
}

fn media_fields() -> Fields {
    Fields::from(vec![
        field("call", DataType::Utf8),
        field("digest", DataType::FixedSizeBinary(32)),
    ])
}

/// Turns rows into a row group.
pub fn row_group(rows: &[Row]) -> Result<RowGroup<'_>, ArrowError> {
    let strings = |f: fn(&Row) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.iter().map(f)))
    };
    let options = |f: fn(&Row) -> Option<&str>| -> ArrayRef {
        Arc::new(StringArray::from_iter(rows.iter().map(f)))
    };
    let numbers = |f: fn(&Row) -> u32| -> ArrayRef {
        Arc::new(PrimitiveArray::<UInt32Type>::from_iter_values(rows.iter().map(f)))
    };
    let flags = |f: fn(&Row) -> bool| -> ArrayRef {
        Arc::new(BooleanArray::from_iter(rows.iter().map(|r| Some(f(r)))))
    };
    let input_ids = rows.iter().map(|r| r.input_ids.as_slice()).collect();
    let loss_mask = rows.iter().map(|r| r.loss_mask.as_slice()).collect();
    let logprobs = rows.iter().map(|r| r.generation_logprobs.as_slice()).collect();
    let before: [ArrayRef; 9] = [
        strings(|r| &r.row_id),
        strings(|r| r.group_id.as_str()),
        options(|r| r.rollout_id.as_ref().map(RolloutId::as_str)),
        Arc::new(PrimitiveArray::<UInt32Type>::from_iter(rows.iter().map(|r| r.slot))),
        numbers(|r| r.group_size),
        numbers(|r| r.segment),
        numbers(|r| r.segment_count),
        flags(|r| r.is_execution_padding),
        flags(|r| r.uses_borrowed_input),
    ];
    let lists =
        [NumberLists::U32(input_ids), NumberLists::U8(loss_mask), NumberLists::F32(logprobs)];
    let after: [ArrayRef; 8] = [
        spans(rows)?,
        Arc::new(PrimitiveArray::<Float64Type>::from_iter(rows.iter().map(|r| r.reward))),
        Arc::new(PrimitiveArray::<Float64Type>::from_iter_values(rows.iter().map(|r| r.advantage))),
        Arc::new(PrimitiveArray::<Float32Type>::from_iter_values(
            rows.iter().map(|r| r.sample_mask),
        )),
        flags(|r| r.truncated),
        options(|r| r.mask_reason.as_deref()),
        routes(rows)?,
        media(rows)?,
    ];
    let columns = before
        .into_iter()
        .map(Column::Array)
        .chain(lists.map(Column::Lists))
        .chain(after.map(Column::Array));
    Ok(RowGroup::new(schema(), columns.collect()))
}

fn spans(rows: &[Row]) -> Result<ArrayRef, ArrowError> {
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|r| r.spans.len()));
    let all = || rows.iter().flat_map(|r| &r.spans);
    let numbers = |f: fn(&Span) -> u32| -> ArrayRef {
        Arc::new(PrimitiveArray::<UInt32Type>::from_iter_values(all().map(f)))
    };
    let values = StructArray::try_new(
        span_fields(),
        vec![
            Arc::new(StringArray::from_iter_values(all().map(|s| s.call.as_str()))),
            numbers(|s| s.start),
            numbers(|s| s.gen_start),
            numbers(|s| s.end),
            Arc::new(BooleanArray::from_iter(all().map(|s| Some(s.owned)))),
            Arc::new(PrimitiveArray::<UInt64Type>::from_iter(all().map(|s| s.weight_version))),
        ],
        None,
    )?;
    let list =
        ListArray::try_new(item(DataType::Struct(span_fields())), offsets, Arc::new(values), None)?;
    Ok(Arc::new(list))
}

fn routes(rows: &[Row]) -> Result<ArrayRef, ArrowError> {
    let experts = |r: &Row| r.routes.as_ref().map_or(0, |x| x.experts.len());
    let offsets = OffsetBuffer::<i64>::from_lengths(rows.iter().map(experts));
    let all = rows.iter().filter_map(|r| r.routes.as_ref());
    let values: PrimitiveArray<Int32Type> =
        PrimitiveArray::from_iter_values(all.flat_map(|x| x.experts.iter().copied()));
    let numbers = |f: fn(&RowRoutes) -> u32| -> ArrayRef {
        let values = rows.iter().map(|r| r.routes.as_ref().map_or(0, f));
        Arc::new(PrimitiveArray::<UInt32Type>::from_iter_values(values))
    };
    let list = LargeListArray::try_new(item(DataType::Int32), offsets, Arc::new(values), None)?;
    let present = NullBuffer::from_iter(rows.iter().map(|r| r.routes.is_some()));
    let columns: Vec<ArrayRef> = vec![numbers(|x| x.layers), numbers(|x| x.topk), Arc::new(list)];
    Ok(Arc::new(StructArray::try_new(route_fields(), columns, Some(present))?))
}

fn media(rows: &[Row]) -> Result<ArrayRef, ArrowError> {
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|r| r.media.len()));
    let all = || rows.iter().flat_map(|r| &r.media);
    let digests = all().map(|media| Some(media.digest.0));
    let digests = FixedSizeBinaryArray::try_from_sparse_iter_with_size(digests, 32)?;
    let calls = StringArray::from_iter_values(all().map(|media| media.call.as_str()));
    let columns: Vec<ArrayRef> = vec![Arc::new(calls), Arc::new(digests)];
    let values = StructArray::try_new(media_fields(), columns, None)?;
    let item = item(DataType::Struct(media_fields()));
    Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(values), None)?))
}

/// Reads rows back from a batch of [`schema`], appending them to `rows`.
///
/// # Errors
/// When the batch has other columns.
pub fn from_batch(batch: &RecordBatch, rows: &mut Vec<Row>) -> Result<(), ArrowError> {
    let expected = schema();
    let found = batch.schema();
    if found.fields() != expected.fields() {
        let differs = expected.fields().iter().enumerate().find_map(|(i, field)| {
            (found.fields().get(i) != Some(field)).then(|| field.name().clone())
        });
        return Err(ArrowError::SchemaError(match differs {
            Some(name) => format!("column {name} is missing, elsewhere, or of another type"),
            None => "there are columns that a rows file does not have".to_owned(),
        }));
    }
    let [
        row_id,
        group_id,
        rollout_id,
        slot,
        group_size,
        segment,
        segment_count,
        is_execution_padding,
        uses_borrowed_input,
        input_ids,
        loss_mask,
        generation_logprobs,
        spans,
        reward,
        advantage,
        sample_mask,
        truncated,
        mask_reason,
        routes,
        media,
    ] = batch.columns()
    else {
        return Err(ArrowError::SchemaError("a rows file has 20 columns".to_owned()));
    };
    for i in 0..batch.num_rows() {
        rows.push(Row {
            row_id: text(row_id, i).unwrap_or_default().to_owned(),
            group_id: GroupId::from(text(group_id, i).unwrap_or_default()),
            rollout_id: text(rollout_id, i).map(RolloutId::from),
            slot: number::<UInt32Type>(slot, i),
            group_size: number::<UInt32Type>(group_size, i).unwrap_or_default(),
            segment: number::<UInt32Type>(segment, i).unwrap_or_default(),
            segment_count: number::<UInt32Type>(segment_count, i).unwrap_or_default(),
            is_execution_padding: is_execution_padding.as_boolean().value(i),
            uses_borrowed_input: uses_borrowed_input.as_boolean().value(i),
            input_ids: values::<UInt32Type>(input_ids, i),
            loss_mask: values::<UInt8Type>(loss_mask, i),
            generation_logprobs: values::<Float32Type>(generation_logprobs, i),
            spans: span_values(&spans.as_list::<i32>().value(i)),
            reward: number::<Float64Type>(reward, i),
            advantage: number::<Float64Type>(advantage, i).unwrap_or_default(),
            sample_mask: number::<Float32Type>(sample_mask, i).unwrap_or_default(),
            truncated: truncated.as_boolean().value(i),
            mask_reason: text(mask_reason, i).map(str::to_owned),
            routes: route_values(routes.as_struct(), i),
            media: media_values(&media.as_list::<i32>().value(i)),
        });
    }
    Ok(())
}

fn text(column: &ArrayRef, i: usize) -> Option<&str> {
    let column = column.as_string::<i32>();
    column.is_valid(i).then(|| column.value(i))
}

fn number<T: ArrowPrimitiveType>(column: &ArrayRef, i: usize) -> Option<T::Native> {
    let column = column.as_primitive::<T>();
    column.is_valid(i).then(|| column.value(i))
}

fn values<T: ArrowPrimitiveType>(column: &ArrayRef, i: usize) -> Vec<T::Native> {
    column.as_list::<i32>().value(i).as_primitive::<T>().values().to_vec()
}

fn span_values(spans: &ArrayRef) -> Vec<Span> {
    let spans = spans.as_struct();
    let [call, start, gen_start, end, owned, weight_version] = spans.columns() else {
        return Vec::new();
    };
    let span = |i| Span {
        call: CallId::from(text(call, i).unwrap_or_default()),
        start: number::<UInt32Type>(start, i).unwrap_or_default(),
        gen_start: number::<UInt32Type>(gen_start, i).unwrap_or_default(),
        end: number::<UInt32Type>(end, i).unwrap_or_default(),
        owned: owned.as_boolean().value(i),
        weight_version: number::<UInt64Type>(weight_version, i),
    };
    (0..spans.len()).map(span).collect()
}

fn route_values(routes: &StructArray, i: usize) -> Option<RowRoutes> {
    let [layers, topk, experts] = routes.columns() else { return None };
    routes.is_valid(i).then(|| RowRoutes {
        layers: number::<UInt32Type>(layers, i).unwrap_or_default(),
        topk: number::<UInt32Type>(topk, i).unwrap_or_default(),
        experts: experts.as_list::<i64>().value(i).as_primitive::<Int32Type>().values().to_vec(),
    })
}

fn media_values(media: &ArrayRef) -> Vec<MediaRef> {
    let media = media.as_struct();
    let [call, digest] = media.columns() else { return Vec::new() };
    let digest = digest.as_fixed_size_binary();
    let piece = |i| {
        let digest = Digest32::from_slice(digest.value(i))?;
        Some(MediaRef { call: CallId::from(text(call, i).unwrap_or_default()), digest })
    };
    (0..media.len()).filter_map(piece).collect()
}
