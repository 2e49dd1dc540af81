"""Opens an archive as docs/format.md describes it; nothing else of forestctl is used."""

import base64
import io
import json
import pathlib
import struct
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

MAJOR = 2
PART_TABLES = ("calls", "ledger", "origins", "rollouts")
KINDS = ("scope", "attempted", "committed", "pending", "failed")
SOURCES = ("staged", "gym_store", "inline_rollouts")
COMPLETENESS = ("complete", "incomplete", "unknown")


class Broken(ValueError):
    """The archive is not what it says it is, or not what the document says."""


def need(ok, what):
    if not ok:
        raise Broken(what)


# Columns: name, type, and whether they may be null.
DIGEST = pa.binary(32)


def numbers(kind):
    return pa.large_list(pa.field("item", kind, nullable=False))


def listed(kind):
    return pa.large_list(pa.field("item", kind, nullable=False))


PIECE = pa.struct([pa.field("digest", DIGEST), pa.field("bytes", pa.uint64(), nullable=False)])
TENSOR = pa.struct(
    [
        pa.field("field", pa.string(), nullable=False),
        pa.field("dtype", pa.string(), nullable=False),
        pa.field("shape", listed(pa.uint64()), nullable=False),
        pa.field("data", pa.large_binary()),
        pa.field("pieces", listed(PIECE)),
    ]
)
OUTPUT_ITEM = pa.struct([("id", pa.string()), ("type", pa.string()), ("fingerprint", DIGEST)])
COLUMNS = {
    "calls": [
        ("group_id", pa.string(), False),
        ("rollout_id", pa.string(), False),
        ("call_index", pa.uint32(), False),
        ("call_id", pa.string(), False),
        ("capture_key", pa.string(), False),
        ("source_capture_key", pa.string(), True),
        ("parent_call_id", pa.string(), True),
        ("mode", pa.string(), False),
        ("prev_len", pa.uint64(), False),
        ("delta_len", pa.uint64(), False),
        ("cum_len", pa.uint64(), False),
        ("weight_version", pa.uint64(), True),
        ("token_ids", numbers(pa.uint32()), False),
        ("carry_len", pa.uint32(), False),
        ("generation_logprobs", numbers(pa.float32()), False),
        ("raw_token_mask", numbers(pa.float64()), True),
        ("raw_logprobs", numbers(pa.float64()), True),
        ("schema_version", pa.uint64(), True),
        ("digest_version", pa.uint64(), True),
        ("extras_digest_version", pa.uint64(), True),
        ("digest", DIGEST, True),
        ("extras_digest", DIGEST, True),
        ("chain_hash", DIGEST, True),
        ("cumulative_hash", DIGEST, True),
        ("entry_digest", DIGEST, True),
        ("extras", pa.large_string(), True),
        ("routes", pa.large_binary(), True),
        ("routes_at", pa.uint64(), True),
        ("media_present", pa.bool_(), True),
        ("media_has_frames", pa.bool_(), True),
        ("media_metadata_digest", DIGEST, True),
        ("media_tensors", listed(TENSOR), True),
    ],
    "rollouts": [
        ("group_id", pa.string(), False),
        ("rollout_id", pa.string(), False),
        ("slot", pa.uint32(), False),
        ("group_size", pa.uint32(), False),
        ("capture_key", pa.string(), False),
        ("reward", pa.float64(), True),
        ("mask_sample", pa.bool_(), False),
        ("source", pa.string(), False),
        ("completeness", pa.string(), False),
        ("result", pa.large_string(), True),
        ("digest", DIGEST, False),
    ],
    "ledger": [
        ("group_id", pa.string(), False),
        ("rollout_id", pa.string(), False),
        ("kind", pa.string(), False),
        ("ordinal", pa.uint32(), False),
        ("call_id", pa.string(), True),
        ("response_id", pa.string(), True),
        ("completion_recorded", pa.bool_(), True),
        ("status", pa.string(), True),
        ("finish_reason", pa.string(), True),
        ("output_items", pa.list_(pa.field("item", OUTPUT_ITEM, nullable=False)), True),
        ("output_fingerprint", DIGEST, True),
        ("fingerprint_version", pa.uint64(), True),
        ("reason", pa.string(), True),
        ("capture_poisoned", pa.bool_(), True),
        ("receipt", pa.large_string(), True),
    ],
    "origins": [
        ("group_id", pa.string(), False),
        ("rollout_id", pa.string(), False),
        ("call_index", pa.uint32(), False),
        ("file", pa.string(), False),
        ("line", pa.uint64(), False),
    ],
}
# Lists that are kept as their bytes, so that no bit of a float is lost, with the bytes of an item.
PACKED = {"token_ids": 4, "generation_logprobs": 4, "raw_token_mask": 8, "raw_logprobs": 8}
SIGNED = [
    "schema_version",
    "digest_version",
    "extras_digest_version",
    "digest",
    "extras_digest",
    "chain_hash",
    "cumulative_hash",
]


