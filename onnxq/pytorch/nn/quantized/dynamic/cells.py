"""One step of a recurrence, both of its linear layers in integers; the gates are float32.

With dtype=torch.float16, both linear layers have weights of that type.
"""

from typing import Any, ClassVar, Self

import torch
from torch import nn

from onnxq.errors import QConfigError
from onnxq.pytorch.nn.quantized.dynamic.linear import Linear
from onnxq.pytorch.nn.quantized.dynamic.weights import dtype_of
from onnxq.pytorch.nn.quantized.weighted import arguments_in, check_type
from onnxq.pytorch.numerics.half_inputs import takes_halves

NONLINEARITIES = {"tanh": torch.tanh, "relu": torch.relu}


class _Cell(nn.Module):
    """Linear layers of a recurrent cell: x W_ih^T + b_ih and h W_hh^T + b_hh."""

    gates: ClassVar[int]
    float_type: ClassVar[type[nn.Module]]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, dtype: torch.dtype = torch.qint8
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.ih = Linear(input_size, self.gates * hidden_size, bias, dtype)
        self.hh = Linear(hidden_size, self.gates * hidden_size, bias, dtype)

    def state(self, x: torch.Tensor, h: torch.Tensor | None) -> torch.Tensor:
        """The state, 0 where none is given: (batch, hidden_size)."""
        if h is not None:
            return h
        return x.new_zeros((*x.shape[:-1], self.hidden_size))

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module of a float one, its weights quantized as its QConfigDynamic says."""
        check_type(mod, cls.float_type, cls.__name__)
        cell: Any = mod
        made = cls(**arguments_in(mod, cls), dtype=dtype_of(mod))
        made.to(cell.weight_ih.device)
        for layer, name in ((made.ih, "ih"), (made.hh, "hh")):
            layer.take_from(mod, getattr(cell, f"weight_{name}"), getattr(cell, f"bias_{name}"))
        return made


class LSTMCell(_Cell):
    """(h, c) = LSTM cell(x, (h, c)); x (batch, input_size), h and c (batch, hidden_size)."""

    gates = 4
    float_type = nn.LSTMCell

    @takes_halves
    def forward(
        self, x: torch.Tensor, hx: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next h and c; without hx, from 0."""
        h, c = (self.state(x, None),) * 2 if hx is None else hx
        i, f, g, o = (self.ih(x) + self.hh(h)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class GRUCell(_Cell):
    """h = GRU cell(x, h); x (batch, input_size), h (batch, hidden_size)."""

    gates = 3
    float_type = nn.GRUCell

    @takes_halves
    def forward(self, x: torch.Tensor, hx: torch.Tensor | None = None) -> torch.Tensor:
        """The next h; without hx, from 0."""
        h = self.state(x, hx)
        reset, update, new = self.ih(x).chunk(3, -1)
        h_reset, h_update, h_new = self.hh(h).chunk(3, -1)
        z = torch.sigmoid(update + h_update)
        n = torch.tanh(new + torch.sigmoid(reset + h_reset) * h_new)
        return (1 - z) * n + z * h


class RNNCell(_Cell):
    """h = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh), or relu of it.

    Raises:
        QConfigError: another nonlinearity.
    """

    gates = 1
    float_type = nn.RNNCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        dtype: torch.dtype = torch.qint8,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, dtype)
        if nonlinearity not in NONLINEARITIES:
            raise QConfigError(f"RNNCell: nonlinearity '{nonlinearity}'; wanted 'tanh' or 'relu'.")
        self.nonlinearity = nonlinearity

    @takes_halves
    def forward(self, x: torch.Tensor, hx: torch.Tensor | None = None) -> torch.Tensor:
        """The next h; without hx, from 0."""
        total: torch.Tensor = self.ih(x) + self.hh(self.state(x, hx))
        return NONLINEARITIES[self.nonlinearity](total)
