"""Observer, the contract of observers, and ObserverSpec, the value that makes one.

The two are in one file because each makes the other.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core import plugins
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError, QConfigError, nearest
from onnxq.observers.spec_arguments import (
    Argument,
    as_argument,
    as_qdtype,
    as_qscheme,
    as_text,
    check_kind,
    unknown_argument,
)
from onnxq.observers.value_range import EPS, resolve_range
from onnxq.page.card import card_of
from onnxq.qparams import QParams, QScheme

State = dict[str, npt.NDArray[np.generic]]


class Observer(ABC):
    """Watches one tensor over many batches, and then says its scale and zero_point.

    A subclass is known by its name from its definition on: in QConfigs, saved Statistics and YAML
    files. It implements the five abstract methods. Arguments of the constructor are numbers, texts,
    QDTypes and QSchemes, so that its spec can be saved. Merging must be associative and
    commutative, and give the same state however the batches were split: calibration may run in many
    processes.

    Args:
        dtype: type of the integers; a QDType or its name.
        qscheme: affine or symmetric; a QScheme or its name.
        reduce_range: use half of the integers (quint8 0..127, qint8 -64..63).
        quant_min: smallest integer; with quant_max, or the type's.
        quant_max: largest integer.
        eps: smallest scale.
    Attributes:
        spec: the class and arguments that make another such observer.
        needs_range_alone: of a batch, only min and max count (of each channel, where per channel),
            so that any array that has them may stand for it; and `compact` leaves a state of fixed
            size.
    Raises:
        QConfigError: arguments that do not fit together.
    """

    spec: ObserverSpec
    needs_range_alone: ClassVar[bool] = False
    _next_index = 0

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "observe" in vars(cls) and "needs_range_alone" not in vars(cls):
            cls.needs_range_alone = False  # the parent's says nothing of this observe
        register_observer(cls)

    def __new__(cls, /, *args: object, **kwargs: object) -> Self:
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
            CalibrationError: the specs differ, or the numbers of channels.
        """

    @abstractmethod
    def calculate_qparams(self) -> QParams:
        """The qparams for what was seen; scale 1, zero_point 0 and a warning if that is nothing.

        Raises:
            CalibrationError: a range overflows float32.
        """

    @abstractmethod
    def state(self) -> State:
        """State as arrays: equal for equal batches, whatever their order."""

    @abstractmethod
    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Makes this observer, which has seen nothing, one that has seen what `state` tells.

        Raises:
            CalibrationError: arrays that are missing, or do not fit together.
        """

    def compact(self) -> None:  # noqa: B027  # most states have a fixed size: nothing to fold
        """Folds what was seen into batch 0, in memory that does not grow with the batches.

        For training, where nothing is merged: what is seen later must have a larger index.
        """

    @classmethod
    def with_args(cls, /, **kwargs: object) -> ObserverSpec:
        """The spec of this observer with these constructor arguments.

        Raises:
            QConfigError: an argument that the constructor does not take.
        """
        return ObserverSpec(cls.__name__).with_args(**kwargs)

    @classmethod
    def from_state(
        cls, state: Mapping[str, npt.NDArray[np.generic]], /, **kwargs: object
    ) -> Observer:
        """cls.with_args(**kwargs).restore(state)."""
        return cls.with_args(**kwargs).restore(state)

    def __call__(self, x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Observes x as the next batch and returns it: the documented form, for loops by hand."""
        self.observe(x, self._next_index)
        self._next_index += 1
        return x

    def _fresh_for(self, other: Observer) -> Self:
        """A new observer like this one, to merge into, if `other` is like this one too."""
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


_observers: dict[str, type[Observer]] = {}


def register_observer(observer: type[Observer]) -> None:
    """Makes an observer class known by its name; subclassing Observer calls this."""
    known = _observers.get(observer.__name__, observer)
    # a notebook cell that runs again defines the same class anew
    if (known.__module__, known.__qualname__) != (observer.__module__, observer.__qualname__):
        raise QConfigError(
            f"observer '{observer.__name__}' exists already, in {known.__module__}; "
            f"give the one in {observer.__module__} another name."
        )
    _observers[observer.__name__] = observer


