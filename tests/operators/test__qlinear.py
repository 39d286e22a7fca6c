from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators._qlinear import channels_first, channels_last, unary


def test_the_plan_holds_what_the_inputs_say() -> None:
    x, plan = unary(
        IntegerCall("QLinearSigmoid", (integers(3), scales(0.5), zero(7), scales(0.25), None))
    )
    (p,), (q,) = plan.inputs, plan.outputs
    assert p is not None
    assert q is not None
    assert x.shape == (3,)
    assert (p.scale.item(), p.zero_point.item()) == (0.5, 7)
    assert (q.scale.item(), q.zero_point.item()) == (0.25, 0)


def test_several_scales_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"X_scale has shape .2,.*wanted one number"):
        unary(IntegerCall("QLinearSigmoid", (integers(3), scales(0.5, 0.25), None, scales(0.25))))


def test_layouts_are_turned_only_where_the_node_says_so() -> None:
    x = integers(2, 5, 6, 3)
    assert channels_first(IntegerCall("Op", ()), x) is x
    turned = channels_first(IntegerCall("Op", (), attributes={"channels_last": 1}), x)
    assert turned.shape == (2, 3, 5, 6)
    assert np.array_equal(
        channels_last(IntegerCall("Op", (), attributes={"channels_last": 1}), turned), x
    )
