from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import NodeCall
from onnxq.operator.examples import normal
from onnxq.operators._heads import (
    LOWEST,
    Heads,
    added_mask,
    attend,
    attention_bound,
    joined_with_past,
    merge_heads,
    split_heads,
    usual_scale,
)

SIZES = (2, 3, 5)  # batch, rows, keys: two keys of the past


def test_heads_taken_apart_go_together_again() -> None:
    x = normal(2, 3, 8)
    assert np.array_equal(merge_heads(split_heads(x, 4)), x)
    assert np.array_equal(split_heads(x, 4)[1, 2, 0], x[1, 0, 4:6])


def test_one_sided_masks_let_each_row_see_the_past_and_itself() -> None:
    added = added_mask(NodeCall("Op", (), attributes={"unidirectional": 1}), None, SIZES)
    assert added is not None
    seen = (added[0, 0] == 0).astype(int).tolist()
    assert seen == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert added.min() == LOWEST


def test_one_row_sees_everything() -> None:
    assert added_mask(NodeCall("Op", (), attributes={"unidirectional": 1}), None, (2, 1, 5)) is None


def test_keys_outside_of_start_and_end_get_the_filter() -> None:
    mask = np.array([4, 9, 1, -7], np.int32)
    added = added_mask(NodeCall("Op", (), attributes={"mask_filter_value": -2.5}), mask, SIZES)
    assert added is not None
    assert added[0, 0, 1].tolist() == [-2.5, 0, 0, 0, -2.5]
    assert not added[1].any()


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"Op: mask_index has shape \(3, 5\)"):
        added_mask(NodeCall("Op", ()), np.ones((3, 5), np.int32), SIZES)


def test_scale_is_by_the_size_of_a_head() -> None:
    assert usual_scale(0.0, 64) == 0.125
    assert usual_scale(-2.0, 64) == -2.0


def test_the_past_stands_in_front() -> None:
    past, k, v = normal(2, 1, 2, 3, 4), normal(1, 2, 1, 4), normal(1, 2, 1, 4, seed=1)
    keys, values = joined_with_past(NodeCall("Op", ()), past, k, v)
    assert np.array_equal(keys[:, :, :3], past[0])
    assert np.array_equal(values[:, :, 3:], v)


def example(gain: float, added: float | None) -> Heads:
    q, k, v = (normal(2, 3, 7, 16, seed=i) * np.float32(gain) for i in range(3))
    some = None if added is None else np.full((2, 1, 7, 7), added, np.float32)
    return Heads(q, k, v, some, 0.25)


@pytest.mark.parametrize("added", [None, -10000.0, float(LOWEST)])
@pytest.mark.parametrize("gain", [0.1, 1.0, 5.0])
def test_float32_in_another_order_is_within_the_bound(gain: float, added: float | None) -> None:
    heads = example(gain, added)
    scores = np.zeros((2, 3, 7, 7), np.float32)
    for i in reversed(range(16)):
        scores += heads.q[..., i, None] * heads.k[..., None, :, i]
    scores *= np.float32(heads.scale)
    scores = scores if heads.added is None else scores + heads.added
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    y = np.zeros((2, 3, 7, 16), np.float32)
    for j in reversed(range(7)):
        y += p[..., j, None] * heads.v[..., j, None, :]
    assert (np.abs(attend(heads).astype(np.float64) - y) <= attention_bound(heads)).all()


def test_the_bound_grows_with_the_scores_and_with_the_filter() -> None:
    small, large = attention_bound(example(1.0, None)), attention_bound(example(4.0, None))
    filtered = attention_bound(example(1.0, -10000.0))
    assert small.max() < 1e-4 < large.max() < filtered.max() * 100
    assert small.max() < filtered.max()


def test_scores_beyond_float32s_precision_are_bounded_by_the_values() -> None:
    heads = example(1e6, None)
    reach = np.abs(heads.v).max(axis=2, keepdims=True) * 2.0
    assert (attention_bound(heads) <= reach * 1.001).all()
