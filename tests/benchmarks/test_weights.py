"""The script that compares methods for weights in blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.weights import Subject, bits_per_byte


def test_logits_that_say_nothing_cost_eight_bits_per_byte() -> None:
    subject = Subject("bytes", Path("none"), [], [{"ids": np.ones((2, 5), np.int64)}], "ids")
    assert bits_per_byte(subject, np.zeros(2 * 5 * 256)) == pytest.approx(8)
