"""The files that an archive came from, compared with it line by line."""

import json
import pathlib

import pyarrow as pa
from blake3 import blake3

from archive import need
from captures import TOKEN_FIELDS, compare_entry, compare_inline, compare_record

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
DOUBTS = ("unresolved_parent", "parent_digest_mismatch", "conflicting_store_entry")


class Sources:
    """Files by the names that the archive has for them."""

    def __init__(self, given):
        self.paths = {}
        for source in given:
            source = pathlib.Path(source).resolve()
            for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
                if path.is_file():
                    self.paths[path.relative_to(source.parent).as_posix()] = path
        self.texts = {}

    def lines(self, name):
        """Lines of a file by number."""
        if name not in self.texts:
            need(name in self.paths, f"there is no source {name}")
            raw = self.paths[name].read_bytes()
            kind = "gzip" if raw.startswith(GZIP) else "zstd" if raw.startswith(ZSTD) else None
            if kind:
                raw = pa.CompressedInputStream(pa.BufferReader(raw), kind).read()
            lines = raw.decode("utf-8", "replace").split("\n")
            self.texts[name] = {n: line for n, line in enumerate(lines, 1) if line.strip()}
        return self.texts[name]

    def whole(self, name):
        return "\n".join(self.lines(name).values())


def compare(archive, given):
    """Compares all of the archive with its sources; returns how much was compared."""
    sources, forms = Sources(given), {}
    for source in archive.manifest["sources"]:
        name = source["path"]
        need(name in sources.paths, f"source {name} was not given")
        raw = sources.paths[name].read_bytes()
        need(len(raw) == source["bytes"], f"source {name} has another size")
        need(source["blake3"] in (None, blake3(raw).hexdigest()), f"source {name} has another BLAKE3")
        forms[name] = source["form"]
    compared = dict.fromkeys(("staged", "entries", "inline", "receipts", "rollouts"), 0)
    receipts, lines = receipt_lines(sources, forms), rollouts_lines(sources, forms, archive)
    seen = {}
    for rollout in archive.rollouts:
        seen.setdefault(rollout.row["group_id"], []).append(rollout)
    for rollout in archive.rollouts:
        key, name = rollout.row["capture_key"], rollout.row["rollout_id"]
        compare_calls(rollout, sources, forms, compared)
        compare_account(rollout, archive, sources, forms, receipts.get(key))
        compared["receipts"] += key in receipts and rollout.row["source"] == "staged"
        line = lines.get(name) or nameless_line(rollout, sources, forms)
        if line is not None:
            compare_rollout(rollout, line, len(seen[rollout.row["group_id"]]))
            compared["rollouts"] += 1
        else:
            receipt = json.loads(rollout.scope["receipt"] or '{"reward": null}')
            need(rollout.row["reward"] == receipt["reward"], f"{name}: another reward")
            need(rollout.row["result"] is None, f"{name}: a result from nowhere")
            need(not rollout.row["mask_sample"], f"{name}: mask_sample from nowhere")
    missing = lines.keys() - {rollout.row["rollout_id"] for rollout in archive.rollouts}
    need(not missing, f"rollouts {missing} are missing")
    check_coverage(archive, sources, forms)
    return compared


def check_coverage(archive, sources, forms):
    """Every line of a capture is a call, or set aside. Of equal lines one suffices in a store, and
    where the archive was added to."""
    kept = {call["origin"] for rollout in archive.rollouts for call in rollout.calls}
    aside = {(entry["source"], entry.get("line")) for entry in archive.quarantine}
    need(not kept & aside, f"both archived and set aside: {kept & aside}")
    for name, form in forms.items():
        if form in ("staged", "store") and (name, None) not in aside:
            again = {
                sources.lines(file)[line] for file, line in kept if file != name or form == "store"
            }
            for number, line in sources.lines(name).items():
                seen = (name, number) in kept | aside or line in again
                need(seen, f"{name}:{number} is neither archived nor set aside")


def receipt_lines(sources, forms):
    """Receipts by scope, verbatim."""
    found = {}
    for name in (name for name, form in forms.items() if form == "receipts"):
        for line in sources.lines(name).values():
            receipt = json.loads(line)
            found[receipt.get("capture_key") or receipt["rollout_id"]] = line.strip()
    return found


def rollouts_lines(sources, forms, archive):
    """Rollouts lines by the rollout that they name, but for those that were set aside."""
    found = {}
    aside = {(entry["source"], entry.get("line")) for entry in archive.quarantine}
    for name, form in forms.items():
        if form == "trace" and (name, None) not in aside:
            line = line_of_trace(json.loads(sources.whole(name)))
            found[line["rollout_id"]] = json.dumps(line)
        for number, line in sources.lines(name).items() if form == "rollouts" else ():
            if (name, number) in aside:
                continue
            stated = json.loads(line)
            if "group_id" in stated:
                found[stated["rollout_id"]] = line
            elif "_ng_task_index" in stated:
                found["{_ng_task_index}_g{_ng_rollout_index}".format(**stated)] = line
    return found


def nameless_line(rollout, sources, forms):
    """The line of a rollout with inline calls, which need not name it."""
    places = {call["origin"] for call in rollout.calls if forms[call["origin"][0]] == "rollouts"}
    return next((sources.lines(file)[line] for file, line in places), None)


