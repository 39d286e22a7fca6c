from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.dtypes import INT8, UINT8
from onnxq.errors import ShapeError
from onnxq.operator import Call, NodeCall, NodePlan
from onnxq.qparams import PerChannel, QParams, per_tensor

if TYPE_CHECKING:
    from onnxq.operator import AttributeValue

P, OTHER = per_tensor(0.5, 3, UINT8), per_tensor(0.25, 3, UINT8)
CHANNELS = QParams(np.ones(3, np.float32), np.zeros(3, np.int8), INT8, PerChannel(0))
X = np.array([1, 2], np.uint8)


def test_integers_are_those_in_the_slot() -> None:
    np.testing.assert_array_equal(Call("Op", [X], NodePlan((P,), ())).integers(0), X)


@pytest.mark.parametrize(
    ("inputs", "plan", "words"),
    [
        ([], NodePlan((P,), ()), "input 0 has no integers or no qparams"),
        ([None], NodePlan((P,), ()), "input 0 has no integers or no qparams"),
        ([X], NodePlan((None,), ()), "input 0 has no integers or no qparams"),
        ([X], NodePlan((), ()), "input 0 has no integers or no qparams"),
        ([X.astype(np.int8)], NodePlan((P,), ()), "dtype int8; its qparams say uint8"),
    ],
)
def test_integers_that_do_not_suit_their_qparams_are_refused(
    inputs: list[np.ndarray | None], plan: NodePlan, words: str
) -> None:
    with pytest.raises(ShapeError, match=words):
        Call("Op", inputs, plan).integers(0)


def test_an_absent_plain_input_is_refused() -> None:
    assert NodeCall("Op", [None, X]).plain(1) is X
    with pytest.raises(ShapeError, match="Op: input 2 is absent"):
        NodeCall("Op", [None, X]).plain(2)


def test_only_per_tensor_qparams_pass() -> None:
    plan = NodePlan((P, CHANNELS), (P, None))
    assert Call("Op", [], plan).qparams_in(0) is P
    assert Call("Op", [], plan).qparams_out() is P
    with pytest.raises(ShapeError, match=r"input 1 needs per-tensor qparams; got PerChannel"):
        Call("Op", [], plan).qparams_in(1)
    with pytest.raises(ShapeError, match="output 1 needs per-tensor qparams; got none"):
        Call("Op", [], plan).qparams_out(1)
    with pytest.raises(ShapeError, match="output 2 needs"):
        Call("Op", [], plan).qparams_out(2)


def test_weights_have_one_scale_or_one_per_channel_of_the_axis() -> None:
    w = np.zeros((3, 2), np.int8)
    assert Call("Op", [], NodePlan((None, CHANNELS), ())).weight_qparams(1, w, 0) is CHANNELS
    assert Call("Op", [], NodePlan((None, P), ())).weight_qparams(1, w, 0) is P
    with pytest.raises(ShapeError, match="needs qparams"):
        Call("Op", [], NodePlan((None, None), ())).weight_qparams(1, w, 0)
    with pytest.raises(ShapeError, match="wanted per-tensor, or 2 along axis 1"):
        Call("Op", [], NodePlan((None, CHANNELS), ())).weight_qparams(1, w, 1)
    with pytest.raises(ShapeError, match="or 4 along axis 0"):
        Call("Op", [], NodePlan((None, CHANNELS), ())).weight_qparams(
            1, np.zeros((4, 2), np.int8), 0
        )


def test_a_negative_channel_axis_counts_from_behind() -> None:
    last = QParams(np.ones(2, np.float32), np.zeros(2, np.int8), INT8, PerChannel(-1))
    plan = NodePlan((last,), ())
    assert Call("Op", [], plan).weight_qparams(0, np.zeros((3, 2), np.int8), 1) is last


def test_integers_are_copied_between_equal_qparams_only() -> None:
    assert Call("Op", [], NodePlan((P, None, P), (P,))).shared((0, 2)) == P
    with pytest.raises(ShapeError, match="it copies integers"):
        Call("Op", [], NodePlan((P,), (OTHER,))).shared()
    with pytest.raises(ShapeError, match="it copies integers"):
        Call("Op", [], NodePlan((P, OTHER), (P,))).shared((0, 1))


@pytest.mark.parametrize("error", [ValueError("no"), IndexError("no")])
def test_refusals_of_numpy_become_shape_errors(error: Exception) -> None:
    with pytest.raises(ShapeError, match="Op: no") as caught, NodeCall("Op", []).shape_errors():
        raise error
    assert caught.value.__cause__ is error


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), NodeCall("Op", []).shape_errors():
        raise KeyError("bug")


def test_whole_numbers_are_read_from_vectors_alone() -> None:
    call = NodeCall("Op", [np.array([1, -2], np.int32), X.astype(np.float32), None])
    assert call.vector(0) == call.optional_vector(0) == [1, -2]
    assert call.optional_vector(2) is None
    assert call.optional_vector(3) is None
    with pytest.raises(
        ShapeError, match=r"Op: input 1 is float32 of shape \(2,\); wanted a vector"
    ):
        call.vector(1)


def test_absent_attributes_have_the_schemas_default() -> None:
    call = NodeCall("Op", [])
    assert call.integer("axis", -1) == -1
    assert call.real("alpha", 0.5) == 0.5
    assert call.text("mode", "constant") == "constant"
    assert call.ints("pads", [0, 0]) == [0, 0]


def test_attributes_that_are_there_win() -> None:
    given: dict[str, AttributeValue] = {"axis": 2, "alpha": 1.5, "mode": b"edge", "pads": (1, 2)}
    call = NodeCall("Op", [], attributes=given)
    assert call.integer("axis", -1) == 2
    assert call.real("alpha", 0.5) == 1.5
    assert call.text("mode", "constant") == "edge"
    assert call.ints("pads", [0, 0]) == [1, 2]


def test_an_empty_list_counts_as_absent() -> None:
    assert NodeCall("Op", [], attributes={"axes": []}).ints("axes", [3]) == [3]


def test_attributes_of_another_type_are_refused() -> None:
    call = NodeCall("Op", [], attributes={"axis": "last"})
    with pytest.raises(ShapeError, match=r"^Op: attribute axis is 'last'; wanted an int"):
        call.integer("axis", 0)
    with pytest.raises(ShapeError, match=r"^Op: .*wanted a float"):
        call.real("axis", 0)
    with pytest.raises(ShapeError, match=r"^Op: .*wanted a list of ints"):
        call.ints("axis", [])


def test_an_axis_counts_from_the_front_and_is_one_of_the_tensors() -> None:
    assert NodeCall("Op", []).axis("axis", -1, 3) == 2
    with pytest.raises(ShapeError, match="Op: axis 3 is outside a tensor of rank 3"):
        NodeCall("Op", [], attributes={"axis": 3}).axis("axis", 0, 3)
