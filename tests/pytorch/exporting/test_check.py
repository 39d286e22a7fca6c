from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from onnxq.errors import UnsupportedError, VerificationError
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.arguments.forward import flatten
from onnxq.pytorch.exporting.check import check_against, relative_tolerance

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.oracle

X = torch.tensor([[1.0, 2.0, 4.0]])


def check(module: nn.Module, *outputs: object) -> None:
    """Holds the given outputs against the module's at a tolerance of 2^-10."""

    def run(_: Mapping[str, npt.NDArray[np.generic]]) -> list[npt.NDArray[np.generic]]:
        return [np.asarray(y) for y in outputs]

    check_against(module, run, [f"y{i}" for i in range(len(outputs))], bind(module, X), 2.0**-10)


def test_tolerance_grows_with_layers_and_with_terms() -> None:
    assert relative_tolerance(nn.ReLU()) == 8 * 2.0**-24
    one, wide = relative_tolerance(nn.Linear(4, 2)), relative_tolerance(nn.Linear(16, 2))
    assert (one, wide) == (16 * 2.0**-24, 32 * 2.0**-24)
    assert relative_tolerance(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))) == 2 * one


def test_differences_up_to_the_bound_pass_and_above_it_fail() -> None:
    bound = np.float32(4 * 2.0**-10)
    check(nn.Identity(), X.numpy() + bound)  # exact: the sums are representable
    with pytest.raises(VerificationError, match=r"output 'y0'.*rounding explains 0.00391"):
        check(nn.Identity(), X.numpy() + 2 * bound)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([X.numpy()[:, :2]], r"shape \(1, 2\); the module gives \(1, 3\)"),
        ([X.numpy(), X.numpy()], "2 outputs; the module returns 1"),
        ([np.full((1, 3), np.nan, np.float32)], "differs from the module by nan"),
    ],
)
def test_wrong_outputs_are_described(outputs: list[object], message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        check(nn.Identity(), *outputs)


def test_integers_must_be_equal() -> None:
    class Index(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.argmax(1)

    check(Index(), np.array([2]))
    with pytest.raises(VerificationError, match="1 of 1 integers differ"):
        check(Index(), np.array([1]))


def test_nan_and_inf_must_stand_where_the_module_has_them() -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(x < 2, -torch.inf)

    check(Masked(), np.array([[-np.inf, 2, 4]], np.float32))
    with pytest.raises(VerificationError, match="NaN or Inf"):
        check(Masked(), np.array([[1, 2, 4]], np.float32))


def test_nested_results_are_flattened_in_order_without_none() -> None:
    a, b, c = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    assert [len(x) for x in flatten((a, {"b": b, "none": None}, [c]))] == [1, 2, 3]
    with pytest.raises(UnsupportedError, match="returned a str"):
        flatten("logits")
