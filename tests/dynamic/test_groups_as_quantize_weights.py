"""`weight_only_groupwise` has the integers, scales and zero points of quantize-weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq.observers import LeastErrorObserver
from onnxq.operator import Precision
from onnxq.qconfig import QConfigDynamic, QConfigMapping
from tests.dynamic_models import normal, parsed, planned, quantized

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

ONE = "g (float[n, 70] x) => (float[n, 24] y) { y = MatMul(x, w) }"
BEHIND = "g (float[n, 70] x) => (float[n, 24] y) { h = Tanh(x)\n y = MatMul(h, w) }"
TURNED = "g (float[n, 70] x) => (float[n, 24] y) { y = Gemm <transB = 1> (x, w) }"
TWICE = """g (float[n, 70] x, float[n, 70] z) => (float[n, 24] y) {
    a = MatMul(x, w)
    b = MatMul(z, w)
    y = Add(a, b)
}"""
TYPES = {2: ("uint2", "int2"), 4: ("uint4", "int4"), 8: ("uint8", "int8")}


def in_blocks(bits: int, scheme: str) -> QConfigMapping:
    """Weights with the least error in groups of 32."""
    observer = LeastErrorObserver.with_args(
        dtype=TYPES[bits][scheme == "symmetric"], qscheme=f"per_channel_{scheme}"
    )
    entry = QConfigDynamic(observer, precision=Precision.WEIGHT_ONLY_GROUPWISE, block_size=32)
    return QConfigMapping().set_global(entry)


def arrays(model: ir.Model, op_type: str) -> list[bytes]:
    """Integers, scales and zero points of the first such node, outputs last.

    Points of 0 left out.
    """
    node = next(node for node in model.graph if node.op_type == op_type)
    stored = op_type == "DequantizeLinear"
    tensors = [v.const_value for v in node.inputs[1 - stored : 4 - stored] if v is not None]
    found = [np.asarray(tensor.numpy()) for tensor in tensors if tensor is not None]
    if stored and node.attributes.get_int("axis", 1) == 1:
        found = [array.T for array in found]
    numbers = [x.astype(np.float32) for x in found]  # int4 in memory: the upper bits are anything
    return [x.tobytes() for x in numbers if x is numbers[0] or x.any()]


def model(text: str) -> onnx.ModelProto:
    return parsed(text, {"w": normal(24, 70) if text is TURNED else normal(70, 24)})


@pytest.mark.parametrize(
    ("bits", "scheme"),  # 8 bits, symmetric: int8 integers of quantize-dynamic keep to -127..127
    [(2, "affine"), (2, "symmetric"), (4, "affine"), (4, "symmetric"), (8, "affine")],
)
@pytest.mark.parametrize("text", [ONE, BEHIND, TURNED])
def test_bytes_are_those_of_rtn(text: str, bits: int, scheme: str) -> None:
    source = model(text)
    wanted = onnxq.quantize_weights(
        source, bits=bits, scheme=scheme, method="rtn", format="qdq", check=onnxq.Check.NONE
    )
    made = quantized(source, in_blocks(bits, scheme), target="x86-vnni")
    assert arrays(made, "DequantizeLinear") == arrays(wanted, "DequantizeLinear")


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_matmul_of_blocks_has_the_bytes_of_rtn(bits: int) -> None:
    source = model(TWICE)
    wanted = onnxq.quantize_weights(source, bits=bits, method="rtn", check=onnxq.Check.NONE)
    made = quantized(source, in_blocks(bits, "affine"), target="x86-vnni")
    assert arrays(made, "MatMulNBits") == arrays(wanted, "MatMulNBits")


def test_the_plan_has_both_scales_and_can_be_saved() -> None:
    canonical, plan = planned(model(BEHIND), in_blocks(4, "affine"))
    [decision] = plan.quantized.values()
    [weight] = decision.weights
    assert weight.rounded_in is not None
    assert weight.qparams is not None
    factors = weight.qparams.scale / weight.rounded_in.scale
    assert (factors > 1).all()
    np.testing.assert_allclose(factors, np.broadcast_to(factors[0], factors.shape), rtol=1e-6)
    again = type(plan).from_dict(plan.to_dict())
    assert again.quantized == plan.quantized
    assert canonical is not None
