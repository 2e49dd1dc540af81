"""Digests of the capture wire, fingerprints and safetensors files, written from their descriptions."""

import hashlib
import json
import struct


def u64(n):
    return struct.pack(">Q", n)


def text(s):
    return u64(len(s.encode())) + s.encode()


def ids(tokens):
    return u64(len(tokens)) + b"".join(map(u64, tokens))


def floats(values):
    return u64(len(values)) + b"".join(struct.pack(">f", v) for v in values)


def sized(data):
    return u64(len(data)) + data


def value(v):
    if v is None:
        return b"N"
    if isinstance(v, bool):
        return b"B" + bytes([v])
    if isinstance(v, int):
        return b"I" + struct.pack(">q", v)
    if isinstance(v, float):
        return b"F" + struct.pack(">d", v)
    if isinstance(v, str):
        return b"S" + text(v)
    if isinstance(v, list):
        return b"L" + u64(len(v)) + b"".join(map(value, v))
    keys = sorted(v, key=str.encode)
    return b"D" + u64(len(v)) + b"".join(text(k) + value(v[k]) for k in keys)


def sha(*parts):
    return hashlib.sha256(b"".join(parts))


def extras_digest(extras):
    return sha(b"nemo-gym-staging-extras-v1\x01", value(extras)).hexdigest()


def chain_hash(parent, delta):
    link = b"\0" if parent is None else b"\1" + bytes.fromhex(parent)
    return sha(b"nemo-gym-staging-chain-v1", link, ids(delta)).hexdigest()


def cumulative_hash(tokens):
    return sha(b"nemo-gym-staging-prefix-v2", ids(tokens)).hexdigest()


def call_digest(schema, r, scope):
    parent = r["parent_call_id"]
    return sha(
        b"nemo-gym-staging-call-v2",
        bytes([schema, 2, 1]),
        text(scope),
        text(r["model_call_id"]),
        b"\0" if parent is None else b"\1" + text(parent),
        text(r["mode"]),
        *(u64(r[k]) for k in ("prev_len", "delta_len", "cum_len", "weight_version")),
        sized(ids(r["token_ids_delta"])),
        sized(floats(r["token_mask_delta"])),
        sized(floats(r["generation_log_probs_delta"])),
        bytes.fromhex(r["extras_digest"]),
        b"\1" + bytes.fromhex(r["chain_hash"]),
        b"\1" + bytes.fromhex(r["cumulative_hash"]),
    ).hexdigest()


def fingerprint(answer):
    return sha(b"nemo-gym-lineage", b"\0", text("text"), b"\1", text(answer)).hexdigest()


def metadata_digest(extras, ascii):
    if extras is not None:
        extras = {k: v for k, v in extras.items() if k != "routed_experts"}
    compact = json.dumps(extras, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii)
    return sha(compact.encode()).hexdigest()


def dump(v):
    return json.dumps(v, separators=(",", ":"))


def safetensors(tensors):
    """name -> (dtype, shape, bytes), as a file."""
    header, data = {}, b""
    for name in sorted(tensors):
        dtype, shape, content = tensors[name]
        header[name] = {
            "dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    return with_header(dump(header), data)


def with_header(header, data):
    header = header.encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


# Upstream's own golden values, so that the functions above are known to be right.
assert extras_digest(None) == "a1edc33c107616cf344faf0103daa025cfb125f8e1c784ae5f6a49faf2b768b6"
assert (
    extras_digest({"routed_experts": [[[1, 2]], [[3, 4]]]})
    == "032024e899456be6e9a78c6d0399c5112d2ca7fa18d4ea9cf0d8cb7d0094f3a3"
)
GOLDEN = {
    "model_call_id": "call-1", "parent_call_id": "parent-1", "mode": "token_in",
    "prev_len": 3, "delta_len": 2, "cum_len": 5, "weight_version": 7,
    "token_ids_delta": [10, 11], "token_mask_delta": [0.0, 1.0],
    "generation_log_probs_delta": [0.0, -0.25], "chain_hash": "11" * 32, "cumulative_hash": "22" * 32,
    "extras_digest": "032024e899456be6e9a78c6d0399c5112d2ca7fa18d4ea9cf0d8cb7d0094f3a3",
}
for schema, golden in [
    (2, "1122c7fe7e914c809eb9b1c09b26d94a50c1eb2790e7430fbcd8363b846ccf27"),
    (3, "cdd62002cf93637646f8501ae816eada76e315885219455f53a09dd5a86580f2"),
]:
    assert call_digest(schema, GOLDEN, "rollout-1") == golden
