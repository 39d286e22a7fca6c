from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq.checking.execution import execution, meant_in_integers
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.ort import facts
from onnxq.qconfig import QConfigDynamic
from onnxq.qdq.float_matmul import keep_float_matmul
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.dynamic_models import linear, normal, quantized
from tests.examples import ALL_INTEGERS, as_ir, images, model, network, quantized_matmul

if TYPE_CHECKING:
    from onnxq.core.arrays import Array


def matmul(**options: bool) -> ir.Model:
    return as_ir(quantized_matmul(np.array(3, np.uint8), **options))


def test_a_matmul_between_uint8_runs_in_integers() -> None:
    got = execution(matmul())
    assert got.integer_nodes == {"QLinearMatMul": 1}
    assert got.float_nodes == {}
    assert got.conversions == {"QuantizeLinear": 1, "DequantizeLinear": 1}
    assert got.fallbacks == ()


def test_a_float_result_is_no_fallback() -> None:
    got = execution(matmul(requantized=False))
    assert got.integer_nodes == {"MatMulIntegerToFloat": 1}
    assert got.fallbacks == ()


def test_a_bias_that_is_fused_is_no_fallback() -> None:
    assert execution(matmul(bias=True)).fallbacks == ()


def test_uint16_falls_back() -> None:
    written = as_ir(quantized_matmul(np.array(3, np.uint16)))
    keep_float_matmul(written)  # as everything that onnxq writes
    got = execution(written)
    assert [f.name for f in got.fallbacks] == ["matmul"]
    assert got.float_nodes == {"MatMul": 1}


def test_uint16_of_another_tool_runs_as_the_facts_of_the_installed_version_say() -> None:
    model = as_ir(quantized_matmul(np.array(3, np.uint16)))
    packs = facts.named("MatMul").packs_beside_16_bits
    assert execution(model).integer_nodes == ({"MatMulNBits": 1} if packs else {})
    onnxq.cross_check(model, {"x": normal(5, 8)}).check()


def test_a_biased_matmul_without_requantization_falls_back() -> None:
    # MatMulAddFusion comes first, and ONNX Runtime renames the node to "matmul/MatMulAddFusion"
    got = execution(matmul(requantized=False, bias=True))
    assert [f.name for f in got.fallbacks] == ["matmul"]


@pytest.mark.parametrize("requantized", [True, False])
def test_the_matmul_is_meant_in_integers(requantized: bool) -> None:
    names = [node.name for node in meant_in_integers(matmul(requantized=requantized))]
    assert names == ["matmul"]


def blocks(size: int) -> ir.Model:
    entry = QConfigDynamic(
        NarrowRangeObserver.with_args(dtype="int4", quant_max=7),
        Precision.WEIGHT_ONLY_GROUPWISE,
        size,
    )
    return quantized(linear(), entry)


def test_a_matmul_by_blocks_runs_in_integers() -> None:
    got = execution(blocks(32))
    assert got.integer_nodes == {"MatMulNBits": 1}
    assert got.fallbacks == ()


def in_smaller_blocks(model: ir.Model, size: int) -> ir.Model:
    """The same numbers in blocks that onnxq itself does not write."""
    node = next(n for n in model.graph if n.op_type == "DequantizeLinear")
    axis, before = node.attributes.get_int("axis"), node.attributes.get_int("block_size")
    for value in node.inputs[1:]:
        assert value is not None
        assert value.const_value is not None
        finer = np.repeat(value.const_value.numpy(), before // size, axis)
        value.const_value = ir.Tensor(finer, dtype=value.const_value.dtype, name=value.name)
        value.shape = ir.Shape(finer.shape)
    node.attributes["block_size"] = ir.AttrInt64("block_size", size)
    return model


def test_blocks_that_onnxruntime_has_no_kernel_for_fall_back() -> None:
    got = execution(in_smaller_blocks(blocks(32), 8))
    assert [f.op_type for f in got.fallbacks] == ["Gemm"]


def test_weights_that_are_stored_only_are_no_fallback() -> None:
    entry = QConfigDynamic(NarrowRangeObserver.with_args(), Precision.WEIGHT_ONLY)
    got = execution(quantized(linear(), entry))
    assert got.fallbacks == ()
    assert got.float_nodes


def test_integer_matmuls_are_integers() -> None:
    got = execution(quantized(linear()))
    assert got.integer_nodes == {"DynamicQuantizeMatMul": 1}
    assert got.fallbacks == ()


@pytest.mark.parametrize("op_type", ["Gelu", "Erf", "LayerNormalization"])
def test_an_operator_without_an_integer_form_does_not_fall_back(op_type: str) -> None:
    scale = ["g"] if op_type == "LayerNormalization" else []
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["f"], "dq"),
        helper.make_node(op_type, ["f", *scale], ["p"], "node"),
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["y"], "gq"),
    ]
    constants: dict[str, Array] = {"s": np.array(0.5, np.float32), "z": np.array(9, np.uint8)}
    constants |= {name: np.ones(4, np.float32) for name in scale}
    source = model(nodes, constants, {"x": ["N", 4]}, {"y": TensorProto.UINT8}, opset=20)
    got = execution(as_ir(source))
    assert got.float_nodes == {op_type: 1}
    assert got.fallbacks == ()


@pytest.mark.parametrize("op_type", ["Add", "Softmax", "Conv", "Relu"])
def test_what_a_plan_leaves_in_float_did_not_fall_back(op_type: str) -> None:
    prepared = prepare(network(), ALL_INTEGERS.set_op_type(op_type, None), "x86-vnni")
    made = rewrite(prepared, plan(prepared, calibrate(prepared, {"x": images(2)})))
    assert execution(made).fallbacks == ()
