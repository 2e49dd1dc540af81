//! Staged records: one captured call with its token columns, as the worker staged it.

use super::columns::{Column, Floats, Ids, RawRecord};
use super::digest::EMPTY_EXTRAS_DIGEST;
use super::fields::{Fields, RecordError};
use crate::archive::{Call, Commitment, Mode, Origin, RawColumns};
use crate::finding::Code;
use crate::id::{CallId, CaptureKey, Digest32};

/// A staged call (`StagedCallRecord`, `spec/gym-wire.md` a.2; schema 3 names as in the seed).
#[derive(Clone, Debug, PartialEq)]
pub struct StagedRecord {
    /// 2 or 3; a byte of the call digest.
    pub schema_version: u64,
    /// Digest version.
    pub digest_version: u64,
    /// Extras digest version.
    pub extras_digest_version: u64,
    /// Capture scope: `rollout_id` in schema 2, `capture_key` in schema 3.
    pub scope: String,
    /// Earlier owner of a restored call (schema 3).
    pub source_capture_key: Option<String>,
    /// The call.
    pub model_call_id: String,
    /// Its parent.
    pub parent_call_id: Option<String>,
    /// Root or continuation.
    pub mode: Mode,
    /// Tokens before this delta.
    pub prev_len: u64,
    /// Tokens of this delta.
    pub delta_len: u64,
    /// Tokens up to the end of this delta.
    pub cum_len: u64,
    /// Weights that sampled the generation.
    pub weight_version: u64,
    /// Call digest.
    pub digest: Digest32,
    /// `[delta]`
    pub token_ids_delta: Vec<u64>,
    /// `[delta]`, 0.0 carry, 1.0 generation; the sign of zero is kept.
    pub token_mask_delta: Vec<f64>,
    /// `[delta]`, 0.0 on carry.
    pub generation_log_probs_delta: Vec<f64>,
    /// Digest of the extras.
    pub extras_digest: Digest32,
    /// Chain hash.
    pub chain_hash: Digest32,
    /// Hash of all tokens from the root.
    pub cumulative_hash: Digest32,
    /// Verbatim JSON text of the extras; `None` = null.
    pub extras: Option<String>,
}

impl StagedRecord {
    /// Reads one line: JSON types, names and versions are checked, the truth of what it says is
    /// not, so that a changed record can be kept and then reported ([`StagedRecord::check`]).
    ///
    /// # Errors
    ///
    /// `unsupported_schema`, `unsupported_digest` or `unsupported_extras_digest` for another
    /// version, whatever else is wrong; `malformed_json`; `invalid_snapshot` for a token id
    /// outside `0..2^64`; `malformed_record` for every other fault of form.
    pub fn parse(line: &str) -> Result<StagedRecord, RecordError> {
        let (record, columns) = read(RawRecord::parse(line)?)?;
        Ok(StagedRecord {
            token_ids_delta: columns.token_ids.into_wide(),
            token_mask_delta: columns.token_mask.tail(0).collect(),
            generation_log_probs_delta: columns.logprobs.tail(0).collect(),
            ..record
        })
    }
}

/// Reads one line as the call that an archive keeps, its origin left open. It is
/// [`StagedRecord::parse`] without the wide columns, which most calls never need.
///
/// # Errors
///
/// As [`StagedRecord::parse`]; then `token_id_out_of_range` for a token id beyond 32 bits.
pub fn parse_call(line: &str) -> Result<Call, RecordError> {
    let (record, Columns { token_ids, token_mask, logprobs }) = read(RawRecord::parse(line)?)?;
    let token_ids = match token_ids {
        Ids::Narrow(ids) => ids,
        Ids::Wide(ids) => {
            let id = ids.iter().find(|&&id| u32::try_from(id).is_err()).unwrap_or(&u64::MAX);
            let message = format!("token id {id} does not fit 32 bits");
            return Err(RecordError::new(Code::TokenIdOutOfRange, message));
        }
    };
    let carry = token_mask.tail(0).take_while(|&mask| mask == 0.0).count();
    let plain = token_mask.len() == token_ids.len()
        && logprobs.len() == token_ids.len()
        && token_mask.rest.is_empty()
        && logprobs.zeros >= carry;
    Ok(Call {
        call_id: record.model_call_id.into(),
        capture_key: record.scope.into(),
        source_capture_key: record.source_capture_key.map(CaptureKey::from),
        parent_call_id: record.parent_call_id.map(CallId::from),
        mode: record.mode,
        prev_len: record.prev_len,
        delta_len: record.delta_len,
        cum_len: record.cum_len,
        weight_version: Some(record.weight_version),
        // A line is far shorter than 2^32 bytes, and so is its mask.
        carry_len: carry as u32,
        token_ids,
        generation_logprobs: logprobs.narrow_tail(carry),
        raw_columns: (!plain).then(|| RawColumns {
            token_mask: token_mask.tail(0).collect(),
            logprobs: logprobs.tail(0).collect(),
        }),
        commitment: Some(Commitment {
            schema_version: record.schema_version,
            digest_version: record.digest_version,
            extras_digest_version: record.extras_digest_version,
            digest: record.digest,
            extras_digest: record.extras_digest,
            chain_hash: record.chain_hash,
            cumulative_hash: record.cumulative_hash,
        }),
        entry_digest: None,
        media: None,
        tensors: Vec::new(),
        extras: record.extras,
        origin: Origin::default(),
    })
}

