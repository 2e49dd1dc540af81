#!/usr/bin/env python3
"""Reads an archive without forestctl, from what docs/format.md says, and proves what it can.

    read_archive.py ARCHIVE [SOURCE ...] [--unproven CALL ...]

Checks the manifest, every file, table and digest, and recomputes from the archive alone what the
capture signed. With the sources that were given to `forestctl ingest`, in the same spelling, every
record, receipt and rollouts line is compared with the archive value by value. `--unproven` names the
calls whose capture is known not to give what it signed; these and no others must be found so.

Prints what was read as JSON. Exit status: 0, or 1 with the first thing that is wrong.
"""

import argparse
import json
import struct
import sys

import duckdb
import media
import wire
from archive import KINDS, PART_TABLES, Archive, columns, extras, need, tokens
from captures import sequence
from sources import compare


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive")
    parser.add_argument("sources", nargs="*")
    parser.add_argument("--unproven", nargs="*", default=[])
    args = parser.parse_args()
    try:
        print(json.dumps(read(args.archive, args.sources, args.unproven)))
    except ValueError as broken:
        print(f"read_archive: {broken}", file=sys.stderr)
        return 1


def read(folder, given=(), known_unproven=()):
    archive = Archive(folder)
    archive.check_whole()
    unproven = sorted(id for rollout in archive.rollouts for id in check_signed(rollout))
    need(unproven == sorted(known_unproven), f"these calls do not give what was signed: {unproven}")
    for rollout in archive.rollouts:
        check_ledger(rollout)
    query(archive)
    calls = [call for rollout in archive.rollouts for call in rollout.calls]
    return {
        "content": archive.manifest["content"],
        "parts": len(archive.parts),
        "in_order": archive.is_in_order(),
        "rollouts": len(archive.rollouts),
        "calls": len(calls),
        "tokens": sum(len(tokens(call)) for call in calls),
        "signed": sum(call["digest"] is not None for call in calls),
        "stamped": sum(call["entry_digest"] is not None for call in calls),
        "raw": sum(call["raw_token_mask"] is not None for call in calls),
        "routes": sum(call["routes"] is not None for call in calls),
        "quarantined": len(archive.quarantine),
        "tensors": media.check(archive, given),
        "compared": compare(archive, given) if given else None,
    }


def check_signed(rollout):
    """Calls that do not give the digests that they carry."""
    by_id = {}
    for call in rollout.calls:
        by_id.setdefault(call["call_id"], call)
    doubted = {row["call_id"] for row in rollout.ledger["failed"]}
    for call in rollout.calls:
        if call["digest"] is not None and not is_as_signed(call, by_id):
            yield call["call_id"]
        if call["entry_digest"] is not None and call["call_id"] not in doubted:
            if wire.entry_digest(sequence(call, by_id)) != call["entry_digest"]:
                yield call["call_id"]


def is_as_signed(call, by_id):
    parent = by_id.get(call["parent_call_id"])
    if call["parent_call_id"] is not None and parent is None:
        return False
    before = parent and parent["chain_hash"]
    text = extras(call)
    try:
        value = None if text is None else json.loads(text)
        return (
            wire.extras_digest(value) == call["extras_digest"]
            and wire.chain_hash(before, tokens(call)) == call["chain_hash"]
            and wire.cumulative_hash(sequence(call, by_id)) == call["cumulative_hash"]
            and wire.call_digest(call, call["capture_key"], tokens(call), *columns(call))
            == call["digest"]
        )
    except (OverflowError, struct.error, ValueError):
        return False


