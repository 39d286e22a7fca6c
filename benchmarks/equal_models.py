"""Times of equal models: how often does an interval leave out 1 on a busy machine?

    python -m benchmarks equal_models [--trials 20]   # twenty minutes

`onnxq.bench` compares a model with its own copy, on random inputs, while two processes keep two
cores busy by fits and starts: half a second of work and up to half a second of rest, in turns. An
interval of 95% may leave out 1 once in 20 trials. "ratio": the lowest and the highest median of
the trials. "widest": the widest interval, high over low.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import onnx

import onnxq
from benchmarks.answers import deep
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Missed, Row, Table
from scripts._pages.given import put

if TYPE_CHECKING:
    from collections.abc import Iterator

EQUAL = Table(
    "models",
    {
        **{"model": "", "nodes": "d", "trials": "d", "leave out 1": "d"},
        **{"ratio": ".2f", "widest": ".2f", "ms": ".3f"},
    },
)
OURS = ("resnet20", "mobilenetv2", "transformer")
MOST, BUSY, BURST_S = 1, 2, 0.5


def work_and_rest(seed: int) -> None:
    """Keeps a core busy by fits and starts, until it is ended."""
    draw = random.Random(seed)  # no secret
    while True:
        end = time.perf_counter() + BURST_S
        while time.perf_counter() < end:
            sum(range(1000))
        time.sleep(draw.uniform(0, BURST_S))


@contextmanager
def load() -> Iterator[None]:
    """Two other processes work meanwhile."""
    others = [
        multiprocessing.Process(target=work_and_rest, args=(i,), daemon=True) for i in range(BUSY)
    ]
    for each in others:
        each.start()
    try:
        yield
    finally:
        for each in others:
            each.terminate()


@benchmark(EQUAL, needs=("torch",))
@click.option("--trials", default=20, show_default=True)
def measure(trials: int) -> Iterator[Row | Missed]:
    """A row per model."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        put([f"{name}.onnx" for name in OURS], folder)
        deep(folder / "deep.onnx")
        for label, name in [*zip(OURS, OURS, strict=True), ("a chain of Conv and Relu", "deep")]:
            model, copy = folder / f"{name}.onnx", folder / "copy.onnx"
            shutil.copy(model, copy)
            with load():
                found = [onnxq.bench(model, copy) for _ in range(trials)]
            wrong = sum(not each.speed_range[0] <= 1 <= each.speed_range[1] for each in found)
            medians = [each.speedup for each in found]
            yield EQUAL.row(
                label,
                len(onnx.load(model).graph.node),
                trials,
                wrong,
                [min(medians), max(medians)],
                max(each.speed_range[1] / each.speed_range[0] for each in found),
                min(each.float_ms for each in found),
            )
            if wrong > MOST:
                yield Missed(f"{label}: {wrong} of {trials} intervals leave out 1")
