"""The contract of observers: what is needed to calibrate, to merge shards, and to save."""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.errors import CalibrationError
from onnxq.observers._range import EPS, resolve_range
from onnxq.observers._spec import ObserverSpec, as_qdtype, as_qscheme, register_observer
from onnxq.qparams import QParams, QScheme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.dtypes import QDType

State = dict[str, npt.NDArray[np.generic]]


class Observer(ABC):
    """Watches one tensor over many batches, and then says its scale and zero_point.

    A subclass is known by its name from its definition on: in QConfigs, saved Statistics and YAML
    files. It implements the five abstract methods. Arguments of the constructor are numbers, texts,
    QDTypes and QSchemes, so that its spec can be saved. Merging must be associative and
    commutative, and give the same state however the batches were split: calibration may run in many
    processes.

    Args:
        dtype: type of the codes; a QDType or its name.
        qscheme: affine or symmetric; a QScheme or its name.
        reduce_range: use half of the codes (quint8 0..127, qint8 -64..63).
        quant_min: smallest code; with quant_max, or the type's.
        quant_max: largest code.
        eps: smallest scale.

    Attributes:
        spec: the class and arguments that make another such observer.
        needs_range_alone: of a batch, only min and max count (of each channel, where per channel):
            any array that has them may stand for it.

    Raises:
        QConfigError: arguments that do not fit together.
    """

    spec: ObserverSpec
    needs_range_alone: ClassVar[bool] = False
    _next_index = 0

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "observe" in vars(cls) and "needs_range_alone" not in vars(cls):
            cls.needs_range_alone = (
                False  # what the parent's observe needs says nothing of this one
            )
        register_observer(cls)

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """An observer that knows the arguments it was made with (as its spec)."""
        self = super().__new__(cls)
        spec = ObserverSpec(cls.__name__).with_args(**kwargs)  # names unknown arguments
        if args:
            names = list(inspect.signature(cls.__init__).parameters)[1:]
            spec = spec.with_args(**dict(zip(names, args, strict=False)))
        self.spec = spec
        return self

    def __init__(
        self,
        dtype: QDType | str = dtypes.quint8,
        qscheme: QScheme | str = QScheme.PER_TENSOR_AFFINE,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        self.dtype = as_qdtype(dtype)
        self.qscheme = as_qscheme(qscheme)
        self.reduce_range = reduce_range
        self.eps = eps
        self.range = resolve_range(
            self.dtype, self.qscheme, reduce_range, quant_min, quant_max, eps
        )
        self.quant_min, self.quant_max = self.range.quant_min, self.range.quant_max

    @abstractmethod
    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Takes one batch into account; an empty one changes nothing.

        Args:
            x: any shape; computed in float32.
            index: global number of the batch, whatever shard runs it.

        Raises:
            CalibrationError: NaN, Inf or overflow in x. The message names the batch; the caller
                knows the tensor: `raise CalibrationError(f"tensor '{name}': {error}") from error`.
        """

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """A new observer that has seen what both have; both stay as they are.

        Raises:
            CalibrationError: the specs differ.
        """

    @abstractmethod
    def calculate_qparams(self) -> QParams:
        """The qparams for what was seen; scale 1, zero_point 0 and a warning if that is nothing."""

    @abstractmethod
    def state(self) -> State:
        """What was seen, as arrays; equal for equal batches, whatever their order."""

    @abstractmethod
    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Makes this observer, which has seen nothing, one that has seen what `state` tells."""

    def compact(self) -> None:  # noqa: B027  # most states have a fixed size: nothing to fold
        """Folds what was seen into batch 0, in memory that does not grow with the batches.

        For training, where nothing is merged: what is seen later must have a larger index.
        """

    @classmethod
    def with_args(cls, **kwargs: object) -> ObserverSpec:
        """The spec of this observer with these constructor arguments.

        Raises:
            QConfigError: an argument that the constructor does not take.
        """
        return ObserverSpec(cls.__name__).with_args(**kwargs)

    @classmethod
    def from_state(cls, state: Mapping[str, npt.NDArray[np.generic]], **kwargs: object) -> Observer:
        """cls.with_args(**kwargs).restore(state)."""
        return cls.with_args(**kwargs).restore(state)

    def __call__(self, x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Observes x as the next batch and returns it: the documented form, for loops by hand."""
        self.observe(x, self._next_index)
        self._next_index += 1
        return x

    def _fresh_for(self, other: Observer) -> Self:
        """A new observer like this one, to merge into, if `other` is like this one too.

        Raises:
            CalibrationError: the specs differ.
        """
        if self.spec != other.spec:
            raise CalibrationError(
                f"cannot merge {self.spec} with {other.spec}; give both the same QConfig entry."
            )
        fresh = self.spec()
        assert isinstance(fresh, type(self))
        return fresh

    def __repr__(self) -> str:
        return repr(self.spec)


ObserverBase = Observer


def warn_unobserved(observer: Observer) -> None:
    """Warns that calculate_qparams came before any data, as torch does."""
    warnings.warn(
        f"{observer.spec} has seen no data: returning scale 1, zero_point 0. Run calibration "
        "samples through the model first.",
        UserWarning,
        stacklevel=3,
    )
