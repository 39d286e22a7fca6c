"""Lines on the nodes of a report that cost most."""

from __future__ import annotations

import math
from dataclasses import replace

from onnxq.page.content import Head, NodePart, Page, TensorPart
from onnxq.page.costly import costly

NODES = tuple(
    NodePart(f"n{place}", "Conv", "int8", "", float_us=4.0, quantized_us=2.0 + place)
    for place in range(7)
)
TENSORS = tuple(
    TensorPart(f"t{place}", place, 30.0, local_db=db)
    for place, db in enumerate((40.0, 20.0, None, math.inf, 31.0, 50.0, 60.0))
)
PAGE = Page(Head("", ""), NODES, TENSORS, whole_us=(28.0, 35.0))


def test_the_worst_nodes_come_first_each_with_its_figure() -> None:
    accuracy, time = costly(PAGE)
    assert accuracy == (
        "costs most accuracy: n1 (Conv, 20.0 dB alone), n4 (Conv, 31.0 dB alone), "
        "n0 (Conv, 40.0 dB alone), n5 (Conv, 50.0 dB alone)"
    )
    assert time == (
        "takes longer than in float: n6 (Conv, +4.0 µs), n5 (Conv, +3.0 µs), "
        "n4 (Conv, +2.0 µs), n3 (Conv, +1.0 µs)"
    )


def test_where_integers_win_everywhere_a_line_says_so() -> None:
    page = replace(PAGE, nodes=NODES[:2], tensors=TENSORS[:2])
    assert costly(page)[1] == "no node takes longer than in float"


def test_nodes_that_are_equal_alone_are_not_named_and_nan_is_the_worst() -> None:
    few = replace(PAGE, tensors=(TENSORS[3],))
    assert not any(line.startswith("costs") for line in costly(few))
    lost = replace(PAGE, tensors=(TENSORS[1], replace(TENSORS[3], local_db=math.nan)))
    assert costly(lost)[0].startswith("costs most accuracy: n3 (Conv, not a number alone), n1 ")


def test_what_was_not_measured_has_no_line() -> None:
    floats = tuple(replace(node, float_us=None, quantized_us=None) for node in NODES)
    assert costly(Page(Head("", ""), floats, ())) == []
