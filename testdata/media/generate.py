#!/usr/bin/env python3
"""Writes the media fixtures beside it, and what every case must come to. Standard library only.

Nothing of forestctl is used: digests, fingerprints and safetensors files are those of `wire.py`, and
the verdicts in `expected.json` are this file's own words.

    capture/        one staged capture; every case is a prompt group of one rollout
    broken/         a capture of one rollout with sidecars that cannot be read or contradict
    expected.json   per case: codes of validation, verdict and reasons of selection, rows; per call:
                    its tensors and the pieces that they are stored as, by SHA-256

Every pixel is noise that depends on the image's name alone, so the same image has the same bytes
wherever it occurs. The patch side is 2, and a token stands for 2x2 patches, unless a case says so.
"""

import copy
import hashlib
import json
import os
import shutil
import struct

from wire import (
    call_digest, chain_hash, cumulative_hash, dump, extras_digest, fingerprint, metadata_digest,
    safetensors, sha, with_header,
)

HERE = os.path.dirname(os.path.abspath(__file__))
IMAGE, VIDEO = 301, 302  # placeholder tokens
ZEROS = "0" * 64


# --- media ---------------------------------------------------------------------------------

WIDTHS = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}


class Image:
    def __init__(self, name, height, width, frames=None, dtype="BF16", side=2, merge=2):
        self.name, self.height, self.width, self.frames = name, height, width, frames
        self.dtype, self.side, self.merge = dtype, side, merge
        self.patches = height // side * (width // side) * (frames or 1)
        self.length = self.patches // merge**2
        self.token = IMAGE if frames in (None, 1) else VIDEO

    def pixels(self):
        length = self.patches * 3 * self.side**2 * WIDTHS[self.dtype]
        return hashlib.shake_128(self.name.encode()).digest(length)

    def occurrence(self, offset):
        found = {
            "offset": offset, "length": self.length, "height": self.height, "width": self.width,
            "token_id": self.token,
        }
        if self.frames is not None:
            found["frames"] = self.frames
        return found


def integers(*values):
    return b"".join(struct.pack("<i", v) for v in values)


def tensors_of(images):
    """field -> (dtype, shape, bytes)"""
    if not images:
        return {}
    first = images[0]
    found = {
        "media_imgs": (
            first.dtype,
            [sum(i.patches for i in images), 3 * first.side**2],
            b"".join(i.pixels() for i in images),
        ),
        "media_imgs_sizes": (
            "I32", [len(images), 2], integers(*(n for i in images for n in (i.height, i.width))),
        ),
    }
    if first.frames is not None:
        found["media_num_frames"] = ("I32", [len(images)], integers(*(i.frames or 1 for i in images)))
    return found


