from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from onnxq.errors import QConfigError
from onnxq.jobs import Processes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WAIT_S = 60.0


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123  # a zombie is dead
        return file.read().split()[2] != "Z"


def wait_for_end(pid: int) -> None:
    end = time.monotonic() + WAIT_S
    while is_alive(pid):
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.05)


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "2"])
def test_a_count_that_is_none_is_refused(count: object) -> None:
    with pytest.raises(QConfigError, match="wanted a whole number from 1"):
        Processes(count)  # type: ignore[arg-type]  # the claim


def test_processes_that_were_shut_down_take_no_more_calls() -> None:
    with Processes(1) as executor:
        pass
    with pytest.raises(RuntimeError, match="were shut down"):
        executor.submit(os.getpid)


def test_a_worker_is_replaced_ignores_ctrl_c_and_is_another_process() -> None:
    with Processes(1) as executor:
        first = executor.submit(os.getpid).result()
        os.kill(first, signal.SIGINT)
        assert executor.submit(os.getpid).result() == first != os.getpid()
        with pytest.raises(Exception, match="terminated abruptly"):
            executor.submit(os.kill, first, signal.SIGKILL).result()
        second = executor.submit(os.getpid).result()
        assert second != first
    assert not is_alive(second)


def test_an_error_ends_them_at_once() -> None:
    begun = time.monotonic()
    executor = Processes(1)
    future = executor.submit(time.sleep, 600)
    executor.__exit__(ValueError, None, None)
    assert time.monotonic() - begun < WAIT_S
    assert future.exception(timeout=WAIT_S) is not None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_end_when_their_parent_is_killed() -> None:
    code = (
        "import os, sys, time\n"
        "from onnxq.jobs import Processes\n"
        "if __name__ == '__main__':\n"
        "    executor = Processes(1)\n"
        "    print(executor.submit(os.getpid).result(), flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    wait_for_end(worker)


def test_workers_can_be_told_to_answer_ctrl_c() -> None:
    """Other pools' processes come from that server, too; a mask would be theirs for good."""
    with Processes(1) as executor:
        masked = executor.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()
    assert signal.SIGINT not in masked


@pytest.mark.parametrize("stop", [os.kill, os.killpg])
def test_ctrl_c_while_workers_import_prints_nothing(
    tmp_path: Path, stop: Callable[[int, int], None]
) -> None:
    """To the program alone, as a notebook sends it, or to all of its processes, as a terminal."""
    begun = tmp_path / "begun"
    (tmp_path / "slow_import.py").write_text(
        f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(1)\n"
    )
    code = (
        "import os\n"
        "from onnxq.jobs import Processes\n"
        "if __name__ == '__main__':\n"
        "    try:\n"
        "        with Processes(1, ['slow_import']) as executor:\n"
        "            executor.submit(os.getpid).result()\n"
        "    except KeyboardInterrupt:\n"
        "        print('stopped')\n"
    )
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as program:
        end = time.monotonic() + WAIT_S
        while not begun.exists():
            assert time.monotonic() < end, "the server imports nothing"
            time.sleep(0.02)
        stop(program.pid, signal.SIGINT)
        out, err = program.communicate(timeout=WAIT_S)  # ends with the last of its processes
    assert (out, err) == (b"stopped\n", b"")
