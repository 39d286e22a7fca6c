from __future__ import annotations

import numpy as np
import pytest

from onnxq.observers import NoopObserver, ObserverSpec


@pytest.mark.parametrize("dtype", ["float16", np.float16, np.dtype("float16"), "torch.float16"])
def test_float16_is_its_default_however_it_is_written(dtype: object) -> None:
    spec = NoopObserver.with_args(dtype=dtype)
    assert spec == NoopObserver.with_args()
    observer = spec()
    assert isinstance(observer, NoopObserver)
    assert observer.storage == np.float16


def test_carries_an_integer_type_too() -> None:
    spec = NoopObserver.with_args(dtype="qint8")
    assert ObserverSpec.from_dict(spec.to_dict()) == spec
    assert spec().dtype.name == "int8"


def test_looks_at_nothing() -> None:
    observer = NoopObserver()
    observer.observe(np.asarray([np.nan]), 0)
    assert observer.state() == {}
