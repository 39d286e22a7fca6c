"""export: NaN on the example inputs is named, with the layer or parameter it comes from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from onnxq.errors import ModelError
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.exporting.exporter import export, run_in_numbers
from onnxq.pytorch.nn.quantized import Requantize

X = torch.linspace(-1, 1, 12).reshape(4, 3)
BAD = X.clone().index_fill_(0, torch.tensor([1]), torch.nan)


class Root(nn.Module):
    """NaN of what is below 0."""

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of x's shape."""
        return x.sqrt()


def test_a_quantizer_that_is_given_nan_is_refused_by_name_with_the_input() -> None:
    module = nn.Sequential(Requantize(0.1, 128))
    with pytest.raises(ModelError, match=r"'0' .Requantize. is given NaN .* 'input' hold NaN"):
        export(module, BAD)
    with pytest.raises(ModelError, match=r"'1' .Requantize. is given NaN with the example inputs:"):
        export(nn.Sequential(Root(), Requantize(0.1, 128)), X)


def test_an_output_of_nan_is_exported_with_a_warning_that_says_where_it_is_from() -> None:
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        layer.bias[0] = torch.nan
    with pytest.warns(UserWarning, match=r"output 0 holds NaN .*: parameter '0.bias' does"):
        export(nn.Sequential(layer), X)
    with pytest.warns(UserWarning, match=r"the first layer whose result does is '1'"):
        run_in_numbers(model := nn.Sequential(nn.Identity(), Root(), nn.Identity()), bind(model, X))
    with pytest.warns(UserWarning, match=r"of which 'input' hold NaN"):
        run_in_numbers(model, bind(model, BAD))


def test_numbers_and_what_turns_nan_into_numbers_pass() -> None:
    class Filled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.requantize = Requantize(0.1, 128)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.requantize(x.nan_to_num())
            return y

    run_in_numbers(model := Filled(), bind(model, BAD))
