"""Figures of a quantized model's answers beside the float model's: the contract that all keep."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from onnxq.errors import QConfigError, nearest

Numbers = npt.NDArray[Any]
"""An output, of any dtype."""
Outputs = Mapping[str, Numbers]
"""Name -> array: what a model gives for one batch."""
Answers = TypeVar("Answers")

MOST_PENDING = 16
"""Batches that wait for one whose values tell the layout: memory does not grow with the samples."""


class LayoutError(QConfigError):
    """Shapes and values of outputs do not tell what they hold; the message names what to say."""


@dataclass(frozen=True)
class Layout(Generic[Answers]):
    """How outputs are read.

    Attributes:
        words: what was found.
        read: outputs of a batch -> what the model says in them.
        said: options that say the same.
        is_sure: nothing else has such shapes and values.
    """

    words: str
    read: Callable[[Outputs], Answers]
    said: Mapping[str, Any] = field(default_factory=dict)
    is_sure: bool = False


@dataclass
class FloatAgreement(ABC, Generic[Answers]):
    """Running figure of a quantized model's answers, the float model's taken for right.

    The layout of the outputs is found once, in the first batch of the float model whose values
    tell it, and holds for both models.
    """

    BEST: ClassVar[float] = 1.0
    """Value of equal answers."""

    known: Layout[Answers] | None = field(default=None, init=False, repr=False, compare=False)
    """The layout that was found; None: no batch has told it."""
    _pending: list[tuple[Outputs, Outputs]] = field(default_factory=list, init=False, repr=False)

    @abstractmethod
    def layout_of(self, outputs: Outputs) -> Layout[Answers]:
        """The layout that outputs of the float model have; LayoutError where they do not tell."""

    @abstractmethod
    def add(self, x: Answers, y: Answers) -> None:
        """Adds a batch: answers of the float model, and of the quantized one."""

    @property
    @abstractmethod
    def _count(self) -> int:
        """Answers of the float model in the batches that were read."""

    @property
    def count(self) -> int:
        """Answers of the float model that were compared.

        Raises:
            LayoutError: there were batches, and none told how to read them.
        """
        if self._pending:
            self.layout_of(self._pending[-1][0])
        return self._count

    @property
    @abstractmethod
    def value(self) -> float:
        """The figure, for `--metric`: higher is better; BEST where there are no answers.

        Raises:
            LayoutError: as of `count`.
        """

    def update(self, x: Outputs, y: Outputs) -> None:
        """Adds a batch.

        Args:
            x: {output: array} of the float model.
            y: those of the quantized model, with the same names.
        Raises:
            LayoutError: nothing in 16 batches tells how to read the outputs.
            QConfigError: the two have other names.
        """
        if x.keys() != y.keys():
            raise QConfigError(
                f"metrics: the float model gives {', '.join(x)}; the other one {', '.join(y)}. "
                "Give outputs of the same names."
            )
        self._pending.append((x, y))
        try:
            layout = self.known = self.known or self.layout_of(x)
        except LayoutError:
            if len(self._pending) >= MOST_PENDING:
                raise
            return
        waiting, self._pending = self._pending, []
        for a, b in waiting:
            self.add(layout.read(a), layout.read(b))

    @property
    def layout(self) -> Layout[Answers]:
        """How the outputs are read; LayoutError where no batch told."""
        if self.known is None:
            return self.layout_of(self._pending[-1][0] if self._pending else {})
        return self.known


def numbers(outputs: Outputs, name: str | None, metric: str) -> dict[str, Numbers]:
    """The outputs that hold numbers; only the named one, where one is named."""
    if name is not None and name not in outputs:
        raise QConfigError(
            f"{metric}: the model has no output '{name}'; it has {', '.join(outputs)}."
            f"{nearest(name, list(outputs))}"
        )
    found = {each: np.asarray(x) for each, x in outputs.items() if name in (None, each)}
    return {each: x for each, x in found.items() if x.dtype.kind in "biuf" and x.size}


def no_layout(metric: str, wanted: str, outputs: Outputs) -> LayoutError:
    """The error where no output is like what a metric wants."""
    return LayoutError(
        f"{metric}: wanted {wanted}; the model gives {shapes_of(outputs)}. Name the output, "
        f"--metric {metric}:output=NAME, or give FILE.py:function."
    )


def shapes_of(outputs: Outputs) -> str:
    """Names and shapes, for messages."""
    return ", ".join(f"'{name}' {np.shape(x)}" for name, x in outputs.items()) or "nothing"


def check_share(option: str, value: float) -> None:
    """Raises QConfigError for a value of an option that is not from 0 to 1."""
    if not 0 <= value <= 1:
        raise QConfigError(f"{option} is {value!r}; wanted a number from 0 to 1.")


def check_one_of(option: str, value: object, *allowed: object) -> None:
    """Raises QConfigError for a value of an option that is not allowed."""
    if value not in allowed:
        raise QConfigError(
            f"{option} is {value!r}; wanted {', '.join(str(each) for each in allowed)}."
            f"{nearest(str(value), [str(each) for each in allowed])}"
        )
