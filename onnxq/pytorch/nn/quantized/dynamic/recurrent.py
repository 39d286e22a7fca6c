"""LSTM in integers; GRU and RNN in float on int8 weights, as ONNX Runtime has no integer kernel.

With dtype=torch.float16, all three compute in float on weights of that type.
"""

from typing import Any, ClassVar, Self

import torch
from torch import nn

from onnxq.errors import QConfigError, UnsupportedError, kind_of
from onnxq.pytorch.nn.quantized.dynamic.weights import dtype_of, quantized, weight_part
from onnxq.pytorch.nn.quantized.stored import Stored, tensors_of
from onnxq.pytorch.nn.quantized.weighted import arguments_in, check_type
from onnxq.pytorch.numerics.dynamic_ops import (
    ONNX_GATES,
    dynamic_quantize_lstm,
    float_recurrence,
    in_onnx_order,
    stored_recurrence,
)
from onnxq.pytorch.numerics.half_inputs import takes_halves


class _Recurrent(Stored):
    """Layers of a recurrence; arguments are torch.nn's. Dropout between layers is for training.

    Per layer l the buffers w_l, r_l (integers, in ONNX's layout and order of gates), b_l (float32),
    and the scales and zero points of the integers.
    """

    kind: ClassVar[str]
    float_type: ClassVar[type[nn.Module]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: torch.dtype = torch.qint8,
    ) -> None:
        super().__init__()
        self.is_half = dtype == torch.float16
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional = bidirectional
        self.directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            self._make_layer(layer)

    def _make_layer(self, layer: int) -> None:
        width = len(ONNX_GATES[self.kind]) * self.hidden_size
        inputs = self.input_size if layer == 0 else self.hidden_size * self.directions
        for name, size in (("w", inputs), ("r", self.hidden_size)):
            halves = torch.zeros((self.directions, width, size), dtype=torch.float16)
            integers = self.as_stored(torch.zeros((width, size), dtype=torch.int8))
            every = integers.repeat(self.directions, 1, 1)
            self.register_buffer(f"{name}_{layer}", halves if self.is_half else every)
            shape = self.scale_shape(1)
            self.register_buffer(f"{name}_{layer}_scale", torch.ones(shape))
            zero = torch.zeros(shape, dtype=torch.int8)
            self.register_buffer(f"{name}_{layer}_zero_point", zero)
        bias = torch.zeros(self.directions, 2 * width) if self.bias else None
        self.register_buffer(f"b_{layer}", bias)

    def scale_shape(self, channels: int) -> tuple[int, ...]:
        """Shape of the scales; channels: 1 for one scale per direction."""
        return self.directions, channels, 1

    def as_stored(self, integers: torch.Tensor) -> torch.Tensor:
        """(gates H, size) of one direction as it is stored."""
        return integers

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module of a float one, its weights quantized as its QConfigDynamic says."""
        check_type(mod, cls.float_type, cls.__name__)
        source: Any = mod
        if source.proj_size:
            raise UnsupportedError(
                f"{cls.__name__}.from_float: proj_size {source.proj_size}; ONNX has no projections "
                "in its recurrences. Use a module without, and a Linear behind it."
            )
        made = cls(**arguments_in(mod, cls), dtype=dtype_of(mod))
        made.to(source.weight_ih_l0.device)
        part = None if made.is_half else weight_part(mod, cls.__name__)
        for layer in range(source.num_layers):
            made.take(layer, source, part)
        return made

    def take(self, layer: int, source: Any, part: Any) -> None:
        """Quantizes one layer of a float module."""
        suffixes = ["", "_reverse"][: self.directions]
        for name, of in (("w", "weight_ih"), ("r", "weight_hh")):
            stored, scales = [], []
            every = [getattr(source, f"{of}_l{layer}{suffix}") for suffix in suffixes]
            rows_of = [in_onnx_order(weight, self.kind) for weight in every]
            if self.is_half:
                setattr(self, f"{name}_{layer}", torch.stack(rows_of).detach().half())
                continue
            for rows in rows_of:
                weight = quantized(rows, part)
                if weight.qparams.zero_point.any():
                    raise UnsupportedError(
                        f"{type(self).__name__}.from_float: the qconfig gives weights zero points; "
                        "a recurrence wants a symmetric qscheme."
                    )
                stored.append(self.as_stored(torch.from_numpy(weight.int_repr())))
                scales.append(tensors_of(weight.qparams)[0].reshape(-1))
            device = getattr(self, f"{name}_{layer}").device
            scale = torch.stack(scales).reshape(self.scale_shape(scales[0].numel())).to(device)
            setattr(self, f"{name}_{layer}", torch.stack(stored).to(device))
            setattr(self, f"{name}_{layer}_scale", scale)
            setattr(self, f"{name}_{layer}_zero_point", torch.zeros_like(scale, dtype=torch.int8))
        if self.bias:
            both = [
                torch.cat(
                    [
                        in_onnx_order(getattr(source, f"{of}_l{layer}{suffix}"), self.kind)
                        for of in ("bias_ih", "bias_hh")
                    ]
                )
                for suffix in suffixes
            ]
            setattr(self, f"b_{layer}", torch.stack(both).detach().to(torch.float32))

    def layer_of(self, layer: int) -> dict[str, Any]:
        """The buffers of a layer, by name without its number."""
        names = ("w", "r", "b", "w_scale", "w_zero_point", "r_scale", "r_zero_point")
        return {
            name: getattr(self, "_".join([name[0], str(layer), *name.split("_")[1:]]))
            for name in names
        }

    def run(
        self, layer: int, x: torch.Tensor, state: list[torch.Tensor] | None
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """(y (T, N, D H), final states) of one layer; the subclass says it."""
        raise NotImplementedError

    def run_all(
        self, x: torch.Tensor, states: list[torch.Tensor] | None
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """(output, final states (layers * D, N, H)) of all layers."""
        if not isinstance(x, torch.Tensor):
            raise UnsupportedError(
                f"{type(self).__name__}: got {kind_of(x)}; wanted a padded tensor. Quantize the "
                "float model, packed sequences included, with onnxq.quantize_dynamic(model, "
                "inputs=...)."
            )
        if x.ndim != 3:
            raise UnsupportedError(
                f"{type(self).__name__}: x of shape {tuple(x.shape)}; wanted a batch: 3 axes. Use "
                "x.unsqueeze(0 or 1)."
            )
        if self.batch_first:
            x = x.transpose(0, 1)
        finals: list[list[torch.Tensor]] = []
        for layer in range(self.num_layers):
            part = slice(layer * self.directions, (layer + 1) * self.directions)
            start = None if states is None else [state[part] for state in states]
            x, last = self.run(layer, x, start)
            finals.append(last)
        if self.batch_first:
            x = x.transpose(0, 1)
        return x, [torch.cat(parts) for parts in zip(*finals, strict=True)]

    @property
    def direction(self) -> str:
        """ONNX's word."""
        return "bidirectional" if self.bidirectional else "forward"

    def __repr__(self) -> str:
        return f"DynamicQuantized{type(self).__name__}({self.extra_repr()})"

    def extra_repr(self) -> str:
        """Arguments that are not defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if not self.bias:
            text += ", bias=False"
        if self.batch_first:
            text += ", batch_first=True"
        return f"{text}, bidirectional=True" if self.bidirectional else text


class LSTM(_Recurrent):
    """torch.nn.LSTM, both linear layers in integers: com.microsoft DynamicQuantizeLSTM.

    A layer's whole input has one scale, and each step's h, over the whole batch.
    """

    kind = "LSTM"
    float_type = nn.LSTM

    def scale_shape(self, channels: int) -> tuple[int, ...]:
        """(D,) or (D, 4 H)."""
        return (self.directions,) if channels == 1 else (self.directions, channels)

    def as_stored(self, integers: torch.Tensor) -> torch.Tensor:
        """(4 H, size) -> (size, 4 H)."""
        return integers.t()

    def run(
        self, layer: int, x: torch.Tensor, state: list[torch.Tensor] | None
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """(y, [h, c])."""
        own = self.layer_of(layer)
        if self.is_half:
            zeros = x.new_zeros((self.directions, x.shape[1], self.hidden_size))
            weights = (own["w"].float(), own["r"].float(), own["b"])
            y, *last = float_recurrence("LSTM", x, state or [zeros, zeros], *weights)
            return y, last
        h, c = (None, None) if state is None else state
        y, h, c = dynamic_quantize_lstm(
            x, initial_h=h, initial_c=c, direction=self.direction, **own
        )
        return y, [h, c]

    @takes_halves
    def forward(
        self, x: torch.Tensor, hx: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """(output, (h, c)) as torch.nn.LSTM; without hx, from 0."""
        y, (h, c) = self.run_all(x, None if hx is None else list(hx))
        return y, (h, c)


class GRU(_Recurrent):
    """torch.nn.GRU on int8 weights, computed in float.

    In the exported model the weights are int8, but for those below 8192 elements, which torch's
    exporter turns into float constants.
    """

    kind = "GRU"
    float_type: ClassVar[type[nn.Module]] = nn.GRU

    def run(
        self, layer: int, x: torch.Tensor, state: list[torch.Tensor] | None
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """(y, [h])."""
        own = self.layer_of(layer)
        weights, scales = (own["w"], own["r"], own["b"]), (own["w_scale"], own["r_scale"])
        start = None if state is None else state[0]
        y, h = stored_recurrence(x, *weights, start, *scales, self.kind, self.direction)
        return y, [h]

    @takes_halves
    def forward(
        self, x: torch.Tensor, hx: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(output, h) as torch.nn.GRU; without hx, from 0."""
        y, (h,) = self.run_all(x, None if hx is None else [hx])
        return y, h


class RNN(GRU):
    """torch.nn.RNN on int8 weights, computed in float; nonlinearity "tanh" or "relu".

    Raises:
        QConfigError: another nonlinearity.
    """

    kind = "RNN_TANH"
    float_type: ClassVar[type[nn.Module]] = nn.RNN

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: torch.dtype = torch.qint8,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise QConfigError(f"RNN: nonlinearity '{nonlinearity}'; wanted 'tanh' or 'relu'.")
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, dtype
        )
        self.nonlinearity = nonlinearity
        self.kind = f"RNN_{nonlinearity.upper()}"  # type: ignore[misc]  # of this instance
