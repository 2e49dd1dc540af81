//! Token columns of a staged record, read straight from the text.
//!
//! A record is mostly three long arrays of numbers, so these do not pass through [`Json`]
//! values; the common spellings (`17`, `0.0`, `1.0`) have a path of their own, and every other
//! spelling is left to the general parser.

use std::collections::BTreeMap;

use super::fields::{self, RecordError};
use super::json::{Dialect, Json, JsonError, Parser};
use crate::finding::Code;

/// A staged record's line, taken apart: three columns, the extras as text, the rest as values.
#[derive(Default)]
pub(super) struct RawRecord<'a> {
    pub(super) token_ids: Option<Vec<u64>>,
    pub(super) token_mask: Option<Vec<f64>>,
    pub(super) logprobs: Option<Vec<f64>>,
    pub(super) extras: Option<&'a str>,
    pub(super) members: BTreeMap<String, Json>,
    /// First column or extras of a wrong type; reported only if the versions are readable.
    pub(super) fault: Option<RecordError>,
}

impl<'a> RawRecord<'a> {
    /// Reads a whole line. Of duplicate keys the last wins.
    pub(super) fn parse(line: &'a str) -> Result<Self, RecordError> {
        let mut reader = Reader { parser: Parser::new(line, Dialect::Strict) };
        let mut record = RawRecord::default();
        reader.object(|reader, key| {
            let start = reader.parser.at;
            let read = match key {
                "token_ids_delta" => reader.token_ids().map(|ids| record.token_ids = Some(ids)),
                "token_mask_delta" => reader.floats().map(|xs| record.token_mask = Some(xs)),
                "generation_log_probs_delta" => {
                    reader.floats().map(|xs| record.logprobs = Some(xs))
                }
                "extras" => reader.extras().map(|text| record.extras = text),
                _ => {
                    let value = reader.value()?;
                    record.members.insert(key.to_owned(), value);
                    Ok(())
                }
            };
            if let Err(fault) = read {
                reader.parser.at = start;
                reader.value()?;
                record.fault.get_or_insert(fault.within(key));
            }
            Ok(())
        })?;
        Ok(record)
    }
}

struct Reader<'a> {
    parser: Parser<'a>,
}

impl<'a> Reader<'a> {
    fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &str) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        self.parser.space();
        if !self.parser.word("{") {
            let found = self.value()?;
            return Err(fields::expected(Code::MalformedRecord, "an object", &found));
        }
        self.parser.space();
        if !self.parser.word("}") {
            loop {
                self.parser.space();
                if self.parser.bytes.get(self.parser.at) != Some(&b'"') {
                    return Err(self.syntax("expected a string key"));
                }
                let key = self.parser.string().map_err(|e| json(&e))?;
                self.parser.space();
                if !self.parser.word(":") {
                    return Err(self.syntax("expected ':'"));
                }
                member(self, &key)?;
                self.parser.space();
                if self.parser.word("}") {
                    break;
                }
                if !self.parser.word(",") {
                    return Err(self.syntax("expected ',' or '}'"));
                }
            }
        }
        self.parser.space();
        if self.parser.at == self.parser.bytes.len() {
            Ok(())
        } else {
            Err(self.syntax("trailing text"))
        }
    }

    fn syntax(&self, reason: &'static str) -> RecordError {
        json(&self.parser.error(reason))
    }

    fn value(&mut self) -> Result<Json, RecordError> {
        self.parser.value(1).map_err(|e| json(&e))
    }

    /// The text of an object; `None` for null.
    fn extras(&mut self) -> Result<Option<&'a str>, RecordError> {
        self.parser.space();
        let start = self.parser.at;
        let value = self.value()?;
        match value {
            Json::Null => Ok(None),
            Json::Dict(_) => Ok(Some(&self.parser.text[start..self.parser.at])),
            other => Err(fields::expected(Code::MalformedRecord, "an object or null", &other)),
        }
    }

    fn token_ids(&mut self) -> Result<Vec<u64>, RecordError> {
        self.list(Self::plain_integer, |value| match value {
            Json::Int(n) => u64::try_from(n).map_err(|_| token_id(&n)),
            Json::BigInt(digits) => Err(token_id(&format!("{} digits", digits.len()))),
            other => Err(fields::expected(Code::MalformedRecord, "an integer", &other)),
        })
    }

    fn floats(&mut self) -> Result<Vec<f64>, RecordError> {
        self.list(Self::zero_or_one, |value| fields::float(Code::MalformedRecord, value))
    }

    /// A list whose items `fast` reads if they are spelled plainly; `slow` judges any other item.
    fn list<T>(
        &mut self,
        fast: impl Fn(&mut Self) -> Option<T>,
        slow: impl Fn(Json) -> Result<T, RecordError>,
    ) -> Result<Vec<T>, RecordError> {
        self.parser.space();
        if !self.parser.word("[") {
            let found = self.value()?;
            return Err(fields::expected(Code::MalformedRecord, "a list of numbers", &found));
        }
        let mut items = Vec::new();
        self.parser.space();
        if self.parser.word("]") {
            return Ok(items);
        }
        loop {
            self.parser.space();
            let item = match fast(self) {
                Some(item) => item,
                None => {
                    let value = self.parser.value(2).map_err(|e| json(&e))?;
                    slow(value).map_err(|mut e| {
                        e.message = format!("item {}: {}", items.len(), e.message);
                        e
                    })?
                }
            };
            items.push(item);
            if self.parser.bytes.get(self.parser.at) == Some(&b',') {
                self.parser.at += 1;
                continue;
            }
            self.parser.space();
            if self.parser.word("]") {
                return Ok(items);
            }
            if !self.parser.word(",") {
                return Err(self.syntax("expected ',' or ']'"));
            }
        }
    }

    /// Up to 18 digits without a leading zero, when nothing but the item's end follows.
    fn plain_integer(&mut self) -> Option<u64> {
        let digits = &self.parser.bytes[self.parser.at..];
        let mut value = 0u64;
        let mut n = 0;
        while let Some(digit) = digits.get(n).filter(|b| b.is_ascii_digit()) {
            value = value * 10 + u64::from(digit - b'0');
            n += 1;
            if n > 18 {
                return None;
            }
        }
        let plain = n == 1 || (n > 1 && digits[0] != b'0');
        (plain && ends_item(digits.get(n))).then(|| {
            self.parser.at += n;
            value
        })
    }

    fn zero_or_one(&mut self) -> Option<f64> {
        let value = match self.parser.bytes[self.parser.at..] {
            [b'0', b'.', b'0', end, ..] if ends_item(Some(&end)) => 0.0,
            [b'1', b'.', b'0', end, ..] if ends_item(Some(&end)) => 1.0,
            _ => return None,
        };
        self.parser.at += 3;
        Some(value)
    }
}

fn ends_item(next: Option<&u8>) -> bool {
    matches!(next, Some(b',' | b']' | b' '))
}

/// In the words that the package has for it.
fn token_id(found: &impl std::fmt::Display) -> RecordError {
    let message = format!("token_id must be an unsigned 64-bit integer, got {found}");
    RecordError::new(Code::InvalidSnapshot, message)
}

fn json(error: &JsonError) -> RecordError {
    RecordError::json(Code::MalformedRecord, error)
}
