"""Writes captures of any size, deterministic by seed, with every digest and parent link valid.

    generate.py store  OUT [--scopes 1] [--turns 200] [--tokens 144000]
    generate.py staged OUT [--rollouts 1000] [--delta 860]
    generate.py long   OUT [--calls 100000] [--delta 100] [--compact-every 100]
    generate.py forest OUT [--shape A]

`store` is a Gym file store: every line holds its whole prompt, so JSON grows with the square of the
turns. `staged` is staged records with receipts and results: prompt groups of eight rollouts of 2 to
15 calls (8.5 on average): chains, one rollout in three compacted, one in four with an abandoned
branch. `long` is one rollout; `--compact-every 0` makes it a single chain. `forest` is one
prompt group whose rows share prefixes: A a prompt of 8192 tokens and 16 generations of 1024; B 1024 and
8 of 4096; C 6144, then 4 times 3072, then 16 generations of 1536; D 4096 and 24 of 6144; E one rollout of
40 calls of 400 tokens with 20 side branches of 300, one at every second call. OUT must not exist.
Prints what was written as one line of JSON.
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import wire

GROUP_SIZE = 8
ROTATE = 256 << 20
"""Bytes after which staged records go on in another file."""

WORDS = np.array([f"{a}{b}{c} ".encode() for a in ("ba", "de", "fi", "go", "ku", "la", "me", "ni",
                  "po", "ru", "sa", "te", "vi", "wo", "xu", "za") for b in "aeioulmnrst"
                  for c in ("bad", "cel", "dim", "fon", "gur", "hav", "jek", "lis")], dtype="S7")


def words(rng, tokens):
    """Prose of about four characters per token."""
    count = max(1, tokens * 4 // 7)
    return WORDS[rng.integers(0, len(WORDS), count)].tobytes().decode().rstrip()


def hex_id(rng):
    return rng.bytes(16).hex()


def message(ident, said):
    content = [{"type": "output_text", "text": said, "annotations": []}]
    return {"id": ident, "type": "message", "role": "assistant", "status": "completed",
            "content": content}


def dumps(value, **options):
    return json.dumps(value, separators=(",", ":"), **options)


@dataclass
class Totals:
    """What was written."""

    rollouts: int = 0
    calls: int = 0
    delta_tokens: int = 0
    generated_tokens: int = 0
    capture_bytes: int = 0
    """Bytes of the files that hold tokens."""
    other_bytes: int = 0


def split(rng, mean):
    """Sizes of the observation and the generation of a call of `mean` tokens on average."""
    return cut(rng, max(2, int(mean * rng.uniform(0.25, 1.75))))


def cut(rng, size):
    """A call of `size` tokens as observation and generation."""
    generated = min(size - 1, max(1, int(size * rng.uniform(0.15, 0.6))))
    return size - generated, generated


# --- Gym file store --------------------------------------------------------------------------


def write_store(out, seed, scopes, turns, tokens):
    """`scopes` rollouts of `turns` calls; each prompt holds the whole conversation so far."""
    totals = Totals()
    with open(out / "rollouts.jsonl", "w") as results:
        for number in range(scopes):
            rng = np.random.default_rng([seed, number])
            task, index = divmod(number, GROUP_SIZE)
            sizes = rng.multinomial(tokens - 2 * turns, rng.dirichlet(np.full(turns, 4.0))) + 2
            line = store_scope(out, rng, f"{task}-{index}", sizes, totals)
            line = {"_ng_task_index": task, "_ng_rollout_index": index} | line
            results.write(dumps(line) + "\n")
    totals.other_bytes += os.path.getsize(out / "rollouts.jsonl")
    return totals


def store_scope(out, rng, scope, sizes, totals):
    history = wire.Fingerprints()
    raw, prompt_json = bytearray(), bytearray()
    parent, output, digests = None, [], {}
    tokens_path = out / f"{scope}.tokens.jsonl"
    with open(tokens_path, "wb") as tokens:
        for turn, size in enumerate(sizes.tolist()):
            seen, made = cut(rng, size)
            observation, generation = wire.Ids(rng, seen), wire.Ids(rng, made)
            logprobs = wire.Logprobs(rng, made)
            asked, said = words(rng, seen), words(rng, made)
            history.say("user", asked)
            context = history.context(), history.items
            history.say("assistant", said)
            if turn:
                output.append({"type": "message", "role": "user", "content": asked})
                prompt_json += b","
            prompt_json += observation.json
            raw += observation.raw + generation.raw
            call, item = hex_id(rng), message(f"msg_{hex_id(rng)}", said)
            output.append(item)
            entry = {
                "continuation_context_digest": context[0],
                "continuation_context_len": context[1],
                "continuation_fingerprint": history.authored(),
                "created_at": 1_770_000_000.5 + turn,
                "cum_len": len(raw) // 8,
                "digest": wire.entry_digest(raw),
                "fingerprint_version": 2,
                "generation_log_probs": "LOGPROBS",
                "generation_token_ids": "GENERATION",
                "model": "policy",
                "model_call_id": call,
                "output_items": [item],
                "parent_call_id": parent,
                "parent_resolution": "resolved" if parent else "root",
                "parent_resolution_reason": "",
                "prefix_requested": False,
                "prefix_supplied": False,
                "prompt_is_delta": False,
                "prompt_token_ids": "PROMPT",
                "response_id": f"resp_{call}",
                "rollout_id": scope,
                "routed_experts": None,
                "schema_version": 1,
                "token_item_index": 0,
            }
            line = dumps(entry, sort_keys=True).encode()
            line = line.replace(b'"LOGPROBS"', b"[" + logprobs.json + b"]")
            line = line.replace(b'"GENERATION"', b"[" + generation.json + b"]")
            line = line.replace(b'"PROMPT"', b"[" + prompt_json + b"]")
            tokens.write(line + b"\n")
            digests[call] = wire.hashlib.sha256(line).hexdigest()
            prompt_json += b"," + generation.json
            parent = call
            totals.generated_tokens += made
    size = os.path.getsize(tokens_path)
    state = {
        "entry_digests": digests,
        "frozen": True,
        "incomplete": False,
        "indexed_size": size,
        "retired": False,
        "snapshot_id": hex_id(rng),
        "version": len(sizes) + 1,
    }
    (out / f"{scope}.tokens.state.json").write_text(dumps(state, sort_keys=True) + "\n")
    (out / f"{scope}.tokens.intents").write_text("".join(f"{call}\n" for call in digests))
    (out / f"{scope}.tokens.lock").touch()
    totals.rollouts += 1
    totals.calls += len(sizes)
    totals.delta_tokens += len(raw) // 8
    totals.capture_bytes += size
    response = {"id": f"resp_{parent}", "object": "response", "model": "policy", "output": output,
                "status": "completed"}
    return {"reward": float(rng.integers(0, 2)), "response": response,
            "responses_create_params": {"input": []}, "terminal_response_id": response["id"]}


# --- Staged captures -------------------------------------------------------------------------


@dataclass
class Call:
    """One call of a plan, and what came of it."""

    parent: int | None
    kept: bool = True
    carry: wire.Ids | None = None
    made: int | None = None
    """Both drawn unless given."""
    ident: str = ""
    cum_len: int = 0
    chain: bytes = b""


@dataclass
class Rollout:
    """One staged rollout: its records, and the lines about it."""

    records: list = field(default_factory=list)
    receipt: str = ""
    result: str = ""


def plan_rollout(rng):
    """Calls of one rollout: a chain, perhaps cut by compactions, perhaps with a lost branch."""
    count = int(rng.integers(2, 16))
    roots = set(rng.integers(1, count, 1 + rng.integers(0, 2)).tolist()) if rng.random() < 1 / 3 else ()
    branch = int(rng.integers(1, count)) if rng.random() < 1 / 4 else None
    plan, last = [], None
    for number in range(count):
        parent = None if number in roots else last
        if number == branch and parent is not None:
            plan.append(Call(parent, kept=False))
        plan.append(Call(parent))
        last = len(plan) - 1
    return plan


def plan_long(calls, compact_every):
    return [Call(None if number == 0 or (compact_every and number % compact_every == 0)
                 else number - 1) for number in range(calls)]


def stage(rng, scope, plan, mean, opening, totals):
    """Records, receipt and result of one rollout. Prefixes live only while they can still be
    extended, so a long rollout needs memory for one chain."""
    rollout, prefix = Rollout(), {}
    rows, completions, output = [], {}, []
    last_child = {call.parent: number for number, call in enumerate(plan)}
    weight, terminal = 10, None
    for number, call in enumerate(plan):
        seen, made = split(rng, mean)
        made = call.made or made
        observation = call.carry or (opening if number == 0 and opening else wire.Ids(rng, seen))
        generation, logprobs = wire.Ids(rng, made), wire.Logprobs(rng, made)
        seen = len(observation.raw) // 8
        weight += int(rng.random() < 0.1)
        parent = None if call.parent is None else plan[call.parent]
        parent_id = parent and parent.ident
        call.ident = hex_id(rng)
        delta = observation.raw + generation.raw
        before = prefix.get(call.parent, b"")
        prev_len, count = len(before) // 8, seen + made
        call.cum_len = prev_len + count
        call.chain = wire.chain_hash(parent and parent.chain, delta).digest()
        if last_child.get(call.parent) == number and call.parent is not None:
            # The last child may take the prefix over and extend it in place.
            whole = prefix.pop(call.parent)
            whole += delta
        else:
            whole = bytearray(before) + delta
        cumulative = wire.cumulative_hash(whole).digest()
        if number in last_child:
            prefix[number] = whole
        digest = wire.call_digest(
            scope, call.ident, parent_id, prev_len, weight, delta, bytes(4 * seen) + ONE * made,
            bytes(4 * seen) + logprobs.raw, call.chain, cumulative,
        ).hexdigest()
        mode = "token_in" if parent else "text"
        chain, cumulative = call.chain.hex(), cumulative.hex()
        zeros = b"0.0," * seen
        rollout.records.append(b"".join((
            b'{"schema_version":2,"digest_version":2,"extras_digest_version":1,',
            b'"rollout_id":"%b","model_call_id":"%b",' % (scope.encode(), call.ident.encode()),
            b'"parent_call_id":%b,"mode":"%b",' % (dumps(parent_id).encode(), mode.encode()),
            b'"prev_len":%d,"delta_len":%d,"cum_len":%d,' % (prev_len, count, call.cum_len),
            b'"weight_version":%d,"digest":"%b",' % (weight, digest.encode()),
            b'"token_ids_delta":[', observation.json, b",", generation.json,
            b'],"token_mask_delta":[', zeros, (b"1.0," * made)[:-1],
            b'],"generation_log_probs_delta":[', zeros, logprobs.json,
            b'],"extras_digest":"%b",' % wire.EMPTY_EXTRAS.encode(),
            b'"chain_hash":"%b","cumulative_hash":"%b",' % (chain.encode(), cumulative.encode()),
            b'"extras":null}\n',
        )))
        said, asked = words(rng, made), words(rng, min(seen, 16))
        item = message(f"msg_{hex_id(rng)}", said)
        if number:
            output.append({"type": "message", "role": "user", "content": asked})
        if call.kept:
            output.append(item)
            terminal = call
        response = f"resp_{call.ident}"
        authored = wire.message_fingerprint(said)
        rows.append({
            "schema_version": 2, "digest_version": 2, "extras_digest_version": 1,
            "model_call_id": call.ident, "parent_call_id": parent_id, "prev_len": prev_len,
            "delta_len": count, "cum_len": call.cum_len, "weight_version": weight,
            "digest": digest, "extras_digest": wire.EMPTY_EXTRAS,
            "staging_key": f"{scope}/{call.ident}", "mode": mode, "chain_hash": chain,
            "cumulative_hash": cumulative, "response_id": response,
            "admitted_at": 1_770_000_000.5 + number, "output_fingerprint": authored,
            "continuation_fingerprint": authored, "fingerprint_version": 2,
        })
        completions[call.ident] = {
            "status": "completed", "finish_reason": "stop", "response_id": response,
            "output_items": [{"id": item["id"], "type": "message", "fingerprint": authored}],
        }
        totals.delta_tokens += count
        totals.generated_tokens += made
    totals.rollouts += 1
    totals.calls += len(plan)
    reward = float(rng.integers(0, 2))
    rollout.receipt = dumps({
        "schema_version": 2, "digest_version": 2, "extras_digest_version": 1, "rollout_id": scope,
        "reward": reward, "terminal_model_call_id": terminal.ident, "manifest": rows,
        "capture_poisoned": False, "failure_reason": None, "terminal_selection": "declared",
        "terminal_attribution_reason": None, "attempted_call_ids": [c.ident for c in plan],
        "pending_call_ids": [], "failures": [], "calls": completions,
    })
    response = {"id": f"resp_{terminal.ident}", "object": "response", "model": "policy",
                "output": output, "status": "completed"}
    rollout.result = reward, {"responses_create_params": {"input": []}, "response": response,
                              "terminal_response_id": response["id"]}
    return rollout


ONE = b"\x3f\x80\x00\x00"


class StagedFiles:
    """The three kinds of files of a staged capture; records rotate into further files."""

    def __init__(self, out):
        self.out = out
        self.files = 0
        self.staged = None
        self.receipts = open(out / "receipts.jsonl", "w")
        self.results = open(out / "rollouts.jsonl", "w")
        self.bytes = 0

    def record(self, line):
        if self.staged is None or self.staged.tell() >= ROTATE:
            if self.staged:
                self.staged.close()
            self.staged = open(self.out / f"staged-{self.files:04}.jsonl", "wb", 1 << 20)
            self.files += 1
        self.staged.write(line)
        self.bytes += len(line)

    def rollout(self, group, slot, size, rollout):
        self.receipts.write(rollout.receipt + "\n")
        reward, result = rollout.result
        self.results.write(dumps({
            "group_id": group, "rollout_id": f"{group}_g{slot}", "slot": slot, "group_size": size,
            "capture_key": f"{group[1:]}-{slot}", "reward": reward, "result": result,
        }) + "\n")

    def close(self, totals):
        for file in (self.staged, self.receipts, self.results):
            file.close()
        totals.capture_bytes += self.bytes
        totals.other_bytes += sum(
            os.path.getsize(self.out / name) for name in ("receipts.jsonl", "rollouts.jsonl"))


def write_staged(out, seed, rollouts, delta):
    """Whole prompt groups; the records of a group's rollouts arrive interleaved."""
    totals, files = Totals(), StagedFiles(out)
    for group in range(-(-rollouts // GROUP_SIZE)):
        opening = wire.Ids(np.random.default_rng([seed, group]), max(1, delta // 2))
        size = min(GROUP_SIZE, rollouts - group * GROUP_SIZE)
        made = []
        for slot in range(size):
            rng = np.random.default_rng([seed, group, slot])
            made.append(stage(rng, f"{group}-{slot}", plan_rollout(rng), delta, opening, totals))
            files.rollout(f"p{group}", slot, size, made[-1])
        for turn in range(max(len(rollout.records) for rollout in made)):
            for rollout in made:
                for line in rollout.records[turn:turn + 1]:
                    files.record(line)
    files.close(totals)
    return totals


def write_long(out, seed, calls, delta, compact_every):
    """One rollout, alone in its prompt group."""
    totals, files = Totals(), StagedFiles(out)
    rng = np.random.default_rng([seed, 0, 0])
    rollout = stage(rng, "0-0", plan_long(calls, compact_every), delta, None, totals)
    files.rollout("p0", 0, 1, rollout)
    for line in rollout.records:
        files.record(line)
    files.close(totals)
    return totals


def plan_forest(shape, draw):
    """The rollouts of one prompt group, each as its calls."""
    if shape == "E":
        chain, branches = [], []
        for number in range(40):
            chain.append(Call(number - 1 if number else None, carry=draw(100), made=300))
        for number in range(1, 40, 2):
            branches.append(Call(number, kept=False, carry=draw(50), made=250))
        return [chain + branches]
    if shape == "C":
        prompt = draw(6144)
        return [[Call(None, carry=middle, made=1536)]
                for middle in [prompt + draw(3072) for _ in range(4)] for _ in range(4)]
    prompt, count, made = {"A": (8192, 16, 1024), "B": (1024, 8, 4096), "D": (4096, 24, 6144)}[shape]
    prompt = draw(prompt)
    return [[Call(None, carry=prompt, made=made)] for _ in range(count)]


def write_forest(out, seed, shape):
    totals, files = Totals(), StagedFiles(out)
    rng = np.random.default_rng([seed, 0])
    plans = plan_forest(shape, lambda count: wire.Ids(rng, count))
    for slot, plan in enumerate(plans):
        rollout = stage(rng, f"0-{slot}", plan, 2, None, totals)
        files.rollout("p0", slot, len(plans), rollout)
        for line in rollout.records:
            files.record(line)
    files.close(totals)
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    options = {
        "store": (write_store, {"scopes": 1, "turns": 200, "tokens": 144_000}),
        "staged": (write_staged, {"rollouts": 1000, "delta": 860}),
        "forest": (write_forest, {"shape": "A"}),
        "long": (write_long, {"calls": 100_000, "delta": 100, "compact_every": 100}),
    }
    for kind, (_, numbers) in options.items():
        one = kinds.add_parser(kind)
        one.add_argument("out", type=Path)
        one.add_argument("--seed", type=int, default=1)
        for name, default in numbers.items():
            one.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    given = vars(parser.parse_args())
    write, _ = options[given.pop("kind")]
    out = given.pop("out")
    try:
        out.mkdir(parents=True)
    except FileExistsError:
        sys.exit(f"{out} is there already; name a folder to create")
    print(dumps(vars(write(out, **given))))


if __name__ == "__main__":
    main()
