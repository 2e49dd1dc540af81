//! Digests of the capture wire (`spec/gym-wire.md` section b): all SHA-256, all integers
//! big-endian, domain words prepended without a length.
//!
//! Everything is streamed; no preimage is ever held.

use sha2::{Digest, Sha256};

use super::json::{Dialect, Json};
use super::python;
use super::view::{Columns, StagedView};
use crate::archive::Mode;
use crate::id::Digest32;

/// Digest version that is read and written.
pub const DIGEST_VERSION: u64 = 2;

/// Extras digest version that is read and written.
pub const EXTRAS_DIGEST_VERSION: u64 = 1;

/// Extras digest of null, and so of a record without extras.
pub const EMPTY_EXTRAS_DIGEST: Digest32 = Digest32([
    0xa1, 0xed, 0xc3, 0x3c, 0x10, 0x76, 0x16, 0xcf, 0x34, 0x4f, 0xaf, 0x01, 0x03, 0xda, 0xa0, 0x25,
    0xcf, 0xb1, 0x25, 0xf8, 0xe1, 0xc7, 0x84, 0xae, 0x5f, 0x6a, 0x49, 0xfa, 0xf2, 0xb7, 0x68, 0xb6,
]);

/// Why no digest can be computed, in the package's own words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DigestError(pub String);

impl DigestError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Bytes that are gathered before the hash sees them; small enough for the stack, a multiple of
/// every width.
const BLOCK: usize = 2048;

fn finish(hash: Sha256) -> Digest32 {
    Digest32(hash.finalize().into())
}

fn update_text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text.as_bytes());
}

/// Feeds `N` bytes per value, a block at a time.
fn update_values<T: Copy, const N: usize>(
    hash: &mut Sha256,
    values: &[T],
    bytes: impl Fn(T) -> [u8; N],
) {
    let mut block = [0; BLOCK];
    for values in values.chunks(BLOCK / N) {
        for (place, &value) in block.as_chunks_mut().0.iter_mut().zip(values) {
            *place = bytes(value);
        }
        hash.update(&block[..values.len() * N]);
    }
}

/// Feeds `count` times the same binary32.
fn update_repeated(hash: &mut Sha256, value: f32, count: usize) {
    let mut block = [0; BLOCK];
    block.as_chunks_mut().0.fill(value.to_be_bytes());
    let mut left = 4 * count;
    while left > 0 {
        let now = left.min(BLOCK);
        hash.update(&block[..now]);
        left -= now;
    }
}

/// Token ids as the wire has them (u64) or as the archive keeps them (u32).
pub trait Token: Copy + Into<u64> {}
impl<T: Copy + Into<u64>> Token for T {}

pub(super) fn update_ids<T: Token>(hash: &mut Sha256, ids: &[T]) {
    update_values(hash, ids, |id| id.into().to_be_bytes());
}

/// Token list encoding (b.1): the count, then each id.
fn update_list<T: Token>(hash: &mut Sha256, ids: &[T]) {
    hash.update((ids.len() as u64).to_be_bytes());
    update_ids(hash, ids);
}

/// Hash of all tokens from the root (b.2), fed delta by delta. The count comes first in the
/// preimage, so the total must be known beforehand.
pub struct CumulativeHasher {
    hash: Sha256,
    left: u64,
}

impl CumulativeHasher {
    /// Starts the hash of `total` tokens.
    pub fn new(total: u64) -> Self {
        let mut hash = Sha256::new_with_prefix("nemo-gym-staging-prefix-v2");
        hash.update(total.to_be_bytes());
        Self { hash, left: total }
    }

    /// Adds the next tokens.
    pub fn update<T: Token>(&mut self, ids: &[T]) {
        self.left = self.left.wrapping_sub(ids.len() as u64);
        update_ids(&mut self.hash, ids);
    }

    /// The hash; `None` unless exactly the announced number of tokens was fed.
    pub fn finish(self) -> Option<Digest32> {
        (self.left == 0).then(|| finish(self.hash))
    }
}

/// Hash of all tokens from the root (b.2).
pub fn cumulative_hash<T: Token>(ids: &[T]) -> Digest32 {
    let mut hash = Sha256::new_with_prefix("nemo-gym-staging-prefix-v2");
    update_list(&mut hash, ids);
    finish(hash)
}

