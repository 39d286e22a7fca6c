"""Child process in which models are opened and run for the first time: the process may die there.

    reply = ask(ChildRequest("open", ...), buffers, limits)

ONNX Runtime aborts on some models, others never end or take all memory. One child is kept for the
life of this process; it starts while other work goes on, and a request costs a copy of its arrays
through a pipe. A pipe needs no temporary file, no shared memory and no socket: nothing is left
behind, whoever dies.

- The child dies: the request is repeated once in a new one, for it may have been killed by others.
- It takes longer than its bound, or Ctrl-C arrives: the child is killed.
- This process ends, even by SIGKILL: the child reads the end of its stdin, or its timer ends it.
- It cannot be started (a sandbox): one warning, and models run in this process.
"""

import atexit
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from onnxq.jobs import child_main
from onnxq.jobs.child_main import ChildReply, ChildRequest, read_header, write

START_SECONDS = 120.0
"""Time for the child's start: a machine under load takes seconds."""
ENDING_SECONDS = 2.0
"""Time that a dying child has to end by itself."""
LATER = 1.25
"""The child's own timer is so much later than the parent's, which knows what was asked."""
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; from importlib import util; "
    "spec = util.spec_from_file_location('onnxq_child', sys.argv[1]); "
    "module = util.module_from_spec(spec); sys.modules[spec.name] = module; "
    "spec.loader.exec_module(module); module.main()"
)


class DiedError(Exception):
    """The child died of a request, twice; its text says by what: "SIGABRT"."""


class UnstartedError(Exception):
    """The child died before it was ready."""


class OverTimeError(Exception):
    """The child was killed, as it took longer than its bound."""


class NoChildError(Exception):
    """No child can be started."""


class _Child:
    """A process that was started; `ask` by one thread at a time."""

    def __init__(self) -> None:
        self.is_ready = False
        # the child imports from the same folders
        paths = [str(Path(path).absolute()) for path in sys.path]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PROGRAM, child_main.__file__, *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )

    def ask(self, request: ChildRequest, buffers: Sequence[bytes | memoryview]) -> ChildReply:
        """The reply."""
        if not self.is_ready:
            try:
                self._within(START_SECONDS, self._read)
            except (DiedError, OverTimeError) as error:
                raise UnstartedError(str(error)) from error
            self.is_ready = True
        return self._within(request.seconds, lambda: self._exchange(request, buffers))

    def end(self) -> None:
        """Ends the process, and waits for that."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what it did not read is not flushed
                    pipe.close()

    def _exchange(self, request: ChildRequest, buffers: Sequence[bytes | memoryview]) -> ChildReply:
        assert self.process.stdin is not None
        later = msgspec.structs.replace(request, seconds=LATER * request.seconds)
        write(self.process.stdin, later, buffers)
        return self._read()

    def _read(self) -> ChildReply:
        assert self.process.stdout is not None
        return msgspec.msgpack.decode(read_header(self.process.stdout), type=ChildReply)

    def _within(self, seconds: float, work: Callable[[], ChildReply]) -> ChildReply:
        """The work's result; a timer kills the child, on which reading ends."""
        late = threading.Event()

        def kill() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            return work()
        except (EOFError, OSError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(ENDING_SECONDS)  # else it would die of our signal
            self.end()
            if late.is_set():
                raise OverTimeError(f"takes more than {seconds:.3g} seconds") from error
            raise DiedError(f"its process dies of {_words(self.process.returncode)}") from error
        except BaseException:  # Ctrl-C: what it answers next is no answer to what is asked next
            self.end()
            raise
        finally:
            timer.cancel()


_lock = threading.RLock()
_children: list[_Child] = []  # one at most
_of_parent: list[_Child] = []  # in a fork: not ours to end
_numbers = itertools.count(1)
_is_refused = threading.Event()


def begin() -> None:
    """Starts the child, unless there is one; it gets ready while this process goes on."""
    with _lock, contextlib.suppress(NoChildError):
        _child()


def new_number() -> int:
    """A number for a session, which no other has."""
    return next(_numbers)


def ask(request: ChildRequest, buffers: Sequence[bytes | memoryview] = ()) -> ChildReply:
    """The child's reply."""
    with _lock:
        try:
            return _asked(request, buffers)
        except (
            DiedError,
            UnstartedError,
        ):  # of the request, or something else killed it: a new one tells
            pass
        try:
            return _asked(request, buffers)
        except UnstartedError as error:
            raise _refused(str(error)) from error


def tell(request: ChildRequest) -> None:
    """Asks a child that is there already; where it is not, or dies, nothing is lost."""
    with _lock:
        if _children and _children[0].is_ready:
            with contextlib.suppress(DiedError, OverTimeError, NoChildError):
                ask(request)


def end() -> None:
    """Ends the child; the next request starts another one."""
    with _lock:
        while _children:
            _children.pop().end()


def _asked(request: ChildRequest, buffers: Sequence[bytes | memoryview]) -> ChildReply:
    asked = _child()
    try:
        return asked.ask(request, buffers)
    finally:
        if asked.process.returncode is not None:
            _children.remove(asked)


def _child() -> _Child:
    if _is_refused.is_set():
        raise NoChildError("it could not be started before")
    if not _children:
        if not sys.executable or getattr(sys, "frozen", False):
            raise _refused("this Python is no program of its own")
        try:
            _children.append(_Child())
        except (OSError, ValueError) as error:
            raise _refused(str(error)) from error
    return _children[0]


def _refused(reason: str) -> NoChildError:
    """The error, and a warning: none is started from here on."""
    _is_refused.set()
    warnings.warn(
        f"no child process can be started ({reason}): models are opened in this process, which "
        "ends where ONNX Runtime aborts, and nothing bounds their time and memory.",
        stacklevel=2,
    )
    return NoChildError(reason)


def _words(code: int) -> str:
    """Name of the signal that ended a process, or its exit code."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"


def _forget() -> None:
    """In a fork: the child is the parent's; this process starts its own."""
    global _lock
    _lock = threading.RLock()
    for child in _children:
        child.process.returncode = 0  # not this process's child to wait for
    _of_parent.extend(_children)
    _children.clear()


atexit.register(end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
