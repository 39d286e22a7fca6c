from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from onnxq import catalog
from onnxq.errors import UnsupportedError
from onnxq.operator import Case, IntegerCall
from onnxq.operator.examples import integers, ints, zero
from onnxq.operators._plain_on_integers import PlainOnIntegers
from tests.operators.test_integer_contract import assert_equals_onnx_runtime

if TYPE_CHECKING:
    from onnxq.operator import Array, AttributeValue

X = integers(2, 3, 4)
MASK = integers(2, 3, 4, seed=1) > 100

CASES = {
    "Clip": Case("both", (X, zero(30), zero(200)), (1, 2)),
    "Clip, lower": Case("lower", (X.view(np.int8), zero(-5, "int8")), (1,)),
    "Clip, crossed": Case("crossed", (X, zero(200), zero(30)), (1, 2)),
    "Pad, value": Case("value", (X, ints(0, 1, 2, 0, 0, 1), zero(131)), (1, 2)),
    "Pad, no value": Case("none", (X, ints(0, 1, 2, 0, 0, 1)), (1,)),
    "Pad, int32": Case(
        "wide", (X.astype(np.int32), ints(0, 0, 1, 0, 0, 0), zero(-9, "int32")), (1,)
    ),
    "MaxPool": Case("pool", (X,), (), {"kernel_shape": [2], "pads": [1, 0]}),
    "Where": Case("where", (MASK, X, zero(9))),
    "Where, int64": Case("wide", (MASK, X.astype(np.int64) << 40, np.array(7))),
    "Max, uint64": Case("wide", (X.astype(np.uint64) << np.uint64(56), np.array(5, np.uint64))),
    "Gather, int64": Case("wide", (X.astype(np.int64) << 40, ints(1, 0)), (1,)),
    "ArgMax": Case("index", (X,), (), {"axis": 1}),
    "Relu": Case("int8", (X.view(np.int8),)),
    "Transpose, uint16": Case("uint16", (integers(3, 4, dtype="uint16"),)),
}


@pytest.mark.parametrize("name", CASES)
def test_integers_are_moved_and_bounded_as_by_onnx_runtime(name: str) -> None:
    operator = catalog.find_integer(name.split(",")[0])
    assert isinstance(operator, PlainOnIntegers)
    assert_equals_onnx_runtime(operator, "", CASES[name])


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2]
)
def test_integers_below_8_bits_are_moved_as_they_are(dtype: type) -> None:
    x: Array = integers(3, 4).astype(dtype)
    operator = catalog.find_integer("Transpose")
    assert operator is not None
    (y,) = operator.kernel(IntegerCall(operator.op_type, (x,)))
    assert y.dtype == x.dtype
    assert np.array_equal(y, x.T)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("Clip", (X.astype(np.int64), np.array(3)), {}, "bounds and values of int64"),
        ("Clip", (X.astype(np.int32), np.array(2**24 + 1, np.int32)), {}, r"got \[16777217\]"),
        ("Conv", (X, X), {}, "does not run it on integers as it is"),
        ("Reshape", (X.astype(np.float32), ints(24)), {}, "input 0 is float32"),
        ("Where", (MASK, X, None), {}, "input 2 is nothing"),
    ],
)
def test_what_has_no_kernel_on_integers_is_refused(
    op_type: str,
    inputs: tuple[Array | None, ...],
    attributes: dict[str, AttributeValue],
    message: str,
) -> None:
    operator = catalog.find_integer(op_type)
    assert operator is not None
    with pytest.raises(UnsupportedError, match=f"{op_type}: .*{message}"):
        operator.kernel(IntegerCall(operator.op_type, inputs, attributes=attributes))


def test_only_integers_are_served() -> None:
    operator = catalog.find_integer("Reshape")
    assert operator is not None
    assert operator.serves(IntegerCall(operator.op_type, (X, ints(24))))
    assert not operator.serves(IntegerCall(operator.op_type, (X.astype(np.float32), ints(24))))
    assert not operator.serves(
        IntegerCall(operator.op_type, (ints(1, 2), ints(2)))
    )  # shapes are left to onnx
