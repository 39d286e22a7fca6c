from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import IntegerCall
from onnxq.operators._activations import Activation
from onnxq.operators.dynamic_quantize_lstm import (
    Cell,
    CellState,
    DynamicQuantizeLSTM,
    Weights,
    example,
    run_direction,
)
from tests import this_machine
from tests.operators import builder

if TYPE_CHECKING:
    from onnxq.operator import Array, AttributeValue, Case

OPERATOR = DynamicQuantizeLSTM()
CASES = {case.name: case for case in OPERATOR.cases()}
ATTRIBUTES: dict[str, AttributeValue] = {"direction": "forward", "hidden_size": 6}


def changed(slot: int, x: Array | None) -> list[Array | None]:
    inputs = example()
    inputs[slot] = x
    return inputs


def ort(case: Case) -> list[Array]:
    model = builder.integer_model(OPERATOR, "com.microsoft", case)
    return builder.run(model, case, case.inputs)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("name", ["all inputs", "all inputs, reverse", "all inputs, bidirectional"])
def test_inputs_of_any_magnitude_give_onnx_runtimes_bits(name: str, scale: float) -> None:
    case = CASES[name]
    inputs = (np.asarray(case.inputs[0], np.float32) * np.float32(scale), *case.inputs[1:])
    case = dataclasses.replace(case, inputs=inputs)
    call = IntegerCall(OPERATOR.op_type, inputs, attributes=case.attributes or {})
    for y, wanted in zip(this_machine.compute(OPERATOR, call), ort(case), strict=True):
        assert np.array_equal(y, wanted)


def test_rows_of_a_batch_share_the_scale_of_x() -> None:
    inputs = example(batch=2)
    x = np.asarray(inputs[0], np.float32).copy()
    both, _, _ = OPERATOR.kernel(IntegerCall(OPERATOR.op_type, inputs, attributes=ATTRIBUTES))
    x[:, 1] *= 100
    inputs[0] = x
    other, _, _ = OPERATOR.kernel(IntegerCall(OPERATOR.op_type, inputs, attributes=ATTRIBUTES))
    assert not np.array_equal(both[:, :, 0], other[:, :, 0])


def test_directions_are_computed_apart() -> None:
    inputs = example(2)
    both = OPERATOR.kernel(
        IntegerCall(
            OPERATOR.op_type, inputs, attributes={"direction": "bidirectional", "hidden_size": 6}
        )
    )
    for i, direction in enumerate(["forward", "reverse"]):
        part = [
            x if x is None or k == 0 else np.asarray(x)[i : i + 1] for k, x in enumerate(inputs)
        ]
        one = OPERATOR.kernel(
            IntegerCall(
                OPERATOR.op_type, part, attributes={"direction": direction, "hidden_size": 6}
            )
        )
        assert np.array_equal(one[0][:, 0], both[0][:, i])
        assert np.array_equal(one[1][0], both[1][i])
        assert np.array_equal(one[2][0], both[2][i])


@pytest.mark.parametrize(
    ("slot", "x", "words"),
    [
        (0, np.zeros((4, 3), np.float32), "X is float32 of shape"),
        (1, np.zeros((1, 5, 23), np.int8), r"W has shape \(1, 5, 23\); wanted \(1, 5, 24\)"),
        (3, np.zeros((1, 47), np.float32), "B is float32 of shape"),
        (4, np.array([1, 2, 5], np.int32), "sequence_lens"),
        (4, np.array([1, 2], np.int32), "sequence_lens"),
        (5, np.zeros((1, 2, 6), np.float32), "initial_h"),
        (7, np.zeros((1, 17), np.float32), "P is float32"),
        (9, np.zeros((1, 24), np.int8), "W_zero_point"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(slot: int, x: Array, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        OPERATOR.kernel(IntegerCall(OPERATOR.op_type, changed(slot, x), attributes=ATTRIBUTES))


def test_zero_points_that_differ_between_columns_are_refused() -> None:
    inputs = example(columns=True)
    inputs[9] = np.arange(24, dtype=np.int8)[None]
    with pytest.raises(ShapeError, match="W_zero_point differs between columns"):
        OPERATOR.kernel(IntegerCall(OPERATOR.op_type, inputs, attributes=ATTRIBUTES))


def test_weights_of_two_types_are_refused() -> None:
    inputs = changed(2, np.zeros((1, 6, 24), np.uint8))
    with pytest.raises(UnsupportedError, match="W is int8 and R uint8"):
        OPERATOR.kernel(IntegerCall(OPERATOR.op_type, inputs, attributes=ATTRIBUTES))


@pytest.mark.parametrize("shape", [(4, 0, 5), (0, 3, 5)])
def test_no_step_at_all_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedError, match="has no step"):
        OPERATOR.kernel(
            IntegerCall(
                OPERATOR.op_type, changed(0, np.zeros(shape, np.float32)), attributes=ATTRIBUTES
            )
        )


def test_another_direction_is_refused() -> None:
    with pytest.raises(ShapeError, match="direction 'sideways'"):
        OPERATOR.kernel(
            IntegerCall(OPERATOR.op_type, example(), attributes={"direction": "sideways"})
        )


ONE = np.ones((), np.float32)
LINEAR = [Activation("affine", 1, 0)] * 3
NO_CLIP = np.float32(np.finfo(np.float32).max)


def cell(w: list[float], r: list[float]) -> Cell:
    """Hidden size 1, gates i o f c, identities for activations."""
    weights = [
        Weights(np.array([row], np.float32), ONE, np.array([row], np.int8)) for row in (w, r)
    ]
    return Cell(weights[0], weights[1], None, None, LINEAR, NO_CLIP, 0)


def zeros(batch: int) -> CellState:
    return CellState(np.zeros((batch, 1), np.float32), np.zeros((batch, 1), np.float32))


def test_gates_are_in_the_order_input_output_forget_cell() -> None:
    x = np.array([[[255]]], np.float32)  # its scale is 1
    start = CellState(np.zeros((1, 1), np.float32), np.full((1, 1), 10, np.float32))
    y, h, c = run_direction(x, np.array([1], np.int32), cell([1, 2, 3, 4], [0] * 4), start, False)
    wanted = 255 * 3 * 10 + 255 * 1 * 255 * 4  # f c + i g
    assert c.item() == wanted
    assert y.item() == h.item() == np.float32(255 * 2 * wanted)


def test_rows_that_have_ended_give_0_and_keep_their_last_state() -> None:
    x = np.full((3, 2, 1), 255, np.float32)
    net = cell([1, 1, 1, 1], [0] * 4)
    y, h, c = run_direction(x, np.array([3, 1], np.int32), net, zeros(2), False)
    assert y[1:, 1].tolist() == [[0], [0]]
    assert h[1] == y[0, 1]
    assert c[1] == 255 * 255
    assert h[0] == y[2, 0]


def test_backwards_each_sequence_begins_at_its_own_end() -> None:
    x = np.array([[[255]], [[1]], [[7]]], np.float32)
    net = cell([1, 1, 1, 1], [0] * 4)
    lengths = np.array([2], np.int32)
    y, _, _ = run_direction(x, lengths, net, zeros(1), True)
    flipped = x[[1, 0, 2]]
    forward, _, _ = run_direction(flipped, lengths, net, zeros(1), False)
    assert np.array_equal(y, forward[[1, 0, 2]])
