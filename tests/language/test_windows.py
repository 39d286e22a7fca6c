from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.metrics import as_samples, bytes_of, windows
from tests.tiny_decoder import tiny_decoder

if TYPE_CHECKING:
    from pathlib import Path


def test_text_is_cut_into_windows_and_the_rest_left_out(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(bytes(range(250, 256)) + b"a")
    tokens = bytes_of(tmp_path / "text")
    assert windows(tokens, 3).tolist() == [[250, 251, 252], [253, 254, 255]]


def test_text_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").touch()
    with pytest.raises(CalibrationError, match="is empty"):
        bytes_of(tmp_path / "text")
    with pytest.raises(CalibrationError, match="no such file"):
        bytes_of(tmp_path / "other")
    with pytest.raises(CalibrationError, match="has 4 tokens; wanted 5 or more, one window"):
        windows(np.arange(4), 5)
    with pytest.raises(CalibrationError, match="windows of 1 tokens; wanted 2 or more"):
        windows(np.arange(4), 1)


def test_samples_hold_all_inputs_with_an_empty_cache() -> None:
    samples = as_samples(tiny_decoder(), windows(np.arange(32), 16))
    assert samples["input_ids"].shape == samples["attention_mask"].shape == (2, 16)
    assert samples["past_key_values.0.value"].shape == (2, 1, 0, 16)
