"""Mixed bits: never worse than the same bits everywhere, and within the budget."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from onnxq.errors import QConfigError
from onnxq.graph.canonical import canonicalize
from onnxq.operator import Float
from onnxq.qparams.group_spec import BITS, GroupSpec, Method
from onnxq.weights.bit_noise import output_noise
from onnxq.weights.mixed_bits import FLOAT_BITS, BitBudget, Mixed, mixed_bits
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.weight_plan import WeightPlan, WeightRequest
from scripts._decoder import Sizes, decoder, tokens

SIZES = Sizes(depth=1)
BATCHES = list(tokens(SIZES, 2, 6))
SOURCE = canonicalize(decoder(SIZES)).model
PLAN = plan_weights(SOURCE, WeightRequest(method=Method.RTN))


@cache
def mixed(average: float) -> Mixed:
    return mixed_bits(SOURCE, PLAN, BATCHES, BitBudget(average=average))


def noise_of(plan: WeightPlan) -> float:
    specs = {name: decision.spec for name, decision in plan.quantized.items()}
    return output_noise(SOURCE, PLAN, BATCHES, [specs])[0]


def even(bits: int) -> float:
    return noise_of(PLAN.with_specs(dict.fromkeys(PLAN.quantized, GroupSpec(bits))))


@pytest.mark.parametrize("average", [2.0, 3.0, 4.0, 4.5])
def test_a_mix_is_never_worse_than_even_bits_of_its_size(average: float) -> None:
    made = mixed(average)
    assert made.chosen.average <= average
    bits = max(bits for bits in BITS if bits <= average)
    assert noise_of(made.plan) <= even(bits)


def test_half_a_bit_more_is_well_spent() -> None:
    made = mixed(4.5)
    assert set(made.chosen.bits.values()) >= {4, 8}
    assert noise_of(made.plan) < 0.8 * even(4)  # even 4 bits are the best that are smaller
    assert made.measured is not None
    assert made.measured[0] == pytest.approx(noise_of(made.plan))


def test_the_front_has_less_noise_with_every_bit() -> None:
    front = mixed(4.5).front
    assert [mix.average for mix in front] == sorted(mix.average for mix in front)
    assert all(np.diff([mix.noise for mix in front]) <= 0)
    assert sum(front[0].counts.values()) == len(PLAN.quantized)
    assert front[0].counts[2] == len(PLAN.quantized)


def test_a_bound_in_bytes_counts_scales_and_may_leave_layers_in_float() -> None:
    whole = sum(d.outputs * d.inputs * 4 for d in PLAN.quantized.values())
    made = mixed_bits(SOURCE, PLAN, BATCHES, BitBudget(size_bytes=0.9 * whole))
    assert made.chosen.size_bytes <= 0.9 * whole
    left = [n for n, bits in made.chosen.bits.items() if bits == FLOAT_BITS]
    assert left
    assert all(isinstance(made.plan.decisions[n], Float) for n in left)


def test_bounds_that_nothing_meets_are_refused_with_the_least() -> None:
    with pytest.raises(QConfigError, match="wanted 2 to 32"):
        BitBudget(average=1.5)
    with pytest.raises(QConfigError, match="in 2 bits they take"):
        mixed_bits(SOURCE, PLAN, BATCHES, BitBudget(size_bytes=10))


def test_a_size_that_leaves_nothing_is_said_so() -> None:
    with pytest.raises(QConfigError, match=r"leaves nothing for .* they take \d+\.\d\d kB"):
        mixed_bits(SOURCE, PLAN, BATCHES, BitBudget(size_bytes=-5))
