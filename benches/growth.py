"""Time and peak memory of `ingest`, `validate` and `build-rows` as captures grow.

    growth.py [--runs 3] [--work DIR] [--base 1000] [--scales 1,4,16,64] [--only NAME]...

Staged captures of `--base` rollouts times each scale (64 x is 10 GB of staged records), one rollout
of 100,000 calls compacted every 100 calls, one of 100,000 calls in a single chain, and a million
calls. Sources and archives are deleted as soon as they are measured. Prints Markdown: medians of
the runs, with the range where it is a time; peaks are the largest resident set of any run.
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from statistics import median

from measure import MIB, Run, build, generate, machine, say, size, spread, table


def cases(base, scales):
    """Name and arguments of the generator."""
    for scale in scales:
        yield f"{scale} x", ("staged", "--rollouts", str(base * scale))
    yield "one rollout of 100,000 calls", ("long",)
    yield "100,000 calls in one chain", ("long", "--compact-every", "0", "--delta", "4")
    yield "a million calls", ("staged", "--rollouts", "114000", "--delta", "100")


def measure(work, forestctl, runs, name, arguments):
    source, made = generate(work, "source", *arguments)
    archive, rows = work / "archive.forest", work / "rows"
    ingest, validate, build_rows = [], [], []
    for run in range(runs):
        say(f"{name}, run {run + 1} of {runs}")
        ingest.append(Run([forestctl, "ingest", source, "-o", archive, "--force", "-q"]))
        validate.append(Run([forestctl, "validate", archive, "--format", "json"]))
        checked = validate[-1].json()
        assert checked["checked"]["calls"] == made["calls"] and not checked["findings"]
        build_rows.append(Run([forestctl, "build-rows", archive, "-o", rows, "--force", "--policy",
                               "all_captured", "--format", "json"]))
    total = made["capture_bytes"] + made["other_bytes"]
    row = (
        name, f"{made['calls']:,}", f"{total / MIB:,.0f}", f"{size(archive) / MIB:,.0f}",
        spread([run.seconds for run in ingest]),
        f"{median([total / MIB / run.seconds for run in ingest]):,.0f}",
        f"{max(run.peak for run in ingest) / MIB:,.0f}",
        spread([run.seconds for run in validate]),
        f"{median([made['delta_tokens'] / 1e6 / run.seconds for run in validate]):.1f}",
        f"{max(run.peak for run in validate) / MIB:,.0f}",
    )
    counts = build_rows[-1].json()
    built = (
        name, f"{counts['rows']:,}", f"{counts['row_tokens'] / 1e6:,.1f}",
        f"{size(rows) / MIB:,.0f}",
        spread([run.seconds for run in build_rows]),
        f"{median([counts['rows'] / 1e3 / run.seconds for run in build_rows]):.1f}",
        f"{median([counts['row_tokens'] / 1e6 / run.seconds for run in build_rows]):.1f}",
        f"{max(run.peak for run in build_rows) / MIB:,.0f}",
    )
    shutil.rmtree(rows)
    shutil.rmtree(source)
    shutil.rmtree(archive)
    return row, built


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="folder for scratch files (14 GB)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--base", type=int, default=1000)
    parser.add_argument("--scales", default="1,4,16,64")
    parser.add_argument("--only", action="append", help="a name as printed in the first column")
    given = parser.parse_args()
    forestctl, _ = build()
    scales = [int(scale) for scale in given.scales.split(",")]
    chosen = [(name, arguments) for name, arguments in cases(given.base, scales)
              if not given.only or name in given.only]
    rows = []
    for name, arguments in chosen:
        work = Path(tempfile.mkdtemp(prefix="forestctl-bench-", dir=given.work))
        try:
            rows.append(measure(work, forestctl, given.runs, name, arguments))
        finally:
            shutil.rmtree(work)
    print(f"{machine()}. {given.runs} runs.\n")
    print(table(["capture", "calls", "source MiB", "archive MiB", "ingest s", "MiB/s", "peak MiB",
                 "validate s", "M tokens/s", "peak MiB"], [row for row, _ in rows]))
    print()
    print(table(["capture", "rows", "M row tokens", "MiB", "build-rows s", "k rows/s",
                 "M tokens/s", "peak MiB"], [built for _, built in rows]))


if __name__ == "__main__":
    main()
