"""Random float graphs of the layers that models are made of, each drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort

from onnxq.ort.runtime import ORT_ERRORS
from scripts._random_graphs import layers, moves
from scripts._random_graphs.families import FAMILIES
from scripts._random_graphs.growth import BATCH, Growth, NoStepError, Storage, Value, Weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt
    import onnx

    Step = Callable[[Growth, Value], Value | None]
    Family = Callable[[Growth, Value], str | None]
    Batch = dict[str, npt.NDArray[np.floating]]

__all__ = ["Drawn", "Weights", "draw", "is_wide", "nodes_of"]

STEPS: tuple[tuple[Step, float], ...] = (
    (layers.conv, 5),
    (layers.conv_transpose, 1.5),
    (layers.gemm, 3),
    (layers.matmul, 4),
    (layers.attention, 1.5),
    (layers.recurrent, 1),
    (layers.norm, 1.5),
    (moves.function, 4),
    (moves.saturation_mode, 2.5),
    (moves.pool, 1.5),
    (moves.resize, 0.7),
    (moves.pad, 0.7),
    (moves.split, 0.7),
    (moves.movement, 2),
    (moves.branch, 0.5),
)
INPUTS = ((6,), (12,), (5, 8), (6, 7), (4, 9), (3, 8, 8), (4, 6, 5), (6, 5, 5), (2, 4, 4, 4))
SAMPLES = 4
MOST_ELEMENTS = 3000
OPSETS = (13, 21)  # the oldest and the newest
WIDE_OPSETS = (7, 23)
FAMILY = 0.6  # of the steps of a wide graph
HALF = 0.12  # of the wide graphs are in float16
STORAGES = (*[Storage.INITIALIZERS] * 3, Storage.INPUTS, Storage.NODES)
FATAL = 4  # ONNX Runtime's level of what it logs


@dataclass(frozen=True, slots=True)
class Drawn:
    """A float model and batches for it.

    Attributes:
        seed: that it came from.
        model: serialized.
        kind: of its weights.
        samples: batches.
    """

    seed: int
    model: bytes
    kind: Weights
    samples: list[Batch]


def draw(seed: int) -> Drawn:
    """The graph of that seed.

    Every third has weights that are not usual; every second, of the odd seeds, has steps of all
    FAMILIES too, an opset of 7 to 23, now and then float16, and constants that are inputs or nodes.
    """
    random = np.random.default_rng([seed, 12])
    kinds = [kind for kind in Weights if kind is not Weights.USUAL]
    pruned = [Weights.PRUNED] * 3  # what real models have, if anything
    kind = Weights.USUAL if seed % 3 else [*pruned, *kinds][random.integers(len(kinds) + 3)]
    wide = is_wide(seed)
    oldest, newest = WIDE_OPSETS if wide else OPSETS
    growth = Growth(random, int(random.integers(oldest, newest + 1)), kind)
    growth.half = wide and growth.chance(HALF)
    inputs = [
        Value(growth.name("x"), (BATCH, *INPUTS[random.integers(len(INPUTS))]))
        for _ in range(1 if random.random() < 0.85 else 2)
    ]
    growth.values.extend(inputs)
    _grow(growth, int(random.integers(4, 13)), inputs if wide else ())
    made = growth.values[len(inputs) :]
    read = {name for node in nodes_of(growth.nodes) for name in node.input}
    outputs = [v for v in made if v.name not in read] or made[-1:]
    if random.random() < 0.2:
        outputs.append(made[int(random.integers(len(made)))])
    outputs = list(dict.fromkeys(outputs))
    used = [v for v in inputs if v.name in read]
    static = bool(random.random() < 0.5)
    storage = growth.pick(*STORAGES) if wide else Storage.INITIALIZERS
    model = growth.model(used, outputs, static=static, storage=storage)
    size = random.choice([0.1, 1, 1, 10])
    samples = [
        {v.name: (random.standard_normal(v.shape) * size).astype(growth.float_dtype) for v in used}
        for _ in range(SAMPLES)
    ]
    return Drawn(seed, model, kind, samples)


def is_wide(seed: int) -> bool:
    """Whether the graph of that seed has steps of all FAMILIES."""
    return seed % 2 == 1


def nodes_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of their bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from nodes_of(attribute.g.node)


def _grow(growth: Growth, count: int, inputs: Sequence[Value]) -> None:
    """Adds that many steps, most of them to the newest value.

    Args:
        growth: has the inputs.
        count: of the steps.
        inputs: of a graph with steps of all FAMILIES; empty: it has the usual layers alone.
    """
    steps, weights = [step for step, _ in STEPS], np.array([weight for _, weight in STEPS])
    while count:
        newest = growth.random.random() < 0.8
        index = -1 if newest else int(growth.random.integers(len(growth.values)))
        x = growth.values[index]
        before = len(growth.nodes), set(growth.constants)
        if inputs and growth.chance(FAMILY):
            step: Step | Family = growth.pick(*FAMILIES)
        else:
            step = steps[int(growth.random.choice(len(steps), p=weights / weights.sum()))]
        try:
            made = step(growth, x)
            y = _run(growth, inputs, made) if inputs and made else made
        except NoStepError:
            y = None
        if not isinstance(y, Value) or not _is_fit(y):
            del growth.nodes[before[0] :]
            for name in set(growth.constants) - before[1]:
                del growth.constants[name]
            continue
        growth.values.append(y)
        count -= 1


def _is_fit(y: Value) -> bool:
    return bool(np.prod(y.shape) <= MOST_ELEMENTS) and min(y.shape[1:], default=0) >= 1


def _run(growth: Growth, inputs: Sequence[Value], made: Value | str) -> Value:
    """The new value with the shape that ONNX Runtime gives it.

    Raises:
        NoStepError: it does not run, or the value has another batch, or is not finite.
    """
    name = made if isinstance(made, str) else made.name
    model = growth.model(inputs, [Value(name, ())], static=False)
    random = np.random.default_rng(len(growth.nodes))
    feeds = {v.name: random.standard_normal(v.shape).astype(growth.float_dtype) for v in inputs}
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = FATAL, 1
    try:
        (y,) = ort.InferenceSession(model, options).run([name], feeds)
    except ORT_ERRORS as error:
        raise NoStepError(name) from error
    if y.shape[:1] != (BATCH,) or not np.isfinite(y).all():
        raise NoStepError(name)
    return Value(name, y.shape)
