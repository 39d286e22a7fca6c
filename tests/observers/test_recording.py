from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError, QConfigError, UnsupportedError
from onnxq.observers import NoopObserver, RecordingObserver


def test_keeps_copies_in_the_order_of_the_index() -> None:
    observer, x = RecordingObserver(), np.zeros(3, np.float32)
    observer.observe(x + 1, 1)
    observer.observe(x, 0)
    x[:] = 9
    np.testing.assert_array_equal(observer.get_tensor_value(), [[0, 0, 0], [1, 1, 1]])


def test_byte_limit_is_an_error_that_names_the_batch() -> None:
    observer = RecordingObserver(byte_limit=20)
    observer.observe(np.zeros(4, np.float32), 0)
    with pytest.raises(CalibrationError, match="batch 1: RecordingObserver would hold 32 bytes"):
        observer.observe(np.zeros(4, np.float32), 1)
    with pytest.raises(CalibrationError, match="merge: RecordingObserver would hold 32 bytes"):
        observer.merge(observer)
    with pytest.raises(QConfigError, match="byte_limit"):
        RecordingObserver(byte_limit=0)


def test_recorded_nan_is_kept_for_debugging() -> None:
    observer = RecordingObserver()
    observer.observe(np.asarray([np.nan], np.float32), 0)
    assert np.isnan(observer.get_tensor_value()[0][0])


def test_empty_batches_are_skipped() -> None:
    observer = RecordingObserver()
    observer.observe(np.zeros((0, 3), np.float32), 0)
    assert observer.get_tensor_value() == []


@pytest.mark.parametrize("observer", [RecordingObserver(), NoopObserver()])
def test_computes_no_qparams(observer: RecordingObserver | NoopObserver) -> None:
    with pytest.raises(UnsupportedError, match="computes no qparams"):
        observer.calculate_qparams()
