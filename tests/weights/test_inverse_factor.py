"""The factor of an inverse, beside NumPy's own inverse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.weights import gptq
from onnxq.weights.gptq import _invert_in_place, inverse_factor

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals


def hessians(groups: int, columns: int) -> Reals:
    x = np.random.default_rng(columns).normal(size=(groups, columns, 2 * columns))
    return np.asarray(x @ x.swapaxes(1, 2) / columns + 0.1 * np.eye(columns))


@pytest.mark.parametrize(("groups", "columns"), [(1, 1), (5, 9), (2, 64), (1, 201)])
def test_its_square_is_the_inverse_in_the_act_order(groups: int, columns: int) -> None:
    h = hessians(groups, columns)
    found = inverse_factor(h)
    assert np.array_equal(found.upper, np.triu(found.upper))
    power = np.take_along_axis(np.diagonal(h, axis1=1, axis2=2), found.act_order, 1)
    assert (np.diff(power, axis=1) <= 0).all()
    for each, order, upper in zip(h, found.act_order, found.upper, strict=True):
        wanted = np.linalg.inv(each[np.ix_(order, order)])
        assert np.abs(upper.T @ upper - wanted).max() < 1e-10 * np.abs(wanted).max()


def test_a_matrix_is_divided_in_the_order_in_which_it_stands() -> None:
    h, cross = hessians(3, 70), np.random.default_rng(1).normal(size=(3, 4, 70))
    wanted = np.linalg.solve(h, cross.swapaxes(1, 2)).swapaxes(1, 2)
    assert np.abs(inverse_factor(h).divided(cross) - wanted).max() < 1e-10


def test_triangular_matrices_are_inverted_half_by_half() -> None:
    upper = np.triu(np.random.default_rng(2).normal(size=(2, 150, 150)), 1) / 20 + np.eye(150)
    inverse = upper.copy()
    _invert_in_place(inverse)
    assert np.abs(inverse @ upper - np.eye(150)).max() < 1e-10


def test_a_hessian_that_is_not_positive_definite_are_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        inverse_factor(np.array([[1.0, 2.0], [2.0, 1.0]]))


def test_large_matrices_are_factored_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    h = hessians(2, 90)
    before = h.copy()
    wanted = inverse_factor(h + 0.3 * np.eye(90))
    monkeypatch.setattr(gptq, "LARGE", 1)
    monkeypatch.setattr(gptq, "STRIPE", 32)
    found = inverse_factor(h, 0.3)
    assert np.array_equal(h, before)
    assert np.array_equal(found.act_order, wanted.act_order)
    np.testing.assert_allclose(found.upper, wanted.upper, atol=1e-12 * np.abs(wanted.upper).max())
    with pytest.raises(np.linalg.LinAlgError):
        inverse_factor(-h)
