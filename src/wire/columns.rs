//! Token columns of a staged record, read straight from the text.
//!
//! A record is mostly three long arrays of numbers, so these do not pass through [`Value`]s. The
//! spellings of the usual writers (`17`, runs of `0.0` and `1.0`, `-0.25`) have a path of their
//! own, and every other spelling is left to the general parser.

use std::borrow::Cow;

use super::digits;
use super::fields::{self, RecordError};
use super::json::{Dialect, JsonError};
use super::parser::{Member, Parser, Value};
use super::runs;
use crate::finding::Code;

/// A staged record's line, taken apart: three columns, the extras as text, the rest as values.
#[derive(Default)]
pub(super) struct RawRecord<'a> {
    pub(super) token_ids: Option<Ids>,
    pub(super) token_mask: Option<Floats>,
    pub(super) logprobs: Option<Floats>,
    pub(super) extras: Option<&'a str>,
    pub(super) members: Vec<Member<'a>>,
    /// First column or extras of a wrong type; reported only if the versions are readable.
    pub(super) fault: Option<RecordError>,
}

/// A column while it is read.
pub(super) trait Column: Default {
    /// Takes items of the usual spelling, each with the comma behind it, from the start of
    /// `text`, and returns their bytes; any other item is left to [`Column::item`].
    fn run(&mut self, text: &str) -> usize;

    /// Takes the next item.
    fn item(&mut self, value: Value<'_>) -> Result<(), RecordError>;

    /// Items so far.
    fn len(&self) -> usize;
}

/// Bytes up to the end of a list of numbers.
fn list_bytes(text: &str) -> usize {
    memchr::memchr(b']', text.as_bytes()).unwrap_or(0)
}

/// Token ids, 32 bits wide where all of them fit.
#[derive(Debug, PartialEq)]
pub(super) enum Ids {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Ids {
    pub(super) fn into_wide(self) -> Vec<u64> {
        match self {
            Ids::Narrow(ids) => ids.into_iter().map(u64::from).collect(),
            Ids::Wide(ids) => ids,
        }
    }

    fn push(&mut self, id: u64) {
        match (&mut *self, u32::try_from(id)) {
            (Ids::Narrow(ids), Ok(id)) => ids.push(id),
            (Ids::Wide(ids), _) => ids.push(id),
            (Ids::Narrow(ids), Err(_)) => {
                let mut wide: Vec<u64> = ids.iter().copied().map(u64::from).collect();
                wide.push(id);
                *self = Ids::Wide(wide);
            }
        }
    }
}

impl Default for Ids {
    fn default() -> Self {
        Ids::Narrow(Vec::new())
    }
}

impl Column for Ids {
    fn run(&mut self, text: &str) -> usize {
        let Ids::Narrow(ids) = self else { return 0 };
        if ids.is_empty() {
            ids.reserve(list_bytes(text) / 5);
        }
        runs::integers(text.as_bytes(), ids)
    }

    fn item(&mut self, value: Value<'_>) -> Result<(), RecordError> {
        let id = match value {
            Value::Int(n) => u64::try_from(n).map_err(|_| token_id(&n)),
            Value::BigInt(digits) => Err(token_id(&format!("{} digits", digits.len()))),
            other => Err(fields::expected(Code::MalformedRecord, "an integer", &other)),
        };
        id.map(|id| self.push(id))
    }

    fn len(&self) -> usize {
        match self {
            Ids::Narrow(ids) => ids.len(),
            Ids::Wide(ids) => ids.len(),
        }
    }
}

/// Numbers: as many 0.0 as there are, then as many 1.0, then the rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Floats {
    pub(super) zeros: usize,
    pub(super) ones: usize,
    pub(super) rest: Vec<f64>,
}

impl Floats {
    /// The values from `start` on.
    pub(super) fn tail(&self, start: usize) -> impl Iterator<Item = f64> + '_ {
        let zeros = std::iter::repeat_n(0.0, self.zeros.saturating_sub(start));
        let start = start.saturating_sub(self.zeros);
        let ones = std::iter::repeat_n(1.0, self.ones.saturating_sub(start));
        let start = start.saturating_sub(self.ones);
        zeros.chain(ones).chain(self.rest.iter().copied().skip(start))
    }

    /// The same in 32 bits.
    pub(super) fn narrow_tail(&self, start: usize) -> Vec<f32> {
        match start.checked_sub(self.zeros + self.ones) {
            Some(start) => {
                self.rest.get(start..).unwrap_or_default().iter().map(|&x| x as f32).collect()
            }
            None => self.tail(start).map(|x| x as f32).collect(),
        }
    }

