"""Runs a traced module and keeps what each node computes, to compare it with an exported model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from onnxq.errors import ModelError
from onnxq.pytorch.arguments.forward import FORWARD_RAISES

if TYPE_CHECKING:
    from onnxq.pytorch.arguments.bound_inputs import BoundInputs

Recorded = dict[fx.Node, Any]


class _Recorder(fx.Interpreter):
    def __init__(self, traced: fx.GraphModule) -> None:
        super().__init__(traced)
        self.values: Recorded = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        # a copy: a later node may work in place
        self.values[n] = value.detach().clone() if isinstance(value, torch.Tensor) else value
        return value


def record(traced: fx.GraphModule, inputs: BoundInputs) -> Recorded:
    """Node -> what it gives for the inputs: a tensor of its own, or anything else as it is.

    Raises:
        ModelError: the module fails on the inputs.
    """
    recorder = _Recorder(traced)
    arguments = inputs.arguments
    given = [arguments[n.target] for n in traced.graph.nodes if n.op == "placeholder"]
    try:
        with torch.no_grad():
            recorder.run(*given)
    except FORWARD_RAISES as error:
        shapes = {name: tuple(x.shape) for name, x in inputs.tensors.items()}
        raise ModelError(
            f"{type(traced).__name__} fails on example inputs of shapes {shapes}: "
            f"{' '.join(str(error).split())[:300]}. Give inputs that forward takes."
        ) from error
    return recorder.values
