"""Running and timing processes, and saying on what machine."""

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHES = ROOT / "benches"
PYTHON = Path(os.environ.get("FORESTCTL_DEPS", ROOT / ".deps")) / "peer/bin/python"
MIB = 1 << 20

# Scratch folders are removed however the script ends.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def say(text):
    print(text, file=sys.stderr, flush=True)


def build():
    """Paths of the release `forestctl` and of the in-process bench."""
    out = []
    for what in (["build", "--release", "--bin", "forestctl"],
                 ["bench", "--no-run", "--bench", "in_process"]):
        done = subprocess.run(["cargo", *what, "--message-format", "json"], cwd=ROOT, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        made = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
        out.append([path for path in made if path][-1])
    return out


class Run:
    """One process: what it printed, wall and CPU seconds, peak resident bytes."""

    def __init__(self, command, ok=(0,), env=None):
        command = [str(word) for word in command]
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **(env or {})})
        self.stdout = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        self.seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        self.cpu = usage.ru_utime + usage.ru_stime
        self.peak = usage.ru_maxrss * 1024
        if child.returncode not in ok:
            sys.exit(f"{' '.join(command)} ended with {child.returncode}")

    def json(self):
        return json.loads(self.stdout)


def generate(work, name, *arguments):
    """Makes a capture under `work` and returns its folder and what it holds."""
    out = work / name
    say(f"generating {name}")
    made = Run([PYTHON, BENCHES / "generate.py", arguments[0], out, *arguments[1:]]).json()
    return out, made


def size(folder):
    """Bytes of all files below `folder`."""
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def spread(values, digits=3):
    """Median and range."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}g} ({low:.{digits}g} to {high:.{digits}g})"


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def machine():
    """The machine, in one line."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), platform.machine())
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    sha = "with" if " sha_ni" in flags else "without"
    load = os.getloadavg()[0]
    return (f"{cpu}, {os.cpu_count()} cores, {sha} SHA instructions, {memory:.0f} GiB, "
            f"Linux {platform.release()}; load average {load:.1f}")
