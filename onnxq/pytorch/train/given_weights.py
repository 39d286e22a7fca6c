"""Weights that a prepared model computes, as numbers: what conversion makes codes of.

w = g * v / |v|,  layer(x, w)   -->   layer(x) with the codes of w
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from onnxq.pytorch.modules.given_weight import GivenWeight

if TYPE_CHECKING:
    from collections.abc import Iterator


def settle_weights(module: nn.Module) -> None:
    """Gives every GivenWeight in a module the weight that it would be called with now.

    Args:
        module: with graphs of torch.fx in it, or none; its modes are as before afterwards.
    """
    for root, node, wrapper in list(_calls(module)):
        weight, bias = (*_evaluated(root, node), None)[:2]
        if wrapper.takes_weight:
            assert weight is not None, "the first of a layer's values"
            wrapper.give(weight, bias)


def forget_weights(module: nn.Module) -> None:
    """Takes the computation of weights, of which quantized layers have codes, out of the graphs.

    Args:
        module: converted; changed in place.
    """
    changed: set[fx.GraphModule] = set()
    for root, node, wrapper in list(_calls(module)):
        if not wrapper.takes_weight:
            node.args = node.args[:1]
            changed.add(root)
    for root in changed:
        root.graph.eliminate_dead_code()
        root.recompile()


def _calls(module: nn.Module) -> Iterator[tuple[fx.GraphModule, fx.Node, GivenWeight]]:
    for root in module.modules():
        if not isinstance(root, fx.GraphModule):
            continue
        for node in root.graph.nodes:
            if node.op != "call_module":
                continue
            called = root.get_submodule(str(node.target))
            if isinstance(called, GivenWeight):
                yield root, node, called


def _evaluated(root: fx.GraphModule, node: fx.Node) -> list[torch.Tensor | None]:
    """Weight and bias of a call, in eval mode, without gradients."""
    wanted = [x for x in node.args[1:] if isinstance(x, fx.Node)]
    needed, waiting = set[fx.Node](), list(wanted)
    while waiting:
        one = waiting.pop()
        if one not in needed:
            needed.add(one)
            waiting += [] if _is_device(one) else one.all_input_nodes
    modes = {part: part.training for part in root.modules()}
    run = fx.Interpreter(root, garbage_collect_values=False)
    device = next(iter(root.parameters())).device
    try:
        root.eval()
        with torch.no_grad():
            for one in root.graph.nodes:
                if one in needed:
                    run.env[one] = device if _is_device(one) else run.run_node(one)
    finally:
        for part, training in modes.items():
            part.training = training
    values: list[Any] = [run.env[x] if isinstance(x, fx.Node) else None for x in node.args[1:]]
    return [None if x is None else x.detach().clone() for x in values]


def _is_device(node: fx.Node) -> bool:
    """Whether a node gives the device of an input."""
    return node.target is getattr and node.args[1:] == ("device",)
