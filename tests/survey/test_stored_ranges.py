from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnxq.qparams import PerChannel
from onnxq.survey.stored_ranges import stored_ranges
from tests.examples import as_ir, model, network
from tests.survey.pair import pair

if TYPE_CHECKING:
    from onnxq.core.arrays import Array


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_ranges_are_those_of_the_float_weights_to_a_step(form: str) -> None:
    made = pair(form)
    places = {str(node.name): place for place, node in enumerate(made.source.graph)}
    parts = {part.name: part for part in stored_ranges(made.target, places)}
    floats = {t.name: t for t in network().graph.initializer}
    compared = 0
    for name, plan in made.plan.weights.items():
        part = next(p for p in parts.values() if p.node == places[name])
        if part.name not in floats:
            continue  # the second name of a weight that two nodes read
        granularity = plan.qparams.granularity
        assert isinstance(granularity, PerChannel)
        w = numpy_helper.to_array(floats[part.name])
        rows = np.moveaxis(w, granularity.axis, 0).reshape(len(part.lows), -1)
        step = 1.01 * np.max(plan.qparams.scale)  # sums decide which way some integers are rounded
        assert np.abs(rows.min(1) - part.lows).max() <= step
        assert np.abs(rows.max(1) - part.highs).max() <= step
        assert min(part.abs_max) > 0
        compared += 1
    assert compared


def test_the_scale_of_an_operand_behind_another_is_its_own() -> None:
    constants: dict[str, Array] = {
        "w": np.array([[-2, 4], [1, -3]], np.int8),
        "x_scale": np.array(0.5, np.float32),
        "w_scale": np.array(0.25, np.float32),
    }
    node = helper.make_node(
        "MatMulIntegerToFloat",
        ["x", "w", "x_scale", "w_scale"],
        ["y"],
        "m",
        domain="com.microsoft",
    )
    (part,) = stored_ranges(as_ir(model([node], constants, {"x": ["N", 2]})), {"m": 0})
    assert (min(part.lows), max(part.highs)) == (-0.75, 1.0)
