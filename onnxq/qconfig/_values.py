"""The values a configuration is made of: QConfig, QConfigDynamic, Choice, FakeQuantSpec."""

from __future__ import annotations

import enum
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from onnxq.errors import QConfigError, member, nearest
from onnxq.observers import Observer, ObserverSpec
from onnxq.operator import Precision
from onnxq.page.card import card_of

BLOCK_SIZES = (16, 32, 64, 128, 256)
"""ONNX Runtime makes MatMulNBits of these; beside others, DequantizeLinear runs at every call."""

STATIC_PRECISIONS = (Precision.INT8, Precision.INT8_FLOAT_OUTPUT, Precision.FLOAT)
"""Precisions that a QConfig can name; the others are QConfigDynamic's, or follow from observers."""

DYNAMIC_PRECISIONS = tuple(each for each in Precision if each.stores_weights_alone)
"""Precisions that a QConfigDynamic can name."""


class Choice(enum.Enum):
    """Precisions that nodes take which the qconfig does not name one by one."""

    BEST = "best"
    """Each node has the precision that is fast and accurate for it; float where that is it."""
    ALL_INTEGERS = "all_integers"
    """Every node that can runs in integers, the same on every machine."""


class ScaleRule(enum.Enum):
    """Where a scale comes from while training."""

    OBSERVED = "observed"
    """The observer finds it, batch by batch."""
    LEARNED = "learned"
    """The observer gives its first value; then it is trained as a parameter (LSQ)."""


@dataclass(frozen=True, slots=True)
class FakeQuantSpec:
    """Fake quantization while training, as a value: what FakeQuantize.with_args(observer=...) says.

    Attributes:
        observer: finds scale and zero point; its dtype, qscheme and range are what is rounded to.
        scale: how the scale goes on from there; a ScaleRule or its name.
    Raises:
        QConfigError: no observer, or no ScaleRule.
    """

    observer: ObserverSpec
    scale: ScaleRule = ScaleRule.OBSERVED

    _repr_html_ = card_of

    def __post_init__(self) -> None:
        object.__setattr__(self, "observer", as_observer(self.observer, "FakeQuantSpec.observer"))
        object.__setattr__(self, "scale", as_scale_rule(self.scale, "FakeQuantSpec.scale"))

    def with_args(
        self, observer: ObserverSpec | None = None, **observer_args: object
    ) -> FakeQuantSpec:
        """This spec with another observer, or other arguments of it (the documented form).

        Raises:
            QConfigError: the observer does not take one of the arguments.
        """
        chosen = self.observer if observer is None else as_observer(observer, "observer")
        return FakeQuantSpec(chosen.with_args(**observer_args), self.scale)

    def to_dict(self) -> dict[str, object]:
        """{"fake_quantize": what ObserverSpec.to_dict gives, "scale": unless it is observed}."""
        plain: dict[str, object] = {"fake_quantize": self.observer.to_dict()}
        if self.scale is not ScaleRule.OBSERVED:
            plain["scale"] = self.scale.value
        return plain


Part = ObserverSpec | FakeQuantSpec


@runtime_checkable
class Description(Protocol):
    """Quantization in other words, which a QConfig takes as well: a QuantDescriptor."""

    def activation_part(self) -> FakeQuantSpec:
        """Observer of an activation, in words of onnxq."""

    def weight_part(self) -> FakeQuantSpec:
        """Observer of a weight, in words of onnxq."""


@dataclass(frozen=True, slots=True)
class QConfig:
    """How the activations that a node produces, and its weights, are quantized.

    An observer class stands for its spec with default arguments, as in the documents.

    Attributes:
        activation: observer, or fake quantization for training.
        weight: the same for weights.
        precision: of the nodes that it is for: INT8, INT8_FLOAT_OUTPUT, or FLOAT (as None in place
            of the QConfig, but the tensors around the node are observed all the same); None: it is
            chosen.
    Raises:
        QConfigError: an observer instance, something else that is no observer, or no such
            precision.
    """

    activation: Part
    weight: Part
    precision: Precision | None = None

    _repr_html_ = card_of

    def __post_init__(self) -> None:
        said = self.activation
        if not isinstance(said, type) and isinstance(said, Description):
            said = said.activation_part()
        object.__setattr__(self, "activation", as_part(said, "QConfig.activation"))
        object.__setattr__(self, "weight", as_part(self.weight, "QConfig.weight"))
        if self.precision is not None:
            object.__setattr__(self, "precision", as_static(self.precision, "QConfig.precision"))

    @property
    def activation_observer(self) -> ObserverSpec:
        """The observer of activations, out of its fake quantization where there is one."""
        return _observer_of(self.activation)

    @property
    def weight_observer(self) -> ObserverSpec:
        """The observer of weights, out of its fake quantization where there is one."""
        return _observer_of(self.weight)

    def to_dict(self) -> dict[str, object]:
        """{"activation": ..., "weight": ..., "precision": unless it is chosen} of plain values."""
        named = {} if self.precision is None else {"precision": self.precision.value}
        return {"activation": self.activation.to_dict(), "weight": self.weight.to_dict(), **named}


