from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.qconfig import default_qconfig_mapping
from onnxq.static.noise.curves_behind import CurveBehind, curves_behind
from tests.examples import model, weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

    from onnxq.core.arrays import Array, Singles
    from onnxq.qparams import QParams
    from onnxq.static.prepared import Prepared

NODE = helper.make_node
SIDE = 32


def images(samples: int, seed: int) -> Singles:
    normal = np.random.default_rng(seed).normal(size=(samples, 3, SIDE, SIDE))
    return normal.astype(np.float32)


def prepared_of(nodes: list[onnx.NodeProto], constants: Mapping[str, Array]) -> Prepared:
    """Conv, whose result is c, and the nodes."""
    conv = NODE("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1])
    given = {"w": 2 * weights(1, 16, 3, 3, 3), **constants}
    source = model([conv, *nodes], given, {"x": ["N", 3, SIDE, SIDE]})
    return onnxq.prepare(source, None, "x86-vnni")


def behind(nodes: list[onnx.NodeProto], constants: Mapping[str, Array]) -> tuple[CurveBehind, ...]:
    prepared = prepared_of(nodes, constants)
    probed = onnxq.calibrate(prepared, images(8, 0)).probed
    return curves_behind(prepared.context, probed).get("c", ())


def test_functions_are_found_behind_moves_and_bounds() -> None:
    nodes = [
        NODE("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
        NODE("Relu", ["t"], ["r"]),
        NODE("Exp", ["r"], ["y"]),
    ]
    (found,) = behind(nodes, {})
    assert (found.factor, found.offset, found.low) == (1.0, 0.0, 0.0)
    assert found.curve.function(np.array([1.0])) == pytest.approx(math.e)


def test_a_function_that_many_ways_lead_to_is_there_once() -> None:
    nodes, at = [], "c"
    for i in range(10):
        parts = [f"a{i}", f"b{i}"]
        nodes += [NODE("Split", [at], parts, axis=1, num_outputs=2)]
        nodes += [NODE("Concat", parts[::-1], [at := f"h{i}"], axis=1)]
    assert len(behind([*nodes, NODE("Exp", [at], ["y"])], {})) == 1


def test_lines_ahead_of_a_function_are_known() -> None:
    """e^(0.25 t + 1), behind a Slice that keeps the factor from becoming part of the Conv."""
    constants = {
        "from": np.array([0]),
        "to": np.array([4]),
        "axis": np.array([1]),
        "factor": np.array(0.25, np.float32),
        "offset": np.array(1.0, np.float32),
    }
    nodes = [
        NODE("Slice", ["c", "from", "to", "axis"], ["t"]),
        NODE("Mul", ["t", "factor"], ["m"]),
        NODE("Add", ["m", "offset"], ["a"]),
        NODE("Exp", ["a"], ["y"]),
    ]
    (found,) = behind(nodes, constants)
    assert (found.factor, found.offset) == (0.25, 1.0)


def test_functions_that_are_flat_everywhere_are_not_looked_at() -> None:
    assert behind([NODE("Tanh", ["c"], ["y"])], {}) == ()


def test_values_that_the_function_never_met_count_for_nothing() -> None:
    """A Slice of a head's tensor may give the function small values alone."""
    (found,) = behind([NODE("Exp", ["c"], ["y"])], {})
    x, counts = np.array([0.0, 1.0, found.high + 1]), np.ones(3)
    rounded = np.array([[0.0, 1.0, 0.0], [0.0, 1.1, found.high + 1]])
    noise = found.noises(x, counts, rounded)
    assert noise[0] == 0
    assert noise[1] > 0


def test_the_default_keeps_the_largest_values_ahead_of_exp() -> None:
    """Least squared error alone ends at 0.8 of the largest value here."""
    mapping = default_qconfig_mapping().with_overrides(["op:Conv=default"])
    source = prepared_of([NODE("Exp", ["c"], ["y"], "exp")], {}).model
    prepared = onnxq.prepare(source, mapping, "x86-vnni")
    contrast = np.exp(0.4 * np.random.default_rng(1).normal(size=(32, 1, 1, 1)))
    x = images(32, 0) * contrast.astype(np.float32)
    statistics = onnxq.calibrate(prepared, x)
    largest = float(statistics.probed["c"].state()["max"])
    assert end(statistics.observers["c"].calculate_qparams()) < 0.9 * largest
    assert end(onnxq.plan(prepared, statistics).tensors["c"]) > 0.97 * largest


def end(p: QParams) -> float:
    """The largest value that integers reach."""
    return (p.dtype.qmax - int(p.zero_point)) * float(p.scale)
