from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from onnxq.errors import ModelError, VerificationError
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.exporting.check_quantized import check_in_lsb
from onnxq.pytorch.nn.quantized import Requantize

Arrays = Sequence[npt.NDArray[np.generic]]
X = torch.linspace(-1, 1, 100).reshape(10, 10)


class Same(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def check(
    difference: npt.NDArray[np.float32] | float,
    *,
    scale: float | None = 0.1,
    roundings: int = 1,
    tolerance: float | None = None,
) -> None:
    def run(feeds: Mapping[str, npt.NDArray[np.generic]]) -> Arrays:
        return [np.asarray(feeds["x"], np.float32) + np.float32(difference)]

    module = Same()
    check_in_lsb(module, run, [("y", scale)], bind(module, X), roundings, tolerance)


def one(steps: float) -> npt.NDArray[np.float32]:
    difference = np.zeros((10, 10), np.float32)
    difference[3, 4] = steps * 0.1
    return difference


def test_an_lsb_at_a_tie_passes_and_more_does_not() -> None:
    check(one(1))
    check(one(3))  # 1 + 6 sqrt(1 / 6) = 3.45
    with pytest.raises(VerificationError, match="up to 5 LSB"):
        check(one(5))


def test_many_layers_may_add_up() -> None:
    check(one(12), roundings=24)
    with pytest.raises(VerificationError):
        check(one(15), roundings=24)


def test_small_differences_everywhere_are_a_wrong_translation() -> None:
    with pytest.raises(VerificationError, match="root mean square"):
        check(0.2)


def test_the_callers_tolerance_is_in_lsb() -> None:
    check(0.2, tolerance=2)
    with pytest.raises(VerificationError):
        check(0.3, tolerance=2)


def test_float_outputs_have_an_lsb_of_their_range() -> None:
    check(0.007, scale=None)
    with pytest.raises(VerificationError):
        check(0.1, scale=None)


def test_nan_and_other_shapes_are_refused() -> None:
    with pytest.raises(VerificationError):
        check(float("nan"))
    module = Same()
    results: list[Arrays] = [[], [np.zeros((3,), np.float32)]]
    for result in results:
        fixed = functools.partial(_give, result)
        with pytest.raises(VerificationError, match="module"):
            check_in_lsb(module, fixed, [("y", 0.1)], bind(module, X), 1, None)


def _give(result: Arrays, feeds: Mapping[str, npt.NDArray[np.generic]]) -> Arrays:
    assert "x" in feeds
    return result


def test_a_forward_that_takes_one_number_of_rows_is_named() -> None:
    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(10, 10)

    module = Fixed()
    inputs = bind(module, X[:3])
    with pytest.raises(ModelError, match="not with another number of rows"):
        check_in_lsb(module, lambda _: [], [("y", 0.1)], inputs, 1, None)


class Amplifying(nn.Module):
    """Integers of a coarse scale, multiplied: an integer's step is 40 of the result's."""

    def __init__(self) -> None:
        super().__init__()
        self.coarse = Requantize(0.1, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.coarse(x) * 4
        return y


def moved_by(steps: float) -> None:
    """Moves every tenth integer of the coarse scale."""
    module = Amplifying()
    change = np.zeros((10, 10), np.float32)
    change[:, 3] = steps * 0.4

    def run(feeds: Mapping[str, npt.NDArray[np.generic]]) -> Arrays:
        return [module(torch.from_numpy(np.asarray(feeds["x"]))).numpy() + change]

    check_in_lsb(module, run, [("y", 0.01)], bind(module, X), 1, None)


def test_movement_that_roundings_amplify_passes_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="roundings alone move it by"):
        moved_by(1)
    with pytest.raises(VerificationError, match="up to 400 LSB"):
        moved_by(10)


def test_an_output_that_roundings_move_as_far_as_it_spreads_is_not_let_through() -> None:
    module = Amplifying()
    still = X / 100  # all of it rounds to 0

    def run(feeds: Mapping[str, npt.NDArray[np.generic]]) -> Arrays:
        return [np.full((10, 10), 0.4, np.float32) + 0 * np.asarray(feeds["x"], np.float32)]

    with pytest.raises(VerificationError, match=r"up to 40 LSB.* it is noise"):
        check_in_lsb(module, run, [("y", 0.01)], bind(module, still), 1, None)
