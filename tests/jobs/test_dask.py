"""A real cluster of Dask on this machine: a scheduler, and processes that a nanny replaces."""

from __future__ import annotations

import importlib.util
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from onnxq.errors import WorkerError
from onnxq.jobs import connected, in_order, slots
from onnxq.static.calibrate import calibrate
from onnxq.static.prepare import prepare
from tests.examples import images, network, save
from tests.jobs.work import Deadly, Failing, Square

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor
    from pathlib import Path

if importlib.util.find_spec("distributed") is None:  # looked for, since importing it takes long
    pytest.skip("pip install 'onnxq[dask]'", allow_module_level=True)
pytestmark = [pytest.mark.oracle, pytest.mark.nightly]  # a cluster takes seconds to start


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two processes with a thread each; a task whose worker died once is given up by Dask."""
    import dask
    import distributed

    with (
        warnings.catch_warnings(),
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
    ):
        warnings.simplefilter("ignore")  # Dask's own, on processes that are slow to start or end
        with distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            scheduler_port=0,
            dashboard_address=None,
            silence_logs=50,
        ) as made:
            yield made


@pytest.fixture(scope="module")
def executor(cluster: Any) -> Iterator[Executor]:
    import distributed

    with distributed.Client(cluster, set_as_default=False) as client:
        yield client.get_executor()


def test_results_come_in_order_from_as_many_workers_as_there_are(executor: Executor) -> None:
    assert slots(executor) == 2
    assert list(in_order(executor, Square(delay_s=0.001), range(30))) == [x * x for x in range(30)]


def test_equal_items_are_not_taken_for_one_another(executor: Executor) -> None:
    assert list(in_order(executor, Square(), [3] * 5)) == [9] * 5


def test_an_error_of_the_work_names_its_item(executor: Executor) -> None:
    with pytest.raises(Exception, match=r"^7: unusable"):
        list(in_order(executor, Failing(7, "unusable"), range(9)))


def test_a_worker_that_dies_is_made_up_for(executor: Executor, tmp_path: Path) -> None:
    made = in_order(executor, Deadly(5, tmp_path / "died"), range(12))
    assert list(made) == [x * x for x in range(12)]


def test_an_item_that_kills_every_worker_ends_the_run(executor: Executor) -> None:
    with pytest.raises(WorkerError, match=r"^5: its worker was lost 4 times, .*KilledWorker"):
        list(in_order(executor, Deadly(5, None), range(8)))


def test_a_calibration_by_address_writes_the_same_file(cluster: Any, tmp_path: Path) -> None:
    prepared = prepare(save(network(), tmp_path / "net.onnx"))
    np.save(tmp_path / "x.npy", images(21))
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    with connected(address) as executor:
        seen = calibrate(prepared, tmp_path / "x.npy", executor=executor)
    seen.save(tmp_path / "dask.stats")
    calibrate(prepared, tmp_path / "x.npy", threads=1).save(tmp_path / "here.stats")
    assert (tmp_path / "dask.stats").read_bytes() == (tmp_path / "here.stats").read_bytes()


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.jobs.processes.WAIT_S", 0.5)
    with (
        pytest.raises(WorkerError, match=r"'dask://127.0.0.1:9' does not answer"),
        connected("dask://127.0.0.1:9"),
    ):
        pass
