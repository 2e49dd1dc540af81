//! Digests of the capture wire (`spec/gym-wire.md` section b): all SHA-256, all integers
//! big-endian, domain words prepended without a length.
//!
//! Everything is streamed; no preimage is ever held. Of many digests at once, [`Claim`] takes
//! several at a time.

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::json::{Dialect, Json};
use super::lanes;
use super::preimage::Preimage;
use super::python;
use super::view::{Columns, StagedView, TokenIds};
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

fn finish(hash: Sha256) -> Digest32 {
    Digest32(hash.finalize().into())
}

fn update_text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text.as_bytes());
}

/// Token ids as the wire has them (u64) or as the archive keeps them (u32).
pub trait Token: Copy {
    /// Token ids of this width.
    fn list(ids: &[Self]) -> TokenIds<'_>;
}

impl Token for u64 {
    fn list(ids: &[u64]) -> TokenIds<'_> {
        TokenIds::Wide(ids)
    }
}

impl Token for u32 {
    fn list(ids: &[u32]) -> TokenIds<'_> {
        TokenIds::Narrow(ids)
    }
}

/// Token list encoding (b.1): the count, then each id.
fn put_list<'a>(to: &mut Preimage<'a>, ids: TokenIds<'a>) {
    to.number(ids.len() as u64);
    to.ids(ids);
}

/// Begins the preimage of all tokens from the root (b.2), `total` of them, whose ids come next.
fn put_cumulative(to: &mut Preimage<'_>, total: u64) {
    to.bytes(b"nemo-gym-staging-prefix-v2");
    to.number(total);
}

fn put_chain<'a>(to: &mut Preimage<'a>, parent: Option<Digest32>, delta: TokenIds<'a>) {
    to.bytes(b"nemo-gym-staging-chain-v1");
    match parent {
        None => to.bytes(&[0]),
        Some(parent) => {
            to.bytes(&[1]);
            to.bytes(&parent.0);
        }
    }
    put_list(to, delta);
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
        let mut hash = Sha256::new();
        let mut begin = Preimage::default();
        put_cumulative(&mut begin, total);
        begin.feed(&mut hash);
        Self { hash, left: total }
    }

    /// Adds the next tokens.
    pub fn update<T: Token>(&mut self, ids: &[T]) {
        self.add(T::list(ids));
    }

    pub(super) fn add(&mut self, ids: TokenIds<'_>) {
        self.left = self.left.wrapping_sub(ids.len() as u64);
        let mut next = Preimage::default();
        next.ids(ids);
        next.feed(&mut self.hash);
    }

    /// The hash; `None` unless exactly the announced number of tokens was fed.
    pub fn finish(self) -> Option<Digest32> {
        (self.left == 0).then(|| finish(self.hash))
    }
}

/// Hash of all tokens from the root (b.2).
pub fn cumulative_hash<T: Token>(ids: &[T]) -> Digest32 {
    let mut preimage = Preimage::default();
    put_cumulative(&mut preimage, ids.len() as u64);
    preimage.ids(T::list(ids));
    preimage.digest()
}

/// Chain hash of a delta on its parent's chain hash, `None` for a root (b.3).
pub fn chain_hash<T: Token>(parent: Option<Digest32>, delta: &[T]) -> Digest32 {
    Claim::Chain { parent, delta: T::list(delta) }.digest()
}

