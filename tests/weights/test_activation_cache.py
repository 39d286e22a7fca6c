"""Kept arrays: what does not fit on the disk is an error in words."""

from __future__ import annotations

import io

import numpy as np
import pytest

from onnxq.errors import OutputError
from onnxq.weights import activation_cache
from onnxq.weights.activation_cache import KeptArrays


class Full(io.BytesIO):
    """A file on a full disk."""

    def write(self, _: object) -> int:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        """Tries again to write what is left."""
        super().close()
        raise OSError(28, "No space left on device")


def test_a_full_disk_names_the_folder_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation_cache, "MOST_IN_MEMORY", 0)
    monkeypatch.setattr("tempfile.TemporaryFile", Full)
    with KeptArrays() as between, pytest.raises(OutputError, match="set TMPDIR to another folder"):
        between.add("t", np.zeros(3))