@dataclass
class Rollout:
    """A rollout with its ledger rows by kind, and its calls with their origins."""

    row: dict
    ledger: dict = field(default_factory=lambda: {kind: [] for kind in KINDS})
    calls: list = field(default_factory=list)

    @property
    def scope(self):
        return self.ledger["scope"][0]


class Archive:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.manifest = read_manifest((self.folder / "archive.json").read_bytes())
        self.files = {file["path"]: file for file in self.manifest["files"]}
        check_list(self.manifest, self.files)
        self.parts = [self.read_part(number) for number in range(len(self.manifest["parts"]))]
        self.rollouts = [rollout for part in self.parts for rollout in part]
        self.quarantine = self.read_quarantine()

    def bytes(self, path):
        """The bytes of a listed file, once they are known to be those that were written."""
        entry = self.files[path]
        file = self.folder / path
        need(file.stat().st_size == entry["bytes"], f"{path} has another size than its entry")
        content = file.read_bytes()
        need(blake3(content).hexdigest() == entry["blake3"], f"{path} has another BLAKE3")
        return content

    def table(self, table, number):
        """The rows of one table of one part, with the columns that the document names."""
        path = part_path(table, number)
        file = pq.ParquetFile(io.BytesIO(self.bytes(path)))
        schema = file.schema_arrow
        for name, kind, _ in COLUMNS[table]:
            need(name in schema.names, f"{path} has no column {name}")
            found = schema.field(name).type
            need(found == kind, f"{path}: column {name} is {found}, not {kind}")
        need(schema.names[:2] == ["group_id", "rollout_id"], f"{path}: other columns come first")
        content = file.read(columns=[name for name, _, _ in COLUMNS[table]])
        need(content.num_rows == self.files[path]["rows"], f"{path} has another number of rows")
        columns = {}
        for name, _, nullable in COLUMNS[table]:
            column = content.column(name)
            need(nullable or column.null_count == 0, f"{path}: column {name} holds null")
            columns[name] = packed(column, PACKED[name]) if name in PACKED else column.to_pylist()
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def read_part(self, number):
        """The rollouts of one part, in order."""
        rollouts = {}
        for row in self.table("rollouts", number):
            key = (row["group_id"], row["rollout_id"])
            need(key not in rollouts, f"rollout {key} is there twice")
            rollouts[key] = Rollout(row)
        in_order([order(r.row) for r in rollouts.values()], f"rollouts of part {number}")
        places = {key: place for place, key in enumerate(rollouts)}

        def rows(table, within):
            found = self.table(table, number)
            owner = [(row["group_id"], row["rollout_id"]) for row in found]
            need(all(key in rollouts for key in owner), f"{table} of part {number} has strangers")
            keys = [(places[key], *within(row)) for key, row in zip(owner, found)]
            in_order(keys, f"{table} of part {number}")
            return zip(owner, found)

        for key, row in rows("ledger", lambda row: (KINDS.index(row["kind"]), row["ordinal"])):
            entries = rollouts[key].ledger[row["kind"]]
            need(row["ordinal"] == len(entries), f"ledger of {key}: an ordinal is left out")
            entries.append(row)
        for key, row in rows("calls", lambda row: (row["call_index"],)):
            calls = rollouts[key].calls
            need(row["call_index"] == len(calls), f"calls of {key}: an index is left out")
            calls.append(row)
        origins = 0
        for key, row in rows("origins", lambda row: (row["call_index"],)):
            need(row["call_index"] < len(rollouts[key].calls), f"origins of {key}: no such call")
            rollouts[key].calls[row["call_index"]]["origin"] = (row["file"], row["line"])
            origins += 1
        rollouts = list(rollouts.values())
        need(origins == sum(len(r.calls) for r in rollouts), f"origins of part {number}: too few")
        for rollout in rollouts:
            check_rollout(rollout)
        self.check_counts(number, rollouts)
        return rollouts

    def check_counts(self, number, rollouts):
        calls = [call for rollout in rollouts for call in rollout.calls]
        counts = {
            "groups": len({rollout.row["group_id"] for rollout in rollouts}),
            "rollouts": len(rollouts),
            "calls": len(calls),
            "tokens": sum(len(tokens(call)) for call in calls),
            "generated_tokens": sum(len(tokens(call)[call["carry_len"] :]) for call in calls),
        }
        stated = self.manifest["parts"][number]
        need(all(stated[key] == counts[key] for key in counts), f"part {number} counts {counts}")

    def read_quarantine(self):
        lines = self.bytes("quarantine.jsonl").decode().split("\n")
        need(lines.pop() == "", "quarantine.jsonl does not end with a line break")
        need(len(lines) == self.files["quarantine.jsonl"]["rows"], "quarantine.jsonl: other lines")
        entries = [json.loads(line) for line in lines]
        for entry in entries:
            need({"source", "code", "message"} <= entry.keys(), f"quarantined without why: {entry}")
            need(len(entry.get("text", "").encode()) <= 1024, "quarantine.jsonl keeps a long text")
        keys = [(entry["source"].encode(), entry.get("line", 0)) for entry in entries]
        need(keys == sorted(keys), "quarantine.jsonl is out of order")
        return entries

    def check_whole(self):
        """What spans parts: identities, totals, and the digest of the content."""
        part_of = {}
        for number, part in enumerate(self.parts):
            for rollout in part:
                group = rollout.row["group_id"]
                need(part_of.setdefault(group, number) == number, f"group {group} is in two parts")
        ids = {rollout.row["rollout_id"] for rollout in self.rollouts}
        need(len(ids) == len(self.rollouts), "a rollout_id is there twice")
        counts = self.manifest["counts"]
        for key in ("groups", "rollouts", "calls", "tokens", "generated_tokens"):
            total = sum(part[key] for part in self.manifest["parts"])
            need(counts[key] == total, f"counts.{key} is not the sum over the parts")
        need(counts["quarantined"] == len(self.quarantine), "counts.quarantined is another number")
        for rollout in self.rollouts:
            found = rollout_digest(rollout)
            need(found == rollout.row["digest"], f"{rollout.row['rollout_id']}: digest differs")
        need(content_digest(self.rollouts) == self.manifest["content"], "content differs")

    def is_in_order(self):
        """Whether groups ascend over all parts, as they do when nothing was added later."""
        orders = [order(rollout.row) for rollout in self.rollouts]
        return orders == sorted(orders)