def compare_rollout(rollout, line, seen):
    row, stated = rollout.row, json.loads(line)
    name = row["rollout_id"]
    if "group_id" in stated:
        identity = [stated[k] for k in ("group_id", "slot", "group_size", "capture_key")]
    elif "_ng_task_index" not in stated:
        group = row["group_id"]
        identity = [group, row["slot"], seen, row["capture_key"]]
        need(name == f"{group}_g{row['slot']}", f"{name} is not the name of a slot of {group}")
    else:
        task, slot = stated["_ng_task_index"], stated["_ng_rollout_index"]
        attempt = stated.get("_ng_attempt_index", 0)
        scope = f"{task}-{slot}" + (f"-a{attempt}" if attempt else "")
        identity = [str(task), slot, seen, stated.get("_ng_rollout_id", scope)]
    found = [row[k] for k in ("group_id", "slot", "group_size", "capture_key")]
    need(found == identity, f"{name}: {found} in the archive, {identity} in the line")
    need(row["reward"] == stated.get("reward"), f"{name}: another reward")
    need(row["mask_sample"] == stated.get("mask_sample", False), f"{name}: another mask_sample")
    told = "result" in stated or "response" in stated
    need((row["result"] is not None) == told, f"{name}: a result or none")
    if "result" in stated:
        need(row["result"] in line, f"{name}: result is not verbatim")
        need(json.loads(row["result"]) == stated["result"], f"{name}: another result")
    elif "response" in stated:
        inline = [i for i in stated["response"]["output"] if "generation_token_ids" in i]
        need(inline or row["result"] == line.strip(), f"{name}: result is not verbatim")
        for item in inline:
            for key in TOKEN_FIELDS:
                item.pop(key, None)
        need(json.loads(row["result"]) == stated, f"{name}: another result")


def compare_calls(rollout, sources, forms, compared):
    by_id = {}
    for call in rollout.calls:
        by_id.setdefault(call["call_id"], call)
    for number, call in enumerate(rollout.calls):
        file, line = call["origin"]
        where = f"{file}:{line}"
        need(line in sources.lines(file), f"there is no line {where}")
        text = sources.lines(file)[line]
        media = [name for name in call if name.startswith("media_") and call[name] is not None]
        need(not media or "media" in forms.values(), f"{where}: {media} from nowhere")
        match forms[file]:
            case "staged":
                compare_record(where, call, text)
                compared["staged"] += 1
            case "store":
                compare_entry(where, rollout, call, by_id, json.loads(text))
                compared["entries"] += 1
            case "rollouts":
                response = json.loads(text)["response"]
                compare_inline(where, rollout, number, by_id, response)
                compared["inline"] += 1
            case "trace":
                whole = line_of_trace(json.loads(sources.whole(file)))
                compare_inline(where, rollout, number, by_id, whole["response"])
                compared["inline"] += 1
            case other:
                need(False, f"{where}: calls of form {other}")


def line_of_trace(trace):
    """The rollouts line that says the same."""
    items = [
        {
            "id": call["completion_id"],
            "type": "message",
            "role": "assistant",
            "content": [],
            "finish_reason": call.get("finish_reason"),
            "prompt_token_ids": call["prompt_token_ids"],
            "generation_token_ids": call["sampled_token_ids"],
            "generation_log_probs": call["sampled_logprobs"],
        }
        for call in trace["model_calls"]
    ]
    return {
        "group_id": trace.get("group_id") or trace["rollout_id"],
        "rollout_id": trace["rollout_id"],
        "slot": 0,
        "group_size": 1,
        "capture_key": trace["rollout_id"],
        "reward": trace.get("reward"),
        "response": {"output": items},
    }


def compare_account(rollout, archive, sources, forms, receipt):
    """Form of capture, completeness, and the rows of the ledger that no receipt tells."""
    row, ledger, scope = rollout.row, rollout.ledger, rollout.scope
    name = row["rollout_id"]
    files = {call["origin"][0] for call in rollout.calls}
    kinds = {"staged": "staged", "store": "gym_store"}
    found = {kinds.get(forms[file], "inline_rollouts") for file in files}
    need(found <= {row["source"]}, f"{name}: source {row['source']} of {found}")
    ids = {kind: [entry["call_id"] for entry in ledger[kind]] for kind in ledger}
    if row["source"] == "staged":
        by_gym = any(form == "lineage" for form in forms.values())
        need(scope["receipt"] == receipt or by_gym, f"{name}: another receipt")
        expected = "complete" if scope["receipt"] is not None else "unknown"
        need(row["completeness"] == expected, f"{name}: {row['completeness']}, not {expected}")
        return
    need(scope["receipt"] is None and ids["scope"] == [None], f"{name}: a receipt from nowhere")
    need(scope["reason"] is None and not scope["capture_poisoned"], f"{name}: failed by nobody")
    intents, state, marked = [], None, False
    for file in files if row["source"] == "gym_store" else ():
        stem = file.removesuffix(".tokens.jsonl")
        if stem + ".tokens.intents" in forms:
            intents = list(dict.fromkeys(sources.lines(stem + ".tokens.intents").values()))
        if stem + ".tokens.state.json" in forms:
            state = json.loads(sources.whole(stem + ".tokens.state.json"))
        marked = stem + ".tokens.incomplete" in forms
    attempted = list(dict.fromkeys([*intents, *ids["committed"]]))
    pending = [call for call in intents if call not in ids["committed"]]
    need(ids["attempted"] == attempted, f"{name}: other calls were attempted")
    need(ids["pending"] == pending, f"{name}: other calls are pending")
    need(all(entry["reason"] in DOUBTS for entry in ledger["failed"]), f"{name}: failed otherwise")
    need(set(ids["failed"]) <= set(ids["committed"]), f"{name}: a failure of no call")
    aside = [e for e in archive.quarantine if e["source"] in files and e["code"] != "torn_store_tail"]
    lost = pending or aside or (marked and state is None)
    if state is not None:
        lost = lost or state["incomplete"] or state.get("entry_digests", {}).keys() - set(ids["committed"])
    expected = "incomplete" if lost else "complete" if state and intents else "unknown"
    need(row["completeness"] == expected, f"{name}: {row['completeness']}, not {expected}")
