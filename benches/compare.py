"""forestctl against the published capture package, on the same files in the same run.

    compare.py [--runs 5] [--work DIR]

Needs benches/peer.sh to have run. Each run measures both sides one after the other, forestctl's
short commands three times in a row; a ratio is taken within one run, and the median and range
over the runs are printed as Markdown. Files are in the page cache for both. The package is one
thread; forestctl takes every core.
"""

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from measure import BENCHES, MIB, PYTHON, Run, build, generate, machine, say, size, spread, table


def peer(*arguments):
    return Run([PYTHON, BENCHES / "peer.py", *arguments]).json()


TIMES = 3
"""What takes less than a second is timed so often in a row; the median counts."""


def often(command, output=None):
    """Median seconds of a command, and its last run. Each begins without its output: replacing one
    would be timed with the removal of the old one."""
    seconds = []
    for _ in range(TIMES):
        if output:
            shutil.rmtree(output, ignore_errors=True)
        last = Run(command)
        seconds.append(last.seconds)
    return statistics.median(seconds), last


def ratios(slow, fast):
    return [a / b for a, b in zip(slow, fast, strict=True)]


def store(work, runs, forestctl, in_process):
    """A Gym store of 200 turns, from disk to rows."""
    source, made = generate(work, "store", "store")
    archive, rows = work / "store.forest", work / "store.rows"
    theirs, merge, ours, library, read = [], [], [], [], []
    for run in range(runs):
        say(f"store, run {run + 1} of {runs}")
        result = peer("rows", source, "0-0")
        theirs.append(result["rows"])
        merge.append(result["merge"])
        ingest, _ = often([forestctl, "ingest", source, "-o", archive, "-q"], archive)
        building, built = often([forestctl, "build-rows", archive, "-o", rows, "--format", "json"],
                                rows)
        ours.append(ingest + building)
        inside = Run([in_process, "rows", source, TIMES]).json()
        library.append(statistics.median(inside["rows"]))
        read.append(statistics.median(inside["read"]))
        tokens = result["generated_tokens"]
        assert tokens == inside["loss_tokens"] == built.json()["loss_tokens"]
    text = made["capture_bytes"]
    yield from (
        ("store to rows: `ingest` and `build-rows`", f"{spread(theirs)} s", f"{spread(ours)} s",
         ratios(theirs, ours), "at least 20"),
        ("store to rows in process, nothing written", f"{spread(theirs)} s",
         f"{spread(library)} s", ratios(theirs, library), "at least 20"),
        ("of which reading; package: `prefix_merging` alone", f"{spread(merge)} s",
         f"{spread(read)} s", ratios(merge, read), ""),
        ("store, JSONL to archive", f"{text / MIB:.1f} MiB", f"{size(archive) / MIB:.3f} MiB",
         [text / size(archive)], "at least 80"),
    )


def staged(work, runs, forestctl, in_process):
    """1000 staged rollouts: parsing, verification, and the floor that hashing sets."""
    source, made = generate(work, "staged", "staged")
    archive = work / "staged.forest"
    tokens, text = made["delta_tokens"], made["capture_bytes"]
    rows = work / "staged.rows"
    parse, verify, ingest, validate, inside, floor = [], [], [], [], [], []
    build_rows, build, copy = [], [], []
    for run in range(runs):
        say(f"staged, run {run + 1} of {runs}")
        result = peer("verify", source)
        assert (result["delta_tokens"], result["bytes"]) == (tokens, text)
        parse.append(min(result["parse"], result["parse_json"]))
        verify.append(result["verify"])
        ingest.append(often([forestctl, "ingest", source, "-o", archive, "-q"], archive)[0])
        seconds, checked = often([forestctl, "validate", archive, "--format", "json"])
        assert checked.json()["checked"]["tokens"] == tokens and not checked.json()["findings"]
        validate.append(seconds)
        # The first time of either maps its memory; the command's own time holds that, too.
        library = Run([in_process, "validate", archive, 4]).json()
        inside.append(statistics.median(library["validate"][1:]))
        floor.append(statistics.median(library["hash"][1:]))
        build_rows.append(often([forestctl, "build-rows", archive, "-o", rows, "--policy",
                                 "all_captured", "--format", "json"], rows)[0])
        made_rows = Run([in_process, "build", archive, 1]).json()
        build += [a + b for a, b in zip(made_rows["select"], made_rows["build"], strict=True)]
        copy += made_rows["copy"]

    def rate(amount, seconds, unit):
        return f"{spread([amount / s for s in seconds])} {unit}"

    hashed = library["preimage_bytes"] / 1e9
    yield from (
        ("staged JSON parsed and checked; to archive", rate(text / MIB, parse, "MiB/s"),
         rate(text / MIB, ingest, "MiB/s"), ratios(parse, ingest), "at least 30"),
        ("`verify_and_linearize`; `validate`", rate(tokens / 1e6, verify, "M tokens/s"),
         rate(tokens / 1e6, validate, "M tokens/s"), ratios(verify, validate), "at least 60"),
        ("the same in calls", rate(made["calls"] / 1e3, verify, "k calls/s"),
         rate(made["calls"] / 1e3, validate, "k calls/s"), ratios(verify, validate), ""),
        (f"SHA-256 alone over the same {hashed * 1e3:.0f} MB; validation, in one process, memory mapped",
         f"{spread(floor)} s", f"{spread(inside)} s", ratios(inside, floor), "at most 1.5"),
        ("the package's builder, `verify_and_linearize`: one row a rollout; `build-rows`: all rows",
         rate(result["rows"] / 1e3, verify, "k rows/s"),
         rate(made_rows["rows"] / 1e3, build_rows, "k rows/s"),
         [made_rows["rows"] / result["rows"] * a / b
          for a, b in zip(verify, build_rows, strict=True)], ""),
        ("copying the columns of all rows; selection and rows, in one process",
         rate(made_rows["row_tokens"] / 1e6, copy, "M tokens/s"),
         rate(made_rows["row_tokens"] / 1e6, build, "M tokens/s"), ratios(build, copy), ""),
        ("staged JSONL to archive", f"{text / MIB:.1f} MiB", f"{size(archive) / MIB:.1f} MiB",
         [text / size(archive)], ""),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=Path, help="folder for scratch files (1 GB)")
    given = parser.parse_args()
    programs = build()
    work = Path(tempfile.mkdtemp(prefix="forestctl-bench-", dir=given.work))
    try:
        lines = [*store(work, given.runs, *programs), *staged(work, given.runs, *programs)]
    finally:
        shutil.rmtree(work)
    print(f"{machine()}. {given.runs} runs: median (range).\n")
    print(table(["measure", "package, or floor", "forestctl", "ratio", "wanted"],
                [(what, a, b, spread(ratio), goal) for what, a, b, ratio, goal in lines]))


if __name__ == "__main__":
    main()
