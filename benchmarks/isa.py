"""ONNX Runtime on emulated machines beside what the reference predicts of them.

    scripts/setup_isa                          # once
    python -m benchmarks isa                # every machine; some minutes of CPU time each
    python -m benchmarks isa avx2 dot       # some of them

Per machine, with kernels of its own instruction set (qemu-user):

    operators  random and adversarial nodes of every integer operator (tests/isa/node_cases.py)
    layers     the integers of every layer of ResNet-20 and MobileNetV2, for x86-vnni, portable, and
               with weights clipped at -128 (tests/isa/model_cases.py), over test images
    top-1      the class of each of 200 test images, beside x86 with VNNI (exact integers)

`not as predicted` is what must be 0, and the exit code is 1 where it is not. `not exact` is what a
machine computes otherwise than one with VNNI: what the prediction is for. Floats count where they
differ by more than their last bits, which are the machine's own (FLOATS in node_cases.py). Last,
the cost, which needs no emulator: CPU time of the reference's run as a machine, and of `predict`
for one machine and for all, over that of its plain run; one thread, loading included, in turns.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import numpy.typing as npt

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import Missed, Row, Table
from models.cifar10 import load_sample
from onnxq import reference
from onnxq.checking.predict import predict
from onnxq.ort import runtime
from onnxq.samples import Samples
from onnxq.targets.accumulation import SaturationMode
from tests.isa.machines import MACHINES, Machine, run, unpacked
from tests.isa.model_cases import CLIPPED, ModelCase, model_cases
from tests.isa.node_cases import NodeCase, node_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import onnx_ir as ir

    from onnxq.operator import Array

SEED = 1  # the tests' is 0
LAYER_IMAGES = 20
TOP1_IMAGES = 200
ROUNDS = 3
COSTS = ((20, 20), (20, 1), (64, 32))  # images, batch size
PREDICTED = ("x86-avx2", "arm64", "all")
OPERATORS = Table(
    "operators",
    {
        **{"machine": "", "operator": "", "cases": "", "elements": ","},
        **{"not as predicted": "", "not exact": ","},
    },
    keys=2,
)
LAYERS = Table(
    "layers",
    {
        **{"machine": "", "model": "", "tensors": "", f"elements, {LAYER_IMAGES} images": ","},
        **{"not as predicted": "", "not exact": ",", "tensors with such": ""},
    },
    keys=2,
)
TOP1 = Table(
    "top1",
    {
        **{"machine": "", "model": "", "top-1": ".1%", "top-1, this machine": ".1%"},
        **{"images of another class": "", "logits that differ": "{0[0]:,} of {0[1]:,}"},
    },
    keys=2,
)
COST = Table(
    "cost",
    {
        **{"images": "", "batch": "", "model": "", "plain, s": ".3f"},
        **dict.fromkeys(map(str, SaturationMode), "{:.2f}x"),
        **{f"predict, {names}": "{:.2f}x" for names in PREDICTED},
    },
    keys=3,
)
MISSING = "the emulated machines are not there: run scripts/setup_isa"


@dataclass(slots=True)
class Count:
    """Elements of a machine's results, compared."""

    cases: int = 0
    elements: int = 0
    wrong: int = 0
    inexact: int = 0

    def add(self, elements: int, wrong: int, inexact: int) -> None:
        """One case more."""
        self.cases += 1
        self.elements += elements
        self.wrong += wrong
        self.inexact += inexact

    def cells(self) -> tuple[int, ...]:
        """Cells of a table."""
        return self.cases, self.elements, self.wrong, self.inexact


def differing(xs: Sequence[Array], ys: Sequence[Array]) -> int:
    """Elements that are not equal; NaN equals NaN."""
    return sum(
        int(np.count_nonzero((x != y) & ~((x != x) & (y != y))))
        for x, y in zip(xs, ys, strict=True)
    )


def operators(machines: Sequence[Machine], emulators: Path, folder: Path) -> Iterator[Row]:
    """Counts of each operator on each machine."""
    cases = list(node_cases(("ends",), SEED))
    (folder / "nodes").mkdir()
    for case in cases:
        case.save(folder / "nodes")
    for machine in machines:
        results = run(machine, emulators, folder / "nodes", folder / f"nodes-{machine}")
        counts: dict[str, Count] = {}
        for case in cases:
            got = results.outputs(case.name)
            count = counts.setdefault(kind(case), Count())
            inexact = case.differing(got, machine, SaturationMode.EXACT)
            count.add(sum(y.size for y in got), case.differing(got, machine), inexact)
        for name, count in counts.items():
            yield OPERATORS.row(str(machine), name, *count.cells())


def kind(case: NodeCase) -> str:
    """Operators with products have a row each."""
    return case.op_type if case.operator.depends_on_machine() else "all others"


