"""GPTQ in groups, against a search of all integers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.qparams.group_spec import GroupSpec, Method, Scheme
from onnxq.weights.hessian import noise_in
from onnxq.weights.solve import GroupwiseGPTQ
from tests.weights.block_models import hessian_of, solved, weight

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.qparams.groups import GroupIntegers
    from onnxq.weights.hessian import Hessian

SPEC = GroupSpec(2, 16)
INPUTS = 6
SHORT_OF_BEST = 1.35
"""Integers of 2 bits, of inputs that depend on each other, are the hardest to find one by one."""


def correlated(inputs: int, count: int = 300) -> Singles:
    generator = np.random.default_rng(3)
    mixed = generator.standard_normal((count, inputs)) @ generator.standard_normal((inputs, inputs))
    return np.asarray(mixed, np.float32)


def least(row: np.ndarray, hessian: np.ndarray, point: int) -> float:
    """The least cost of one row over all integers, each with its best scale."""
    integers = np.array(list(itertools.product(range(4), repeat=INPUTS)), np.float64) - point
    own = np.einsum("ci,ij,cj->c", integers, hessian, integers)
    cross = integers @ hessian @ row
    gained = np.where(cross > 0, np.square(cross) / np.maximum(own, 1e-9), 0)
    return float(row @ hessian @ row - gained.max())


def test_the_cost_is_near_the_least_of_all_integers() -> None:
    hessian = hessian_of(correlated(INPUTS))
    solver = GroupwiseGPTQ.of(hessian)
    found = best = 0.0
    for row in weight(10, INPUTS):
        made = solver(row[np.newaxis], SPEC)
        damped = solver.hessian.astype(np.float64)
        left = row - made.dequantized[0].astype(np.float64)
        found += float(left @ damped @ left)
        best += least(row.astype(np.float64), damped, int(made.zero_point[0, 0]))
    assert found <= SHORT_OF_BEST * best


def noise(w: Singles, integers: GroupIntegers, hessian: Hessian) -> float:
    return noise_in(np.asarray(w - integers.dequantized, np.float64), [(slice(None), hessian)])


@pytest.mark.parametrize("bits", [2, 4])
def test_layers_lose_half_or_less_of_what_rounding_loses(bits: int) -> None:
    w, hessian = weight(32, 96), hessian_of(correlated(96))
    spec = GroupSpec(bits, 32)
    nearest, made = (solved(w, spec, m, hessian) for m in (Method.RTN, Method.GPTQ))
    assert noise(w, made, hessian) < noise(w, nearest, hessian) / 2


def test_errors_of_inputs_are_made_up_for() -> None:
    wanted = correlated(64)
    seen = wanted + np.float32(0.2) * correlated(64)[::-1]
    w, spec = weight(16, 64), GroupSpec(4, 32)
    aware = solved(w, spec, Method.GPTQ, hessian_of(seen, wanted))
    blind = solved(w, spec, Method.GPTQ, hessian_of(seen))
    errors = [np.square(seen @ c.dequantized.T - wanted @ w.T).sum() for c in (blind, aware)]
    assert errors[1] < errors[0]


def test_inputs_that_are_always_zero_do_no_harm() -> None:
    rows = correlated(40)
    rows[:, 7] = 0
    made = solved(weight(4, 40), GroupSpec(4, 16), Method.GPTQ, hessian_of(rows))
    assert np.isfinite(made.dequantized).all()


def test_an_input_that_is_nothing_but_zeros_gives_the_nearest_integers() -> None:
    w, zeros = weight(4, 40), np.zeros((8, 40), np.float32)
    made = solved(w, GroupSpec(8, 16), Method.GPTQ, hessian_of(zeros))
    assert np.abs(made.dequantized - w).max() < np.abs(w).max() / 100


@pytest.mark.parametrize("scheme", [*Scheme])
def test_every_scheme_loses_less_than_rounding(scheme: Scheme) -> None:
    w, hessian = weight(16, 72), hessian_of(correlated(72))
    spec = GroupSpec(4, 32, scheme)
    nearest, made = (solved(w, spec, m, hessian) for m in (Method.RTN, Method.GPTQ))
    assert noise(w, made, hessian) < noise(w, nearest, hessian) / 2