def read_manifest(raw):
    manifest = json.loads(raw)
    head = manifest["format"]
    need(head["name"] == "forestctl-archive", "archive.json is of something else")
    version = f"{head['major']}.{head['minor']}"
    need(head["major"] == MAJOR, f"archive format {version}; this reader reads {MAJOR}.x")
    need(list(manifest)[-1] == "blake3", "blake3 is not the last member of archive.json")
    end = f'"{manifest["blake3"]}"\n}}\n'.encode()
    need(raw.endswith(end), "archive.json does not end with its digest")
    digest = blake3(raw[: -len(end)] + b'""\n}').hexdigest()
    need(digest == manifest["blake3"], "archive.json was changed")
    return manifest


def check_list(manifest, files):
    for path in files:
        parts = path.split("/")
        need(all(part not in ("", ".", "..") for part in parts), f"path {path!r} leaves the archive")
    in_order([(file["path"].encode(),) for file in manifest["files"]], "files of archive.json")
    sources = [source["path"].encode() for source in manifest["sources"]]
    need(sources == sorted(sources), "sources of archive.json are out of order")
    for number in range(len(manifest["parts"])):
        for table in PART_TABLES:
            need(part_path(table, number) in files, f"part {number} has no table {table}")


def part_path(table, number):
    return f"{table}/part-{number:05}.parquet"


def in_order(keys, what):
    need(all(a < b for a, b in zip(keys, keys[1:])), f"{what}: out of order, or there twice")


def order(row):
    return (row["group_id"].encode(), row["slot"], row["rollout_id"].encode())