/// Chain hash of a delta on its parent's chain hash, `None` for a root (b.3).
pub fn chain_hash<T: Token>(parent: Option<Digest32>, delta: &[T]) -> Digest32 {
    let mut hash = Sha256::new_with_prefix("nemo-gym-staging-chain-v1");
    match parent {
        None => hash.update([0]),
        Some(parent) => {
            hash.update([1]);
            hash.update(parent.0);
        }
    }
    update_list(&mut hash, delta);
    finish(hash)
}

/// Digest of null or an object (b.4). Integers and floats differ, as do `{}` and null.
///
/// # Errors
///
/// Anything but null or an object; an integer outside 64 bits; a float that is not finite.
pub fn extras_digest(extras: &Json) -> Result<Digest32, DigestError> {
    if let Some(kind) = match extras {
        Json::Null | Json::Dict(_) => None,
        Json::Bool(_) => Some("bool"),
        Json::Int(_) | Json::BigInt(_) => Some("int"),
        Json::Float(_) => Some("float"),
        Json::Str(_) => Some("str"),
        Json::List(_) => Some("list"),
    } {
        return Err(DigestError::new(format!("extras must be a mapping or None, got {kind}")));
    }
    let mut hash = Sha256::new_with_prefix("nemo-gym-staging-extras-v1");
    hash.update([1]);
    update_json(&mut hash, extras)?;
    Ok(finish(hash))
}

/// [`extras_digest`] of `{key: items}`, without building it.
///
/// # Errors
///
/// As [`extras_digest`].
pub fn list_digest<'a>(
    key: &str,
    items: impl ExactSizeIterator<Item = &'a Json>,
) -> Result<Digest32, DigestError> {
    let mut hash = Sha256::new_with_prefix("nemo-gym-staging-extras-v1");
    hash.update([1, b'D']);
    hash.update(1u64.to_be_bytes());
    update_text(&mut hash, key);
    hash.update(b"L");
    hash.update((items.len() as u64).to_be_bytes());
    for item in items {
        update_json(&mut hash, item)?;
    }
    Ok(finish(hash))
}

/// [`extras_digest`] of JSON text as a record holds it; `None` = null.
///
/// # Errors
///
/// As [`extras_digest`], or text that is not JSON.
pub fn extras_text_digest(extras: Option<&str>) -> Result<Digest32, DigestError> {
    match extras {
        None => Ok(EMPTY_EXTRAS_DIGEST),
        Some(text) => {
            let value = Json::parse(text, Dialect::Python)
                .map_err(|e| DigestError::new(format!("extras are not JSON: {e}")))?;
            extras_digest(&value)
        }
    }
}

/// Recursion is bounded by the depth that [`Json::parse`] accepts.
fn update_json(hash: &mut Sha256, value: &Json) -> Result<(), DigestError> {
    match value {
        Json::Null => hash.update(b"N"),
        Json::Bool(b) => hash.update([b'B', u8::from(*b)]),
        Json::Int(n) => {
            let n = i64::try_from(*n).map_err(|_| out_of_range(n))?;
            hash.update(b"I");
            hash.update(n.to_be_bytes());
        }
        Json::BigInt(digits) => return Err(out_of_range(digits)),
        Json::Float(x) if !x.is_finite() => {
            let message = format!("extras floats must be finite, got {}", python::repr_f64(*x));
            return Err(DigestError(message));
        }
        Json::Float(x) => {
            hash.update(b"F");
            hash.update(x.to_be_bytes());
        }
        Json::Str(text) => {
            hash.update(b"S");
            update_text(hash, text);
        }
        Json::List(items) => {
            hash.update(b"L");
            hash.update((items.len() as u64).to_be_bytes());
            for item in items {
                update_json(hash, item)?;
            }
        }
        Json::Dict(members) => {
            hash.update(b"D");
            hash.update((members.len() as u64).to_be_bytes());
            for (key, item) in members {
                update_text(hash, key);
                update_json(hash, item)?;
            }
        }
    }
    Ok(())
}

fn out_of_range(n: &impl std::fmt::Display) -> DigestError {
    DigestError(format!("extras integer is outside signed 64-bit range: {n}"))
}

