"""A model is opened and run for the first time in the child process, and here only after that.

    trial = FirstRun(source)
    signature = trial.open()           # in the child; its session stays open there
    trial.run(feeds, outputs)          # in the child; then its session is closed
    session, kept = source.opened()    # here: known to be safe

ONNX Runtime opens a model once more here than without the child, and runs one batch more. No result
comes back from there: that would be a copy of all activations for the first batch of a calibration.
A model that is opened only to see whether ONNX Runtime takes it is never opened here. What ran once
is known by its digest for the life of this process, at the same options.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from onnxq.core.limits import REMEDY, current_limits
from onnxq.errors import LimitError, ModelError, first_line
from onnxq.jobs import child
from onnxq.jobs.child_main import ChildRequest, Opening, SentArray, opened
from onnxq.ort.version import installed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnxruntime as ort

    from onnxq.core.arrays import Array
    from onnxq.jobs.child_main import ChildReply

_ran: set[bytes] = set()  # digests of what ran without harm


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A session's model and options.

    Attributes:
        name: of the model, to begin a message with.
        graph: protobuf bytes, or the file.
        weights: that are handed over beside the bytes.
        files: of those weights that are mapped from a file: (file, offset).
    """

    name: str
    graph: bytes | Path
    opening: Opening
    weights: Mapping[str, Array] = field(default_factory=dict)
    files: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def opened(self) -> tuple[ort.InferenceSession, Sequence[object]]:
        """A session in this process, and what has to live as long as it does."""
        graph = self.graph if isinstance(self.graph, bytes) else str(self.graph)
        return opened(graph, self.weights, self.opening)

    @property
    def size_bytes(self) -> int:
        """Bytes of the model."""
        weights = sum(array.nbytes for array in self.weights.values())
        if isinstance(self.graph, bytes):
            return len(self.graph) + weights
        return sum(f.stat().st_size for f in self.graph.parent.glob(f"{self.graph.name}*"))

    def digest(self) -> bytes:
        """Equal for equal models with equal options."""
        plain = msgspec.structs.replace(self.opening, optimized="", profile="")
        found = hashlib.sha256(msgspec.msgpack.encode(plain))
        for part in [*self._states(), *self.buffers()]:
            found.update(part)
        return found.digest()

    def _states(self) -> list[bytes]:
        """Which files it is made of, as they are now, and names of its weights."""
        paths = [] if isinstance(self.graph, bytes) else [self.graph.absolute()]
        paths += [Path(path) for path, _ in self.files.values()]
        found = [(path, path.stat()) for path in paths]
        states = [(str(path), s.st_mtime_ns, s.st_size, s.st_ino) for path, s in found]
        return [repr((states, self.parts())).encode()]

    def buffers(self) -> list[bytes | memoryview]:
        """Bytes of the parts that are in no file."""
        graph = [self.graph] if isinstance(self.graph, bytes) else []
        piped = [array for name, array in self.weights.items() if name not in self.files]
        return [*graph, *map(_bytes_of, piped)]

    def parts(self) -> tuple[SentArray, ...]:
        """Arrays of a request to open it."""
        graph = (SentArray("", "|u1", (len(self.graph),)),) if isinstance(self.graph, bytes) else ()
        weights = [
            SentArray(name, x.dtype.str, x.shape, *self.files.get(name, ()))
            for name, x in self.weights.items()
        ]
        return (*graph, *weights)


class FirstRun:
    """The first opening and run of a model, in the child process."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._digest = source.digest()
        self._number = child.new_number()

    @property
    def is_known(self) -> bool:
        """Whether the model ran before."""
        return self._digest in _ran

    def open(self) -> ChildReply:
        """Names of inputs and outputs, or ONNX Runtime's words against the model."""
        source = self.source
        request = msgspec.structs.replace(
            self._request("open", source.size_bytes),
            path="" if isinstance(source.graph, bytes) else str(source.graph.absolute()),
            opening=msgspec.structs.replace(source.opening, profile=""),
            parts=source.parts(),
        )
        reply = self._ask(request, source.buffers(), "opens")
        if not reply.error:
            written = msgspec.structs.replace(source.opening, optimized="")
            self.source = replace(source, opening=written)
        return reply

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None) -> ChildReply | None:
        """The child's reply on one run; None: the inputs do not go through a pipe."""
        # no sequence goes through the pipe, and no type that NumPy lacks
        if not all(
            isinstance(x, np.ndarray) and x.dtype.kind in "biufcOSU" for x in feeds.values()
        ):
            return None
        size = self.source.size_bytes + sum(x.nbytes for x in feeds.values())
        request = msgspec.structs.replace(
            self._request("run", size),
            parts=tuple(_part(name, x) for name, x in feeds.items()),
            outputs=None if outputs is None else tuple(outputs),
        )
        buffers = [_bytes_of(x) for x in feeds.values() if x.dtype.kind not in "OSU"]
        reply = self._ask(request, buffers, "runs")
        if reply.is_unknown:  # it was closed for others, or that child died
            reply = self.open()
            reply = reply if reply.error else self._ask(request, buffers, "runs")
        if not reply.error:
            _ran.add(self._digest)
        return reply

    def close(self) -> None:
        """Closes the child's session."""
        child.tell(ChildRequest("close", self._number, current_limits().seconds))

    def _request(self, what: str, size_bytes: int) -> ChildRequest:
        bounds = current_limits()
        return ChildRequest(what, self._number, bounds.seconds_for(size_bytes), bounds.bytes_now)

    def _ask(
        self, request: ChildRequest, buffers: Sequence[bytes | memoryview], does: str
    ) -> ChildReply:
        name = self.source.name
        try:
            reply = child.ask(request, buffers)
        except child.DiedError as error:
            version = ".".join(map(str, installed()))
            raise ModelError(
                f"{name}: ONNX Runtime {version} {does} it, and {error}. Check it with "
                "onnx.checker.check_model(path, full_check=True)."
            ) from error
        except child.OverTimeError as error:
            raise LimitError(f"{name}: ONNX Runtime {does} it, and {error}. {REMEDY}") from error
        if reply.is_memory:
            cause = RuntimeError(first_line(RuntimeError(reply.error)))
            raise LimitError(
                f"{name}: ONNX Runtime {does} it, and gets no more memory: {cause}. {REMEDY}"
            ) from cause
        return reply


def _part(name: str, array: Array) -> SentArray:
    if array.dtype.kind in "OSU":
        return SentArray(name, "", array.shape, texts=tuple(map(str, array.ravel())))
    return SentArray(name, array.dtype.str, array.shape)


def _bytes_of(array: Array) -> memoryview:
    """The array's bytes, not copied where they lie one behind the other."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
