from __future__ import annotations

import numpy as np
import pytest

from onnxq.operator import Precision
from onnxq.operators._normalize import (
    axes_from,
    normalized,
    per_channel,
    root_mean_square_normalized,
)
from tests.operators import builder

NAMES = (
    "GroupNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "LpNormalization",
    "RMSNormalization",
)
X = np.random.default_rng(0).standard_normal((2, 3, 5)) * 3 + 7


def test_mean_is_0_and_variance_is_1() -> None:
    y = normalized(X, (1, 2), 0.0)
    assert np.allclose(y.mean((1, 2)), 0)
    assert np.allclose(y.var((1, 2)), 1)


def test_mean_square_is_1_and_signs_stay() -> None:
    y = root_mean_square_normalized(X, (2,), 0.0)
    assert np.allclose(np.square(y).mean(2), 1)
    assert np.array_equal(np.sign(y), np.sign(X))


def test_epsilon_keeps_constant_data_finite() -> None:
    assert np.array_equal(normalized(np.ones((2, 4)), (1,), 1e-5), np.zeros((2, 4)))
    assert np.array_equal(
        root_mean_square_normalized(np.zeros((2, 4)), (1,), 1e-5), np.zeros((2, 4))
    )


def test_nothing_stays_nothing() -> None:
    assert normalized(np.zeros((0, 3)), (0,), 1e-5).shape == (0, 3)


def test_channels_broadcast_along_axis_1() -> None:
    assert per_channel(np.arange(3.0), 4).shape == (3, 1, 1)


def test_axes_count_from_either_end_and_exist() -> None:
    assert axes_from(1, 3) == axes_from(-2, 3) == (1, 2)
    with pytest.raises(ValueError, match="axis 3 is outside a tensor of rank 3"):
        axes_from(3, 3)


@pytest.mark.parametrize("name", NAMES)
def test_a_normalization_computes_in_float_and_only_its_data_are_integers(name: str) -> None:
    operator = builder.operator(name)
    for case in operator.cases():
        rule = builder.rule_of(operator, case)
        assert (rule.precision, rule.activations, rule.weight) == (
            Precision.FLOAT_BETWEEN_QDQ,
            (0,),
            None,
        )
