"""State that goes round: outputs of one batch that are inputs of the next.

Samples may leave a state's input out; it is then zeros for the first batch, and what the previous
batch put out for the others. A batch that has the state's input starts a new sequence from it.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import CalibrationError, QConfigError, kind_of, nearest
from onnxq.samples.inputs import InputSpec


class State:
    """The fed-back inputs of one session."""

    def __init__(self, inputs: tuple[InputSpec, ...], feedback: Mapping[str, str]) -> None:
        self._inputs = inputs
        self._feedback = dict(feedback)
        self._last: dict[str, Array] = {}

    def feeds(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """The batch, with state for the inputs that it leaves out."""
        left_out = [spec for spec in self._inputs if spec.optional and spec.name not in batch]
        return {**batch, **{spec.name: self._of(spec, batch) for spec in left_out}}

    def keep(self, outputs: Mapping[str, Array]) -> None:
        """Takes the state out of what a run returned."""
        self._last = {fed: outputs[output] for output, fed in self._feedback.items()}

    def _of(self, spec: InputSpec, batch: Mapping[str, Array]) -> Array:
        shape = state_shape(spec, self._inputs, batch)
        state = self._last.get(spec.name)
        if state is None:
            return np.zeros([1 if n is None else n for n in shape], spec.dtype)
        fits = len(shape) == state.ndim and all(
            n is None or n == size for n, size in zip(shape, state.shape, strict=True)
        )
        if not fits:
            raise CalibrationError(
                f"input '{spec.name}' is fed back with shape {state.shape}; this batch needs "
                f"{tuple('?' if n is None else n for n in shape)}. Keep the batch size, or begin a "
                f"new sequence by giving '{spec.name}' in the sample."
            )
        return state


def state_shape(
    spec: InputSpec, inputs: tuple[InputSpec, ...], batch: Mapping[str, Array]
) -> tuple[int | None, ...]:
    """The state's shape as far as the batch determines it.

    A dynamic dimension is that of the same name in an input of the batch; the first is else the
    first of the batch's first array; others are free (None).
    """
    given = [(other.shape, batch[other.name].shape) for other in inputs if other.name in batch]
    named = {
        name: size
        for wanted, shape in given
        for name, size in zip(wanted or (), shape, strict=False)
        if isinstance(name, str)
    }
    shape = [n if isinstance(n, int) else named.get(n or "") for n in spec.shape or ()]
    if shape and shape[0] is None and given and given[0][1]:
        shape[0] = given[0][1][0]
    return tuple(shape)


def as_feedback(feedback: object) -> dict[str, str]:
    """{output name: input name}; None: no state."""
    if feedback is None:
        return {}
    if not isinstance(feedback, Mapping) or not all(
        isinstance(name, str) for pair in feedback.items() for name in pair
    ):
        raise QConfigError(
            f"feedback is {kind_of(feedback)} ({feedback!r}); wanted {{output name: input "
            "name}, such as {'h_out': 'h_in'}."
        )
    return dict(feedback)


def check_feedback(model: ir.Model, feedback: Mapping[str, str]) -> None:
    """Passes where the model has every output and input of {output name: input name}."""
    outputs = [str(value.name) for value in model.graph.outputs]
    inputs = [str(value.name) for value in model.graph.inputs]
    for output, fed in as_feedback(feedback).items():
        for name, known, kind in ((output, outputs, "output"), (fed, inputs, "input")):
            if name not in known:
                raise QConfigError(
                    f"feedback: the model has no {kind} '{name}'; it has {', '.join(known)}."
                    f"{nearest(name, known)}"
                )
