"""tensor_quant: descriptors, values, integers and gradients beside the documented formulas.

NVIDIA's package needs CUDA, so that the formulas are computed here, in float32 and in its order:
scale = bound / amax, integers = clip(rint(x * scale)), values = integers / scale.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxq.pytorch import tensor_quant as tq
from scripts._documents.check import NVIDIA, Check, Difference
from scripts._documents.compare import holds, same, same_array

DESCRIPTOR, FUNCTION = "descriptor", "functions"

# --- Descriptors.

DEFAULTS: dict[str, Any] = {
    "num_bits": 8,
    "name": None,
    "fake_quant": True,
    "axis": None,
    "amax": None,
    "learn_amax": False,
    "scale_amax": None,
    "calib_method": "max",
    "unsigned": False,
}
OTHERS: dict[str, Any] = {
    "num_bits": 4,
    "name": "weight",
    "fake_quant": False,
    "axis": (0, 1),
    "amax": 6.0,
    "learn_amax": True,
    "scale_amax": 0.9,
    "calib_method": "histogram",
    "unsigned": True,
}
WRONG: dict[str, Any] = {
    "num_bits": "8",
    "fake_quant": 1,
    "axis": 0.5,
    "amax": "6",
    "learn_amax": "yes",
    "scale_amax": "0.9",
    "calib_method": 3,
    "unsigned": 1,
}
LISTED: dict[str, dict[str, Any]] = {
    "defaults": {},
    "every argument": {**OTHERS, "axis": None, "learn_amax": True},
    "axis, an int": {"axis": 0},
    "axis, a tuple": {"axis": (0, 2)},
    "axis, negative": {"axis": -1},
    "amax, a list": {"amax": [1.0, 2.5]},
    "amax, an array": {"amax": np.array([[1.0], [2.5]], np.float32)},
}


def given(name: str) -> Any:
    """A descriptor with one argument that is not its default."""
    more: dict[str, Any] = {"amax": 6.0} if name == "learn_amax" else {}
    return tq.QuantDescriptor(**{**more, name: OTHERS[name]})


def default(name: str) -> None:
    """The default is the documented one."""
    same(getattr(tq.QuantDescriptor(), name), DEFAULTS[name], name)


def kept(name: str) -> None:
    """The property gives what the constructor was given."""
    got = getattr(given(name), name)
    if name == "amax":
        got = float(got)
    same(got, OTHERS[name], name)


def read_only(name: str) -> None:
    """The property cannot be set."""
    descriptor = tq.QuantDescriptor()
    try:
        setattr(descriptor, name, OTHERS[name])
    except AttributeError:
        same(getattr(descriptor, name), DEFAULTS[name], name)
        return
    raise Difference(f"{name} was set")


def typed(name: str) -> None:
    """A wrong type is a TypeError."""
    try:
        tq.QuantDescriptor(**{name: WRONG[name]})
    except TypeError:
        return
    raise Difference(f"takes {name}={WRONG[name]!r}")


def round_trip(case: str) -> None:
    """The dict and the YAML make an equal descriptor."""
    descriptor = tq.QuantDescriptor(**LISTED[case])
    held: dict[str, Any] = descriptor.dict()
    again = tq.QuantDescriptor(**held)
    read = tq.QuantDescriptor.from_yaml(descriptor.to_yaml())
    for other in (again, read):
        holds(other == descriptor, f"{other}, wanted {descriptor}")
        for name in DEFAULTS:
            if name == "amax" and descriptor.amax is not None:
                same_array(other.amax, descriptor.amax)
                continue
            same(getattr(other, name), getattr(descriptor, name), name)


def dict_of_defaults() -> None:
    """dict() holds nothing where all arguments are defaults."""
    same(tq.QuantDescriptor().dict(), {}, "dict()")


def dict_without_underscores() -> None:
    """dict() has no protected names."""
    descriptor = tq.QuantDescriptor(**LISTED["every argument"])
    holds(not [name for name in descriptor.dict() if name.startswith("_")], "protected names")
    holds(set(descriptor.dict()) <= set(DEFAULTS), f"{set(descriptor.dict()) - set(DEFAULTS)}")


def alias() -> None:
    """QuantDescriptor is ScaledQuantDescriptor."""
    holds(tq.QuantDescriptor is tq.ScaledQuantDescriptor, "another class")


def method_refused() -> None:
    """calib_method is max or histogram, and nothing else."""
    try:
        tq.QuantDescriptor(calib_method="entropy")
    except ValueError:
        return
    raise Difference("takes calib_method='entropy'")


def amax_wins() -> None:
    """A given amax sets the range, whatever was seen: values beyond it are cut off."""
    quantizer = tq.TensorQuantizer(tq.QuantDescriptor(amax=2.0))
    y = quantizer(torch.tensor([5.0, 1.0]))
    same(float(y[0]), 2.0)
    holds(abs(float(y[1]) - 1) <= 1.0 / 127, f"1 becomes {float(y[1])}")


def amax_scaled() -> None:
    """scale_amax multiplies amax."""
    plain = tq.TensorQuantizer(tq.QuantDescriptor(amax=2.0, scale_amax=0.5))
    other = tq.TensorQuantizer(tq.QuantDescriptor(amax=1.0))
    x = torch.linspace(-3, 3, 101)
    same_array(plain(x), other(x))


# --- Functions.

GIVEN = list(itertools.product((8, 7, 4, 3, 2), (False, True), (True, False)))
"""(num_bits, unsigned, narrow_range)."""


def values(unsigned: object = False) -> Tensor:
    """Values of both signs beyond amax = 1.7, or positive ones."""
    x = torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(9)) * 1.2
    return x.abs() if unsigned else x


def formula(
    x: Tensor, amax: Tensor, bits: int, unsigned: object, narrow: object
) -> tuple[Tensor, Tensor]:
    """(integers, scale) as the document computes them, in float32."""
    bound = torch.tensor(2.0 ** (bits - 1 + bool(unsigned)) - 1)
    lowest = 0 if unsigned else -bound if narrow else -bound - 1
    scale = bound / amax
    return torch.clamp((x * scale).round(), min=torch.as_tensor(float(lowest)), max=bound), scale


AMAX = torch.tensor(1.7)


def integers(bits: int, unsigned: object, narrow: object) -> None:
    """Outputs are the integers, and scale the quotient: both equal bit for bit."""
    x = values(unsigned)
    got, scale = tq.tensor_quant(x, AMAX, bits, unsigned, narrow)
    wanted, wanted_scale = formula(x, AMAX, bits, unsigned, narrow)
    same_array(got, wanted)
    same_array(scale, wanted_scale)
    bound = float(wanted.max())
    same((float(got.max()), bound), (2.0 ** (bits - 1 + bool(unsigned)) - 1,) * 2, "largest")


def faked(bits: int, unsigned: object, narrow: object) -> None:
    """Fake-quantized values are integers / scale, bit for bit."""
    x = values(unsigned)
    wanted, scale = formula(x, AMAX, bits, unsigned, narrow)
    same_array(tq.fake_tensor_quant(x, AMAX, bits, unsigned, narrow), wanted / scale)


def channels(function: str, shape: tuple[int, ...]) -> None:
    """Amax is broadcast to the inputs: its shape is the granularity of the scale."""
    x = values()
    axes = [axis for axis, size in enumerate(shape) if size == 1]
    amax = x.abs().amax(axes, keepdim=True) * 0.8
    wanted, scale = formula(x, amax, 8, False, True)  # as the function takes them
    if function == "tensor_quant":
        got, got_scale = tq.tensor_quant(x, amax)
        same_array(got, wanted)
        same_array(got_scale, scale)
        return
    same_array(tq.fake_tensor_quant(x, amax), wanted / scale)


def gradient(function: Any) -> None:
    """Straight through where -amax <= x <= amax, ends included; zero elsewhere."""
    x = torch.tensor([-3.0, -1.7, -0.4, 0.0, 0.9, 1.7, 1.8], requires_grad=True)
    out = function(x, AMAX)
    slope = torch.arange(1.0, 8.0)
    ((out if isinstance(out, Tensor) else out[0]) * slope).sum().backward()
    inside = torch.tensor([0, 1, 1, 1, 1, 1, 0])
    same_array(x.grad, slope * inside)


def stored_as_floats() -> None:
    """The integers are stored as floats by default: convolutions take no others."""
    same(tq.tensor_quant(values(), AMAX)[0].dtype, torch.float32)


def stored_as_integers() -> None:
    """output_dtype=torch.int32 stores them as integers."""
    function: Any = tq.TensorQuantFunction
    got, _ = function.apply(values(), AMAX, 8, False, True, torch.int32)
    same(got.dtype, torch.int32)
    wanted, _ = formula(values(), AMAX, 8, False, True)
    same_array(got, wanted.to(torch.int32))


def narrow_default() -> None:
    """The default range is [-127, 127]: 2^num_bits - 1 values."""
    got, _ = tq.tensor_quant(torch.tensor([-9.0, 9.0]), AMAX)
    same(got.tolist(), [-127.0, 127.0])


def dequantized() -> None:
    """Outputs / scale dequantizes: within half a step of the inputs inside of amax."""
    x = values().clamp(-1.7, 1.7)
    got, scale = tq.tensor_quant(x, AMAX)
    apart = float((got / scale - x).abs().max())
    holds(apart <= 0.5 / float(scale) * (1 + 2.0**-20), f"{apart:.3g} apart")


def tiny_amax() -> None:
    """An amax of 0 makes integers of 0, and no NaN."""
    got, scale = tq.tensor_quant(torch.zeros(4), torch.tensor(0.0))
    same(got.tolist(), [0.0] * 4)
    holds(bool(torch.isfinite(scale).all()), f"scale {scale}")


def negative_refused(function: Any) -> None:
    """Unsigned integers have no negative values: a TypeError."""
    try:
        function(values(), AMAX, 8, True)
    except TypeError:
        return
    raise Difference("takes negative values as unsigned")


def is_apply(name: str, function: str) -> None:
    """The function is the documented class's apply."""
    mine = getattr(tq, name)(values(), AMAX)
    other = getattr(tq, function).apply(values(), AMAX)
    pairs = zip(*[x if isinstance(x, tuple) else (x,) for x in (mine, other)], strict=True)
    for got, wanted in pairs:
        same_array(got, wanted)
    holds(issubclass(getattr(tq, function), torch.autograd.Function), "no autograd function")