/// Digest of a staged call (b.5). The schema version is a byte of it: 2 as published, 3 as in
/// the seed.
///
/// # Errors
///
/// The first argument rule that the call breaks, in the package's order and words.
pub fn call_digest(call: &StagedView<'_>) -> Result<Digest32, DigestError> {
    let versions = check_call(call)?;
    let mut hash = Sha256::new_with_prefix("nemo-gym-staging-call-v2");
    hash.update(versions);
    update_text(&mut hash, call.scope);
    update_text(&mut hash, call.model_call_id);
    match call.parent_call_id {
        None => hash.update([0]),
        Some(parent) => {
            hash.update([1]);
            update_text(&mut hash, parent);
        }
    }
    update_text(&mut hash, call.mode.as_str());
    for n in [call.prev_len, call.delta_len, call.cum_len, call.weight_version] {
        hash.update(n.to_be_bytes());
    }
    let count = call.token_ids.len() as u64;
    hash.update((8 + 8 * count).to_be_bytes());
    hash.update(count.to_be_bytes());
    call.token_ids.update(&mut hash);
    for column in [Column::Mask, Column::LogProbs] {
        hash.update((8 + 4 * count).to_be_bytes());
        hash.update(count.to_be_bytes());
        update_column(&mut hash, call.columns, column)?;
    }
    hash.update(call.extras_digest.0);
    for required in [call.chain_hash, call.cumulative_hash] {
        hash.update([1]);
        hash.update(required.0);
    }
    Ok(finish(hash))
}

/// The rules in the order in which the package applies them; returns the three version bytes.
fn check_call(call: &StagedView<'_>) -> Result<[u8; 3], DigestError> {
    let fail = |message: &str| Err(DigestError::new(message));
    let schema = match call.schema_version {
        2 => 2,
        3 => 3,
        other => return fail(&format!("unsupported staging schema version {other}")),
    };
    if call.digest_version != DIGEST_VERSION {
        return fail(&format!("unsupported staging digest version {}", call.digest_version));
    }
    if call.extras_digest_version != EXTRAS_DIGEST_VERSION {
        return fail(&format!("unsupported extras digest version {}", call.extras_digest_version));
    }
    if call.scope.is_empty() || call.model_call_id.is_empty() {
        return fail("rollout_id and model_call_id must be non-empty");
    }
    match call.parent_call_id {
        Some("") => return fail("parent_call_id must be non-empty when present"),
        None if call.prev_len != 0 || call.mode != Mode::Text => {
            return fail("a parentless call must be a text-mode root with prev_len == 0");
        }
        Some(_) if call.prev_len == 0 || call.mode != Mode::TokenIn => {
            return fail("a child call must use token_in mode with prev_len > 0");
        }
        _ => {}
    }
    let count = call.token_ids.len();
    if call.delta_len == 0 {
        return fail("a staged call delta must contain at least one token");
    }
    if call.delta_len != count as u64 {
        return fail(&format!("delta_len {} does not match {count} token IDs", call.delta_len));
    }
    check_columns(call.columns, count)?;
    let sum = u128::from(call.prev_len) + u128::from(call.delta_len);
    if u128::from(call.cum_len) != sum {
        let cum_len = call.cum_len;
        return fail(&format!("cum_len {cum_len} does not equal prev_len + delta_len ({sum})"));
    }
    Ok([schema, 2, 1])
}

