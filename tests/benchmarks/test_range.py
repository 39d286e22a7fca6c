from __future__ import annotations

import numpy as np
import pytest

from benchmarks.range import differing, planned
from onnxq.static.calibrate import calibrate
from onnxq.static.prepare import prepare
from onnxq.targets.reduce_range import ReduceRange
from scripts._models import FloatModel
from tests.examples import network, weights

IMAGES = np.abs(weights(7, 4, 3, 8, 8))


@pytest.mark.parametrize("kind", [None, ReduceRange.EVERYWHERE, ReduceRange.WORST_CASE])
def test_only_the_full_range_differs(
    kind: ReduceRange | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("bench") / "float.onnx"
    source = network()
    source.graph.input[0].name = "image"
    for node in source.graph.node:
        node.input[:] = ["image" if name == "x" else name for name in node.input]
    path.write_bytes(source.SerializeToString())
    statistics = calibrate(prepare(path), {"image": IMAGES})
    made, written = planned(FloatModel("net", path), kind, statistics, IMAGES)
    assert bool(made.reductions) == (kind is not None)
    assert (differing(written, IMAGES) > 0) == (kind is None)
