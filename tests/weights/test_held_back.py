"""Samples that PTQ algorithms look at: enough to judge by, and no more than fit into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import onnxq
from onnxq.samples import Batches, InputSpec, Samples, open_samples
from onnxq.samples.excerpt import is_held_apart
from onnxq.weights import judgement
from onnxq.weights.judgement import enough
from tests.ort.small_models import parsed

if TYPE_CHECKING:
    import numpy.typing as npt
    import pytest

    from onnxq.static.prepared import Prepared

INPUTS = (InputSpec("x", np.dtype(np.float32), ("N", 2)),)


def prepared(shape: str = "N, 2", feedback: bool = False) -> Prepared:
    model = parsed(f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Neg(x) }}")
    return onnxq.prepare(model, feedback={"y": "x"} if feedback else None)


def samples(count: int, batch_size: int = 1) -> Batches:
    x = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    return open_samples(Samples({"x": x}, batch_size), INPUTS)


def firsts(batches: list[dict[str, npt.NDArray[np.generic]]]) -> list[float]:
    return [float(batch["x"][0, 0].item()) / 2 for batch in batches]


def test_a_quarter_judges_spread_evenly() -> None:
    assert [i for i in range(9) if is_held_apart(i)] == [3, 7]


def test_few_batches_are_cut_where_that_can_be() -> None:
    assert [len(b["x"]) for b in enough(samples(40, 40), prepared())] == [2, 3] * 8
    assert [len(b["x"]) for b in enough(samples(10, 10), prepared())] == [1] * 10
    assert [len(b["x"]) for b in enough(samples(40, 5), prepared())] == [5] * 8
    state = prepared(feedback=True)
    assert len(enough(samples(10, 10), state)) == 1  # it goes from batch to batch
    assert len(enough(samples(10, 10), prepared("10, 2"))) == 1


def test_a_batch_whose_size_a_constant_fixes_is_not_cut() -> None:
    text = """g (float[N,2] x) => (y) <float[4,1] c = {1,2,3,4}> { y = Concat<axis=1>(x, c) }"""
    fixed = onnxq.prepare(parsed(text))
    assert [len(b["x"]) for b in enough(samples(4, 4), fixed)] == [4]


def test_of_many_samples_some_are_taken_evenly_and_of_states_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judgement, "MOST_SAMPLES", 8)
    assert firsts(enough(samples(20), prepared())) == [0, 3, 5, 8, 10, 13, 15, 18]
    assert firsts(enough(samples(20), prepared(feedback=True))) == list(range(8))
    zeros = np.zeros((1, 2), np.float32)
    one_by_one = open_samples(lambda: ({"x": zeros} for _ in range(20)), INPUTS)
    assert len(enough(one_by_one, prepared())) == 8
    assert len(enough(samples(40, 5), prepared())) == 4  # no fewer than hold one back
