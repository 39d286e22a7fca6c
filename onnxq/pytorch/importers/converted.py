"""Converted torch.ao models (eager and FX) as modules that torch.export takes.

Nothing of the model's own code changes: its packed parameters become buffers (`packed`), its
forward runs in a `Region`, and the first run on the example inputs makes the constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from onnxq.errors import UnsupportedError
from onnxq.pytorch.arguments.forward import first_run
from onnxq.pytorch.importers.packed import make_printable
from onnxq.pytorch.importers.region import Constants, run_in_region
from onnxq.pytorch.modules.transposed import CONV, CONV_TRANSPOSE
from onnxq.pytorch.nn.quantized.bias_integers import bias_integers, bias_scale
from onnxq.pytorch.numerics.rounding_ops import dequantize_linear
from onnxq.qparams import MIN_SCALE

if TYPE_CHECKING:
    from onnxq.pytorch.arguments.bound_inputs import BoundInputs

# --- Functions that compute torch.ops.quantized.<name> on fake-quantized tensors.
#
#     conv, linear     op(x, weight, bias)          weights and biases from integers, then relu ...
#     add, mul, cat    on real numbers              then the qparams of the result
#     batch_norm       conv of one tap per channel  weight +-127 at |slope| / 127: no error
#
# Each handler takes the region and the operator's own arguments.

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onnxq.pytorch.importers.packed import PackedWeight, WindowSizes
    from onnxq.pytorch.importers.region import Region, TracedQParams

    Handler = Callable[..., Any]

MATRIX = 2
_LIMITS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


def _same(x: Tensor) -> Tensor:
    return x


# --- linear layers and convolutions


def _windows(x: Tensor, w: Tensor, b: Tensor | None, windows: WindowSizes) -> Tensor:
    """The convolution in float32."""
    dims = x.ndim - 2
    skipped = len(windows.stride) - dims  # conv1d is packed as a conv2d of height 1
    stride, padding = windows.stride[skipped:], windows.padding[skipped:]
    dilation = windows.dilation[skipped:]
    if skipped:
        w = w.squeeze(2)
    if windows.transposed:
        extra = windows.output_padding[skipped:]
        return CONV_TRANSPOSE[dims - 1](x, w, b, stride, padding, extra, windows.groups, dilation)
    return CONV[dims - 1](x, w, b, stride, padding, dilation, windows.groups)


def _linear(
    region: Region, x: Tensor, packed: PackedWeight, what: str
) -> tuple[Tensor, TracedQParams, tuple[Any, ...]]:
    """(float result, qparams of x, leading sizes to restore) of a linear layer or convolution."""
    qparams = region.need_qparams(x, what)
    weight, bias = packed.real_weight(), packed.real_bias(region.constants, qparams)
    if packed.windows is not None:
        return _windows(x, weight, bias, packed.windows), qparams, ()
    if x.ndim == MATRIX:
        return functional.linear(x, weight, bias), qparams, ()
    # a matrix: Gemm takes the bias into its integers, MatMul and Add do not
    rows = region.put(x.reshape(-1, x.shape[-1]), qparams)
    return functional.linear(rows, weight, bias), qparams, tuple(x.shape[:-1])


def _weighted(activation: Callable[[Tensor], Tensor]) -> Handler:
    def handler(
        region: Region, x: Tensor, packed: PackedWeight, *arguments: Any, **named: Any
    ) -> Tensor:
        scale, zero_point = _output_qparams(arguments, named)
        y, incoming, sizes = _linear(region, x, packed, "a quantized layer")
        qparams = region.new_qparams(scale, zero_point, incoming.dtype)
        y = region.put(activation(y), qparams)
        return region.put(y.reshape(*sizes, y.shape[-1]), qparams) if sizes else y

    return handler


def _output_qparams(arguments: Sequence[Any], named: dict[str, Any]) -> list[Any]:
    """Scale and zero point: the last two of the positional arguments, but for those named."""
    left, found = list(arguments), []
    for ending in ("zero_point", "scale"):
        of_name = [value for key, value in named.items() if key.endswith(ending)]
        found.append(of_name[0] if of_name else left.pop())
    return found[::-1]


def _conv_add(activation: Callable[[Tensor], Tensor]) -> Handler:
    def handler(
        region: Region, x: Tensor, other: Tensor, packed: PackedWeight, scale: Any, zero_point: Any
    ) -> Tensor:
        y, incoming, _ = _linear(region, x, packed, "conv_add")
        qparams = region.new_qparams(scale, zero_point, incoming.dtype)
        return region.put(activation(y + other), qparams)

    return handler


def _linear_leaky(
    region: Region, x: Tensor, packed: PackedWeight, scale: Any, zero_point: Any, slope: float
) -> Tensor:
    leaky = _weighted(lambda y: functional.leaky_relu(y, slope))
    return leaky(region, x, packed, scale, zero_point)  # type: ignore[no-any-return]  # of an untyped call


# --- element by element


def _binary(
    compute: Callable[[Tensor, Any], Tensor], activation: Callable[[Tensor], Tensor]
) -> Handler:
    def handler(
        region: Region, x: Tensor, y: Any, scale: Any = None, zero_point: Any = None
    ) -> Any:
        if not isinstance(y, Tensor):
            return _with_number(region, x, float(y), compute, activation)
        incoming = region.need_qparams(x, "a sum or product")
        region.need_qparams(y, "a sum or product")
        qparams = region.new_qparams(scale, zero_point, incoming.dtype)
        return region.put(activation(compute(x, y)), qparams)

    return handler


def _with_number(
    region: Region,
    x: Tensor,
    number: float,
    compute: Callable[[Tensor, Any], Tensor],
    activation: Callable[[Tensor], Tensor],
) -> Tensor:
    old = region.need_qparams(x, "a sum or product with a number")
    qparams_after = _qparams_of_product if compute is torch.mul else _qparams_of_sum
    scale, zero_point = qparams_after(old, number)
    qparams = region.new_qparams(scale, zero_point, old.dtype)
    return region.put(activation(compute(x, number)), qparams)


def _qparams_of_sum(x: TracedQParams, number: float) -> tuple[float, int]:
    """Torch's qadd.cpp: the zero point moves; the scale grows where it would leave the type."""
    low, high = _LIMITS[x.dtype]
    moved = x.zero_point - round(number / x.scale)
    if moved < low:
        return (high - moved) / (high - low) * x.scale, low
    if moved > high:
        return (moved - low) / (high - low) * x.scale, high
    return x.scale, moved


