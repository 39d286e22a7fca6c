"""A real Ray on this machine: its servers and processes, started here."""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.jobs import RayExecutor, connected, in_order, slots
from onnxq.static.calibrate import calibrate
from onnxq.static.prepare import prepare
from tests.examples import images, network, save
from tests.jobs.work import Deadly, Failing, Square

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.oracle, pytest.mark.nightly]  # its servers take seconds to start


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Two CPUs, and an object store of the smallest size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, on what it will change
        module = pytest.importorskip("ray", reason="pip install 'onnxq[ray]'")
        module.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=80 << 20,
            log_to_driver=False,
            logging_level="ERROR",
            # workers find the tests' modules where this process does
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
        )
        yield module
        module.shutdown()


@pytest.fixture
def executor(ray: Any) -> Iterator[RayExecutor]:
    assert ray.is_initialized()
    with RayExecutor() as made:
        yield made
    assert ray.is_initialized()  # it was there before


def test_results_come_in_order_from_as_many_workers_as_there_are(executor: RayExecutor) -> None:
    assert slots(executor) == 2
    assert list(in_order(executor, Square(delay_s=0.001), range(30))) == [x * x for x in range(30)]


def test_an_error_of_the_work_names_its_item(executor: RayExecutor) -> None:
    with pytest.raises(Exception, match=r"^7: unusable"):
        list(in_order(executor, Failing(7, "unusable"), range(9)))


def test_a_worker_that_dies_is_made_up_for(executor: RayExecutor, tmp_path: Path) -> None:
    made = in_order(executor, Deadly(5, tmp_path / "died"), range(12))
    assert list(made) == [x * x for x in range(12)]


def test_a_future_that_is_cancelled_frees_its_cpu(executor: RayExecutor) -> None:
    futures = [executor.submit(time.sleep, 600) for _ in range(3)]
    assert all(future.cancel() for future in futures)
    assert executor.submit(max, 1, 2).result(timeout=60) == 2


def test_an_executor_that_was_shut_down_takes_no_more_calls(ray: Any) -> None:
    executor = RayExecutor()
    executor.shutdown()
    executor.shutdown()
    with pytest.raises(RuntimeError, match="was shut down"):
        executor.submit(max, 1, 2)
    assert ray.is_initialized()


def test_a_calibration_by_address_writes_the_same_file(ray: Any, tmp_path: Path) -> None:
    assert ray.is_initialized()
    prepared = prepare(save(network(), tmp_path / "net.onnx"))
    np.save(tmp_path / "x.npy", images(21))
    with connected("ray://auto") as executor:
        seen = calibrate(prepared, tmp_path / "x.npy", executor=executor)
    seen.save(tmp_path / "ray.stats")
    calibrate(prepared, tmp_path / "x.npy", threads=1).save(tmp_path / "here.stats")
    assert (tmp_path / "ray.stats").read_bytes() == (tmp_path / "here.stats").read_bytes()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'onnxq\[ray\]'"):
        RayExecutor()