def layers(
    machines: Sequence[Machine], emulators: Path, folder: Path, models: Sequence[ModelCase]
) -> Iterator[Row]:
    """Counts of the layers of each model on each machine."""
    (folder / "layers").mkdir()
    for case in models:
        case.save(folder / "layers")
    for machine in machines:
        results = run(machine, emulators, folder / "layers", folder / f"layers-{machine}")
        for case in models:
            got = results.outputs(case.name)
            predicted, exact = (
                case.predicted(a) for a in (machine.saturation_mode, SaturationMode.EXACT)
            )
            tensors = sum(bool((x != y).any()) for x, y in zip(got, exact, strict=True))
            counts = sum(y.size for y in got), differing(got, predicted), differing(got, exact)
            yield LAYERS.row(str(machine), case.name, len(got), *counts, tensors)


def top1(
    machines: Sequence[Machine], emulators: Path, folder: Path, models: Sequence[ModelCase]
) -> Iterator[Row | Missed]:
    """Classes on each machine, and images of portable models with another one than on x86."""
    images, labels = load_sample("test")
    images, labels = images[:TOP1_IMAGES], labels[:TOP1_IMAGES]
    whole = [
        replace(case, seen=case.model, images=images)
        for case in models
        if not case.name.endswith(CLIPPED)
    ]
    (folder / "whole").mkdir()
    native: dict[str, npt.NDArray[np.float32]] = {}
    for case in whole:
        case.save(folder / "whole")
        with runtime.open_session(case.model, threads=1) as session:
            native[case.name] = np.asarray(session.run({"image": images})[0], np.float32)
    for machine in machines:
        results = run(machine, emulators, folder / "whole", folder / f"whole-{machine}")
        for case in whole:
            (got,) = results.outputs(case.name)
            here = native[case.name]
            other = int(np.count_nonzero(got.argmax(1) != here.argmax(1)))
            accuracy = [(y.argmax(1) == labels).mean() for y in (got, here)]
            unlike = [np.count_nonzero(got != here), got.size]
            yield TOP1.row(str(machine), case.name, *accuracy, other, unlike)
            if other and case.name.endswith("portable"):
                yield Missed(f"{machine}, {case.name}: {other} images of another class")


def cost(models: Iterable[ModelCase], count: int, batch: int) -> Iterator[Row]:
    """Times of evaluating as a machine, and of predicting, of so many images."""
    images = load_sample("test")[0][:count]
    for case in models:
        runs = [partial(_evaluate, case.model, images, batch, a) for a in (None, *SaturationMode)]
        runs += [partial(_predict, case.model, images, batch, names) for names in PREDICTED]
        plain, *others = _least(runs)
        yield COST.row(count, batch, case.name, plain, *(seconds / plain for seconds in others))


def _evaluate(
    model: ir.Model,
    images: npt.NDArray[np.float32],
    batch: int,
    saturation_mode: SaturationMode | None,
) -> None:
    session = (
        reference.evaluator(model)
        if saturation_mode is None
        else reference.evaluator(model, saturation_mode=saturation_mode)
    )
    for i in range(0, len(images), batch):
        session.run(None, {"image": images[i : i + batch]})


def _predict(model: ir.Model, images: npt.NDArray[np.float32], batch: int, names: str) -> None:
    predict(model, Samples({"image": images}, batch_size=batch), names)


def _least(runs: Sequence[Callable[[], None]]) -> list[float]:
    """CPU seconds of each, taken in turns."""
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for times, run_once in zip(found, runs, strict=True):
            start = time.process_time()
            run_once()
            times.append(time.process_time() - start)
    return [min(times) for times in found]


PARTS = ("operators", "models", "cost")


@benchmark(OPERATORS, LAYERS, TOP1, COST)
@click.option("--only", type=click.Choice(PARTS), help="default: all of them")
@with_names(machine.name for machine in MACHINES)
def measure(only: str | None, names: Sequence[str]) -> Iterator[Row | Missed]:
    """The rows of the parts that are asked for, and what is not as predicted."""
    emulators = unpacked()
    if emulators is None and only != "cost":
        raise click.ClickException(MISSING)
    chosen = [machine for machine in MACHINES if not names or machine.name in names]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if emulators is not None and only in (None, "operators"):
            yield from as_predicted(operators(chosen, emulators, folder))
        if only == "operators":
            return
        images = load_sample("test")[0][:LAYER_IMAGES]
        models = list(model_cases(folder, load_sample("calibration")[0], images))
        if emulators is not None and only in (None, "models"):
            yield from as_predicted(layers(chosen, emulators, folder, models))
            yield from top1(chosen, emulators, folder, models)
        if only in (None, "cost"):
            for count, batch in COSTS:
                yield from cost(models, count, batch)


def as_predicted(rows: Iterable[Row]) -> Iterator[Row | Missed]:
    """The rows, and those with elements that are not as predicted."""
    for row in rows:
        yield row
        wrong = dict(zip(row.table.columns, row.cells, strict=True))["not as predicted"]
        if wrong:
            yield Missed(f"{row.cells[0]}, {row.cells[1]}: {wrong} not as predicted")
