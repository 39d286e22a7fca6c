"""Lane: tensors between the segments of one model, for every batch of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from onnxq.ort import runtime
from onnxq.weights.activation_cache import KeptArrays

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Array


class Lane:
    """Tensors that a model's segments have made; a context manager that closes its files.

    Args:
        feeds: inputs of the model, or another lane: what this one has not made, it has from there.
        batches: of samples.
        share: part of the memory for lanes that is this one's.
    """

    def __init__(self, feeds: KeptArrays | Lane, batches: int, share: float = 1.0) -> None:
        self._feeds, self._batches, self._made = feeds, batches, KeptArrays(share)

    def get(self, tensor: str, batch: int) -> Array:
        """The tensor's array of a batch."""
        if tensor in self._made:
            return self._made.get(tensor, batch)
        return self._feeds.get(tensor, batch)

    def advance(self, part: ir.Model) -> None:
        """Runs a segment on all batches, and keeps its outputs.

        Raises:
            CalibrationError: it does not run on the samples.
            OutputError: what it gives does not fit on the disk.
        """
        with opened(part) as session:
            self.run(session)

    def run(self, session: runtime.Session) -> None:
        """Runs a segment that is open already, as `advance`."""
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
    """A session of a segment, of one thread: its sums are the same everywhere."""
    return runtime.open_session(
        part,
        threads=1,
        memory=runtime.Memory.ON_DEMAND,
        weights=runtime.Weights.FILES,
    )
