from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnxq.dtypes import INT4, INT8, INT32, UINT8
from onnxq.errors import ShapeError
from onnxq.operator.examples import integers, ints32, scales, zero
from onnxq.operator.integer_call import QDTYPES, IntegerCall, as_tensor, stored
from onnxq.qparams import PerChannel, per_tensor

CALL = IntegerCall("Op", [])


@pytest.mark.parametrize("dtype", list(QDTYPES), ids=str)
def test_integers_survive_storage_and_back(dtype: np.dtype[np.generic]) -> None:
    qdtype = QDTYPES[dtype]
    ends = np.array([qdtype.qmin, 0, qdtype.qmax], np.int64).astype(dtype)
    kept = stored(ends)
    assert kept.dtype == qdtype.storage
    assert kept.tolist() == [qdtype.qmin, 0, qdtype.qmax]
    back = as_tensor(kept, dtype)
    assert back.dtype == dtype
    assert np.array_equal(back, ends)


def test_an_absent_operand_is_named() -> None:
    for inputs in ((), (None,)):
        with pytest.raises(ShapeError, match="Op: input 0, x, is absent"):
            IntegerCall("Op", inputs).operand(0, "x")
        assert IntegerCall("Op", inputs).optional(0) is None


def test_a_dtype_that_is_not_taken_is_named() -> None:
    with pytest.raises(ShapeError, match="Op: x has dtype int16; wanted uint8 or int8"):
        CALL.qdtype(integers(3, dtype="int16"), "x")
    assert CALL.qdtype(np.zeros(2, ml_dtypes.int4), "x", ("int4",)) == INT4


def test_one_number_is_per_tensor_in_either_rank() -> None:
    for scale in (scales(2), np.full(1, 2, np.float32)):
        found = CALL.qparams_of("x", scale, np.full(1, 3, np.uint8), UINT8)
        assert found == per_tensor(2, 3, UINT8)


def test_an_absent_zero_point_is_0() -> None:
    assert CALL.qparams_of("x", scales(2), None, INT8).zero_point == 0


def test_one_zero_point_serves_all_channels() -> None:
    found = CALL.qparams_of("w", scales(1, 2), zero(3, "int8"), INT8, axis=1)
    assert found.granularity == PerChannel(1)
    assert found.zero_point.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("scale", "zero_point", "message"),
    [
        (scales(1).astype(np.float64), None, "x_scale has dtype float64"),
        (scales(1), zero(0, "int8"), "x_zero_point has dtype int8, but x is uint8"),
        (scales(1, 2), None, "wanted one number"),
        (scales(-1), None, "x: scale: got -1.0"),
        (scales(1), np.zeros(2, np.uint8), r"x_zero_point \(2,\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    scale: np.ndarray, zero_point: np.ndarray | None, message: str
) -> None:
    with pytest.raises(ShapeError, match=f"Op: .*{message}"):
        CALL.qparams_of("x", scale, zero_point, UINT8)


def test_the_zero_point_of_a_result_says_its_type() -> None:
    assert IntegerCall("Op", (scales(1), zero(0, "int8"))).output_qparams("y", 0).dtype == INT8
    assert IntegerCall("Op", (scales(1),)).output_qparams("y", 0).dtype == UINT8


def test_a_bias_is_at_the_product_of_the_scales() -> None:
    x, w = per_tensor(0.5, 3, UINT8), per_tensor(0.25, 0, INT8)
    found = CALL.bias_qparams(ints32(1, 2), x, w)
    assert found == per_tensor(0.125, 0, INT32)
    with pytest.raises(ShapeError, match="Op: the bias has dtype float32"):
        CALL.bias_qparams(np.ones(2, np.float32), x, w)
