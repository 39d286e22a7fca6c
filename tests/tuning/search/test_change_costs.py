from __future__ import annotations

import pytest

from onnxq.tuning.search.candidate import Candidate, PrecisionChange
from onnxq.tuning.search.proposals import (
    bytes_alone,
    options_of,
    share_of_bytes,
    times_alone,
    times_with_their_layer_type,
)
from tests.tuning.made_up import FLOAT, INTEGER, Layer, Network

NETWORK = Network((Layer(1e-5, 0.5, 0.2, 100), Layer(1e-5, 0.5, 0.3, 300)))


def time_of(candidate: Candidate) -> float:
    """Times of the layers, and a conversion between layers of two precisions."""
    precisions = [candidate.precision(group) for group in NETWORK.groups]
    time = NETWORK.score(precisions).time_ratio
    assert time is not None
    return time + 0.1 * (precisions[0] is not precisions[1])


def test_options_are_the_other_forms_but_for_closed_ones() -> None:
    first, second = NETWORK.groups
    assert options_of(NETWORK.start, set()) == [
        PrecisionChange(first, FLOAT),
        PrecisionChange(second, FLOAT),
    ]
    assert options_of(NETWORK.start, {("/layer0", FLOAT)}) == [PrecisionChange(second, FLOAT)]


def test_a_layer_type_that_changes_at_once_pays_for_no_conversions() -> None:
    options = options_of(NETWORK.start, set())
    alone = times_alone(NETWORK.start, options, time_of)
    assert list(alone.values()) == pytest.approx([0.3 + 0.1, 0.2 + 0.1])
    together = times_with_their_layer_type(NETWORK.start, options, time_of)
    assert list(together.values()) == pytest.approx([0.25, 0.25])


def test_times_that_nobody_knows_cost_nothing() -> None:
    options = options_of(NETWORK.start, set())
    assert set(times_alone(NETWORK.start, options, lambda _: None).values()) == {0.0}


def test_weights_in_float_take_four_times_their_bytes() -> None:
    options = options_of(NETWORK.start, set())
    assert share_of_bytes(NETWORK.start) == 0.25
    assert list(bytes_alone(NETWORK.start, options).values()) == [300 / 1600, 900 / 1600]
    with_changes = NETWORK.start.with_changes([PrecisionChange(NETWORK.groups[0], FLOAT)])
    back = bytes_alone(with_changes, [PrecisionChange(NETWORK.groups[0], INTEGER)])
    assert list(back.values()) == [-300 / 1600]
