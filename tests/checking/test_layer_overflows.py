from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxq import reference
from onnxq.checking.prediction import MAX_PAIRS, WEIGHTS, find_layers
from onnxq.targets.accumulation import Overflows, SaturationMode
from tests.examples import quantized_matmul


def heard(*entries: tuple[int, int, int, int]) -> Overflows:
    """Entries are (first, second, channel, count)."""
    first, second, channel, count = np.array(entries, np.int64).T
    return Overflows(first, second, channel, count, 9, 4)


def test_what_is_heard_adds_up_over_batches() -> None:
    layer = next(iter(find_layers(integer(), SaturationMode.SATURATES).values()))
    layer.hear(heard((0, 1, 3, 5), (2, 3, 0, 7)))
    counts = layer.take()
    layer.hear(heard((0, 1, 3, 4)))
    counts.add(layer.take())
    found = layer.result(counts)
    assert (found.overflows, found.changed, found.largest_change) == (16, 8, 9)
    assert found.overflowing == (0, 3)
    assert [(p.channel, p.first, p.second, p.count) for p in found.pairs] == [
        (3, 0, 1, 9),
        (0, 2, 3, 7),
    ]
    assert found.pairs_of == WEIGHTS


def test_only_the_pairs_that_differ_most_often_are_named() -> None:
    layer = next(iter(find_layers(integer(), SaturationMode.SATURATES).values()))
    layer.hear(heard(*((2 * i, 2 * i + 1, 0, i + 1) for i in range(MAX_PAIRS + 3))))
    found = layer.result(layer.take())
    assert [p.count for p in found.pairs] == list(range(MAX_PAIRS + 3, 3, -1))
    assert found.overflows == sum(range(1, MAX_PAIRS + 4))


def test_exact_machines_have_no_pairs() -> None:
    for layer in find_layers(integer(), SaturationMode.EXACT).values():
        assert layer.possible == 0


def integer() -> ir.Model:
    """One MatMul of integers."""
    proto = quantized_matmul(np.array(3, np.uint8))
    return reference.integer_form(ir.from_proto(proto))
