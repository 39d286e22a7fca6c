"""Runs code that was written for torch's quantized tensors on fake-quantized tensors.

torch.quantize_per_tensor gives a tensor whose functions mean something else: torch.relu, x.mean(),
max_pool2d keep its qparams, torch.ops.quantized.* have their own. Here that tensor is

    x = DequantizeLinear(QuantizeLinear(real, scale, zero_point), scale, zero_point)

in float32, and a TorchFunctionMode, which sees every torch function that forward calls, knows which
tensors are such: what they go into computes in float32 and ends fake-quantized by the next pair.
ONNX Runtime turns DQ -> op -> Q into its integer operator. Works while torch.export traces.
"""

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from onnxq.errors import ModelError, UnsupportedError
from onnxq.pytorch.modules.places import following
from onnxq.pytorch.numerics import rounding_ops
from onnxq.pytorch.train.sources import tensors_in

Handler = Callable[..., Any]


# --- Qparams of activations, which torch.ao keeps as numbers, as constants of the model.

STORED = {
    torch.quint8: torch.uint8,
    torch.qint8: torch.int8,
    torch.uint8: torch.uint8,
    torch.int8: torch.int8,
}
"""Types of activations -> type of their integers."""


@dataclass(frozen=True, eq=False)
class TracedQParams:
    """Real values that integers stand for: (q - zero_point) * scale."""

    scale: float
    zero_point: int
    dtype: torch.dtype
    tensors: tuple[Tensor, Tensor]


class Constants(nn.Module):
    """Buffers in the order in which one forward asks for them; the later ones get the same.

    The first forward runs on real tensors and makes them; torch.export then sees buffers, where the
    numbers of torch.ao would be frozen into its trace without names.
    """

    def __init__(self) -> None:
        super().__init__()
        self._order: list[tuple[str, TracedQParams | None]] = []
        self._next = 0
        self.recording = True  # until the first forward has ended

    def restart(self) -> None:
        """Before each forward: the next constant is the first again."""
        self._next = 0

    def take(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """The next constant, made by the first forward."""
        if self.recording:
            free = f"{name}_{len(self._order)}"
            self.register_buffer(free, make())
            self._order.append((free, None))
        key, _ = self._following()
        found: Tensor = getattr(self, key)
        return found

    def qparams(
        self, name: str, make: Callable[[], tuple[float, int, torch.dtype]]
    ) -> TracedQParams:
        """The next qparams, made by the first forward from (scale, zero point, dtype)."""
        if self.recording:
            scale, zero_point, dtype = make()
            free = f"{name}_{len(self._order)}"
            self.register_buffer(f"{free}_scale", torch.tensor(scale, dtype=torch.float32))
            self.register_buffer(f"{free}_zero_point", torch.tensor(zero_point, dtype=dtype))
            exact = float(getattr(self, f"{free}_scale"))
            placeholder = torch.empty(0)
            self._order.append(
                (free, TracedQParams(exact, zero_point, dtype, (placeholder, placeholder)))
            )
        key, made = self._following()
        if made is None:
            raise AssertionError("a forward asks for the same constants in the same order")
        tensors = (getattr(self, f"{key}_scale"), getattr(self, f"{key}_zero_point"))
        return TracedQParams(made.scale, made.zero_point, made.dtype, tensors)

    def _following(self) -> tuple[str, TracedQParams | None]:
        if self._next >= len(self._order):
            raise ModelError(
                "forward takes another way than with the example inputs before: its operators "
                "must not depend on the values or the number of rows of its inputs."
            )
        self._next += 1
        return self._order[self._next - 1]


# --- torch.ao.nn.quantized.functional on float tensors: its functions refuse tensors of float32.
#
# They ask `input.is_quantized`, which no TorchFunctionMode sees. While a Region runs, what stands
# under their names calls what they would call.

_FUNCTIONAL = ("torch.ao.nn.quantized.functional", "torch.nn.quantized.functional")
_SAME = (
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "hardsigmoid",
    "hardtanh", "interpolate", "max_pool1d", "max_pool2d", "threshold", "upsample",
    "upsample_bilinear", "upsample_nearest",
)  # fmt: skip
"""Functions that are torch.nn.functional's, behind the question."""


def _leaky_relu(
    input: Tensor,
    negative_slope: float = 0.01,
    inplace: object = False,
    scale: float | None = None,
    zero_point: int | None = None,
) -> Any:
    if scale is None or zero_point is None:
        return functional.leaky_relu(input, negative_slope)
    return torch.ops.quantized.leaky_relu(input, negative_slope, bool(inplace), scale, zero_point)


_quantized = torch.ops.quantized
_REPLACEMENTS: dict[str, Callable[..., Any]] = {
    **{name: getattr(functional, name) for name in _SAME},
    **{name: getattr(_quantized, name) for name in ("celu", "elu", "hardswish")},
    "clamp": lambda x, min_, max_: torch.clamp(x, min_, max_),
    "leaky_relu": _leaky_relu,
}


@contextlib.contextmanager
def on_floats() -> Iterator[None]:
    """A context in which the functions take float tensors."""
    places = [sys.modules[name] for name in _FUNCTIONAL if name in sys.modules]
    with contextlib.ExitStack() as stack:
        for module, name in itertools.product(places, _REPLACEMENTS):
            if hasattr(module, name):
                stack.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, _REPLACEMENTS[name])
        yield


