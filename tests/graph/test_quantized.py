from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError, ModelError
from onnxq.graph.quantized import (
    INPUTS_KEY,
    OUTPUTS_KEY,
    Meaning,
    QuantizedIO,
    read_quantized_io,
    write_quantized_io,
)
from tests.examples import as_ir, network

PER_CHANNEL = QuantizedIO(Meaning.PIXELS, "uint8", (0.5, 0.25), (10.0, 127.5))
INTEGERS = QuantizedIO(Meaning.INTEGERS, "uint8", (0.1,), (3.0,))
P = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16).repeat(2, axis=1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_pixel_comes_back_from_its_number(dtype: type[np.floating]) -> None:
    x = PER_CHANNEL.decode(P)
    assert x[0, 1, 0, 3] == (3 - 127.5) * 0.25
    assert (PER_CHANNEL.encode(x.astype(dtype), "x") == P).all()


def test_numbers_beyond_the_integers_get_the_last_one() -> None:
    x = np.array([-100.0, 0.04, 0.06, 100.0], np.float32)
    assert INTEGERS.encode(x, "x").tolist() == [0, 3, 4, 255]


def test_numbers_that_are_no_pixels_are_refused() -> None:
    x = np.zeros((1, 2, 2, 2), np.float32)
    for value, message in ((-6.0, "pixels from -2 to 127"), (0.2, "stand for no whole pixels")):
        x[0, 0, 0, 0] = value
        with pytest.raises(CalibrationError, match=message):
            QuantizedIO(Meaning.PIXELS, "uint8", (0.5, 0.5), (10.0, 127.0)).encode(x, "input 'x'")


def test_metadata_say_what_ends_mean() -> None:
    model = as_ir(network())
    assert read_quantized_io(model, INPUTS_KEY) == {}
    write_quantized_io(model, INPUTS_KEY, {"x": PER_CHANNEL})
    write_quantized_io(model, OUTPUTS_KEY, {})
    assert read_quantized_io(model, INPUTS_KEY) == {"x": PER_CHANNEL}
    assert OUTPUTS_KEY not in model.metadata_props


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"x": {}}', '{"x": {"meaning": "integers", "dtype": "uint8", "scale": [0.0]}}'],
)
def test_altered_metadata_are_refused(text: str) -> None:
    model = as_ir(network())
    model.metadata_props[INPUTS_KEY] = text
    with pytest.raises(ModelError, match="Quantize it again"):
        read_quantized_io(model, INPUTS_KEY)
