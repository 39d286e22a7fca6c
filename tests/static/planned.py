"""Plans of a small network: a convolution and its Relu."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq import targets
from onnxq.static.calibrate import Statistics, calibrate
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.qconfig import QConfigMapping
    from onnxq.static.prepared import Prepared

RNG = np.random.default_rng(0)
# channels 0 and 3 have a pair of large weights of one sign; 1 of two signs, 2 in no pair
LARGE = np.array(
    [[1, 0.9, 0.1, 0.1], [1, -0.9, 0.1, 0.2], [0.1, 1, 0.9, 0], [-0.2, 0.3, -1, -0.2]], np.float32
).reshape(4, 4, 1, 1)


def model(weight: Singles | None = None, bias: Singles | None = None) -> ir.Model:
    """y = Relu(Conv(x, w, b)) for x float[N,4,5,5]."""
    graph = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 17]> g (float[N,4,5,5] x) => (float[N,4,5,5] y)'
        " { c = Conv(x, w, b) y = Relu(c) }"
    )
    arrays = {
        "w": weight if weight is not None else RNG.standard_normal((4, 4, 1, 1)).astype(np.float32),
        "b": bias if bias is not None else RNG.standard_normal(4).astype(np.float32),
    }
    for value in graph.graph.node(0).inputs[1:]:
        assert value is not None
        assert value.name
        value.const_value = ir.Tensor(arrays[value.name], name=value.name)
        value.type, value.shape = (
            ir.TensorType(ir.DataType.FLOAT),
            ir.Shape(arrays[value.name].shape),
        )
        graph.graph.register_initializer(value)
    return graph


def batches(n: int = 4) -> list[dict[str, Singles]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((1, 4, 5, 5)).astype(np.float32)} for _ in range(n)]


def planned(
    source: ir.Model,
    qconfig: QConfigMapping | None = None,
    target: str = "x86-vnni",
    reduce_range: str | None = None,
) -> tuple[Plan, Prepared, Statistics]:
    machine = targets.find(target)
    if reduce_range is not None:
        machine = machine.with_reduce_range(reduce_range)
    prepared = prepare(source, qconfig, machine)
    statistics = calibrate(prepared, batches())
    return plan(prepared, statistics), prepared, statistics


def conv_name(made: Plan) -> str:
    return next(iter(made.weights))
