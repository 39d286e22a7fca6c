"""export: where roundings drown an output, layers are compared with the integers ahead of them."""

from __future__ import annotations

import functools
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from onnxq.errors import VerificationError
from onnxq.pytorch import convert, disable_observer, export, prepare_qat
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.exporting.agreement import (
    Engine,
    layer_by_layer,
    onnx_runtime,
    reference_kernels,
)
from onnxq.pytorch.exporting.check_quantized import check_in_lsb
from onnxq.qdq import tidy


class Tied(nn.Module):
    """Gates of sigmoid(0), halfway between two integers: the output shows 127 or 128."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.last = nn.Linear(8, 8, bias=False), nn.Linear(8, 3, bias=False)
        nn.init.normal_(self.gate.weight, std=3e-7)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3)."""
        y: Tensor = self.last((torch.sigmoid(self.gate(x)) - 0.5) * x)
        return y


@functools.cache
def tied() -> tuple[Any, Tensor]:
    """The converted module, and its inputs."""
    torch.manual_seed(0)
    x = torch.randn(32, 8)
    return convert(prepare_qat(Tied(), inputs=x).apply(disable_observer).eval()), x


def test_an_output_that_is_noise_is_exported_where_every_layer_is_right() -> None:
    module, x = tied()
    with pytest.warns(UserWarning, match=r"The layers are right: \d+ tensors agree"):
        export(module, x)


def check(module: Any, model: ir.Model, x: Tensor, engine: Engine) -> None:
    bound = bind(module, x)
    by_layer = functools.partial(layer_by_layer, module, model, engine)
    with engine(model) as session:
        scales = tidy.output_scales(model)
        check_in_lsb(module, session.run, scales, bound, 1, None, by_layer)


ENGINES = [onnx_runtime, reference_kernels]


@pytest.mark.parametrize("engine", ENGINES)
def test_layers_that_are_right_pass_on_either_engine(engine: Engine) -> None:
    module, x = tied()
    with pytest.warns(UserWarning, match=r"The layers are right: \d+ tensors agree"):
        check(module, export(module, x, tolerance=1e6), x, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("weight", "named"),
    [
        ("gate.weight_integers", r"'gate_fake_quant' \(tensor 'linear_quantized'\) differs"),
        ("last.weight_integers", "output 0 differs"),
    ],
)
def test_a_layer_that_is_wrong_is_named(weight: str, named: str, engine: Engine) -> None:
    module, x = tied()
    model = export(module, x, tolerance=1e6).clone()
    integers = model.graph.initializers[weight]
    assert integers.const_value is not None
    integers.const_value = ir.Tensor(-integers.const_value.numpy(), name=integers.name)
    with pytest.raises(VerificationError, match=f"integers.* ahead of it, {named} by up to"):
        check(module, model, x, engine)
