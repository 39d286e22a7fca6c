"""Biases that other tools write, beside ONNX Runtime's own fusion."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxq import reference
from onnxq.checking.cross_check import cross_check
from onnxq.graph.io import load

make = helper.make_node


def gemm(
    shape: tuple[int, ...],
    scale: float = 1e-3,
    beta: float = 1.0,
    alpha: float = 1.0,
    *,
    computed: tuple[str, ...] = (),
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """DQ -> Gemm -> Q of (3, 4) by (4, 5), with a bias of that shape; and what it is fed."""
    random = np.random.default_rng(7)
    arrays: dict[str, np.ndarray] = {
        "x": random.integers(0, 255, (3, 4)).astype(np.uint8),
        "w": random.integers(-127, 127, (4, 5)).astype(np.int8),
        "b": np.asarray(random.integers(-3000, 3000, shape), np.int32),
        "xs": np.array(0.02, np.float32), "xz": np.array(100, np.uint8),
        "ws": np.array(0.01, np.float32), "wz": np.array(0, np.int8),
        "bs": np.array(scale, np.float32), "bz": np.array(0, np.int32),
        "ys": np.array(0.1, np.float32), "yz": np.array(128, np.uint8),
    }  # fmt: skip
    fed = {name: arrays.pop(name) for name in ("x", *computed)}
    nodes = [
        *(make("DequantizeLinear", [n, f"{n}s", f"{n}z"], [f"{n}d"]) for n in "xwb"),
        make("Gemm", ["xd", "wd", "bd"], ["g"], "gemm", alpha=alpha, beta=beta),
        make("QuantizeLinear", ["g", "ys", "yz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in fed.items()
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [3, 5])],
        [numpy_helper.from_array(np.asarray(x), n) for n, x in arrays.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8), fed


SHAPES = [(), (1,), (5,), (1, 5), (1, 1), (3, 1), (3, 5)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [2e-4, 1e-3, 0.0])
def test_gemm_takes_an_int32_bias_of_any_shape_and_scale(
    shape: tuple[int, ...], scale: float
) -> None:
    model, feeds = gemm(shape, scale)
    assert [node.op_type for node in reference.integer_form(load(model)).graph] == ["QGemm"]
    assert cross_check(model, [feeds]).exact


@pytest.mark.parametrize("computed", [("w",), ("b",), ("w", "b")], ids="-".join)
def test_gemm_takes_weights_and_biases_that_are_computed(computed: tuple[str, ...]) -> None:
    model, feeds = gemm((5,), computed=computed)
    assert cross_check(model, [feeds]).exact


@pytest.mark.parametrize(("beta", "alpha"), [(0.5, 1.0), (0.0, 1.0), (1.0, 2.0)])
@pytest.mark.parametrize("shape", [(), (5,)], ids=str)
def test_gemm_with_a_factor_beside_its_bias_stays_in_float(
    shape: tuple[int, ...], beta: float, alpha: float
) -> None:
    model, feeds = gemm(shape, beta=beta, alpha=alpha)
    found = cross_check(model, [feeds])
    found.check()
    assert "Gemm" in [node.op_type for node in found.floats]
