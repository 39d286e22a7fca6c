"""Packed sequences as padded ones with their lengths, while a module is traced.

    pack_padded_sequence(x, lengths)    x (T, N, F) stays as it is; the lengths go along
    LSTM, GRU, RNN of it                one operator, ONNX's with sequence_lens
    pad_packed_sequence                 0 behind each length, cut to the longest of them

The shapes of torch's packed sequences depend on the values of the lengths, which no trace can have.
A padded sequence is flattened to (T N, F) in a PackedSequence, so that layers and functions on its
`data` take it for a packed one; `Lengths` stands in the place of the batch sizes.
"""

import contextlib
import sys
from collections.abc import (
    Callable,
    Iterator,
    Sequence,  # custom_op reads the annotations
)
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from onnxq.pytorch.numerics.torch_operator import torch_operator

KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""Names of torch's recurrences."""

_STATES = {"lstm": 2}
_BETWEEN = 12  # frames at most, of modes that stand between a call and this file
_BIDIRECTIONAL = 5  # of the arguments from params on


def run_recurrence(
    x: Tensor,
    lengths: Tensor | None,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    kind: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """(y, h, c) of all layers of a recurrence; c is h but for an LSTM.

    x (T, N, F), or (N, T, F) with batch_first, which goes without lengths; lengths (N,), from 1 to
    T, None: all T; hx (h,), or (h, c) of an LSTM, (layers * directions, N, hidden).
    """
    function: Any = getattr(torch, kind)
    options = (has_biases, num_layers, dropout, train, bidirectional)
    if lengths is None:
        states = hx if kind == "lstm" else hx[0]
        y, h, *c = function(x, states, params, *options, batch_first)
        return y, h, c[0] if c else h.clone()
    packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
    order: Any = packed.sorted_indices
    sorted_states = [state.index_select(1, order) for state in hx]
    states = sorted_states if kind == "lstm" else sorted_states[0]
    data, *last = function(packed.data, packed.batch_sizes, states, params, *options)
    y, _ = pad_packed_sequence(packed._replace(data=data), total_length=x.shape[0])
    h, *c = (state.index_select(1, packed.unsorted_indices) for state in last)
    return y, h, c[0] if c else h.clone()


def _like_states(
    x: Tensor, _: object, hx: Sequence[Tensor], *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    width = hx[0].shape[2] * (2 if rest[_BIDIRECTIONAL] else 1)
    return x.new_empty((*x.shape[:2], width)), torch.empty_like(hx[0]), torch.empty_like(hx[-1])


recurrence = torch_operator("recurrence", _like_states)(run_recurrence)
"""The function as one operator of a program."""


def _shorter(x: Tensor, _: Tensor) -> Tensor:
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(), *x.shape[1:]))


@torch_operator("up_to_longest", _shorter)
def up_to_longest(x: Tensor, lengths: Tensor) -> Tensor:
    """The first steps of x (T, N, F): as many as the longest of the lengths (N,)."""
    return x[: int(lengths.max())].clone()


