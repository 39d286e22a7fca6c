"""Parametrized weights are computed once, before conversion quantizes and stores them.

w = g * v / |v|,  layer(x, w)   -->   layer(x), which stores w quantized
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn

from onnxq.pytorch.arguments.forward import eval_mode
from onnxq.pytorch.modules.parametrized_layer import ParametrizedLayer


def materialize_weights(module: nn.Module) -> None:
    """Stores each layer's computed weight, so that conversion can quantize it."""
    for root, node, wrapper in list(_calls(module)):
        weight, bias = computed_parameters(root, node)
        if wrapper.takes_weight:
            assert weight is not None, "the first of a layer's values"
            wrapper.set_parameters(weight.clone(), None if bias is None else bias.clone())


def remove_parametrizations(module: nn.Module) -> None:
    """Removes the computation of weights from the graphs; a quantized layer stores its own."""
    changed: set[fx.GraphModule] = set()
    for root, node, wrapper in list(_calls(module)):
        if wrapper.takes_weight:
            wrapper.clear_parameters()
            continue
        node.args = node.args[:1]
        changed.add(root)
    for root in changed:
        root.graph.eliminate_dead_code()
        root.recompile()


def keep_parameters(module: nn.Module, before: dict[str, nn.Parameter]) -> None:
    """Stores parameters that calls in float still read, and that conversion took from a layer."""
    lost = before.keys() - dict(module.named_parameters(remove_duplicate=False))
    for path, root in module.named_modules():
        nodes = root.graph.find_nodes(op="get_attr") if isinstance(root, fx.GraphModule) else ()
        for node in nodes:
            name = f"{path}.{node.target}".lstrip(".")
            if name in lost and node.users:
                node.target = f"{name.replace('.', '_')}_in_float"
                root.register_buffer(node.target, before[name].detach())
                root.recompile()


def _calls(module: nn.Module) -> Iterator[tuple[fx.GraphModule, fx.Node, ParametrizedLayer]]:
    for root in module.modules():
        if not isinstance(root, fx.GraphModule):
            continue
        for node in root.graph.nodes:
            if node.op != "call_module":
                continue
            called = root.get_submodule(str(node.target))
            if isinstance(called, ParametrizedLayer):
                yield root, node, called


def computed_parameters(
    root: fx.GraphModule, node: fx.Node
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Computes the weight and bias of one call, in eval mode, without gradients.

    A weight that is a parameter or a view of one shares its storage.
    """
    needed = _needed([x for x in node.args[1:] if isinstance(x, fx.Node)])  # weight and bias
    run = fx.Interpreter(root, garbage_collect_values=False)
    tensors = (*root.parameters(), *root.buffers())
    device = next((x.device for x in tensors), torch.device("cpu"))
    with eval_mode(root), torch.no_grad():
        for one in root.graph.nodes:
            if one in needed:
                run.env[one] = device if _is_device(one) else run.run_node(one)
    values: list[Any] = [run.env[x] if isinstance(x, fx.Node) else None for x in node.args[1:]]
    weight, bias = (*(None if x is None else x.detach() for x in values), None, None)[:2]
    return weight, bias


def _needed(wanted: list[fx.Node]) -> set[fx.Node]:
    """Returns these nodes and all that they are computed from."""
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
