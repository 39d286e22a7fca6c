"""Program of the child process, in which a model is opened and run for the first time.

It imports onnxruntime and NumPy only, and nothing of onnxq: its start is what a small model pays.
It reads a request from stdin and writes a reply to stdout, one after the other:

    8 bytes: length of the header | header (msgpack) | the arrays' bytes, one after the other

A model that aborts ends this process in place of the one that asked. Memory is bounded by the
system's limit on data (Linux), time by a timer that ends the process, should the parent be gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import OrderedDict
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnxruntime as ort

    from onnxq.core.arrays import Array

MOST_OPEN = 4
"""Sessions that stay open until their first run; the oldest is closed for one more."""
LENGTH_BYTES = 8
CPU = "CPUExecutionProvider"
ASSIGNMENT = "session.record_ep_graph_assignment_info"
OUT_OF_MEMORY = ("Failed to allocate memory", "bad allocation", "bad_alloc", "MemoryError")
"""Words of ONNX Runtime, C++ and Python where memory is not to be had."""


class SentArray(msgspec.Struct, frozen=True):
    """An array of a request, in the pipe or in a file.

    Attributes:
        dtype: as NumPy writes it, "<f4"; "" for texts.
        path: file that has its bytes; "": they follow the header.
        offset: in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: str = ""
    offset: int = 0
    texts: tuple[str, ...] = ()

    @property
    def piped_bytes(self) -> int:
        """Bytes behind the header."""
        if self.path or not self.dtype:
            return 0
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


class Opening(msgspec.Struct, frozen=True):
    """Options of a session.

    Attributes:
        has_memory_plan: whether activations lie in one block.
        optimized: file that the optimized graph is written to; "": none.
        profile: how the name of the profiler's file begins; "": no profile.
        provider: that gets the nodes which it takes; the CPU's gets the others.
    """

    optimization: int
    threads: int | None = None
    has_memory_plan: bool = True
    entries: dict[str, str] = {}
    optimized: str = ""
    profile: str = ""
    provider: str = CPU


class ChildRequest(msgspec.Struct, frozen=True):
    """A thing to be tried.

    Attributes:
        what: "open", "run", "close" or "infer".
        session: number that the parent gave the session.
        seconds: after which the process ends itself.
        memory_bytes: that may be taken for it; None: no bound.
        path: file of the model; "": its bytes are the first part.
        parts: bytes of the model, then its weights; of a run: the inputs.
        outputs: wanted names; None: all.
    """

    what: str
    session: int
    seconds: float
    memory_bytes: int | None = None
    path: str = ""
    opening: Opening | None = None
    parts: tuple[SentArray, ...] = ()
    outputs: tuple[str, ...] | None = None


