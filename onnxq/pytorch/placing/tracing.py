"""A module as a torch.fx graph in which every weight belongs to a module that is called once.

What the graph computes is what the module computes in eval mode; it trains like the module. These
rules bring it to that form, so that quantizers have one place to sit:

    F.conv2d(x, self.weight, self.bias)  =  Conv2d(x), with the same parameters
    m(x), m(y)                           =  m(x), m'(y), where m' shares m's parameters
    F.dropout(x, p, self.training)       =  Dropout(p)(x): on in train mode, off in eval mode
    x += y, relu_(x), ReLU(inplace)      =  x + y, relu(x), ReLU()
    x.mean((2, 3))                       =  flatten(adaptive_avg_pool2d(x, 1), 1)
    silu(x)                              =  x * sigmoid(x)
    scaled_dot_product_attention(q, k, v) = softmax((c q) (c k)^T) v,  c = d^(-1/4)
    nn.MultiheadAttention                =  layers and products (pytorch.modules.open_attention)
    nn.TransformerEncoder and its kin    =  without shortcuts (pytorch.modules.transformers)
"""

from __future__ import annotations

import copy
import inspect
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch.nn import functional

from onnxq.errors import UnsupportedError
from onnxq.pytorch.modules.open_attention import OpenAttention, added_mask, attended, taken_apart
from onnxq.pytorch.modules.transformers import without_shortcuts
from onnxq.pytorch.modules.transposed import WEIGHTED
from onnxq.pytorch.nn.intrinsic import BATCH_NORMS
from onnxq.pytorch.placing.recorded import record
from onnxq.pytorch.placing.symbolic import symbolic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxq.pytorch.arguments.bound_inputs import BoundInputs

SCOPE = "onnxq_scope"
"""Key of a node's meta: path of the module that it calls or that calls it; "" is the model."""

SHAPE = "onnxq_shape"
"""Key of a node's meta: shape of the tensor that it gives for the example inputs."""

PADS = (
    nn.ZeroPad1d,
    nn.ZeroPad2d,
    nn.ZeroPad3d,
    nn.ConstantPad1d,
    nn.ConstantPad2d,
    nn.ConstantPad3d,
)
DTYPE = "onnxq_dtype"
"""Key of a node's meta: dtype of that tensor."""
SPATIAL_RANK = 4  # of what has two axes of space

_OUT_OF_PLACE = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    functional.relu_: functional.relu,
    torch.relu_: torch.relu,
}
_DROPOUTS: dict[Any, type[nn.Module]] = {
    functional.dropout: nn.Dropout,
    functional.dropout1d: nn.Dropout1d,
    functional.dropout2d: nn.Dropout2d,
    functional.dropout3d: nn.Dropout3d,
}
_CONVS: dict[Any, Any] = {
    torch.conv1d: nn.Conv1d,
    torch.conv2d: nn.Conv2d,
    torch.conv3d: nn.Conv3d,
}
_CONV_ARGUMENTS = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
_TRANSPOSED_CONVS: dict[Any, Any] = {
    functional.conv_transpose1d: nn.ConvTranspose1d,
    functional.conv_transpose2d: nn.ConvTranspose2d,
    functional.conv_transpose3d: nn.ConvTranspose3d,
}
_TRANSPOSED_ARGUMENTS = {
    "stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1,
}  # fmt: skip


def trace(model: nn.Module, inputs: BoundInputs) -> fx.GraphModule:
    """The graph of the model; it holds the model's own modules and parameters, in eval mode.

    Args:
        model: left in eval mode. Give a copy if the original is to stay as it is.
        inputs: example inputs; arguments that they leave out keep their defaults.

    Raises:
        UnsupportedError: forward cannot be traced: it branches on the values of tensors; or the
            model is one layer that is traced whole.
        ModelError: it fails on the inputs.
    """
    if isinstance(model, (nn.MultiheadAttention, nn.RNNBase)):
        raise UnsupportedError(
            f"{type(model).__name__} by itself cannot be traced, a module that calls it can: give "
            "one with the layer as its submodule."
        )
    model = taken_apart(without_shortcuts(model.eval()), inputs)
    traced = symbolic(model, inputs)
    values = record(traced, inputs)
    for node in traced.graph.nodes:
        node.meta[SCOPE] = _scope(node)
        if isinstance(values[node], torch.Tensor):
            node.meta[SHAPE], node.meta[DTYPE] = tuple(values[node].shape), values[node].dtype
    for rule in (
        _out_of_place,
        _dropout_modules,
        _weights_of_convolutions,
        _weights_of_linears,
        _means_as_pools,
        _silus,
        _products_of_attention,
        _one_call_per_module,
    ):
        rule(traced)
    traced.graph.eliminate_dead_code()  # parameters that modules hold now
    traced.graph.lint()
    # a new one holds what the graph names and nothing else
    clean = fx.GraphModule(traced, traced.graph, type(model).__name__)
    return clean.eval()


