from __future__ import annotations

import numpy as np
import pytest

from onnxq.dtypes import UINT8
from onnxq.errors import QConfigError
from onnxq.observers import FixedQParamsObserver
from onnxq.qparams import PerTensor


def test_the_samples_do_not_matter() -> None:
    observer = FixedQParamsObserver(0.1, 7)
    observer.observe(np.full(3, 1e6, np.float32), 0)
    found = observer.calculate_qparams()
    assert found.scale == np.float32(0.1)
    assert (int(found.zero_point), found.dtype, found.granularity) == (7, UINT8, PerTensor())


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_a_scale_that_is_none_is_refused(scale: float) -> None:
    with pytest.raises(QConfigError, match="wanted a positive number"):
        FixedQParamsObserver(scale, 0)


def test_a_zero_point_beyond_the_integers_is_refused() -> None:
    with pytest.raises(QConfigError, match="wanted one of -128 to 127"):
        FixedQParamsObserver(1.0, 128, dtype="qint8")
