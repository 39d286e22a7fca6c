from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq.observers import NarrowRangeObserver, PerChannelMinMaxObserver
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.qconfig import QConfigDynamic
from onnxq.reference.groupwise_matmul import write_groupwise_matmuls
from tests.dynamic_models import ROWS, SIDE, linear, normal, op_types, parsed, quantized
from tests.examples import as_ir, model, weights

# sums of 32 products in float32, in another order: a few roundings of the largest of them
MAX_ULPS = 64


def blocks(dtype: str, size: int) -> QConfigDynamic:
    observer = PerChannelMinMaxObserver.with_args(dtype=dtype)
    if dtype.startswith("int"):
        largest = {"int8": 127, "int4": 7, "int2": 1}[dtype]
        observer = NarrowRangeObserver.with_args(dtype=dtype, quant_max=largest)
    return QConfigDynamic(observer, Precision.WEIGHT_ONLY_GROUPWISE, size)


@pytest.mark.parametrize("dtype", ["int8", "int4", "int2", "uint8", "uint4", "uint2"])
@pytest.mark.parametrize("size", [16, 32, 128])
def test_blocks_end_to_end_are_what_onnxruntime_computes(dtype: str, size: int) -> None:
    findings = onnxq.cross_check(
        quantized(linear(), blocks(dtype, size)), {"x": normal(ROWS, SIDE)}
    )
    findings.check(max_output_lsb=MAX_ULPS)


def test_a_gemm_with_bias_and_a_short_last_block_is_right_too() -> None:
    source = model(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "gemm", transB=1)],
        {"w": weights(1, 7, 40), "b": weights(2, 7)},
        {"x": ["N", 40]},
    )
    findings = onnxq.cross_check(quantized(source, blocks("int4", 32)), {"x": normal(ROWS, 40)})
    findings.check(max_output_lsb=MAX_ULPS)


def test_blocks_that_two_matmuls_read_are_dequantized() -> None:
    """ONNX Runtime makes MatMulNBits only of what one node reads; in bodies too.

    onnxq writes MatMulNBits there, other tools do not.
    """
    body = f"""(float[N,{SIDE}] h, float[N,{SIDE}] t) => (float[N,{SIDE}] k, float[N,{SIDE}] o)
      {{ p = MatMul(t, w) q = MatMul(h, v) s = Add(p, q) k = Tanh(s) o = Identity(k) }}"""
    text = f"""m (float[T,N,{SIDE}] x, float[N,{SIDE}] s) => (float[T,N,{SIDE}] y)
      {{ last, y = Scan (s, x) <num_scan_inputs = 1, body = b {body}> }}"""
    both = {"w": normal(SIDE, SIDE), "v": normal(SIDE, SIDE, seed=5)}
    made = quantized(parsed(text, both), blocks("int8", 32))
    nodes = [node for node in made.graph.all_nodes() if node.op_type == "DequantizeLinear"]
    first, second = (node.outputs[0] for node in nodes)
    second.replace_all_uses_with(first)
    optimized = op_types(runtime.optimized_graph(made))
    assert optimized.count("Gemm") == 2
    assert "MatMulNBits" not in optimized
    feeds = {"x": normal(3, 2, SIDE, seed=1), "s": normal(2, SIDE, seed=2)}
    findings = onnxq.cross_check(made, [feeds])
    assert [o.differing for o in findings.outputs] == [0]


def test_blocks_that_a_transpose_turns_at_load_are_multiplied_as_others() -> None:
    """An embedding and the MatMul with its transpose share integers where rows are one block."""
    text = """m (int64[N] ids) => (float[N,12] y)
      { x = Gather(table, ids) t = Transpose(table) y = MatMul(x, t) }"""
    stored = QConfigDynamic(blocks("int8", SIDE).weight, Precision.WEIGHT_ONLY)
    spec = {"MatMul": blocks("int8", SIDE), "Gather": stored}
    made = quantized(parsed(text, {"table": normal(12, SIDE)}), spec)
    (dequantize,) = (node for node in made.graph if node.op_type == "DequantizeLinear")
    integers = dequantize.inputs[0]
    assert integers is not None
    turned = integers.producer()
    assert turned is not None
    assert turned.op_type == "Transpose"
    assert "MatMulNBits" in op_types(runtime.optimized_graph(made))
    findings = onnxq.cross_check(made, [{"ids": np.arange(12)}])
    findings.check(max_output_lsb=MAX_ULPS)


def test_the_matmul_takes_the_place_of_both_nodes_and_keeps_its_names() -> None:
    made = quantized(linear(), blocks("int8", 16))
    (before,) = (node for node in made.graph if node.op_type in ("Gemm", "MatMul"))
    name, output = before.name, before.outputs[0].name
    write_groupwise_matmuls(made)
    (node,) = (node for node in made.graph if node.op_type == "MatMulNBits")
    assert (node.name, node.outputs[0].name) == (name, output)
    assert not {"Gemm", "MatMul", "DequantizeLinear"} & set(op_types(made))


def test_a_second_run_changes_nothing() -> None:
    made = quantized(linear(), blocks("int8", 16))
    write_groupwise_matmuls(made)
    once = ir.to_proto(made).SerializeToString()
    write_groupwise_matmuls(made)
    assert ir.to_proto(made).SerializeToString() == once


def test_blocks_that_onnxruntime_has_no_kernel_for_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.qconfig._values.BLOCK_SIZES", (8,))  # as in files of other tools
    made = quantized(linear(), blocks("int8", 8))
    before = op_types(made)
    write_groupwise_matmuls(made)
    assert op_types(made) == before


@pytest.mark.parametrize("attributes", [{}, {"axis": 1}], ids=["axis 1 by default", "axis 1"])
def test_blocks_along_the_columns_stay(attributes: dict[str, Any]) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], block_size=16, **attributes),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    w, s = np.ones((32, 32), np.int8), np.ones((32, 2), np.float32)
    made = as_ir(model(nodes, {"w": w, "s": s}, {"x": ["N", 32]}, opset=21))
    write_groupwise_matmuls(made)
    assert op_types(made) == ["DequantizeLinear", "MatMul"]
    assert "MatMulNBits" not in op_types(runtime.optimized_graph(made))
