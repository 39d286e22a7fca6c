from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.tape import Tape

from onnxq.affine import dequantize, quantize
from onnxq.dtypes import INT8, UINT8
from onnxq.operator import Call, NodePlan, Site
from onnxq.operators._clamp import bound_integers, clamp_integers, lower_clamp
from onnxq.qparams import per_tensor
from tests.examples import tensor_of

P = per_tensor(0.05, 100, UINT8)
INF = float("inf")


def test_infinite_bounds_are_min_and_max_of_the_type() -> None:
    assert tuple(map(int, bound_integers((-INF, INF), P))) == (0, 255)
    assert tuple(map(int, bound_integers((-INF, INF), per_tensor(0.05, 0, INT8)))) == (-128, 127)


def test_zero_is_the_zero_point() -> None:
    assert int(bound_integers((0.0, INF), P)[0]) == 100


@pytest.mark.parametrize("bounds", [(0.0, INF), (0.0, 6.0), (-1.01, 2.49), (3.0, 4.0)])
def test_clamping_integers_is_quantizing_what_was_clamped(bounds: tuple[float, float]) -> None:
    # rounding to a grid keeps order, so that both agree exactly
    x = np.arange(256).astype(np.uint8)
    got = clamp_integers(Call("Clip", [x], NodePlan((P,), (P,))), bounds)
    real = np.clip(dequantize(x, P), np.float32(bounds[0]), np.float32(bounds[1]))
    np.testing.assert_array_equal(got, quantize(real, P))
    assert got.dtype == np.uint8


def test_a_result_with_other_qparams_is_that_of_the_reals() -> None:
    other = per_tensor(0.01, 0, UINT8)
    x = np.arange(256).astype(np.uint8)
    got = clamp_integers(Call("Clip", [x], NodePlan((P,), (other,))), (0.0, 1.0))
    real = np.clip(dequantize(x, P), np.float32(0), np.float32(1))
    np.testing.assert_array_equal(got, quantize(real, other))


def test_the_lowering_is_one_clip_with_integers_as_bounds() -> None:
    tape, x = Tape(), ir.val("x", ir.DataType.UINT8, [2])
    node = ir.node("Relu", [ir.val("f", ir.DataType.FLOAT, [2])], name="relu")
    lower_clamp(Site(tape, node, [x], NodePlan((P,), (P,))), (0.0, 6.0))
    (clip,) = tape.nodes
    assert (clip.op_type, clip.name) == ("Clip", "relu")
    bounds = [tensor_of(value).numpy() for value in clip.inputs[1:]]
    assert [int(bound) for bound in bounds] == [100, 220]
    assert {bound.dtype for bound in bounds} == {np.dtype(np.uint8)}
