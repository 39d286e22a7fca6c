"""Models for the tests of dynamic quantization, and how far their results may be from float."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import helper, parser

from onnxq import targets
from onnxq.ort import runtime
from onnxq.pipeline import plan_dynamic, quantize_dynamic
from tests.examples import model, weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.dynamic.dynamic_decision import DynamicPlan
    from onnxq.dynamic.spec import DynamicSpec
    from onnxq.static.prepared import ModelSource

F32 = npt.NDArray[np.float32]

ROWS, SIDE = 5, 32
SATURATING_QMAX = 64  # of the target "portable"


UNMEASURED = dataclasses.replace(targets.find("portable"), dynamic_speedups=())
"""The target portable, but every operator gets its usual form, however small it is."""


def planned(
    source: ModelSource, spec: DynamicSpec = None, dtype: str | None = None, **options: Any
) -> tuple[ir.Model, DynamicPlan]:
    """(canonical model, plan), for UNMEASURED where no target is named."""
    return plan_dynamic(source, spec, dtype, **({"target": UNMEASURED} | options))


def quantized(
    source: ModelSource, spec: DynamicSpec = None, dtype: str | None = None, **options: Any
) -> ir.Model:
    """The quantized model, for UNMEASURED where no target is named."""
    return quantize_dynamic(source, spec, dtype, **({"target": UNMEASURED} | options))


def normal(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(source: ir.Model | onnx.ModelProto, feeds: Mapping[str, npt.NDArray[np.generic]]) -> F32:
    """Output 0."""
    loaded = ir.from_proto(source) if isinstance(source, onnx.ModelProto) else source
    with runtime.open_session(loaded, threads=1) as session:
        return np.asarray(session.run(feeds)[0], np.float32)


def matmul_bound(x: F32, w: F32, qmax: int = SATURATING_QMAX) -> F32:
    """Largest error of x @ w, uint8 by int8 with a scale per column; shape of the result.

    x is off by at most a step (half from rounding, half from the zero point's), w by half an LSB:
    |x w - x' w'| <= sum |dx| |w| + |x| |dw| + |dx| |dw|. A thousandth more for float32.
    """
    step = (max(float(x.max()), 0) - min(float(x.min()), 0)) / 255
    half = np.abs(w).max(0) / qmax / 2
    error = step * np.abs(w).sum(0) + half * np.abs(x).sum(-1, keepdims=True)
    return np.asarray(1.001 * (error + step * half * len(w)), np.float32)


def linear(opset: int = 18, rows: int | str = "N") -> onnx.ModelProto:
    """y = x w + b as MatMul "linear" and Add."""
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], "linear"),
            helper.make_node("Add", ["p", "b"], ["y"], "add"),
        ],
        {"w": weights(1, SIDE, SIDE), "b": weights(2, SIDE)},
        {"x": [rows, SIDE]},
        opset=opset,
    )


def parsed(graph: str, constants: Mapping[str, F32], opset: int = 18) -> onnx.ModelProto:
    """The model of a text, with these initializers in its main graph."""
    header = f'<ir_version: 10, opset_import: ["" : {opset}, "local" : 1]>\n'
    proto = parser.parse_model(header + graph)
    for name, array in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


def op_types(source: ir.Model) -> list[str]:
    """Operator types of all nodes, bodies included."""
    return [node.op_type for node in source.graph.all_nodes()]


def stored(source: ir.Model) -> dict[str, str]:
    """Initializer name -> type, of every graph, scales and zero points left out."""
    return {
        name: value.dtype.name
        for graph in source.graphs()
        for name, value in graph.initializers.items()
        if value.dtype is not None and not name.endswith(("_scale", "_zero_point"))
    }
