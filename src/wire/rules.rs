//! The rules that the package's models apply once every field has its type
//! (`spec/gym-wire.md` a.2, a.5, a.7, a.8), in its order and words.
//!
//! Parsing leaves these alone, so that a record that breaks one can be kept and reported.

use std::collections::HashSet;

use super::digest;
use super::fields::RecordError;
use super::receipt::{CallRecord, Receipt, RolloutManifest};
use super::staged::StagedRecord;
use super::verify::Versions;
use crate::archive::Mode;
use crate::finding::Code;

type Result = std::result::Result<(), RecordError>;

fn broken(code: Code, message: &str) -> Result {
    Err(RecordError::new(code, message))
}

/// Versions are literals of the package's models; schema 3 stands beside its 2.
fn check_versions(code: Code, versions: Versions) -> Result {
    let literals = [
        ("schema_version", versions.schema, if versions.schema == 3 { 3 } else { 2 }),
        ("digest_version", versions.digest, digest::DIGEST_VERSION),
        ("extras_digest_version", versions.extras_digest, digest::EXTRAS_DIGEST_VERSION),
    ];
    for (field, found, literal) in literals {
        if found != literal {
            return Err(RecordError::of(code, field, format!("Input should be {literal}")));
        }
    }
    Ok(())
}

impl StagedRecord {
    /// Applies the rules of `StagedCallRecord`: those of the base, then the extras digest.
    ///
    /// # Errors
    ///
    /// `invalid_snapshot` for a broken rule, `corrupt_digest`, `corrupt_extras_digest`; the
    /// message is the package's.
    pub fn check(&self) -> Result {
        self.check_base()?;
        let extras = digest::extras_text_digest(self.extras.as_deref())
            .map_err(|e| RecordError::new(Code::CorruptExtrasDigest, e.to_string()))?;
        if extras != self.extras_digest {
            return broken(Code::CorruptExtrasDigest, "extras_digest does not match extras");
        }
        Ok(())
    }

    /// Applies the rules of `StagedCallBaseSnapshot`, the call digest included. Extras are not
    /// looked at: it takes their digest as stated.
    ///
    /// # Errors
    ///
    /// `invalid_snapshot` for a broken rule, or `corrupt_digest`; the message is the package's.
    pub fn check_base(&self) -> Result {
        check_versions(Code::InvalidSnapshot, self.view().versions())?;
        let rule = match (&self.parent_call_id, self.prev_len, self.mode) {
            (None, 1.., _) => Some("a parentless staged call must have prev_len == 0"),
            (Some(_), 0, _) => Some("a child staged call must have prev_len > 0"),
            (None, 0, Mode::TokenIn) => Some("a parentless staged call must use text mode"),
            (Some(_), 1.., Mode::Text) => Some("a child staged call must use token_in mode"),
            _ => None,
        };
        if let Some(rule) = rule {
            return broken(Code::InvalidSnapshot, rule);
        }
        let digest = digest::call_digest(&self.view()).map_err(|e| {
            let rule = self.broken_column_rule().map_or_else(|| e.to_string(), str::to_owned);
            RecordError::new(Code::InvalidSnapshot, rule)
        })?;
        if digest != self.digest {
            return broken(Code::CorruptDigest, "digest does not match staged call contents");
        }
        Ok(())
    }

    /// The digest applies these rules too, but after it has compared lengths.
    fn broken_column_rule(&self) -> Option<&'static str> {
        let (masks, logprobs) = (&self.token_mask_delta, &self.generation_log_probs_delta);
        if self.delta_len == 0 {
            Some("a staged call delta must contain at least one token")
        } else if masks.iter().any(|&mask| mask != 0.0 && mask != 1.0) {
            Some("token_mask_delta must contain only 0.0 or 1.0")
        } else if masks.iter().zip(logprobs).any(|(&mask, &lp)| mask == 0.0 && lp != 0.0) {
            Some("prompt-carry log probabilities must be 0.0")
        } else {
            None
        }
    }
}

impl CallRecord {
    /// Applies the model's rules.
    ///
    /// # Errors
    ///
    /// `malformed_receipt`; the message is the package's.
    pub fn check(&self) -> Result {
        check_versions(Code::MalformedReceipt, self.versions())?;
        let end = u128::from(self.prev_len) + u128::from(self.delta_len);
        let rule = match (&self.parent_call_id, self.prev_len, self.mode) {
            _ if self.delta_len == 0 || u128::from(self.cum_len) != end => {
                "manifest lengths must describe a non-empty contiguous delta"
            }
            (None, 1.., _) => "a parentless manifest row must have prev_len == 0",
            (Some(_), 0, _) => "a child manifest row must have prev_len > 0",
            (None, 0, Mode::TokenIn) => "a parentless manifest row must use text mode",
            (Some(_), 1.., Mode::Text) => "a child manifest row must use token_in mode",
            _ => return Ok(()),
        };
        broken(Code::MalformedReceipt, rule)
    }
}

fn check_rows(key: &str, rows: &[CallRecord]) -> Result {
    rows.iter()
        .enumerate()
        .try_for_each(|(i, row)| row.check().map_err(|e| e.within(&format!("{key}[{i}]"))))
}

impl RolloutManifest {
    /// Applies the rules of every row; a manifest has none of its own.
    ///
    /// # Errors
    ///
    /// `malformed_receipt` with the row as field; the message is the package's.
    pub fn check(&self) -> Result {
        check_rows("records", &self.records)
    }
}

impl Receipt {
    /// Applies the model's rules, those of the rows first.
    ///
    /// # Errors
    ///
    /// `duplicate_manifest_row`, `missing_terminal`, or `malformed_receipt`; the message is the
    /// package's.
    pub fn check(&self) -> Result {
        check_versions(Code::MalformedReceipt, self.versions())?;
        check_rows("manifest", &self.manifest)?;
        let mut calls = HashSet::new();
        if !self.manifest.iter().all(|row| calls.insert(row.model_call_id.as_str())) {
            let rule = "receipt manifest contains duplicate model_call_id values";
            return broken(Code::DuplicateManifestRow, rule);
        }
        let terminal = self.terminal_model_call_id.as_deref();
        if terminal.is_some_and(|call| !calls.contains(call)) {
            let rule = "terminal_model_call_id is absent from the receipt manifest";
            return broken(Code::MissingTerminal, rule);
        }
        let selected = self.terminal_selection.is_some();
        let rule = if !self.capture_poisoned && self.failure_reason.is_some() {
            "an unpoisoned receipt cannot carry a failure_reason"
        } else if !self.capture_poisoned && (terminal.is_none() || !selected) {
            "an unpoisoned receipt must name terminal_model_call_id and terminal_selection"
        } else if !selected && terminal.is_some() {
            "terminal_model_call_id requires a terminal_selection method"
        } else if !selected && self.failure_reason.is_none() {
            "a receipt with no attribution stage must be poisoned with a failure_reason"
        } else {
            return Ok(());
        };
        broken(Code::MalformedReceipt, rule)
    }
}
