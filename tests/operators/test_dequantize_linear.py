from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from onnxq import catalog
from onnxq.errors import ShapeError
from onnxq.operator import Case, IntegerCall
from onnxq.operator.examples import integers, ints32, scales, zero
from onnxq.operators.dequantize_linear import DequantizeLinear, onnx_only_cases
from tests.operators import builder
from tests.operators.test_integer_contract import assert_equals_onnx_runtime

X = integers(3, 5)
ONE = scales(1)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in onnx_only_cases()])
def test_what_com_microsoft_lacks_equals_onnx_runtime(case: Case) -> None:
    assert_equals_onnx_runtime(DequantizeLinear(), "", case)


def test_it_is_known_in_both_domains() -> None:
    assert catalog.find_integer("DequantizeLinear") is catalog.find_integer(
        "DequantizeLinear", builder.MICROSOFT
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_every_integer_and_zero_point_equals_onnx_runtime(dtype: str) -> None:
    every = np.arange(256).astype(np.uint8).view(dtype)
    x = np.broadcast_to(every, (256, 256))
    scale = np.geomspace(1e-6, 1e6, 256).astype(np.float32)
    case = Case("all", (x, scale, every), (1, 2), {"axis": 0})
    assert_equals_onnx_runtime(DequantizeLinear(), "", case)


def test_float16_results_are_rounded_from_float32_and_may_overflow() -> None:
    inputs = (integers(100, dtype="int16"), np.array(3.7, np.float16), zero(-32768, "int16"))
    assert_equals_onnx_runtime(DequantizeLinear(), "", Case("half", inputs, (1, 2)))
    (y,) = DequantizeLinear().kernel(IntegerCall("DequantizeLinear", inputs))
    assert y.dtype == np.float16
    assert np.isinf(y).any()


def test_differences_of_int32_wrap_as_in_onnx_runtime() -> None:
    inputs = (ints32(-(2**31)), ONE, np.array(1, np.int32))
    (y,) = DequantizeLinear().kernel(IntegerCall("DequantizeLinear", inputs))
    assert y.tolist() == [2.0**31]
    blocks = (ints32(-(2**31), 5, 7), np.ones(2, np.float32), ints32(1, 2))
    (y,) = DequantizeLinear().kernel(
        IntegerCall("DequantizeLinear", blocks, attributes={"axis": 0, "block_size": 2})
    )
    assert y.tolist() == [2.0**31, 4, 5]


@pytest.mark.parametrize("odd", [0.0, -0.5, np.inf, np.nan])
def test_any_scale_is_multiplied_by_as_in_onnx_runtime(odd: float) -> None:
    number = Case("one", (X, scales(odd), zero(3)), (1, 2))
    channels = Case(
        "channels", (X, scales(odd, 0.5, 0.25), np.full(3, 3, np.uint8)), (1, 2), {"axis": 0}
    )
    biases = Case("biases", (ints32(5, 0, -7), scales(odd)), (1,))
    for case in (number, channels, biases):
        assert_equals_onnx_runtime(DequantizeLinear(), "", case)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ((X.astype(np.int64), ONE), {}, "x has dtype int64"),
        ((X, ONE.astype(np.float64)), {}, "x_scale has dtype float64"),
        ((X, ONE, zero(0, "int8")), {}, "x_zero_point has dtype int8, but x is uint8"),
        ((X, ONE), {"output_dtype": onnx.TensorProto.DOUBLE}, "y would have dtype float64"),
        ((X, scales(1, 2, 3)), {}, r"wants \(5,\) or one number"),
        ((X.view(ml_dtypes.float8_e5m2), ONE, zero(0)), {}, "x_zero_point has dtype uint8"),
    ],
)
def test_what_does_not_fit_is_refused(
    inputs: tuple[np.ndarray, ...], attributes: dict[str, int], message: str
) -> None:
    with pytest.raises(ShapeError, match=f"DequantizeLinear: .*{message}"):
        DequantizeLinear().kernel(IntegerCall("DequantizeLinear", inputs, attributes=attributes))
