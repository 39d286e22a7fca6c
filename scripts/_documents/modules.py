"""Quantized modules: call forms, from_float, weights and results beside torch's.

onnxq's modules take and give real values at quantized levels where torch's take and give quantized
tensors: the same integers, once they are divided by the scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao import quantization as tq
from torch.ao.nn import intrinsic as theirs_fused
from torch.ao.nn.intrinsic import quantized as theirs_intrinsic

from onnxq.pytorch.nn import intrinsic as ours_fused
from onnxq.pytorch.nn import quantized as ours
from onnxq.pytorch.nn.intrinsic import quantized as ours_intrinsic
from scripts._documents.check import COVERAGE, DESIGN, GUIDE, Check, Difference
from scripts._documents.compare import (
    close,
    holds,
    integers_of,
    same,
    same_array,
    same_integers,
    same_quantized,
    steps_apart,
)
from scripts._documents.functions import BIAS, OUT, SCALE, image, weight

theirs: Any = import_module("torch.ao.nn.quantized")
QUANTIZED, INTRINSIC = "nn.quantized modules", "nn.intrinsic modules"

# --- Modules with weights: made alike, given the same weight and bias, called with the same values.

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "Conv1d": ((2, 3, 12), (4, 3, 3), {"padding": 1}),
    "Conv2d": ((2, 3, 8, 8), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    "Conv3d": ((1, 3, 4, 4, 4), (4, 3, 2, 2, 2), {}),
    "Linear": ((5, 6), (4, 6), {}),
}
"""Name -> shape of x, of the weight, further arguments."""


def layers(name: str, fused: object = False) -> tuple[Any, Any, Tensor]:
    """Both modules with the same numbers, and an x for them."""
    of_x, of_weight, more = SHAPES[name]
    sizes = (of_weight[1], of_weight[0], *(of_weight[2:3] if len(of_weight) > 2 else ()))
    pair = []
    for plain, intrinsic in ((ours, ours_intrinsic), (theirs, theirs_intrinsic)):
        kind = name.replace("Conv", "ConvReLU").replace("Linear", "LinearReLU")
        made = getattr(intrinsic, kind) if fused else getattr(plain, name)
        layer = made(*sizes, **more)
        given = (
            [SCALE] if plain is ours else []
        )  # onnxq's bias is stored as int32: it asks for x's scale
        layer.set_weight_bias(weight(*of_weight), BIAS, *given)
        layer.scale, layer.zero_point = OUT["scale"], OUT["zero_point"]
        pair.append(layer)
    return pair[0], pair[1], image(*of_x)


def layer_result(name: str, fused: object) -> None:
    """Both give the same integers of the same x."""
    mine, torchs, x = layers(name, fused)
    steps_apart(mine(x.dequantize()), torchs(x).dequantize(), OUT["scale"])


def layer_weight(name: str) -> None:
    """weight() is a quantized tensor with the integers that were given: the third rule."""
    mine, torchs, _ = layers(name)
    same_quantized(mine.weight(), torchs.weight())


def layer_bias(name: str) -> None:
    """bias() is the bias to half a step of its int32 integers: the document's symmetric qint32."""
    mine, torchs, _ = layers(name)
    step = float(mine.bias_scale.max())
    close(mine.bias(), torchs.bias(), 0.0, step / 2)
    same(int(mine.bias_zero_point.abs().sum()), 0, "zero point of the bias")


def layer_qparams(name: str) -> None:
    """Scale and zero_point are attributes that can be read and set."""
    mine, torchs, _ = layers(name)
    close(mine.scale, torchs.scale, 2.0**-24)
    same(int(mine.zero_point), int(torchs.zero_point))


# --- Modules without weights, by arguments that both take.

PLAIN: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], float]] = {
    "ReLU6": (lambda n: n.ReLU6(), (64,), SCALE),
    "ELU": (lambda n: n.ELU(0.0417, 29, 1.3), (64,), 0.0417),
    "Hardswish": (lambda n: n.Hardswish(0.0417, 29), (64,), 0.0417),
    "MaxPool2d": (lambda n: n.MaxPool2d(3, 2, 1), (2, 3, 9, 9), SCALE),
    "BatchNorm2d": (lambda n: _normed(n.BatchNorm2d(4)), (2, 4, 5, 5), 0.0937),
    "BatchNorm3d": (lambda n: _normed(n.BatchNorm3d(4)), (2, 4, 3, 3, 3), 0.0937),
    "LayerNorm": (lambda n: n.LayerNorm([5, 5], *_affine(5, 5)), (2, 4, 5, 5), 0.0211),
    "GroupNorm": (lambda n: n.GroupNorm(2, 4, *_affine(4)), (2, 4, 5, 5), 0.0211),
    "InstanceNorm1d": (lambda n: n.InstanceNorm1d(4, *_affine(4)), (2, 4, 9), 0.0211),
    "InstanceNorm2d": (lambda n: n.InstanceNorm2d(4, *_affine(4)), (2, 4, 5, 5), 0.0211),
    "InstanceNorm3d": (lambda n: n.InstanceNorm3d(4, *_affine(4)), (2, 4, 3, 3, 3), 0.0211),
}


