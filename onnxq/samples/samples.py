"""Samples: a source of data, and how it is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from onnxq.core.brief import brief
from onnxq.errors import CalibrationError, QConfigError
from onnxq.page.card import card_of
from onnxq.samples.state import as_feedback


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """A source of samples, and how it is read.

        onnxq.quantize("model.onnx", onnxq.Samples("samples.npz", batch_size=8, ignore=["labels"]))

    Where samples are asked for, a source alone is read as `Samples(source)`.

    Attributes:
        source: path, {name: array}, Images, iterable, or function that returns one; `onnxq.samples`
            lists them all. None: there are none; batches are made up where that is possible.
        batch_size: samples per run; None: the model's static batch, else 1.
        ignore: names of arrays that are no inputs (labels).
        feedback: {output name: input name} of state that each batch hands to the next one.
    Raises:
        CalibrationError: batch_size is no whole number, or ignore no collection of names.
        QConfigError: feedback is no {output name: input name}.
    """

    source: object = None
    batch_size: int | None = None
    ignore: Collection[str] = ()
    feedback: Mapping[str, str] = field(default_factory=dict)

    __repr__ = brief
    _repr_html_ = card_of

    def __post_init__(self) -> None:
        size = self.batch_size
        whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if size is not None and not whole:
            raise CalibrationError(
                f"samples: batch size {size!r}; wanted a whole number from 1, or None "
                "for the model's own."
            )
        if isinstance(self.ignore, str) or not isinstance(self.ignore, Collection):
            raise CalibrationError(
                f"samples: names to ignore are {self.ignore!r}; wanted a list of names, such as "
                "['labels']."
            )
        object.__setattr__(self, "feedback", as_feedback(self.feedback))

    @classmethod
    def of(cls, given: object, like: Samples | None = None) -> Samples:
        """Samples as they are, or a source that is read like others.

        Args:
            given: Samples, or a source.
            like: how a source alone is read; None: as `Samples(source)`.
        """
        if isinstance(given, Samples):
            return given
        return Samples(given) if like is None else replace(like, source=given)

    @property
    def is_one_shot(self) -> bool:
        """Whether the source may be empty when it is gone through a second time."""
        is_reader = callable(getattr(self.source, "get_next", None))
        return isinstance(self.source, Iterator) or is_reader

    def with_feedback(self, feedback: Mapping[str, str]) -> Samples:
        """The same with state that the model was prepared for.

        Raises:
            QConfigError: these samples name another state.
        """
        if self.feedback and self.feedback != feedback:
            raise QConfigError(
                f"feedback: the samples have {dict(self.feedback)}, the model was prepared with "
                f"{dict(feedback)}. Give `prepare` the same feedback."
            )
        return replace(self, feedback=feedback)


def without_state(samples: Samples, job: str) -> Samples:
    """The samples, for a job that runs each batch alone."""
    if samples.feedback:
        raise QConfigError(
            f"feedback: {job} runs every batch alone, so that no state goes round. Leave it out."
        )
    return samples
