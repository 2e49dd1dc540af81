//! Digests of what was captured, whatever files and parts it lies in.

use super::media::{MediaTensor, TensorContent};
use super::{Call, Completeness, Completion, Group, Ledger, Rollout, SourceKind};
use crate::id::{CallId, Digest32, GroupId, RolloutId};

/// What an archive knows of a rollout without reading its calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known {
    /// Its prompt group.
    pub group_id: GroupId,
    /// Position in the group.
    pub slot: u32,
    /// Identity.
    pub rollout_id: RolloutId,
    /// Slots that the group is said to have.
    pub group_size: u32,
    /// BLAKE3 of everything else, as `docs/format.md` describes it.
    pub digest: Digest32,
}

impl Known {
    /// What becomes known of a rollout.
    pub fn of(group: &Group, rollout: &Rollout) -> Self {
        Self {
            group_id: group.group_id.clone(),
            slot: rollout.slot,
            rollout_id: rollout.rollout_id.clone(),
            group_size: rollout.group_size,
            digest: digest(rollout),
        }
    }
}

/// Digest of an archive: equal for archives of the same rollouts, in whatever order they were
/// added.
pub fn content(known: &mut [Known]) -> Digest32 {
    known.sort();
    let mut hash = Fields::new("forestctl/archive-content/v2");
    for Known { group_id, slot, rollout_id, group_size, digest } in known.iter() {
        hash.text(group_id.as_str());
        hash.text(rollout_id.as_str());
        hash.number(u64::from(*slot));
        hash.number(u64::from(*group_size));
        hash.bytes(&digest.0);
    }
    hash.finish()
}

/// Digest of a rollout: everything but the size of its group, which grows with Gym's own
/// captures, and the places that its calls were read from.
pub fn digest(rollout: &Rollout) -> Digest32 {
    let mut hash = Fields::new("forestctl/rollout/v1");
    hash.text(rollout.rollout_id.as_str());
    hash.number(u64::from(rollout.slot));
    hash.text(rollout.capture_key.as_str());
    hash.optional(rollout.reward, |hash, reward| hash.number(reward.to_bits()));
    hash.flag(rollout.mask_sample);
    hash.optional(rollout.result.as_deref(), Fields::text);
    hash.number(match rollout.source {
        SourceKind::Staged => 0,
        SourceKind::GymStore => 1,
        SourceKind::InlineRollouts => 2,
    });
    hash.number(match rollout.completeness {
        Completeness::Complete => 0,
        Completeness::Incomplete => 1,
        Completeness::Unknown => 2,
    });
    ledger(&mut hash, &rollout.ledger);
    hash.list(&rollout.calls, call);
    hash.finish()
}

fn ledger(hash: &mut Fields, ledger: &Ledger) {
    let id = |hash: &mut Fields, id: &CallId| hash.text(id.as_str());
    hash.optional(ledger.receipt.as_deref(), Fields::text);
    hash.list(&ledger.committed, |hash, row| {
        hash.text(row.call_id.as_str());
        hash.optional(row.response_id.as_deref(), Fields::text);
        match &row.completion {
            Completion::Unrecorded => hash.flag(false),
            Completion::Recorded { status, finish_reason } => {
                hash.flag(true);
                hash.optional(status.as_deref(), Fields::text);
                hash.optional(finish_reason.as_deref(), Fields::text);
            }
        }
        hash.optional(row.output_items.as_ref(), |hash, items| {
            hash.list(items, |hash, item| {
                hash.optional(item.id.as_deref(), Fields::text);
                hash.optional(item.kind.as_deref(), Fields::text);
                hash.optional(item.fingerprint, |hash, digest| hash.bytes(&digest.0));
            });
        });
        hash.optional(row.output_fingerprint, |hash, digest| hash.bytes(&digest.0));
        hash.number(row.fingerprint_version);
    });
    hash.list(&ledger.attempted, id);
    hash.list(&ledger.pending, id);
    hash.list(&ledger.failures, |hash, failure| {
        hash.text(failure.call_id.as_str());
        hash.text(&failure.reason);
    });
    hash.optional(ledger.terminal_call_id.as_ref(), id);
    hash.flag(ledger.capture_poisoned);
    hash.optional(ledger.failure_reason.as_deref(), Fields::text);
}

impl Call {
    /// Digest of everything but the place that the call was read from.
    pub fn content_digest(&self) -> Digest32 {
        let mut hash = Fields::new("forestctl/call/v1");
        call(&mut hash, self);
        hash.finish()
    }
}

