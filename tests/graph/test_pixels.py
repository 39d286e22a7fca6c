from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onnxq.errors import QConfigError
from onnxq.graph.pixels import quantized_pixels
from onnxq.qconfig import Pixels, QuantizedInput

if TYPE_CHECKING:
    from tests.graph.conftest import Parse

RGB = Pixels((0.1, 0.2, 0.3))


def test_channels_are_axis_1_or_the_last(parse: Parse) -> None:
    model = parse("g (float[1,3,8,8] a, float[N,8,8,3] b) => (float[n,c,h,w] y) { y = Add(a, b) }")
    found = quantized_pixels(model, {"a": RGB, "b": RGB})
    assert (found["a"].axis, found["b"].axis) == (1, 3)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"imgae": RGB}, "no input 'imgae'; it has .*Did you mean 'image'"),
        ({"image": QuantizedInput.PIXELS}, "does not normalize it.*--pixels-mean"),
        ({"ids": RGB}, "'ids' is no image: it is int64"),
        ({"row": RGB}, "'row' is no image: .*at least 3 axes"),
        ({"bytes": RGB}, "'bytes' is uint8 already"),
        ({"gray": RGB}, "has shape .*; mean and std are of 3 channels"),
    ],
)
def test_inputs_that_cannot_be_pixels_are_refused(
    asked: dict[str, QuantizedInput | Pixels], message: str, parse: Parse
) -> None:
    model = parse(
        "g (float[N,3,8,8] image, int64[N,1,8,8] ids, float[N,8] row, uint8[N,3,8,8] bytes, "
        "float[N,1,8,8] gray) => (float[n,c,h,w] y) { y = Relu(image) }"
    )
    with pytest.raises(QConfigError, match=message):
        quantized_pixels(model, asked)


def test_integers_are_no_pixels(parse: Parse) -> None:
    model = parse("g (float[N,8] x) => (float[N,8] y) { y = Relu(x) }")
    assert quantized_pixels(model, {"x": QuantizedInput.INTEGERS}) == {}
