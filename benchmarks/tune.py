"""`onnxq.tune` on models of many kinds: what it reaches, in how many runs, for how much CPU time.

    python -m benchmarks tune              # all of them
    python -m benchmarks tune transformer  # those alone

Each model is searched from onnxq's default for "30 dB" (min_sqnr_db=30, as fast as it gets), "not
slower" (max_time=1, as fast as it gets, with no bound on accuracy), and "0.1 point" (at most 0.001
of top-1 accuracy below float) where there are labels; some from all integers, too, to find what was
worked out by hand before: the linear layers alone of a transformer, the front end of audio
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
up.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
import numpy as np

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import RATIO, Missed, Row, Table
from onnxq.errors import OnnxqError
from onnxq.qconfig import Choice, default_qconfig_mapping
from scripts._architectures import ARCHITECTURES, Size
from scripts._defaults import SUBJECTS
from scripts._defaults.mobile import architecture
from scripts._models import evaluation_data, float_models
from scripts._timing import session
from scripts.corpus import TASKS, Recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onnxq.core.arrays import Array
    from onnxq.tuning.scoring.model_run import ModelRun
    from onnxq.tuning.scoring.score import Score
    from onnxq.tuning.scoring.tuning_samples import TuningSamples
    from scripts._defaults.case import Case

    Batch = Mapping[str, Array]

TARGET = "x86-vnni"
AT_ONCE = 50  # images
TRAINED = ("resnet20", "mobilenetv2")
SEARCHES = Table(
    "searches",
    {
        **{"model": "", "goal": "", "begun: dB": ".1f", "begun: time": ".2f"},
        **{"begun: size": ".2f", "reached: dB": ".1f", "reached: time": RATIO},
        **{"predicted": ".2f", "reached: size": ".2f", "checked: dB": ".1f"},
        **{"metric (float)": "", "runs": ".1f", "passes": ".0f"},
    },
    keys=2,
)
MOVES = Table("moves", {"model": "", "goal": "", "moves": ""}, keys=2)
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
class Figures:
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


def _asked(goal: str, given: Problem) -> dict[str, object]:
    """Arguments of `onnxq.tune` for a goal, whose metric is the model's."""
    asked = GOALS[goal]()
    return {**asked, "goal": replace(cast("onnxq.Goal", asked["goal"]), metric=given.metric)}


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


def searched(name: str, goal: str, given: Problem, journal: Path) -> Figures:
    """One search."""
    tuned = onnxq.tune(
        given.model,
        onnxq.Samples(given.search, feedback=given.feedback or {}),
        check=given.check,
        target=TARGET,
        journal=journal,
        **_asked(goal, given),  # type: ignore[arg-type]  # by what tune takes
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
    return Figures(
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


def rows(found: Figures) -> Iterator[Row]:
    """Figures of a search, and what it moved."""
    metric = None
    if np.isfinite(found.float_metric):
        metric = f"{found.checked[1]:.3f} ({found.float_metric:.3f})"
    db, time, size, _ = found.reached
    goal = found.goal + (" (missed)" if found.missed else "")
    yield SEARCHES.row(
        found.name,
        goal,
        *found.begun[:3],
        db,
        [time, *found.time_range],
        found.predicted,
        size,
        found.checked[0],
        metric,
        found.runs,
        found.passes,
    )
    moves = "; ".join(found.moves) or "stays where it begins"
    missed = f" Missed: {'; '.join(found.missed)}." if found.missed else ""
    yield MOVES.row(found.name, found.goal, f"{moves}.{missed}")


NAMES = tuple(dict.fromkeys((*TRAINED, *SUBJECTS, *ARCHITECTURES, *TASKS)))


@benchmark(SEARCHES, MOVES, needs=("torch",))
@click.option("--goal", "goals", multiple=True, type=click.Choice(list(GOALS)), help="only these")
@with_names(NAMES)
def measure(goals: Sequence[str], names: Sequence[str]) -> Iterator[Row | Missed]:
    """The searches of each model."""
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            given: Problem | None = None
            for goal in goals_of(name):
                if goals and goal not in goals:
                    continue
                try:
                    given = given or problem(name, Path(folder))
                    yield from rows(searched(name, goal, given, Path(folder) / "journal"))
                except FileNotFoundError as error:
                    yield Missed(f"{name}: not measured: {error}")
                    break
                except OnnxqError as error:
                    yield Missed(f"{name}, {goal}: {error}")