def _keep_steps(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG001  # torch's signature
    ctx.steps = inputs[0].shape[0]


def _behind(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    """No gradient of the steps that were cut."""
    cut = ctx.steps - gradient.shape[0]
    return nn.functional.pad(gradient, (0, 0, 0, 0, 0, cut)), None


torch.library.register_autograd("onnxq::up_to_longest", _behind, setup_context=_keep_steps)


class _Longest(int):
    """The longest of the lengths, in the place of a number of steps that nobody gave."""

    def __gt__(self, other: object) -> bool:
        """False: what torch asks of a total length that is given, which is not looked at."""
        return False


class _SameOrder:
    """An order of rows that changes none, in the place of that which sorts lengths."""

    def to(self, *_: object) -> Self:
        """Itself, on any device."""
        return self

    cpu = scatter_ = to

    def numel(self) -> int:
        """0: what is scattered into it stays unread."""
        return 0

    device = torch.device("cpu")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The tensor that is put in this order, as it is."""
        return args[0]


class Lengths:
    """Lengths of padded sequences, in the place of a packed sequence's batch sizes."""

    device = torch.device("cpu")

    def __init__(self, values: Tensor, rows: int) -> None:
        self._values = values
        self._rows = rows
        self._padded: list[tuple[Tensor, Tensor]] = []  # flat and not
        self._zero_behind: list[Tensor] = []  # of these, flat
        self._steps = 0

    def flat(self, padded: Tensor) -> Tensor:
        """The data of a packed sequence: (T, N, F) as (T N, F)."""
        self._steps = padded.shape[0]
        made = padded.flatten(0, 1)
        self._padded.append((made, padded))
        return made

    def _unflattened(self, flat: Tensor) -> Tensor:
        known = [padded for made, padded in self._padded if made is flat]
        return known[0] if known else flat.reshape(self._steps, self._rows, *flat.shape[1:])

    def __getitem__(self, step: int) -> int:
        """Number of rows: all of them have a first step."""
        return self._rows

    def size(self, _: int) -> int:
        """Number of steps, which is not known."""
        return _Longest(-1)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """A layer's call on the sequences, or that which pads them."""
        data, lengths, *rest = args
        assert isinstance(lengths, cls), "the batch sizes are a layer's second argument"
        if func.__name__ in KINDS:
            return lengths.run(func.__name__, data, *rest)
        return lengths.pad(data, *rest, **(kwargs or {}))

    def run(self, kind: str, data: Tensor, hx: Any, params: list[Tensor], *rest: Any) -> Any:
        """Results of a layer, y flat."""
        states = list(hx) if kind == "lstm" else [hx]
        x = self._unflattened(data)
        given: tuple[Any, ...] = (x, self._values, states, params, *rest, False, kind)
        y, h, c = recurrence(*given)
        flat = self.flat(y)
        self._zero_behind.append(flat)
        return (flat, h, c)[: 1 + _STATES.get(kind, 1)]

    def pad(
        self, data: Tensor, batch_first: bool, padding_value: float, total_length: int
    ) -> tuple[Tensor, Tensor]:
        """The padded sequences, and their lengths."""
        x = self._unflattened(data)
        if padding_value or not any(flat is data for flat in self._zero_behind):
            steps = torch.arange(x.shape[0], device=x.device).reshape(-1, 1, 1)
            is_there = steps < self._values.to(x.device).reshape(1, -1, 1)
            x = torch.where(is_there, x, padding_value)
        if isinstance(total_length, _Longest):
            x = up_to_longest(x, self._values)
        elif not statically_known_true(total_length == x.shape[0]):
            more = total_length - x.shape[0]
            x = nn.functional.pad(x, (0, 0, 0, 0, 0, more), value=padding_value)
        return (x.transpose(0, 1) if batch_first else x), self._values


def _is_packing() -> bool:
    """Whether pack_padded_sequence calls, modes of torch's own between."""
    frame = sys._getframe(1)  # noqa: SLF001  # who sorts is said nowhere else
    for _ in range(_BETWEEN):
        if frame.f_code is pack_padded_sequence.__code__ or frame.f_back is None:
            break
        frame = frame.f_back
    return frame.f_code is pack_padded_sequence.__code__


@contextlib.contextmanager
def without_size_check() -> Iterator[None]:
    """While it lasts, layers do not hold the rows of a state against a number.

    GRU and RNN do so for packed sequences, and thereby fix the number of rows.
    """
    check = nn.RNNBase.check_forward_args

    def checked(layer: nn.RNNBase, x: Tensor, hidden: Tensor, batch_sizes: Any) -> None:
        if not isinstance(batch_sizes, Lengths):
            check(layer, x, hidden, batch_sizes)

    nn.RNNBase.check_forward_args = checked  # type: ignore[assignment, method-assign]  # put back below
    try:
        yield
    finally:
        nn.RNNBase.check_forward_args = check  # type: ignore[method-assign]  # as it was


def padded_call(func: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Result of a function that packs sequences, or None where the function is another one."""
    name = getattr(func, "__name__", "")
    if name == "_pack_padded_sequence":
        x, lengths, batch_first = args
        steps_first = x.transpose(0, 1) if batch_first else x
        sizes = Lengths(lengths, steps_first.shape[1])
        return sizes.flat(steps_first), sizes
    if name == "sort" and _is_packing():
        return args[0], _SameOrder()
    return args[0] if any(isinstance(x, _SameOrder) for x in args[1:]) else None
