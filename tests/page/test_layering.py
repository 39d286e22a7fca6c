from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from onnxq.page.layering import GAP, layout_of, pooled


def test_readers_lie_below_what_they_read_within_a_column() -> None:
    layout = layout_of([80.0] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    y = [place[1] for place in layout.centres]
    assert y[0] < y[1] == y[2] < y[3]


def test_nodes_of_a_layer_do_not_overlap() -> None:
    edges = [(0, reader) for reader in range(1, 9)]
    layout = layout_of([80.0] * 9, edges)
    xs = sorted(x for x, _ in layout.centres[1:])
    assert min(b - a for a, b in pairwise(xs)) >= 80.0 + GAP - 1e-6


def test_an_edge_over_layers_takes_a_lane_of_its_own() -> None:
    layout = layout_of([80.0] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert [len(route) for route in layout.routes] == [2, 2, 2, 4]
    (lane, _), (node, _) = layout.routes[3][1], layout.centres[1]
    assert abs(lane - node) >= 40.0


def test_constants_lie_right_above_their_reader() -> None:
    layout = layout_of([80.0] * 4, [(0, 1), (1, 3), (2, 3)])
    assert layout.centres[2][1] == layout.centres[1][1]


def test_a_long_chain_is_broken_into_columns_of_about_the_shape() -> None:
    layout = layout_of([80.0] * 2000, [(n, n + 1) for n in range(1999)])
    assert 0.8 < layout.width / layout.height < 3.2
    assert sum(bool(gutters) for gutters in layout.gutters) > 10


@pytest.mark.nightly
def test_the_time_is_about_linear_in_the_nodes() -> None:
    def seconds(blocks: int) -> float:
        n = 4 * blocks
        edges = [(p, p + 1) for p in range(n - 1)] + [(p, p + 4) for p in range(0, n - 4, 4)]
        begun = time.thread_time()
        layout_of([90.0] * n, edges)
        return time.thread_time() - begun

    assert seconds(400) < 10 * max(seconds(100), 0.005)


def test_no_nodes_give_an_empty_drawing() -> None:
    assert layout_of([], []).centres == ()


def test_pooled_numbers_are_the_nearest_that_do_not_fall() -> None:
    assert pooled([1.0, 3.0, 2.0], [1.0, 1.0, 1.0]) == [1.0, 2.5, 2.5]
    rng = np.random.default_rng(0)
    wanted, weights = rng.normal(size=20), rng.uniform(0.5, 2.0, 20)
    found = np.array(pooled(list(wanted), list(weights)))
    assert (np.diff(found) >= 0).all()
    for _ in range(200):  # no other numbers in that order are nearer
        other = np.sort(found + rng.normal(scale=0.05, size=20))
        assert (weights * (found - wanted) ** 2).sum() <= (weights * (other - wanted) ** 2).sum()
