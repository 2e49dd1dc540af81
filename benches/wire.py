"""The wire's digests and number texts, from their description alone; nothing here is forestctl's or
the published package's code.

Numbers are drawn from tables whose JSON texts are all equally long, so that numpy gathers the text
of an array as fast as the array itself: token ids have five digits (10000..99999, uniform, which no
compressor can exploit), log-probabilities are distinct float32 values printed as float64.
"""

import hashlib
import struct

import numpy as np

EMPTY_EXTRAS = hashlib.sha256(b"nemo-gym-staging-extras-v1\x01N").hexdigest()

FIRST_ID, LAST_ID = 10_000, 99_999
_IDS = np.array([b"%d," % i for i in range(FIRST_ID, LAST_ID + 1)], dtype="S6")
_LOGPROB_VALUES = 1 << 18


def _logprob_table():
    """Distinct negative float32 values, and their texts, all of one length."""
    rng = np.random.default_rng(20_260_207)
    values = np.unique(-rng.exponential(1.2, 3 * _LOGPROB_VALUES).astype(np.float32))
    values = rng.permutation(values)
    texts = [repr(float(v)).encode() + b"," for v in values]
    width = max(set(map(len, texts)), key=[len(t) for t in texts].count)
    kept = [i for i, text in enumerate(texts) if len(text) == width and b"e" not in text]
    kept = kept[:_LOGPROB_VALUES]
    return values[kept].astype(">f4"), np.array([texts[i] for i in kept], dtype=f"S{width}")


_LOGPROBS, _LOGPROB_TEXTS = _logprob_table()


def u64(value):
    return struct.pack(">Q", value)


def text(value):
    """A string as the digests see it: its length in bytes, then the bytes."""
    encoded = value.encode()
    return u64(len(encoded)) + encoded


class Ids:
    """Random token ids: `raw` as big-endian u64, `json` without brackets."""

    def __init__(self, rng, count):
        drawn = rng.integers(0, LAST_ID - FIRST_ID + 1, count)
        self.raw = (drawn + FIRST_ID).astype(">u8").tobytes()
        self.json = _IDS[drawn].tobytes()[:-1]


    def __add__(self, other):
        both = object.__new__(Ids)
        both.raw, both.json = self.raw + other.raw, self.json + b"," + other.json
        return both


class Logprobs:
    """Random log-probabilities: `raw` as big-endian f32, `json` without brackets."""

    def __init__(self, rng, count):
        drawn = rng.integers(0, len(_LOGPROBS), count)
        self.raw = _LOGPROBS[drawn].tobytes()
        self.json = _LOGPROB_TEXTS[drawn].tobytes()[:-1]


def cumulative_hash(raw):
    """Hash of a whole sequence (`raw`: big-endian u64 ids)."""
    digest = hashlib.sha256(b"nemo-gym-staging-prefix-v2" + u64(len(raw) // 8))
    digest.update(raw)
    return digest


def chain_hash(parent, raw):
    """Running hash over deltas; `parent` is the digest of the parent's chain, or None."""
    head = b"\x00" if parent is None else b"\x01" + parent
    return hashlib.sha256(b"nemo-gym-staging-chain-v1" + head + u64(len(raw) // 8) + raw)


def call_digest(scope, call, parent, prev_len, weight, raw, mask, logprobs, chain, cumulative):
    """Digest of a staged call without extras. `mask` and `logprobs` are big-endian f32."""
    count = len(raw) // 8

    def column(values):
        return u64(8 + len(values)) + u64(count) + values

    return hashlib.sha256(
        b"".join((
            b"nemo-gym-staging-call-v2\x02\x02\x01",
            text(scope),
            text(call),
            b"\x00" if parent is None else b"\x01" + text(parent),
            text("text" if parent is None else "token_in"),
            struct.pack(">4Q", prev_len, count, prev_len + count, weight),
            column(raw),
            column(mask),
            column(logprobs),
            bytes.fromhex(EMPTY_EXTRAS),
            b"\x01" + chain,
            b"\x01" + cumulative,
        ))
    )


def entry_digest(raw):
    """Digest of a store entry's whole sequence, which is never empty here."""
    digest = hashlib.sha256(b"nemo-gym-tokens\x01" + u64(len(raw) // 8))
    digest.update(raw)
    return digest.hexdigest()


def field(tag, value):
    return bytes([tag]) + text(value)


class Fingerprints:
    """Fingerprints of a conversation of plain messages, kept up to date as it grows."""

    def __init__(self):
        self._authored = hashlib.sha256(b"nemo-gym-lineage")
        self._context = hashlib.sha256(b"nemo-gym-lineage-context")
        self.items = 0

    def say(self, role, words):
        part = field(0, "text") + field(1, words)
        if role == "assistant":
            self._authored.update(part)
        self._context.update(field(0, role) + field(1, "text") + field(2, words))
        self.items += 1

    def authored(self):
        """Hash of everything that the model said."""
        return self._authored.hexdigest()

    def context(self):
        """Hash of every item."""
        return self._context.hexdigest()


def message_fingerprint(words):
    """Fingerprint of one message of the model."""
    return hashlib.sha256(b"nemo-gym-lineage" + field(0, "text") + field(1, words)).hexdigest()
