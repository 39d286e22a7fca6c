"""Arrays of .safetensors files: what the format's own writer wrote, and what is broken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.samples.columns import whole
from onnxq.samples.tensor_file import tensor_columns

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array

ARRAYS: dict[str, Array] = {
    "x": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "ids": np.array([[1, 2]], np.int64),
    "flag": np.array([True, False]),
    "none": np.empty((0, 3), np.float16),
    "one": np.array(3, np.int32),
}


def written(path: Path, header: object, data: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_arrays_come_as_they_were_saved(tmp_path: Path) -> None:
    saving = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "x.safetensors"
    saving.save_file(ARRAYS, path, metadata={"by": "test"})
    found = tensor_columns(path, "samples")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(whole(found[name]), array)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"x": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}, "is BF16; wanted one of"),
        ({"x": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}, "does not lie at bytes"),
        ({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}, "does not lie at bytes"),
        ({"x": {"dtype": "F32"}}, "its header is none"),
        ([1], "its header is none"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, header: object, message: str) -> None:
    path = written(tmp_path / "x.safetensors", header, bytes(8))
    with pytest.raises(CalibrationError, match=message):
        tensor_columns(path, "samples")


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes((1 << 40).to_bytes(8, "little"))
    with pytest.raises(CalibrationError, match="its header claims"):
        tensor_columns(path, "samples")
