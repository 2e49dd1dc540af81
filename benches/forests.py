"""Tables of what scripts/gpu/forests.sh wrote: forests.py FOLDER"""

import json
import statistics
import sys
from pathlib import Path

ARMS = ["rows", "suffix", "cascade", "peer-rows", "peer-tree"]


def steps(path):
    """Seconds of whole steps but the first of each process, and the last line."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    # A process begins where its first step is slow: the arms write as many lines each time.
    per_process = max(1, len(lines) // 2) if len(lines) > 3 else len(lines)
    kept = [line for at, line in enumerate(lines) if at % per_process]
    total = lambda x: x["score_seconds"] + x["train_seconds"] + x["update_seconds"]
    return [total(line) for line in kept], lines[-1]


def main():
    out = Path(sys.argv[1])
    of = lambda stem: max((arm for arm in ARMS if stem.endswith(f"-{arm}")), key=len, default="")
    cases = {path.stem.removesuffix(f"-{of(path.stem)}") for path in out.glob("*.jsonl")}
    for case in sorted(cases):
        found = {}
        for arm in ARMS:
            path = out / f"{case}-{arm}.jsonl"
            if path.exists() and path.read_text().strip():
                found[arm] = steps(path)
        line = [case]
        for arm in ARMS:
            if arm in found and found[arm][0]:
                seconds, last = found[arm]
                line.append(f"{statistics.median(seconds):.3g} ({min(seconds):.3g} to {max(seconds):.3g})"
                            f" s, {last['peak_bytes'] / 2**30:.1f} GiB")
            else:
                line.append("")
        best = statistics.median(found["cascade"][0]) if "cascade" in found else None
        for arm in ("rows", "peer-rows", "peer-tree"):
            line.append(f"{statistics.median(found[arm][0]) / best:.2f}" if best and arm in found else "")
        print("| " + " | ".join(line) + " |")


if __name__ == "__main__":
    main()
