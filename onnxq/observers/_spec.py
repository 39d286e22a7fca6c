"""ObserverSpec: which observer with which arguments, as a value; and the table of observers."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core import plugins
from onnxq.dtypes import QDType
from onnxq.errors import QConfigError, nearest
from onnxq.qparams import QScheme

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnxq.observers._base import Observer

FLOAT16 = np.dtype(np.float16)  # NoopObserver's: stored as float16, so there is nothing to observe

Argument = QDType | np.dtype[np.float16] | QScheme | int | float | str | None

_WITHOUT_MEANING = {
    "factory_kwargs": "arrays are NumPy's; there are no devices or factories",
    "is_dynamic": "dynamic quantization has no observers of activations; use QConfigDynamic",
    "custom_op_name": "it named an operator of TorchScript's graph mode",
    "compute_dtype": "it named a type of torch's dynamic kernels",
}
_observers: dict[str, type[Observer]] = {}


def register_observer(observer: type[Observer]) -> None:
    """Makes an observer class known by its name; subclassing Observer calls this.

    Raises:
        QConfigError: a class of that name exists in another place.
    """
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


def as_qdtype(value: object) -> QDType:
    """The QDType meant by a QDType, a name, or a torch dtype (whose text is 'torch.quint8').

    Raises:
        QConfigError: the name is not known.
    """
    return value if isinstance(value, QDType) else dtypes.find(str(value).removeprefix("torch."))


def as_qscheme(value: object) -> QScheme:
    """The QScheme meant by a QScheme, a name, or a torch qscheme.

    Raises:
        QConfigError: the name is not known.
    """
    if isinstance(value, QScheme):
        return value
    name, known = str(value).removeprefix("torch."), [s.value for s in QScheme]
    if name not in known:
        raise QConfigError(
            f"qscheme '{name}' is not known; known: {', '.join(known)}.{nearest(name, known)}"
        )
    return QScheme(name)


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

    def __call__(self) -> Observer:
        """A new observer that has seen nothing."""
        make: Callable[..., Observer] = find_observer(self.name)
        return make(**dict(self.args))

    def with_args(self, **kwargs: object) -> ObserverSpec:
        """This spec with some arguments replaced.

        Raises:
            QConfigError: an argument that the observer does not take.
        """
        accepted, open_ended = _parameters(find_observer(self.name))
        for key in kwargs:
            if key not in accepted and not open_ended:
                raise QConfigError(_unknown_argument(self.name, key, list(accepted)))
        given = {**dict(self.args), **{k: _plain(k, v) for k, v in kwargs.items()}}
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
        return {"observer": self.name, **{k: _text(v) for k, v in self.args}}

    @staticmethod
    def from_dict(data: Mapping[str, object]) -> ObserverSpec:
        """The inverse of to_dict.

        Raises:
            QConfigError: no "observer" key, an unknown observer or argument.
        """
        if "observer" not in data:
            raise QConfigError(f"an observer needs the key 'observer'; got keys {sorted(data)}.")
        args = {k: v for k, v in data.items() if k != "observer"}
        return ObserverSpec(str(data["observer"])).with_args(**args)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={_text(v)}' for k, v in self.args)})"


@functools.cache
def _parameters(observer: type[Observer]) -> tuple[dict[str, object], bool]:
    """The constructor's arguments with their defaults, and whether it takes any others."""
    parameters = list(inspect.signature(observer.__init__).parameters.values())[1:]
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    # a missing default is Parameter.empty, which no value equals
    defaults: dict[str, object] = {
        p.name: p.default if p.default is p.empty else _plain(p.name, p.default) for p in named
    }
    return defaults, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _unknown_argument(name: str, key: str, accepted: list[str]) -> str:
    if key in _WITHOUT_MEANING:
        return f"{name}: '{key}' has no meaning here ({_WITHOUT_MEANING[key]}); leave it out."
    return (
        f"{name}: got argument '{key}'; it takes {', '.join(accepted) or 'none'}."
        f"{nearest(key, accepted)}"
    )


def _plain(key: str, value: object) -> Argument:
    """The value in the one form that compares and saves: types of onnxq, not torch's or texts."""
    if key == "dtype":
        is_half = value == FLOAT16 or str(value).removeprefix("torch.") == "float16"
        return FLOAT16 if is_half else as_qdtype(value)
    if key == "qscheme":
        return as_qscheme(value)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, int | float | str | QDType | QScheme):
        return value
    raise QConfigError(
        f"argument '{key}' is a {type(value).__name__}; a number, a text or None can be saved."
    )


def _text(value: Argument) -> int | float | str | None:
    if isinstance(value, QScheme):
        return value.value
    return str(value) if isinstance(value, QDType | np.dtype) else value