def stored_pieces(tensors):
    """The pixels as an archive stores them: by image, where the sidecar tells where images end."""
    if "media_imgs" not in tensors:
        return []
    _, shape, data = tensors["media_imgs"]
    whole = [data] if data else []
    sizes, frames = tensors.get("media_imgs_sizes"), tensors.get("media_num_frames")
    side = int((shape[-1] // 3) ** 0.5) if len(shape) == 2 else 0
    if side == 0 or 3 * side**2 != shape[1] or not sizes or sizes[0] != "I32":
        return whole
    numbers = [n for (n,) in struct.iter_unpack("<i", sizes[2])]
    pairs = list(zip(numbers[::2], numbers[1::2]))
    if len(numbers) % 2:
        return whole
    if frames is None:
        counts = [1] * len(pairs)
    elif frames[0] == "I32":
        counts = [n for (n,) in struct.iter_unpack("<i", frames[2])]
    else:
        return whole
    if len(counts) != len(pairs):
        return whole
    row = len(data) // shape[0]
    pieces, at = [], 0
    for (height, width), count in zip(pairs, counts):
        if height <= 0 or width <= 0 or count <= 0 or height % side or width % side:
            return whole
        end = at + height // side * (width // side) * count * row
        pieces.append(data[at:end])
        at = end
    return pieces if at == len(data) else whole


# --- a capture -----------------------------------------------------------------------------


class Capture:
    def __init__(self):
        self.staged, self.receipts, self.rollouts, self.media = [], [], [], []
        self.sidecars = [{}, {}]
        self.cases, self.calls, self.distinct = {}, {}, set()

    def write(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.join(folder, "media"))
        for name in ("staged", "receipts", "rollouts", "media"):
            with open(os.path.join(folder, name + ".jsonl"), "w") as file:
                file.writelines(dump(line) + "\n" for line in getattr(self, name))
        for i, tensors in enumerate(self.sidecars):
            with open(os.path.join(folder, "media", f"part-{i}.safetensors"), "wb") as file:
                file.write(safetensors(tensors))


class Case:
    """One rollout. Whatever is wrong with it is made wrong by `change` before, or by `after`
    once it is signed."""

    def __init__(self, capture, name, schema=2, scope=None):
        self.capture, self.name, self.schema = capture, name, schema
        self.scope = scope or name + "-0"
        self.records, self.retained, self.tokens = {}, {}, {}

    def id(self, call):
        return f"{self.name}.{call}"

    def call(self, name, parent, prompt, change=None, after=None, call_id=None, source=None):
        """`prompt` holds tokens and images. Two tokens are generated."""
        call_id = call_id or self.id(name)
        before = self.tokens[parent] if parent else []
        draft = {"tokens": [], "images": [], "occurrences": []}
        for part in prompt:
            if isinstance(part, Image):
                draft["occurrences"].append(part.occurrence(len(before) + len(draft["tokens"])))
                draft["images"].append(part)
                draft["tokens"] += [part.token] * part.length
            else:
                draft["tokens"].append(part)
        images, new = draft["images"], draft["occurrences"]
        old = self.retained[parent] if parent else []
        draft["geometry"] = None
        if images:
            prefix = extras_digest({"images": old})
            draft["geometry"] = {"prefix_digest": prefix, "images": copy.deepcopy(new)}
        draft["tensors"] = tensors_of(images)
        draft["retained"] = old + new
        draft["line"] = bool(images)
        draft["extras"] = {"note": "é 😀"} if len(self.records) % 2 else {}
        if change:
            change(draft)
        if draft["geometry"] is not None:
            draft["extras"]["cc_image_geometry"] = draft["geometry"]
        extras = draft["extras"] or None
        carry, generation = draft["tokens"], [900 + len(self.records), 901]
        delta = carry + generation
        above = self.records[parent] if parent else None
        record = {
            "schema_version": self.schema, "digest_version": 2, "extras_digest_version": 1,
            ("capture_key" if self.schema == 3 else "rollout_id"): self.scope,
            "model_call_id": call_id,
            "parent_call_id": above["model_call_id"] if above else None,
            "mode": "token_in" if above else "text",
            "prev_len": len(before), "delta_len": len(delta), "cum_len": len(before) + len(delta),
            "weight_version": 7,
            "token_ids_delta": delta,
            "token_mask_delta": [0.0] * len(carry) + [1.0] * 2,
            "generation_log_probs_delta": [0.0] * len(carry) + [-0.5, -1.25],
            "extras_digest": extras_digest(extras),
            "chain_hash": chain_hash(above["chain_hash"] if above else None, delta),
            "cumulative_hash": cumulative_hash(before + delta),
            "extras": extras,
        }
        if source:
            record["source_capture_key"] = source
        record["digest"] = call_digest(self.schema, record, self.scope)
        frames = any(o.get("frames") is not None for o in (draft["geometry"] or {}).get("images", []))
        line = {
            ("capture_key" if self.schema == 3 else "rollout_id"): self.scope,
            "model_call_id": call_id, "media_present": bool(draft["line"]),
            "media_has_frames": frames, "media_metadata_digest": metadata_digest(extras, len(self.records) % 4 == 1),
        }
        signed = copy.deepcopy(record)
        if after:
            after(record, line)
        self.capture.staged.append(record)
        if draft["line"] or draft.get("silent_line"):
            self.capture.media.append(line)
        sidecar = self.capture.sidecars[len(self.capture.cases) % 2]
        for field, tensor in draft["tensors"].items():
            sidecar[f"{call_id}/{field}"] = tensor
        pieces = [sha(piece).hexdigest() for piece in stored_pieces(draft["tensors"])]
        others = {f: t for f, t in draft["tensors"].items() if not f.startswith("media_")}
        self.capture.distinct.update(pieces)
        for _, _, data in others.values():
            self.capture.distinct.add(sha(data).hexdigest())
        self.capture.calls[call_id] = {
            "tensors": {
                field: [dtype, shape, sha(data).hexdigest()]
                for field, (dtype, shape, data) in draft["tensors"].items()
            },
            "pieces": pieces,
        }
        self.records[name] = signed
        self.retained[name] = draft["retained"]
        self.tokens[name] = before + delta
        return self

    def expect(self, errors=(), selected=None, reasons=(), rows=None):
        """`errors`: (call, code) of validation. `rows`: calls of each row, for a valid rollout."""
        selected = selected or list(self.records)
        call_ids = {name: r["model_call_id"] for name, r in self.records.items()}
        manifest, calls, output = [], {}, []
        for name, record in self.records.items():
            answer = f"answer {call_ids[name]}"
            items = [{"id": f"msg_{call_ids[name]}", "fingerprint": fingerprint(answer)}]
            if self.schema == 2:
                items[0]["type"] = "message"
            row = {
                k: record[k]
                for k in (
                    "schema_version", "digest_version", "extras_digest_version", "model_call_id",
                    "parent_call_id", "prev_len", "delta_len", "cum_len", "weight_version", "digest",
                    "extras_digest", "mode", "chain_hash", "cumulative_hash",
                )
            }
            row |= {
                "staging_key": f"{self.scope}/{call_ids[name]}",
                "response_id": f"resp_{call_ids[name]}",
                "output_fingerprint": fingerprint(answer), "fingerprint_version": 2,
            }
            ending = {"status": "completed", "finish_reason": "stop", "output_items": items}
            if self.schema == 3:
                row |= ending
                if "source_capture_key" in record:
                    row["source_capture_key"] = record["source_capture_key"]
            else:
                calls[call_ids[name]] = ending | {"response_id": row["response_id"]}
            manifest.append(row)
            if name in selected:
                output.append({
                    "id": items[0]["id"], "type": "message", "role": "assistant",
                    "content": [{"type": "output_text", "text": answer}],
                })
                output.append({"type": "message", "role": "user", "content": "go on"})
        terminal = call_ids[selected[-1]]
        receipt = {
            "schema_version": self.schema, "digest_version": 2, "extras_digest_version": 1,
            ("capture_key" if self.schema == 3 else "rollout_id"): self.scope,
            "reward": 1.0, "terminal_model_call_id": terminal, "capture_poisoned": False,
            "failure_reason": None, "terminal_selection": "declared",
            "attempted_call_ids": list(call_ids.values()), "pending_call_ids": [], "failures": [],
            "manifest": manifest,
        }
        if self.schema == 2:
            receipt["calls"] = calls
        self.capture.receipts.append(receipt)
        self.capture.rollouts.append({
            "group_id": self.name, "rollout_id": self.name + "_g0", "slot": 0, "group_size": 1,
            "capture_key": self.scope, "reward": 1.0,
            "result": {
                "response": {"id": f"resp_{terminal}", "object": "response", "output": output},
                "terminal_response_id": f"resp_{terminal}",
            },
        })
        if rows is not None:
            row_calls = [[call_ids[name] for name in row] for row in rows]
            rows = [
                {"calls": row, "media": [[c, p] for c in row for p in self.capture.calls[c]["pieces"]]}
                for row in row_calls
            ]
        self.capture.cases[self.name] = {
            "errors": [[call_ids[call], code] for call, code in errors],
            "verdict": "masked" if reasons else "valid", "reasons": list(reasons), "rows": rows,
        }


A = Image("A", 8, 12)
B = Image("B", 4, 8)
C = Image("C", 4, 4)


def positives(capture):
    def case(name, **kwargs):
        return Case(capture, name, **kwargs)

    case("a").call("c1", None, [1, 2, A, 3]).expect(rows=[["c1"]])
    case("a_then_b").call("c1", None, [1, A, 3]).call("c2", "c1", [4, B, 5]).expect(
        rows=[["c1", "c2"]]
    )
    # Rule 99: A, A+B, then a rewritten context that holds B alone, in full.
    case("rewrite_to_b").call("c1", None, [1, A, 3]).call("c2", "c1", [4, B, 5]).call(
        "c3", None, [6, B, 7]
    ).expect(rows=[["c1", "c2"], ["c3"]])
    case("rewrite_to_a_and_b").call("c1", None, [A]).call("c2", "c1", [4, B, 5]).call(
        "c3", None, [6, B, 7, A, 8]
    ).call("c4", "c3", [9, C, C, 10]).expect(rows=[["c1", "c2"], ["c3", "c4"]])
    case("text_between").call("c1", None, [1, A]).call("c2", "c1", [4, 5]).call(
        "c3", "c2", [6, B]
    ).expect(rows=[["c1", "c2", "c3"]])
    case("branches").call("c1", None, [1, A]).call("c2", "c1", [4, B]).call(
        "c3", "c1", [5, C]
    ).expect(rows=[["c1", "c2"], ["c1", "c3"]])
    film = Image("film", 4, 4, frames=3)
    still = Image("still", 8, 4, frames=1)
    case("video").call("c1", None, [1, film, 2, still, 3]).call(
        "c2", "c1", [4, Image("film 2", 4, 8, frames=2)]
    ).expect(rows=[["c1", "c2"]])
    case("float16").call("c1", None, [1, Image("half", 4, 4, dtype="F16")]).expect(rows=[["c1"]])
    case("float32").call("c1", None, [1, Image("full", 4, 4, dtype="F32")]).expect(rows=[["c1"]])
    # Two chains of one rollout may differ in type and patch size, but not in what a token stands for.
    case("two_dtypes").call("c1", None, [1, A]).call(
        "c2", None, [2, Image("other", 6, 6, dtype="F32", side=3, merge=1)]
    ).expect(
        errors=[("c2", "media_merge_mismatch")], reasons=["media_merge_mismatch"]
    )
    case("two_dtypes_apart").call("c1", None, [1, A]).call(
        "c2", None, [2, Image("other 2", 6, 12, dtype="F32", side=3)]
    ).expect(rows=[["c1"], ["c2"]])
    case("text_only").call("c1", None, [1, 2, 3]).call("c2", "c1", [4]).expect(rows=[["c1", "c2"]])

    def says_nothing(draft):
        draft["geometry"] = {"prefix_digest": extras_digest({"images": []}), "images": []}
        draft["silent_line"] = True

    case("empty_geometry").call("c1", None, [1, 2], change=says_nothing).expect(rows=[["c1"]])

    # A null count is no count, and digests see that it was spelled.
    def null_frames(draft):
        draft["geometry"]["images"][0]["frames"] = None
        draft["retained"] = copy.deepcopy(draft["geometry"]["images"])

    case("null_frames").call("c1", None, [1, A], change=null_frames).call(
        "c2", "c1", [2, B]
    ).expect(rows=[["c1", "c2"]])

    # A bad call that the harness left out leaves the rollout alone; selected, it masks it (rule 91).
    def one_less(draft):
        draft["geometry"]["images"][0]["offset"] += 1

    for name, selected, reasons, rows in [
        ("bad_unselected", ["c1", "c3"], [], [["c1", "c3"]]),
        ("bad_selected", ["c1", "c2", "c3"], ["media_token_mismatch"], None),
    ]:
        case(name).call("c1", None, [1, A]).call("c2", "c1", [2, B, 3], change=one_less).call(
            "c3", "c1", [4, C]
        ).expect(
            errors=[("c2", "media_token_mismatch")], selected=selected, reasons=reasons, rows=rows
        )
    # Likewise for what only the whole rollout can tell.
    odd = Image("odd", 4, 4, merge=1)
    for name, selected, reasons, rows in [
        ("odd_merge_unselected", ["c2"], [], [["c2"]]),
        ("odd_merge_selected", ["c1", "c2"], ["media_merge_mismatch"], None),
    ]:
        case(name).call("c1", None, [1, odd]).call("c2", None, [2, A]).expect(
            errors=[("c2", "media_merge_mismatch")], selected=selected, reasons=reasons, rows=rows
        )
    # A restored call: an earlier attempt's record and its successor's, under one call id.
    shared = "restored/call"
    case("restored", schema=3, scope="restored-0").call("c1", None, [1, A], call_id=shared).expect(
        rows=[["c1"]]
    )
    case("restoring", schema=3, scope="restoring-0-a1").call(
        "c1", None, [1, A], call_id=shared, source="restored-0"
    ).call("c2", "c1", [2, B]).expect(rows=[["c1", "c2"]])


def negatives(capture):
    def bad(name, code, prompt, change=None, after=None, more=()):
        """A call that is wrong by itself, after a sound root where `more` continues it."""
        case = Case(capture, name)
        case.call("c1", None, prompt, change, after)
        for n, (parent, more_prompt) in enumerate(more):
            case.call(f"c{n + 2}", parent, more_prompt)
        case.expect(errors=[("c1", code)], reasons=[code])

    def chain(name, code, first, second, change=None):
        """A continuation that is wrong in view of its parent."""
        Case(capture, name).call("c1", None, first).call("c2", "c1", second, change).expect(
            errors=[("c2", code)], reasons=[code]
        )

    def geometry(n, **members):
        def change(draft):
            draft["geometry"]["images"][n].update(members)

        return change

    def tensor(field, *content):
        def change(draft):
            if content:
                draft["tensors"][field] = content
            else:
                del draft["tensors"][field]

        return change

    def line(**members):
        return lambda record, line: line.update(members)

    def no_line(draft):
        draft["line"] = False

    # Flags against extras.
    bad("absent_flag", "media_flag_mismatch", [1, A], after=line(media_present=False))
    bad("frames_flag", "media_flag_mismatch", [1, A], after=line(media_has_frames=True))
    bad("no_line", "media_flag_mismatch", [1, A], change=no_line)
    bad("metadata", "media_metadata_mismatch", [1, A], after=line(media_metadata_digest=ZEROS))

    def claims(draft):
        draft["line"] = True

    bad("flag_without_geometry", "media_flag_mismatch", [1, 2], change=claims)

    # Geometry that cannot be read.
    bad("unknown_member", "invalid_media_geometry", [1, A], geometry(0, grid=[4, 6]))
    bad("negative_offset", "invalid_media_geometry", [1, A], geometry(0, offset=-1))
    bad("float_height", "invalid_media_geometry", [1, A], geometry(0, height=8.0))
    bad("zero_length", "invalid_media_geometry", [1, A], geometry(0, length=0))

    def no_prefix(draft):
        del draft["geometry"]["prefix_digest"]

    bad("no_prefix_digest", "invalid_media_geometry", [1, A], no_prefix)

    # Spans and tokens. A moved span is signed again, or else is told by its signature.
    bad("moved_span", "media_token_mismatch", [1, A, 3], geometry(0, offset=2))
    bad("wrong_token_id", "media_token_mismatch", [1, A], geometry(0, token_id=VIDEO))

    def moved_unsigned(record, _line):
        record["extras"]["cc_image_geometry"]["images"][0]["offset"] += 1

    case = Case(capture, "moved_span_unsigned")
    case.call("c1", None, [1, A, 3], after=moved_unsigned)
    case.expect(errors=[("c1", "corrupt_extras_digest")], reasons=["corrupt_extras_digest"])

    def swapped(draft):
        draft["geometry"]["images"].reverse()

    bad("out_of_order", "media_span_order", [1, B, 2, B], swapped)
    bad("overlapping", "media_span_order", [1, C, C], geometry(1, offset=1))
    bad("into_generation", "media_span_outside_prompt", [1, C], geometry(0, length=2))
    bad("far_offset", "media_span_outside_prompt", [1, C], geometry(0, offset=2**62))

    def hidden(draft):
        del draft["geometry"]["images"][0]
        draft["tensors"] = tensors_of([B])

    bad("uncovered", "media_uncovered", [1, A, 2, B], hidden)

    # Retained media.
    def again(**members):
        def change(draft):
            old = dict(draft["retained"][0], **members)
            draft["geometry"]["images"].insert(0, old)
            draft["tensors"] = tensors_of([A, B])

        return change

    chain("listed_again", "media_not_new", [1, A], [2, B], again())
    chain("changed_again", "media_retained_changed", [1, A], [2, B], again(height=12, width=8))
    chain("before_prompt", "media_span_outside_prompt", [1, 1, C], [2, C],
          lambda d: d["geometry"]["images"][0].update(offset=0))

    def retained_changed(draft):
        old = copy.deepcopy(draft["retained"][:-1])
        old[0].update(height=12, width=8)
        draft["geometry"]["prefix_digest"] = extras_digest({"images": old})

    chain("retained_geometry", "media_prefix_mismatch", [1, A], [2, B], retained_changed)

    def forgets(draft):
        draft["geometry"]["prefix_digest"] = extras_digest({"images": []})

    chain("forgotten", "media_prefix_mismatch", [1, A], [2, B], forgets)

    def remembers(draft):
        draft["geometry"]["prefix_digest"] = extras_digest({"images": [A.occurrence(1)]})

    bad("root_with_prefix", "media_prefix_mismatch", [1, B], remembers)

    def off_by_one(draft):
        draft["geometry"]["images"][0]["offset"] += 1

    # Below a bad ancestor nothing more is said.
    bad("bad_ancestor", "media_token_mismatch", [1, A, 3], off_by_one, more=[("c1", [2, B])])

    # Tensors.
    bad("no_pixels", "missing_media_tensor", [1, A], tensor("media_imgs"))
    bad("no_sizes", "missing_media_tensor", [1, A], tensor("media_imgs_sizes"))
    film = Image("film", 4, 4, frames=3)
    bad("no_frames", "missing_media_tensor", [1, film], tensor("media_num_frames"))
    bad("frames_of_stills", "unexpected_media_tensor", [1, A],
        tensor("media_num_frames", "I32", [1], integers(1)))
    bad("unknown_tensor", "unexpected_media_tensor", [1, A],
        tensor("audio_features", "F32", [2, 2], bytes(range(16))))
    bad("tensor_of_text", "unexpected_media_tensor", [1, 2],
        tensor("media_imgs", *tensors_of([C])["media_imgs"]))
    double = Image("double", 4, 4, dtype="F64")
    bad("double_pixels", "invalid_media_tensor", [1, double])
    bad("flat_pixels", "invalid_media_tensor", [1, C],
        tensor("media_imgs", "BF16", [48], C.pixels()))
    bad("odd_width", "invalid_media_tensor", [1, C],
        tensor("media_imgs", "BF16", [3, 16], C.pixels()))
    bad("long_sizes", "invalid_media_tensor", [1, C],
        tensor("media_imgs_sizes", "I64", [1, 2], struct.pack("<qq", 4, 4)))
    bad("flat_sizes", "invalid_media_tensor", [1, C],
        tensor("media_imgs_sizes", "I32", [2], integers(4, 4)))
    bad("size_count", "media_count_mismatch", [1, C],
        tensor("media_imgs_sizes", "I32", [2, 2], integers(4, 4, 4, 4)))
    bad("frame_entries", "media_count_mismatch", [1, film],
        tensor("media_num_frames", "I32", [2], integers(3, 3)))
    bad("transposed", "media_size_mismatch", [1, A],
        tensor("media_imgs_sizes", "I32", [1, 2], integers(12, 8)))
    bad("frame_off_by_one", "media_frame_mismatch", [1, film],
        tensor("media_num_frames", "I32", [1], integers(4)))
    bad("frame_off_by_one_in_extras", "media_frame_mismatch", [1, film], geometry(0, frames=2))

    def both_frames(draft):
        geometry(0, frames=4)(draft)
        tensor("media_num_frames", "I32", [1], integers(4))(draft)

    bad("frame_off_by_one_in_both", "media_patch_mismatch", [1, film], both_frames)

    def ragged(draft):
        geometry(0, height=9)(draft)
        tensor("media_imgs_sizes", "I32", [1, 2], integers(9, 12))(draft)

    bad("ragged", "media_size_indivisible", [1, A], ragged)

    def fewer(draft):
        draft["tensors"]["media_imgs"] = ("BF16", [23, 12], A.pixels()[: 23 * 24])

    bad("lost_patch", "media_patch_mismatch", [1, A], fewer)
    bad("short_span", "media_merge_mismatch", [1, IMAGE, A, 2], geometry(0, length=5))
    bad("two_merges", "media_merge_mismatch", [1, C, Image("fine", 4, 4, merge=1)])
    bad("mixed_frames", "media_frames_mixed", [1, film, C],
        tensor("media_num_frames", "I32", [2], integers(3, 1)))
    chain("mixed_chain", "media_frames_mixed", [1, film], [2, C])
    chain("dtype_in_chain", "media_dtype_mismatch", [1, A], [2, Image("f", 4, 4, dtype="F16")])
    chain("side_in_chain", "media_patch_size_mismatch", [1, A], [2, Image("s", 6, 6, side=3)])


def broken_sidecars(folder):
    """A capture of one rollout, whose tensors are fine, among sidecars that are not."""
    capture = Capture()
    case = Case(capture, "a")
    case.call("c1", None, [1, A]).expect(rows=[["c1"]])
    case = Case(capture, "torn")
    case.call("c1", None, [1, B]).expect(
        errors=[("c1", "missing_media_tensor")], reasons=["missing_media_tensor"]
    )
    capture.write(folder)

    def header(**tensors):
        return dump({k: dict(zip(("dtype", "shape", "data_offsets"), v)) for k, v in tensors.items()})

    pixels = capture.sidecars[1]["torn.c1/media_imgs"]
    flipped = bytes([pixels[2][0] ^ 1]) + pixels[2][1:]
    nested = '{"a/x":' + "[" * 1_000
    files = {
        "short": ("malformed_sidecar", b"\x10\0\0"),
        "longer_header_than_file": ("malformed_sidecar", struct.pack("<Q", 1 << 40) + b"{}"),
        "not_json": ("malformed_sidecar", with_header("{", b"")),
        "not_an_object": ("malformed_sidecar", with_header("[]", b"")),
        "deep": ("malformed_sidecar", with_header(nested, b"")),
        "unknown_dtype": ("malformed_sidecar", with_header(header(x=["F33", [1], [0, 4]]), b"1234")),
        "negative_shape": ("malformed_sidecar", with_header(header(x=["U8", [-4], [0, 4]]), b"1234")),
        "overflowing_shape": (
            "malformed_sidecar", with_header(header(x=["U8", [2**63, 4], [0, 4]]), b"1234"),
        ),
        "shape_and_bytes": ("malformed_sidecar", with_header(header(x=["F32", [2], [0, 4]]), b"1234")),
        "beyond_the_end": ("malformed_sidecar", with_header(header(x=["U8", [8], [0, 8]]), b"1234")),
        "backwards": ("malformed_sidecar", with_header(header(x=["U8", [0], [4, 0]]), b"1234")),
        "overlap": (
            "malformed_sidecar",
            with_header(header(x=["U8", [3], [0, 3]], y=["U8", [3], [1, 4]]), b"1234"),
        ),
        "gap": (
            "malformed_sidecar",
            with_header(header(x=["U8", [1], [0, 1]], y=["U8", [1], [3, 4]]), b"1234"),
        ),
        "trailing_bytes": ("malformed_sidecar", with_header(header(x=["U8", [2], [0, 2]]), b"1234")),
        "name_twice": (
            "malformed_sidecar",
            with_header(
                '{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},'
                '"x":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}',
                b"1234",
            ),
        ),
        "gzip": ("malformed_sidecar", b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0"),
        "nameless": ("orphan_tensor", safetensors({"media_imgs": ("U8", [1], b"1")})),
        "no_field": ("orphan_tensor", safetensors({"a.c1/": ("U8", [1], b"1")})),
        "nobody": ("orphan_tensor", safetensors({"nobody/media_imgs": ("U8", [1], b"1")})),
        # The same tensor once more is fine; another one leaves none to believe.
        "again": (None, safetensors({"a.c1/media_imgs": capture.sidecars[0]["a.c1/media_imgs"]})),
        "other_pixels": (
            "conflicting_record", safetensors({"torn.c1/media_imgs": (*pixels[:2], flipped)}),
        ),
    }
    for name, (_, content) in files.items():
        with open(os.path.join(folder, "media", name + ".safetensors"), "wb") as file:
            file.write(content)
    quarantine = [[name + ".safetensors", code] for name, (code, _) in files.items() if code]
    quarantine.append(["part-1.safetensors", "conflicting_record"])
    return {"quarantine": sorted(quarantine), "cases": capture.cases}


def main():
    capture = Capture()
    positives(capture)
    negatives(capture)
    capture.write(os.path.join(HERE, "capture"))
    expected = {
        "cases": capture.cases,
        "calls": capture.calls,
        "pieces": sorted(capture.distinct),
        "broken": broken_sidecars(os.path.join(HERE, "broken")),
    }
    with open(os.path.join(HERE, "expected.json"), "w") as file:
        json.dump(expected, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
