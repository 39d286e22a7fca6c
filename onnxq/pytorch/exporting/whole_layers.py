"""LSTM and GRU layers as one operator each while a module is traced.

torch.export works out the shapes of their results by unrolling them over time, which takes long and
fixes the length of the sequence. `torch.ops.onnxq.lstm` and `gru` have a rule for shapes instead;
they become the ONNX nodes that the exporter's own translations of torch.lstm and torch.gru make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence  # custom_op reads the annotations
from typing import Any, Self

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common
import torch
from onnxscript import opset18
from onnxscript.function_libs.torch_lib.ops import core
from torch import Tensor
from torch.overrides import TorchFunctionMode

from onnxq.graph.edit import FreeNames
from onnxq.pytorch.exporting import packed_sequences  # noqa: F401  # registers the operators
from onnxq.pytorch.exporting.packed_sequences import padded_call, without_size_check
from onnxq.pytorch.numerics.dynamic_ops import ONNX_GATES
from onnxq.targets.speedups import GATES

# --- ONNX nodes of the operators in packed_sequences: LSTM, GRU and RNN with sequence_lens.

op: Any = opset18  # whose types leave out what a translation is given


def _recurrence(  # type: ignore[no-untyped-def]  # onnxscript reads it
    x,
    lengths,
    hx,
    params,
    has_biases: bool,
    num_layers: int,
    dropout: float,  # noqa: ARG001  # of training
    train: bool,  # noqa: ARG001  # an exported model does not
    bidirectional: bool,
    kind: str,
):
    directions = 2 if bidirectional else 1
    lengths = op.Cast(lengths, to=onnx.TensorProto.INT32)
    each = (4 if has_biases else 2) * directions
    last: list[tuple[Any, ...]] = []
    for layer in range(num_layers):
        own = params[layer * each : (layer + 1) * each]
        weights = _stacked(own, directions, kind)
        part = [layer * directions], [(layer + 1) * directions], [0]
        starts = [op.Slice(state, *part) for state in hx] if num_layers > 1 else list(hx)
        y, *states = _layer(kind, directions, int(hx[0].shape[2]), (x, *weights, lengths, *starts))
        last.append(tuple(states))
        # (T, D, N, H) -> (T, N, D H)
        x = op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), op.Constant(value_ints=[0, 0, -1]))
    states = [op.Concat(*parts, axis=0) if num_layers > 1 else parts[0] for parts in zip(*last)]  # noqa: B905  # as many of each layer
    return x, states[0], states[-1] if len(states) > 1 else op.Identity(states[0])


def _layer(kind: str, directions: int, hidden: int, slots: Sequence[Any]) -> tuple[Any, ...]:
    """The node of one layer: Y and its final states."""
    options: dict[str, Any] = {
        "direction": "bidirectional" if directions > 1 else "forward",
        "hidden_size": hidden,
    }
    if kind == "lstm":
        return tuple(op.LSTM(*slots, **options))
    if kind == "gru":
        return tuple(op.GRU(*slots, linear_before_reset=1, **options))
    function = kind.removeprefix("rnn_").capitalize()  # of torch's name, ONNX's
    return tuple(op.RNN(*slots, activations=[function] * directions, **options))


def _stacked(params: Sequence[Any], directions: int, kind: str) -> tuple[Any, Any, Any]:
    """W, R and B of one layer: torch's parameters by direction, gates in ONNX's order."""
    count = len(params) // directions
    ordered = [_in_onnx_order(p, kind) for p in params]
    rows = [ordered[d * count : (d + 1) * count] for d in range(directions)]
    w, r = (_joined([row[i] for row in rows]) for i in (0, 1))
    if count == 2:
        return w, r, None
    return w, r, _joined([op.Concat(row[2], row[3], axis=0) for row in rows])


def _joined(parts: Sequence[Any]) -> Any:
    """Directions along a new first axis."""
    apart = [op.Unsqueeze(part, op.Constant(value_ints=[0])) for part in parts]
    return apart[0] if len(apart) == 1 else op.Concat(*apart, axis=0)


def _in_onnx_order(rows: Any, kind: str) -> Any:
    order = ONNX_GATES.get(kind.upper(), (0,))
    if len(order) == 1:
        return rows
    size = int(rows.shape[0]) // len(order)
    # slices of parameters become constants in the exporter's optimizer, which keeps a Split
    gates = [op.Slice(rows, [i * size], [(i + 1) * size], [0]) for i in order]
    return op.Concat(*gates, axis=0)


def _up_to_longest(x, lengths):  # type: ignore[no-untyped-def]  # onnxscript reads it
    zero, end = op.Constant(value_ints=[0]), op.ReduceMax(lengths, keepdims=1)
    return op.Slice(x, zero, end, zero)


PACKED_TABLE: dict[Callable[..., object], Callable[..., object]] = {
    torch.ops.onnxq.recurrence.default: _recurrence,
    torch.ops.onnxq.up_to_longest.default: _up_to_longest,
}
"""For torch.onnx.export: functions that emit the nodes."""


_BIDIRECTIONAL = 5  # of the arguments from `params` on


@torch.library.custom_op("onnxq::lstm", mutates_args=())
def lstm(
    x: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Results of torch.lstm: y (steps, batch, directions * hidden), h and c as in hx."""
    options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    run: Any = torch.lstm  # whose types want lists
    y, h, c = run(x, hx, params, *options)
    return y, h, c


