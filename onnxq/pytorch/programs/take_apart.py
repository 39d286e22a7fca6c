"""Functions of a program that are written as several, so that each tensor in them has a node.

    silu(x)                               =  x sigmoid(x)
    glu(x)                                =  a sigmoid(b),  a and b the halves of x
    mish(x)                               =  x tanh(softplus(x))
    scaled_dot_product_attention(q, k, v) =  softmax((c q) (c k)^T + mask) v,  c = root of the scale
    mean(x, (2, 3))                       =  flatten(adaptive_avg_pool2d(x, 1), 1)

torch's exporter writes the same in ONNX, or onnxq does. A quantizer sits between two of these
nodes, in the training graph as in the ONNX model.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram

from onnxq.pytorch.programs.leaf_calls import arguments

_KEPT_META = ("nn_module_stack", "stack_trace", "torch_fn", "source_fn_stack")
_SPATIAL_RANK = 4  # of what has two axes of space
_aten = torch.ops.aten


def take_apart(program: ExportedProgram) -> None:
    """Writes each of the functions above as the nodes on its right side, in place."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        rule = _RULES.get(node.target)
        if rule is None:
            continue
        with graph.inserting_before(node):
            result = rule(_Writer(graph, node), **arguments(node))
        if result is None:
            continue
        node.replace_all_uses_with(result)
        graph.erase_node(node)
        result.name = node.name  # which the program's signature may name, and users do
    program.graph_module.recompile()


class _Writer:
    """Writes nodes in the place of one; each with what it gives for the example inputs."""

    def __init__(self, graph: fx.Graph, node: fx.Node) -> None:
        self._graph = graph
        self._meta = {key: node.meta[key] for key in _KEPT_META if key in node.meta}
        self._mode: FakeTensorMode = node.meta["val"].fake_mode

    def __call__(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """The node of a call."""
        made = self._graph.call_function(target, args, kwargs)
        with self._mode:
            value = target(*map(value_of, args), **{k: value_of(v) for k, v in kwargs.items()})
        made.meta = {**self._meta, "val": value}
        return made

    def sizes(self, x: fx.Node, axes: tuple[int, ...]) -> list[Any]:
        """Lengths of axes: numbers, or nodes where they are dynamic."""
        shape = value_of(x).shape
        return [
            shape[axis] if isinstance(shape[axis], int) else self(_aten.sym_size.int, x, axis)
            for axis in (axis % len(shape) for axis in axes)
        ]


def value_of(argument: Any) -> Any:
    """A fake tensor of what a node gives for the example inputs; else the argument."""
    if isinstance(argument, torch.fx.Node):
        return argument.meta["val"]
    if isinstance(argument, list | tuple):
        return type(argument)(map(value_of, argument))
    return argument


# --- the rules


def _mish(write: _Writer, self: fx.Node) -> fx.Node:
    gate = write(_aten.tanh.default, write(_aten.softplus.default, self))
    return write(_aten.mul.Tensor, self, gate)


def _glu(write: _Writer, self: fx.Node, dim: int = -1) -> fx.Node | None:
    length = value_of(self).shape[dim]
    if not isinstance(length, int):
        return None
    half = length // 2
    a = write(_aten.slice.Tensor, self, dim, 0, half)
    b = write(_aten.slice.Tensor, self, dim, half, length)
    return write(_aten.mul.Tensor, a, write(_aten.sigmoid.default, b))


def _mean(
    write: _Writer,
    self: fx.Node,
    dim: list[int] | None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> fx.Node | None:
    rank = value_of(self).ndim
    if rank != _SPATIAL_RANK or dtype is not None or sorted(d % rank for d in dim or ()) != [2, 3]:
        return None
    pooled = write(_aten.adaptive_avg_pool2d.default, self, [1, 1])
    return pooled if keepdim else write(_aten.flatten.using_ints, pooled, 1)


def _attention(
    write: _Writer,
    query: fx.Node,
    key: fx.Node,
    value: fx.Node,
    attn_mask: fx.Node | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> fx.Node | None:
    features = value_of(query).shape[-1]
    if not isinstance(features, int):
        return None
    if enable_gqa:
        key, value = (_repeated(write, x, value_of(query).shape[-3]) for x in (key, value))
    multiplier = features**-0.5 if scale is None else scale
    root = math.sqrt(abs(multiplier))
    columns = write(_aten.transpose.int, key, -2, -1)
    if multiplier < 0:
        query = write(_aten.neg.default, query)
    if root != 1.0:
        query, columns = (write(_aten.mul.Tensor, x, root) for x in (query, columns))
    scores = write(_aten.matmul.default, query, columns)
    mask = _causal(write, query, key) if is_causal else attn_mask
    if mask is not None:
        scores = write(_aten.add.Tensor, scores, _added(write, mask, value_of(scores).dtype))
    weights = write(_aten.softmax.int, scores, -1)
    if dropout_p:
        weights = write(_aten.dropout.default, weights, dropout_p, False)
    return write(_aten.matmul.default, weights, value)


def _repeated(write: _Writer, x: fx.Node, heads: int) -> fx.Node:
    """Each head of x as often as queries share it."""
    times = heads // int(value_of(x).shape[-3])
    if times == 1:
        return x
    rank = value_of(x).ndim
    apart = write(_aten.unsqueeze.default, x, rank - 2)
    sizes = [-1] * (rank + 1)
    sizes[rank - 2] = times
    repeated = write(_aten.expand.default, apart, sizes)
    return write(_aten.flatten.using_ints, repeated, rank - 3, rank - 2)


def _causal(write: _Writer, query: fx.Node, key: fx.Node) -> fx.Node:
    """Mask (L, S) of the keys that are not behind the query."""
    sizes = [*write.sizes(query, (-2,)), *write.sizes(key, (-2,))]
    ones = write(_aten.ones.default, sizes, dtype=torch.float32, device=torch.device("cpu"))
    return write(_aten.gt.Scalar, write(_aten.tril.default, ones), 0)


def _added(write: _Writer, mask: fx.Node, dtype: torch.dtype) -> fx.Node:
    """Summand of the scores; of a mask of bools, the least number where it leaves out.

    Not -inf: a row that is left out whole has no softmax then. The exporter does the same.
    """
    if value_of(mask).dtype != torch.bool:
        return mask
    return write(_aten.where.Scalar, mask, 0.0, torch.finfo(dtype).min)


_RULES: dict[Any, Callable[..., fx.Node | None]] = {
    _aten.silu.default: lambda write, self: write(
        _aten.mul.Tensor, self, write(_aten.sigmoid.default, self)
    ),
    _aten.mish.default: _mish,
    _aten.glu.default: _glu,
    _aten.mean.dim: _mean,
    _aten.scaled_dot_product_attention.default: _attention,
}
