from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from onnxq.core.atomic import temporary_folder
from onnxq.errors import CalibrationError, ModelError
from onnxq.ort.runtime import open_profiled
from onnxq.times.timed_runs import LEAST_NS, NodeTime, node_times, quick_mean, without_writing
from tests.examples import as_ir, images, network

if TYPE_CHECKING:
    from pathlib import Path


def event(name: str, took: int, kind: str = "Node", begin: int = 0) -> dict[str, object]:
    return {"cat": kind, "name": name, "dur": took, "ts": begin}


def run(took: int) -> list[dict[str, object]]:
    """A run in which "a" is called twice."""
    nodes = [
        event("a_kernel_time", took),
        event("a_kernel_time", 1, begin=took),
        event("b_kernel_time", 3, begin=took + 1),
    ]
    return [*nodes, event("a_fence_before", 9), event("model_run", 99, "Session")]


def test_calls_of_a_node_add_up_and_the_quickest_runs_count(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps([*run(1000), *run(1000), *run(5), *run(50), *run(5)]))
    # half a microsecond each on top
    assert node_times(file) == {"a": NodeTime(7_000.0, 2), "b": NodeTime(3_500.0, 1)}


def test_a_loop_has_its_own_time_and_not_that_of_its_body(tmp_path: Path) -> None:
    calls = [
        event("before_kernel_time", 4, begin=96),
        event("inner_kernel_time", 10, begin=100),
        event("branch_kernel_time", 12, begin=100),
        event("inner_kernel_time", 10, begin=120),
        event("branch_kernel_time", 15, begin=118),
        event("loop_kernel_time", 40, begin=100),
        event("behind_kernel_time", 2, begin=140),
        event("model_run", 99, "Session"),
    ]
    file = tmp_path / "p.json"
    file.write_text(json.dumps(calls * 4))
    found = node_times(file)
    assert found["inner"] == NodeTime(21_000.0, 2)
    assert found["branch"] == NodeTime(12_500.0 + 15_500.0 - 21_000.0, 4)
    assert found["loop"] == NodeTime(40_500.0 - 28_000.0, 3)  # of itself, and of two branches
    assert (found["before"].ns, found["behind"].ns) == (4_500.0, 2_500.0)


@pytest.mark.parametrize("text", ["", "{}", "[]", '[{"cat": "Node"}]', "[1]"])
def test_a_file_without_runs_is_no_profile(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ModelError, match="profile"):
        node_times(tmp_path / "p.json")


def test_every_node_that_runs_has_a_time() -> None:
    with temporary_folder() as folder:
        session, optimized = open_profiled(as_ir(network()), folder)
        with session:
            for _ in range(4):
                session.run({"x": images(1)})
            found = node_times(session.end_profile())
        with pytest.raises(CalibrationError, match="closed"):
            session.end_profile()
    assert set(found) == {node.name for node in optimized.graph}
    assert min(time.ns for time in found.values()) > 0
    assert {time.written for time in found.values()} == {1}


def test_writing_takes_the_same_for_every_call() -> None:
    times = {"long": NodeTime(90.0), "twice": NodeTime(40.0, 2), "short": NodeTime(20.0)}
    found = without_writing(times, 110.0)
    assert found == pytest.approx({"long": 80.0, "twice": 20.0, "short": 10.0})


def test_a_node_of_no_time_but_its_writing_keeps_next_to_none() -> None:
    found = without_writing({"long": NodeTime(90.0), "none": NodeTime(10.0)}, 70.0)
    assert found == pytest.approx({"long": 70.0, "none": LEAST_NS})


def test_what_a_body_writes_down_is_none_of_its_loops_time(tmp_path: Path) -> None:
    """A call takes 1 us, and writing it down 2 more within it, and 2 more behind it."""
    inner = [event("inner_kernel_time", 3, begin=1 + 5 * step) for step in range(20)]
    loop = event("loop_kernel_time", 104, begin=0)
    behind = event("behind_kernel_time", 32, begin=110)
    events = [*inner, loop, behind, event("model_run", 150, "Session")]
    (tmp_path / "p.json").write_text(json.dumps(events * 4))
    found = without_writing(node_times(tmp_path / "p.json"), whole_ns=52_000.0)
    assert found["behind"] == pytest.approx(30_000, rel=0.03)
    assert found["inner"] == pytest.approx(20_000, rel=0.6)
    assert found["loop"] < 5_000


def test_times_below_whole_runs_are_left_as_they_are() -> None:
    assert without_writing({"a": NodeTime(30.0)}, 50.0) == {"a": 30.0}
    assert without_writing({}, 50.0) == {}


def test_the_mean_is_of_the_quickest_quarter() -> None:
    assert quick_mean([9.0, 1.0, 3.0, 8.0]) == 2.0
    assert quick_mean([4.0]) == 4.0
