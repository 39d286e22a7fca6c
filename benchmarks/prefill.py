"""Linear layers of a decoder by rows at once: float, int8, and group-wise weights.

    python -m benchmarks prefill

One MatMul of width x width, on one thread; the forms take turns in every round. Decoding has one
row; a prompt is a prefill of as many rows as it has tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import numpy as np
import onnx.helper
import onnx.numpy_helper

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_rounds
from benchmarks.harness.table import RATIO, Row, Table
from onnxq.checking.check import Check
from scripts._timing import paired_ratio, runs_on, session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

FLOAT = "float"
LEVELS = ((4, 4), (4, 0), (8, 4), (2, 4))
"""Bits, and the accuracy level of ONNX Runtime's MatMulNBits."""
FORMS = ("int8", *(f"{bits} bits, level {level}" for bits, level in LEVELS))
MATMULS = Table("products", {"rows": "", **dict.fromkeys(FORMS, RATIO), "fastest": ""})
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def matmul(width: int) -> onnx.ModelProto:
    """Y = X W, W random."""
    weight = np.random.default_rng(0).standard_normal((width, width), np.float32) / 45
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "matmul",
        [info("x", onnx.TensorProto.FLOAT, ["N", width])],
        [info("y", onnx.TensorProto.FLOAT, ["N", width])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


@benchmark(MATMULS)
@click.option("--width", default=2048)
@with_rounds(30)
def measure(width: int, rounds: int) -> Iterator[Row]:
    """Times over float of the MatMul with each number of rows."""
    source = matmul(width)
    sessions = {FLOAT: session(source)}
    sessions["int8"] = session(onnxq.quantize_dynamic(source, check=Check.NONE))
    for bits, level in LEVELS:
        made = onnxq.quantize_weights(
            source, bits=bits, method="rtn", accuracy_level=level, check=Check.NONE
        )
        sessions[f"{bits} bits, level {level}"] = session(made)
    for count in ROWS:
        x = np.random.default_rng(count).standard_normal((count, width), np.float32)
        times = taking_turns(runs_on(sessions, {"x": x}), rounds)
        ratios = {name: paired_ratio(times[name], times[FLOAT]) for name in FORMS}
        fastest = min(ratios, key=lambda name: ratios[name].median)
        yield MATMULS.row(count, *(ratio.cell for ratio in ratios.values()), fastest)