def packed(column, width):
    """Each list of a column as the bytes of its items."""
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    if len(lists) == 0:
        return []
    need(lists.values.null_count == 0, "a list holds null")
    start = lists.values.offset
    buffer = lists.values.buffers()[1]
    data = buffer.to_pybytes() if buffer else b""
    ends = lists.offsets.to_pylist()
    return [
        data[(start + begin) * width : (start + end) * width] if valid else None
        for begin, end, valid in zip(ends, ends[1:], lists.is_valid().to_pylist())
    ]


def tokens(call):
    """The delta."""
    return struct.unpack(f"<{len(call['token_ids']) // 4}I", call["token_ids"])


def columns(call):
    """Mask and log-probabilities of the delta, as lists of f64."""
    if call["raw_token_mask"] is not None:
        return tuple(
            list(struct.unpack(f"<{len(call[name]) // 8}d", call[name]))
            for name in ("raw_token_mask", "raw_logprobs")
        )
    generated = struct.unpack(
        f"<{len(call['generation_logprobs']) // 4}f", call["generation_logprobs"]
    )
    carry = [0.0] * call["carry_len"]
    return carry + [1.0] * len(generated), carry + list(generated)


def extras(call):
    """The text of the extras with the routes put back, or None."""
    text = call["extras"]
    if call["routes"] is None:
        return text
    raw, at = text.encode(), call["routes_at"]
    need(at <= len(raw), "routes_at is no place in extras")
    return (raw[:at] + base64.b64encode(call["routes"]) + raw[at:]).decode()


def check_rollout(rollout):
    """What the sections of the tables say of one rollout."""
    row = rollout.row
    name = row["rollout_id"]
    need(row["source"] in SOURCES, f"{name}: source {row['source']}")
    need(row["completeness"] in COMPLETENESS, f"{name}: completeness {row['completeness']}")
    need(len(rollout.ledger["scope"]) == 1, f"{name}: not one scope row")
    committed = {}
    for entry in rollout.ledger["committed"]:
        committed.setdefault(entry["call_id"], len(committed))
    late = len(committed)
    keys = [
        (committed.get(c["call_id"], late), "" if c["call_id"] in committed else c["call_id"])
        for c in rollout.calls
    ]
    need(keys == sorted(keys), f"{name}: calls are out of order")
    for kind, entries in rollout.ledger.items():
        own = {
            "scope": {"reason", "capture_poisoned", "receipt"},
            "committed": {
                "response_id",
                "completion_recorded",
                "status",
                "finish_reason",
                "output_items",
                "output_fingerprint",
                "fingerprint_version",
            },
            "failed": {"reason"},
        }.get(kind, set()) | {"group_id", "rollout_id", "kind", "ordinal", "call_id"}
        always = {"scope": ["capture_poisoned"], "failed": ["call_id", "reason"]}.get(kind)
        if kind == "committed":
            always = ["call_id", "completion_recorded", "fingerprint_version"]
        for entry in entries:
            strange = [key for key in entry if entry[key] is not None and key not in own]
            need(not strange, f"{name}: {kind} row with {strange}")
            lacking = [key for key in always or ["call_id"] if entry[key] is None]
            need(not lacking, f"{name}: {kind} row without {lacking}")
    for call in rollout.calls:
        check_call(f"{name}: call {call['call_id']}", call)


def check_call(name, call):
    need(call["mode"] in ("text", "token_in"), f"{name}: mode {call['mode']}")
    raw, media = ["raw_token_mask", "raw_logprobs"], [c for c in call if c.startswith("media_")]
    media.remove("media_tensors")
    need(call["media_tensors"] != [], f"{name}: no tensors, and a list of them")
    for group in (SIGNED, raw, ["routes", "routes_at"], media):
        nulls = {call[column] is None for column in group}
        need(len(nulls) == 1, f"{name}: only some of {group}")
    need(call["routes"] is None or call["extras"] is not None, f"{name}: routes of no extras")
    if call["raw_token_mask"] is None:
        split = call["carry_len"] + len(call["generation_logprobs"]) // 4
        need(split == len(tokens(call)), f"{name}: carry and generation are not the delta")


