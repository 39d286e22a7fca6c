"""Activations between two subgraphs, for every batch: in memory, or in files beyond a limit."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from onnxq.errors import OutputError
from onnxq.ort import runtime

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Array


MOST_IN_MEMORY = 1 << 29
"""Size of all arrays that are kept in memory; more lie in temporary files."""


@dataclass(frozen=True, slots=True)
class _Place:
    """An array in the file of its tensor."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class SpilledArrays:
    """Arrays of tensors, by batch; a context manager that closes its files.

    Args:
        share: part of MOST_IN_MEMORY that is this one's, where there are many.
    """

    def __init__(self, share: float = 1.0) -> None:
        self._most = int(share * MOST_IN_MEMORY)
        self._arrays: dict[str, list[Array | _Place]] = {}
        self._files: dict[str, IO[bytes]] = {}
        self._bytes = 0

    def __contains__(self, tensor: str) -> bool:
        return tensor in self._arrays

    def add(self, tensor: str, array: Array) -> None:
        """Keeps the array of the tensor's next batch."""
        arrays = self._arrays.setdefault(tensor, [])
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            arrays.append(array)  # sequences and texts
        elif self._bytes + array.nbytes <= self._most:
            self._bytes += array.nbytes
            arrays.append(array)
        else:
            if tensor not in self._files:
                self._files[tensor] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `drop` or at the end
            offset = _appended(self._files[tensor], array)
            arrays.append(_Place(offset, array.dtype, array.shape))

    def get(self, tensor: str, batch: int) -> Array:
        """The array of the tensor's batch."""
        found = self._arrays[tensor][batch]
        if not isinstance(found, _Place):
            return found
        file = self._files[tensor]
        file.seek(found.offset)
        count = int(np.prod(found.shape, dtype=np.int64))
        data = file.read(count * found.dtype.itemsize)
        return np.frombuffer(data, found.dtype, count).reshape(found.shape)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            _close(file)

    def drop(self, tensor: str) -> None:
        """Forgets the arrays of a tensor."""
        for array in self._arrays.pop(tensor):
            if isinstance(array, np.ndarray) and not array.dtype.hasobject:
                self._bytes -= array.nbytes
        if tensor in self._files:
            _close(self._files.pop(tensor))


def _close(file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # of an array that did not fit, which `add` said
        file.close()


def _appended(file: IO[bytes], array: Array) -> int:
    """Offset at which the array is now in the file."""
    try:
        offset = file.seek(0, 2)
        file.write(np.ascontiguousarray(array).data)
        file.flush()
    except OSError as error:
        raise OutputError(
            f"'{tempfile.gettempdir()}' takes no more of what layers give the samples: "
            f"{error.strerror or error}. Give fewer samples, free some space, or set TMPDIR to "
            "another folder."
        ) from error
    return offset


class ActivationCache:
    """Tensors that a model's subgraphs have made; a context manager that closes its files.

    Args:
        feeds: inputs of the model, or another cache: what this one has not made, it has from there.
        batches: of samples.
        share: part of the memory for caches that is this one's.
    """

    def __init__(
        self, feeds: SpilledArrays | ActivationCache, batches: int, share: float = 1.0
    ) -> None:
        self._feeds, self._batches, self._made = feeds, batches, SpilledArrays(share)

    def get(self, tensor: str, batch: int) -> Array:
        """The tensor's array of a batch."""
        if tensor in self._made:
            return self._made.get(tensor, batch)
        return self._feeds.get(tensor, batch)

    def advance(self, part: ir.Model) -> None:
        """Runs a subgraph on all batches, and keeps its outputs."""
        with opened(part) as session:
            self.run(session)

    def run(self, session: runtime.Session) -> None:
        """Runs a subgraph that is open already, as `advance`."""
        for batch in range(self._batches):
            made = session.run({name: self.get(name, batch) for name in session.inputs})
            for tensor, array in zip(session.outputs, made, strict=True):
                self._made.add(tensor, array)

    def drop(self, tensor: str) -> None:
        """Forgets a tensor, unless it is an input."""
        if tensor in self._made:
            self._made.drop(tensor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._made.__exit__(*exception)


def opened(part: ir.Model) -> runtime.Session:
    """A session of a subgraph, of one thread: its sums are the same everywhere."""
    return runtime.open_session(
        part, threads=1, memory=runtime.Memory.ON_DEMAND, weights=runtime.Weights.FILES
    )
