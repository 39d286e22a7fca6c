from __future__ import annotations

import gc

import pytest

from onnxq.core.collector import without_collector


def test_collector_is_off_inside_and_on_behind() -> None:
    with without_collector():
        assert not gc.isenabled()
        with without_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_is_on_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), without_collector():
        _ = 1 / 0
    assert gc.isenabled()


def test_collector_that_the_caller_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
