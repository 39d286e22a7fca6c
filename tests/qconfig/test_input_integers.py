from __future__ import annotations

import re
from typing import Any

import pytest

from onnxq.errors import QConfigError
from onnxq.qconfig import Pixels, QuantizedInput
from onnxq.qconfig.quantized_input import as_quantized_input, as_quantized_output


def test_pixels_are_torchvision_s_normalize_behind_its_to_tensor() -> None:
    pixels = Pixels((0.5, 0.25), (0.25, 0.5))
    assert pixels.zeros == (127.5, 63.75)
    assert pixels.factors == pytest.approx((4 / 255, 2 / 255))


def test_one_number_serves_every_channel() -> None:
    assert Pixels((1.0, 2.0), 2, 1) == Pixels((1.0, 2.0), (2.0,), 1.0)  # type: ignore[arg-type]
    assert Pixels((1.0, 2.0), (2.0,), 1).factors == (0.5, 0.5)


def test_meanings_are_given_by_name_too() -> None:
    asked = as_quantized_input({"a": "pixels", "b": QuantizedInput.INTEGERS, "c": Pixels()})
    assert asked == {"a": QuantizedInput.PIXELS, "b": QuantizedInput.INTEGERS, "c": Pixels()}
    assert as_quantized_input(None) == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mean": "black"}, "mean is 'black'; wanted numbers"),
        ({"mean": ()}, "wanted finite numbers, one or more"),
        ({"std": (1.0, float("nan"))}, "wanted finite numbers"),
        ({"std": (1.0, 0.0)}, "wanted numbers above 0"),
        ({"scale": -1}, "wanted numbers above 0"),
        ({"mean": (1, 2, 3), "std": (1, 2)}, "3 means and 2 stds; wanted one of each"),
    ],
)
def test_pixels_that_no_image_has_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        Pixels(**wrong)


def test_wrong_wishes_are_refused() -> None:
    for wrong, message in (
        ("image=pixels", "quantized_input is a str; wanted {input name"),
        ({"image": "pixel"}, "Did you mean 'pixels'?"),
        ({"image": True}, "'image' is True; wanted pixels or integers"),
    ):
        with pytest.raises(QConfigError, match=re.escape(message)):
            as_quantized_input(wrong)
    with pytest.raises(QConfigError, match="wanted a list of names"):
        as_quantized_output("logits")


@pytest.mark.parametrize(
    "wrong", [((127.5,), (63.75,)), ((0.0,), (255.0,)), ((123.7, 0.4, 0.4), (1.0,))]
)
def test_means_and_stds_of_0_to_255_are_refused_where_pixels_become_0_to_1(
    wrong: tuple[tuple[float, ...], tuple[float, ...]],
) -> None:
    with pytest.raises(QConfigError, match=r"pixel \* scale - mean.*Divide both by 255"):
        Pixels(*wrong)
    assert Pixels(*wrong, 1.0).mean == wrong[0]


def test_the_message_has_the_numbers_that_were_meant() -> None:
    with pytest.raises(QConfigError, match=r"\(mean 0\.5, std 0\.25\)"):
        Pixels((127.5,), (63.75,))
