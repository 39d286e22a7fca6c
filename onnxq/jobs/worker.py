"""A worker's side: made ready once for a kind of work, then item by item.

Work and items come as bytes, so that every Executor carries the same thing, and so do outcomes go
back: what cannot be read again, as of another version of onnxq, is an error of ours, and no thread
of an Executor's dies of it. What the work raised goes back as a value: an exception of a future is
then always the Executor's own, of whatever class, and says that the worker was lost.
"""

from __future__ import annotations

import enum
import os
import pickle
import platform
import threading
import traceback
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_READY = 2
"""Kinds of work that a thread keeps ready; each may hold a model's session."""


@dataclass(frozen=True, slots=True)
class Done:
    """Result of an item."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """Exception that another try would raise again.

    Attributes:
        error: the exception.
        is_of_item: False: of getting ready for any item.
    """

    error: Exception
    is_of_item: bool


class Lacking(enum.Enum):
    """Answer of a worker that is not ready."""

    WORK = "work"
    """This kind of work is new to the worker: submit the item with it."""


Outcome = Done | Raised | Lacking


class _Ready(threading.local):
    """Functions of items that this thread has, by the hash of the work that makes them.

    Of a thread, and not of the process: sessions and evaluators keep state while they run.
    """

    def __init__(self) -> None:
        self.functions: OrderedDict[str, Callable[[Any], Any]] = OrderedDict()


_ready = _Ready()


def carry_out(_serial: int, key: str, item: bytes, work: bytes | None) -> bytes:
    """Outcome of one item, pickled.

    Args:
        _serial: another number with each submission: Dask takes equal calls for one.
        key: hash of the work.
        item: pickled.
        work: pickled; called without arguments, it gives the function of an item. None: the thread
            may have it already.
    """
    function = None
    try:  # whatever work raises belongs to who asked for it
        function = _function(key, work)
        outcome = Lacking.WORK if function is None else Done(function(pickle.loads(item)))
        return pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raised = Raised(_portable(error), is_of_item=function is not None)
        return pickle.dumps(raised, pickle.HIGHEST_PROTOCOL)


def _function(key: str, work: bytes | None) -> Callable[[Any], Any] | None:
    functions = _ready.functions
    if key not in functions:
        if work is None:
            return None
        while len(functions) >= MOST_READY:
            functions.popitem(last=False)  # first, so that two large models are never three
        functions[key] = pickle.loads(work)()
    functions.move_to_end(key)
    return functions[key]


def _portable(error: Exception) -> Exception:
    """The error with its traceback as a note; another one where it does not survive pickling."""
    where = f"worker {os.getpid()} on {platform.node()}"
    note = f"in {where}:\n{''.join(traceback.format_exception(error)).rstrip()}"
    try:
        copied = pickle.loads(pickle.dumps(error))
    except Exception:  # a constructor of a user's class may raise anything
        copied = None
    if type(copied) is not type(error):
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(note)
    return error
