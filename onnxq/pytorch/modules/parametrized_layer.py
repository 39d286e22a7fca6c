"""A layer whose weight and bias are arguments: parametrizations, bare parameters, or shared ones.

    y = layer(x, weight, bias)        weight: for example g * v / |v|, of torch's weight_norm

The layer inside has no parameters of its own, so that those of the model keep their names.
`prepare_qat` replaces the layer by one that fake-quantizes the weight in each forward pass,
`convert` by a quantized layer that stores the weight.
"""

import copy
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from onnxq.pytorch.modules.transposed import WEIGHTED, convolved

_NAMES = ("weight", "bias")


class ParametrizedLayer(nn.Module):
    """Calls a layer with a weight and a bias that are arguments."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        held = [layer._parameters[name] for name in _NAMES]  # noqa: SLF001  # by name
        self.shapes = tuple(None if x is None else tuple(x.shape) for x in held)
        self.layer = layer
        self.clear_parameters()

    def forward(
        self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        """Returns the layer's result; a layer with a weight of its own ignores the argument."""
        layer: Any = self.layer
        if not self.takes_weight or weight is None:
            y: Tensor = layer(x)
            return y
        if type(layer) is nn.Linear:
            return functional.linear(x, weight, bias)
        if type(layer) in WEIGHTED:
            return convolved(layer, x, weight, bias)
        self.set_parameters(weight, bias)
        try:
            y = layer(x)
        finally:
            self.clear_parameters()  # a tensor with a history cannot be copied
        return y

    @property
    def takes_weight(self) -> bool:
        """Whether the layer reads the arguments: it stores no weight, quantized or float."""
        held = self.layer._parameters.get("weight")  # noqa: SLF001  # by name, None included
        return isinstance(self.layer, WEIGHTED) and held is None

    def set_parameters(self, weight: Tensor, bias: Tensor | None) -> None:
        """Sets weight and bias as plain attributes, until `clear_parameters`."""
        for name, value in zip(_NAMES, (weight, bias), strict=True):
            setattr(self.layer, name, value)

    def clear_parameters(self) -> None:
        """Removes weight and bias from the layer."""
        for name in _NAMES:
            self.layer._parameters.pop(name, None)  # noqa: SLF001  # by name, None included
            object.__setattr__(self.layer, name, None)

    def with_parameters(self) -> nn.Module:
        """Copies the layer with weight and bias as nn.Parameters, as `from_float` wants them."""
        made = copy.copy(self.layer)
        made.__dict__["_parameters"] = dict(self.layer._parameters)  # noqa: SLF001  # by name, None included
        for name, shape in zip(_NAMES, self.shapes, strict=True):
            value = made.__dict__.pop(name, None)
            if shape is None:
                made.register_parameter(name, None)
                continue
            filling = torch.zeros(shape) if value is None else value.detach().clone()
            made.register_parameter(name, nn.Parameter(filling))
        return made


def weighted_layer(graph: fx.GraphModule, node: fx.Node) -> tuple[str, nn.Module] | None:
    """Path and layer with a weight that a node calls; None: it calls none."""
    if node.op != "call_module":
        return None
    path = str(node.target)
    module = graph.get_submodule(path)
    if isinstance(module, ParametrizedLayer):
        return f"{path}.layer", module.with_parameters()
    return (path, module) if isinstance(module, WEIGHTED) else None
