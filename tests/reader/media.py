"""Tensors: pieces of `media/`, the calls that refer to them, and the sidecars that they came in."""

import io
import json
import pathlib
import struct

import pyarrow as pa
import pyarrow.parquet as pq
from archive import DIGEST, need
from blake3 import blake3

COLUMNS = [("digest", DIGEST), ("bytes", pa.uint64()), ("data", pa.large_binary())]
BITS = {"BF16": 16, "F16": 16, "F32": 32, "F64": 64, "I32": 32, "I64": 64, "U8": 8}


def pieces(archive):
    """Every piece by its digest."""
    found = {}
    for path in sorted(path for path in archive.files if path.startswith("media/")):
        table = pq.read_table(io.BytesIO(archive.bytes(path)))
        for name, kind in COLUMNS:
            need(table.schema.field(name).type == kind, f"{path}: column {name} has another type")
            need(table.column(name).null_count == 0, f"{path}: column {name} holds null")
        need(table.num_rows == archive.files[path]["rows"], f"{path} has another number of rows")
        for row in table.to_pylist():
            need(blake3(row["data"]).digest() == row["digest"], f"{path}: a piece has another BLAKE3")
            need(len(row["data"]) == row["bytes"], f"{path}: a piece has another length")
            need(row["digest"] not in found, f"{path}: a piece is stored twice")
            found[row["digest"]] = row["data"]
    return found


def check(archive, given):
    """Tensors are what the sidecars among `given` hold; returns how many, and of how many pieces."""
    stored = pieces(archive)
    held = {}
    for folder in given:
        for path in sorted(pathlib.Path(folder).glob("**/media/*.safetensors")):
            held.update(sidecar(path.read_bytes()))
    used, count = set(), 0
    for call in (call for rollout in archive.rollouts for call in rollout.calls):
        fields = [tensor["field"] for tensor in call["media_tensors"] or []]
        need(fields == sorted(set(fields)), f"{call['call_id']}: tensors are out of order")
        for tensor in call["media_tensors"] or []:
            name = f"{call['call_id']}/{tensor['field']}"
            need((tensor["data"] is None) != (tensor["pieces"] is None), f"{name}: no bytes, or twice")
            data = tensor["data"]
            if data is None:
                used.update(piece["digest"] for piece in tensor["pieces"])
                parts = [stored.get(piece["digest"]) for piece in tensor["pieces"]]
                lengths = [piece["bytes"] for piece in tensor["pieces"]]
                need(None not in parts, f"{name}: a piece is nowhere")
                need([len(part) for part in parts] == lengths, f"{name}: a piece is shorter")
                data = b"".join(parts)
            size = BITS[tensor["dtype"]] // 8
            for dimension in tensor["shape"]:
                size *= dimension
            need(len(data) == size, f"{name}: {len(data)} bytes for {tensor['shape']}")
            if given:
                stated = (tensor["dtype"], tensor["shape"], data)
                need(held.get(name) == stated, f"{name}: the sidecar holds another tensor")
            count += 1
    need(used == set(stored), "pieces are stored that no call refers to")
    return [count, len(stored)]


def sidecar(content):
    (length,) = struct.unpack("<Q", content[:8])
    data = content[8 + length :]
    for name, entry in json.loads(content[8 : 8 + length]).items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            yield name, (entry["dtype"], entry["shape"], data[start:end])
