"""Calls of LSTM, GRU and RNN layers in a training graph, for one operator of the program each.

A layer on padded sequences with their lengths (see exporting.packed_sequences) is called on a
packed sequence, as forward calls it: what is padded stays out of training.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from onnxq.pytorch.exporting import whole_layers  # noqa: F401  # registers the operators
from onnxq.pytorch.exporting.packed_sequences import of_lengths
from onnxq.pytorch.programs.leaf_calls import scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, fx

aten = torch.ops.aten

_OF_LENGTHS = torch.ops.onnxq.recurrence.default
_CALLED: dict[Any, Any] = {
    torch.ops.onnxq.lstm.default: aten.lstm.input,
    torch.ops.onnxq.gru.default: aten.gru.input,
    _OF_LENGTHS: of_lengths,  # an operator has no gradient
    **{
        target: target
        for target in (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
    },
}


def is_recurrence(node: fx.Node) -> bool:
    """Whether the node is all layers of a recurrence."""
    return node.target in _CALLED


def as_function(node: fx.Node) -> Callable[..., Any]:
    """Which function trains where no layer of torch.nn makes the call."""
    found: Callable[..., Any] = _CALLED[node.target]
    return found


def layer_call(
    node: fx.Node, layer: nn.RNNBase, read: Callable[[Any], Any], graph: fx.Graph
) -> list[fx.Node]:
    """The call of a layer that a node of the program stands for, and its y and h, or y, h and c.

    Args:
        node: of the program.
        layer: that makes the call; `scope(node)` is its path.
        read: gives the node of the graph for one of the program.
        graph: that trains; the call is put at its end.
    """
    path, has_lengths = scope(node), node.target is _OF_LENGTHS
    x, *rest = node.args
    args = [read(x)]
    if has_lengths:
        args = [graph.call_function(packed, (read(x), read(rest.pop(0))))]
    given: Any = rest[0]
    states: list[Any] = list(given) if isinstance(given, tuple | list) else [given]
    if not all(s.target is aten.zeros.default and scope(s) == path for s in states):
        read_states = [read(state) for state in states]
        args.append(tuple(read_states) if isinstance(layer, nn.LSTM) else read_states[0])
    call = graph.call_module(path, tuple(args))
    y, state = (graph.call_function(operator.getitem, (call, i)) for i in (0, 1))
    if has_lengths:
        y = graph.call_function(padded, (y, read(x)))
    if isinstance(layer, nn.LSTM):
        states = [graph.call_function(operator.getitem, (state, i)) for i in (0, 1)]
        return [call, y, *states]
    return [call, y, state, *([state] if has_lengths else [])]  # which has a c of every kind


def packed(x: Tensor, lengths: Tensor) -> PackedSequence:
    """Sequences (T, N, F) up to their lengths (N,)."""
    return pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)


def padded(sequence: PackedSequence, x: Tensor) -> Tensor:
    """The sequences as long as x (T, N, F), 0 behind the end of each."""
    return pad_packed_sequence(sequence, total_length=x.shape[0])[0]
