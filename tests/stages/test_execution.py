from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.stages.execution import execution, meant_in_integers
from tests.examples import as_ir, quantized_matmul

if TYPE_CHECKING:
    import onnx_ir as ir


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
    got = execution(as_ir(quantized_matmul(np.array(3, np.uint16))))
    assert [f.name for f in got.fallbacks] == ["matmul"]
    assert got.float_nodes == {"MatMul": 1}


def test_a_biased_matmul_without_requantization_falls_back() -> None:
    # MatMulAddFusion comes first, and ONNX Runtime renames the node to "matmul/MatMulAddFusion"
    got = execution(matmul(requantized=False, bias=True))
    assert [f.name for f in got.fallbacks] == ["matmul"]


@pytest.mark.parametrize("requantized", [True, False])
def test_the_matmul_is_meant_in_integers(requantized: bool) -> None:
    names = [node.name for node in meant_in_integers(matmul(requantized=requantized))]
    assert names == ["matmul"]
