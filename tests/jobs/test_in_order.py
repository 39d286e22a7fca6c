from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from onnxq.errors import CalibrationError, QConfigError, UnsupportedError, WorkerError
from onnxq.jobs import Processes, in_order
from tests.jobs.executors import Newest
from tests.jobs.work import Deadly, Failing, MakingForeign, MakingGenerator, Square

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def named(x: int) -> str:
    return f"number {x}"


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(2) as executor:
        yield executor


def test_results_are_in_the_order_of_the_items_whatever_the_order_they_came_in() -> None:
    wanted = [x * x for x in range(50)]
    for executor in (None, Newest(4), ThreadPoolExecutor(3)):
        assert list(in_order(executor, Square(delay_s=0.001), range(50))) == wanted


def test_processes_get_ready_once_each(processes: Processes, tmp_path: Path) -> None:
    made = in_order(processes, Square(tmp_path), range(20))
    assert list(made) == [x * x for x in range(20)]
    assert list(in_order(processes, Square(tmp_path), range(20))) == [x * x for x in range(20)]
    assert 1 <= len(list(tmp_path.iterdir())) <= 2  # pieces are quick: one process may do all


@pytest.mark.parametrize("workers", [1, 3])
def test_no_more_items_are_taken_than_two_for_each_worker(workers: int) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for x in range(100):
            taken.append(x)
            yield x

    results = in_order(Newest(workers), Square(), items())
    for number, result in enumerate(results):
        assert result == number**2
        assert len(taken) <= number + 2 * workers + 1


def test_without_an_executor_an_item_is_taken_when_its_result_is_asked_for() -> None:
    taken = iter(range(10))
    results = in_order(None, Square(), taken)
    assert next(taken) == 0
    assert next(results) == 1
    assert next(taken) == 2


@pytest.mark.parametrize("lost", [{0}, {0, 1, 2}, {3, 7, 11, 15}])
def test_a_piece_whose_worker_is_lost_runs_again(lost: set[int]) -> None:
    executor = Newest(2, frozenset(lost))
    assert list(in_order(executor, Square(), range(20))) == [x * x for x in range(20)]


def test_a_killed_process_takes_nothing_with_it(tmp_path: Path) -> None:
    with Processes(2) as executor:
        made = in_order(executor, Deadly(5, tmp_path / "died"), range(12))
        assert list(made) == [x * x for x in range(12)]


def test_an_item_that_kills_every_worker_is_named_and_those_before_it_are_complete() -> None:
    with Processes(2) as executor:
        results = in_order(executor, Deadly(5, None), range(12), named=named)
        assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]
        with pytest.raises(WorkerError, match=r"^number 5: its worker was lost 4 times"):
            next(results)


def test_a_pool_of_the_users_that_broke_is_told_from_an_error_of_the_work() -> None:
    with (
        ProcessPoolExecutor(1) as pool,
        pytest.raises(WorkerError, match=r"takes no more work .*before 2 \(2\) are complete"),
    ):
        list(in_order(pool, Deadly(2, None), range(4)))


@pytest.mark.parametrize("executor", [None, "threads", "processes"])
@pytest.mark.parametrize("kind", ["unusable", "value", "odd"])
def test_an_error_of_the_work_is_raised_in_its_turn_and_names_the_item(
    executor: str | None, kind: str, processes: Processes
) -> None:
    chosen = {None: None, "threads": ThreadPoolExecutor(2), "processes": processes}[executor]
    results = in_order(chosen, Failing(3, kind), range(8), named=named)
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    with pytest.raises((CalibrationError, ValueError, RuntimeError)) as caught:
        next(results)
    notes = getattr(caught.value, "__notes__", [])
    assert "number 3" in str(caught.value) or any("number 3" in note for note in notes)
    assert executor is None or any("in worker" in note for note in notes)


def test_an_error_while_getting_ready_names_no_item() -> None:
    for executor in (None, ThreadPoolExecutor(2)):
        with pytest.raises(CalibrationError, match=r"^nothing to get ready with"):
            list(in_order(executor, Failing(0, "ready"), range(3), named=named))


def test_an_error_of_the_items_comes_behind_the_results_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise CalibrationError("item 3 is broken")

    for executor in (None, ThreadPoolExecutor(2)):
        results = in_order(executor, Square(), items())
        assert [next(results) for _ in range(3)] == [0, 1, 4]
        with pytest.raises(CalibrationError, match="item 3 is broken"):
            next(results)


def test_leaving_the_loop_cancels_what_waits() -> None:
    executor = ThreadPoolExecutor(1)
    items = iter(range(100))
    results = in_order(executor, Square(delay_s=0.01), items)
    next(results)
    results.close()  # type: ignore[attr-defined]  # a generator
    executor.shutdown(wait=True)
    assert next(items) <= 4


def test_what_cannot_be_pickled_is_refused_with_a_reason() -> None:
    with pytest.raises(UnsupportedError, match=r"the work cannot be sent to workers: .*<lambda>"):
        list(in_order(ThreadPoolExecutor(1), lambda: str, [1]))


@pytest.mark.parametrize(
    ("given", "said"), [(4, "is an int"), (ThreadPoolExecutor, "is the class ThreadPoolExecutor")]
)
def test_what_is_no_executor_is_refused(given: Any, said: str) -> None:
    with pytest.raises(QConfigError, match=f"executor {said}; wanted a concurrent.futures.Exec"):
        in_order(given, Square(), [1])


def test_result_of_a_worker_with_another_version_is_an_error_behind_those_before_it() -> None:
    results = in_order(Newest(2), MakingForeign(2), range(4), named=named)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(WorkerError, match=r"^number 2: .* cannot be read here \(Attr.*versions"):
        next(results)


def test_result_that_cannot_be_sent_is_named() -> None:
    with pytest.raises(Exception, match="pickle") as caught:
        list(in_order(Newest(2), MakingGenerator(), range(2), named=named))
    assert "while onnxq worked on number 0" in "".join(caught.value.__notes__)
