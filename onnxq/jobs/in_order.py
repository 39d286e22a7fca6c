"""Results of work over an Executor, in the order of the items, whatever the order they came in.

window   at most 2 pieces for each worker are taken from the items and not handed on yet: one
         runs, one waits. Items may be one-shot, endless, and large.
lost     where a future has an exception, the worker was lost (see `worker`): the piece runs
         again. Who was lost twice runs alone, as others may have died of it: a process that
         dies takes the pool of `ProcessPoolExecutor` with it. MOST_LOSSES end the run.
raised   what work raises is raised here, in its turn, with the name of the item.
stopped  leaving the loop (an error, Ctrl-C, `close`) cancels what waits.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import os
import pickle
import platform
import threading
import traceback
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from onnxq.errors import (
    OnnxqError,
    QConfigError,
    UnsupportedError,
    WorkerError,
    first_line,
    kind_of,
)


def slots(executor: Executor | None) -> int:
    """Pieces that run at a time, as far as the Executor tells; else the cores of this machine.

    The number may change while a cluster grows or shrinks, and is 1 where there is no worker yet.
    """
    if executor is None:
        return 1
    client: Any = getattr(executor, "_client", None)  # of Dask, whose Executor has no number
    if hasattr(client, "nthreads"):
        threads: dict[str, int] = client.nthreads()
        return max(1, sum(threads.values()))
    for name in ("max_workers", "_max_workers"):  # ours; of the standard library
        count = getattr(executor, name, None)
        if isinstance(count, int):
            return max(1, count)
    return os.cpu_count() or 1


Item = TypeVar("Item")
Result = TypeVar("Result")

WINDOW = 2  # pieces for each worker
LOSSES_TOGETHER = 2  # of one piece, after which it runs alone
MOST_LOSSES = 4
"""Losses of one piece that end the run; the last two of them alone."""

_serials = itertools.count()


def in_order(
    executor: Executor | None,
    make: Callable[[], Callable[[Item], Result]],
    items: Iterable[Item],
    *,
    named: Callable[[Item], str] = str,
) -> Iterator[Result]:
    """make()(item) of each item, in the items' order.

    Args:
        executor: runs the work; None: this process, when the result is asked for.
        make: called once by each worker (thread) that gets an item: what takes long to get ready, a
            session of a model, is made there. It travels to each worker once, pickled; equal ones,
            by their bytes, are made once even in several calls.
        items: taken as workers get free. An error of theirs is raised behind the results of the
            items before it.
        named: what an item is, in words: begins the message of an error of its work.
    Raises:
        WorkerError: the worker was lost MOST_LOSSES times with the same item, or the Executor takes
            no more work.
        UnsupportedError: `make` or an item cannot be pickled.
        QConfigError: the executor is something else, such as a number or a class.
        Exception: whatever the work raises. An OnnxqError begins with the item's name; others have
            it as a note.
    """
    if executor is None:
        return _here(make, items, named)
    if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
        what = f"the class {executor.__name__}" if isinstance(executor, type) else kind_of(executor)
        raise QConfigError(
            f"executor is {what}; wanted a concurrent.futures.Executor, such as "
            "onnxq.jobs.Processes(4), or None."
        )
    return _Run(executor, make, named).results(items)


def _here(
    make: Callable[[], Callable[[Item], Result]],
    items: Iterable[Item],
    named: Callable[[Item], str],
) -> Iterator[Result]:
    function: Callable[[Item], Result] | None = None
    for item in items:
        function = function or make()
        try:
            result = function(item)
        except Exception as error:  # whatever the work raises, raised again
            _add_name(error, named(item))
            raise
        yield result


@dataclass(slots=True, eq=False)
class _Piece:
    """An item on its way.

    Attributes:
        future: of its last submission; None: there is none, and an outcome.
        outcome: None: not known yet.
    """

    name: str
    data: bytes
    number: int
    future: Future[bytes] | None = None
    outcome: Outcome | None = None
    losses: int = 0


@dataclass(slots=True, eq=False)
class _Run(Generic[Item, Result]):
    """One call of `in_order`.

    Attributes:
        pieces: taken and not handed on, in the items' order.
        suspects: pieces that were lost too often to run beside others.
    """

    executor: Executor
    make: Callable[[], Callable[[Item], Result]]
    named: Callable[[Item], str]
    work: bytes = field(init=False)
    key: str = field(init=False)
    pieces: deque[_Piece] = field(default_factory=deque)
    suspects: deque[_Piece] = field(default_factory=deque)
    ended: Exception | None = None
    taken: int = 0

    def __post_init__(self) -> None:
        self.work = _pickled(self.make, "the work")
        self.key = hashlib.sha256(self.work).hexdigest()

    def results(self, items: Iterable[Item]) -> Iterator[Result]:
        """Results in order."""
        feed = iter(items)
        try:
            while True:
                self._fill(feed)
                if not self.pieces:
                    break
                while (outcome := self.pieces[0].outcome) is None:
                    self._advance()
                piece = self.pieces.popleft()
                if isinstance(outcome, Raised):
                    if outcome.is_of_item:
                        _add_name(outcome.error, piece.name)
                    raise outcome.error
                yield cast("Any", outcome).value
        finally:
            for piece in self.pieces:
                if piece.future is not None:
                    piece.future.cancel()
        if self.ended is not None:
            raise self.ended

    def _fill(self, feed: Iterator[Item]) -> None:
        """Submits items until the window is full, or they end."""
        room = WINDOW * slots(self.executor) - len(self.pieces)
        if self.ended is not None or self.suspects or room <= 0:
            return
        try:
            for item in itertools.islice(feed, room):
                name = self.named(item)
                piece = _Piece(name, _pickled(item, name), self.taken)
                self.taken += 1
                self.pieces.append(piece)
                self._submit(piece, None)
        except Exception as error:  # of the items, after those before it
            self.ended = error

    def _advance(self) -> None:
        """Waits until a piece is further than it was."""
        alone = {piece.number for piece in self.suspects}
        others = [p for p in self.pieces if p.outcome is None and p.number not in alone]
        running = {p.future: p for p in others if p.future is not None}
        if not running:
            suspect = self.suspects.popleft()
            self._submit(suspect, self.work)
            running = {suspect.future: suspect} if suspect.future is not None else {}
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            self._settle(running[future], future)

    def _settle(self, piece: _Piece, future: Future[bytes]) -> None:
        """Takes the outcome of a piece whose future is done, or submits it again."""
        try:
            data = future.result()
        except Exception as error:  # of whatever class an Executor has
            self._lost(piece, error)
            return
        outcome = _read(data, piece.name)
        if outcome is Lacking.WORK:
            self._submit(piece, self.work)
        else:
            piece.outcome = outcome

    def _lost(self, piece: _Piece, error: Exception) -> None:
        """Submits a piece again whose worker was lost; alone, or not at all, if that goes on."""
        piece.losses += 1
        if piece.losses < LOSSES_TOGETHER:
            self._submit(piece, self.work)
        elif piece.losses < MOST_LOSSES:
            self.suspects.appendleft(piece)
        else:
            why = WorkerError(
                f"{piece.name}: its worker was lost {MOST_LOSSES} times, the last ones while it "
                f"ran alone ({type(error).__name__}: {first_line(error)}). It may need more memory "
                "than the worker has, or crash it: run it without workers to see. The results "
                f"before it ({piece.number}) are complete."
            )
            why.__cause__ = error
            piece.outcome = Raised(why, is_of_item=False)

    def _submit(self, piece: _Piece, work: bytes | None) -> None:
        """Hands a piece to the Executor; where that takes none, this is the piece's outcome."""
        call = (next(_serials), self.key, piece.data, work)
        piece.future = None
        try:
            with warnings.catch_warnings():
                # Dask's advice is to scatter large arguments; a worker gets the work once as it is
                warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
                piece.future = self.executor.submit(carry_out, *call)
        except Exception as error:  # of whatever class an Executor has
            why = WorkerError(
                f"{kind_of(self.executor)} takes no more work ({type(error).__name__}: "
                f"{first_line(error)}); the results before {piece.name} ({piece.number}) are "
                "complete. Begin again with a new one; onnxq.jobs.Processes replaces workers that "
                "died by itself."
            )
            why.__cause__ = error
            piece.outcome = Raised(why, is_of_item=False)
            self.ended = why