def _qparams_of_product(x: TracedQParams, number: float) -> tuple[float, int]:
    """Torch's qmul.cpp: a negative number turns the integers round."""
    low, high = _LIMITS[x.dtype]
    if number == 0:
        return 1.0, 0
    turned = high + low - x.zero_point if number < 0 else x.zero_point
    return abs(number) * x.scale, turned


def _cat(activation: Callable[[Tensor], Tensor]) -> Handler:
    def handler(
        region: Region, xs: Sequence[Tensor], dim: int, scale: Any = None, zero_point: Any = None
    ) -> Tensor:
        first, *_ = [region.need_qparams(x, "cat") for x in xs]
        qparams = first if scale is None else region.new_qparams(scale, zero_point, first.dtype)
        return region.put(activation(torch.cat(list(xs), dim)), qparams)

    return handler


def _into(compute: Callable[..., Tensor], count: int = 0) -> Handler:
    """Y = compute(x, the first `count` arguments); scale and zero point are the next ones."""
    name = getattr(compute, "__name__", "a function").strip("_")

    def handler(region: Region, x: Tensor, *arguments: Any, **named: Any) -> Tensor:
        incoming = region.need_qparams(x, name)
        scale, zero_point = _output_qparams(arguments[count : count + 2], named)
        rest = {k: v for k, v in named.items() if not k.endswith(("scale", "zero_point"))}
        qparams = region.new_qparams(scale, zero_point, incoming.dtype)
        return region.put(compute(x, *arguments[:count], *arguments[count + 2 :], **rest), qparams)

    return handler


def _keeping(compute: Callable[..., Tensor]) -> Handler:
    """Y = compute(x, ...) with the qparams of x."""

    def handler(region: Region, x: Tensor, *arguments: Any, **named: Any) -> Tensor:
        qparams = region.need_qparams(x, getattr(compute, "__name__", "a function"))
        return region.put(compute(x, *arguments, **named), qparams)

    return handler


# --- normalization


def _batch_norm(activation: Callable[[Tensor], Tensor]) -> Handler:
    """Slope * x + shift per channel, with slope = weight / sqrt(var + eps)."""

    def handler(
        region: Region, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor,
        eps: float, scale: Any, zero_point: Any,
    ) -> Tensor:  # fmt: skip
        incoming = region.need_qparams(x, "batch_norm")
        if x.ndim not in (3, 4, 5):
            raise UnsupportedError(
                f"{region.where()}: batch norm of a tensor of {x.ndim} axes; ONNX Runtime has "
                "integer convolutions for 3 to 5. Leave it in float (qconfig = None)."
            )
        take = region.constants.take
        dims = x.ndim - 2

        def slope() -> Tensor:
            one = torch.ones(()) if weight is None else weight.detach().double()
            return one * (var.double() + eps).rsqrt()

        def shift() -> Tensor:
            zero = 0.0 if bias is None else bias.detach().double()
            return (zero - mean.double() * slope()).float()

        integers = take(
            "gain", lambda: (slope().sign() * 127).to(torch.int8).reshape(-1, 1, *[1] * dims)
        )
        scales = take(
            "gain_scale", lambda: (slope().abs() / 127).float().clamp_min(float(MIN_SCALE))
        )
        zeros = take("gain_zero_point", lambda: torch.zeros_like(scales, dtype=torch.int8))
        b_scale = take("shift_scale", lambda: bias_scale(incoming.tensors[0], scales))
        b_integers = take("shift", lambda: bias_integers(shift(), b_scale))
        b_zeros = take("shift_zero_point", lambda: torch.zeros_like(b_scale, dtype=torch.int32))
        y = CONV[dims - 1](
            x,
            dequantize_linear(integers, scales, zeros, 0),
            dequantize_linear(b_integers, b_scale, b_zeros, 0),
            groups=x.shape[1],
        )
        return region.put(activation(y), region.new_qparams(scale, zero_point, incoming.dtype))

    return handler