@dataclass(frozen=True, slots=True)
class QConfigDynamic:
    """Weights are quantized ahead of time, activations when the model runs.

    Attributes:
        weight: observer of the weights; NoopObserver(dtype=float16) stores them as float16.
        precision: how the node runs; None: WEIGHT_ONLY_GROUPWISE where a block size is given, else
            chosen by the target's measurements and the objective.
        block_size: how many weights along the input axis share a scale in WEIGHT_ONLY_GROUPWISE;
            None: chosen.
    Raises:
        QConfigError: an observer instance, something else that is no observer, no precision, or a
            block size that is none of BLOCK_SIZES or has no blocks to be of.
    """

    weight: Part
    precision: Precision | None = None
    block_size: int | None = None

    _repr_html_ = card_of

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", as_part(self.weight, "QConfigDynamic.weight"))
        if self.precision is not None:
            object.__setattr__(
                self, "precision", as_dynamic(self.precision, "QConfigDynamic.precision")
            )
        if self.block_size is None:
            return
        size = self.block_size
        if not isinstance(size, int) or size not in BLOCK_SIZES:
            raise QConfigError(
                f"QConfigDynamic.block_size: got {reprlib.repr(size)}; wanted one of "
                f"{', '.join(map(str, BLOCK_SIZES))}, which ONNX Runtime has kernels for."
            )
        if self.precision not in (None, Precision.WEIGHT_ONLY_GROUPWISE):
            raise QConfigError(
                f"QConfigDynamic: block_size {size} with precision '{self.precision.value}'; only "
                "'weight_only_groupwise' has blocks. Leave one of the two out."
            )
        # another precision would ignore it: who names a size of blocks asks for blocks
        object.__setattr__(self, "precision", Precision.WEIGHT_ONLY_GROUPWISE)

    @property
    def weight_observer(self) -> ObserverSpec:
        """The observer of weights, out of its fake quantization where there is one."""
        return _observer_of(self.weight)

    def to_dict(self) -> dict[str, object]:
        """{"dynamic": {"weight": ..., "precision": ..., "block_size": ...}}, without Nones."""
        plain: dict[str, object] = {"weight": self.weight.to_dict()}
        if self.precision is not None:
            plain["precision"] = self.precision.value
        if self.block_size is not None:
            plain["block_size"] = self.block_size
        return {"dynamic": plain}


Entry = QConfig | QConfigDynamic | None
"""Entry of a mapping; None leaves a node in float."""


def as_observer(value: object, where: str) -> ObserverSpec:
    """The spec that a spec or an observer class stands for."""
    if isinstance(value, ObserverSpec):
        return value
    if not isinstance(value, type) and isinstance(value, Description):
        return value.activation_part().observer
    if isinstance(value, type) and issubclass(value, Observer):
        return value.with_args()
    if isinstance(value, Observer):
        raise QConfigError(
            f"{where}: got an instance of {type(value).__name__}, which holds one tensor's "
            f"statistics; pass the class or {type(value).__name__}.with_args(...)."
        )
    raise QConfigError(
        f"{where}: got {reprlib.repr(value)}; wanted an observer class or Observer.with_args(...)."
    )


def as_part(value: object, where: str) -> Part:
    """The spec that a spec, a FakeQuantSpec, an observer or a FakeQuantize class stands for.

    So does a Description, for a weight: a QuantDescriptor of onnxq.pytorch.tensor_quant.
    """
    if isinstance(value, FakeQuantSpec):
        return value
    if not isinstance(value, type) and isinstance(value, Description):
        return value.weight_part()
    if isinstance(value, type) and not issubclass(value, Observer) and hasattr(value, "with_args"):
        made = value.with_args()  # onnxq.pytorch.FakeQuantize, which this layer does not import
        if isinstance(made, FakeQuantSpec):
            return made
    return as_observer(value, where)


def as_scale_rule(value: object, where: str) -> ScaleRule:
    """The ScaleRule that a rule or its name stands for."""
    return member(ScaleRule, value, f"{where}: scale rule")


def as_dynamic(value: object, where: str) -> Precision:
    """The precision of a QConfigDynamic that a Precision or its name stands for."""
    return _one_of(DYNAMIC_PRECISIONS, value, where)


def as_static(value: object, where: str) -> Precision:
    """The precision of a QConfig that a Precision or its name stands for."""
    return _one_of(STATIC_PRECISIONS, value, where)


def _one_of(known: Sequence[Precision], value: object, where: str) -> Precision:
    by_name = {each.value: each for each in known}
    found = value if isinstance(value, Precision) else by_name.get(str(value))
    if found is not None and found in known:
        return found
    shown = value.value if isinstance(value, Precision) else reprlib.repr(value)
    raise QConfigError(
        f"{where}: got {shown}; wanted one of {', '.join(by_name)}, or none at all. A QConfig has "
        "static precisions, a QConfigDynamic the others; 16 bits are the dtype of the activation's "
        f"observer.{nearest(str(value), by_name)}"
    )


def as_choice(value: object, where: str) -> Choice:
    """The Choice that a choice or its name stands for."""
    return member(Choice, value, f"{where}: choice")


def as_names(value: object, where: str) -> tuple[str, ...]:
    """The names of PTQ algorithms in a list of them."""
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise QConfigError(
            f"{where}: improve: got {value!r}; wanted a list of names, such as [bias, round]."
        )
    if len(set(value)) < len(value):
        raise QConfigError(f"{where}: improve: {', '.join(value)}; each name stands there once.")
    return tuple(value)


def _observer_of(part: Part) -> ObserverSpec:
    return part.observer if isinstance(part, FakeQuantSpec) else part