fn check_columns(columns: Columns<'_>, count: usize) -> Result<(), DigestError> {
    let fail = |message: &str| Err(DigestError::new(message));
    let lengths = "token IDs, masks, and log probabilities must have equal lengths";
    match columns {
        Columns::Raw { token_mask, logprobs } => {
            if token_mask.len() != count || logprobs.len() != count {
                return fail(lengths);
            }
            if token_mask.iter().any(|&mask| mask != 0.0 && mask != 1.0) {
                return fail("token_mask_delta must contain only 0.0 or 1.0");
            }
            if token_mask.iter().zip(logprobs).any(|(&mask, &lp)| mask == 0.0 && lp != 0.0) {
                return fail("prompt-carry log probabilities must be 0.0");
            }
        }
        Columns::Split { carry_len, generation_logprobs } => {
            if carry_len.checked_add(generation_logprobs.len()) != Some(count) {
                return fail(lengths);
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Column {
    Mask,
    LogProbs,
}

/// One column as binary32, rounded to nearest even from what the record holds.
fn update_column(
    hash: &mut Sha256,
    columns: Columns<'_>,
    column: Column,
) -> Result<(), DigestError> {
    match (columns, column) {
        (Columns::Raw { token_mask, .. }, Column::Mask) => {
            update_values(hash, token_mask, |x| (x as f32).to_be_bytes());
        }
        (Columns::Raw { logprobs, .. }, Column::LogProbs) => {
            if let Some(&x) = logprobs.iter().find(|&&x| !(x as f32).is_finite()) {
                return Err(not_float32(x));
            }
            update_values(hash, logprobs, |x| (x as f32).to_be_bytes());
        }
        (Columns::Split { carry_len, generation_logprobs }, Column::Mask) => {
            update_repeated(hash, 0.0, carry_len);
            update_repeated(hash, 1.0, generation_logprobs.len());
        }
        (Columns::Split { carry_len, generation_logprobs }, Column::LogProbs) => {
            if let Some(&x) = generation_logprobs.iter().find(|x| !x.is_finite()) {
                return Err(not_float32(x.into()));
            }
            update_repeated(hash, 0.0, carry_len);
            update_values(hash, generation_logprobs, f32::to_be_bytes);
        }
    }
    Ok(())
}

fn not_float32(x: f64) -> DigestError {
    let x = python::repr_f64(x);
    DigestError(format!("generation_log_probs_delta value cannot be represented as float32: {x}"))
}

/// Digest of a whole sequence on the local path, version 1 (b.6); an empty one has no header.
pub fn entry_digest<T: Token>(ids: &[T]) -> Digest32 {
    let mut hash = Sha256::new_with_prefix("nemo-gym-tokens");
    if !ids.is_empty() {
        hash.update([1]);
        update_list(&mut hash, ids);
    }
    finish(hash)
}

/// Digest of one line of a Gym store, without its newline (b.7).
pub fn line_digest(line: &[u8]) -> Digest32 {
    finish(Sha256::new_with_prefix(line))
}

/// Key of the staged tensors (b.8). Nothing is escaped, so keys of odd ids can collide.
///
/// # Errors
///
/// An empty scope or call id.
pub fn staging_key(scope: &str, model_call_id: &str) -> Result<String, DigestError> {
    if scope.is_empty() || model_call_id.is_empty() {
        return Err(DigestError::new("rollout_id and model_call_id must be non-empty"));
    }
    Ok(format!("{scope}/{model_call_id}"))
}

/// The three columns of a delta, equally long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// `[delta]`
    pub token_ids: Vec<u64>,
    /// `[delta]`, 0.0 carry, 1.0 generation.
    pub token_mask: Vec<f64>,
    /// `[delta]`, 0.0 on carry.
    pub logprobs: Vec<f64>,
}

/// Cuts a call's delta from its full prompt and generation (b.9).
///
/// # Errors
///
/// `prev_len` beyond the prompt, log-probabilities of another number than generated tokens, or
/// an empty delta.
pub fn slice_delta(
    prompt: &[u64],
    generation: &[u64],
    logprobs: &[f64],
    prev_len: usize,
) -> Result<Delta, DigestError> {
    let carry = prompt.get(prev_len..).ok_or_else(|| {
        DigestError(format!("prev_len={prev_len} is outside prompt length {}", prompt.len()))
    })?;
    if generation.len() != logprobs.len() {
        return Err(DigestError(format!(
            "generated token and log-probability lengths differ: {} != {}",
            generation.len(),
            logprobs.len()
        )));
    }
    if carry.is_empty() && generation.is_empty() {
        return Err(DigestError::new("staging delta must contain at least one token"));
    }
    let column =
        |carried: f64, generated: Vec<f64>| [vec![carried; carry.len()], generated].concat();
    Ok(Delta {
        token_ids: [carry, generation].concat(),
        token_mask: column(0.0, vec![1.0; generation.len()]),
        logprobs: column(0.0, logprobs.to_vec()),
    })
}
