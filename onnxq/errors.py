"""Errors that onnxq raises on purpose, each with the exit code of the command line.

    OnnxqError             1   base of all; never raised itself. 1: an error that nobody foresaw
    |- ModelError          3   the model: unreadable, truncated, of an opset or type we refuse
    |- ShapeError          4   arrays whose shapes or dtypes do not fit together
    |- QConfigError        5   an unknown node, tensor, operator, target, observer or option
    |- CalibrationError    6   samples or statistics: NaN, Inf, empty, wrong input, another model
    |- UnsupportedError    7   a thing that onnxq cannot do, with the remedy
    |- VerificationError   8   a bound that the caller set is broken
    |- OutputError         9   a file that cannot be written
    |- DifferenceError    10   a named machine would compute other integers
    |- WorkerError        11   workers that died or cannot be reached, more often than it was tried
    |- LimitError         12   a model that takes more time or memory than its bound
    |- NothingQuantizedError 13  nothing is quantized: the result would be the float model

2 is click's own code for wrong usage; a signal's is 128 + its number; `exit_codes` has them all.
Every message says what, where, got, wanted, and what to do.
"""

import difflib
import enum
import inspect
import re
import reprlib
import signal
from collections.abc import Iterable, Sequence
from typing import TypeVar

from onnxq.shown import shown_lines

MAX_NAMED = 4  # names in a message; the rest are counted
MAX_SENTENCES = 5  # likewise, where each has a line

Member = TypeVar("Member", bound=enum.Enum)


class OnnxqError(Exception):
    """Base of every error that onnxq raises on purpose."""

    exit_code = 1

    def __str__(self) -> str:
        """The message, in which names of a file are shown and never obeyed."""
        return shown_lines(super().__str__())


class ModelError(OnnxqError):
    """The model cannot be read, or is one that onnxq refuses."""

    exit_code = 3


class ShapeError(OnnxqError):
    """Shapes or dtypes of arrays do not fit together."""

    exit_code = 4


class QConfigError(OnnxqError):
    """A name or value in the configuration is not known."""

    exit_code = 5


class CalibrationError(OnnxqError):
    """Samples or statistics cannot be used."""

    exit_code = 6


class UnsupportedError(OnnxqError):
    """The model or the request needs something that onnxq lacks."""

    exit_code = 7


class VerificationError(OnnxqError):
    """A bound that the caller set is broken."""

    exit_code = 8


class OutputError(OnnxqError):
    """A file cannot be written."""

    exit_code = 9


class DifferenceError(OnnxqError):
    """A machine that the caller named would compute other integers."""

    exit_code = 10


class WorkerError(OnnxqError):
    """Workers died or cannot be reached, more often than it was tried."""

    exit_code = 11


class LimitError(OnnxqError):
    """A model takes more time or memory than its bound."""

    exit_code = 12


class NothingQuantizedError(OnnxqError):
    """Nothing is quantized, or float is better: nothing was written."""

    exit_code = 13


def exit_codes() -> dict[int, str]:
    """Exit code of the command line -> what it says, in ascending order."""
    kinds = sorted(OnnxqError.__subclasses__(), key=lambda kind: kind.exit_code)
    said = {kind.exit_code: inspect.getdoc(kind) or "" for kind in kinds}
    return {
        0: "done",
        OnnxqError.exit_code: "a fault of onnxq itself, which --debug shows",
        2: "wrong usage",
        **{code: text[0].lower() + text[1:].rstrip(".") for code, text in said.items()},
        128 + signal.SIGINT: "stopped by Ctrl-C",
        128 + signal.SIGTERM: "stopped by SIGTERM",
    }


def nearest(name: str, candidates: Iterable[str]) -> str:
    """A phrase to end a message with: " Did you mean 'x'?"; empty when nothing is near."""
    known = list(candidates)
    begun = [each for each in known if name and each.lower().startswith(name.lower())]
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.5) or begun[:1]
    return f" Did you mean '{matches[0]}'?" if matches else ""


def member(kind: type[Member], value: object, what: str) -> Member:
    """The member of an enum of names that a member or its value stands for.

    Args:
        kind: the enum.
        value: what was given.
        what: it is, to begin the message with: "objective".
    Raises:
        QConfigError: it is neither; names those that there are, and the nearest.
    """
    if isinstance(value, kind):
        return value
    known = [str(each.value) for each in kind]
    if value not in known:
        raise QConfigError(
            f"{what} {reprlib.repr(value)} is not known; known: {', '.join(known)}."
            f"{nearest(str(value), known)}"
        )
    return kind(value)


def ordinal(number: int) -> str:
    """A number as a place: "1st", "2nd", "3rd", "4th", "11th"."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def kind_of(value: object) -> str:
    """Class of a value, with its article: "an int", "a list"; "None"."""
    name = type(value).__name__
    if value is None:
        return "None"
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def first_line(error: BaseException) -> str:
    """The first line of an error's text without period or colours; its class where it has none."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def listed(names: Sequence[str]) -> str:
    """The first few names in quotes, and how many more there are: "'a', 'b' and 7 more"."""
    return counted([f"'{name}'" for name in names])


def counted(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """The first few names as they are, and how many more there are: "a, b and 7 more"."""
    return ", ".join(names[:most]) + _and_more(len(names) - most)


def in_lines(sentences: Sequence[str], most: int = MAX_SENTENCES) -> str:
    """The first few sentences, indented, one to a line, and how many more there are."""
    more = _and_more(len(sentences) - most).lstrip()
    return "".join(f"\n  {line}" for line in [*sentences[:most], *([more] if more else [])])


def _and_more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""