/// What a digest of a capture is claimed to be of.
#[derive(Clone, Debug)]
pub enum Claim<'a> {
    /// A staged call (b.5) that keeps [`Checked`].
    Call(&'a Checked<'a>),
    /// A delta on the chain hash of its parent (b.3).
    Chain {
        /// The parent's chain hash, `None` for a root.
        parent: Option<Digest32>,
        /// The delta.
        delta: TokenIds<'a>,
    },
    /// The deltas from the root to a call (b.2).
    Cumulative(Vec<TokenIds<'a>>),
    /// A whole sequence on the local path in stretches (b.6).
    Entry(Vec<TokenIds<'a>>),
    /// One line of a Gym store, without its newline (b.7).
    Line(&'a [u8]),
}

impl<'a> Claim<'a> {
    fn put(self, to: &mut Preimage<'a>) {
        match self {
            Claim::Call(call) => call.put(to),
            Claim::Chain { parent, delta } => put_chain(to, parent, delta),
            Claim::Cumulative(path) => {
                put_cumulative(to, path.iter().map(|delta| delta.len() as u64).sum());
                path.into_iter().for_each(|delta| to.ids(delta));
            }
            Claim::Entry(stretches) => put_entry(to, stretches),
            Claim::Line(line) => to.borrowed(line),
        }
    }

    /// The digest.
    pub fn digest(self) -> Digest32 {
        let mut preimage = Preimage::default();
        self.put(&mut preimage);
        preimage.digest()
    }

    /// The digests of what `claim` makes of each of `jobs`, in their order. Several are taken at a
    /// time, which goes best if those of long preimages come first.
    pub fn digests<J>(jobs: &[J], claim: impl Fn(&J) -> Self) -> Vec<Digest32> {
        lanes::digests(jobs, |job, to| claim(job).put(to))
    }

    /// The same on all threads.
    pub fn digests_on_threads<J: Sync>(
        jobs: &[J],
        claim: impl Fn(&J) -> Self + Sync,
    ) -> Vec<Digest32> {
        let threads = rayon::current_num_threads();
        let of_thread = |first: usize| {
            let own: Vec<&J> = jobs.iter().skip(first).step_by(threads).collect();
            Self::digests(&own, |job| claim(job))
        };
        let mut by_thread: Vec<_> =
            (0..threads).into_par_iter().map(of_thread).map(Vec::into_iter).collect();
        (0..jobs.len()).filter_map(|job| by_thread[job % threads].next()).collect()
    }
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

/// A staged call that breaks no argument rule.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a> {
    call: StagedView<'a>,
    versions: [u8; 3],
}

impl<'a> Checked<'a> {
    /// Checks the call's arguments.
    ///
    /// # Errors
    ///
    /// The first argument rule that the call breaks, in the package's order and words.
    pub fn new(call: StagedView<'a>) -> Result<Self, DigestError> {
        let versions = check_call(&call)?;
        check_log_probs(call.columns)?;
        Ok(Self { call, versions })
    }

    /// The tokens of its delta.
    pub fn token_ids(&self) -> TokenIds<'a> {
        self.call.token_ids
    }

    /// The call digest (b.5). The schema version is a byte of it: 2 as published, 3 as in the
    /// seed.
    pub fn digest(self) -> Digest32 {
        Claim::Call(&self).digest()
    }

    fn put(&self, to: &mut Preimage<'a>) {
        let call = &self.call;
        to.bytes(b"nemo-gym-staging-call-v2");
        to.bytes(&self.versions);
        to.text(call.scope);
        to.text(call.model_call_id);
        match call.parent_call_id {
            None => to.bytes(&[0]),
            Some(parent) => {
                to.bytes(&[1]);
                to.text(parent);
            }
        }
        to.text(call.mode.as_str());
        for n in [call.prev_len, call.delta_len, call.cum_len, call.weight_version] {
            to.number(n);
        }
        let count = call.token_ids.len() as u64;
        to.number(8 + 8 * count);
        put_list(to, call.token_ids);
        for column in [Column::Mask, Column::LogProbs] {
            to.number(8 + 4 * count);
            to.number(count);
            put_column(to, call.columns, column);
        }
        to.bytes(&call.extras_digest.0);
        for required in [call.chain_hash, call.cumulative_hash] {
            to.bytes(&[1]);
            to.bytes(&required.0);
        }
    }
}

/// Digest of a staged call (b.5).
///
/// # Errors
///
/// As [`Checked::new`].
pub fn call_digest(call: &StagedView<'_>) -> Result<Digest32, DigestError> {
    Checked::new(*call).map(Checked::digest)
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

/// Log-probabilities are binary32 in a digest.
fn check_log_probs(columns: Columns<'_>) -> Result<(), DigestError> {
    let odd = match columns {
        Columns::Raw { logprobs, .. } => {
            logprobs.iter().copied().find(|&x| !(x as f32).is_finite())
        }
        Columns::Split { generation_logprobs, .. } => {
            generation_logprobs.iter().find(|x| !x.is_finite()).map(|&x| x.into())
        }
    };
    odd.map_or(Ok(()), |x| Err(not_float32(x)))
}

#[derive(Clone, Copy)]
enum Column {
    Mask,
    LogProbs,
}

/// One column as binary32, rounded to nearest even from what the record holds.
fn put_column<'a>(to: &mut Preimage<'a>, columns: Columns<'a>, column: Column) {
    match (columns, column) {
        (Columns::Raw { token_mask, .. }, Column::Mask) => to.double(token_mask),
        (Columns::Raw { logprobs, .. }, Column::LogProbs) => to.double(logprobs),
        (Columns::Split { carry_len, generation_logprobs }, Column::Mask) => {
            to.repeated(0.0, carry_len);
            to.repeated(1.0, generation_logprobs.len());
        }
        (Columns::Split { carry_len, generation_logprobs }, Column::LogProbs) => {
            to.repeated(0.0, carry_len);
            to.single(generation_logprobs);
        }
    }
}

fn not_float32(x: f64) -> DigestError {
    let x = python::repr_f64(x);
    DigestError(format!("generation_log_probs_delta value cannot be represented as float32: {x}"))
}

/// Digest of a whole sequence on the local path, version 1 (b.6); an empty one has no header.
pub fn entry_digest<T: Token>(ids: &[T]) -> Digest32 {
    Claim::Entry(vec![T::list(ids)]).digest()
}

fn put_entry<'a>(to: &mut Preimage<'a>, stretches: Vec<TokenIds<'a>>) {
    to.bytes(b"nemo-gym-tokens");
    let tokens: u64 = stretches.iter().map(|ids| ids.len() as u64).sum();
    if tokens > 0 {
        to.bytes(&[1]);
        to.number(tokens);
        stretches.into_iter().for_each(|ids| to.ids(ids));
    }
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