fn call(hash: &mut Fields, call: &Call) {
    hash.text(call.call_id.as_str());
    hash.text(call.capture_key.as_str());
    hash.optional(call.source_capture_key.as_ref(), |hash, key| hash.text(key.as_str()));
    hash.optional(call.parent_call_id.as_ref(), |hash, id| hash.text(id.as_str()));
    hash.text(call.mode.as_str());
    for number in [call.prev_len, call.delta_len, call.cum_len, u64::from(call.carry_len)] {
        hash.number(number);
    }
    hash.optional(call.weight_version, Fields::number);
    hash.values(&call.token_ids, |id| id.to_le_bytes());
    hash.values(&call.generation_logprobs, |p| p.to_bits().to_le_bytes());
    hash.optional(call.raw_columns.as_ref(), |hash, raw| {
        hash.values(&raw.token_mask, |mask| mask.to_bits().to_le_bytes());
        hash.values(&raw.logprobs, |p| p.to_bits().to_le_bytes());
    });
    hash.optional(call.commitment.as_ref(), |hash, signed| {
        hash.number(signed.schema_version);
        hash.number(signed.digest_version);
        hash.number(signed.extras_digest_version);
        hash.bytes(&signed.digest.0);
        hash.bytes(&signed.extras_digest.0);
        hash.bytes(&signed.chain_hash.0);
        hash.bytes(&signed.cumulative_hash.0);
    });
    hash.optional(call.entry_digest, |hash, digest| hash.bytes(&digest.0));
    hash.optional(call.extras.as_deref(), Fields::text);
    hash.optional(call.media, |hash, flags| {
        hash.flag(flags.present);
        hash.flag(flags.has_frames);
        hash.bytes(&flags.metadata_digest.0);
    });
    hash.list(&call.tensors, tensor);
}

fn tensor(hash: &mut Fields, tensor: &MediaTensor) {
    hash.text(&tensor.field);
    hash.text(&tensor.dtype.to_string());
    hash.list(&tensor.shape, |hash, n| hash.number(*n));
    match &tensor.content {
        TensorContent::Inline(data) => {
            hash.flag(true);
            hash.number(data.len() as u64);
            hash.bytes(data);
        }
        TensorContent::Pieces(pieces) => {
            hash.flag(false);
            hash.list(pieces, |hash, piece| {
                hash.bytes(&piece.digest.0);
                hash.number(piece.bytes);
            });
        }
    }
}

/// Feeds fields to BLAKE3 so that no two different lists of fields give the same bytes: numbers
/// are 8 bytes, little-endian; texts and lists begin with their length; what may be missing
/// begins with 0 or 1.
struct Fields {
    hasher: Box<blake3::Hasher>,
    /// Bytes that are still to be hashed: the hash is fast on many at a time only.
    gathered: Vec<u8>,
}

/// Bytes that are gathered.
const GATHERED: usize = 64 << 10;

impl Fields {
    fn new(domain: &str) -> Self {
        let mut hash = Self { hasher: Box::default(), gathered: Vec::new() };
        hash.bytes(domain.as_bytes());
        hash.bytes(&[0]);
        hash
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if bytes.len() > GATHERED {
            self.flush();
            self.hasher.update(bytes);
            return;
        }
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() > GATHERED {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.hasher.update(&self.gathered);
        self.gathered.clear();
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    fn flag(&mut self, flag: bool) {
        self.bytes(&[u8::from(flag)]);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    fn optional<T>(&mut self, value: Option<T>, some: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            some(self, value);
        }
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.number(items.len() as u64);
        items.iter().for_each(|item| each(self, item));
    }

    /// A list of values of `N` bytes each.
    fn values<T, const N: usize>(&mut self, values: &[T], bytes: impl Fn(&T) -> [u8; N]) {
        self.number(values.len() as u64);
        for values in values.chunks(GATHERED / N) {
            let start = self.gathered.len();
            self.gathered.resize(start + N * values.len(), 0);
            let (places, _) = self.gathered[start..].as_chunks_mut::<N>();
            places.iter_mut().zip(values).for_each(|(place, value)| *place = bytes(value));
            if self.gathered.len() > GATHERED {
                self.flush();
            }
        }
    }

    fn finish(mut self) -> Digest32 {
        self.flush();
        Digest32(*self.hasher.finalize().as_bytes())
    }
}
