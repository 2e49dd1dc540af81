"""What a capture's line says of a call, and what must stand in the archive for it."""

import json
import struct

import wire
from archive import SIGNED, columns, extras, need, tokens

ARRAYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
TOKEN_FIELDS = (*ARRAYS, "routed_experts")


def rounded(values):
    """The nearest f32 of each; NaN for null."""
    numbers = [float("nan") if value is None else value for value in values]
    return struct.unpack(f"<{len(numbers)}f", struct.pack(f"<{len(numbers)}f", *numbers))


def bits(values):
    return struct.pack(f"<{len(values)}d", *values)


def compare_record(where, call, line):
    """A staged record: every member, to the bit."""
    stated = json.loads(line)
    scope = "rollout_id" if call["schema_version"] == 2 else "capture_key"
    text = extras(call)
    record = {
        scope: call["capture_key"],
        "model_call_id": call["call_id"],
        "token_ids_delta": list(tokens(call)),
        "extras": None if text is None else json.loads(text),
    }
    plain = "parent_call_id mode prev_len delta_len cum_len weight_version"
    record |= {name: call[name] for name in plain.split()}
    record |= {name: call[name] for name in SIGNED[:3]}
    record |= {name: call[name].hex() for name in SIGNED[3:]}
    if call["source_capture_key"] is not None:
        record["source_capture_key"] = call["source_capture_key"]
    mask, logprobs = columns(call)
    stated_mask, stated_logprobs = (
        stated.pop(name) for name in ("token_mask_delta", "generation_log_probs_delta")
    )
    need(bits(mask) == bits(stated_mask), f"{where}: another token_mask_delta")
    carry, raw = call["carry_len"], call["raw_logprobs"] is not None
    exact = stated_logprobs if raw else stated_logprobs[:carry] + [*rounded(stated_logprobs[carry:])]
    need(bits(logprobs) == bits(exact), f"{where}: another generation_log_probs_delta")
    need(carry == next((n for n, m in enumerate(mask) if m != 0), len(mask)), f"{where}: carry_len")
    generated = struct.pack(f"<{len(logprobs[carry:])}f", *logprobs[carry:])
    need(call["generation_logprobs"] == generated, f"{where}: generation_logprobs")
    # repr tells 1 from 1.0 and true, and -0.0 from 0.0, wherever they are.
    other = [name for name in record if repr(record[name]) != repr(stated.get(name))]
    need(not other, f"{where}: another {other}")
    need(stated.keys() == record.keys(), f"{where}: {stated.keys() ^ record.keys()} is left out")
    need(text is None or text in line, f"{where}: extras are not verbatim")
    need(call["entry_digest"] is None, f"{where}: an entry digest from nowhere")


def sequence(call, by_id):
    """All tokens from the root to the end of the call."""
    path = [call]
    while path[-1]["parent_call_id"] is not None:
        need(path[-1]["parent_call_id"] in by_id, f"call {call['call_id']}: a parent is missing")
        path.append(by_id[path[-1]["parent_call_id"]])
        need(len(path) <= len(by_id), f"call {call['call_id']} is its own ancestor")
    return [token for call in reversed(path) for token in tokens(call)]


def compare_full(where, call, by_id, stated):
    """A source with full prompts."""
    prompt, generation, logprobs = (stated[name] for name in ARRAYS)
    whole, delta = prompt + generation, tokens(call)
    need(sequence(call, by_id) == whole, f"{where}: other tokens")
    lengths = (len(whole) - len(delta), len(delta), len(delta) - len(generation))
    found = (call["prev_len"], call["delta_len"], call["carry_len"])
    need(found == lengths, f"{where}: lengths {found}, not {lengths}")
    packed = struct.pack(f"<{len(logprobs)}f", *rounded(logprobs))
    need(call["generation_logprobs"] == packed, f"{where}: other log-probabilities")
    mode = "text" if call["parent_call_id"] is None else "token_in"
    need(call["mode"] == mode, f"{where}: another mode")
    routes, text = stated.get("routed_experts"), extras(call)
    need((routes is None) == (text is None), f"{where}: routes or none")
    need(text is None or json.loads(text) == {"routed_experts": routes}, f"{where}: other routes")
    staged_only = ["source_capture_key", "weight_version", "raw_token_mask", "raw_logprobs", *SIGNED]
    found = [name for name in staged_only if call[name] is not None]
    need(not found, f"{where}: {found} from nowhere")


