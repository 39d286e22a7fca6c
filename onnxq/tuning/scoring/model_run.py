"""A model as a user's metric sees it: arrays in, arrays out, in batches that the model takes."""

from collections.abc import Mapping, Sequence

import numpy as np

from onnxq.core.arrays import Array
from onnxq.errors import CalibrationError, listed, nearest
from onnxq.ort.runtime import Session
from onnxq.samples import InputSpec, as_taken
from onnxq.samples.state import State


class ModelRun:
    """run({input: array}) -> {output: array}.

    Arrays that are no inputs (labels) are left aside, so that a whole batch of the samples may be
    given. Of a model with a static batch, more samples run one batch after the other. State that
    goes round is kept from call to call.
    """

    def __init__(
        self,
        session: Session,
        taken: Sequence[InputSpec],
        inputs: Sequence[InputSpec],
        outputs: Sequence[str],
        feedback: Mapping[str, str],
    ) -> None:
        self._session = session
        self._taken = tuple(taken)
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._feedback = dict(feedback)
        self._kept: dict[tuple[object, ...], tuple[dict[str, Array], dict[str, Array]]] = {}
        self.restart()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self._outputs

    def restart(self) -> None:
        """Forgets the state that goes round: the next call begins a sequence."""
        self._state = State(self._inputs, self._feedback)

    def keep(self, batch: Mapping[str, Array], outputs: dict[str, Array]) -> None:
        """Remembers outputs, so that a call on the very arrays of that batch need not run."""
        feeds = self._fed(batch)
        self._kept[_identity(feeds)] = feeds, outputs  # which keeps the arrays where they are

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name."""
        feeds = self._fed(inputs)
        if inputs and not feeds:
            names, known = list(inputs), [spec.name for spec in self._inputs]
            raise CalibrationError(
                f"metric: run got {listed(names)}; the model takes {listed(known)}."
                f"{nearest(names[0], known)}"
            )
        if (kept := self._kept.get(_identity(feeds))) is not None:
            return {name: x.copy() for name, x in kept[1].items()}  # which a metric may change
        sizes = {spec.static_batch for spec in self._inputs if spec.shape}
        size, rows = sizes.pop() if len(sizes) == 1 else None, self._rows(feeds)
        if size is None or rows is None or rows == size:
            return self._run(feeds)
        if rows % size:
            raise CalibrationError(
                f"metric: run got {rows} samples; the model has a static batch of {size}, which "
                f"leaves {rows % size} over. Give a multiple, or the batches of `samples`."
            )
        parts = [
            self._run({name: x[i : i + size] if x.ndim else x for name, x in feeds.items()})
            for i in range(0, rows, size)
        ]
        return {
            name: np.concatenate([np.atleast_1d(part[name]) for part in parts]) for name in parts[0]
        }

    def _fed(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        names = [spec.name for spec in self._inputs]
        return {name: np.asarray(arrays[name]) for name in names if name in arrays}

    def _rows(self, feeds: Mapping[str, Array]) -> int | None:
        rows = {len(x) for x in feeds.values() if x.ndim}
        return rows.pop() if len(rows) == 1 else None

    def _run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        given = as_taken(self._state.feeds(feeds), self._taken)
        found = self._session.run_named(given, self._outputs)
        self._state.keep({name: found[name].copy() for name in self._feedback})  # theirs to change
        return found


def _identity(feeds: Mapping[str, Array]) -> tuple[object, ...]:
    """The arrays as the places in memory that they are."""
    return tuple((x.ctypes.data, x.shape, x.strides, x.dtype) for x in feeds.values())