class Fields:
    """Feeds fields to BLAKE3 as the section on the rollout digest says."""

    def __init__(self, domain):
        self.hash = blake3(domain.encode() + b"\0")

    def raw(self, data):
        self.hash.update(data)

    def number(self, number):
        self.raw(struct.pack("<Q", number))

    def float(self, value):
        self.raw(struct.pack("<d", value))

    def flag(self, flag):
        self.raw(bytes([flag]))

    def text(self, text):
        data = text.encode()
        self.number(len(data))
        self.raw(data)

    def packed(self, data, width):
        self.number(len(data) // width)
        self.raw(data)

    def optional(self, value, write):
        self.flag(value is not None)
        if value is not None:
            write(value)

    def list(self, items, write):
        self.number(len(items))
        for item in items:
            write(item)


def rollout_digest(rollout):
    row = rollout.row
    out = Fields("forestctl/rollout/v1")
    out.text(row["rollout_id"])
    out.number(row["slot"])
    out.text(row["capture_key"])
    out.optional(row["reward"], out.float)
    out.flag(row["mask_sample"])
    out.optional(row["result"], out.text)
    out.number(SOURCES.index(row["source"]))
    out.number(COMPLETENESS.index(row["completeness"]))

    def item(item):
        out.optional(item["id"], out.text)
        out.optional(item["type"], out.text)
        out.optional(item["fingerprint"], out.raw)

    def committed(entry):
        out.text(entry["call_id"])
        out.optional(entry["response_id"], out.text)
        out.flag(entry["completion_recorded"])
        if entry["completion_recorded"]:
            out.optional(entry["status"], out.text)
            out.optional(entry["finish_reason"], out.text)
        out.optional(entry["output_items"], lambda items: out.list(items, item))
        out.optional(entry["output_fingerprint"], out.raw)
        out.number(entry["fingerprint_version"])

    def failed(entry):
        out.text(entry["call_id"])
        out.text(entry["reason"])

    ledger, scope = rollout.ledger, rollout.scope
    out.optional(scope["receipt"], out.text)
    out.list(ledger["committed"], committed)
    out.list(ledger["attempted"], lambda entry: out.text(entry["call_id"]))
    out.list(ledger["pending"], lambda entry: out.text(entry["call_id"]))
    out.list(ledger["failed"], failed)
    out.optional(scope["call_id"], out.text)
    out.flag(scope["capture_poisoned"])
    out.optional(scope["reason"], out.text)
    out.list(rollout.calls, lambda call: call_fields(out, call))
    return out.hash.digest()


def call_fields(out, call):
    out.text(call["call_id"])
    out.text(call["capture_key"])
    out.optional(call["source_capture_key"], out.text)
    out.optional(call["parent_call_id"], out.text)
    out.text(call["mode"])
    for length in ("prev_len", "delta_len", "cum_len", "carry_len"):
        out.number(call[length])
    out.optional(call["weight_version"], out.number)
    out.packed(call["token_ids"], 4)
    out.packed(call["generation_logprobs"], 4)
    out.flag(call["raw_token_mask"] is not None)
    if call["raw_token_mask"] is not None:
        out.packed(call["raw_token_mask"], 8)
        out.packed(call["raw_logprobs"], 8)
    out.flag(call["digest"] is not None)
    if call["digest"] is not None:
        for version in SIGNED[:3]:
            out.number(call[version])
        for digest in SIGNED[3:]:
            out.raw(call[digest])
    out.optional(call["entry_digest"], out.raw)
    out.optional(extras(call), out.text)
    out.flag(call["media_present"] is not None)
    if call["media_present"] is not None:
        out.flag(call["media_present"])
        out.flag(call["media_has_frames"])
        out.raw(call["media_metadata_digest"])
    out.list(call["media_tensors"] or [], lambda tensor: tensor_fields(out, tensor))


def tensor_fields(out, tensor):
    out.text(tensor["field"])
    out.text(tensor["dtype"])
    out.list(tensor["shape"], out.number)
    out.flag(tensor["data"] is not None)
    if tensor["data"] is not None:
        out.number(len(tensor["data"]))
        out.raw(tensor["data"])
    else:
        out.list(tensor["pieces"], lambda piece: piece_fields(out, piece))


def piece_fields(out, piece):
    out.raw(piece["digest"])
    out.number(piece["bytes"])


def content_digest(rollouts):
    out = Fields("forestctl/archive-content/v2")
    for row in sorted((rollout.row for rollout in rollouts), key=order):
        out.text(row["group_id"])
        out.text(row["rollout_id"])
        out.number(row["slot"])
        out.number(row["group_size"])
        out.raw(row["digest"])
    return out.hash.hexdigest()
