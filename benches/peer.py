"""Times of the published capture package, one thread, in a process of its own.

    peer.py rows STORE SCOPE     file store -> training trajectory (`trajectories_for_rollout`)
    peer.py verify STAGED        staged records -> models -> `verify_and_linearize`

Prints one line of JSON. Garbage is collected between the measured parts, not within them.
"""

import gc
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

from nemo_gym.token_id_capture.builder import prefix_merging
from nemo_gym.token_id_capture.consumer import trajectories_for_rollout
from nemo_gym.token_id_capture.staging.rebuild import verify_and_linearize
from nemo_gym.token_id_capture.staging.records import RolloutReceipt, StagedCallRecord
from nemo_gym.token_id_capture.store import TokenCaptureStore

GROUPS_AT_A_TIME = 12
"""Objects of this many prompt groups are in memory at once: about 800 MB."""


def timed(work):
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    value = work()
    seconds = time.perf_counter() - start
    gc.enable()
    return seconds, value


def rows(store, scope):
    results = map(json.loads, open(store / "rollouts.jsonl"))
    task, index = map(int, scope.split("-"))
    response = next(r["response"] for r in results
                    if (r["_ng_task_index"], r["_ng_rollout_index"]) == (task, index))
    seconds, built = timed(lambda: trajectories_for_rollout(scope, [store], model="policy",
                                                            verified_response=response))
    if built["mask_sample"]:
        sys.exit(f"the package masks {scope}: {built['metrics']}")
    entries = TokenCaptureStore(store).read_entries(scope)
    merge, _ = timed(lambda: prefix_merging(entries, terminal_call_id=entries[-1].model_call_id))
    return {"rows": seconds, "merge": merge,
            "generated_tokens": built["metrics"]["generated_tokens_delivered"]}


RECEIPT_FIELDS = set(RolloutReceipt.model_fields)


def verify(staged):
    receipts = {}
    for line in open(staged / "receipts.jsonl"):
        receipt = json.loads(line)
        known = {key: value for key, value in receipt.items() if key in RECEIPT_FIELDS}
        receipts[receipt["rollout_id"]] = known
    total = dict.fromkeys(("parse", "parse_json", "verify", "bytes", "delta_tokens", "calls",
                           "rows"), 0)
    for lines in batches(staged):
        total["bytes"] += sum(map(len, lines))
        # Two ways of the same library; the faster one is compared with.
        total["parse_json"] += timed(
            lambda: [StagedCallRecord.model_validate_json(line) for line in lines])[0]
        seconds, records = timed(
            lambda: [StagedCallRecord.model_validate(json.loads(line)) for line in lines])
        total["parse"] += seconds
        total["calls"] += len(records)
        total["delta_tokens"] += sum(record.delta_len for record in records)
        by_key = {record.staging_key: record for record in records}
        jobs = []
        for scope in {record.rollout_id for record in records}:
            receipt = RolloutReceipt.model_validate(receipts.pop(scope))
            jobs.append((receipt, [by_key[row.staging_key] for row in receipt.manifest]))
        total["rows"] += len(jobs)
        total["verify"] += timed(lambda: [verify_and_linearize(*job) for job in jobs])[0]
    if receipts:
        sys.exit(f"{len(receipts)} receipts have no records")
    return total


def batches(staged):
    """Lines of some whole prompt groups at a time; groups follow each other in the files."""
    lines, groups = [], set()
    for path in sorted(staged.glob("staged-*.jsonl")):
        for line in open(path, "rb"):
            at = line.index(b'"rollout_id":"') + 14
            group = line[at:line.index(b"-", at)]
            if group not in groups and len(groups) == GROUPS_AT_A_TIME:
                yield lines
                lines, groups = [], set()
            groups.add(group)
            lines.append(line)
    yield lines


def main():
    kind, path, *more = sys.argv[1:]
    measured = {"rows": rows, "verify": verify}[kind](Path(path), *more)
    measured["versions"] = {"python": sys.version.split()[0],
                            **{name: version(name) for name in ("nemo-gym", "pydantic", "orjson")}}
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