# Functions of a quantized tensor whose result has its qparams (torch/aten/native/quantized/cpu).
KEEP_QPARAMS = frozenset(
    """
    __get__ __getitem__ adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d
    channel_shuffle chunk clamp clamp_ clamp_max clamp_min clone contiguous detach dropout elu elu_
    expand expand_as flatten flip hardswish hardtanh hardtanh_ index_select interpolate leaky_relu
    leaky_relu_ max max_pool1d max_pool2d max_pool3d mean min movedim narrow pad permute
    pixel_shuffle pixel_unshuffle repeat repeat_interleave reshape select split squeeze squeeze_
    swapaxes t threshold to transpose unbind unflatten unsqueeze unsqueeze_ upsample
    upsample_bilinear upsample_nearest view view_as
    """.split()  # noqa: SIM905  # one name per line would fill a screen
)
CLAMPS = {
    name + ending: limits
    for name, limits in (("relu", (0.0, inf)), ("relu6", (0.0, 6.0)))
    for ending in ("", "_")
}
"""Functions that clip integers, and nothing else."""
# scale and zero point of results that have a fixed range: quint8, qint8.
FIXED_QPARAMS = {
    "sigmoid": ((1 / 256, 0), (1 / 256, -128)),
    "sigmoid_": ((1 / 256, 0), (1 / 256, -128)),
    "hardsigmoid": ((1 / 256, 0), (1 / 256, -128)),
    "tanh": ((2 / 256, 128), (2 / 256, 0)),
    "tanh_": ((2 / 256, 128), (2 / 256, 0)),
}


