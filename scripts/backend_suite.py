"""ONNX's backend test suite through onnxq: quantized in every way, run, and every integer checked.

    scripts/backend_suite                           # all 2,000 models (some 7 CPU minutes)
    scripts/backend_suite --n 100 --seed 1          # some of them
    scripts/backend_suite --case test_gru_defaults  # one, in this process, with its messages

Each model is quantized statically, with every node forced, forced in the format QOperator, and
dynamically, calibrated on the suite's own data. ONNX Runtime then runs what came out, and
cross_check holds it against the reference kernels. A refusal with an error of onnxq/errors.py is
right, and so is a result. Wrong are: a traceback, a crash, a hang, a file that ONNX Runtime does
not run although it runs the float model, an integer that differs, an output beyond its derived
bound, and other outputs where nothing was quantized. Ends with 1 where anything is wrong.

What it printed is in scripts/backend_suite.md.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from scripts import _tables
from scripts._backend import cases, isolated
from scripts._backend.ways import BAD, WAYS, Ended, Outcome, run_case
from scripts._reasons import LONGEST, reason

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGES = ("onnx", "onnxruntime", "onnx-ir", "numpy")
FIRST = "test_gemm_all_attributes"
EXAMPLES = 3
PROGRESS = 100  # models between two lines where stderr is no terminal


def main() -> int:
    """Runs what the command line asks for; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, help="so many models, drawn by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", help="run this one here, and say all")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", type=Path, help="write the table there, too")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    if args.case is not None:
        for each in run_case(cases.case(args.case)):
            print(f"{each.way}: {each.outcome.value} {each.detail}")
        return 0
    ended = run(drawn(args.n, args.seed), args.processes)
    _tables.publish(lines(ended), args.output)
    return 1 if wrong(ended) else 0


def drawn(count: int | None, seed: int) -> list[str]:
    """Names of so many models; None: all."""
    names = cases.names()
    if count is None or count >= len(names):
        return names
    places = np.random.default_rng(seed).choice(len(names), count, replace=False)
    return [names[i] for i in sorted(places)]


def run(names: Sequence[str], processes: int) -> list[Ended]:
    """How every way ended with each of the models."""
    found: list[Ended] = []
    run_case(cases.case(FIRST))  # imports everything once, ahead of all forks
    for i, ended in enumerate(isolated.run(names, processes), 1):
        found += ended
        if sys.stderr.isatty() or not i % PROGRESS:
            end = "" if sys.stderr.isatty() else "\n"
            print(f"\r{i}/{len(names)}, {len(wrong(found))} wrong", end=end, file=sys.stderr)
    return sorted(found, key=lambda e: (e.case, e.way))


def wrong(ended: Sequence[Ended]) -> list[Ended]:
    """Ends that must never come."""
    return [e for e in ended if e.outcome in BAD]


def lines(ended: Sequence[Ended]) -> list[str]:
    """The page: counts, refusals by reason, what was not checked, what is wrong."""
    models = {e.case for e in ended}
    running = {e.case for e in ended if e.runs}
    counts = Counter((e.outcome, e.way) for e in ended)
    found = [
        "# ONNX's backend suite",
        "",
        f"`scripts/backend_suite`: {len(models)} models, of which ONNX Runtime runs {len(running)}",
        f"as they are; {_tables.versions(*PACKAGES)}.",
        "",
        _tables.head("", *WAYS),
        *(_tables.line(o.value, *(counts[o, way] for way in WAYS)) for o in Outcome),
        "",
        "## Refused, by reason",
        "",
        *_by_reason(ended, Outcome.REFUSED),
    ]
    if any(e.outcome is Outcome.UNCHECKED for e in ended):
        found += ["", "## Not checked, by reason", "", *_by_reason(ended, Outcome.UNCHECKED)]
    if bad := wrong(ended):
        found += ["", "## Wrong", "", _tables.head("model", "way", "outcome", "what")]
        found += [
            _tables.line(e.case, e.way, e.outcome.value, _tables.escaped(e.detail)[:LONGEST])
            for e in bad
        ]
    return found


def _by_reason(ended: Sequence[Ended], outcome: Outcome) -> list[str]:
    """Rows of a table: message without its names, count, examples."""
    groups: dict[str, list[Ended]] = {}
    for each in ended:
        if each.outcome is outcome:
            groups.setdefault(reason(each.detail), []).append(each)
    rows = [_tables.head("reason", "times", "models", "such as")]
    for text, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        models = list(dict.fromkeys(e.case for e in members))
        rows.append(_tables.line(text, len(members), len(models), ", ".join(models[:EXAMPLES])))
    return rows


if __name__ == "__main__":
    sys.exit(main())
