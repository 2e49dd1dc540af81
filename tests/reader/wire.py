"""Digests of the capture, as the section "What the capture signed" of docs/format.md has them."""

import hashlib
import json
import struct


def u64(number):
    return struct.pack(">Q", number)


def text(value):
    data = value.encode()
    return u64(len(data)) + data


def tokens(ids):
    return struct.pack(f">{len(ids) + 1}Q", len(ids), *ids)


def floats(values):
    """Each value as binary32, rounded to nearest even; OverflowError where it has none."""
    return u64(len(values)) + struct.pack(f">{len(values)}f", *values)


def sized(data):
    return u64(len(data)) + data


def sha256(domain, data):
    return hashlib.sha256(domain.encode() + data).digest()


def cumulative_hash(ids):
    return sha256("nemo-gym-staging-prefix-v2", tokens(ids))


def chain_hash(parent, delta):
    before = b"\0" if parent is None else b"\1" + parent
    return sha256("nemo-gym-staging-chain-v1", before + tokens(delta))


def entry_digest(ids):
    return sha256("nemo-gym-tokens", b"\1" + tokens(ids) if ids else b"")


def extras_digest(value):
    return sha256("nemo-gym-staging-extras-v1", b"\1" + tagged(value))


def tagged(value):
    match value:
        case None:
            return b"N"
        case bool():
            return b"B" + bytes([value])
        case int():
            return b"I" + struct.pack(">q", value)
        case float():
            return b"F" + struct.pack(">d", value)
        case str():
            return b"S" + text(value)
        case list():
            return b"L" + u64(len(value)) + b"".join(map(tagged, value))
        case dict():
            members = sorted(value.items(), key=lambda member: member[0].encode())
            return b"D" + u64(len(members)) + b"".join(text(k) + tagged(v) for k, v in members)


def call_digest(call, scope, ids, mask, logprobs):
    """`call` is a row of `calls/`; `scope` what the record calls its scope."""
    versions = [call[f"{kind}_version"] for kind in ("schema", "digest", "extras_digest")]
    parent = call["parent_call_id"]
    lengths = [call[f"{kind}_len"] for kind in ("prev", "delta", "cum")]
    return sha256(
        "nemo-gym-staging-call-v2",
        bytes(versions)
        + text(scope)
        + text(call["call_id"])
        + (b"\0" if parent is None else b"\1" + text(parent))
        + text(call["mode"])
        + b"".join(map(u64, [*lengths, call["weight_version"]]))
        + sized(tokens(ids))
        + sized(floats(mask))
        + sized(floats(logprobs))
        + call["extras_digest"]
        + b"\1"
        + call["chain_hash"]
        + b"\1"
        + call["cumulative_hash"],
    )


FINGERPRINT_VERSION = 2


def assistant_fingerprint(items):
    """Gym's fingerprint of what the model wrote among Responses items; None of nothing."""
    own = [i for i in items if i.get("role") == "assistant" or i.get("type") == "function_call"]
    if not own:
        return None
    fields = []
    for item in own:
        content = item.get("content") or []
        blocks = [{"text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["text"]:
                fields += [b"\0" + text("text"), b"\1" + text(block["text"])]
        if item.get("type") == "function_call":
            called = item.get("call_id") or item.get("id") or ""
            name = f"{space}__{item['name']}" if (space := item.get("namespace")) else item["name"]
            fields += [b"\2" + text(called), b"\3" + text(name)]
            fields += [b"\4" + text(canonical(item["arguments"]))]
    return sha256("nemo-gym-lineage", b"".join(fields))


def canonical(arguments):
    """Arguments as JSON sorted by key without spaces; as they are where they are no JSON."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments.strip()
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
