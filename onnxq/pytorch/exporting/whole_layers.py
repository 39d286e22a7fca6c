"""LSTM, GRU and RNN layers as one operator each while a module is traced.

torch.export works out the shapes of their results by unrolling them over time, which takes long and
fixes the length of the sequence. `torch.ops.onnxq.recurrence` has a rule for shapes instead.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import onnx
import torch
from onnxscript import opset18
from torch.overrides import TorchFunctionMode

from onnxq.pytorch.exporting.packed_sequences import (
    KINDS,
    padded_call,
    recurrence,
    without_size_check,
)
from onnxq.pytorch.numerics.dynamic_ops import ONNX_GATES

# --- ONNX nodes of the operators in packed_sequences: LSTM, GRU and RNN, sequence_lens or none.

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
    batch_first: bool,
    kind: str,
):
    directions = 2 if bidirectional else 1
    if lengths is not None:
        lengths = op.Cast(lengths, to=onnx.TensorProto.INT32)
    if batch_first:
        x = op.Transpose(x, perm=[1, 0, 2])
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
    if batch_first:
        x = op.Transpose(x, perm=[1, 0, 2])
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


RECURRENT_TABLE: dict[Callable[..., object], Callable[..., object]] = {
    torch.ops.onnxq.recurrence.default: _recurrence,
    torch.ops.onnxq.up_to_longest.default: _up_to_longest,
}
"""For torch.onnx.export: functions that emit the nodes."""


_BIASES = 3  # position of has_biases, of padded sequences; packed ones have the weights there


class WholeLayers(TorchFunctionMode):
    """A context in which recurrent layers call the operator."""

    def __enter__(self) -> Self:
        self._unchecked = without_size_check()
        self._unchecked.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]  # torch's is not typed
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # torch's is not typed
        self._unchecked.__exit__(None, None, None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the function, or the operator."""
        padded = padded_call(func, args)
        if padded is not None:
            return padded
        kind = getattr(func, "__name__", "")
        if kind in KINDS and len(args) > _BIASES and isinstance(args[_BIASES], bool):
            x, hx, *rest = args
            given: tuple[Any, ...] = (x, None, hx if kind == "lstm" else [hx], *rest, kind)
            y, h, c = recurrence(*given)
            return (y, h, c) if kind == "lstm" else (y, h)
        return func(*args, **(kwargs or {}))
