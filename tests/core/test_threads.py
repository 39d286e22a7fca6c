from __future__ import annotations

import contextvars
import importlib
import threading
import time

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from onnxq.core.threads import in_parallel, shares, worker_count, workers
from onnxq.errors import QConfigError


def names(count: int) -> list[str]:
    """Threads that ran four parts."""

    def part(_: int) -> str:
        time.sleep(0.01)  # so that one thread cannot take them all
        return threading.current_thread().name

    with workers(count):
        return in_parallel(part, range(4))


def test_without_workers_everything_runs_in_the_calling_thread() -> None:
    here = threading.current_thread().name
    assert set(in_parallel(lambda _: threading.current_thread().name, range(3))) == {here}
    assert set(names(1)) == {here}


def test_workers_are_other_threads() -> None:
    assert len(set(names(2))) == 2
    assert threading.current_thread().name not in names(2)


def test_results_come_in_order() -> None:
    with workers(3):
        assert in_parallel(lambda i: i * i, range(20)) == [i * i for i in range(20)]


def test_the_first_error_is_raised() -> None:
    with workers(2), pytest.raises(ZeroDivisionError):
        in_parallel(lambda i: 1 // i, range(3))


def test_workers_do_not_nest_inside_of_a_worker() -> None:
    with workers(2):
        assert in_parallel(lambda _: worker_count(), range(2)) == [1, 1]
        assert worker_count() == 2
        with workers(1):
            assert worker_count() == 1
        assert worker_count() == 2
    assert worker_count() == 1


def test_shares_cover_the_range_once() -> None:
    assert shares(7) == [slice(0, 7)]
    with workers(3):
        parts = shares(7)
        assert len(parts) == 3
        assert [i for part in parts for i in range(7)[part]] == list(range(7))
        assert shares(2) == [slice(0, 1), slice(1, 2)]
        assert shares(0) == [slice(0, 0)]


def test_fewer_than_one_worker_is_refused() -> None:
    with pytest.raises(QConfigError, match="0 worker threads"), workers(0):
        pass


def blas_threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_blas_has_one_thread_inside_and_what_it_had_behind() -> None:
    importlib.import_module("numpy")
    with threadpool_limits(limits=2, user_api="blas"):  # not 1, which may have been left behind
        before = blas_threads()
        if not before:
            pytest.skip("threadpoolctl knows no BLAS in this NumPy")
        elsewhere, overlapping = contextvars.copy_context(), workers(1)
        with workers(2):
            assert blas_threads() == {1}
            elsewhere.run(overlapping.__enter__)
            assert blas_threads() == {1}
        assert blas_threads() == {1}
        elsewhere.run(overlapping.__exit__, None, None, None)
        assert blas_threads() == before