    fn push(&mut self, value: f64) {
        match self.rest.is_empty() {
            true if value.to_bits() == 0 && self.ones == 0 => self.zeros += 1,
            true if value == 1.0 => self.ones += 1,
            _ => self.rest.push(value),
        }
    }
}

impl Column for Floats {
    fn run(&mut self, text: &str) -> usize {
        let mut at = 0;
        if self.rest.is_empty() {
            if self.ones == 0 {
                let (items, bytes) = digits::repeated(text.as_bytes(), b"0.0");
                self.zeros += items;
                at = bytes;
            }
            let (items, bytes) = digits::repeated(&text.as_bytes()[at..], b"1.0");
            self.ones += items;
            at += bytes;
        }
        // The first other value ends the zeros and ones.
        while self.rest.is_empty() {
            let Some((value, bytes)) = text.get(at..).and_then(digits::decimal_item) else {
                return at;
            };
            self.push(value);
            at += bytes;
        }
        let text = text.get(at..).unwrap_or_default();
        if self.rest.len() == 1 {
            self.rest.reserve(list_bytes(text) / 16);
        }
        at + runs::decimals(text, &mut self.rest)
    }

    fn item(&mut self, value: Value<'_>) -> Result<(), RecordError> {
        fields::float(Code::MalformedRecord, value).map(|value| self.push(value))
    }

    fn len(&self) -> usize {
        self.zeros + self.ones + self.rest.len()
    }
}

impl<'a> RawRecord<'a> {
    /// Reads a whole line. Of duplicate keys the last wins.
    pub(super) fn parse(line: &'a str) -> Result<Self, RecordError> {
        let mut reader = Reader { parser: Parser::new(line, Dialect::Strict) };
        let mut record = RawRecord::default();
        reader.object(|reader, key| {
            let start = reader.parser.at;
            let read = match &*key {
                "token_ids_delta" => reader.list().map(|ids| record.token_ids = Some(ids)),
                "token_mask_delta" => reader.list().map(|xs| record.token_mask = Some(xs)),
                "generation_log_probs_delta" => reader.list().map(|xs| record.logprobs = Some(xs)),
                "extras" => reader.extras().map(|text| record.extras = text),
                _ => {
                    let value = reader.value()?;
                    record.members.push((key, value));
                    return Ok(());
                }
            };
            if let Err(fault) = read {
                reader.parser.at = start;
                reader.value()?;
                record.fault.get_or_insert(fault.within(&key));
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
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), RecordError>,
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
                member(self, key)?;
                self.parser.space();
                if self.parser.word("}") {
                    break;
                }
                if !self.parser.word(",") {
                    return Err(self.syntax("expected ',' or '}'"));
                }
            }
        }
        self.parser.end().map_err(|e| json(&e))
    }

    fn syntax(&self, reason: &'static str) -> RecordError {
        json(&self.parser.error(reason))
    }

    fn value(&mut self) -> Result<Value<'a>, RecordError> {
        self.parser.value(1).map_err(|e| json(&e))
    }

    /// The text of an object; `None` for null.
    fn extras(&mut self) -> Result<Option<&'a str>, RecordError> {
        self.parser.space();
        let start = self.parser.at;
        let value = self.value()?;
        match value {
            Value::Null => Ok(None),
            Value::Dict(_) => Ok(Some(&self.parser.text[start..self.parser.at])),
            other => Err(fields::expected(Code::MalformedRecord, "an object or null", &other)),
        }
    }

    fn list<C: Column>(&mut self) -> Result<C, RecordError> {
        self.parser.space();
        if !self.parser.word("[") {
            let found = self.value()?;
            return Err(fields::expected(Code::MalformedRecord, "a list of numbers", &found));
        }
        let mut column = C::default();
        self.parser.space();
        if self.parser.word("]") {
            return Ok(column);
        }
        loop {
            self.parser.space();
            self.parser.at += column.run(&self.parser.text[self.parser.at..]);
            let value = self.parser.value(2).map_err(|e| json(&e))?;
            let at = column.len();
            column.item(value).map_err(|mut e| {
                e.message = format!("item {at}: {}", e.message);
                e
            })?;
            self.parser.space();
            if self.parser.word("]") {
                return Ok(column);
            }
            if !self.parser.word(",") {
                return Err(self.syntax("expected ',' or ']'"));
            }
        }
    }
}

/// In the words that the package has for it.
fn token_id(found: &impl std::fmt::Display) -> RecordError {
    let message = format!("token_id must be an unsigned 64-bit integer, got {found}");
    RecordError::new(Code::InvalidSnapshot, message)
}

fn json(error: &JsonError) -> RecordError {
    RecordError::json(Code::MalformedRecord, error)
}