def compare_entry(where, rollout, call, by_id, entry):
    """An entry of a Gym store."""
    need(call["call_id"] == entry["model_call_id"], f"{where}: another call")
    need(call["capture_key"] == entry["rollout_id"], f"{where}: another scope")
    doubted = call["call_id"] in {row["call_id"] for row in rollout.ledger["failed"]}
    delta = bool(entry.get("prompt_is_delta"))
    suffix = len(entry["prompt_token_ids"]) + len(entry["generation_token_ids"])
    if delta and doubted:
        # Nothing completes it; what stands in for the tokens before it is as long as it says.
        before = {"token_ids": bytes(4 * (entry["cum_len"] - suffix)), "parent_call_id": None}
        by_id = {call["parent_call_id"]: before, call["call_id"]: call}
    whole = sequence(call, by_id)
    if delta:
        entry["prompt_token_ids"] = whole[: len(whole) - suffix] + entry["prompt_token_ids"]
    compare_full(where, call, by_id, entry)
    parent = entry.get("parent_call_id")
    need(call["parent_call_id"] == parent or doubted and not delta, f"{where}: another parent")
    need(call["cum_len"] == (entry.get("cum_len") or len(whole)), f"{where}: another cum_len")
    stamped = call["entry_digest"] and call["entry_digest"].hex()
    need(stamped == entry.get("digest"), f"{where}: another digest")
    row = next(r for r in rollout.ledger["committed"] if r["call_id"] == call["call_id"])
    compare_served(where, row, entry.get("response_id"), entry["output_items"])
    need(not row["completion_recorded"], f"{where}: a Gym store records no endings")


def compare_inline(where, rollout, number, by_id, response):
    """One of the calls of a rollouts line whose output items carry token arrays."""
    served = groups_of_items(response["output"])
    item = next(item for item in served[number] if ARRAYS[1] in item)
    call, row = rollout.calls[number], rollout.ledger["committed"][number]
    compare_full(where, call, by_id, item)
    need(call["call_id"] in (item.get("id"), f"{rollout.row['rollout_id']}/call-{number}"), where)
    need(call["capture_key"] == rollout.row["capture_key"], f"{where}: another scope")
    need(call["cum_len"] == len(sequence(call, by_id)), f"{where}: another cum_len")
    need(call["entry_digest"] is None, f"{where}: an entry digest from nowhere")
    last = number == len(served) - 1
    bare = [{k: v for k, v in item.items() if k not in TOKEN_FIELDS} for item in served[number]]
    compare_served(where, row, response.get("id") if last else None, bare)
    reason = item.get("finish_reason")
    status = dict.fromkeys(("stop", "tool_calls", "function_call"), "completed")
    status |= dict.fromkeys(("length", "content_filter"), "incomplete")
    found = (row["completion_recorded"], row["status"], row["finish_reason"])
    need(found == (reason is not None, status.get(reason), reason), f"{where}: ended otherwise")


def groups_of_items(output):
    """The items that each call served."""
    groups, loose, is_open = [], [], False
    for item in [*output, {}]:
        if ARRAYS[1] in item:
            groups.append([*loose, item])
            loose, is_open = [], True
        elif item.get("role") == "assistant" or item.get("type") in ("reasoning", "function_call"):
            loose.append(item)
        else:
            if is_open:
                groups[-1] += loose
            loose, is_open = [], False
    return groups


def compare_served(where, row, response_id, items):
    """A committed row of a source that records the served items themselves."""
    need(row["response_id"] == response_id, f"{where}: another response")
    need(row["output_items"] is not None, f"{where}: no output items")
    expected = [(i.get("id"), i.get("type"), wire.assistant_fingerprint([i])) for i in items]
    found = [(item["id"], item["type"], item["fingerprint"]) for item in row["output_items"]]
    need(found == expected, f"{where}: other output items")
    whole = wire.assistant_fingerprint(items)
    found = (row["output_fingerprint"], row["fingerprint_version"])
    need(found == (whole, wire.FINGERPRINT_VERSION), f"{where}: another output")
