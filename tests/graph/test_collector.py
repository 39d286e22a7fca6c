from __future__ import annotations

import gc

import pytest

from onnxq.graph.collector import without_collector


def test_the_collector_rests_inside_and_is_put_back_after_an_error():
    with pytest.raises(KeyError), without_collector():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
