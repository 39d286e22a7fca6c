"""QuantDescriptor: how a tensor is to be quantized, as a value; documented by NVIDIA.

weight = QuantDescriptor(num_bits=8, axis=0)
QConfig(activation=QuantDescriptor(unsigned=True, calib_method="histogram"), weight=weight)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from onnxq.core.arrays import Singles
from onnxq.errors import QConfigError
from onnxq.observers import AmaxObserver, NarrowRangeObserver, ObserverSpec
from onnxq.qconfig import FakeQuantSpec, ScaleRule

# --- The documented TypeError and ValueError, which are onnxq's QConfigError too (exit code 5).


class QuantTypeError(QConfigError, TypeError):
    """An argument of a type that quantization does not take, or the wrong kind of tensor."""


class QuantValueError(QConfigError, ValueError):
    """An argument whose value no quantization has: a negative amax, 1 bit, a shape that differs."""


# --- Arguments: each is checked, and gets the type that the descriptor keeps.

Axis = int | tuple[int, ...] | None

MIN_BITS, MAX_BITS = 2, 16
_METHODS = ("max", "histogram")


def as_num_bits(value: object) -> int:
    """The number of bits."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        if value == (4, 3):
            raise QuantTypeError(
                "num_bits=(4, 3) is float8, which ONNX Runtime's CPU does not compute with; wanted "
                "an integer, 2 to 16. To see what float8 does to values, call scaled_e4m3(x, amax)."
            )
        raise QuantTypeError(f"num_bits: got {with_type(value)}; wanted an integer, 2 to 16.")
    if not MIN_BITS <= value <= MAX_BITS:
        raise QuantValueError(f"num_bits: got {value}; wanted {MIN_BITS} to {MAX_BITS}.")
    return int(value)


def with_type(value: object) -> str:
    """The value and its type, for a message."""
    return f"{value!r}, a {type(value).__name__}"


def as_bool(name: str, value: object) -> bool:
    """The value of a switch."""
    if not isinstance(value, bool | np.bool_):
        raise QuantTypeError(f"{name}: got {with_type(value)}; wanted True or False.")
    return bool(value)


def as_axis(value: object) -> Axis:
    """The axis or axes."""
    axes = value if isinstance(value, tuple | list) else [] if value is None else [value]
    if any(isinstance(a, bool) or not isinstance(a, int | np.integer) for a in axes):
        raise QuantTypeError(
            f"axis: got {with_type(value)}; wanted None, an int or a tuple of int."
        )
    numbers = tuple(int(str(a)) for a in axes)
    if len(set(numbers)) != len(numbers):
        raise QuantValueError(f"axis: got {value!r}, which names an axis twice.")
    if isinstance(value, tuple | list):
        return numbers
    return None if value is None else numbers[0]


