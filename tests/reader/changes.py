#!/usr/bin/env python3
"""Shows that read_archive.py would see a wrong value anywhere.

    changes.py ARCHIVE SOURCE ...

In a copy of the archive, one value of every column of every table is changed in turn, and what vouches
for it is made to agree: first BLAKE3 and manifest, then the digests of rollout and content too. Each
time read_archive must refuse the copy. Prints how many changes were made as JSON; exit status 1 with
the first change that went unseen.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq
from archive import COLUMNS, Archive, content_digest, rollout_digest
from blake3 import blake3
from read_archive import read

# Another word of the same vocabulary.
WORDS = {
    "text": "token_in",
    "token_in": "text",
    "attempted": "pending",
    "pending": "attempted",
    "staged": "gym_store",
    "gym_store": "staged",
    "inline_rollouts": "staged",
    "complete": "unknown",
    "unknown": "incomplete",
    "incomplete": "complete",
}


def main():
    folder, *given = map(pathlib.Path, sys.argv[1:])
    read(folder, given)
    made = {"tables": 0, "digests": 0}
    with tempfile.TemporaryDirectory() as home:
        copy = pathlib.Path(home) / "copy"
        for table, columns in COLUMNS.items():
            for name, _, nullable in columns:
                for to_null in (False, True) if nullable else (False,):
                    shutil.copytree(folder, copy)
                    what = f"{table}.{name} {'to or from null' if to_null else 'to another value'}"
                    if change(copy, table, name, to_null):
                        unseen(copy, given, what)
                        made["tables"] += 1
                        # Digests that agree with the rest are right again.
                        if (table, name) != ("rollouts", "digest") and agree(copy):
                            unseen(copy, given, what + ", under digests that agree")
                            made["digests"] += 1
                    shutil.rmtree(copy)
    print(json.dumps(made))


def unseen(copy, given, what):
    """Exits if a change is not seen."""
    try:
        read(copy, given)
    except ValueError:
        return
    sys.exit(f"changes: {what} goes unseen")


def change(folder, table, name, to_null):
    """Changes one value of a column of the first part; False where it has none to change."""
    path = folder / table / "part-00000.parquet"
    content = pq.read_table(path)
    at, kind = content.schema.get_field_index(name), content.schema.field(name).type
    values = content.column(name).to_pylist()
    place = next((n for n, value in enumerate(values) if value is not None and value != []), None)
    if to_null:
        place = 0 if place is None else place
        values[place] = None if values[place] is not None else filler(kind)
    elif place is None:
        return False
    else:
        values[place] = other(values[place])
    changed = pa.array(values, kind)
    write(path, content.set_column(at, content.schema.field(name), changed))
    sign(folder, {f"{table}/part-00000.parquet": path})
    return True


def other(value):
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value + 0.5
        case str():
            return WORDS.get(value, value + "x")
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:]
        case [first, *rest]:
            return [other(first), *rest]
        case dict():
            return {**value, "id": "another"}


def filler(kind):
    """A value of a type."""
    if pa.types.is_fixed_size_binary(kind):
        return bytes(32)
    if pa.types.is_large_binary(kind):
        return b""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "x"
    return [] if pa.types.is_nested(kind) else False if pa.types.is_boolean(kind) else 0


def agree(folder):
    """Makes the digests of rollouts and content those of the changed values; False where they are
    already, or where the tables cannot be joined any more."""
    try:
        archive = Archive(folder)
    except ValueError:
        return False
    stale = [r for r in archive.rollouts if rollout_digest(r) != r.row["digest"]]
    for rollout in archive.rollouts:
        rollout.row["digest"] = rollout_digest(rollout)
    content = content_digest(archive.rollouts)
    if not stale and content == archive.manifest["content"]:
        return False
    path = folder / "rollouts" / "part-00000.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("digest")
    digests = pa.array([rollout.row["digest"] for rollout in archive.parts[0]], pa.binary(32))
    write(path, table.set_column(at, table.schema.field("digest"), digests))
    sign(folder, {"rollouts/part-00000.parquet": path}, content)
    return True


def write(path, table):
    path.unlink()
    pq.write_table(table, path, compression="zstd")


def sign(folder, files, content=None):
    """Writes the manifest anew over changed files."""
    path = folder / "archive.json"
    manifest = json.loads(path.read_bytes())
    for entry in manifest["files"]:
        if entry["path"] in files:
            raw = files[entry["path"]].read_bytes()
            entry |= {"bytes": len(raw), "blake3": blake3(raw).hexdigest()}
    manifest["content"] = content or manifest["content"]
    manifest["blake3"] = ""
    text = json.dumps(manifest, indent=2)
    digest = blake3(text.encode()).hexdigest()
    path.unlink()
    path.write_text(text.removesuffix('""\n}') + f'"{digest}"\n}}\n')


if __name__ == "__main__":
    main()