/// Columns as they were read.
struct Columns {
    token_ids: Ids,
    token_mask: Floats,
    logprobs: Floats,
}

/// A record without its columns, and these.
fn read(raw: RawRecord<'_>) -> Result<(StagedRecord, Columns), RecordError> {
    let mut fields = Fields::new(Code::MalformedRecord, raw.members);
    let head = fields.head()?;
    if let Some(error) = raw.fault {
        return Err(error);
    }
    let source_capture_key = match head.schema_version {
        3 => fields.optional_identifier("source_capture_key")?,
        _ => None,
    };
    let column = |key| fields.fault(key, "is missing");
    let columns = Columns {
        token_ids: raw.token_ids.ok_or_else(|| column("token_ids_delta"))?,
        token_mask: raw.token_mask.ok_or_else(|| column("token_mask_delta"))?,
        logprobs: raw.logprobs.ok_or_else(|| column("generation_log_probs_delta"))?,
    };
    let record = StagedRecord {
        schema_version: head.schema_version,
        digest_version: head.digest_version,
        extras_digest_version: head.extras_digest_version,
        scope: head.scope,
        source_capture_key,
        model_call_id: fields.identifier("model_call_id")?,
        parent_call_id: fields.optional_identifier("parent_call_id")?,
        mode: fields.mode(None)?,
        prev_len: fields.length("prev_len")?,
        delta_len: fields.length("delta_len")?,
        cum_len: fields.length("cum_len")?,
        weight_version: fields.length("weight_version")?,
        digest: fields.digest("digest")?,
        token_ids_delta: Vec::new(),
        token_mask_delta: Vec::new(),
        generation_log_probs_delta: Vec::new(),
        extras_digest: fields.digest_or("extras_digest", EMPTY_EXTRAS_DIGEST)?,
        chain_hash: fields.digest("chain_hash")?,
        cumulative_hash: fields.digest("cumulative_hash")?,
        extras: raw.extras.map(str::to_owned),
    };
    fields.finish()?;
    Ok((record, columns))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::json::{Dialect, Json};

    /// Items of a list: runs of what writers write, and every odd spelling.
    fn items(usual: &'static [&'static str]) -> impl Strategy<Value = String> {
        let odd = prop::sample::select(vec![
            "0.0",
            "1.0",
            "-0.0",
            "0",
            "1",
            "-0",
            "-1",
            "0.00",
            "1e0",
            "1E5",
            "1e-3",
            "1e+3",
            "2.5",
            "1.",
            ".5",
            "01",
            "00.0",
            "+1",
            "1e999",
            "NaN",
            "Infinity",
            "null",
            "true",
            "\"1\"",
            "[1]",
            "{}",
            "",
            "x",
            "12345678",
            "4294967295",
            "4294967296",
            "18446744073709551615",
            "18446744073709551616",
            "-0.1234567890123456789",
            "1e-400",
            "0.30000000000000004",
        ]);
        let run = (prop::sample::select(usual), 1..40_usize);
        let part = prop_oneof![
            6 => run.prop_map(|(item, count)| vec![item.to_owned(); count]),
            2 => odd.prop_map(|item| vec![item.to_owned()]),
            1 => any::<u32>().prop_map(|n| vec![n.to_string()]),
            1 => any::<f32>().prop_map(|x| vec![format!("{:?}", f64::from(x))]),
        ];
        let separators = prop::sample::select(vec![",", ",", ", ", " ,", ",\n", ",  "]);
        (prop::collection::vec(part, 0..5), separators)
            .prop_map(|(parts, separator)| parts.concat().join(separator))
    }

    fn line(ids: &str, mask: &str, logprobs: &str) -> String {
        let digest = "00".repeat(32);
        format!(
            "{{\"rollout_id\":\"r\",\"model_call_id\":\"c\",\"mode\":\"text\",\"prev_len\":0,\
             \"delta_len\":1,\"cum_len\":1,\"weight_version\":1,\"digest\":\"{digest}\",\
             \"chain_hash\":\"{digest}\",\"cumulative_hash\":\"{digest}\",\
             \"token_ids_delta\":[{ids}],\"generation_log_probs_delta\":[{logprobs}],\
             \"token_mask_delta\":[{mask}]}}"
        )
    }

    /// Columns by the general parser, item by item; `None` where an item has a wrong type.
    fn wide(line: &str) -> Option<(Vec<u64>, Vec<f64>, Vec<f64>)> {
        let json = Json::parse(line, Dialect::Strict).ok()?;
        let list = |key| json.get(key).and_then(Json::as_list).unwrap_or_default();
        let id = |item: &Json| match item {
            Json::Int(n) => u64::try_from(*n).ok(),
            _ => None,
        };
        let float = |item: &Json| match item {
            Json::Int(n) => Some(*n as f64),
            Json::BigInt(digits) => digits.parse().ok().filter(|x: &f64| x.is_finite()),
            Json::Float(x) => Some(*x),
            _ => None,
        };
        Some((
            list("token_ids_delta").iter().map(id).collect::<Option<_>>()?,
            list("token_mask_delta").iter().map(float).collect::<Option<_>>()?,
            list("generation_log_probs_delta").iter().map(float).collect::<Option<_>>()?,
        ))
    }

    fn bits(values: &[f64]) -> Vec<u64> {
        values.iter().map(|x| x.to_bits()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn columns_are_those_of_the_general_parser(
            ids in items(&["0", "7", "17", "151642", "9999999"]),
            mask in items(&["0.0", "1.0"]),
            logprobs in items(&["0.0", "-0.25", "-1.7703955173492432", "-4.4703e-08", "-12.5"]),
        ) {
            let line = line(&ids, &mask, &logprobs);
            let (record, call) = (StagedRecord::parse(&line), parse_call(&line));
            let Some((ids, mask, logprobs)) = wide(&line) else {
                prop_assert!(record.is_err());
                prop_assert_eq!(call.unwrap_err(), record.unwrap_err());
                return Ok(());
            };
            let record = record.unwrap();
            prop_assert_eq!(&record.token_ids_delta, &ids);
            prop_assert_eq!(bits(&record.token_mask_delta), bits(&mask));
            prop_assert_eq!(bits(&record.generation_log_probs_delta), bits(&logprobs));
            if ids.iter().any(|&id| id > u64::from(u32::MAX)) {
                prop_assert_eq!(call.unwrap_err().code, Code::TokenIdOutOfRange);
                return Ok(());
            }
            // What the archive keeps stands for the columns, bit for bit.
            let call = call.unwrap();
            prop_assert!(call.token_ids.iter().map(|&id| u64::from(id)).eq(ids.iter().copied()));
            let carry = mask.iter().take_while(|&&m| m == 0.0).count();
            prop_assert_eq!(call.carry_len as usize, carry);
            let generated: Vec<u32> =
                logprobs.iter().skip(carry).map(|&p| (p as f32).to_bits()).collect();
            let kept: Vec<u32> = call.generation_logprobs.iter().map(|p| p.to_bits()).collect();
            prop_assert_eq!(kept, generated);
            let column = |carried: f64, generated: f64| -> Vec<u64> {
                let value = |at| if at < carry { carried } else { generated };
                (0..ids.len()).map(|at| value(at).to_bits()).collect()
            };
            let plain = bits(&mask) == column(0.0, 1.0)
                && logprobs.len() == ids.len()
                && bits(&logprobs[..carry]) == column(0.0, 1.0)[..carry];
            prop_assert_eq!(call.raw_columns.is_none(), plain);
            if let Some(raw) = call.raw_columns {
                prop_assert_eq!(bits(&raw.token_mask), bits(&mask));
                prop_assert_eq!(bits(&raw.logprobs), bits(&logprobs));
            }
        }
    }
}
