"""Words of a recognizer beside its float model's: word error rate, less being better.

    WER = (substitutions + deletions + insertions) / words of the float model

The transcript of CTC's logits is the best class of each frame, with repeats and blanks left out.
Words are what stands between two of `space`; without one, each token counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar

import numpy as np

from onnxq.metrics.float_agreement import (
    FloatAgreement,
    Layout,
    LayoutError,
    Numbers,
    Outputs,
    check_one_of,
    no_layout,
    numbers,
)

Transcripts = list[list[tuple[int, ...]]]
BLANK_SHARE = 0.2
"""Least share of frames that are blank: between two characters of a line, and in pauses."""


@dataclass
class Words(FloatAgreement[Transcripts]):
    """Running counts of words; options that are None are derived from shapes and values.

    Attributes:
        output: name; None: the first one with a layout of words.
        blank: class of CTC that stands for nothing; "none": each frame is a token.
        space: token between two words; None: each token is a word.
        time: axis of frames, 1 of (N, T, V), 0 of (T, N, V); None: that beside a batch of 1.
    Raises:
        QConfigError: another axis.
    """

    BEST: ClassVar[float] = 0.0

    output: str | None = None
    blank: int | str | None = None
    space: int | None = None
    time: int | None = None
    _errors: int = field(default=0, init=False, repr=False)
    _words: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        check_one_of("time", self.time, None, 0, 1)
        if not isinstance(self.blank, int):
            check_one_of("blank", self.blank, None, "none")

    def layout_of(self, outputs: Outputs) -> Layout[Transcripts]:
        """Token ids (N, T), or CTC's logits (N, T, V) or (T, N, V)."""
        given = numbers(outputs, self.output, "words")
        for name, x in given.items():
            if x.ndim == 2 and x.dtype.kind in "iu":
                return self._tokens(name, x)
            if x.ndim == 3 and x.dtype.kind == "f":
                return self._ctc(name, x)
        raise no_layout("words", "logits (N, T, V) or tokens (N, T)", given)

    def _ctc(self, name: str, x: Numbers) -> Layout[Transcripts]:
        time = _time_of(name, x) if self.time is None else self.time
        blank = _blank_of(name, x) if self.blank is None else self.blank

        def read(of: Outputs) -> Transcripts:
            best = np.moveaxis(of[name], time, 1).argmax(-1).tolist()
            if blank != "none":
                best = [[token for token, _ in groupby(row) if token != blank] for row in best]
            return [self._split(row) for row in best]

        words = f"'{name}' {x.shape}: frames along axis {time}, blank {blank}"
        return Layout(words, read, {"output": name, "time": time, "blank": blank})

    def _tokens(self, name: str, x: Numbers) -> Layout[Transcripts]:
        """Words of rows of tokens; of what fills up a row to its end, one is left."""

        def read(of: Outputs) -> Transcripts:
            changes = [np.flatnonzero(row[1:] != row[:-1]) for row in of[name]]
            stops = [int(each[-1]) + 2 if each.size else 1 for each in changes]
            return [self._split(row[:n].tolist()) for row, n in zip(of[name], stops, strict=True)]

        return Layout(f"'{name}' {x.shape}: tokens", read, {"output": name})

    def _split(self, row: list[int]) -> list[tuple[int, ...]]:
        if self.space is None:
            return [(token,) for token in row]
        parts = groupby(row, key=lambda token: token == self.space)
        return [tuple(word) for is_space, word in parts if not is_space]

    def add(self, x: Transcripts, y: Transcripts) -> None:
        """Adds transcripts of a batch."""
        self._errors += sum(edits(ours, theirs) for ours, theirs in zip(x, y, strict=True))
        self._words += sum(map(len, x))

    @property
    def _count(self) -> int:
        """Words of the float model."""
        return self._words

    @property
    def value(self) -> float:
        """Minus the word error rate: 0 for equal transcripts."""
        return -self._errors / max(self.count, 1)


def _time_of(name: str, x: Numbers) -> int:
    """The axis of frames, where the other one has a size of 1."""
    if 1 not in x.shape[:2]:
        raise LayoutError(
            f"words: '{name}' {x.shape}: frames may stand along axis 0 or 1. Say time=1 of "
            "(N, T, V), or time=0 of (T, N, V): --metric words:time=1."
        )
    return int(len(x) == 1)


def _blank_of(name: str, x: Numbers) -> int:
    """The first or last class, where it is the best of most frames."""
    counts = np.bincount(x.argmax(-1).ravel(), minlength=x.shape[-1])
    most = int(counts.argmax())
    if most in (0, len(counts) - 1) and counts[most] >= BLANK_SHARE * counts.sum():
        return most
    raise LayoutError(
        f"words: '{name}' {x.shape}: neither the first nor the last class is the best of most "
        "frames, as CTC's blank is. Say blank=ID, or blank=none where each frame is a token: "
        "--metric words:blank=0."
    )


def edits(x: Sequence[tuple[int, ...]], y: Sequence[tuple[int, ...]]) -> int:
    """Least number of words that are replaced, left out or put in to make y of x (Levenshtein)."""
    ids = {word: i for i, word in enumerate(dict.fromkeys([*x, *y]))}
    theirs, places = np.array([ids[word] for word in y], np.int64), np.arange(len(y) + 1)
    row = places
    for i, word in enumerate(x, 1):
        best = np.minimum(row[1:] + 1, row[:-1] + (theirs != ids[word]))
        row = np.minimum.accumulate(np.concatenate([[i], best]) - places) + places
    return int(row[-1])
