from __future__ import annotations

import numpy as np
import pytest

from onnxq import catalog
from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operators.qlinear_conv import QLinearConv
from tests.operators import builder

CASE = next(c for c in QLinearConv().cases() if c.name.startswith("per-channel"))


def test_channels_last_gives_the_same_integers_transposed() -> None:
    attributes = dict(CASE.attributes or {})
    (first,) = QLinearConv().kernel(IntegerCall("QLinearConv", CASE.inputs, attributes=attributes))
    x = np.moveaxis(np.asarray(CASE.inputs[0]), 1, -1)
    (last,) = QLinearConv().kernel(
        IntegerCall(
            "QLinearConv", (x, *CASE.inputs[1:]), attributes={**attributes, "channels_last": 1}
        )
    )
    assert np.array_equal(np.moveaxis(last, -1, 1), first)


def test_it_is_known_in_both_domains() -> None:
    assert catalog.find_integer("QLinearConv") is catalog.find_integer(
        "QLinearConv", builder.MICROSOFT
    )


def test_a_result_of_another_type_is_refused() -> None:
    inputs = list(CASE.inputs)
    inputs[7] = np.zeros((), np.int8)
    with pytest.raises(ShapeError, match="x is uint8, y int8"):
        QLinearConv().kernel(IntegerCall("QLinearConv", inputs, attributes=CASE.attributes or {}))
