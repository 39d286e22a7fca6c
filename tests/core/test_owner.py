from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from onnxq.core.atomic import Owner, this_process


def test_an_owner_is_read_from_its_text() -> None:
    assert Owner.parse(str(this_process())) == this_process()
    assert Owner.parse("model.onnx") is None


def test_this_process_is_alive() -> None:
    assert this_process().pid == os.getpid()
    assert not this_process().is_dead()


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc tells when a process began")
def test_a_process_of_the_same_number_is_another_one() -> None:
    assert replace(this_process(), began=1).is_dead()


@pytest.mark.skipif(sys.platform == "win32", reason="asking for a process would end it")
def test_a_process_that_ended_is_dead() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert replace(this_process(), pid=ended.pid).is_dead()


def test_nothing_is_said_of_another_host() -> None:
    assert not Owner("elsewhere", 1 << 30, 1).is_dead()
