from __future__ import annotations

import numpy as np

from onnxq.operators._activations import Activation
from onnxq.operators._lstm import Cell, State, Weights, run_direction

ONE = np.ones((), np.float32)
LINEAR = [Activation("affine", 1, 0)] * 3
NO_CLIP = np.float32(np.finfo(np.float32).max)


def cell(w: list[float], r: list[float]) -> Cell:
    """Hidden size 1, gates i o f c, identities for activations."""
    weights = [
        Weights(np.array([row], np.float32), ONE, np.array([row], np.int8)) for row in (w, r)
    ]
    return Cell(weights[0], weights[1], None, None, LINEAR, NO_CLIP, 0)


def zeros(batch: int) -> State:
    return State(np.zeros((batch, 1), np.float32), np.zeros((batch, 1), np.float32))


def test_gates_are_in_the_order_input_output_forget_cell() -> None:
    x = np.array([[[255]]], np.float32)  # its scale is 1
    start = State(np.zeros((1, 1), np.float32), np.full((1, 1), 10, np.float32))
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
