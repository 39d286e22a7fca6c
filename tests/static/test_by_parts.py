from __future__ import annotations

import os
import signal
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import observers
from onnxq.errors import CalibrationError
from onnxq.jobs import Processes
from onnxq.qconfig import QConfigMapping, get_default_qconfig
from onnxq.static.calibrate import Checkpoint, Shard, calibrate
from onnxq.static.prepare import prepare
from onnxq.static.statistics import Statistics
from tests.examples import images, model, network, save, weights
from tests.jobs.executors import Newest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onnxq.static.prepared import Prepared

COUNT = 37  # not a multiple of any number of workers or batches


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(2, ["onnxq.pipeline"]) as executor:
        yield executor


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(save(network(), tmp_path_factory.mktemp("net") / "net.onnx"))


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Images of various brightness in one file, that many."""
    scales = np.linspace(0.1, 4, COUNT, dtype=np.float32).reshape(-1, 1, 1, 1)
    np.save(tmp_path / "x.npy", images(COUNT) * scales)
    return tmp_path / "x.npy"


def in_file(statistics: Statistics, folder: Path) -> bytes:
    statistics.save(folder / "written.stats")
    return (folder / "written.stats").read_bytes()


@pytest.mark.parametrize(
    "executor",
    [Newest(1), Newest(2), Newest(4), Newest(3, frozenset({0, 4, 5})), ThreadPoolExecutor(3)],
    ids=["1", "2", "4", "lost", "threads"],
)
@pytest.mark.parametrize("source", ["file", "generator"])
def test_statistics_are_the_same_file_for_any_number_of_workers_and_order(
    executor: Executor, source: str, prepared: Prepared, samples: Path, tmp_path: Path
) -> None:
    rows = np.load(samples)
    given = samples if source == "file" else ({"x": row[None]} for row in rows)
    seen = calibrate(prepared, given, executor=executor)
    assert in_file(seen, tmp_path) == in_file(calibrate(prepared, samples, threads=1), tmp_path)


def test_observers_of_every_kind_merge_to_the_same(samples: Path, tmp_path: Path) -> None:
    for name in ("MovingAverageMinMaxObserver", "PercentileObserver", "RecordingObserver"):
        activation = getattr(observers, name).with_args()
        made = prepare(
            network(), QConfigMapping(replace(get_default_qconfig(), activation=activation))
        )
        here = in_file(calibrate(made, samples, threads=1), tmp_path)
        assert in_file(calibrate(made, samples, executor=Newest(3)), tmp_path) == here


def test_a_killed_worker_and_two_processes_change_nothing(
    processes: Processes, prepared: Prepared, samples: Path, tmp_path: Path
) -> None:
    killed: list[int] = []
    done: list[int] = []

    def kill_once(count: int, _total: int | None) -> None:
        done.append(count)
        pool = processes._pool
        assert pool is not None
        if not killed:
            killed.extend(list(pool._processes)[:1])
            os.kill(killed[0], signal.SIGKILL)

    seen = calibrate(prepared, samples, executor=processes, progress=kill_once)
    assert in_file(seen, tmp_path) == in_file(calibrate(prepared, samples, threads=1), tmp_path)
    assert killed
    assert done[-1] == COUNT
    assert done == sorted(done)


@pytest.mark.parametrize("count", [2, 3])
def test_shards_by_workers_merge_to_the_whole(
    count: int, prepared: Prepared, samples: Path
) -> None:
    first, *others = (
        calibrate(prepared, samples, shard=Shard(i, count), executor=Newest(2))
        for i in range(count)
    )
    for other in others:
        first = first.merge(other)
    here = calibrate(prepared, samples, threads=1)
    assert dict(first.batches) == dict(here.batches)
    for name, observer in here.observers.items():
        for key, array in observer.state().items():
            np.testing.assert_array_equal(first.observers[name].state()[key], array)


def test_a_run_whose_workers_gave_out_goes_on_from_its_checkpoint(
    prepared: Prepared, samples: Path, tmp_path: Path
) -> None:
    kept = Checkpoint(tmp_path / "kept.stats", every_s=0)

    def stop(done: int, _total: int | None) -> None:
        if done > COUNT // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(prepared, samples, checkpoint=kept, executor=Newest(2), progress=stop)
    assert COUNT // 2 < len(Statistics.load(kept.path).batches) < COUNT
    seen = calibrate(prepared, samples, checkpoint=kept, executor=Newest(2))
    here = in_file(calibrate(prepared, samples, threads=1), tmp_path)
    assert in_file(seen, tmp_path) == kept.path.read_bytes() == here


def test_a_batch_that_cannot_be_observed_is_named(prepared: Prepared, samples: Path) -> None:
    rows = [{"x": row[None]} for row in np.load(samples)]
    rows[9] = {"x": np.full_like(rows[9]["x"], 3e38)}
    rows[9]["x"][0, 0, 0, 0] = np.inf
    with pytest.raises(CalibrationError, match="item 9, array 'x', sample 0: holds inf"):
        calibrate(prepared, rows, executor=Newest(2))


def test_another_batch_under_a_number_that_was_seen_is_refused_with_its_part(
    prepared: Prepared, samples: Path
) -> None:
    before = calibrate(prepared, np.load(samples)[:5])
    other = samples.with_name("other.npy")
    np.save(other, np.load(samples)[::-1])
    with pytest.raises(CalibrationError, match=r"other.npy', batches 0 to 4: batch 0 of the sam"):
        calibrate(prepared, other, statistics=before, first_batch=0, executor=Newest(2))


def test_state_that_goes_round_runs_here_and_says_so(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Add", ["x", "h"], ["sum"], "add"),
        helper.make_node("MatMul", ["sum", "w"], ["h_out"], "matmul"),
    ]
    shapes: dict[str, list[int | str]] = {"x": ["N", 4], "h": ["N", 4]}
    net = model(nodes, {"w": weights(1, 4, 4)}, shapes, {"h_out": TensorProto.FLOAT})
    made = prepare(net, feedback={"h_out": "h"})
    steps = {"x": weights(2, 9, 4)}
    with pytest.warns(UserWarning, match="the batches run one after the other, in this process"):
        seen = calibrate(made, steps, executor=Newest(4))
    assert in_file(seen, tmp_path) == in_file(calibrate(made, steps), tmp_path)
