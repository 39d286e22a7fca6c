"""Random float graphs of the layers that models are made of, each drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scripts._random_graphs import layers, moves
from scripts._random_graphs.growth import BATCH, Growth, Value, Weights

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Step = Callable[[Growth, Value], Value | None]
    Batch = dict[str, npt.NDArray[np.float32]]

__all__ = ["Drawn", "Weights", "draw"]

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
    """The graph of that seed; every third has weights that are not usual."""
    random = np.random.default_rng([seed, 12])
    kinds = [kind for kind in Weights if kind is not Weights.USUAL]
    pruned = [Weights.PRUNED] * 3  # what real models have, if anything
    kind = Weights.USUAL if seed % 3 else [*pruned, *kinds][random.integers(len(kinds) + 3)]
    growth = Growth(random, int(random.integers(OPSETS[0], OPSETS[1] + 1)), kind)
    inputs = [
        Value(growth.name("x"), (BATCH, *INPUTS[random.integers(len(INPUTS))]))
        for _ in range(1 if random.random() < 0.85 else 2)
    ]
    growth.values.extend(inputs)
    _grow(growth, int(random.integers(4, 13)))
    made = growth.values[len(inputs) :]
    read = {name for node in growth.nodes for name in node.input}
    outputs = [v for v in made if v.name not in read] or made[-1:]
    if random.random() < 0.2:
        outputs.append(made[int(random.integers(len(made)))])
    outputs = list(dict.fromkeys(outputs))
    used = [v for v in inputs if v.name in read]
    model = growth.model(used, outputs, static=bool(random.random() < 0.5))
    size = random.choice([0.1, 1, 1, 10])
    samples = [
        {v.name: (random.standard_normal(v.shape) * size).astype(np.float32) for v in used}
        for _ in range(SAMPLES)
    ]
    return Drawn(seed, model, kind, samples)


def _grow(growth: Growth, count: int) -> None:
    """Adds that many steps, most of them to the newest value."""
    steps, weights = [step for step, _ in STEPS], np.array([weight for _, weight in STEPS])
    while count:
        newest = growth.random.random() < 0.8
        index = -1 if newest else int(growth.random.integers(len(growth.values)))
        x = growth.values[index]
        step = steps[int(growth.random.choice(len(steps), p=weights / weights.sum()))]
        before = len(growth.nodes), set(growth.constants)
        y = step(growth, x)
        if y is None or np.prod(y.shape) > MOST_ELEMENTS or min(y.shape[1:], default=0) < 1:
            del growth.nodes[before[0] :]
            for name in set(growth.constants) - before[1]:
                del growth.constants[name]
            continue
        growth.values.append(y)
        count -= 1