def check_ledger(rollout):
    """The rows of a scope that has a receipt are what the receipt says."""
    ledger, scope = rollout.ledger, rollout.scope
    name = rollout.row["rollout_id"]
    if scope["receipt"] is None:
        return
    receipt = json.loads(scope["receipt"])
    stated = [receipt.get(key) for key in ("terminal_model_call_id", "failure_reason")]
    need([scope["call_id"], scope["reason"]] == stated, f"{name}: scope row and receipt differ")
    need(scope["capture_poisoned"] == receipt["capture_poisoned"], f"{name}: poison differs")
    rows = receipt["manifest"]
    ids = [row["model_call_id"] for row in rows]
    expected = {
        "attempted": ids if receipt.get("attempted_call_ids") is None else receipt["attempted_call_ids"],
        "pending": receipt.get("pending_call_ids") or [],
        "committed": ids,
    }
    for kind, expected in expected.items():
        found = [entry["call_id"] for entry in ledger[kind]]
        need(found == expected, f"{name}: {kind} rows and receipt differ")
    if receipt.get("failures") is not None:
        stated = [(row["model_call_id"], row["reason"]) for row in receipt["failures"]]
        found = [(row["call_id"], row["reason"]) for row in ledger["failed"]]
        need(found == stated, f"{name}: failed rows and receipt differ")
    for row, entry in zip(rows, ledger["committed"]):
        check_committed(f"{name}: call {row['model_call_id']}", receipt, row, entry)


def check_committed(name, receipt, row, entry):
    told = (receipt.get("calls") or {}).get(row["model_call_id"])
    ended = row if told is None else told
    recorded = "status" in ended or "finish_reason" in ended
    items = ended.get("output_items", None if told is None else [])
    stated = {
        "response_id": row["response_id"],
        "completion_recorded": recorded,
        "status": ended.get("status") if recorded else None,
        "finish_reason": ended.get("finish_reason") if recorded else None,
        "output_items": items
        and [[item.get("id"), item.get("type"), item.get("fingerprint")] for item in items],
        "output_fingerprint": row.get("output_fingerprint"),
        "fingerprint_version": row.get("fingerprint_version", 0),
    }
    found = {key: entry[key] for key in stated}
    hexed = lambda digest: digest and digest.hex()
    found["output_fingerprint"] = hexed(found["output_fingerprint"])
    found["output_items"] = found["output_items"] and [
        [item["id"], item["type"], hexed(item["fingerprint"])] for item in found["output_items"]
    ]
    need(found == stated, f"{name}: {found} in the ledger, {stated} in the receipt")


def query(archive):
    """A query for each table, and one across all of them."""
    if not archive.parts:
        return
    database = duckdb.connect()
    for table in PART_TABLES:
        files = f"{archive.folder}/{table}/*.parquet".replace("'", "''")
        database.execute(f"create view {table} as select * from read_parquet('{files}')")
    ask = lambda sql: database.execute(sql).fetchall()[0]
    counts = archive.manifest["counts"]
    found = ask(
        "select count(*), coalesce(sum(len(token_ids)), 0),"
        " coalesce(sum(len(token_ids[carry_len + 1 :])), 0) from calls"
    )
    stated = tuple(counts[key] for key in ("calls", "tokens", "generated_tokens"))
    need(found == stated, f"DuckDB counts {found} in calls, the manifest {stated}")
    found = ask("select count(*), count(distinct group_id), sum(reward) from rollouts")
    rewards = [r.row["reward"] for r in archive.rollouts if r.row["reward"] is not None]
    need(found[:2] == (counts["rollouts"], counts["groups"]), f"DuckDB counts {found} in rollouts")
    need(abs((found[2] or 0) - sum(rewards)) < 1e-9, "DuckDB sums other rewards")
    for kind in KINDS:
        rows = sum(len(rollout.ledger[kind]) for rollout in archive.rollouts)
        found = ask(f"select count(*) from ledger where kind = '{kind}'")
        need(found == (rows,), f"DuckDB counts {found} {kind} rows")
    found = ask(
        "select count(*) from calls join origins using (group_id, rollout_id, call_index)"
        " join rollouts using (group_id, rollout_id)"
        " join ledger using (group_id, rollout_id) where kind = 'scope' and line > 0"
    )
    need(found == (counts["calls"],), f"DuckDB joins {found} calls")


if __name__ == "__main__":
    sys.exit(main())