def module_of(graph: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    """The module that a node calls; None for a function, method or attribute."""
    return graph.get_submodule(str(node.target)) if node.op == "call_module" else None


def is_zero_padding(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node puts zeros around its first argument, which the exporter folds into a Conv."""
    module = module_of(graph, node)
    if module is not None:
        return isinstance(module, PADS) and getattr(module, "value", 0) == 0
    if node.op != "call_function" or node.target is not functional.pad:
        return False
    names = ("input", "pad", "mode", "value")
    bound: dict[str, Any] = dict(zip(names, node.args, strict=False)) | node.kwargs
    return bound.get("mode", "constant") == "constant" and not bound.get("value")


def _scope(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {"": None}
    if node.op == "call_module":
        around = [entry for entry in stack.values() if entry and entry[1] is OpenAttention]
        return str(around[-1][0] if around else node.target)
    return str(list(stack)[-1])


# --- the rules


def _out_of_place(traced: fx.GraphModule) -> None:
    for node in traced.graph.nodes:
        if node.op == "call_function" and node.target in _OUT_OF_PLACE:
            node.target = _OUT_OF_PLACE[node.target]
        if node.op == "call_method" and node.target.endswith("_") and node.target[-2:] != "__":
            plain = node.target.removesuffix("_")
            if hasattr(torch.Tensor, plain):
                node.target = plain
        if "inplace" in node.kwargs:
            node.kwargs = {**node.kwargs, "inplace": False}
        module = module_of(traced, node)
        if module is not None and getattr(module, "inplace", False):
            module.inplace = False  # type: ignore[assignment]  # modules take any attribute


def _dropout_modules(traced: fx.GraphModule) -> None:
    for node in _calls(traced, _DROPOUTS):
        bound = _arguments(node, functional.dropout)
        dropout = _DROPOUTS[node.target](bound["p"])
        _call(traced, node, dropout, bound["input"])


def _weights_of_convolutions(traced: fx.GraphModule) -> None:
    for node in _calls(traced, _CONVS | _TRANSPOSED_CONVS):
        transposed = node.target in _TRANSPOSED_CONVS
        defaults: dict[str, Any] = _TRANSPOSED_ARGUMENTS if transposed else _CONV_ARGUMENTS
        names = ("input", "weight", "bias", *defaults)
        bound: dict[str, Any] = {"bias": None, **defaults}
        bound |= {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        parameters = _parameters(traced, bound["weight"], bound["bias"])
        if parameters is None:
            continue
        weight, bias = parameters
        channels = (weight.shape[1] * bound["groups"], weight.shape[0])
        conv = (_CONVS | _TRANSPOSED_CONVS)[node.target](
            *(reversed(channels) if transposed else channels),
            tuple(weight.shape[2:]),
            **{name: bound[name] for name in defaults},
            bias=bias is not None,
            device="meta",
        )
        conv.weight, conv.bias = weight, bias
        _call(traced, node, conv, bound["input"])


def _weights_of_linears(traced: fx.GraphModule) -> None:
    for node in _calls(traced, {functional.linear: None}):
        names = ("input", "weight", "bias")
        bound: dict[str, Any] = dict(zip(names, node.args, strict=False)) | node.kwargs
        parameters = _parameters(traced, bound["weight"], bound.get("bias"))
        if parameters is None:
            continue
        weight, bias = parameters
        rows, columns = weight.shape
        linear = nn.Linear(columns, rows, bias=bias is not None, device="meta")
        linear.weight = weight
        if bias is not None:
            linear.bias = bias
        _call(traced, node, linear, bound["input"])


def _means_as_pools(traced: fx.GraphModule) -> None:
    for node in list(traced.graph.nodes):
        method = node.op == "call_method" and node.target == "mean"
        if not method and not (node.op == "call_function" and node.target is torch.mean):
            continue
        bound: dict[str, Any] = dict(zip(("input", "dim", "keepdim"), node.args, strict=False))
        bound |= node.kwargs
        if not _is_over_space(bound):
            continue
        with traced.graph.inserting_before(node):
            pool = traced.graph.call_function(functional.adaptive_avg_pool2d, (bound["input"], 1))
            result = pool
            if not bound.get("keepdim", False):
                result = traced.graph.call_function(torch.flatten, (pool, 1))
        for new in (pool, result):
            new.meta = dict(node.meta)
        node.replace_all_uses_with(result)
        traced.graph.erase_node(node)


def _is_over_space(mean: dict[str, Any]) -> bool:
    """Whether a mean is that of axes 2 and 3 of 4."""
    dim, rank = mean.get("dim"), len(mean["input"].meta.get(SHAPE, ()))
    if rank != SPATIAL_RANK or not isinstance(dim, tuple | list):
        return False
    return mean.keys() <= {"input", "dim", "keepdim"} and sorted(d % rank for d in dim) == [2, 3]


def _silus(traced: fx.GraphModule) -> None:
    for node in list(traced.graph.nodes):
        called = isinstance(module_of(traced, node), nn.SiLU)
        if not called and not (node.op == "call_function" and node.target is functional.silu):
            continue
        x = node.all_input_nodes[0]
        with traced.graph.inserting_before(node):
            gate = traced.graph.call_function(torch.sigmoid, (x,))
            result = traced.graph.call_function(operator.mul, (x, gate))
        for new in (gate, result):
            new.meta = dict(node.meta)
        node.replace_all_uses_with(result)
        traced.graph.erase_node(node)


def _products_of_attention(traced: fx.GraphModule) -> None:
    """Writes attention as the exporter does, reshapes included, so that each tensor has a node."""
    tracer = fx.proxy.GraphAppendingTracer(traced.graph)
    for node in _calls(traced, {functional.scaled_dot_product_attention: None}):
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
        bound: dict[str, Any] = dict(zip(names, node.args, strict=False)) | node.kwargs
        shape = bound["key"].meta.get(SHAPE, ())
        if bound.get("enable_gqa") or len(shape) != SPATIAL_RANK:
            continue  # placement says that it cannot be placed
        before = set(traced.graph.nodes)
        with traced.graph.inserting_before(node):
            q, k, v = (_proxy(bound[name], tracer) for name in names[:3])
            result: Any = attended(
                q,
                k,
                v,
                _mask_of_attention(bound, tracer),
                (bound.get("scale") or shape[-1] ** -0.5) ** 0.5,
                shape[1],
            )
        for new in set(traced.graph.nodes) - before:
            new.meta = dict(node.meta)
        node.replace_all_uses_with(result.node)
        traced.graph.erase_node(node)


def _mask_of_attention(bound: dict[str, Any], tracer: fx.proxy.TracerBase) -> Any:
    """Summand of the scores, of attn_mask or is_causal; None where there is nothing."""
    mask = bound.get("attn_mask")
    if bound.get("is_causal"):
        query, key = (_proxy(bound[name], tracer) for name in ("query", "key"))
        ones = query.new_ones((query.size(-2), key.size(-2)))
        return added_mask(ones.tril().eq(0))
    if mask is None:
        return None
    proxy = _proxy(mask, tracer)
    return added_mask(proxy.logical_not()) if mask.meta[DTYPE] == torch.bool else proxy


def _proxy(node: fx.Node, tracer: fx.proxy.TracerBase) -> Any:
    """A stand-in for the node's tensor in functions that are traced."""
    return fx.Proxy(node, tracer)


def _one_call_per_module(traced: fx.GraphModule) -> None:
    called: set[str] = set()
    for node in list(traced.graph.nodes):
        module = module_of(traced, node)
        if not isinstance(module, (*WEIGHTED, *BATCH_NORMS)):
            continue
        if node.target in called:
            _retarget(traced, node, _sharing(module))
        called.add(node.target)


# --- small things


def _calls(traced: fx.GraphModule, targets: dict[Any, Any]) -> Iterator[fx.Node]:
    for node in list(traced.graph.nodes):
        if node.op == "call_function" and node.target in targets:
            yield node


def _arguments(node: fx.Node, function: Callable[..., object]) -> dict[str, Any]:
    bound = inspect.signature(function).bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    return bound.arguments


def _parameters(
    traced: fx.GraphModule, weight: object, bias: object
) -> tuple[nn.Parameter, nn.Parameter | None] | None:
    """The parameters that two get_attr nodes stand for; None where something else computes them."""
    found: list[nn.Parameter | None] = []
    for argument in (weight, bias):
        if argument is None:
            found.append(None)
            continue
        if not isinstance(argument, fx.Node) or argument.op != "get_attr":
            return None
        value = operator.attrgetter(str(argument.target))(traced)
        if not isinstance(value, nn.Parameter):
            return None
        found.append(value)
    return None if found[0] is None else (found[0], found[1])


def _call(traced: fx.GraphModule, node: fx.Node, module: nn.Module, argument: fx.Node) -> None:
    """Makes the node a call of a new module."""
    node.args, node.kwargs = (argument,), {}
    node.op = "call_module"
    _retarget(traced, node, module)


def _retarget(traced: fx.GraphModule, node: fx.Node, module: nn.Module) -> None:
    scope = node.meta[SCOPE]
    path = f"{scope}_{node.name}" if scope else node.name
    while hasattr(traced, path.split(".")[0]) and _has(traced, path):
        path += "_"
    traced.add_submodule(path, module)
    node.target = path


def _has(traced: fx.GraphModule, path: str) -> bool:
    try:
        operator.attrgetter(path)(traced)
    except AttributeError:
        return False
    return True


def _sharing(module: nn.Module) -> nn.Module:
    """Another module with the same parameters, buffers and submodules: they train as one."""
    twin = copy.copy(module)
    for kind in ("_parameters", "_buffers", "_modules"):
        setattr(twin, kind, dict(getattr(module, kind)))
    return twin
