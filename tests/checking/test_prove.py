"""Certificates beside all inputs of tiny layers, and beside the kernels' own pairs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import onnxq
from onnxq import catalog
from onnxq.checking.prove import PROVED, SATURATES, UNKNOWN, Certificate, NodeCertificate
from onnxq.operator import IntegerCall
from onnxq.targets.accumulation import Accumulator, Overflows, SaturationMode
from tests.dynamic_models import parsed

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from onnxq.core.arrays import Array

GEMM = """m (uint8[N,{k}] x) => (uint8[N,{n}] y)
  {{ y = com.microsoft.QGemm (x, s, zx, w, s, zw, b, s, zx) }}"""


def model(text: str, arrays: dict[str, Array]) -> onnx.ModelProto:
    """The model of a text that may name operators of com.microsoft."""
    made = parsed(text, cast("Any", arrays), 21)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def gemm(w: Array, bias: Array, x_zero: int, w_zero: int = 0) -> onnx.ModelProto:
    arrays = {
        "w": w,
        "b": bias,
        "s": np.array(1, np.float32),
        "zx": np.array(x_zero, np.uint8),
        "zw": np.array(w_zero, np.int8),
    }
    return model(GEMM.format(k=w.shape[0], n=w.shape[1]), arrays)


def only_node(source: onnx.ModelProto, target: str = "x86-avx2") -> NodeCertificate:
    (machine,) = onnxq.prove(source, target).machines
    (node,) = machine.nodes
    return node


def every_input(size: int, step: int) -> npt.NDArray[np.int64]:
    """All rows of integers from 0 to 255 that the step reaches, the two ends among them."""
    values = sorted({*range(0, 256, step), 255})
    return np.array(list(itertools.product(values, repeat=size)), np.int64)


@pytest.mark.parametrize(("w_zero", "x_zero"), [(0, 0), (0, 128), (3, 255), (-128, 7)])
def test_the_accumulator_is_the_largest_of_all_inputs(w_zero: int, x_zero: int) -> None:
    w = np.array([[127, -128, 5], [90, -77, -6]], np.int8)
    bias = np.array([1000, -70, 3], np.int32)
    x = every_input(2, 1)
    sums = (x - x_zero) @ (w.astype(np.int64) - w_zero) + bias
    assert only_node(gemm(w, bias, x_zero, w_zero)).accumulator == np.abs(sums).max()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-128, 127), min_size=2, max_size=3), st.integers(0, 255))
def test_sums_and_pairs_of_random_weights_are_attained(column: list[int], x_zero: int) -> None:
    w = np.array(column, np.int8)[:, None]
    found = only_node(gemm(w, np.zeros(1, np.int32), x_zero))
    x = every_input(len(column), 51)
    assert found.accumulator == np.abs((x - x_zero) @ w.astype(np.int64)).max()
    pairs = x[:, :2] @ w[:2].astype(np.int64)
    assert found.pair == np.abs(pairs).max()
    left = (pairs > 32767) | (pairs < -32768)
    assert (found.verdict == SATURATES) == bool(left.any())


@pytest.mark.parametrize("weights", [(64, 64), (65, 64), (-64, -64), (-65, -64)])
def test_a_pair_that_saturates_does_so_in_the_kernel_for_some_input(
    weights: tuple[int, int],
) -> None:
    source = gemm(np.array(weights, np.int8)[:, None], np.zeros(1, np.int32), 0)
    heard: list[Overflows] = []
    one, zeros = np.array(1, np.float32), np.array(0, np.uint8)
    operator = catalog.find_integer("QGemm", "com.microsoft")
    assert operator is not None
    x = np.full((1, 2), 255, np.uint8)
    w = np.array(weights, np.int8)[:, None]
    call = IntegerCall("QGemm", [x, one, zeros, w, one, np.array(0, np.int8)])
    operator.kernel_on(call, Accumulator(SaturationMode.SATURATES, heard.append))
    assert (only_node(source).verdict == SATURATES) == bool(heard)
    assert only_node(source, "x86-vnni").verdict == PROVED
    assert only_node(source, "x86-vnni").pair is None


def test_a_bias_takes_the_accumulator_beyond_int32() -> None:
    found = only_node(gemm(np.full((1, 1), 127, np.int8), np.array([2**31 - 100], np.int32), 0))
    assert found.verdict == SATURATES
    assert found.accumulator_share is not None
    assert found.accumulator_share > 1


def test_bounds_of_integers_ahead_narrow_the_sums() -> None:
    text = """m (uint8[N,2] v) => (uint8[N,1] y)
      { c = Clip (v, low, high)  x = Reshape (c, shape)
        y = com.microsoft.QGemm (x, s, zx, w, s, zw, , s, zx) }"""
    arrays = {
        "low": np.array(2, np.uint8),
        "high": np.array(100, np.uint8),
        "shape": np.array([-1, 2]),
        "w": np.full((2, 1), 127, np.int8),
        "s": np.array(1, np.float32),
        "zx": np.array(0, np.uint8),
        "zw": np.array(0, np.int8),
    }
    found = only_node(model(text, arrays))
    assert (found.accumulator, found.pair, found.verdict) == (25400, 25400, PROVED)


def test_weights_that_are_computed_at_run_time_are_not_bounded() -> None:
    text = """m (uint8[N,2] x, int8[2,1] w) => (int32[N,1] y) { y = MatMulInteger (x, w) }"""
    (machine,) = onnxq.prove(model(text, {}), "x86-avx2").machines
    assert machine.nodes[0].verdict == UNKNOWN
    assert machine.nodes[0].accumulator is None
    assert machine.outputs[0].bound is None


def test_an_output_behind_proved_nodes_has_no_error_and_another_no_bound() -> None:
    safe = gemm(np.full((2, 1), 64, np.int8), np.zeros(1, np.int32), 0)
    risky = gemm(np.full((2, 1), 65, np.int8), np.zeros(1, np.int32), 0)
    assert [m.outputs[0].bound for m in onnxq.prove(safe, "x86-avx2").machines] == [0.0]
    assert [m.outputs[0].bound for m in onnxq.prove(risky, "x86-avx2").machines] == [None]


def test_a_certificate_is_saved_and_loaded(tmp_path: Path) -> None:
    found = onnxq.prove(gemm(np.full((2, 1), 65, np.int8), np.zeros(1, np.int32), 0))
    found.save(tmp_path / "c.json")
    assert Certificate.load(tmp_path / "c.json") == found
    assert not found.is_proved
    assert len(found.machines) > 3