def half(function: Any) -> None:
    """float16 inputs give float16 outputs, computed in float32."""
    x = values().half()
    got = function(x, AMAX)
    got = got if isinstance(got, Tensor) else got[0]
    wanted, scale = formula(x.float(), AMAX, 8, False, True)
    wanted = wanted if function is tq.tensor_quant else wanted / scale
    same(got.dtype, torch.float16)
    same_array(got, wanted.half())


_ALONE: dict[str, Callable[[], None]] = {
    "stored as floats by default": stored_as_floats,
    "output_dtype": stored_as_integers,
    "narrow_range by default": narrow_default,
    "outputs / scale": dequantized,
    "amax of 0": tiny_amax,
}


def checks() -> Iterator[Check]:
    """All checks of tensor_quant."""
    for what, ask in (("default", default), ("kept", kept), ("read-only", read_only)):
        for name in DEFAULTS:
            yield Check(NVIDIA, DESCRIPTOR, f"{name}, {what}", partial(ask, name))
    for name in WRONG:
        yield Check(NVIDIA, DESCRIPTOR, f"{name}, TypeError", partial(typed, name))
    for case in LISTED:
        yield Check(NVIDIA, DESCRIPTOR, f"dict and YAML, {case}", partial(round_trip, case))
    yield Check(NVIDIA, DESCRIPTOR, "dict() without defaults", dict_of_defaults)
    yield Check(NVIDIA, DESCRIPTOR, "dict() without protected names", dict_without_underscores)
    yield Check(NVIDIA, DESCRIPTOR, "QuantDescriptor, alias", alias)
    yield Check(NVIDIA, DESCRIPTOR, "calib_method, other values", method_refused)
    yield Check(NVIDIA, DESCRIPTOR, "amax, in use", amax_wins)
    yield Check(NVIDIA, DESCRIPTOR, "scale_amax, in use", amax_scaled)
    for bits, unsigned, narrow in GIVEN:
        words = f"{bits} bits{', unsigned' if unsigned else ''}{', narrow' if narrow else ''}"
        for name, asked in (("tensor_quant", integers), ("fake_tensor_quant", faked)):
            ask_all = partial(asked, bits, unsigned, narrow)
            yield Check(NVIDIA, FUNCTION, f"{name}, {words}", ask_all)
    for name in ("tensor_quant", "fake_tensor_quant"):
        function = getattr(tq, name)
        for shape in ((6, 1, 1), (1, 4, 1), (1, 1, 5), (6, 4, 1)):
            yield Check(NVIDIA, FUNCTION, f"{name}, amax {shape}", partial(channels, name, shape))
        yield Check(NVIDIA, FUNCTION, f"{name}, gradient", partial(gradient, function))
        yield Check(NVIDIA, FUNCTION, f"{name}, float16", partial(half, function))
        refusal = partial(negative_refused, function)
        yield Check(NVIDIA, FUNCTION, f"{name}, unsigned negative values", refusal)
    yield Check(
        *(NVIDIA, FUNCTION, "tensor_quant is TensorQuantFunction.apply"),
        partial(is_apply, "tensor_quant", "TensorQuantFunction"),
    )
    yield Check(
        *(NVIDIA, FUNCTION, "fake_tensor_quant is FakeTensorQuantFunction.apply"),
        partial(is_apply, "fake_tensor_quant", "FakeTensorQuantFunction"),
    )
    for name, alone in _ALONE.items():
        yield Check(NVIDIA, FUNCTION, f"tensor_quant, {name}", alone)
