"""Calls of LSTM, GRU and RNN layers in a training graph, for one operator of the program each.

A layer on padded sequences with their lengths (see exporting.packed_sequences) is called on a
packed sequence, as forward calls it: what is padded stays out of training.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from onnxq.pytorch.exporting import packed_sequences  # noqa: F401  # registers the operator
from onnxq.pytorch.programs.leaf_calls import scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, fx

RECURRENCE = torch.ops.onnxq.recurrence.default
_ZEROS = torch.ops.aten.zeros.default


def layer_call(
    node: fx.Node, layer: nn.RNNBase, read: Callable[[Any], Any], graph: fx.Graph
) -> list[fx.Node]:
    """The call of a layer that a node of the program stands for, and its y, h and c."""
    path = scope(node)
    x, lengths, states, *_ = cast("tuple[Any, ...]", node.args)
    args = [read(x)]
    if lengths is not None:
        args = [graph.call_function(packed, (read(x), read(lengths)))]
    if not all(s.target is _ZEROS and scope(s) == path for s in states):
        read_states = [read(state) for state in states]
        args.append(tuple(read_states) if isinstance(layer, nn.LSTM) else read_states[0])
    call = graph.call_module(path, tuple(args))
    y, state = (graph.call_function(operator.getitem, (call, i)) for i in (0, 1))
    if lengths is not None:
        y = graph.call_function(padded, (y, read(x)))
    if not isinstance(layer, nn.LSTM):
        return [call, y, state, state]
    return [call, y, *(graph.call_function(operator.getitem, (state, i)) for i in (0, 1))]


def packed(x: Tensor, lengths: Tensor) -> PackedSequence:
    """Sequences (T, N, F) up to their lengths (N,)."""
    return pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)


def padded(sequence: PackedSequence, x: Tensor) -> Tensor:
    """The sequences as long as x (T, N, F), 0 behind the end of each."""
    return pad_packed_sequence(sequence, total_length=x.shape[0])[0]