def as_amax(value: object) -> Singles | None:
    """The fixed range, float32, which cannot be written to; None: it is calibrated."""
    if value is None:
        return None
    if not isinstance(value, float | list | np.ndarray):
        raise QuantTypeError(f"amax must be float, list or ndarray; got {with_type(value)}.")
    try:
        amax = np.array(value, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise QuantTypeError(f"amax: got {value!r}, which holds no floats: {error}.") from error
    if amax.size == 0 or not np.isfinite(amax).all() or (amax < 0).any():
        raise QuantValueError(f"amax: got {value!r}; wanted finite values >= 0 (in float32).")
    amax.setflags(write=False)
    return amax


def as_scale_amax(value: object) -> float | None:
    """The factor on amax; None: there is none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating):
        raise QuantTypeError(f"scale_amax: got {with_type(value)}; wanted a float or None.")
    if not 0 < value < float("inf"):
        raise QuantValueError(f"scale_amax: got {value}; wanted a positive number.")
    return float(value)


def as_method(value: object) -> str:
    """The name of a calibrator."""
    if not isinstance(value, str):
        raise QuantTypeError(f"calib_method: got {with_type(value)}; wanted a string.")
    if value not in _METHODS:
        raise QuantValueError(
            f"calib_method: got '{value}'; wanted {' or '.join(_METHODS)}. (percentile, mse and "
            'entropy are ways to read a histogram: load_calib_amax("entropy").)'
        )
    return value


# --- The descriptor, and those that NVIDIA names.

_BYTE = 8  # fewer bits are stored in 8, which the integer kernels read


def max_bound(num_bits: int, unsigned: object) -> int:
    """The largest integer: 2^(num_bits - 1) - 1, or 2^num_bits - 1 if unsigned."""
    return (1 << (num_bits - 1 + bool(unsigned))) - 1


@dataclass(frozen=True, init=False, eq=False, repr=False, slots=True)
class ScaledQuantDescriptor:
    """How a tensor is quantized: symmetric around 0, with a scale that follows from amax.

        q = clip(rint(x * bound / amax)),   bound = 2^(num_bits-1) - 1, or 2^num_bits - 1

    A value: read-only, comparable, hashable; `type(d)(**d.dict()) == d`, and the same through YAML.
    It can stand where a QConfig takes an observer.

    Args:
        num_bits: 2 to 16.
        name: for the reader.
        fake_quant: whether the result is float, at quantized levels, or the integers themselves.
        axis: None for one scale, else the axis or axes that have scales of their own; 0 for the
            weights of a convolution.
        amax: float, or list or ndarray of floats, >= 0: fixed range instead of a calibrated one.
        learn_amax: learn amax, beginning with `amax` or 1.
        scale_amax: factor on amax, > 0.
        calib_method: "max" or "histogram".
        unsigned: integers 0 .. 2^num_bits - 1, for tensors without negative values.
        narrow_range: integers -bound .. bound, without -bound - 1. (Not among the documented
            arguments, but among the original's.)
    Raises:
        QuantTypeError: a TypeError; an argument of another type, or one that is not known;
            learn_amax with an axis.
        QuantValueError: a ValueError; a number out of its range, another calib_method.
    """

    num_bits: int
    name: str | None
    fake_quant: bool
    axis: Axis
    learn_amax: bool
    amax: Singles | None
    scale_amax: float | None
    calib_method: str
    unsigned: bool
    narrow_range: bool

    def __init__(self, num_bits: int = 8, name: str | None = None, **kwargs: object) -> None:
        if name is not None and not isinstance(name, str):
            raise QuantTypeError(f"name: got {with_type(name)}; wanted a string or None.")
        values = {"num_bits": as_num_bits(num_bits), "name": name}
        for key, (check, default) in _CHECKS.items():
            values[key] = check(kwargs.pop(key, default))
        if values["learn_amax"] and values["axis"] is not None:
            raise QuantTypeError(
                "axis is ignored and must be None when learn_amax is true: one amax is learned "
                f"for the tensor; got {values['axis']}. Leave one of the two out."
            )
        if kwargs:
            raise QuantTypeError(
                f"unused keys: {', '.join(kwargs)}; QuantDescriptor takes {', '.join(values)}."
            )
        for key, value in values.items():
            object.__setattr__(self, key, value)  # frozen

    def dict(self) -> dict[str, object]:
        """num_bits, name, and all that differs from its default: keywords that make an equal one.

        Numbers, texts, tuples and lists; amax is a float or a list.
        """
        plain: dict[str, object] = {"num_bits": self.num_bits, "name": self.name}
        for key, (_, default) in _CHECKS.items():
            value = getattr(self, key)
            if isinstance(value, np.ndarray):
                plain[key] = value.tolist()
            elif value != default:
                plain[key] = value
        return plain

    def to_yaml(self) -> str:
        """`dict()` as YAML; axes and amax as lists."""
        plain = self.dict()
        if isinstance(self.axis, tuple):
            plain["axis"] = list(self.axis)
        return yaml.safe_dump(plain, width=120)

    @classmethod
    def from_yaml(cls, yaml_str: str) -> ScaledQuantDescriptor:
        """The descriptor that `to_yaml` wrote.

        Raises:
            QuantValueError: no YAML, or no mapping.
            QuantTypeError: as the constructor.
        """
        try:
            plain = yaml.safe_load(yaml_str)
        except yaml.YAMLError as error:
            raise QuantValueError(f"QuantDescriptor: this is not YAML: {error}") from error
        if not isinstance(plain, dict) or not all(isinstance(key, str) for key in plain):
            raise QuantValueError(
                f"QuantDescriptor: got YAML of {with_type(plain)}; wanted a mapping as to_yaml "
                "writes."
            )
        return cls(**plain)

    def weight_part(self) -> FakeQuantSpec:
        """The part of a QConfig for weights of this description: int8 (or int16) around 0.

        max, signed, with nothing else asked: NarrowRangeObserver, else AmaxObserver. The integers
        lie in [-bound, bound], whatever narrow_range: no value exceeds the amax of its own tensor
        but by clipping.
        """
        fixed = self.amax is not None or self.scale_amax is not None
        if self.calib_method == "max" and not self.unsigned and not fixed:
            found = NarrowRangeObserver.with_args(
                quant_max=max_bound(self.num_bits, self.unsigned),
                ch_axis=self._one_axis(),
                dtype=f"int{self._width()}",
            )
            return self._part(found)
        return self._part(self._amax_observer(0))

    def activation_part(self) -> FakeQuantSpec:
        """The part of a QConfig for activations: uint8 or uint16, 0 in the middle if signed.

        The values are those of int8 around 0; ONNX Runtime runs them in integers in more places.
        """
        return self._part(self._amax_observer(0 if self.unsigned else 1 << (self._width() - 1)))

    def _part(self, observer: ObserverSpec) -> FakeQuantSpec:
        rule = ScaleRule.LEARNED if self.learn_amax else ScaleRule.OBSERVED
        return FakeQuantSpec(observer, rule)

    def _width(self) -> int:
        return _BYTE if self.num_bits <= _BYTE else 2 * _BYTE

    def _one_axis(self) -> int | None:
        if not self.fake_quant:
            raise QuantTypeError(
                "QuantDescriptor with fake_quant=False: a QConfig describes qparams; the model "
                "that is written has integers anyway. Leave fake_quant out."
            )
        if not isinstance(self.axis, tuple):
            return self.axis
        if len(self.axis) != 1:
            raise QuantValueError(
                f"axis {self.axis}: ONNX has scales along one axis. Give one axis, or None."
            )
        return self.axis[0]

    def _amax_observer(self, middle: int) -> ObserverSpec:
        axis = self._one_axis()
        unsigned = self.unsigned or middle > 0
        return AmaxObserver.with_args(
            quant_max=max_bound(self.num_bits, self.unsigned),
            ch_axis=axis,
            dtype=f"{'u' if unsigned else ''}int{self._width()}",
            method="percentile" if self.calib_method == "histogram" else "max",
            amax=None if self.amax is None else _amax_text(self.amax, axis),
            scale_amax=1.0 if self.scale_amax is None else self.scale_amax,
            middle=middle,
        )

    def _key(self) -> tuple[object, ...]:
        amax = None if self.amax is None else (self.amax.shape, self.amax.tobytes())
        others = (getattr(self, key) for key in _CHECKS if key != "amax")
        return (self.num_bits, self.name, amax, *others)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScaledQuantDescriptor):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        given = {k: v for k, v in self.dict().items() if k != "name" or v is not None}
        return f"QuantDescriptor({', '.join(f'{k}={v!r}' for k, v in given.items())})"


QuantDescriptor = ScaledQuantDescriptor

_CHECKS: dict[str, tuple[Callable[[object], Any], object]] = {
    "fake_quant": (partial(as_bool, "fake_quant"), True),
    "axis": (as_axis, None),
    "learn_amax": (partial(as_bool, "learn_amax"), False),
    "amax": (as_amax, None),
    "scale_amax": (as_scale_amax, None),
    "calib_method": (as_method, "max"),
    "unsigned": (partial(as_bool, "unsigned"), False),
    "narrow_range": (partial(as_bool, "narrow_range"), False),
}
"""Argument -> its check, and its default."""


def _amax_text(amax: Singles, axis: int | None) -> str:
    """Amax as an argument that an ObserverSpec can hold: numbers between spaces."""
    if amax.size > 1 and (axis is None or max(amax.shape) != amax.size):
        raise QuantValueError(
            f"amax of shape {amax.shape} with axis {axis}: a QConfig wants one value, or one for "
            "each channel of the axis."
        )
    return " ".join(repr(float(a)) for a in amax.reshape(-1))


QUANT_DESC_8BIT_PER_TENSOR = QuantDescriptor(num_bits=8)
QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR = QuantDescriptor(num_bits=8, unsigned=True)
QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL = QuantDescriptor(num_bits=8, axis=0)
QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL = QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL
QUANT_DESC_8BIT_CONV3D_WEIGHT_PER_CHANNEL = QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL
QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW = QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL
QUANT_DESC_8BIT_CONVTRANSPOSE1D_WEIGHT_PER_CHANNEL = QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL
QUANT_DESC_8BIT_CONVTRANSPOSE2D_WEIGHT_PER_CHANNEL = QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL
QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL = QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL

if not TYPE_CHECKING:  # which reads no list that is computed
    __all__ = sorted(
        [name for name in vars() if name.endswith("Descriptor") or name.startswith("QUANT_DESC")]
    )