def _pickled(value: object, name: str) -> bytes:
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except OnnxqError:
        raise
    except Exception as error:  # pickling calls the value's own code
        raise UnsupportedError(
            f"{name} cannot be sent to workers: {first_line(error)}. Use classes and functions "
            "that a module defines, or run without workers (executor=None)."
        ) from error


def _read(data: bytes, name: str) -> Outcome:
    """The outcome that a worker sent; an error of its own where this process cannot read it."""
    try:
        outcome: Outcome = pickle.loads(data)
    except Exception as error:  # reading calls the value's own code
        why = WorkerError(
            f"{name}: what its worker sent cannot be read here ({type(error).__name__}: "
            f"{first_line(error)}). Are the same versions of onnxq, and of the packages that it "
            "uses, on both sides?"
        )
        why.__cause__ = error
        return Raised(why, is_of_item=False)
    return outcome


def _add_name(error: Exception, name: str) -> None:
    """Makes the error say which item it is of."""
    if not isinstance(error, OnnxqError):
        error.add_note(f"while onnxq worked on {name}")
    elif not str(error).startswith(name):
        error.args = (f"{name}: {error}", *error.args[1:])


# --- A worker's side: made ready once for a kind of work, then item by item
#
# Work and items come as bytes, so that every Executor carries the same thing, and so do outcomes go
# back: what cannot be read again, as of another version of onnxq, is an error of ours, and no
# thread of an Executor's dies of it. What the work raised goes back as a value: an exception of a
# future is then always the Executor's own, of whatever class, and says that the worker was lost.


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
    except Exception as error:  # whatever the work raises: it travels
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
