"""A layer whose weight and bias are arguments: computed by the model, bare parameters, or shared.

    y = layer(x, weight, bias)

The layer inside has no parameters of its own, so that those of the model keep their names. In
training a trained layer takes its place, which rounds the weight where it is used. A quantized one
takes the place of that, with the codes of the weight as it was then.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from onnxq.pytorch.modules.transposed import TRANSPOSED, WEIGHTED

if TYPE_CHECKING:
    from torch import Tensor, fx

_NAMES = ("weight", "bias")
_TRANSPOSED_CONVS = (
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)


class GivenWeight(nn.Module):
    """Calls a layer with the weight and bias that it is given.

    Args:
        layer: a convolution, transposed or not, or a linear layer; its own parameters are not kept.

    Attributes:
        layer: without parameters; once it is quantized, with codes that take the place of both
            arguments.
        shapes: of weight and bias; None: there is no bias.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        held = [layer._parameters[name] for name in _NAMES]  # noqa: SLF001  # by name
        self.shapes = tuple(None if x is None else tuple(x.shape) for x in held)
        self.layer = layer
        self.strip()

    def forward(
        self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        """The layer's result; a layer that holds a weight of its own reads that one."""
        layer: Any = self.layer
        if not self.takes_weight or weight is None:
            y: Tensor = layer(x)
            return y
        if type(layer) in WEIGHTED:
            return _computed(layer, x, weight, bias)
        self.give(weight, bias)
        try:
            y = layer(x)
        finally:
            self.strip()  # a tensor with a history cannot be copied
        return y

    @property
    def takes_weight(self) -> bool:
        """Whether the layer has neither codes nor a parameter."""
        held = self.layer._parameters.get("weight")  # noqa: SLF001  # by name, None included
        return isinstance(self.layer, WEIGHTED) and held is None

    def give(self, weight: Tensor, bias: Tensor | None) -> None:
        """Lets the layer read these until `strip`."""
        for name, value in zip(_NAMES, (weight, bias), strict=True):
            setattr(self.layer, name, value)

    def strip(self) -> None:
        """Takes weight and bias off the layer."""
        for name in _NAMES:
            self.layer._parameters.pop(name, None)  # noqa: SLF001  # by name, None included
            object.__setattr__(self.layer, name, None)

    def filled(self) -> nn.Module:
        """A copy of the layer with parameters, from which a trained layer is made.

        They are what `give` gave it; zeros where it gave nothing.
        """
        made = copy.copy(self.layer)
        made.__dict__["_parameters"] = dict(self.layer._parameters)  # noqa: SLF001  # by name, None included
        for name, shape in zip(_NAMES, self.shapes, strict=True):
            given = made.__dict__.pop(name, None)
            if shape is None:
                made.register_parameter(name, None)
                continue
            filling = torch.zeros(shape) if given is None else given.detach().clone()
            made.register_parameter(name, nn.Parameter(filling))
        return made


def _computed(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Result of a layer of torch.nn with these parameters."""
    if isinstance(layer, nn.Linear):
        return functional.linear(x, weight, bias)
    numbers = (layer.groups, layer.dilation)
    if isinstance(layer, TRANSPOSED):
        convolve: Any = _TRANSPOSED_CONVS[weight.ndim - 3]
        padding = (layer.padding, layer.output_padding)
        y: Tensor = convolve(x, weight, bias, layer.stride, *padding, *numbers)
        return y
    convolve = layer._conv_forward  # noqa: SLF001  # torch's own, with other parameters
    z: Tensor = convolve(x, weight, bias)
    return z


def weighted_layer(graph: fx.GraphModule, node: fx.Node) -> tuple[str, nn.Module] | None:
    """Path and layer with a weight that a node calls; None: it calls none.

    A layer that is given its weight is filled, so that it has one.

    Args:
        graph: whose node it is.
        node: of any kind.
    """
    if node.op != "call_module":
        return None
    path = str(node.target)
    module = graph.get_submodule(path)
    if isinstance(module, GivenWeight):
        return f"{path}.layer", module.filled()
    return (path, module) if isinstance(module, WEIGHTED) else None