def find_observer(name: str) -> type[Observer]:
    """The observer class of that name.

    Raises:
        QConfigError: no observer has that name; the message suggests the nearest.
        UnsupportedError: a plugin, which may have it, cannot be imported.
    """
    if name not in _observers:
        plugins.load()
    if name not in _observers:
        raise QConfigError(
            f"observer '{name}' is not known; known: {', '.join(sorted(_observers))}. "
            f"Import the module that defines it.{nearest(name, _observers)}"
        )
    return _observers[name]


@dataclass(frozen=True, slots=True)
class ObserverSpec:
    """Which observer, with which arguments: a value to print, compare, hash and save.

    `HistogramObserver.with_args(bins=1024)` makes one; calling it makes a new observer.

    Attributes:
        name: the observer's class name.
        args: (argument, value) of those that differ from the default, sorted.
    """

    name: str
    args: tuple[tuple[str, Argument], ...] = ()

    _repr_html_ = card_of

    def __call__(self) -> Observer:
        """A new observer that has seen nothing."""
        make: Callable[..., Observer] = find_observer(self.name)
        return make(**dict(self.args))

    def with_args(self, /, **kwargs: object) -> ObserverSpec:
        """This spec with some arguments replaced.

        Raises:
            QConfigError: an argument that the observer does not take, or of another type.
        """
        accepted, open_ended = _parameters(find_observer(self.name))
        for key in kwargs:
            if key not in accepted and not open_ended:
                raise QConfigError(unknown_argument(self.name, key, list(accepted)))
        made = {key: as_argument(key, value) for key, value in kwargs.items()}
        annotations = _annotations(find_observer(self.name))
        for key, value in made.items():
            check_kind(self.name, key, value, annotations.get(key, ""))
        given = {**dict(self.args), **made}
        differing = {k: v for k, v in given.items() if k not in accepted or accepted[k] != v}
        return ObserverSpec(self.name, tuple(sorted(differing.items())))

    def argument(self, name: str, default: Argument = None) -> Argument:
        """The value of that argument, or `default` where it is the observer's default."""
        return dict(self.args).get(name, default)

    def accepts(self, argument: str) -> bool:
        """Whether the constructor has that argument ("ch_axis": it can be per channel)."""
        return argument in _parameters(find_observer(self.name))[0]

    def restore(self, state: Mapping[str, npt.NDArray[np.generic]]) -> Observer:
        """A new observer that has seen what the one whose state() this is had seen."""
        observer = self()
        observer.load_state(state)
        return observer

    def to_dict(self) -> dict[str, object]:
        """Plain JSON and YAML values: {"observer": name, argument: value...}."""
        return {"observer": self.name, **{k: as_text(v) for k, v in self.args}}

    @staticmethod
    def from_dict(data: Mapping[str, object]) -> ObserverSpec:
        """Spec that `to_dict` gave plain values of.

        Raises:
            QConfigError: no "observer" key, an unknown observer or argument.
        """
        if "observer" not in data:
            raise QConfigError(f"an observer needs the key 'observer'; got keys {sorted(data)}.")
        args = {str(k): v for k, v in data.items() if k != "observer"}
        return ObserverSpec(str(data["observer"])).with_args(**args)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={as_text(v)}' for k, v in self.args)})"


@functools.cache
def _annotations(observer: type[Observer]) -> dict[str, object]:
    """The constructor's arguments with their annotations."""
    parameters = inspect.signature(observer.__init__).parameters.values()
    return {p.name: p.annotation for p in parameters}


@functools.cache
def _parameters(observer: type[Observer]) -> tuple[dict[str, object], bool]:
    """The constructor's arguments with their defaults, and whether it takes any others."""
    parameters = list(inspect.signature(observer.__init__).parameters.values())[1:]
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    # a missing default is Parameter.empty, which no value equals
    defaults: dict[str, object] = {
        p.name: p.default if p.default is p.empty else as_argument(p.name, p.default) for p in named
    }
    return defaults, any(p.kind is p.VAR_KEYWORD for p in parameters)


def check_qscheme(observer: Observer, ch_axis: int | None) -> None:
    """Guards an observer that has a range for each channel along ch_axis; None: one range."""
    if observer.qscheme.per_channel == (ch_axis is not None):
        return
    has = (
        "one range for the tensor. Use a per_tensor qscheme, or PerChannelMinMaxObserver."
        if ch_axis is None
        else "a range for each channel. Use a per_channel qscheme, or MinMaxObserver."
    )
    raise QConfigError(
        f"{type(observer).__name__}: got qscheme {observer.qscheme.value}; it has {has}"
    )
