"""Precisions that the times of onnxruntime-web choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.operator import Precision
from onnxq.times import Change, costs_of
from tests.examples import as_ir, model

if TYPE_CHECKING:
    import onnx_ir as ir

CHANNELS, SIZE = 192, 16


def _mobile() -> ir.Model:
    """Two inverted residuals as MobileNetV2 has them: 1x1, 3x3 depthwise, 1x1."""
    rng = np.random.default_rng(0)
    nodes, constants, last = [], {}, "x"
    for block in range(2):
        for name, shape, group in (
            ("expand", (CHANNELS, 32, 1, 1), 1),
            ("depthwise", (CHANNELS, 1, 3, 3), CHANNELS),
            ("project", (32, CHANNELS, 1, 1), 1),
        ):
            name = f"{name}{block}"
            w = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
            constants[f"{name}_w"] = w.astype(np.float32)
            pads = [shape[2] // 2] * 4
            nodes.append(
                helper.make_node(
                    "Conv", [last, f"{name}_w"], [f"{name}_y"], name, group=group, pads=pads
                )
            )
            last = f"{name}_y"
            if shape[0] == CHANNELS:
                nodes.append(helper.make_node("Relu", [last], [f"{name}_r"], f"{name}_relu"))
                last = f"{name}_r"
    nodes.append(helper.make_node("Identity", [last], ["y"], "end"))
    return as_ir(model(nodes, constants, {"x": ["N", 32, SIZE, SIZE]}))


@pytest.mark.parametrize(
    ("target", "precision"), [("wasm", Precision.FLOAT), ("x86-vnni", Precision.INT8)]
)
def test_depthwise_convolutions_are_float_where_they_are_faster_so(
    target: str, precision: Precision
) -> None:
    source = _mobile()
    x = np.random.default_rng(1).normal(size=(4, 32, SIZE, SIZE)).astype(np.float32)
    prepared = onnxq.prepare(source, target=target)
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, {"x": x}))
    assert made.precisions["depthwise0"].precision is precision
    assert made.precisions["depthwise1"].precision is precision


def test_the_table_is_of_onnxruntime_web() -> None:
    table = costs_of("wasm")
    assert table is not None
    assert table.onnxruntime.startswith("onnxruntime-web ")
    assert table.change(Change.BLOCKED, 100) is None  # its builds have no such layout
