"""ONNX Runtime on emulated machines beside what the reference predicts of them.

    scripts/setup_isa                          # once
    python -m benchmarks isa                # every machine; some minutes of CPU time each
    python -m benchmarks isa avx2 dot       # some of them

Per machine, with kernels of its own instruction set (qemu-user):

    operators  random and adversarial nodes of every integer operator (tests/isa/node_cases.py)
    layers     the codes of every layer of ResNet-20 and MobileNetV2, for x86-vnni, portable, and
               with weights clipped at -128 (tests/isa/model_cases.py), over test images
    top-1      the class of each of 200 test images, beside x86 with VNNI (exact integers)

`not as predicted` is what must be 0, and the exit code is 1 where it is not. `not exact` is what a
machine computes otherwise than one with VNNI: what the prediction is for. Floats count where they
differ by more than their last bits, which are the machine's own (FLOATS in node_cases.py). Last,
the cost, which needs no emulator: CPU time of the reference's run as a machine, and of `predict`
for one machine and for all, over that of its plain run; one thread, loading included, in turns.
The tables that this printed are in benchmarks/results/isa.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find tests/

from models.cifar10 import load_sample
from onnxq import reference
from onnxq.checking.predict import predict
from onnxq.ort import runtime
from onnxq.samples import Samples
from onnxq.targets.accumulation import Arithmetic
from scripts._tables import head, line
from tests.isa.machines import MACHINES, Machine, run, unpacked
from tests.isa.model_cases import CLIPPED, ModelCase, model_cases
from tests.isa.node_cases import NodeCase, node_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import onnx_ir as ir

    from onnxq.operator import Array

SEED = 1  # the tests' is 0
LAYER_IMAGES = 20
TOP1_IMAGES = 200
ROUNDS = 3
COSTS = ((20, 20), (20, 1), (64, 32))  # images, batch size
PREDICTED = ("x86-avx2", "arm64", "all")
MODEL = ("machine", "model")  # columns
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

    def cells(self) -> tuple[str, ...]:
        """Cells of a table."""
        return str(self.cases), f"{self.elements:,}", f"{self.wrong:,}", f"{self.inexact:,}"


def differing(xs: Sequence[Array], ys: Sequence[Array]) -> int:
    """Elements that are not equal; NaN equals NaN."""
    return sum(
        int(np.count_nonzero((x != y) & ~((x != x) & (y != y))))
        for x, y in zip(xs, ys, strict=True)
    )


def operators(machines: Sequence[Machine], emulators: Path, folder: Path) -> int:
    """Prints the table of operators; elements that are not as predicted."""
    cases = list(node_cases(("ends",), SEED))
    (folder / "nodes").mkdir()
    for case in cases:
        case.save(folder / "nodes")
    print(head("machine", "operator", "cases", "elements", "not as predicted", "not exact"))
    wrong = 0
    for machine in machines:
        results = run(machine, emulators, folder / "nodes", folder / f"nodes-{machine}")
        counts: dict[str, Count] = {}
        for case in cases:
            got = results.outputs(case.name)
            count = counts.setdefault(kind(case), Count())
            inexact = case.differing(got, machine, Arithmetic.EXACT)
            count.add(sum(y.size for y in got), case.differing(got, machine), inexact)
        for name, count in counts.items():
            print(line(machine, name, *count.cells()), flush=True)
            wrong += count.wrong
    return wrong


def kind(case: NodeCase) -> str:
    """Operators with products have a row each."""
    return case.op_type if case.operator.has_products() else "all others"


def layers(
    machines: Sequence[Machine], emulators: Path, folder: Path, models: Sequence[ModelCase]
) -> int:
    """Prints the table of layers; elements that are not as predicted."""
    (folder / "layers").mkdir()
    for case in models:
        case.save(folder / "layers")
    elements = f"elements, {LAYER_IMAGES} images"
    print()
    print(head(*MODEL, "tensors", elements, "not as predicted", "not exact", "tensors with such"))
    wrong = 0
    for machine in machines:
        results = run(machine, emulators, folder / "layers", folder / f"layers-{machine}")
        for case in models:
            got = results.outputs(case.name)
            predicted, exact = (case.predicted(a) for a in (machine.arithmetic, Arithmetic.EXACT))
            tensors = sum(bool((x != y).any()) for x, y in zip(got, exact, strict=True))
            bad = differing(got, predicted)
            counts = [f"{n:,}" for n in (sum(y.size for y in got), bad, differing(got, exact))]
            print(line(machine, case.name, len(got), *counts, tensors), flush=True)
            wrong += bad
    return wrong


def top1(
    machines: Sequence[Machine], emulators: Path, folder: Path, models: Sequence[ModelCase]
) -> int:
    """Prints the table of classes; images of portable models with another one than on x86."""
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
    columns = ("top-1", "top-1, this machine", "images of another class", "logits that differ")
    print()
    print(head(*MODEL, *columns))
    wrong = 0
    for machine in machines:
        results = run(machine, emulators, folder / "whole", folder / f"whole-{machine}")
        for case in whole:
            (got,) = results.outputs(case.name)
            here = native[case.name]
            other = int(np.count_nonzero(got.argmax(1) != here.argmax(1)))
            accuracy = [f"{100 * (y.argmax(1) == labels).mean():.1f}%" for y in (got, here)]
            unlike = f"{np.count_nonzero(got != here):,} of {got.size:,}"
            print(line(machine, case.name, *accuracy, other, unlike), flush=True)
            wrong += other if case.name.endswith("portable") else 0
    return wrong


def cost(models: Iterable[ModelCase], count: int, batch: int) -> None:
    """Prints what evaluating as a machine costs, and what predicting does, of so many images."""
    predicting = [f"predict, {names}" for names in PREDICTED]
    print()
    print(
        head(f"model, {count} images in batches of {batch}", "plain, s", *Arithmetic, *predicting)
    )
    images = load_sample("test")[0][:count]
    for case in models:
        runs = [partial(_evaluate, case.model, images, batch, a) for a in (None, *Arithmetic)]
        runs += [partial(_predict, case.model, images, batch, names) for names in PREDICTED]
        times = _least(runs)
        ratios = [f"{t / times[0]:.2f}x" for t in times[1:]]
        print(line(case.name, f"{times[0]:.3f}", *ratios), flush=True)


def _evaluate(
    model: ir.Model, images: npt.NDArray[np.float32], batch: int, arithmetic: Arithmetic | None
) -> None:
    session = (
        reference.evaluator(model)
        if arithmetic is None
        else reference.evaluator(model, arithmetic=arithmetic)
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


def main() -> int:
    """Prints the tables; 1 where something is not as predicted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [machine.name for machine in MACHINES]
    parser.add_argument("machines", nargs="*", metavar="MACHINE", help=f"of {', '.join(names)}")
    choices = ["operators", "models", "cost"]
    parser.add_argument("--only", choices=choices, help="default: all of them")
    arguments = parser.parse_args()
    unknown = set(arguments.machines) - set(names)
    if unknown:
        parser.error(f"unknown machine {', '.join(sorted(unknown))}; known: {', '.join(names)}")
    emulators = unpacked()
    if emulators is None and arguments.only != "cost":
        parser.error(MISSING)
    chosen = [m for m in MACHINES if not arguments.machines or m.name in arguments.machines]
    with tempfile.TemporaryDirectory() as name:
        folder, wrong = Path(name), 0
        if emulators is not None and arguments.only in (None, "operators"):
            wrong += operators(chosen, emulators, folder)
        if arguments.only != "operators":
            images = load_sample("test")[0][:LAYER_IMAGES]
            models = list(model_cases(folder, load_sample("calibration")[0], images))
        if emulators is not None and arguments.only in (None, "models"):
            wrong += layers(chosen, emulators, folder, models)
            wrong += top1(chosen, emulators, folder, models)
        if arguments.only in (None, "cost"):
            for count, batch in COSTS:
                cost(models, count, batch)
    print(f"\n{wrong} not as predicted")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