@lstm.register_fake
def _(x: Tensor, hx: Sequence[Tensor], *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    h, c = (torch.empty_like(state) for state in hx)
    return _result(x, h, rest[_BIDIRECTIONAL]), h, c


@torch.library.custom_op("onnxq::gru", mutates_args=())
def gru(
    x: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """Results of torch.gru: y (steps, batch, directions * hidden), h as hx."""
    options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    run: Any = torch.gru
    y, h = run(x, hx, params, *options)
    return y, h


@gru.register_fake
def _(x: Tensor, hx: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    h = torch.empty_like(hx)
    return _result(x, h, rest[_BIDIRECTIONAL]), h


def _result(x: Tensor, h: Tensor, bidirectional: object) -> Tensor:
    return x.new_empty((*x.shape[:2], h.shape[2] * (2 if bidirectional else 1)))


_WHOLE: dict[str, Callable[..., Any]] = {"lstm": lstm, "gru": gru}
_BIASES = 3  # position of has_biases, of padded sequences; packed ones have the weights there

RECURRENT_TABLE: dict[Callable[..., object], Callable[..., object]] = {
    torch.ops.onnxq.lstm.default: core.aten_lstm,
    torch.ops.onnxq.gru.default: core.aten_gru,
    **PACKED_TABLE,
}
"""For torch.onnx.export: the exporter's own translations, and those of packed sequences."""


class WholeLayers(TorchFunctionMode):
    """A context in which recurrent layers call the operators above."""

    def __enter__(self) -> Self:
        self._unchecked = without_size_check()
        self._unchecked.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]  # torch's is not typed
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # torch's is not typed
        self._unchecked.__exit__(None, None, None)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Runs the function, or its operator."""
        padded = padded_call(func, args)
        if padded is not None:
            return padded
        whole = _WHOLE.get(getattr(func, "__name__", ""))
        if whole is not None and len(args) > _BIASES and isinstance(args[_BIASES], bool):
            return whole(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


_DIRECTIONS_LAST = [0, 2, 1, 3]
_MERGED = [0, 0, -1]  # 0 copies a size


def merge_directions(model: ir.Model) -> None:
    """Joins the directions of a layer's result by a constant shape, where it is computed.

        Reshape(Transpose(Y), Concat(steps, batch, directions * hidden))
            = Reshape(Transpose(Y), [0, 0, -1])

    Y (steps, directions, batch, hidden) of LSTM, GRU and RNN; nodes of the main graph.
    """
    graph, names = model.graph, FreeNames(model)
    for node in list(graph):
        shape = node.inputs[1] if node.op_type == "Reshape" else None
        layer = _layer_of(node.inputs[0]) if shape is not None else None
        if shape is None or layer is None or shape.is_initializer():
            continue
        node.replace_input_with(1, _constant(graph, names.value(f"{shape.name}_merged")))
        _set_shapes(layer, node)
    ir.passes.common.RemoveUnusedNodesPass()(model)


def _layer_of(value: ir.Value | None) -> ir.Node | None:
    """The layer whose result (steps, batch, directions, hidden) it is."""
    transpose = None if value is None else value.producer()
    if transpose is None or transpose.op_type != "Transpose":
        return None
    layer = transpose.inputs[0].producer() if transpose.inputs[0] is not None else None
    perm = transpose.attributes.get("perm")
    if layer is None or layer.op_type not in GATES or perm is None:
        return None
    return layer if list(perm.as_ints()) == _DIRECTIONS_LAST else None


def _constant(graph: ir.Graph, name: str) -> ir.Value:
    value = ir.val(name, const_value=ir.tensor(np.array(_MERGED, np.int64), name=name))
    graph.register_initializer(value)
    return value


def _set_shapes(layer: ir.Node, reshape: ir.Node) -> None:
    """The shapes of a layer's result and of what is made of it, as far as its input's is known."""
    x, turned = layer.inputs[0], reshape.inputs[0]
    split = layer.outputs[0].shape
    assert x is not None, "a layer reads a sequence"
    assert turned is not None, "it is the transposed result"
    if x.shape is None or split is None:
        return
    steps, batch, directions, hidden = x.shape[0], x.shape[1], split[1], split[3]
    if isinstance(directions, int) and isinstance(hidden, int):
        layer.outputs[0].shape = ir.Shape([steps, directions, batch, hidden])
        turned.shape = ir.Shape([steps, batch, directions, hidden])
        reshape.outputs[0].shape = ir.Shape([steps, batch, directions * hidden])
