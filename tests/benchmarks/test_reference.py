from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.table import Row
from benchmarks.reference import STACKS, convolution, evaluator_of, measure, resnet, timed
from tests.this_machine import adds_exactly


def test_the_stack_is_resnet_50() -> None:
    layers = list(resnet(np.random.default_rng(0)))
    assert len(layers) == 53
    assert 8.1e9 < sum(layer.operations for layer in layers) < 8.2e9  # 4.09 G multiplications


def test_kernel_and_onnx_runtime_agree_and_all_three_are_timed() -> None:
    times = timed("small", [convolution(np.random.default_rng(0), 16, 8, 3, 2, 9)], 1)
    assert times.different == 0
    assert times.nodes == 1
    assert min(times.ours, times.ort, times.peer) >= 0


def test_the_peer_computes_the_same_but_for_ties() -> None:
    layer = convolution(np.random.default_rng(0), 16, 8, 3, 1, 9)
    (y,) = evaluator_of(layer)()
    assert y.shape == (1, 8, 9, 9)
    assert y.std() > 1  # neither all 0 nor all saturated


@adds_exactly
@pytest.mark.nightly
def test_every_stack_runs() -> None:
    stacks = tuple(name for name in STACKS if name != "resnet")
    found = list(measure.measure(nodes=1, rounds=1, names=stacks))
    assert [row.cells[0] for row in found if isinstance(row, Row)] == list(stacks)
    assert len(found) == len(stacks)
