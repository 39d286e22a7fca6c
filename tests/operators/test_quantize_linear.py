from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from onnxq import catalog
from onnxq.errors import ShapeError
from onnxq.operator import Case, IntegerCall
from onnxq.operator.examples import normal, scales, zero
from onnxq.operators._linear import SMALL_FLOATS
from onnxq.operators.quantize_linear import QuantizeLinear, onnx_only_cases
from tests.operators import builder
from tests.operators.test_integer_contract import assert_equals_onnx_runtime

X = normal(3, 5)
ONE = scales(1)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in onnx_only_cases()])
def test_what_com_microsoft_lacks_equals_onnx_runtime(case: Case) -> None:
    assert_equals_onnx_runtime(QuantizeLinear(), "", case)


def test_it_is_known_in_both_domains() -> None:
    assert catalog.find_integer("QuantizeLinear") is catalog.find_integer(
        "QuantizeLinear", builder.MICROSOFT
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("real", [np.float32, np.float16])
def test_many_ties_and_extreme_zero_points_equal_onnx_runtime(
    dtype: str, real: type[np.floating]
) -> None:
    limits = np.iinfo(dtype)
    x = (np.arange(-2048, 2048) / 4).astype(real)
    for point in (limits.min, limits.min + 1, limits.max):
        inputs = (x, np.array(0.5, real), zero(point, dtype))
        assert_equals_onnx_runtime(QuantizeLinear(), "", Case("ties", inputs, (1, 2)))


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2])
def test_types_below_8_bits_are_arrays_of_ml_dtypes(dtype: type) -> None:
    (y,) = QuantizeLinear().kernel(IntegerCall("QuantizeLinear", (X, ONE, np.zeros((), dtype))))
    assert y.dtype == np.dtype(dtype)
    assert y.shape == X.shape


def test_infinity_saturates_unless_float8_is_told_not_to() -> None:
    x, point = np.array([np.inf, -np.inf], np.float32), np.zeros((), ml_dtypes.float8_e5m2)
    (clamped,) = QuantizeLinear().kernel(IntegerCall("QuantizeLinear", (x, ONE, point)))
    assert clamped.astype(np.float32).tolist() == [57344, -57344]
    (overflowed,) = QuantizeLinear().kernel(
        IntegerCall("QuantizeLinear", (x, ONE, point), attributes={"saturate": 0})
    )
    assert overflowed.astype(np.float32).tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ((X, ONE.astype(np.float16)), {}, "y_scale has dtype float16, x float32"),
        ((X.astype(np.int32), ONE), {}, "x has dtype int32"),
        ((X, ONE, zero(0, "int8")), {"output_dtype": onnx.TensorProto.UINT8}, "make them equal"),
        ((X, ONE), {"output_dtype": onnx.TensorProto.INT32}, "dtype int32"),
        ((X, scales(1, 2, 3)), {}, r"wants \(5,\) or one number"),
        ((X, scales(1, 2, 3)), {"axis": 2}, "axis 2 is outside a tensor of rank 2"),
        ((X, scales(1, 2, 3)), {"axis": -3}, "axis -3 is outside a tensor of rank 2"),
        ((X, scales(1, 2, 3), zero(0)), {"axis": 0}, "they must be equal"),
        ((X, ONE), {"block_size": 2}, r"wants \(3, 3\)"),
        ((X, np.ones((3, 2), np.float32)), {"block_size": 2}, r"wants \(3, 3\)"),
        ((X, np.ones((3, 5), np.float32)), {"block_size": -1}, "block_size is -1"),
        ((X, ONE, np.ones((), ml_dtypes.float8_e5m2)), {}, "has no zero point"),
    ],
)
def test_what_does_not_fit_is_refused(
    inputs: tuple[np.ndarray, ...], attributes: dict[str, int], message: str
) -> None:
    with pytest.raises(ShapeError, match=f"QuantizeLinear: .*{message}"):
        QuantizeLinear().kernel(IntegerCall("QuantizeLinear", inputs, attributes=attributes))


@pytest.mark.parametrize("dtype", SMALL_FLOATS[:4], ids=str)
@pytest.mark.parametrize("saturate", [0, 1])
def test_every_float16_becomes_the_float8_of_onnx_runtime(
    dtype: np.dtype[np.generic], saturate: int
) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = np.outer(np.array([0.5, 1, 1.3], np.float32), every[np.isfinite(every)].astype(np.float32))
    inputs = (x, ONE, np.zeros((), dtype))
    case = Case("all", inputs, (1, 2), {"saturate": saturate})
    assert_equals_onnx_runtime(QuantizeLinear(), "", case)
