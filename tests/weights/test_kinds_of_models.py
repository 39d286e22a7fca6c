"""Models of many kinds: every linear layer is stored in groups, or the plan says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from onnxq import Check, cross_check, quantize_weights
from onnxq.graph.walk import walk

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles

LINEAR_OPS = ("MatMul", "Gemm", "FusedMatMul")
Kind = tuple[str, dict[str, tuple[int, ...]], tuple[int, ...], tuple[int, int]]
TEXTS: dict[str, Kind] = {
    # kind -> text, weights, shape of x, linear layers in groups and in float
    "outputs that are left out": (
        """g (float[5, N, 16] x) => (float[1, N, 8] y)
        {
            all, last = LSTM <hidden_size = 32> (x, W, R)
            y = MatMul (last, w)
        }""",
        {"W": (1, 128, 16), "R": (1, 128, 32), "w": (32, 8)},
        (5, 3, 16),
        (1, 0),
    ),
    "shared, transposed and on the left": (
        """g (float[N, 64] x) => (float[64, N] y)
        {
            a = MatMul (x, w)
            turned = Transpose <perm = [1, 0]> (w)
            b = MatMul (a, turned)
            c = Transpose <perm = [1, 0]> (b)
            y = MatMul (w, c)
        }""",
        {"w": (64, 64)},
        (6, 64),
        (3, 0),
    ),
    "a MatMul per expert": (
        """g (float[1, N, 64] x) => (float[4, N, 8] y)
        {
            each = MatMul (x, w)
            y = MatMul (each, out)
        }""",
        {"w": (4, 64, 32), "out": (32, 8)},
        (1, 6, 64),
        (5, 0),
    ),
    "fused before": (
        """g (float[N, 64] x) => (float[N, 64] y)
        {
            a = com.microsoft.FusedMatMul <alpha = 0.5> (x, w)
            y = MatMul (a, out)
        }""",
        {"w": (64, 64), "out": (64, 64)},
        (6, 64),
        (1, 1),
    ),
    "blocks longer than inputs": (
        """g (float[N, 3] x) => (float[N, 5] y)
        {
            a = MatMul (x, w)
            y = MatMul (a, out)
        }""",
        {"w": (3, 1), "out": (1, 5)},
        (6, 3),
        (2, 0),
    ),
}


def _model(text: str, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>\n'
    model = onnx.parser.parse_model(head + text)
    generator = np.random.default_rng(0)
    for name, shape in shapes.items():
        array = generator.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def _x(shape: tuple[int, ...]) -> Singles:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", TEXTS)
def test_linear_layers_are_in_groups_or_stay_as_they_are_and_compute_as_the_reference(
    kind: str,
) -> None:
    text, shapes, size, (stored, kept) = TEXTS[kind]
    samples = [{"x": _x(size)}]
    made = quantize_weights(_model(text, shapes), method="hqq", check=Check.NONE)
    ops = [node.op_type for node, _ in walk(made.graph)]
    assert ops.count("MatMulNBits") == stored
    assert sum(op in LINEAR_OPS for op in ops) == kept
    cross_check(made, samples).check()
