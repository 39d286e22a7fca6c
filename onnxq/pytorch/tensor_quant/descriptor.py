"""QuantDescriptor: how a tensor is to be quantized, as a value; documented by NVIDIA.

weight = QuantDescriptor(num_bits=8, axis=0)
QConfig(activation=QuantDescriptor(unsigned=True, calib_method="histogram"), weight=weight)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from onnxq.observers import AmaxObserver, NarrowRangeObserver
from onnxq.pytorch.tensor_quant.descriptor_arguments import (
    Axis,
    QuantTypeError,
    QuantValueError,
    as_amax,
    as_axis,
    as_bool,
    as_method,
    as_num_bits,
    as_scale_amax,
    said,
)
from onnxq.qconfig import FakeQuantSpec, ScaleRule

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.observers import ObserverSpec

_BYTE = 8  # fewer bits are stored in 8, which the integer kernels read


def max_bound(num_bits: int, unsigned: object) -> int:
    """The largest integer: 2^(num_bits - 1) - 1, or 2^num_bits - 1 if unsigned."""
    return (1 << (num_bits - 1 + bool(unsigned))) - 1


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

    __slots__ = (
        "_amax",
        "_axis",
        "_calib_method",
        "_fake_quant",
        "_learn_amax",
        "_name",
        "_narrow_range",
        "_num_bits",
        "_scale_amax",
        "_unsigned",
    )

    def __init__(self, num_bits: int = 8, name: str | None = None, **kwargs: object) -> None:
        self._num_bits = as_num_bits(num_bits)
        if name is not None and not isinstance(name, str):
            raise QuantTypeError(f"name: got {said(name)}; wanted a string or None.")
        self._name = name
        self._fake_quant = as_bool("fake_quant", kwargs.pop("fake_quant", True))
        self._axis = as_axis(kwargs.pop("axis", None))
        self._learn_amax = as_bool("learn_amax", kwargs.pop("learn_amax", False))
        if self._learn_amax and self._axis is not None:
            raise QuantTypeError(
                "axis is ignored and must be None when learn_amax is true: one amax is learned "
                f"for the tensor; got {self._axis}. Leave one of the two out."
            )
        self._amax = as_amax(kwargs.pop("amax", None))
        self._scale_amax = as_scale_amax(kwargs.pop("scale_amax", None))
        self._calib_method = as_method(kwargs.pop("calib_method", "max"))
        self._unsigned = as_bool("unsigned", kwargs.pop("unsigned", False))
        self._narrow_range = as_bool("narrow_range", kwargs.pop("narrow_range", False))
        if kwargs:
            known = [slot.removeprefix("_") for slot in self.__slots__]
            raise QuantTypeError(
                f"unused keys: {', '.join(kwargs)}; QuantDescriptor takes {', '.join(known)}."
            )

    @property
    def num_bits(self) -> int:
        """Number of bits of an integer."""
        return self._num_bits

    @property
    def name(self) -> str | None:
        """A name for the reader."""
        return self._name

    @property
    def fake_quant(self) -> bool:
        """Whether the result is float."""
        return self._fake_quant

    @property
    def axis(self) -> Axis:
        """The axis or axes with scales of their own."""
        return self._axis

    @property
    def amax(self) -> Singles | None:
        """The fixed range, float32, any shape; it cannot be written to."""
        return self._amax

    @property
    def learn_amax(self) -> bool:
        """Whether amax is learned."""
        return self._learn_amax

    @property
    def scale_amax(self) -> float | None:
        """The factor on amax."""
        return self._scale_amax

    @property
    def calib_method(self) -> str:
        """The calibrator: "max" or "histogram"."""
        return self._calib_method

    @property
    def unsigned(self) -> bool:
        """Whether the integers begin at 0."""
        return self._unsigned

    @property
    def narrow_range(self) -> bool:
        """Whether the smallest integer is -bound, not -bound - 1."""
        return self._narrow_range

    def dict(self) -> dict[str, object]:
        """num_bits, name, and all that differs from its default: keywords that make an equal one.

        Numbers, texts, tuples and lists; amax is a float or a list.
        """
        defaults = _DEFAULTS
        plain: dict[str, object] = {"num_bits": self._num_bits, "name": self._name}
        for key, default in defaults.items():
            value = getattr(self, f"_{key}")
            if value is not default and value != default:
                plain[key] = value
        if self._amax is not None:
            plain["amax"] = self._amax.tolist()
        return plain

    def to_yaml(self) -> str:
        """`dict()` as YAML; axes and amax as lists."""
        plain = self.dict()
        if isinstance(self._axis, tuple):
            plain["axis"] = list(self._axis)
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
                f"QuantDescriptor: got YAML of {said(plain)}; wanted a mapping as to_yaml writes."
            )
        return cls(**plain)

    def weight_part(self) -> FakeQuantSpec:
        """The part of a QConfig for weights of this description: int8 (or int16) around 0.

        max, signed, with nothing else asked: NarrowRangeObserver, else AmaxObserver. The integers
            lie
        in [-bound, bound], whatever narrow_range: no value exceeds the amax of its own tensor but
        by clipping.

        Raises:
            QuantValueError: several axes (ONNX has one), or a fixed amax that is neither one value
                nor one for each channel of the axis.
            QuantTypeError: fake_quant is False: a QConfig describes qparams, and its place in the
                model where floats come back.
        """
        fixed = self._amax is not None or self._scale_amax is not None
        if self._calib_method == "max" and not self._unsigned and not fixed:
            found = NarrowRangeObserver.with_args(
                quant_max=max_bound(self._num_bits, self._unsigned),
                ch_axis=self._one_axis(),
                dtype=f"int{self._width()}",
            )
            return self._part(found)
        return self._part(self._amax_observer(0))

    def activation_part(self) -> FakeQuantSpec:
        """The part of a QConfig for activations: uint8 or uint16, 0 in the middle if signed.

        The values are those of int8 around 0; ONNX Runtime runs them in integers in more places.

        Raises:
            QuantValueError: as weight_part.
            QuantTypeError: likewise.
        """
        return self._part(self._amax_observer(0 if self._unsigned else 1 << (self._width() - 1)))

    def _part(self, observer: ObserverSpec) -> FakeQuantSpec:
        rule = ScaleRule.LEARNED if self._learn_amax else ScaleRule.OBSERVED
        return FakeQuantSpec(observer, rule)

    def _width(self) -> int:
        return _BYTE if self._num_bits <= _BYTE else 2 * _BYTE

    def _one_axis(self) -> int | None:
        if not self._fake_quant:
            raise QuantTypeError(
                "QuantDescriptor with fake_quant=False: a QConfig describes qparams; the model "
                "that is written has integers anyway. Leave fake_quant out."
            )
        if not isinstance(self._axis, tuple):
            return self._axis
        if len(self._axis) != 1:
            raise QuantValueError(
                f"axis {self._axis}: ONNX has scales along one axis. Give one axis, or None."
            )
        return self._axis[0]

    def _amax_observer(self, middle: int) -> ObserverSpec:
        axis = self._one_axis()
        unsigned = self._unsigned or middle > 0
        return AmaxObserver.with_args(
            quant_max=max_bound(self._num_bits, self._unsigned),
            ch_axis=axis,
            dtype=f"{'u' if unsigned else ''}int{self._width()}",
            method="percentile" if self._calib_method == "histogram" else "max",
            amax=None if self._amax is None else _amax_text(self._amax, axis),
            scale_amax=1.0 if self._scale_amax is None else self._scale_amax,
            middle=middle,
        )

    def _key(self) -> tuple[object, ...]:
        amax = None if self._amax is None else (self._amax.shape, self._amax.tobytes())
        others = (getattr(self, f"_{key}") for key in _DEFAULTS)
        return (self._num_bits, self._name, amax, *others)

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

_DEFAULTS: dict[str, object] = {
    "fake_quant": True,
    "axis": None,
    "learn_amax": False,
    "scale_amax": None,
    "calib_method": "max",
    "unsigned": False,
    "narrow_range": False,
}


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

__all__ = [name for name in vars() if name.endswith("Descriptor") or name.startswith("QUANT_DESC")]
