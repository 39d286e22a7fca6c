from __future__ import annotations

import numpy as np
import pytest

from onnxq.dtypes import INT8, UINT8
from onnxq.errors import ShapeError
from onnxq.operator import NodePlan
from onnxq.operators._check import (
    codes,
    plain,
    qparams_in,
    qparams_out,
    shape_errors,
    shared,
    weight_qparams,
)
from onnxq.qparams import PerChannel, QParams, per_tensor

P, OTHER = per_tensor(0.5, 3, UINT8), per_tensor(0.25, 3, UINT8)
CHANNELS = QParams(np.ones(3, np.float32), np.zeros(3, np.int8), INT8, PerChannel(0))
X = np.array([1, 2], np.uint8)


def test_codes_are_those_in_the_slot() -> None:
    np.testing.assert_array_equal(codes("Op", [X], NodePlan((P,), ()), 0), X)


@pytest.mark.parametrize(
    ("inputs", "plan", "words"),
    [
        ([], NodePlan((P,), ()), "input 0 has no codes or no qparams"),
        ([None], NodePlan((P,), ()), "input 0 has no codes or no qparams"),
        ([X], NodePlan((None,), ()), "input 0 has no codes or no qparams"),
        ([X], NodePlan((), ()), "input 0 has no codes or no qparams"),
        ([X.astype(np.int8)], NodePlan((P,), ()), "dtype int8; its qparams say uint8"),
    ],
)
def test_codes_that_do_not_suit_their_qparams_are_refused(
    inputs: list[np.ndarray | None], plan: NodePlan, words: str
) -> None:
    with pytest.raises(ShapeError, match=words):
        codes("Op", inputs, plan, 0)


def test_an_absent_plain_input_is_refused() -> None:
    assert plain("Op", [None, X], 1) is X
    with pytest.raises(ShapeError, match="Op: input 2 is absent"):
        plain("Op", [None, X], 2)


def test_only_per_tensor_qparams_pass() -> None:
    plan = NodePlan((P, CHANNELS), (P, None))
    assert qparams_in("Op", plan, 0) is P
    assert qparams_out("Op", plan) is P
    with pytest.raises(ShapeError, match=r"input 1 needs per-tensor qparams; got PerChannel"):
        qparams_in("Op", plan, 1)
    with pytest.raises(ShapeError, match="output 1 needs per-tensor qparams; got none"):
        qparams_out("Op", plan, 1)
    with pytest.raises(ShapeError, match="output 2 needs"):
        qparams_out("Op", plan, 2)


def test_weights_have_one_scale_or_one_per_channel_of_the_axis() -> None:
    w = np.zeros((3, 2), np.int8)
    assert weight_qparams("Op", NodePlan((None, CHANNELS), ()), 1, w, 0) is CHANNELS
    assert weight_qparams("Op", NodePlan((None, P), ()), 1, w, 0) is P
    with pytest.raises(ShapeError, match="needs qparams"):
        weight_qparams("Op", NodePlan((None, None), ()), 1, w, 0)
    with pytest.raises(ShapeError, match="wanted per-tensor, or 2 along axis 1"):
        weight_qparams("Op", NodePlan((None, CHANNELS), ()), 1, w, 1)
    with pytest.raises(ShapeError, match="or 4 along axis 0"):
        weight_qparams("Op", NodePlan((None, CHANNELS), ()), 1, np.zeros((4, 2), np.int8), 0)


def test_a_negative_channel_axis_counts_from_behind() -> None:
    last = QParams(np.ones(2, np.float32), np.zeros(2, np.int8), INT8, PerChannel(-1))
    plan = NodePlan((last,), ())
    assert weight_qparams("Op", plan, 0, np.zeros((3, 2), np.int8), 1) is last


def test_codes_are_copied_between_equal_qparams_only() -> None:
    assert shared("Op", NodePlan((P, None, P), (P,)), (0, 2)) == P
    with pytest.raises(ShapeError, match="it copies codes"):
        shared("Op", NodePlan((P,), (OTHER,)))
    with pytest.raises(ShapeError, match="it copies codes"):
        shared("Op", NodePlan((P, OTHER), (P,)), (0, 1))


@pytest.mark.parametrize("error", [ValueError("no"), IndexError("no")])
def test_refusals_of_numpy_become_shape_errors(error: Exception) -> None:
    with pytest.raises(ShapeError, match="Op: no") as caught, shape_errors("Op"):
        raise error
    assert caught.value.__cause__ is error


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), shape_errors("Op"):
        raise KeyError("bug")
