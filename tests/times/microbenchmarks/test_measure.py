from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.operator import Precision
from onnxq.ort.runtime import open_session
from onnxq.times import Change, Costs, Work
from onnxq.times.fit import LEAST_NS
from onnxq.times.microbenchmarks import here
from onnxq.times.microbenchmarks.convolutions import Shape, convolution_links
from onnxq.times.microbenchmarks.elements import element_links
from onnxq.times.microbenchmarks.here import links, measure_costs, measured

if TYPE_CHECKING:
    from onnxq.times.microbenchmarks.link import Link


@pytest.mark.nightly
def test_every_link_has_sizes_and_runs_in_its_form() -> None:
    """One of each kind and precision: the others differ in their sizes."""
    seen = set()
    for link in links():
        key = (link.works[0].operator, link.works[0].kind, link.precision)
        if key in seen or max(link.works[0].sizes) > 1 << 22:
            continue
        seen.add(key)
        with open_session(link.model(2), threads=1, optimization=link.optimization) as session:
            assert session.run(link.inputs)
    assert {precision for _, _, precision in seen} == {
        Precision.FLOAT,
        Precision.INT8,
        Precision.INT8_FLOAT_OUTPUT,
        Precision.DYNAMIC_INT8,
    }
    assert {change.value for change in Change} <= {operator for operator, _, _ in seen}


def test_times_are_those_of_one_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.times.microbenchmarks.here.RUNS", 5)
    wanted = [link for link in element_links() if link.works[0].operator in ("Shape", "Log")]
    found = measured(wanted, passes=1)
    logs = [t for t in found if t.work.operator == "Log"]
    assert [t.work.read for t in logs] == sorted(t.work.read for t in logs)
    # 802,816 logarithms against 256: 3,000 times the work
    assert logs[-1].ns > 50 * logs[0].ns


def test_another_clock_times_the_links_of_another_machine() -> None:
    def clock(link: Link, more: int, runs: int) -> tuple[float, float]:
        assert link.few > 0 < runs
        return 1e-3, 1e-3 + more * 1e-6  # every link takes a microsecond

    wanted = [link for link in element_links() if link.works[0].operator in ("Shape", "quantize")]
    found = measured(wanted, passes=1, clock=clock)
    run, shape, *changes = found
    assert run.work.operator == "run"
    assert run.ns == pytest.approx(999e3)
    assert shape.ns == pytest.approx(1000)
    assert changes
    assert all(t.ns == LEAST_NS for t in changes)  # a link is the change and a Shape


def test_convolutions_on_integers_clip_as_behind_a_relu() -> None:
    """In WebAssembly that takes twice the time of sums that are not clipped."""
    links = [link for link in convolution_links() if link.precision is Precision.INT8]
    graph = next(link for link in links if link.works[0].kind == "pointwise").model(1).graph
    points = [
        tensor.numpy()
        for node in graph
        if node.op_type == "QuantizeLinear"
        and (source := node.inputs[0]) is not None
        and getattr(source.producer(), "op_type", "") == "Conv"
        and (point := node.inputs[2]) is not None
        and (tensor := point.const_value) is not None
    ]
    assert points
    assert not np.any(points)


def test_the_table_says_which_machine_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.times.microbenchmarks.here.RUNS", 2)
    monkeypatch.setattr(here, "links", lambda: list(element_links())[:3])
    steps = []
    table = measure_costs("x86-vnni", 1, lambda done, total: steps.append((done, total)))
    assert (table.target, table.threads) == ("x86-vnni", "1")
    assert table.machine
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert Costs.from_csv(table.to_csv()).target == table.target


def test_shapes_of_convolutions_have_the_work_that_is_said_of_them() -> None:
    work = Shape(64, 128, 56, 3, stride=2).node.work
    assert work == Work(
        *("Conv", "dense", 64 * 56**2, 128 * 28**2, 9 * 8192, 9 * 8192 * 28**2, 9 * 28**2)
    )