class Region(TorchFunctionMode):
    """The meaning of torch functions on quantized tensors, in Q/DQ form."""

    def __init__(
        self, root: nn.Module, constants: Constants, operators: dict[str, Handler]
    ) -> None:
        super().__init__()
        self.root, self.constants, self.operators = root, constants, operators
        self._qparams: dict[
            int, tuple[Tensor, TracedQParams]
        ] = {}  # the tensor too: its id stays its own
        self.path: list[str] = []

    # --- qparams

    def qparams_of(self, x: object) -> TracedQParams | None:
        """The qparams of a quantized tensor; None: it is a float one, or no tensor."""
        found = self._qparams.get(id(x))
        return None if found is None else found[1]

    def need_qparams(self, x: object, what: str) -> TracedQParams:
        """The qparams of an input that must be quantized."""
        qparams = self.qparams_of(x)
        if qparams is None:
            raise UnsupportedError(
                f"{self.where()}: {what} reads a tensor that is not quantized. Put a QuantStub "
                "before it, or leave it in float."
            )
        return qparams

    def new_qparams(self, scale: Any, zero_point: Any, dtype: torch.dtype) -> TracedQParams:
        """The qparams of these numbers, which may be tensors of one element."""
        if dtype not in STORED:
            raise UnsupportedError(
                f"{self.where()}: activations of {str(dtype).removeprefix('torch.')}; ONNX Runtime "
                "has integer kernels for quint8 and qint8. Prepare the model with a qconfig of "
                "these types."
            )
        stored = STORED[dtype]
        path = self.path[-1] if self.path else ""
        name = f"{path.replace('.', '_')}_output" if path else "output"
        return self.constants.qparams(name, lambda: (float(scale), int(zero_point), stored))

    def put(self, x: Tensor, qparams: TracedQParams, limits: Sequence[int] = ()) -> Tensor:
        """The tensor, quantized, its integers clipped to the limits that there are."""
        scale, zero_point = qparams.tensors
        integers = rounding_ops.quantize_linear(x, scale, zero_point, rounding_ops.NO_AXIS)
        if limits:
            integers = integers.clamp(*limits)
        real = rounding_ops.dequantize_linear(integers, scale, zero_point, rounding_ops.NO_AXIS)
        self._qparams[id(real)] = (real, qparams)
        return real

    def clamped(self, x: Tensor, qparams: TracedQParams, low: float, high: float) -> Tensor:
        """min(max(x, low), high) of x at quantized levels, as a Clip on integers."""
        bounds = [
            round(one / qparams.scale) + qparams.zero_point for one in (low, high) if one < inf
        ]
        every = torch.iinfo(qparams.dtype)
        return self.put(x, qparams, [min(max(one, every.min), every.max) for one in bounds])

    # --- places

    def where(self) -> str:
        """The module that runs, in words."""
        path = self.path[-1] if self.path else ""
        return f"module '{path}'" if path else f"{type(self.root).__name__}.forward"

    # --- functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        namespace, name = _name_of(func)
        if namespace == "quantized":
            return self._operator(name)(self, *args, **kwargs)
        if namespace:
            return func(*args, **kwargs)
        if name == "quantize_per_tensor":
            return self._quantize(*args, **kwargs)
        qparams = [g for g in map(self.qparams_of, tensors_in((args, kwargs))) if g is not None]
        if not qparams:
            return func(*args, **kwargs)
        return self._on_quantized(func, name, qparams, args, kwargs)

    def _quantize(self, x: Any, scale: Any, zero_point: Any, dtype: torch.dtype) -> object:
        if isinstance(x, list | tuple):
            parts = zip(x, scale, zero_point, strict=True)
            return [self._quantize(t, s, z, dtype) for t, s, z in parts]
        return self.put(x, self.new_qparams(scale, zero_point, dtype))

    def _operator(self, name: str) -> Handler:
        if name not in self.operators:
            raise UnsupportedError(
                f"{self.where()}: torch.ops.quantized.{name} cannot be imported; known are "
                f"{', '.join(sorted(self.operators))}. Leave the module in float "
                "(qconfig = None) and convert again."
            )
        return self.operators[name]

    def _on_quantized(
        self, func: Any, name: str, qparams: list[TracedQParams], args: Any, kwargs: Any
    ) -> object:
        first = qparams[0]
        if name == "dequantize":
            return _each(args[0], rounding_ops.leave_integers)
        if name == "to" and torch.float16 in (*args, *kwargs.values()):
            raise UnsupportedError(f"{self.where()}: a quantized tensor is converted to float16.")
        if name in ("q_scale", "q_zero_point"):
            return first.scale if name == "q_scale" else first.zero_point
        if name in FIXED_QPARAMS:
            scale, zero_point = FIXED_QPARAMS[name][first.dtype == torch.int8]
            return self.put(func(*args, **kwargs), self.new_qparams(scale, zero_point, first.dtype))
        if name in CLAMPS:
            return self.clamped(args[0] if args else kwargs["input"], first, *CLAMPS[name])
        result = func(*args, **kwargs)
        if name in _JOINING or name in KEEP_QPARAMS:
            return _each(result, lambda x: self.put(x, first) if x.is_floating_point() else x)
        if not list(tensors_in(result)):
            return result  # a size, a shape, a dtype
        raise UnsupportedError(
            f"{self.where()}: {name} of a quantized tensor cannot be imported. Put a DeQuantStub "
            "before it and a QuantStub behind it."
        )


_JOINING = frozenset(["cat", "concat", "concatenate", "stack"])  # torch: qparams of the first


def _name_of(func: Any) -> tuple[str, str]:
    """(namespace of a torch.ops operator or "", name)."""
    name = getattr(func, "_qualified_op_name", None)  # OpOverloadPacket
    if name is None and isinstance(func, torch._ops.OpOverload):
        name = func._schema.name
    if name is not None:
        namespace, _, own = name.partition("::")
        return namespace, own
    return "", getattr(func, "__name__", str(func))


def _each(result: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The result with each tensor in it changed."""
    if isinstance(result, Tensor):
        return change(result)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(_each(part, change) for part in result))
    if isinstance(result, list | tuple):
        return type(result)([_each(part, change) for part in result])
    if hasattr(result, "values") and hasattr(result, "indices"):  # torch.return_types.max
        return tuple(_each(part, change) for part in result)
    return result


def run_in_region(
    model: nn.Module, constants: Constants, operators: dict[str, Handler]
) -> Callable[..., object]:
    """model.forward, whose functions have the meaning above."""
    original = model.forward

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> object:
        constants.restart()
        with on_floats(), Region(model, constants, operators) as region:
            recording = constants.recording
            with following(model, region.path) if recording else contextlib.nullcontext():
                return original(*args, **kwargs)

    return forward