def _affine(*shape: int) -> tuple[Tensor, Tensor, float, int]:
    generator = torch.Generator().manual_seed(2)
    return (
        nn.Parameter(torch.rand(*shape, generator=generator) + 0.5),
        nn.Parameter(torch.randn(*shape, generator=generator)),
        *(0.0211, 128),
    )


def _normed(layer: Any) -> Any:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(layer, name).copy_(torch.rand(4, generator=generator) + 0.3)
    buffers = dict(layer.named_buffers(recurse=False))
    for name, value in OUT.items():  # torch's are buffers
        setattr(layer, name, torch.tensor(value) if name in buffers else value)
    return layer.eval()


def plain_result(name: str) -> None:
    """Both give the same integers of the same x."""
    make, shape, scale = PLAIN[name]
    x = image(*shape)
    result = make(theirs)(x)
    steps_apart(make(ours)(x.dequantize()), result.dequantize(), scale)


# --- from_float: of what prepare observed, beside torch's.

FLOATS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Conv1d": (lambda: nn.Conv1d(3, 4, 3), (2, 3, 12)),
    "Conv2d": (lambda: nn.Conv2d(3, 4, 3), (2, 3, 8, 8)),
    "Conv3d": (lambda: nn.Conv3d(3, 4, 2), (1, 3, 4, 4, 4)),
    "Linear": (lambda: nn.Linear(6, 4), (5, 6)),
    "ELU": (lambda: nn.ELU(1.3), (64,)),
    "Hardswish": (nn.Hardswish, (64,)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), (2, 4, 5, 5)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(4), (2, 4, 3, 3, 3)),
    "LayerNorm": (lambda: nn.LayerNorm([5, 5]), (2, 4, 5, 5)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (2, 4, 5, 5)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(4), (2, 4, 9)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4), (2, 4, 5, 5)),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(4), (2, 4, 3, 3, 3)),
    "ReLU6": (nn.ReLU6, (64,)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (1, 3, 6, 6)),
}


def from_float(name: str) -> None:
    """Convert puts both modules in the place of the float one; scales equal, integers equal."""
    from onnxq.pytorch import quantization as oq  # beside torch's, by name

    make, shape = FLOATS[name]
    pair = []
    for namespace in (oq, tq):
        torch.manual_seed(4)
        net = namespace.QuantWrapper(make()).eval()
        net.qconfig = namespace.get_default_qconfig("fbgemm")
        net.qconfig = namespace.QConfig(namespace.default_observer, net.qconfig.weight)
        prepared = namespace.prepare(net)
        prepared(image(*shape).dequantize())
        pair.append(namespace.convert(prepared))
    mine, torchs = (net.module for net in pair)
    same(type(mine).__name__, type(torchs).__name__, "class")
    if hasattr(torchs, "scale"):
        close(mine.scale, float(torchs.scale), 2.0**-22)
        same(int(mine.zero_point), int(torchs.zero_point), "zero point")
    if hasattr(torchs, "set_weight_bias"):
        same_integers(mine.weight(), torchs.weight())
    x = image(*shape).dequantize()
    scale = float(getattr(torchs, "scale", pair[1].quant.scale))
    steps_apart(pair[0](x), pair[1](x), scale)


# --- Fused float modules, and modules of two operands.

FUSED = [
    "ConvBn1d",
    "ConvBn2d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearReLU",
]


def parts_of(name: str) -> dict[str, nn.Module]:
    """Float layers by the names of torch's parameters."""
    n = int(name[-2]) if name.endswith("d") else 0
    first = nn.Linear(3, 4) if not n else getattr(nn, f"Conv{n}d")(3, 4, 1)
    found = {"conv" if n else "linear": first}
    if "Bn" in name:
        found["bn"] = getattr(nn, f"BatchNorm{n}d")(4)
    return found | ({"relu": nn.ReLU()} if "ReLU" in name else {})


def fused_form(name: str) -> None:
    """The parts are taken by position, and by torch's names."""
    parts = parts_of(name)
    for made in (
        getattr(ours_fused, name)(*parts.values()),
        getattr(ours_fused, name)(**parts),
    ):
        holds(all(a is b for a, b in zip(made, parts.values(), strict=True)), "other parts")


def fused_result(name: str) -> None:
    """The fused module computes what torch's does, in train and in eval mode: bit for bit."""
    parts = parts_of(name)
    n = int(name[-2]) if name.endswith("d") else 0
    x = torch.randn(2, 3, *[4] * n)
    for mode in (True, False):
        mine = getattr(ours_fused, name)(*parts.values()).train(mode)
        torchs = getattr(theirs_fused, name)(*parts.values()).train(mode)
        same_array(mine(x), torchs(x))


OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda f, a, b: f.add(a, b),
    "add_scalar": lambda f, a, _: f.add_scalar(a, 0.7),
    "mul": lambda f, a, b: f.mul(a, b),
    "mul_scalar": lambda f, a, _: f.mul_scalar(a, 0.7),
    "cat": lambda f, a, b: f.cat([a, b], dim=1),
    "add_relu": lambda f, a, b: f.add_relu(a, b),
}


def float_functional(name: str) -> None:
    """FloatFunctional computes in float, as torch's: bit for bit."""
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    same_array(
        OPERATIONS[name](ours.FloatFunctional(), a, b),
        OPERATIONS[name](theirs.FloatFunctional(), a, b),
    )


def q_functional(name: str) -> None:
    """QFunctional gives the integers of torch's, with its own scale and zero point."""
    a, b = image(4, 4), image(4, 4).flip(0)
    b = torch.quantize_per_tensor(b.dequantize() * 0.9, 0.0471, 101, torch.quint8)
    mine, torchs = ours.QFunctional(), theirs.QFunctional()
    for each in (mine, torchs):
        each.scale, each.zero_point = 0.0937, 111
    wanted = OPERATIONS[name](torchs, a, b)
    got = OPERATIONS[name](mine, a.dequantize(), b.dequantize())
    holds(len(set(integers_of(wanted).reshape(-1).tolist())) > 4, "the case saturates")
    steps_apart(got, wanted.dequantize(), wanted.q_scale())


# --- Quantize and DeQuantize.


def quantize() -> None:
    """Quantize(scale, zero_point, dtype)(x) has the levels of the quantized tensor."""
    x = torch.randn(64) * 3
    for dtype, zero_point in ((torch.quint8, 117), (torch.qint8, -3)):
        mine = ours.Quantize(0.0513, zero_point, dtype)(x)
        same_array(mine, theirs.Quantize(0.0513, zero_point, dtype)(x).dequantize())


def dequantize() -> None:
    """DeQuantize gives the real values of what was quantized."""
    x = image(64)
    same_array(ours.DeQuantize()(x.dequantize()), theirs.DeQuantize()(x))


def takes_quantized() -> None:
    """Forward takes and gives quantized tensors: the second rule of nn.quantized."""
    mine, torchs, x = layers("Linear")
    same_quantized(mine(x), torchs(x))


def former_namespace() -> None:
    """torch.nn._intrinsic, whose modules 'will be replaced', is torch.nn.intrinsic since 1.3."""
    import onnxq.pytorch.nn as namespace

    if not hasattr(namespace, "_intrinsic"):
        raise Difference("onnxq.pytorch.nn has no module _intrinsic")


def checks() -> Iterator[Check]:
    """All checks of modules."""
    for name in SHAPES:
        yield Check(COVERAGE, QUANTIZED, f"{name}, result", partial(layer_result, name, False))
        relu = name.replace("Conv", "ConvReLU").replace("Linear", "LinearReLU")
        fused = partial(layer_result, name, True)
        yield Check(COVERAGE, "nn.intrinsic.quantized modules", f"{relu}, result", fused)
        yield Check(
            DESIGN, QUANTIZED, f"{name}, weight() is quantized", partial(layer_weight, name)
        )
        yield Check(DESIGN, QUANTIZED, f"{name}, bias in int32", partial(layer_bias, name))
        yield Check(COVERAGE, QUANTIZED, f"{name}, scale, zero_point", partial(layer_qparams, name))
    for name in PLAIN:
        yield Check(COVERAGE, QUANTIZED, f"{name}, result", partial(plain_result, name))
    for name in FLOATS:
        yield Check(DESIGN, QUANTIZED, f"{name}.from_float by convert", partial(from_float, name))
    for name in FUSED:
        yield Check(GUIDE, INTRINSIC, f"{name}(...)", partial(fused_form, name))
        yield Check(COVERAGE, INTRINSIC, f"{name}, result", partial(fused_result, name))
    for name in OPERATIONS:
        yield Check(GUIDE, QUANTIZED, f"FloatFunctional.{name}", partial(float_functional, name))
        yield Check(GUIDE, QUANTIZED, f"QFunctional.{name}", partial(q_functional, name))
    yield Check(COVERAGE, QUANTIZED, "Quantize, result", quantize)
    yield Check(COVERAGE, QUANTIZED, "DeQuantize, result", dequantize)
    yield Check(DESIGN, QUANTIZED, "quantized tensors in and out", takes_quantized)
    yield Check(DESIGN, INTRINSIC, "the namespace _intrinsic", former_namespace)