def _operators() -> dict[str, Handler]:
    relu = torch.relu
    handlers: dict[str, Handler] = {
        "add": _binary(torch.add, _same),
        "add_scalar": _binary(torch.add, _same),
        "add_relu": _binary(torch.add, relu),
        "add_scalar_relu": _binary(torch.add, relu),
        "mul": _binary(torch.mul, _same),
        "mul_scalar": _binary(torch.mul, _same),
        "mul_relu": _binary(torch.mul, relu),
        "mul_scalar_relu": _binary(torch.mul, relu),
        "matmul": _binary(torch.matmul, _same),
        "cat": _cat(_same),
        "cat_relu": _cat(relu),
        "relu6": lambda region, x, *_, **__: region.clamped(
            x, region.need_qparams(x, "relu6"), 0.0, 6.0
        ),
        "dropout": lambda _region, x, *_arguments: x,
        "max_pool1d": _keeping(functional.max_pool1d),
        "max_pool2d": _keeping(functional.max_pool2d),
        "max_pool3d": _keeping(functional.max_pool3d),
        "hardswish": _into(functional.hardswish),
        "sigmoid": _into(torch.sigmoid),
        "leaky_relu": _into(lambda x, slope, _inplace: functional.leaky_relu(x, slope), 2),
        "celu": _into(functional.celu),
        "elu": _into(lambda x, alpha=1.0, *_: functional.elu(x, alpha)),
        "prelu": _into(functional.prelu, 1),
        "softmax": _into(functional.softmax, 1),
        "layer_norm": _into(functional.layer_norm, 4),
        "group_norm": _into(functional.group_norm, 4),
        "instance_norm": _into(
            lambda x, w, b, eps: functional.instance_norm(x, None, None, w, b, eps=eps), 3
        ),
        "linear": _weighted(_same),
        "linear_relu": _weighted(relu),
        "linear_tanh": _weighted(torch.tanh),
        "linear_leaky_relu": _linear_leaky,
        "conv2d_add": _conv_add(_same),
        "conv2d_add_relu": _conv_add(relu),
    }
    for dims in ("", "1d", "2d", "3d"):
        handlers[f"batch_norm{dims}"] = _batch_norm(_same)
        handlers[f"batch_norm{dims}_relu"] = _batch_norm(relu)
        handlers[f"conv{dims}"] = _weighted(_same)
        handlers[f"conv{dims}_relu"] = _weighted(relu)
        handlers[f"conv_transpose{dims}"] = _weighted(_same)
    return handlers


OPERATORS = _operators()
"""Name of torch.ops.quantized.<name> -> what computes it in a Region."""


CONSTANTS = "imported"
"""Name of the submodule that holds scales, zero points and biases."""


_MODULES = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")


def is_converted(model: nn.Module) -> bool:
    """Whether the model computes on quantized tensors of torch."""
    if any(type(part).__module__.startswith(_MODULES) for part in model.modules()):
        return True
    nodes = model.graph.nodes if isinstance(model, fx.GraphModule) else ()
    return any(node.target is torch.quantize_per_tensor for node in nodes)


def traceable(model: nn.Module, inputs: BoundInputs) -> nn.Module:
    """The model in Q/DQ form, in float32, for torch.export."""
    made = _plain(model).eval()
    make_printable(made)
    _numbers_from_buffers(made)
    constants = Constants()
    made.forward = run_in_region(made, constants, OPERATORS)
    made.add_module(CONSTANTS, constants)
    first_run(made, inputs)
    constants.recording = False
    return made


def _plain(model: nn.Module) -> nn.Module:
    """The module itself, but of a GraphModule one with its forward: torch.export runs its graph."""
    if not isinstance(model, fx.GraphModule):
        return model
    kind = type("GraphModule", (nn.Module,), {"forward": type(model).forward})
    made: nn.Module = kind()
    made.__dict__.update(
        {name: value for name, value in vars(model).items() if name not in ("_graph", "_integer")}
    )
    return made


def _numbers_from_buffers(model: nn.Module) -> None:
    """Scales and zero points that torch.ao's modules convert to numbers, which tracing cannot."""
    for module in model.modules():
        if not type(module).__module__.startswith("torch.ao.nn."):
            continue
        for name in ("scale", "zero_point"):
            value = module._buffers.get(name)
            if isinstance(value, torch.Tensor) and value.numel() == 1:
                del module._buffers[name]
                setattr(module, name, value.item())
