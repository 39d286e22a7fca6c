"""Kept arrays: what does not fit on the disk is an error in words."""

from __future__ import annotations

import io

import numpy as np
import pytest
from onnx import helper

from onnxq.errors import OutputError
from onnxq.weights import subgraphs
from onnxq.weights.subgraphs import ActivationCache, SpilledArrays
from tests.examples import as_ir, model, weights


class Full(io.BytesIO):
    """A file on a full disk."""

    def write(self, _: object) -> int:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        """Tries again to write what is left."""
        super().close()
        raise OSError(28, "No space left on device")


def test_a_full_disk_names_the_folder_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subgraphs, "MOST_IN_MEMORY", 0)
    monkeypatch.setattr("tempfile.TemporaryFile", Full)
    with (
        SpilledArrays() as between,
        pytest.raises(OutputError, match="set TMPDIR to another folder"),
    ):
        between.add("t", np.zeros(3))


def test_outputs_are_kept_for_every_batch_until_they_are_dropped() -> None:
    part = as_ir(
        model([helper.make_node("Add", ["x", "w"], ["y"])], {"w": weights(0, 3)}, {"x": ["N", 3]})
    )
    feeds = SpilledArrays()
    batches = [np.full((size, 3), size, np.float32) for size in (1, 2)]
    for batch in batches:
        feeds.add("x", batch)
    with ActivationCache(feeds, 2) as cache:
        cache.advance(part)
        for index, batch in enumerate(batches):
            assert np.array_equal(cache.get("y", index), batch + weights(0, 3))
        cache.drop("x")  # an input stays
        cache.drop("y")
        assert np.array_equal(cache.get("x", 1), batches[1])
