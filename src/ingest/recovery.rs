//! Recovery checkpoints (`rollout_recovery*`): a run's state to resume from. They are refused by
//! name and schema (rules 17, 138), and nothing in them is executed.

use std::fs::File;
use std::io::Read;

use serde::Deserialize;

use super::detect::Found;
use super::pickle::integer_at;
use super::quarantine::Rejected;
use crate::error::{Error, Result};
use crate::finding::Code;

/// The least schema that a run can be resumed from.
const RESUMED: u64 = 5;
/// Bytes that are searched for the schema.
const SEARCHED: u64 = 64 << 20;
/// The member, and dictionary key, that holds it.
const SCHEMA: &str = "schema_version";
/// Bytes of a zip member's header before its name.
const LOCAL_HEADER: usize = 30;

/// Whether a file is a recovery checkpoint by its name without `.gz` or `.zst`.
pub(super) fn is_named(stem: &str) -> bool {
    stem.starts_with("rollout_recovery")
}

/// Why the file is not taken.
///
/// # Errors
///
/// It cannot be opened.
pub(super) fn refusal(file: &Found) -> Result<Rejected> {
    let schema = schema(file)?;
    let found = match schema {
        Some(schema) => format!("a recovery checkpoint of schema {schema}"),
        None => "a recovery checkpoint that does not tell its schema".to_owned(),
    };
    let old = schema.is_none_or(|schema| schema < RESUMED);
    let resumed = match old {
        true => format!("; runs resume from schema {RESUMED}, and there is no migration"),
        false => String::new(),
    };
    let message = format!("found {found}{resumed}; captures of schema 2 and 3 are read");
    Ok(Rejected::new(Code::UnsupportedRecovery, message))
}

fn schema(file: &Found) -> Result<Option<u64>> {
    #[derive(Deserialize)]
    struct Head {
        schema_version: u64,
    }
    let mut bytes = Vec::new();
    File::open(&file.path)
        .and_then(|file| file.take(SEARCHED).read_to_end(&mut bytes))
        .map_err(|e| Error::io("cannot read", &file.path, e))?;
    let document = serde_json::Deserializer::from_slice(&bytes).into_iter::<Head>().next();
    Ok(match document {
        Some(Ok(head)) => Some(head.schema_version),
        _ => integer_at(pickle(&bytes), SCHEMA),
    })
}

/// The pickle within a file of `torch.save`: a zip whose first member is `<name>/data.pkl`, not
/// compressed. Other files are taken for a bare pickle.
fn pickle(bytes: &[u8]) -> &[u8] {
    let stored = || {
        let (header, rest) = bytes.split_at_checked(LOCAL_HEADER)?;
        let field = |at: usize| Some(u16::from_le_bytes([*header.get(at)?, *header.get(at + 1)?]));
        let (method, name, extra) = (field(8)?, field(26)?, field(28)?);
        let (name, rest) = rest.split_at_checked(name.into())?;
        let found = header.starts_with(b"PK\x03\x04") && name.ends_with(b"data.pkl");
        rest.get(usize::from(extra)..).filter(|_| found && method == 0)
    };
    stored().unwrap_or(bytes)
}