class ChildReply(msgspec.Struct, frozen=True):
    """Answer of the child to a request.

    Attributes:
        is_unknown: whether no session of that number is open any more.
    """

    error: str = ""
    is_memory: bool = False
    is_unknown: bool = False
    inputs: tuple[str, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    data: bytes = b""


def opened(
    source: bytes | str, weights: Mapping[str, Array], opening: Opening
) -> tuple[ort.InferenceSession, Sequence[object]]:
    """(ONNX Runtime's session, what has to live as long as it does)."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel(opening.optimization)
    options.log_severity_level = 4  # fatal ones only; errors are exceptions, too
    options.enable_mem_pattern = opening.has_memory_plan
    if opening.threads is not None:
        options.intra_op_num_threads = opening.threads
        options.inter_op_num_threads = 1
    for key, value in opening.entries.items():
        options.add_session_config_entry(key, value)
    if opening.optimized:
        options.optimized_model_filepath = opening.optimized
    if opening.profile:
        options.enable_profiling = True
        options.profile_file_prefix = opening.profile
    kept = [ort.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    if kept:
        options.add_external_initializers(list(weights), kept)
    if opening.provider != CPU:
        options.add_session_config_entry(ASSIGNMENT, "1")
    providers = list(dict.fromkeys([opening.provider, CPU]))
    session = ort.InferenceSession(source, options, providers=providers)
    return session, [*kept, *weights.values()]


def write(
    pipe: IO[bytes], message: msgspec.Struct, buffers: Sequence[bytes | memoryview] = ()
) -> None:
    """Writes a message and the bytes that follow it."""
    header = msgspec.msgpack.encode(message)
    pipe.write(len(header).to_bytes(LENGTH_BYTES, "little") + header)
    for buffer in buffers:
        pipe.write(buffer)
    pipe.flush()


def read_exactly(pipe: IO[bytes], count: int) -> bytearray:
    """So many bytes; EOFError where the other side has ended."""
    data = bytearray(count)
    view, done = memoryview(data), 0
    while done < count:
        got = pipe.readinto(view[done:])  # type: ignore[attr-defined]  # a buffered reader has it
        if not got:
            raise EOFError
        done += got
    return data


def read_header(pipe: IO[bytes]) -> bytearray:
    """Bytes of the next message's header."""
    return read_exactly(pipe, int.from_bytes(read_exactly(pipe, LENGTH_BYTES), "little"))


def array_of(part: SentArray, data: bytearray) -> Array:
    """The array that a part stands for."""
    if not part.dtype:
        return np.array(part.texts, dtype=object).reshape(part.shape)
    if part.path:
        if 0 in part.shape:
            return np.zeros(part.shape, part.dtype)
        return np.memmap(part.path, part.dtype, "r", part.offset, part.shape)
    return np.frombuffer(data, part.dtype).reshape(part.shape)


class _Sessions:
    """Sessions that wait for their first run."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, tuple[ort.InferenceSession, object]] = OrderedDict()

    def answer(self, request: ChildRequest, data: list[bytearray]) -> ChildReply:
        """Does what is asked; an exception becomes text."""
        does = {"open": self._opened, "run": self._run, "close": self._close, "infer": _infer}
        try:
            return does[request.what](request, data)
        except Exception as error:  # whatever it is: the parent says it
            text = str(error) or type(error).__name__
            is_memory = isinstance(error, MemoryError) or any(w in text for w in OUT_OF_MEMORY)
            return ChildReply(error=text, is_memory=is_memory)

    def _opened(self, request: ChildRequest, data: list[bytearray]) -> ChildReply:
        parts = [array_of(*each) for each in zip(request.parts, data, strict=True)]
        weights = {part.name: x for part, x in zip(request.parts, parts, strict=True) if part.name}
        source = request.path or bytes(data[0])
        session, kept = opened(source, weights, request.opening or Opening(0))
        self._open[request.session] = session, (kept, data)
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
        return ChildReply(
            inputs=tuple(value.name for value in session.get_inputs()),
            outputs=tuple((value.name, value.type) for value in session.get_outputs()),
        )

    def _run(self, request: ChildRequest, data: list[bytearray]) -> ChildReply:
        if request.session not in self._open:
            return ChildReply(is_unknown=True)
        session, _ = self._open[request.session]
        feeds = {p.name: array_of(p, x) for p, x in zip(request.parts, data, strict=True)}
        outputs = None if request.outputs is None else list(request.outputs)
        session.run(outputs, feeds)
        del self._open[request.session]
        return ChildReply()

    def _close(self, request: ChildRequest, _data: list[bytearray]) -> ChildReply:
        self._open.pop(request.session, None)
        return ChildReply()


def _infer(_request: ChildRequest, data: list[bytearray]) -> ChildReply:
    """Types and shapes by onnx's inference, data propagated: the model with them."""
    import onnx

    model = onnx.load_model_from_string(bytes(data[0]))
    return ChildReply(
        data=onnx.shape_inference.infer_shapes(model, data_prop=True).SerializeToString()
    )


@contextlib.contextmanager
def _bounded(request: ChildRequest) -> Iterator[None]:
    """Bounds time and memory, where the system can."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    if request.memory_bytes is not None and (used := _data_bytes()) is not None:
        most = min(used + request.memory_bytes, sys.maxsize)
        if before[1] != resource.RLIM_INFINITY:
            most = min(most, before[1])  # no process may take back a limit that it was given
        resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    signal.setitimer(signal.ITIMER_REAL, request.seconds)  # SIGALRM ends the process
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int | None:
    """Bytes that the limit on data counts now; None outside of Linux."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return None


def main() -> None:
    """Answers requests until stdin ends."""
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is printed is no reply
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    _leave_no_core()
    import onnxruntime  # noqa: F401  # so that the first request does not wait for it

    write(pipe, ChildReply())
    sessions, stdin = _Sessions(), sys.stdin.buffer
    while True:
        try:
            request = msgspec.msgpack.decode(read_header(stdin), type=ChildRequest)
            data = [read_exactly(stdin, part.piped_bytes) for part in request.parts]
        except EOFError:
            return
        with _bounded(request):
            reply = sessions.answer(request, data)
        del data
        write(pipe, reply)


def _leave_no_core() -> None:
    """An abort writes no core file, and opens no window."""
    if sys.platform == "win32":
        import ctypes

        no_critical_box, no_fault_box = 0x0001, 0x0002
        ctypes.windll.kernel32.SetErrorMode(no_critical_box | no_fault_box)
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
