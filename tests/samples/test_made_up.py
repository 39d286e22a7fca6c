from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.graph.quantized import Meaning, QuantizedIO
from onnxq.samples import InputSpec, made_up
from onnxq.samples.made_up import batch_of_ones, random_batch

FLOAT, TEXT = np.dtype(np.float32), np.dtype(object)


def test_random_batch_has_ones_for_dynamic_axes_and_zeros_for_integers() -> None:
    specs = [InputSpec("x", FLOAT, ("N", 3, None)), InputSpec("i", np.dtype(np.int64), ("N", 2))]
    batch = random_batch(specs, 4)
    assert batch["x"].shape == (4, 3, 1)
    assert batch["x"].dtype == FLOAT
    assert batch["i"].tolist() == [[0, 0]] * 4
    assert random_batch(specs)["x"].shape == (1, 3, 1)


def test_random_batch_is_the_same_each_time() -> None:
    specs = [InputSpec("x", FLOAT, (5,))]
    assert np.array_equal(random_batch(specs)["x"], random_batch(specs)["x"])


def test_a_static_batch_is_kept() -> None:
    with pytest.raises(UnsupportedError, match="static batch of 2"):
        random_batch([InputSpec("x", FLOAT, (2, 3))], 4)


def test_quantized_inputs_get_any_integers() -> None:
    quantized = QuantizedIO(Meaning.PIXELS, "uint8", (1.0,), (0.0,))
    x = random_batch([InputSpec("x", np.dtype(np.uint8), (1, 3, 50, 50), quantized=quantized)])["x"]
    assert x.dtype == np.uint8
    assert (int(x.min()), int(x.max())) == (0, 255)


def test_texts_are_made_up_too() -> None:
    specs = [InputSpec("t", TEXT, ("N", 2)), InputSpec("b", np.dtype(bool), ("N",))]
    for batch in (random_batch(specs, 3), batch_of_ones(specs)):
        assert set(batch["t"].flat) == {"1"}
    assert batch_of_ones(specs)["b"].tolist() == [True]


def test_all_inputs_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a tenth of the free memory, and by MOST_BYTES."""
    specs = [InputSpec("a", FLOAT, (10,)), InputSpec("b", FLOAT, ("N", 15))]  # 100 bytes
    for free, most in ((1000, 1 << 28), (None, 100)):
        monkeypatch.setattr(made_up, "available_bytes", lambda free=free: free)
        monkeypatch.setattr(made_up, "MOST_BYTES", most)
        assert random_batch(specs).keys() == batch_of_ones(specs).keys() == {"a", "b"}
    monkeypatch.setattr(made_up, "MOST_BYTES", 99)
    for make in (random_batch, batch_of_ones):
        with pytest.raises(UnsupportedError, match=r"'b' of shape \(1, 15\) is too large"):
            make(specs)


def test_sequences_cannot_be_made_up() -> None:
    for make in (random_batch, batch_of_ones):
        with pytest.raises(UnsupportedError, match="'s' is a sequence or an optional"):
            make([InputSpec("s", FLOAT, (3,), is_tensor=False)])
