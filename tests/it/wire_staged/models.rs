//! `models/models.json`: what the package's models accept and refuse.

use forestctl::finding::Code;
use forestctl::wire::{CallRecord, Receipt, RecordError, RolloutManifest, StagedRecord};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::read;

pub const COVERED: [&str; 6] = [
    "StagedCallBaseSnapshot",
    "StagedCallRecord",
    "CallRecord",
    "ManifestFailure",
    "RolloutManifest",
    "RolloutReceipt",
];

#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    /// Verbatim, so that integers beyond 64 bits stay what they are.
    pub input: Box<RawValue>,
    pub valid: bool,
    #[serde(default)]
    errors: Vec<Value>,
}

impl Case {
    /// Message of a model rule, if one is what refuses the input.
    pub fn rule(&self) -> Option<&str> {
        self.errors.first()?["msg"].as_str()?.strip_prefix("Value error, ")
    }

    /// Last part of the first error's place.
    pub fn field(&self) -> Option<&str> {
        self.errors.first()?["loc"].as_array()?.iter().rev().find_map(Value::as_str)
    }
}

pub fn cases(model: &str, count: usize) -> Vec<Case> {
    let all: std::collections::BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(&read("gym-0.7/models/models.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(all[model].get()).unwrap();
    assert_eq!(cases.len(), count, "{model}");
    cases
}

/// Cases that differ on purpose: lengths and versions beyond 64 bits have no digest
/// (`spec/gym-wire.md` a.0), so they are refused by name.
const REFUSED: [&str; 1] = ["weight_beyond_u64_accepted"];

/// `parse` judges the form, `check` the rules; together they are the model. Where a rule
/// refuses, its message is the package's; where a field does, the field is named.
pub fn agree(
    model: &str,
    count: usize,
    parse_and_check: impl Fn(&str) -> (Result<(), RecordError>, Result<(), RecordError>),
) {
    for case in cases(model, count) {
        let name = format!("{model}/{}", case.name);
        let (parsed, checked) = parse_and_check(case.input.get());
        if REFUSED.contains(&case.name.as_str()) {
            assert!(case.valid && parsed.unwrap_err().message.contains("18446744073709551615"));
            continue;
        }
        if case.valid {
            assert_eq!((parsed, checked), (Ok(()), Ok(())), "{name}");
        } else if let Some(rule) = case.rule() {
            assert_eq!(parsed, Ok(()), "{name}: rules are not for the parser");
            assert_eq!(checked.unwrap_err().message, rule, "{name}");
        } else {
            let error = parsed.unwrap_err();
            let field = error.field.as_deref().unwrap_or_default();
            let found = field.rsplit('.').next().unwrap_or_default();
            let found = found.split('[').next().unwrap_or_default();
            let expected = match case.errors[0]["loc"].as_array().unwrap().as_slice() {
                // An item of a list: the message counts it.
                [.., list, item] if item.as_str().is_some_and(|i| i.parse::<u32>().is_ok()) => {
                    list.as_str().unwrap()
                }
                _ => case.field().unwrap(),
            };
            assert_eq!(found, expected, "{name}: {error}");
        }
    }
}

#[test]
fn staged_records() {
    agree("StagedCallRecord", 6, |line| match StagedRecord::parse(line) {
        Ok(record) => (Ok(()), record.check()),
        Err(e) => (Err(e), Ok(())),
    });
}

#[test]
fn base_snapshots() {
    agree("StagedCallBaseSnapshot", 22, |line| match StagedRecord::parse(line) {
        // The base snapshot is a record without extras; nothing of it travels in files.
        Ok(record) if record.extras.is_some() || line.contains("\"extras\":") => {
            let field = Some("extras".to_owned());
            let message = "the base snapshot has none".to_owned();
            (Err(RecordError { code: Code::MalformedRecord, field, message }), Ok(()))
        }
        Ok(record) => (Ok(()), record.check_base()),
        Err(e) => (Err(e), Ok(())),
    });
}

/// Masks are judged before the lengths of the columns, unlike in the digest's own arguments.
#[test]
fn mask_rules_come_before_lengths() {
    for case in cases("StagedCallBaseSnapshot", 22) {
        if ["mask_half", "carry_lp"].contains(&case.name.as_str()) {
            let mut record = StagedRecord::parse(case.input.get()).unwrap();
            record.token_ids_delta.push(1);
            assert_eq!(record.check_base().unwrap_err().message, case.rule().unwrap());
        }
    }
}

#[test]
fn manifest_rows() {
    agree("CallRecord", 19, |text| match CallRecord::parse(text) {
        Ok(row) => (Ok(()), row.check()),
        Err(e) => (Err(e), Ok(())),
    });
}

#[test]
fn manifests() {
    let read = |text: &str| match RolloutManifest::parse(text) {
        Ok(manifest) => (Ok(()), manifest.check()),
        Err(e) => (Err(e), Ok(())),
    };
    agree("RolloutManifest", 3, read);
    agree("ManifestFailure", 2, |text| {
        let failure: Value = serde_json::from_str(text).unwrap();
        read(&json!({"rollout_id": "r", "failures": [failure]}).to_string())
    });
}

#[test]
fn receipts() {
    agree("RolloutReceipt", 23, |text| match Receipt::parse(text) {
        Ok(receipt) => (Ok(()), receipt.check()),
        Err(e) => (Err(e), Ok(())),
    });
    // The lax forms read as what pydantic reads.
    for case in cases("RolloutReceipt", 23) {
        let expected = match case.name.as_str() {
            "reward_int" | "reward_bool" => Some(1.0),
            "reward_str" => {
                let input: Value = serde_json::from_str(case.input.get()).unwrap();
                Some(input["reward"].as_str().unwrap().parse().unwrap())
            }
            "reward_null" => None,
            _ => continue,
        };
        assert_eq!(Receipt::parse(case.input.get()).unwrap().reward, expected, "{}", case.name);
    }
}
