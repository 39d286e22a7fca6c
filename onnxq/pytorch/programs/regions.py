"""Regions of a program (torch.no_grad, autocast), as plain operators of its graph.

    with torch.no_grad(): y = conv(x)    y = detach(conv(x))
    with torch.autocast(...): y = f(x)   y = f(x), in float32

torch.export puts the operators of a region into a graph of its own, which neither names nor passes
look into.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from onnxq.errors import UnsupportedError

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

aten = torch.ops.aten

_NO_GRAD = "wrap_with_set_grad_enabled"
_AUTOCAST = "wrap_with_autocast"
_BATCHED = "torch._functorch.predispatch"
"""Module of what torch.vmap and torch.func leave in a program: it runs inside of them alone."""
_DTYPE_CHECK = aten._assert_tensor_metadata.default  # noqa: SLF001  # an operator


def inline_regions(program: ExportedProgram) -> None:
    """Puts the operators of all regions into the program's graph, in place.

    Raises:
        UnsupportedError: a region of torch.vmap, whose operators are of one part of the batch.
    """
    module = program.graph_module
    if any(getattr(node.target, "__module__", "") == _BATCHED for node in module.graph.nodes):
        raise UnsupportedError(
            "forward calls torch.vmap, or a transform of torch.func, whose operators have no place "
            "in a training graph. Write it with broadcasting, torch.einsum or torch.bmm; "
            "onnxq.export takes it as it is, for quantization without training."
        )
    outputs = set(map(str, program.graph_signature.user_outputs))
    regions = [node for node in module.graph.nodes if _is_region(node)]
    for node in regions:
        with module.graph.inserting_before(node):
            results = _inlined(module, node, module, {})
        for part in list(node.users):
            position: Any = part.args[1]
            _take_place(part, results[position], part.name in outputs)
        _erase(node)
    if any(str(node.target) == _AUTOCAST for node in regions):
        _drop_dtype_checks(module.graph)
    module.graph.lint()
    module.delete_all_unused_submodules()
    module.recompile()


def _is_region(node: fx.Node) -> bool:
    return node.op == "call_function" and str(node.target) in (_NO_GRAD, _AUTOCAST)


def _take_place(part: fx.Node, result: fx.Node, is_output: bool) -> None:
    """Lets a result of a region be read in the place of the node that took it out."""
    graph = part.graph
    if is_output:  # the program's signature has its name, and one result may be two outputs
        with graph.inserting_before(part):
            source, result = result, graph.call_function(aten.alias.default, (result,))
        result.meta = {**part.meta, "val": source.meta["val"]}
    part.replace_all_uses_with(result)
    name = part.name
    graph.erase_node(part)
    if is_output:
        result.name = name


def _erase(region: fx.Node) -> None:
    """Takes a region's node out of the graph, and that of its body."""
    bodies = [x for x in region.all_input_nodes if x.op == "get_attr"]
    region.graph.erase_node(region)
    for body in bodies:
        if not body.users:
            region.graph.erase_node(body)


def _drop_dtype_checks(graph: fx.Graph) -> None:
    """Takes away what holds dtypes against those that autocast makes."""
    for node in list(graph.nodes):
        if node.target is _DTYPE_CHECK:
            graph.erase_node(node)


def _inlined(
    root: fx.GraphModule, region: fx.Node, owner: nn.Module, outer: dict[fx.Node, Any]
) -> list[fx.Node]:
    """The results of a region, whose operators are written where the graph's cursor is.

    Args:
        root: whose graph is written to.
        region: the node that runs it.
        owner: of the region's body.
        outer: node of the graph that holds the region -> node of the root's graph.
    """
    args: tuple[Any, ...] = region.args
    position = next(i for i, a in enumerate(args) if _is_body(a))
    body: Any = operator.attrgetter(args[position].target)(owner)
    given = [outer.get(a, a) for a in args[position + 1 :]]
    inner = [n for n in body.graph.nodes if n.op == "placeholder"]
    values: dict[fx.Node, Any] = dict(zip(inner, given, strict=True))
    for step in body.graph.nodes:
        if _is_region(step):
            values[step] = _inlined(root, step, body, values)
        elif step.target is operator.getitem and isinstance(values.get(step.args[0]), list):
            values[step] = values[step.args[0]][step.args[1]]
        elif step.op == "call_function":
            values[step] = root.graph.node_copy(step, values.__getitem__)
        elif step.op == "get_attr" and not all(map(_is_region, step.users)):
            values[step] = _attribute(root, step, body)
    (end,) = [n for n in body.graph.nodes if n.op == "output"]
    results = end.args[0] if isinstance(end.args[0], tuple | list) else [end.args[0]]
    found = [values[result] for result in results]
    if _stops_gradients(region):
        return [_detached(root.graph, x) for x in found]
    return found


def _is_body(argument: object) -> bool:
    return isinstance(argument, fx.Node) and argument.op == "get_attr"


def _stops_gradients(region: fx.Node) -> bool:
    return str(region.target) == _NO_GRAD and region.args[0] is False


def _attribute(root: fx.GraphModule, step: fx.Node, body: nn.Module) -> fx.Node:
    """A part of the region's body (a branch of torch.cond) as one of the root's."""
    name = f"of_region_{step.name}"
    while hasattr(root, name):
        name += "_"
    setattr(root, name, operator.attrgetter(str(step.target))(body))
    return root.graph.get_attr(name)


def _detached(graph: fx.Graph, x: fx.Node) -> fx.Node:
    if not isinstance(x.meta.get("val"), torch.Tensor):
        return x
    made = graph.call_function(aten.detach.default, (x,))
    made.meta = dict(x.meta)
    return made
