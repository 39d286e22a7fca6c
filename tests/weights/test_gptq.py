"""GPTQ: the published loop element by element, rounding where nothing can be made up for."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.weights import gptq
from onnxq.weights.gptq import _invert_in_place, error_of, inverse_factor
from onnxq.weights.round import IntegerRows

if TYPE_CHECKING:
    from onnxq.core.arrays import Ints, Reals


def qparams(rows: int, bits: int, scale: float = 0.25) -> IntegerRows:
    limit = 2 ** (bits - 1) - 1
    low, high = (np.full(rows, end, np.int32) for end in (-limit, limit))
    return IntegerRows(np.full((rows, 1), scale), low, high)


def correlated(columns: int, seed: int) -> Reals:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(columns, 3 * columns)) + generator.normal(size=(1, 3 * columns))
    return np.asarray(x @ x.T / x.shape[1] + 0.01 * np.eye(columns))


def published(weight: Reals, hessian: Reals, on: IntegerRows) -> Ints:
    """Frantar et al. 2022, algorithm 1 with act-order: column by column, Hinv eliminated anew."""
    order = np.argsort(-np.diag(hessian), kind="stable")
    w, h = weight[:, order].copy(), hessian[np.ix_(order, order)]
    inverse = np.linalg.inv(h)
    integers = np.zeros(w.shape, np.int32)
    for j in range(w.shape[1]):
        integers[:, j] = np.clip(np.rint(w[:, j] / on.scale[:, 0]), on.low, on.high)
        error = (w[:, j] - integers[:, j] * on.scale[:, 0]) / inverse[j, j]
        w[:, j:] -= error[:, np.newaxis] * inverse[j, j:]
        # optimal brain surgeon's step: the column is fixed, and leaves the inverse
        inverse = inverse - np.outer(inverse[:, j], inverse[j]) / inverse[j, j]
    made = np.empty_like(integers)
    made[:, order] = integers
    return made


def nearest(weight: Reals, on: IntegerRows) -> Ints:
    return np.clip(
        np.rint(weight / on.scale), on.low[:, np.newaxis], on.high[:, np.newaxis]
    ).astype(np.int32)


@pytest.mark.parametrize(("columns", "bits"), [(1, 8), (5, 8), (40, 4), (300, 2)])
def test_integers_are_those_of_the_published_loop(columns: int, bits: int) -> None:
    weight = np.random.default_rng(columns).normal(size=(6, columns))
    hessian, on = correlated(columns, columns + 1), qparams(6, bits)
    assert np.array_equal(
        on.by_gptq(weight, inverse_factor(hessian)), published(weight, hessian, on)
    )


def test_inputs_that_know_nothing_of_each_other_are_rounded_to_the_nearest() -> None:
    weight = np.random.default_rng(0).normal(size=(4, 9))
    on, hessian = qparams(4, 4), np.diag(np.arange(1.0, 10.0))
    assert np.array_equal(on.by_gptq(weight, inverse_factor(hessian)), nearest(weight, on))


def test_errors_lie_between_those_of_the_best_integers_and_of_the_nearest() -> None:
    ours, best, plain = [], [], []
    on = qparams(1, 2, 0.7)
    every = np.array(list(itertools.product((-1, 0, 1), repeat=7)))
    for seed in range(40):
        weight = np.random.default_rng(seed).normal(0, 0.5, (1, 7))
        hessian = correlated(7, seed)
        ours.append(
            error_of(weight - on.by_gptq(weight, inverse_factor(hessian)) * 0.7, hessian)[0]
        )
        plain.append(error_of(weight - nearest(weight, on) * 0.7, hessian)[0])
        best.append(error_of(weight - every * 0.7, hessian).min())
    assert (np.array(ours) >= np.array(best) - 1e-12).all()
    assert np.mean(ours) < 0.7 * np.mean(plain)
    assert np.mean(ours) < 2 * np.mean(best)


def test_a_stack_of_groups_is_each_group_alone() -> None:
    weight = np.random.default_rng(1).normal(size=(3, 2, 9))
    hessian = np.stack([correlated(9, seed) for seed in range(3)])
    on = qparams(2, 4)
    alone = [on.by_gptq(w, inverse_factor(h)) for w, h in zip(weight, hessian, strict=True)]
    assert np.array_equal(on.by_gptq(weight, inverse_factor(hessian)), np.stack(alone))


def test_pairs_of_integers_stay_within_what_int16_holds() -> None:
    columns = 33
    weight = np.abs(np.random.default_rng(2).normal(0, 20, (8, columns)))
    partner = np.arange(columns) ^ 1
    partner[-1] = columns - 1  # alone
    hessian = correlated(columns, 3)
    plain = qparams(8, 8)
    free = plain.by_gptq(weight, inverse_factor(hessian))
    bounds = IntegerRows(plain.scale, plain.low, plain.high, partner)
    bounded = bounds.by_gptq(weight, inverse_factor(hessian))
    assert (free[:, 0:32:2] + free[:, 1:32:2] > 128).any()
    assert (bounded[:, 0:32:2] + bounded[:, 1:32:2] <= 128).all()


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
