"""`onnxq.tune` on models of many kinds: what it reaches, in how many runs, for how much CPU time.

    python -m benchmarks tune --results FOLDER              # all of them
    python -m benchmarks tune --results FOLDER transformer  # those alone

Each model is searched from onnxq's default for "30 dB" (min_sqnr_db=30, as fast as it gets), "not
slower" (max_time=1, as fast as it gets, with no bound on accuracy), and "0.1 point" (at most 0.001
of top-1 accuracy below float) where there are labels; some from all integers, too, to find what was
worked out by hand before: the products with weights alone of a transformer, the front end of audio
in float, the recurrences. The goals of a model share a journal: times, sensitivity and scores are
measured once. Samples are those of benchmarks/defaults.py and of scripts/_architectures; the
goal is checked on test samples, which choose nothing. With labels, half of the test images are
searched on, and the other half checked on. Of the corpus, which scripts/corpus.py fetches, a fourth
of the calibration samples is held apart; its metric is the score of the task, which the search does
not see.

Timed: whole runs over float's, one thread, one sample, in turns, with the interval of 95%;
predicted: what times of nodes had said. Runs: models that were quantized and run on the samples,
the sensitivity's by their share, looked-up ones included. Passes: CPU time of the search, over one
pass of the float model over the samples; the first goal of a model measures what the others look
up. With --results, each row goes into a file, and those that are there are not measured again.
The table that this printed is in benchmarks/results/tune.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.core import saved
from onnxq.errors import OnnxqError
from onnxq.qconfig import Choice, default_qconfig_mapping
from scripts._architectures import ARCHITECTURES, Size
from scripts._defaults import SUBJECTS
from scripts._defaults.mobile import architecture
from scripts._models import evaluation_data, float_models
from scripts._tables import head, line
from scripts._timing import session
from scripts.corpus import TASKS, Recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onnxq.core.arrays import Array
    from onnxq.tuning.scoring.model_run import ModelRun
    from onnxq.tuning.scoring.score import Score
    from onnxq.tuning.scoring.tuning_samples import TuningSamples
    from scripts._defaults.case import Case

    Batch = Mapping[str, Array]

TARGET = "x86-vnni"
AT_ONCE = 50  # images
TRAINED = ("resnet20", "mobilenetv2")
SEARCHED_FROM_INTEGERS = ("transformer", "shufflenet", "constant_q", "crnn")


@dataclass(frozen=True)
class Problem:
    """A model with samples.

    Attributes:
        model: the float file.
        search: samples to search on.
        check: those to check on; None: a share of the others.
        metric: of the search; None: SQNR.
        feedback: {output: input} of state that goes round.
        score: of a file, which is no part of the search; None: there is none.
    """

    model: Path
    search: object
    check: object
    metric: Callable[[ModelRun, TuningSamples], float] | None = None
    feedback: Mapping[str, str] | None = None
    score: Callable[[Path], float] | None = None


@dataclass(frozen=True)
class Row:
    """Figures of one search; of a model: dB, time over float's, bytes over float's, metric."""

    name: str
    goal: str
    begun: tuple[float, float, float, float]
    reached: tuple[float, float, float, float]
    checked: tuple[float, float]  # dB, metric
    float_metric: float
    predicted: float  # time of the one that was reached
    time_range: tuple[float, float]
    missed: tuple[str, ...]
    moves: tuple[str, ...]
    runs: float
    passes: float


def accuracy(run: ModelRun, samples: TuningSamples) -> float:
    """Share of images whose largest output is at their label."""
    right = [
        next(iter(run(batch).values())).argmax(1) == batch["labels"] for batch in samples.batches
    ]
    return float(np.concatenate(right).mean())


GOALS: dict[str, Callable[[], dict[str, object]]] = {
    "30 dB": lambda: {"goal": onnxq.Goal(min_sqnr_db=30)},
    "not slower": lambda: {"goal": onnxq.Goal(max_time=1)},
    "0.1 point": lambda: {"goal": onnxq.Goal(max_drop=0.001)},
    "30 dB from all integers": lambda: {
        "goal": onnxq.Goal(min_sqnr_db=30),
        "qconfig": default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS),
    },
}


def goals_of(name: str) -> list[str]:
    """Goals that a model is searched for."""
    goals = ["30 dB", "not slower"]
    goals += ["0.1 point"] if name in TRAINED else []
    return [*goals, "30 dB from all integers"] if name in SEARCHED_FROM_INTEGERS else goals


def drawn(case: Case) -> Problem:
    """A case of scripts/_defaults."""
    return Problem(case.model, case.calibration, case.test)


def real(name: str) -> Problem:
    """A task of scripts/corpus.py."""
    task = TASKS[name]()
    return Problem(
        task.model,
        list(task.samples),
        None,
        feedback=dict(task.feedback) or None,
        score=lambda path: task.score(Recorded(session(path))),
    )


def problem(name: str, folder: Path) -> Problem:
    """The model of that name, its file in the folder."""
    if name in TASKS:
        return real(name)
    if name not in TRAINED:
        make = SUBJECTS[name].make if name in SUBJECTS else partial(architecture, name)
        return drawn(make(Size.REAL, folder))
    calibration, images, labels = evaluation_data(None)
    files = {model.name: model.path for model in float_models(folder, calibration)}
    half = len(images) // 2

    def batches(first: int) -> list[Batch]:
        return [
            {"image": images[i : i + AT_ONCE], "labels": labels[i : i + AT_ONCE]}
            for i in range(first, first + half, AT_ONCE)
        ]

    return Problem(files[name], batches(0), batches(half), accuracy)


def searched(name: str, goal: str, given: Problem, journal: Path) -> Row:
    """One search."""
    tuned = onnxq.tune(
        given.model,
        onnxq.Samples(given.search, feedback=given.feedback or {}),
        check=given.check,
        metric=given.metric,
        target=TARGET,
        journal=journal,
        **GOALS[goal](),  # type: ignore[arg-type]
    )
    float_bytes = given.model.stat().st_size

    def figures(score: Score) -> tuple[float, float, float, float]:
        time = np.nan if score.time_ratio is None else score.time_ratio
        return score.worst_db, time, score.size_bytes / float_bytes, score.metric

    metrics = tuned.held_apart.score.metric, tuned.held_apart.float_metric
    if given.score is not None:
        path = journal.with_name("tuned.onnx")
        tuned.save(path)
        metrics = given.score(path), given.score(given.model)
    chosen = next(step for step in tuned.steps if step.qconfig == tuned.qconfig)
    return Row(
        name,
        goal,
        figures(tuned.steps[0].score),
        figures(tuned.score),
        (tuned.held_apart.score.worst_db, metrics[0]),
        metrics[1],
        tuned.score.predicted_time or np.nan,
        tuned.score.time_range or (np.nan, np.nan),
        tuned.missed,
        chosen.changes,
        tuned.spent.runs,
        tuned.spent.cpu_s / tuned.spent.pass_s,
    )


def table(rows: list[Row]) -> Iterator[str]:
    """Lines of Markdown: a row per search, then what was moved."""
    yield head(
        "model",
        "goal",
        "begun: dB",
        "time",
        "size",
        "reached: dB",
        "timed",
        "predicted",
        "size",
        "checked: dB",
        "metric (float)",
        "runs",
        "passes",
    )
    for row in rows:
        metric = "-"
        if np.isfinite(row.float_metric):
            metric = f"{row.checked[1]:.3f} ({row.float_metric:.3f})"
        low, high = row.time_range
        db, time, size, _ = row.reached
        yield line(
            row.name,
            row.goal + (" (missed)" if row.missed else ""),
            *(f"{x:.{n}f}" for x, n in zip(row.begun, (1, 2, 2), strict=False)),
            f"{db:.1f}",
            f"{time:.2f} ({low:.2f}..{high:.2f})",
            f"{row.predicted:.2f}",
            f"{size:.2f}",
            f"{row.checked[0]:.1f}",
            metric,
            f"{row.runs:.1f}",
            f"{row.passes:.0f}",
        )
    yield ""
    for row in rows:
        moves = "; ".join(row.moves) or "stays where it begins"
        missed = f" Missed: {'; '.join(row.missed)}." if row.missed else ""
        yield f"- {row.name}, {row.goal}: {moves}.{missed}"


def read(text: str) -> Row:
    """The row whose fields are this JSON."""
    made: Row = saved.read(Row, json.loads(text))
    return made


def main() -> int:
    names = list(dict.fromkeys((*TRAINED, *SUBJECTS, *ARCHITECTURES, *TASKS)))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--goal", action="append", choices=GOALS, help="only this; repeatable")
    parser.add_argument("--results", type=Path, help="folder of what is measured, and was")
    args = parser.parse_args()
    if unknown := set(args.names) - set(names):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    if args.results is not None:
        args.results.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)  # of torch's exporter
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: list[Row] = []
    for name in args.names or names:
        with tempfile.TemporaryDirectory() as folder:
            given: Problem | None = None
            for goal in goals_of(name):
                if args.goal and goal not in args.goal:
                    continue
                file = None if args.results is None else args.results / f"{name}, {goal}.json"
                if file is not None and file.is_file():
                    rows.append(read(file.read_text("utf-8")))
                    continue
                try:
                    given = given or problem(name, Path(folder))
                except FileNotFoundError as error:
                    print(f"{name}: not measured: {error}", file=sys.stderr)
                    break
                try:
                    rows.append(searched(name, goal, given, Path(folder) / "journal"))
                except OnnxqError as error:
                    print(f"{name}, {goal}: {error}", file=sys.stderr, flush=True)
                    continue
                if file is not None:
                    file.write_text(json.dumps(saved.plain(rows[-1]), indent=1), "utf-8")
                print(f"{name}, {goal}: {rows[-1].reached}", file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
