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
        weight, bias = given_to(root, node)
        if wrapper.takes_weight:
            assert weight is not None, "the first of a layer's values"
            wrapper.give(weight.clone(), None if bias is None else bias.clone())


def forget_weights(module: nn.Module) -> None:
    """Takes the computation of weights, of which quantized layers have codes, out of the graphs.

    A layer that stays float holds the numbers, where the parameters that it shared are codes now.

    Args:
        module: converted, behind `settle_weights`; changed in place.
    """
    changed: set[fx.GraphModule] = set()
    for root, node, wrapper in list(_calls(module)):
        if wrapper.takes_weight and not _has_lost(root, node):
            wrapper.strip()
            continue
        if wrapper.takes_weight:
            wrapper.layer = wrapper.filled()
        node.args = node.args[:1]
        changed.add(root)
    for root in changed:
        root.graph.eliminate_dead_code()
        root.recompile()


def _has_lost(root: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a call reads parameters that the module no longer has."""
    for one in _needed(_given(node)):
        if one.op == "get_attr":
            parent, _, name = str(one.target).rpartition(".")
            held = getattr(root.get_submodule(parent), name, None)
            if not isinstance(held, torch.Tensor):
                return True
    return False


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


def given_to(
    root: fx.GraphModule, node: fx.Node
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Weight and bias that a GivenWeight is called with, in eval mode, without gradients.

    One that is a parameter, or moves one only, shares its storage.

    Args:
        root: as it is now; its modes are as before afterwards.
        node: that calls it.
    """
    needed = _needed(_given(node))
    modes = {part: part.training for part in root.modules()}
    run = fx.Interpreter(root, garbage_collect_values=False)
    tensors = (*root.parameters(), *root.buffers())
    device = next((x.device for x in tensors), torch.device("cpu"))
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
    weight, bias = (*(None if x is None else x.detach() for x in values), None, None)[:2]
    return weight, bias


def _given(node: fx.Node) -> list[fx.Node]:
    """Nodes of the weight and the bias of a call."""
    return [x for x in node.args[1:] if isinstance(x, fx.Node)]


def _needed(wanted: list[fx.Node]) -> set[fx.Node]:
    """Nodes that compute these, and they themselves."""
    needed, waiting = set[fx.Node](), list(wanted)
    while waiting:
        one = waiting.pop()
        if one not in needed:
            needed.add(one)
            waiting += [] if _is_device(one) else one.all_input_nodes
    return needed


def _is_device(node: fx.Node) -> bool:
    """Whether a node gives the device of an input."""
    return node.target is getattr and node.args[1:] == ("device",)
