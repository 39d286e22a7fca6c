"""Wrong inputs of every kind, and a count of what must never happen.

    scripts/fuzz --n 5000 --seed 1                  # all kinds
    scripts/fuzz --n 200 --seed 1 --kinds models    # some
    scripts/fuzz --seed 1 --case models:123         # one case, in this process, with its traceback

Each case is one input with something made wrong (scripts/_fuzz says what), given to some commands
and functions in a process that may take 2 GB, 30 CPU seconds a call, and write into one folder. A
refusal with an error of onnxq/errors.py is right, and so is a result. Wrong are: a traceback (or
an exit code that errors.py does not list), a crash, a hang, more memory, and a file that is
written, or read, outside. "ORT's own" are crashes, hangs and memory that ONNX Runtime alone shows
on the same input, without onnxq. Ends with 1 where anything is wrong.

What it printed is in scripts/fuzz.md.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import pkgutil
import platform
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from scripts._fuzz import inside, probed, table, workers
from scripts._fuzz.kinds import KINDS, make_case, numbered
from scripts._fuzz.seed_models import make_all
from scripts._tables import publish, versions

TOLD = 100  # cases between two lines on how far it is
PACKAGES = ("onnxruntime", "onnx", "onnx-ir", "numpy")


def main() -> int:
    """Runs what the command line asks for; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=500, help="cases, of all kinds together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of " + ", ".join(KINDS))
    parser.add_argument("--case", metavar="KIND:NUMBER", help="run this one here, and say all")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", type=Path, help="write the table there, too")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    if args.case is not None:
        kind, _, number = args.case.partition(":")
        return run_here(inside.Job(kind, int(number), args.seed))
    kinds = args.kinds.split(",")
    for kind in kinds:
        make_case(kind)
    import_all()
    make_all()
    gc.freeze()  # what is imported is never garbage: a collection per call walks it, else
    jobs = [inside.Job(kind, number, args.seed) for kind, number in numbered(kinds, args.n)]
    results = []
    for result in workers.run(jobs, args.processes):
        results.append(result)
        for _, ended in table.failures([result]):
            said = f"{result.words}: {ended.call}: {ended.outcome.value}: {ended.detail}"
            print(f"--case {result.job.name}: {said}", file=sys.stderr)
        if len(results) % TOLD == 0:
            print(f"{len(results)} of {len(jobs)} cases", file=sys.stderr)
    results.sort(key=lambda r: (kinds.index(r.job.kind), r.job.number))
    text = [
        "# Fuzzing",
        "",
        f"`scripts/fuzz --n {args.n} --seed {args.seed} --kinds {args.kinds}`:",
        f"{len(results)} cases, {versions(*PACKAGES)}, Python {platform.python_version()}.",
        "",
        *table.lines(results),
    ]
    publish(text, args.output)
    return 1 if table.failures(results) else 0


def import_all() -> None:
    """Imports all modules but those of torch, ahead of all forks: quicker, and of one time."""
    for module in pkgutil.walk_packages(onnxq.__path__, "onnxq.", onerror=lambda _: None):
        if not module.name.startswith(("onnxq.pytorch", "onnxq.__main__")):
            importlib.import_module(module.name)


def run_here(job: inside.Job) -> int:
    """Runs one case in this process, without limits; prints each call's end; 1 if one is wrong."""
    wrong = 0

    def tell(message: inside.Message) -> None:
        nonlocal wrong
        if isinstance(message, inside.Ended):
            wrong += message.outcome not in inside.GOOD
            print(f"    {message.outcome.value}: {message.detail}")
        else:
            print(message)

    with tempfile.TemporaryDirectory(prefix="onnxq-fuzz-") as folder:
        inside.run(job, Path(folder), probed.Watch(), tell)
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        traceback.print_exc(limit=1)
        sys.exit(130)
