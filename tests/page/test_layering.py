from __future__ import annotations

import time
from itertools import pairwise

import pytest

from onnxq.page.layering import GAP, layout_of


def test_readers_lie_below_what_they_read_within_a_column() -> None:
    layout = layout_of([80.0] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    y = [place[1] for place in layout.centres]
    assert y[0] < y[1] == y[2] < y[3]


def test_nodes_of_a_layer_do_not_overlap() -> None:
    edges = [(0, reader) for reader in range(1, 9)]
    layout = layout_of([80.0] * 9, edges)
    xs = sorted(x for x, _ in layout.centres[1:])
    assert min(b - a for a, b in pairwise(xs)) >= 80.0 + GAP - 1e-6


def test_an_edge_over_layers_goes_by_a_rail_beside_the_nodes() -> None:
    layout = layout_of([80.0] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert layout.rails[:3] == (None, None, None)
    rail = layout.rails[3]
    assert rail is not None
    assert 0.0 < rail < min(x for x, _ in layout.centres) - 40.0


def test_readers_of_a_tensor_share_its_rail_and_so_do_tensors_below_each_other() -> None:
    chain = [(n, n + 1) for n in range(5)]
    layout = layout_of([80.0] * 6, [*chain, (0, 2), (0, 4), (1, 3), (3, 5)])
    first, again, beside, below = layout.rails[5:]
    assert first == again
    assert first != beside == below


def test_branches_go_straight_down() -> None:
    layout = layout_of([80.0] * 6, [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5)])
    x = [place[0] for place in layout.centres]
    assert x[0] == x[1] == x[3] == x[5] < x[2] == x[4]


def test_constants_lie_right_above_their_reader() -> None:
    layout = layout_of([80.0] * 4, [(0, 1), (1, 3), (2, 3)])
    assert layout.centres[2][1] == layout.centres[1][1]


def test_a_long_chain_is_broken_into_columns_of_about_the_shape() -> None:
    layout = layout_of([80.0] * 2000, [(n, n + 1) for n in range(1999)])
    assert 0.8 < layout.width / layout.height < 3.2
    assert sum(rail is not None for rail in layout.rails) > 10


def test_columns_lie_beside_each_other_with_their_rails_between() -> None:
    edges = [(n, n + 1) for n in range(59)] + [(n, n + 5) for n in range(55)]
    layout = layout_of([80.0] * 60, edges)
    lefts = sorted({x - 40.0 for x, _ in layout.centres})
    assert len(lefts) > 2
    for (_, reader), rail in zip(edges, layout.rails, strict=True):
        if rail is not None:
            left = layout.centres[reader][0] - 40.0
            before = max((one + 80.0 for one in lefts if one < left), default=0.0)
            assert before < rail < left


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
